// The fold of OK, one stream at a time: A := P A over the remembered steps, and of its r terms and of what k steps add, S_s D_s, r
// terms again. P = H_k ... H_1 and S_s = H_k ... H_(s+1).
//
// Two passes over A. The first has P A and the inner products of all terms, a few columns at a time, while those are in the cache; the
// second mixes. What the steps add is never stored: S_s is, and has fewer columns.

#ifndef EVERGRAD_FOLD_H_
#define EVERGRAD_FOLD_H_

#include "mixing.h"
#include "products.h"
#include "vectors.h"

namespace {

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

// Some numbers as a vector, zeros after them.
template <typename T>
inline Vector<T> LoadSome(const T* from, int64_t count) {
  if (count >= kLanes<T>) return Load(from);
  alignas(64) T all[kLanes<T>] = {};
  std::memcpy(all, from, count * sizeof(T));
  return Load(all);
}

template <typename T>
inline void StoreSome(T* to, Vector<T> value, int64_t count) {
  if (count >= kLanes<T>) return Store(to, value);
  alignas(64) T all[kLanes<T>];
  Store(all, value);
  std::memcpy(to, all, count * sizeof(T));
}

template <typename T>
inline Vector<double> LoadDoubles(const T* from) {
  typedef T Some __attribute__((vector_size(sizeof(T) * kLanes<double>), aligned(sizeof(T)), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Some*>(from), Vector<double>);
}

constexpr int64_t kSide = 4;  // of a square of inner products

// sums += the inner products of kSide rows and kSide rows of `width` numbers, lane by lane, in double precision.
template <typename T>
inline void InnerSquare(const T* x, const T* y, int64_t width, Vector<double>* sums) {
  Vector<double> sum[kSide][kSide];
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t j = 0; j < kSide; ++j) sum[i][j] = sums[i * kSide + j];
  for (int64_t c = 0; c < width; c += kLanes<double>) {
    Vector<double> right[kSide];
    for (int64_t j = 0; j < kSide; ++j) right[j] = LoadDoubles(y + j * width + c);
    for (int64_t i = 0; i < kSide; ++i) {
      const Vector<double> left = LoadDoubles(x + i * width + c);
      for (int64_t j = 0; j < kSide; ++j) sum[i][j] += left * right[j];
    }
  }
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t j = 0; j < kSide; ++j) sums[i * kSide + j] = sum[i][j];
}

// Memory of one thread, for arrays of any type.
class Room {
 public:
  explicit Room(int64_t bytes) : bytes_(bytes) {}
  template <typename T>
  T* Take(int64_t numbers) {
    return reinterpret_cast<T*>(bytes_.Take(numbers * sizeof(T)));
  }
  template <typename T>
  static int64_t Bytes(int64_t numbers) {
    return RoundUp(numbers * sizeof(T), 64);
  }

 private:
  Scratch<char> bytes_;
};

template <typename T>
class Fold {
 public:
  Fold(const Steps<T>& steps, T* a, int64_t r)
      : steps_(steps), a_(a), r_(r), m_(steps.m()), dense_(r + steps.k - 1), room_(Needed()) {
    const int64_t panel = std::max(m_, dense_ + 1) * kColumns<T>;
    suffixes_ = room_.Take<T>(steps_.k * m_ * m_);
    packed_ = room_.Take<T>(RoundUp(m_, kRows) * m_);
    panel_ = room_.Take<T>(panel);
    terms_ = room_.Take<T>(padded() * kWidth<T>);
    sums_ = room_.Take<Vector<double>>(padded() * padded());
  }

  int64_t count() const { return dense_ + 1; }

  // A := P A, and the inner products [N, N] of all old and new terms.
  void Carry(double* gram) {
    for (int64_t step = steps_.k - 1; step >= 0; --step) Extend(step);
    PackLeft(Suffix(-1), m_, m_, m_, packed_);
    const int64_t n = count();
    std::fill(gram, gram + n * n, 0.0);
    for (int64_t unit = 0; unit < steps_.n; unit += kLanes<T>) {
      const int64_t there = std::min(kLanes<T>, steps_.n - unit);
      for (int64_t term = 0; term < r_; ++term)
        for (int64_t gate = 0; gate < steps_.g; gate += 2) CarryTerm(term, gate, unit, there);
      Inner(unit, there, gram);
    }
    for (int64_t i = 0; i < steps_.s * steps_.q(); ++i) {
      const double d = steps_.D(steps_.k - 1, 0, 0)[i];
      gram[n * n - 1] += d * d;
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i; j < n; ++j) gram[j * n + i] = gram[i * n + j];
  }

  // A_j := sum over i of weights_ji of all old and new terms i; weights [r, N].
  void Combine(const T* weights) {
    const int64_t n = count(), strips = (r_ + kRows - 1) / kRows;
    for (int64_t row = 0; row < m_; ++row) {
      for (int64_t gate = 0; gate < steps_.g; ++gate) {
        for (int64_t unit = 0; unit < steps_.n; unit += kColumns<T>) {
          const int64_t there = std::min(kColumns<T>, steps_.n - unit);
          for (int64_t half = 0; half < kColumns<T>; half += kLanes<T>)
            Gather(row, gate, unit + half, there - half, panel_ + half, kColumns<T>);
          T* out = a_ + row * r_ * steps_.q() + gate * steps_.n + unit;
          for (int64_t strip = 0; strip < strips; ++strip) {
            const int64_t from = strip * r_ / strips, rows = (strip + 1) * r_ / strips - from;
            SomeRowsOf<T, false>(rows, std::make_integer_sequence<int64_t, kRows>())(
                weights + from * n, n, panel_, dense_, out + from * steps_.q(), steps_.q(), there, false);
          }
        }
        const int64_t unit = row % steps_.n;  // the newest step adds a diagonal
        const T d = steps_.D(steps_.k - 1, row / steps_.n, gate)[unit];
        T* out = a_ + row * r_ * steps_.q() + gate * steps_.n + unit;
        for (int64_t j = 0; j < r_; ++j) out[j * steps_.q()] += weights[j * n + dense_] * d;
      }
    }
  }

 private:
  template <typename U>
  static constexpr int64_t kWidth = 512 / sizeof(U);  // numbers of each term whose inner products are taken at a time, at most

  int64_t padded() const { return RoundUp(dense_, kSide); }

  int64_t Needed() const {
    return Room::Bytes<T>(steps_.k * m_ * m_) + Room::Bytes<T>(RoundUp(m_, kRows) * m_) +
           Room::Bytes<T>(std::max(m_, dense_ + 1) * kColumns<T>) + Room::Bytes<T>(padded() * kWidth<T>) +
           Room::Bytes<Vector<double>>(padded() * padded());
  }

  // S of a step, and P for step -1; that of the newest is the identity, and not here.
  T* Suffix(int64_t step) const { return suffixes_ + (step + 1) * m_ * m_; }

  // The dense columns of H that start with `column`, as a panel.
  void PackTransition(int64_t step, int64_t column) {
    const int64_t n = steps_.n, there = std::min(kColumns<T>, n - column), more = there - kLanes<T>;
    const T alive = steps_.alive[step];
    T* to = panel_;
    for (int64_t a = 0; a < steps_.s; ++a) {
      for (int64_t i = 0; i < n; ++i, to += kColumns<T>) {
        Vector<T> first = {}, second = {};
        for (int64_t gate = 0; gate < steps_.g; ++gate) {
          const T weight = alive * steps_.D(step, a, gate)[i];
          const T* row = steps_.W(step, gate) + i * n + column;
          first += weight * LoadSome(row, there);
          if (more > 0) second += weight * LoadSome(row + kLanes<T>, more);
        }
        Store(to, first);
        Store(to + kLanes<T>, second);
        if (i >= column && i < column + there) to[i - column] += alive * steps_.E(step, a, 0)[i];
      }
    }
  }

  // S of the step before: S · H of this one, or H itself of the newest.
  void Extend(int64_t step) {
    const int64_t n = steps_.n, strips = (m_ + kRows - 1) / kRows;
    const T* suffix = step == steps_.k - 1 ? nullptr : Suffix(step);
    T* next = Suffix(step - 1);
    for (int64_t column = 0; column < n; column += kColumns<T>) {
      const int64_t there = std::min(kColumns<T>, n - column);
      PackTransition(step, column);
      if (suffix == nullptr) {
        for (int64_t row = 0; row < m_; ++row)
          std::memcpy(next + row * m_ + column, panel_ + row * kColumns<T>, there * sizeof(T));
        continue;
      }
      for (int64_t strip = 0; strip < strips; ++strip) {
        const int64_t from = strip * m_ / strips, rows = (strip + 1) * m_ / strips - from;
        SomeRowsOf<T, false>(rows, std::make_integer_sequence<int64_t, kRows>())(
            suffix + from * m_, m_, panel_, m_, next + from * m_ + column, m_, there, false);
      }
    }
    for (int64_t row = 0; row < m_; ++row) {  // the columns of the other state variables are diagonal
      for (int64_t b = 1; b < steps_.s; ++b) {
        T* to = next + row * m_ + b * n;
        std::fill(to, to + n, T(0));
        for (int64_t a = 0; a < steps_.s; ++a) {
          const T *e = steps_.E(step, a, b), alive = steps_.alive[step];
          if (suffix != nullptr) {
            for (int64_t i = 0; i < n; ++i) to[i] += alive * suffix[row * m_ + a * n + i] * e[i];
          } else if (row / n == a) {
            to[row % n] = alive * e[row % n];
          }
        }
      }
    }
  }

  // P A of one term, for some units and at most two gates, in place.
  void CarryTerm(int64_t term, int64_t gate, int64_t unit, int64_t there) {
    const int64_t n = steps_.n, stride = r_ * steps_.q();
    const bool both = gate + 1 < steps_.g;
    T* a = a_ + term * steps_.q() + gate * n + unit;
    for (int64_t row = 0; row < m_; ++row) {
      const T* from = a + row * stride;
      __builtin_prefetch(from + kLanes<T>, 1, 1);
      Store(panel_ + row * kColumns<T>, LoadSome(from, there));
      if (both) {
        __builtin_prefetch(from + n + kLanes<T>, 1, 1);
        Store(panel_ + row * kColumns<T> + kLanes<T>, LoadSome(from + n, there));
      }
    }
    for (int64_t row = 0; row < m_; row += kRows) {
      Vector<T> sum[kRows][2] = {};
      const T *left = packed_ + row * m_, *right = panel_;
      for (int64_t k = 0; k < m_; ++k, left += kRows, right += kColumns<T>) {
        const Vector<T> first = Load(right), second = Load(right + kLanes<T>);
        for (int64_t i = 0; i < kRows; ++i) {
          sum[i][0] += left[i] * first;
          sum[i][1] += left[i] * second;
        }
      }
      for (int64_t i = 0; i < std::min(kRows, m_ - row); ++i) {
        StoreSome(a + (row + i) * stride, sum[i][0], there);
        if (both) StoreSome(a + (row + i) * stride + n, sum[i][1], there);
      }
    }
  }

  // A vector of every term, for one row of the state, a gate and some units; one term after the other, `pitch` numbers apart.
  void Gather(int64_t row, int64_t gate, int64_t unit, int64_t there, T* to, int64_t pitch) const {
    const int64_t n = steps_.n;
    if (there <= 0) {
      for (int64_t i = 0; i < dense_; ++i) Store(to + i * pitch, Vector<T>{});
      return;
    }
    const T* old = a_ + row * r_ * steps_.q() + gate * n + unit;
    for (int64_t i = 0; i < r_; ++i, to += pitch) Store(to, LoadSome(old + i * steps_.q(), there));
    for (int64_t step = 0; step < steps_.k - 1; ++step, to += pitch) {
      Vector<T> sum = {};
      for (int64_t a = 0; a < steps_.s; ++a)
        sum += LoadSome(Suffix(step) + row * m_ + a * n + unit, there) *
               LoadSome(steps_.D(step, a, gate) + unit, there);
      Store(to, sum);
    }
  }

  // Adds the inner products over some units. In double precision: the small eigenvalues of nearly dependent terms are lost in single.
  void Inner(int64_t unit, int64_t there, double* gram) {
    const int64_t n = count(), some = std::max<int64_t>(1, kWidth<T> / (steps_.g * kLanes<T>));
    std::memset(sums_, 0, padded() * padded() * sizeof(Vector<double>));
    for (int64_t first = 0; first < m_; first += some) {
      const int64_t rows = std::min(some, m_ - first), all = rows * steps_.g, together = kWidth<T> / kLanes<T>;
      for (int64_t from = 0; from < all; from += together) {
        const int64_t vectors = std::min(together, all - from), width = vectors * kLanes<T>;
        for (int64_t v = 0; v < vectors; ++v) {
          const int64_t row = first + (from + v) / steps_.g, gate = (from + v) % steps_.g;
          Gather(row, gate, unit, there, terms_ + v * kLanes<T>, width);
          const int64_t at = row % steps_.n - unit;
          if (at >= 0 && at < there) WithNewest(row, gate, terms_ + v * kLanes<T> + at, width, gram);
        }
        for (int64_t i = dense_; i < padded(); ++i) std::fill(terms_ + i * width, terms_ + (i + 1) * width, T(0));
        Vector<double>* sums = sums_;
        for (int64_t i = 0; i < padded(); i += kSide)
          for (int64_t j = i; j < padded(); j += kSide, sums += kSide * kSide)
            InnerSquare(terms_ + i * width, terms_ + j * width, width, sums);
      }
    }
    const Vector<double>* sums = sums_;
    for (int64_t i = 0; i < padded(); i += kSide) {
      for (int64_t j = i; j < padded(); j += kSide, sums += kSide * kSide) {
        for (int64_t a = i; a < std::min(dense_, i + kSide); ++a)
          for (int64_t b = std::max(a, j); b < std::min(dense_, j + kSide); ++b)
            gram[a * n + b] += Total(sums[(a - i) * kSide + b - j]);
      }
    }
  }

  // The newest step adds D, a diagonal.
  void WithNewest(int64_t row, int64_t gate, const T* terms, int64_t pitch, double* gram) const {
    const double d = steps_.D(steps_.k - 1, row / steps_.n, gate)[row % steps_.n];
    for (int64_t i = 0; i < dense_; ++i) gram[i * count() + dense_] += d * terms[i * pitch];
  }

  const Steps<T>& steps_;
  T* a_;
  int64_t r_, m_, dense_;
  Room room_;
  T *suffixes_, *packed_, *panel_, *terms_;
  Vector<double>* sums_;
};

}  // namespace

#endif  // EVERGRAD_FOLD_H_
