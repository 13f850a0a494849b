// UORO's v [B, p, q], one number a weight and stream: rewritten, contracted, and its new norm taken, in one read and one write.

#ifndef EVERGRAD_RANK_ONE_H_
#define EVERGRAD_RANK_ONE_H_

#include "adam.h"
#include "team.h"
#include "vectors.h"

namespace {

// Of one stream: where its rows and columns are, by what v is kept, and what it weighs in the gradient.
template <typename T>
struct Lane {
  T* v;
  const T *rows, *columns;
  T keep, weight;
};

// v := keep v + mask ∘ (row ⊗ columns) of `Lanes` streams, for one row; adds what they weigh to the gradient, and to the squares.
// Several at a time, since memory answers several questions as fast as one.
template <typename T, int64_t Lanes, bool Masked>
void MixRow(const Lane<T>* lanes, int64_t row, int64_t q, const T* mask, T* gradient, T* squares) {
  T* v[Lanes];
  const T* columns[Lanes];
  T entry[Lanes], keep[Lanes], weight[Lanes];
  Vector<T> sums[Lanes] = {};
  for (int64_t b = 0; b < Lanes; ++b) {
    v[b] = lanes[b].v + row * q;
    columns[b] = lanes[b].columns;
    entry[b] = lanes[b].rows[row];
    keep[b] = lanes[b].keep;
    weight[b] = lanes[b].weight;
  }
  int64_t j = 0;
  for (; j + kLanes<T> <= q; j += kLanes<T>) {
    Vector<T> total = Load(gradient + j);
    for (int64_t b = 0; b < Lanes; ++b) {
      Vector<T> added = entry[b] * Load(columns[b] + j);
      if constexpr (Masked) added *= Load(mask + j);
      const Vector<T> here = keep[b] * Load(v[b] + j) + added;
      Store(v[b] + j, here);
      total += weight[b] * here;
      sums[b] += here * here;
    }
    Store(gradient + j, total);
  }
  for (int64_t b = 0; b < Lanes; ++b) {
    T sum = 0;
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) sum += sums[b][lane];
    for (int64_t i = j; i < q; ++i) {
      const T added = entry[b] * columns[b][i] * (Masked ? mask[i] : T(1)), here = keep[b] * v[b][i] + added;
      v[b][i] = here;
      gradient[i] += weight[b] * here;
      sum += here * here;
    }
    squares[b] += sum;
  }
}

// The rows from `begin` to `end` of all streams; squares [B] of these rows.
template <typename T, bool Masked>
void MixRows(const std::vector<Lane<T>>& lanes, int64_t begin, int64_t end, int64_t q, const T* mask, T* gradient,
             T* squares) {
  constexpr int64_t kTogether = 4;
  const int64_t streams = lanes.size();
  std::fill(gradient + begin * q, gradient + end * q, T(0));
  int64_t b = 0;
  for (; b + kTogether <= streams; b += kTogether)
    for (int64_t row = begin; row < end; ++row)
      MixRow<T, kTogether, Masked>(&lanes[b], row, q, Masked ? mask + row * q : nullptr, gradient + row * q, squares + b);
  for (; b < streams; ++b)
    for (int64_t row = begin; row < end; ++row)
      MixRow<T, 1, Masked>(&lanes[b], row, q, Masked ? mask + row * q : nullptr, gradient + row * q, squares + b);
}

// rows [B, p], columns [B, q], and of every stream the factor of v and the weight in the gradient, [B, 2]; the mask may be none.
template <ffi::DataType kType>
ffi::Error MixCall(ffi::ThreadPool pool, ffi::Buffer<kType> v, ffi::Buffer<kType> rows, ffi::Buffer<kType> columns,
                   ffi::Buffer<kType> factors, ffi::Buffer<kType> mask, ffi::Result<ffi::Buffer<kType>> out,
                   ffi::Result<ffi::Buffer<kType>> gradient, ffi::Result<ffi::Buffer<kType>> squares) {
  using T = ffi::NativeType<kType>;
  if (out->typed_data() != v.typed_data()) return ffi::Error::Internal("mix works in place");
  auto shape = v.dimensions();
  const int64_t streams = shape[0], p = shape[1], q = shape[2];
  std::vector<Lane<T>> lanes;
  for (int64_t b = 0; b < streams; ++b)
    lanes.push_back({out->typed_data() + b * p * q, rows.typed_data() + b * p, columns.typed_data() + b * q,
                     factors.typed_data()[2 * b], factors.typed_data()[2 * b + 1]});
  // long stretches of every stream, since the processor fetches ahead within them, and a few for every thread
  const int64_t wanted = std::max<int64_t>(8, p * q / (1 << 14)), some = std::max<int64_t>(1, (p + wanted - 1) / wanted);
  const int64_t blocks = (p + some - 1) / some;
  std::vector<T> partial(blocks * streams, T(0));
  Portions(pool, blocks, [&](int64_t i) {
    const int64_t begin = i * some, end = std::min(p, begin + some);
    T *to = gradient->typed_data(), *sums = partial.data() + i * streams;
    if (mask.element_count()) {
      MixRows<T, true>(lanes, begin, end, q, mask.typed_data(), to, sums);
    } else {
      MixRows<T, false>(lanes, begin, end, q, nullptr, to, sums);
    }
  });
  for (int64_t b = 0; b < streams; ++b) {
    T total = 0;
    for (int64_t i = 0; i < blocks; ++i) total += partial[i * streams + b];
    squares->typed_data()[b] = total;
  }
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto BindMix() {
  using A = ffi::Buffer<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Arg<A>().template Ret<A>().template Ret<A>().template Ret<A>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(mix_float32, MixCall<ffi::F32>, BindMix<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(mix_float64, MixCall<ffi::F64>, BindMix<ffi::F64>());

#endif  // EVERGRAD_RANK_ONE_H_
