// What estimators do with their largest array. That of OK is A [B, m, r, q]: r matrices of m by q for each of B streams.
//
//   carry     A := P A in place, for some streams, where P = H_k ... H_1 is the transition of k remembered steps. Also
//             gives what each of those steps adds, fresh_s = S_s D_s with S_s = H_k ... H_{s+1}, and the Gram matrix of
//             all r + k terms, in double precision, which goes out as pairs of 32 bits.
//   combine   A_j := sum over i of w_ij A_i over the old and the fresh terms, in place, for some streams.
//   multiply  A := P A in place for given P [B, m, m]: for the benchmark, which asks what the products alone take.
//   squares   the sum of the squares of any array, for all streams.
//
// A stream is the work of one thread, from XLA's own pool, so a result does not depend on how many threads there are.
// Products are computed in tiles of as many rows by 2 vectors as the registers hold (16 of 32 bytes, or 32 of 64), from
// operands that were copied to the order in which they are read.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

#ifdef __AVX512F__
constexpr int64_t kBytes = 64, kRows = 12;
#else
constexpr int64_t kBytes = 32, kRows = 6;
#endif
constexpr int64_t kBlock = 8;  // panels that are packed at a time

template <typename T>
constexpr int64_t kLanes = kBytes / sizeof(T);

template <typename T>
constexpr int64_t kColumns = 2 * kLanes<T>;

template <typename T>
struct VectorOf {
  typedef T Aligned __attribute__((vector_size(kBytes)));
  typedef T Anywhere __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
};

template <typename T>
using Vector = typename VectorOf<T>::Aligned;

template <typename T>
inline Vector<T> Load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::Anywhere*>(from);
}

template <typename T>
inline void Store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::Anywhere*>(to) = value;
}

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Calls item(0), ..., item(count - 1) on the threads of the pool. The caller is one of them and takes what is left, so
// that it never waits for a thread that has not begun.
template <typename Item>
void ShareOut(ffi::ThreadPool& pool, int64_t count, Item item) {
  struct Work {
    Item item;
    int64_t count;
    std::atomic<int64_t> next{0}, done{0};
    Work(Item i, int64_t n) : item(i), count(n) {}
    void Run() {
      for (int64_t i; (i = next.fetch_add(1)) < count;) {
        item(i);
        done.fetch_add(1, std::memory_order_release);
      }
    }
  };
  auto work = std::make_shared<Work>(item, count);
  for (int64_t i = 1; i < std::min(pool.num_threads(), count); ++i) {
    pool.Schedule([work] { work->Run(); });
  }
  work->Run();
  while (work->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

// Memory of one thread, in several parts, aligned for vectors; kept from call to call.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t numbers) {
    thread_local std::vector<T> memory;
    const int64_t spare = 64 / sizeof(T);
    if (static_cast<int64_t>(memory.size()) < numbers + spare) memory.resize(numbers + spare);
    next_ = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  }
  T* Take(int64_t numbers) {
    T* part = next_;
    next_ += RoundUp(numbers, 64 / sizeof(T));
    return part;
  }

 private:
  T* next_;
};

// ---- products ----------------------------------------------------------------------------------------------------

// A left operand [rows, depth] as strips of kRows rows, each with the numbers of a column side by side.
template <typename T>
void PackLeft(const T* from, int64_t rows, int64_t depth, int64_t stride, T* to) {
  for (int64_t row = 0; row < rows; row += kRows, to += kRows * depth) {
    const int64_t there = std::min(kRows, rows - row);
    if (there < kRows) std::fill(to, to + kRows * depth, T(0));
    for (int64_t i = 0; i < there; ++i) {
      const T* source = from + (row + i) * stride;
      for (int64_t k = 0; k < depth; ++k) to[k * kRows + i] = source[k];
    }
  }
}

// kRows rows and two vectors of columns of a product; `rows` and `columns` of them are kept. `pitch` is from row to row of
// the right operand.
template <typename T>
inline void Tile(const T* left, const T* right, int64_t pitch, int64_t depth, T* out, int64_t stride, int64_t rows,
                 int64_t columns) {
  Vector<T> sum[kRows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const Vector<T> first = Load(right + k * pitch), second = Load(right + k * pitch + kLanes<T>);
    for (int64_t i = 0; i < kRows; ++i) {
      const T weight = left[k * kRows + i];
      sum[i][0] += weight * first;
      sum[i][1] += weight * second;
    }
  }
  if (rows == kRows && columns == kColumns<T>) {
    for (int64_t i = 0; i < kRows; ++i) {
      Store(out + i * stride, sum[i][0]);
      Store(out + i * stride + kLanes<T>, sum[i][1]);
    }
    return;
  }
  alignas(64) T row[kColumns<T>];
  for (int64_t i = 0; i < rows; ++i) {
    Store(row, sum[i][0]);
    Store(row + kLanes<T>, sum[i][1]);
    std::memcpy(out + i * stride, row, columns * sizeof(T));
  }
}

// out [rows, columns] = left · right, for a packed left operand and a panel of at most two vectors of columns.
template <typename T>
void Panel(const T* left, const T* right, int64_t pitch, int64_t rows, int64_t depth, T* out, int64_t stride,
           int64_t columns) {
  for (int64_t row = 0; row < rows; row += kRows) {
    Tile(left + row * depth, right, pitch, depth, out + row * stride, stride, std::min(kRows, rows - row), columns);
  }
}

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

template <typename T>
T Squares(const T* from, int64_t numbers) {
  constexpr int64_t kTogether = 4;
  Vector<T> sum[kTogether] = {};
  int64_t i = 0;
  for (; i + kTogether * kLanes<T> <= numbers; i += kTogether * kLanes<T>) {
    for (int64_t j = 0; j < kTogether; ++j) {
      const Vector<T> here = Load(from + i + j * kLanes<T>);
      sum[j] += here * here;
    }
  }
  const Vector<T> all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  T total = 0;
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) total += all[lane];
  for (; i < numbers; ++i) total += from[i] * from[i];
  return total;
}

// ---- calls from XLA ----------------------------------------------------------------------------------------------

template <ffi::DataType kType>
using Array = ffi::Buffer<kType>;

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
  ShareOut(pool, some, [&](int64_t i) {
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
  ShareOut(pool, some, [&](int64_t i) {
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
  ShareOut(pool, streams, [&](int64_t b) {
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
    partial[i] = Squares(a.typed_data() + b * numbers + from, std::min(portion, numbers - from));
  });
  for (int64_t b = 0; b < streams; ++b) {
    T total = 0;
    for (int64_t i = 0; i < portions; ++i) total += partial[b * portions + i];
    out->typed_data()[b] = total;
  }
  return ffi::Error::Success();
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
