// What estimators do with their largest array. That of OK is A [B, m, r, q]: r matrices of m by q for each of B streams.
//
//   fold      A := P A in place, where P = H_k ... H_1 is the transition of k remembered steps, and of its r terms and the k that
//             the steps add r terms again, with their vectors u (fold.h, mixing.h).
//   carry     A := P A in place over one step, and the Gram matrix of all r + 1 terms, in double precision, which goes out as
//             pairs of 32 bits.
//   combine   A_j := sum over i of w_ij A_i over the old terms and the fresh one, in place.
//   multiply  A := P A in place for given P [B, m, m]: for the benchmark, which asks what the products alone take.
//   squares   the sum of the squares of any array, for all streams.
//   read      what is kept in bfloat16, contracted (narrow.h); `fold` takes it too.
//   mix       UORO's one number a weight: rewritten, contracted and measured (rank_one.h).
//   triples   a step of KTP (triples.h).
//
// And what all do, at shapes at which XLA's products take two to three times as long:
//
//   product   X W, of few rows and weights as they lie.
//   outer     X^T Y, of many rows.
//   back      dL/dh carried back through remembered steps, all of them in one call.
//   adam      clipping and Adam, for all weights in one call (adam.h).
//   bits, fold        random bits, the same that JAX draws (threefry.h).
//
// No number is summed in an order that depends on how many threads there are.

#include "adam.h"
#include "backward.h"
#include "fold.h"
#include "narrow.h"
#include "products.h"
#include "rank_one.h"
#include "team.h"
#include "threefry.h"
#include "triples.h"
#include "vectors.h"

namespace {

// a := p · a in place, for p [m, m] and a [m, width]; `packed` and `panels` are scratch.
template <typename T>
void Multiply(const T* p, int64_t m, T* a, int64_t width, T* packed, T* panels) {
  PackLeft(p, m, m, m, packed);
  for (int64_t block = 0; block < width; block += kBlock * kColumns<T>) {
    const int64_t end = std::min(width, block + kBlock * kColumns<T>);
    for (int64_t row = 0; row < m; ++row) {
      T* to = panels + row * kColumns<T>;
      for (int64_t c = block; c < end; c += kColumns<T>, to += m * kColumns<T>)
        std::memcpy(to, a + row * width + c, std::min(kColumns<T>, end - c) * sizeof(T));
    }
    for (int64_t c = block; c < end; c += kColumns<T>)
      Panel(packed, panels + (c - block) * m, kColumns<T>, m, m, a + c, width, std::min(kColumns<T>, end - c));
  }
}

// ---- calls from XLA ----------------------------------------------------------------------------------------------

template <ffi::DataType kType>
using Array = ffi::Buffer<kType>;

// What the streams of a fold have in common.
template <typename T>
struct Streams {
  const T *diagonals, *direct, *alive, *weights;
  int64_t k, s, g, n;
  Steps<T> Of(int64_t b) const {
    return {diagonals + b * k * s * g * n, direct + b * k * s * s * n, alive + b * k, weights, k, s, g, n};
  }
};

template <ffi::DataType kType>
auto StreamsOf(Array<kType>& diagonals, Array<kType>& direct, Array<kType>& alive, Array<kType>& weights) {
  auto d = diagonals.dimensions();
  return Streams<ffi::NativeType<kType>>{diagonals.typed_data(), direct.typed_data(), alive.typed_data(),
                                         weights.typed_data(), d[1], d[2], d[3], d[4]};
}

// A is kept in the numbers of kKept: those of kType, or bfloat16, and then `rounding` has two random numbers for each stream.
template <ffi::DataType kType, ffi::DataType kKept>
ffi::Error FoldCall(ffi::ThreadPool pool, Array<kKept> a, Array<kType> u, Array<kType> regressors,
                    Array<kType> diagonals, Array<kType> direct, Array<kType> alive, Array<kType> weights,
                    Array<ffi::U32> bits, Array<ffi::U32> rounding, int64_t mix, ffi::Result<Array<kKept>> out,
                    ffi::Result<Array<kType>> vectors) {
  using T = ffi::NativeType<kType>;
  using Kept = std::conditional_t<kKept == ffi::BF16, uint16_t, T>;
  if (out->untyped_data() != a.untyped_data()) return ffi::Error::Internal("fold works in place");
  const auto streams = StreamsOf<kType>(diagonals, direct, alive, weights);
  const int64_t r = a.dimensions()[2], k = streams.k, p = u.dimensions()[2], n = r + k, random = bits.dimensions()[1];
  const int64_t numbers = streams.s * streams.n * r * streams.g * streams.n;
  ShareOut(pool, a.dimensions()[0], [&](int64_t b) {
    const Steps<T> steps = streams.Of(b);
    const uint32_t* noise = rounding.typed_data() + 2 * b;
    Fold<T, Kept> fold(steps, static_cast<Kept*>(out->untyped_data()) + b * numbers, r, Noise{noise[0], noise[1]});
    std::vector<double> gram(n * n), all(n * p), chosen(r * p), shares(r * n);
    fold.Carry(gram.data());
    std::copy_n(u.typed_data() + b * r * p, r * p, all.begin());
    std::copy_n(regressors.typed_data() + b * k * p, k * p, all.begin() + r * p);
    Mixed(Rows{all.data(), n, p}, Rows{gram.data(), n, n}, fold.kAccuracy, static_cast<Mix>(mix),
          bits.typed_data() + b * random, Rows{chosen.data(), r, p}, Rows{shares.data(), r, n});
    std::copy(chosen.begin(), chosen.end(), vectors->typed_data() + b * r * p);
    fold.Combine(std::vector<T>(shares.begin(), shares.end()).data());
  });
  return ffi::Error::Success();
}

// One step, with the inner products of the terms for somebody else to mix them by.
template <ffi::DataType kType>
ffi::Error CarryCall(ffi::ThreadPool pool, Array<kType> a, Array<kType> diagonals, Array<kType> direct,
                     Array<kType> alive, Array<kType> weights, ffi::Result<Array<kType>> out,
                     ffi::Result<Array<ffi::U32>> gram) {
  using T = ffi::NativeType<kType>;
  if (out->typed_data() != a.typed_data()) return ffi::Error::Internal("carry works in place");
  const auto streams = StreamsOf<kType>(diagonals, direct, alive, weights);
  if (streams.k != 1) return ffi::Error::InvalidArgument("carry: one step at a time");
  const int64_t r = a.dimensions()[2], numbers = streams.s * streams.n * r * streams.g * streams.n;
  ShareOutInPool(pool, a.dimensions()[0], [&](int64_t b) {
    const Steps<T> steps = streams.Of(b);
    Fold<T, T>(steps, out->typed_data() + b * numbers, r)
        .Carry(reinterpret_cast<double*>(gram->untyped_data()) + b * (r + 1) * (r + 1));
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
ffi::Error CombineCall(ffi::ThreadPool pool, Array<kType> a, Array<kType> diagonals, Array<kType> mix,
                       ffi::Result<Array<kType>> out) {
  using T = ffi::NativeType<kType>;
  if (out->typed_data() != a.typed_data()) return ffi::Error::Internal("combine works in place");
  auto d = diagonals.dimensions();
  const int64_t r = a.dimensions()[2], s = d[2], g = d[3], n = d[4];
  ShareOutInPool(pool, a.dimensions()[0], [&](int64_t b) {
    const Steps<T> steps{diagonals.typed_data() + b * s * g * n, nullptr, nullptr, nullptr, 1, s, g, n};
    std::vector<T> turned(r * (r + 1));
    for (int64_t i = 0; i <= r; ++i)
      for (int64_t j = 0; j < r; ++j) turned[j * (r + 1) + i] = mix.typed_data()[(b * (r + 1) + i) * r + j];
    Fold<T, T>(steps, out->typed_data() + b * s * n * r * g * n, r).Combine(turned.data());
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
ffi::Error MultiplyCall(ffi::ThreadPool pool, Array<kType> a, Array<kType> p, ffi::Result<Array<kType>> out) {
  using T = ffi::NativeType<kType>;
  if (out->typed_data() != a.typed_data()) return ffi::Error::Internal("multiply works in place");
  auto shape = a.dimensions();
  const int64_t streams = shape[0], m = shape[1], width = shape[2], strips = RoundUp(m, kRows) * m;
  ShareOutInPool(pool, streams, [&](int64_t b) {
    Scratch<T> scratch(strips + kBlock * m * kColumns<T> + 256);
    T* packed = scratch.Take(strips);
    Multiply(p.typed_data() + b * m * m, m, out->typed_data() + b * m * width, width, packed,
             scratch.Take(kBlock * m * kColumns<T>));
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
ffi::Error SquaresCall(ffi::ThreadPool pool, Array<kType> a, ffi::Result<Array<kType>> out) {
  using T = ffi::NativeType<kType>;
  const int64_t streams = out->element_count(), numbers = streams ? a.element_count() / streams : 0;
  const int64_t portion = 1 << 14, portions = (numbers + portion - 1) / portion;
  std::vector<T> partial(streams * portions);
  ShareOut(pool, streams * portions, [&](int64_t i) {
    const int64_t b = i / portions, from = i % portions * portion;
    partial[i] = SumOfSquares(a.typed_data() + b * numbers + from, std::min(portion, numbers - from));
  });
  for (int64_t b = 0; b < streams; ++b) {
    T total = 0;
    for (int64_t i = 0; i < portions; ++i) total += partial[b * portions + i];
    out->typed_data()[b] = total;
  }
  return ffi::Error::Success();
}

template <ffi::DataType kType, bool Turned>
ffi::Error ProductCall(ffi::ThreadPool pool, Array<kType> left, Array<kType> right, ffi::Result<Array<kType>> out) {
  using T = ffi::NativeType<kType>;
  auto shape = left.dimensions(), other = right.dimensions();
  const int64_t last = shape[shape.size() - 1], before = last ? left.element_count() / last : 0;
  const int64_t columns = other[other.size() - 1], rows = Turned ? last : before, depth = Turned ? before : last;
  if (depth * columns != right.element_count()) return ffi::Error::InvalidArgument("product: shapes do not match");
  MultiplyAll(pool, Factors<T, Turned>{left.typed_data(), right.typed_data(), rows, depth, columns}, out->typed_data());
  return ffi::Error::Success();
}

// `weights` is [1 or slots, rows, gn], and W_h begins at its row `first`; `noted` may have no slots.
template <ffi::DataType kType>
ffi::Error BackCall(ffi::ThreadPool pool, Array<kType> delta, Array<kType> diagonals, Array<kType> direct,
                    Array<kType> alive, Array<kType> noted, Array<kType> weights, ffi::Buffer<ffi::S32> newest,
                    ffi::Buffer<ffi::S32> reach, int64_t first, int64_t waited, ffi::Result<Array<kType>> left,
                    ffi::Result<Array<kType>> columns) {
  using T = ffi::NativeType<kType>;
  auto d = diagonals.dimensions(), w = weights.dimensions();
  const int64_t slots = d[0], streams = d[1], s = d[2], g = d[3], n = d[4], q = g * n;
  if (s > 16 || w[2] != q || w[1] < first + n) return ffi::Error::InvalidArgument("back: shapes do not match");
  const Ring<T> ring{diagonals.typed_data(), direct.typed_data(), alive.typed_data(), noted.typed_data(),
                     weights.typed_data() + first * q, slots, streams, s, g, n, w[0] == 1 ? 0 : w[1] * q,
                     newest.typed_data()[0], reach.typed_data()[0], noted.dimensions()[0] ? waited : 0};
  T* all = columns->typed_data();
  for (int64_t back = ring.reach; back < slots; ++back) {
    T* unused = all + ring.Slot(back) * streams * q;
    std::fill(unused, unused + streams * q, T(0));
  }
  const int64_t most = (streams + kLefts - 1) / kLefts, wanted = std::max<int64_t>(pool.num_threads(), streams / 32);
  const int64_t parts = std::min(wanted, Parts(pool, ring.reach * streams * n * q, most));
  ShareOut(pool, parts, [&](int64_t part) {
    const int64_t begin = part * most / parts * kLefts, end = (part + 1) * most / parts * kLefts;
    ring.Back(delta.typed_data(), begin, std::min(end, streams), left->typed_data(), all);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto BindBack() {
  using A = Array<kType>;
  using Number = ffi::Buffer<ffi::S32>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Arg<A>().template Arg<A>().template Arg<Number>().template Arg<Number>()
      .template Attr<int64_t>("first").template Attr<int64_t>("waited").template Ret<A>().template Ret<A>();
}

template <ffi::DataType kType>
auto BindMultiply() {
  using A = Array<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Ret<A>();
}

template <ffi::DataType kType>
auto BindSquares() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<Array<kType>>().template Ret<Array<kType>>();
}

template <ffi::DataType kType, ffi::DataType kKept>
auto BindFold() {
  using A = Array<kType>;
  using Random = Array<ffi::U32>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<Array<kKept>>().template Arg<A>().template Arg<A>()
      .template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<Random>()
      .template Arg<Random>().template Attr<int64_t>("mix").template Ret<Array<kKept>>().template Ret<A>();
}

template <ffi::DataType kType>
auto BindCarry() {
  using A = Array<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Arg<A>().template Arg<A>().template Ret<A>().template Ret<Array<ffi::U32>>();
}

template <ffi::DataType kType>
auto BindCombine() {
  using A = Array<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Ret<A>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(fold_float32, (FoldCall<ffi::F32, ffi::F32>), (BindFold<ffi::F32, ffi::F32>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(fold_float64, (FoldCall<ffi::F64, ffi::F64>), (BindFold<ffi::F64, ffi::F64>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(fold_bfloat16, (FoldCall<ffi::F32, ffi::BF16>), (BindFold<ffi::F32, ffi::BF16>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(carry_float32, CarryCall<ffi::F32>, BindCarry<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(carry_float64, CarryCall<ffi::F64>, BindCarry<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(combine_float32, CombineCall<ffi::F32>, BindCombine<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(combine_float64, CombineCall<ffi::F64>, BindCombine<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(multiply_float32, MultiplyCall<ffi::F32>, BindMultiply<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(multiply_float64, MultiplyCall<ffi::F64>, BindMultiply<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(squares_float32, SquaresCall<ffi::F32>, BindSquares<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(squares_float64, SquaresCall<ffi::F64>, BindSquares<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(product_float32, (ProductCall<ffi::F32, false>), BindMultiply<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(product_float64, (ProductCall<ffi::F64, false>), BindMultiply<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(outer_float32, (ProductCall<ffi::F32, true>), BindMultiply<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(outer_float64, (ProductCall<ffi::F64, true>), BindMultiply<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(back_float32, BackCall<ffi::F32>, BindBack<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(back_float64, BackCall<ffi::F64>, BindBack<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(read_bfloat16, ReadCall, BindRead());
