// What estimators do with their largest array. That of OK is A [B, m, r, q]: r matrices of m by q for each of B streams.
//
//   carry     A := P A in place, for some streams, where P = H_k ... H_1 is the transition of k remembered steps. Also
//             gives what each of those steps adds, fresh_s = S_s D_s with S_s = H_k ... H_{s+1}, and the Gram matrix of
//             all r + k terms, in double precision, which goes out as pairs of 32 bits.
//   combine   A_j := sum over i of w_ij A_i over the old and the fresh terms, in place, for some streams.
//   multiply  A := P A in place for given P [B, m, m]: for the benchmark, which asks what the products alone take.
//   squares   the sum of the squares of any array, for all streams.
//   read      what is kept in bfloat16, contracted (narrow.h).
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
#include "narrow.h"
#include "products.h"
#include "rank_one.h"
#include "team.h"
#include "threefry.h"
#include "triples.h"
#include "vectors.h"

namespace {

// ---- the transition of a window ----------------------------------------------------------------------------------

// The remembered steps of one stream: D [k, s, g, n], E [k, s, s, n], alive [k], and the weights of each step as
// [k, g, n, n], to unit first: H_(a,i),(b,j) = alive (E_ab,i [i = j] + [b = 0] sum over g of D_ag,i W_g,i,j).
template <typename T>
struct Steps {
  const T *diagonals, *direct, *alive, *weights;
  int64_t k, s, g, n;
  int64_t m() const { return s * n; }
  int64_t q() const { return g * n; }
  const T* D(int64_t step, int64_t a, int64_t gate) const { return diagonals + ((step * s + a) * g + gate) * n; }
  const T* E(int64_t step, int64_t a, int64_t b) const { return direct + ((step * s + a) * s + b) * n; }
  const T* W(int64_t step, int64_t gate) const { return weights + (step * g + gate) * n * n; }
};

// The dense columns of H that start with `column`, as a panel.
template <typename T>
void PackTransition(const Steps<T>& steps, int64_t step, int64_t column, T* panel) {
  const int64_t n = steps.n, there = std::min(kColumns<T>, n - column);
  const T alive = steps.alive[step];
  for (int64_t a = 0; a < steps.s; ++a) {
    for (int64_t i = 0; i < n; ++i, panel += kColumns<T>) {
      std::fill(panel, panel + kColumns<T>, T(0));
      for (int64_t gate = 0; gate < steps.g; ++gate) {
        const T weight = alive * steps.D(step, a, gate)[i];
        const T* row = steps.W(step, gate) + i * n + column;
        for (int64_t j = 0; j < there; ++j) panel[j] += weight * row[j];
      }
      if (i >= column && i < column + there) panel[i - column] += alive * steps.E(step, a, 0)[i];
    }
  }
}

// fresh[row, step] = S D of one step, for all rows; S is the identity if it is not given.
template <typename T>
void CarryForward(const Steps<T>& steps, int64_t step, const T* suffix, T* fresh) {
  const int64_t n = steps.n, m = steps.m(), q = steps.q();
  for (int64_t row = 0; row < m; ++row) {
    T* to = fresh + (row * steps.k + step) * q;
    if (suffix == nullptr) {
      std::fill(to, to + q, T(0));
      for (int64_t gate = 0; gate < steps.g; ++gate) to[gate * n + row % n] = steps.D(step, row / n, gate)[row % n];
      continue;
    }
    for (int64_t gate = 0; gate < steps.g; ++gate, to += n) {
      for (int64_t a = 0; a < steps.s; ++a) {
        const T *s = suffix + row * m + a * n, *d = steps.D(step, a, gate);
        if (a == 0) {
          for (int64_t i = 0; i < n; ++i) to[i] = s[i] * d[i];
        } else {
          for (int64_t i = 0; i < n; ++i) to[i] += s[i] * d[i];
        }
      }
    }
  }
}

// next = suffix · H of one step, or H itself if there is no suffix.
template <typename T>
void Extend(const Steps<T>& steps, int64_t step, const T* suffix, T* next, T* packed, T* panel) {
  const int64_t n = steps.n, m = steps.m();
  if (suffix != nullptr) PackLeft(suffix, m, m, m, packed);
  for (int64_t column = 0; column < n; column += kColumns<T>) {
    const int64_t there = std::min(kColumns<T>, n - column);
    PackTransition(steps, step, column, panel);
    if (suffix != nullptr) {
      Panel(packed, panel, kColumns<T>, m, m, next + column, m, there);
    } else {
      for (int64_t row = 0; row < m; ++row)
        std::memcpy(next + row * m + column, panel + row * kColumns<T>, there * sizeof(T));
    }
  }
  for (int64_t row = 0; row < m; ++row) {  // the columns of the other state variables are diagonal
    for (int64_t b = 1; b < steps.s; ++b) {
      T* to = next + row * m + b * n;
      std::fill(to, to + n, T(0));
      for (int64_t a = 0; a < steps.s; ++a) {
        const T* e = steps.E(step, a, b);
        if (suffix != nullptr) {
          for (int64_t i = 0; i < n; ++i) to[i] += steps.alive[step] * suffix[row * m + a * n + i] * e[i];
        } else if (row / n == a) {
          to[row % n] = steps.alive[step] * e[row % n];
        }
      }
    }
  }
}

// ---- sums over terms ---------------------------------------------------------------------------------------------

// A row of the state is a matrix of r old and k fresh terms by q numbers.
template <typename T>
struct Terms {
  const T *old, *fresh;
  int64_t m, r, k, q;
  int64_t count() const { return r + k; }

  // Columns [from, from + width) of one row, as `rows` rows of `width` numbers, zeros where there is nothing.
  template <typename To>
  void Copy(int64_t row, int64_t from, int64_t width, int64_t rows, To* to) const {
    const int64_t there = std::min(width, q - from);
    for (int64_t i = 0; i < rows; ++i, to += width) {
      if (i < count()) {
        const T* source = i < r ? old + (row * r + i) * q : fresh + (row * k + i - r) * q;
        std::copy(source + from, source + from + there, to);
        std::fill(to + there, to + width, To(0));
      } else {
        std::fill(to, to + width, To(0));
      }
    }
  }
};

// sums[4][3] += the inner products of 4 rows and 3 rows of `width` numbers, lane by lane.
template <typename T>
inline void InnerTile(const T* x, const T* y, int64_t width, Vector<T>* sums, int64_t stride) {
  Vector<T> sum[4][3];
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 3; ++b) sum[a][b] = sums[a * stride + b];
  for (int64_t c = 0; c < width; c += kLanes<T>) {
    Vector<T> right[3];
    for (int b = 0; b < 3; ++b) right[b] = Load(y + b * width + c);
    for (int a = 0; a < 4; ++a) {
      const Vector<T> left = Load(x + a * width + c);
      for (int b = 0; b < 3; ++b) sum[a][b] += left * right[b];
    }
  }
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 3; ++b) sums[a * stride + b] = sum[a][b];
}

// In double precision: the small eigenvalues of nearly dependent terms are lost in single. Sums are taken over every few
// rows, so that long ones are off by little: a Gram matrix that is not quite one has no square root.
template <typename T>
void Gram(const Terms<T>& terms, double* out) {
  constexpr int64_t kWidth = 128, kTogether = 8, kLane = kLanes<double>;
  const int64_t n = terms.count(), padded = RoundUp(n, 12);
  Scratch<double> scratch(padded * (kWidth + padded * kLane) + 64);
  double* x = scratch.Take(padded * kWidth);
  auto* sums = reinterpret_cast<Vector<double>*>(scratch.Take(padded * padded * kLane));
  std::fill(out, out + n * n, 0.0);
  for (int64_t row = 0; row < terms.m; ++row) {
    if (row % kTogether == 0) std::memset(sums, 0, padded * padded * sizeof(Vector<double>));
    for (int64_t from = 0; from < terms.q; from += kWidth) {
      const int64_t width = std::min(kWidth, RoundUp(terms.q - from, kLane));
      terms.Copy(row, from, width, padded, x);
      for (int64_t i = 0; i < n; i += 4)
        for (int64_t j = i / 3 * 3; j < n; j += 3)
          InnerTile<double>(x + i * width, x + j * width, width, sums + i * padded + j, padded);
    }
    if (row % kTogether != kTogether - 1 && row != terms.m - 1) continue;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i; j < n; ++j)
        for (int64_t lane = 0; lane < kLane; ++lane) out[i * n + j] += sums[i * padded + j][lane];
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i; j < n; ++j) out[j * n + i] = out[i * n + j];
}

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

template <typename T>
void Carry(const Steps<T>& steps, T* a, int64_t r, T* fresh, double* gram) {
  const int64_t m = steps.m(), strips = RoundUp(m, kRows) * m, block = kBlock * m * kColumns<T>;
  T* suffix = nullptr;
  Scratch<T> scratch(2 * m * m + strips + block + 256);
  T *next = scratch.Take(m * m), *spare = scratch.Take(m * m);
  T *packed = scratch.Take(strips), *panels = scratch.Take(block);
  for (int64_t step = steps.k - 1; step >= 0; --step) {
    CarryForward(steps, step, suffix, fresh);
    Extend(steps, step, suffix, next, packed, panels);
    suffix = next;
    std::swap(next, spare);
  }
  Multiply(suffix, m, a, r * steps.q(), packed, panels);
  Gram(Terms<T>{a, fresh, m, r, steps.k, steps.q()}, gram);
}

template <typename T>
void Combine(const Terms<T>& terms, const T* weights, T* out) {
  constexpr int64_t kWidth = 512 / sizeof(T);
  const int64_t n = terms.count(), r = terms.r, padded = RoundUp(r, kRows);
  Scratch<T> scratch(n * padded + (n + padded) * kWidth + 256);
  T *packed = scratch.Take(n * padded), *x = scratch.Take(n * kWidth), *mixed = scratch.Take(padded * kWidth);
  std::vector<T> turned(r * n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < r; ++j) turned[j * n + i] = weights[i * r + j];
  PackLeft(turned.data(), r, n, n, packed);
  for (int64_t row = 0; row < terms.m; ++row) {
    for (int64_t from = 0; from < terms.q; from += kWidth) {
      const int64_t width = std::min(kWidth, terms.q - from);
      terms.Copy(row, from, kWidth, n, x);
      for (int64_t c = 0; c < width; c += kColumns<T>)
        Panel(packed, x + c, kWidth, r, n, mixed + c, kWidth, kColumns<T>);
      for (int64_t j = 0; j < r; ++j)
        std::memcpy(out + (row * r + j) * terms.q + from, mixed + j * kWidth, width * sizeof(T));
    }
  }
}

// ---- calls from XLA ----------------------------------------------------------------------------------------------

template <ffi::DataType kType>
using Array = ffi::Buffer<kType>;

// Measured at 128 units and 16 streams, and at 256 and 32: without a window, where XLA factorises between short calls, the
// pool's threads are a fifth faster than helpers beside them; a window's long fold is a third faster with the helpers.
template <typename Item>
void ShareOutFold(ffi::ThreadPool& pool, int64_t steps, int64_t count, Item item) {
  if (steps > 1) {
    ShareOut(pool, count, item);
  } else {
    ShareOutInPool(pool, count, item);
  }
}

template <ffi::DataType kType>
ffi::Error CarryCall(ffi::ThreadPool pool, Array<kType> a, ffi::Buffer<ffi::S32> first, Array<kType> diagonals,
                     Array<kType> direct, Array<kType> alive, Array<kType> weights, ffi::Result<Array<kType>> out,
                     ffi::Result<Array<kType>> fresh, ffi::Result<Array<ffi::U32>> gram) {
  using T = ffi::NativeType<kType>;
  if (out->typed_data() != a.typed_data()) return ffi::Error::Internal("carry works in place");
  auto shape = a.dimensions(), d = diagonals.dimensions();
  const int64_t m = shape[1], r = shape[2], q = shape[3], some = d[0], k = d[1], s = d[2], g = d[3], n = d[4];
  if (m != s * n || q != g * n) return ffi::Error::InvalidArgument("carry: shapes do not match");
  const int64_t b = first.typed_data()[0], terms = r + k;
  ShareOutFold(pool, k, some, [&](int64_t i) {
    const Steps<T> steps{diagonals.typed_data() + i * k * s * g * n, direct.typed_data() + i * k * s * s * n,
                         alive.typed_data() + i * k, weights.typed_data(), k, s, g, n};
    Carry(steps, out->typed_data() + (b + i) * m * r * q, r, fresh->typed_data() + i * m * k * q,
          reinterpret_cast<double*>(gram->untyped_data()) + i * terms * terms);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
ffi::Error CombineCall(ffi::ThreadPool pool, Array<kType> a, ffi::Buffer<ffi::S32> first, Array<kType> fresh,
                       Array<kType> weights, ffi::Result<Array<kType>> out) {
  using T = ffi::NativeType<kType>;
  if (out->typed_data() != a.typed_data()) return ffi::Error::Internal("combine works in place");
  auto shape = a.dimensions(), f = fresh.dimensions();
  const int64_t m = shape[1], r = shape[2], q = shape[3], some = f[0], k = f[2], b = first.typed_data()[0];
  ShareOutFold(pool, k, some, [&](int64_t i) {
    T* here = out->typed_data() + (b + i) * m * r * q;
    const Terms<T> terms{here, fresh.typed_data() + i * m * k * q, m, r, k, q};
    Combine(terms, weights.typed_data() + i * terms.count() * r, here);
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

template <ffi::DataType kType>
auto BindCarry() {
  using A = Array<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<ffi::Buffer<ffi::S32>>()
      .template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Ret<A>().template Ret<A>().template Ret<Array<ffi::U32>>();
}

template <ffi::DataType kType>
auto BindCombine() {
  using A = Array<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<ffi::Buffer<ffi::S32>>()
      .template Arg<A>().template Arg<A>().template Ret<A>();
}

}  // namespace

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
