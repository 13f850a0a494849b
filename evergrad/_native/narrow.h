// What is kept in bfloat16: the upper half of a float.
//
//   fold   of OK, as fold.h has it, with A kept so. Factors of products are rounded at random to bfloat16 too, each for itself, so
//          that a product has the right mean; instructions for them are used where the processor has them.
//   read   the sum over rows of d_row A_row for every stream, of A [B, m, ...] and d [B, m]: one pass over A.

#ifndef EVERGRAD_NARROW_H_
#define EVERGRAD_NARROW_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "team.h"
#include "vectors.h"

namespace {

typedef uint16_t Halves __attribute__((vector_size(kBytes / 2), aligned(2), may_alias));
typedef uint32_t Bits __attribute__((vector_size(kBytes)));

inline Vector<float> LoadWidened(const uint16_t* from) {
  const Bits bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Bits) << 16;
  return reinterpret_cast<const Vector<float>&>(bits);
}

// Random bits that depend on a place and on two random numbers, and on nothing else: those of evergrad/_core/rounding.py.
struct Noise {
  uint32_t first, second;

  static Bits Scattered(Bits bits) {
    bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
    bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
    return bits ^ (bits >> 16);
  }

  // For as many places, one after the other, as a vector has lanes.
  Bits At(uint32_t place) const {
    Bits places;
    for (int64_t lane = 0; lane < kLanes<float>; ++lane) places[lane] = lane;
    return Scattered(Scattered((places + place) * 0x9E3779B9u + first) ^ second);
  }

  // Another such, for another purpose.
  Noise Apart(uint32_t purpose) const {
    const Bits bits = Noise{first, second ^ 0x5851F42Du}.At(2 * purpose);
    return {bits[0], bits[1]};
  }
};

inline Bits BitsOf(Vector<float> value) { return reinterpret_cast<const Bits&>(value); }

// One of the two neighbours of each number, such that the mean over 16 random bits is the number; what is not finite stays.
inline void StoreRounded(uint16_t* to, Vector<float> value, Bits noise, int64_t count) {
  const Bits bits = BitsOf(value);
  const auto special = (bits & 0x7F800000u) == 0x7F800000u;
  const auto no_number = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const Bits kept = ((bits + (special ? Bits{} : noise >> 16)) >> 16) | (no_number ? Bits{} + 0x40u : Bits{});
  typedef uint16_t Plain __attribute__((vector_size(kBytes / 2)));
  const Plain all = __builtin_convertvector(kept, Plain);
  std::memcpy(to, &all, std::min(count, kLanes<float>) * sizeof(uint16_t));
}

// Two numbers for each lane, the first in the lower half, rounded at random: by a half of the noise each.
inline Bits RoundedPair(Vector<float> one, Vector<float> other, Bits noise) {
  return ((BitsOf(one) + (noise >> 16)) >> 16) | ((BitsOf(other) + (noise & 0xFFFFu)) & 0xFFFF0000u);
}

inline Bits LoadHalves(const uint16_t* from, int64_t count) {
  if (count >= kLanes<float>) return __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Bits);
  alignas(64) uint16_t all[kLanes<float>] = {};
  std::memcpy(all, from, count * sizeof(uint16_t));
  return __builtin_convertvector(*reinterpret_cast<const Halves*>(all), Bits);
}

// sum += the products of two pairs, lane by lane.
inline Vector<float> AddPairs(Vector<float> sum, Bits x, Bits y) {
#ifdef __AVX512BF16__
  const auto found = _mm512_dpbf16_ps(reinterpret_cast<const __m512&>(sum), reinterpret_cast<const __m512bh&>(x),
                                      reinterpret_cast<const __m512bh&>(y));
  return reinterpret_cast<const Vector<float>&>(found);
#else
  const Bits x0 = x << 16, y0 = y << 16, x1 = x & 0xFFFF0000u, y1 = y & 0xFFFF0000u;
  return sum + reinterpret_cast<const Vector<float>&>(x0) * reinterpret_cast<const Vector<float>&>(y0) +
         reinterpret_cast<const Vector<float>&>(x1) * reinterpret_cast<const Vector<float>&>(y1);
#endif
}

// `Rows` rows of a product of pairs: left [Rows, pairs], `pitch` pairs from row to row, and a panel [pairs, two vectors]; the second
// vector of each row goes `gap` numbers after the first, and there may be none.
template <int64_t Rows>
void PairRows(const uint32_t* left, int64_t pitch, const uint32_t* panel, int64_t pairs, float* out, int64_t stride,
              int64_t gap, int64_t first, int64_t second) {
  Vector<float> sum[Rows][2] = {};
  for (int64_t k = 0; k < pairs; ++k, panel += kColumns<float>) {
    const Bits one = *reinterpret_cast<const Bits*>(panel), other = *reinterpret_cast<const Bits*>(panel + kLanes<float>);
    for (int64_t i = 0; i < Rows; ++i) {
      const Bits weight = Bits{} + left[i * pitch + k];
      sum[i][0] = AddPairs(sum[i][0], weight, one);
      sum[i][1] = AddPairs(sum[i][1], weight, other);
    }
  }
  for (int64_t i = 0; i < Rows; ++i) {
    StoreSome(out + i * stride, sum[i][0], first);
    if (second > 0) StoreSome(out + i * stride + gap, sum[i][1], second);
  }
}

template <int64_t... Less>
auto PairRowsOf(int64_t rows, std::integer_sequence<int64_t, Less...>) {
  using Function = void (*)(const uint32_t*, int64_t, const uint32_t*, int64_t, float*, int64_t, int64_t, int64_t, int64_t);
  constexpr Function of[] = {PairRows<Less + 1>...};
  return of[rows - 1];
}

// out [rows, ...] = left [rows, pairs] · panel.
inline void TimesPairs(const uint32_t* left, int64_t rows, int64_t pairs, const uint32_t* panel, float* out, int64_t stride,
                       int64_t gap, int64_t first, int64_t second) {
  const int64_t strips = (rows + kRows - 1) / kRows;
  for (int64_t strip = 0; strip < strips; ++strip) {
    const int64_t from = strip * rows / strips, some = (strip + 1) * rows / strips - from;
    PairRowsOf(some, std::make_integer_sequence<int64_t, kRows>())(left + from * pairs, pairs, panel, pairs,
                                                                   out + from * stride, stride, gap, first, second);
  }
}

// Numbers that lie side by side as pairs, rounded by the lower half of the noise.
inline void RoundAlong(const float* from, Bits noise, uint32_t* to) {
  typedef uint64_t Words __attribute__((vector_size(kBytes)));
  typedef uint32_t Some __attribute__((vector_size(kBytes / 2)));
  const Bits all = BitsOf(Load(from)) + (noise & 0xFFFFu);
  const Words words = reinterpret_cast<const Words&>(all);
  const Some found = __builtin_convertvector(((words >> 16) & 0xFFFFu) | ((words >> 32) & 0xFFFF0000u), Some);
  std::memcpy(to, &found, sizeof found);
}

// A left operand [rows, depth] as pairs along its depth, rounded at random.
inline void RoundLeft(const float* from, int64_t rows, int64_t depth, Noise noise, uint32_t* to) {
  constexpr int64_t kLane = kLanes<float>;
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t row = 0; row < rows; ++row, from += depth, to += pairs) {
    int64_t i = 0;
    for (; i + 2 * kLane <= depth; i += 2 * kLane) {
      const Bits random = noise.At(row * pairs + i / 2);
      RoundAlong(from + i, random, to + i / 2);
      RoundAlong(from + i + kLane, random >> 16, to + i / 2 + kLane / 2);
    }
    if (i == depth) continue;
    alignas(64) float rest[2 * kLane] = {};
    alignas(64) uint32_t found[kLane];
    std::memcpy(rest, from + i, (depth - i) * sizeof(float));
    const Bits random = noise.At(row * pairs + i / 2);
    RoundAlong(rest, random, found);
    RoundAlong(rest + kLane, random >> 16, found + kLane / 2);
    std::memcpy(to + i / 2, found, (pairs - i / 2) * sizeof(uint32_t));
  }
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
