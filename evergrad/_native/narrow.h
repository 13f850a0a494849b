// What is kept in bfloat16: the upper half of a float.
//
//   read   the sum over rows of d_row A_row for every stream, of A [B, m, ...] and d [B, m]: one pass over A.

#ifndef EVERGRAD_NARROW_H_
#define EVERGRAD_NARROW_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "team.h"
#include "vectors.h"

namespace {

typedef uint16_t Halves __attribute__((vector_size(kBytes / 2), aligned(2), may_alias));
typedef uint32_t Bits __attribute__((vector_size(kBytes)));

inline Vector<float> LoadWidened(const uint16_t* from) {
  const Bits bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Bits) << 16;
  return reinterpret_cast<const Vector<float>&>(bits);
}

// Columns [0, columns) of one stream: their sums stay in the nearest cache while some rows at a time pass by.
template <int64_t kTogether>
inline void AddRows(const uint16_t* a, const float* d, int64_t stride, int64_t columns, float* out) {
  int64_t j = 0;
  for (; j + kLanes<float> <= columns; j += kLanes<float>) {
    Vector<float> sum = Load(out + j);
    for (int64_t i = 0; i < kTogether; ++i) sum += d[i] * LoadWidened(a + i * stride + j);
    Store(out + j, sum);
  }
  for (; j < columns; ++j) {
    for (int64_t i = 0; i < kTogether; ++i) {
      const uint32_t bits = static_cast<uint32_t>(a[i * stride + j]) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      out[j] += d[i] * value;
    }
  }
}

inline void ReadColumns(const uint16_t* a, const float* d, int64_t rows, int64_t stride, int64_t columns, float* out) {
  constexpr int64_t kTogether = 8;
  std::fill(out, out + columns, 0.0f);
  int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether)
    AddRows<kTogether>(a + row * stride, d + row, stride, columns, out);
  for (; row < rows; ++row) AddRows<1>(a + row * stride, d + row, stride, columns, out);
}

inline ffi::Error ReadCall(ffi::ThreadPool pool, ffi::Buffer<ffi::BF16> a, ffi::Buffer<ffi::F32> d,
                           ffi::Result<ffi::Buffer<ffi::F32>> out) {
  constexpr int64_t kPortion = 2048;
  const int64_t streams = d.dimensions()[0], rows = d.dimensions()[1], numbers = streams * rows;
  const int64_t columns = numbers ? a.element_count() / numbers : 0, portions = (columns + kPortion - 1) / kPortion;
  const auto* from = static_cast<const uint16_t*>(a.untyped_data());
  ShareOut(pool, streams * portions, [&](int64_t i) {
    const int64_t b = i / portions, first = i % portions * kPortion;
    ReadColumns(from + b * rows * columns + first, d.typed_data() + b * rows, rows, columns,
                std::min(kPortion, columns - first), out->typed_data() + b * columns + first);
  });
  return ffi::Error::Success();
}

inline auto BindRead() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<ffi::BF16>>().Arg<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>();
}

}  // namespace

#endif  // EVERGRAD_NARROW_H_
