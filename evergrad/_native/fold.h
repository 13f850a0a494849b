// The fold of OK, one stream at a time: A := P A over the remembered steps, and of its r terms and of what k steps add, S_s D_s, r
// terms again. P = H_k ... H_1 and S_s = H_k ... H_(s+1).
//
// Two passes over A, and one that only reads it: P A, the inner products of all terms, and the combination. What the steps add is never
// stored: S_s is, and has fewer columns.

#ifndef EVERGRAD_FOLD_H_
#define EVERGRAD_FOLD_H_

#include <type_traits>

#include "mixing.h"
#include "narrow.h"
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

// As doubles, or as they are.
inline void StoreAs(double* to, Vector<double> value) { Store(to, value); }
inline void StoreAs(float* to, Vector<float> value) { Store(to, value); }
inline void StoreAs(double* to, Vector<float> value) {
  typedef float Half __attribute__((vector_size(kBytes / 2)));
  Half halves[2];
  std::memcpy(halves, &value, sizeof value);
  Store(to, __builtin_convertvector(halves[0], Vector<double>));
  Store(to + kLanes<double>, __builtin_convertvector(halves[1], Vector<double>));
}

constexpr int64_t kSide = 4;  // of a square of inner products

// sums += the inner products of kSide rows and kSide rows of `width` numbers, lane by lane.
template <typename T>
inline void InnerSquare(const T* x, const T* y, int64_t width, Vector<T>* sums) {
  Vector<T> sum[kSide][kSide];
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t j = 0; j < kSide; ++j) sum[i][j] = sums[i * kSide + j];
  for (int64_t c = 0; c < width; c += kLanes<T>) {
    Vector<T> right[kSide];
    for (int64_t j = 0; j < kSide; ++j) right[j] = Load(y + j * width + c);
    for (int64_t i = 0; i < kSide; ++i) {
      const Vector<T> left = Load(x + i * width + c);
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

// A is kept as numbers of type Kept: T, or bfloat16. In bfloat16 its terms are wrong by a thousandth each, and their inner products are
// then summed in T; else in double precision, since the small eigenvalues of nearly dependent terms are lost in single.
template <typename T, typename Kept>
class Fold {
 public:
  static constexpr bool kNarrow = !std::is_same_v<T, Kept>;
  using Sum = std::conditional_t<kNarrow, T, double>;
  static constexpr Accuracy kAccuracy =
      kNarrow ? Accuracy{std::numeric_limits<T>::epsilon(), 4 * std::numeric_limits<T>::epsilon()} : kDouble;

  Fold(const Steps<T>& steps, Kept* a, int64_t r, Noise noise = {})
      : steps_(steps), kept_(a), noise_(noise), r_(r), m_(steps.m()), dense_(r + steps.k - 1), room_(Sizes().Bytes()) {
    const Parts sizes = Sizes();
    suffixes_ = room_.Take<T>(sizes.suffixes);
    left_ = room_.Take<T>(sizes.left);
    panel_ = room_.Take<T>(sizes.panel);
    terms_ = room_.Take<Sum>(sizes.terms);
    sums_ = room_.Take<Vector<Sum>>(sizes.sums);
    mixed_ = room_.Take<T>(sizes.mixed);
    if constexpr (kNarrow) {
      product_ = room_.Take<T>(sizes.product);
    } else {
      product_ = kept_;
    }
  }

  int64_t count() const { return dense_ + 1; }

  // P A, and the inner products [N, N] of all old and new terms.
  void Carry(double* gram) {
    for (int64_t step = steps_.k - 1; step >= 0; --step) Extend(step);
    if constexpr (kNarrow) {
      RoundLeft(Suffix(-1), m_, m_, noise_.Apart(0), pairs(left_));
    } else {
      PackLeft(Suffix(-1), m_, m_, m_, left_);
    }
    const int64_t n = count(), width = r_ * steps_.q();
    for (int64_t from = 0; from < width; from += kBlock * kColumns<T>)
      CarryColumns(from, std::min(kBlock * kColumns<T>, width - from));
    std::fill(gram, gram + n * n, 0.0);
    Inner(gram);
    for (int64_t i = 0; i < steps_.s * steps_.q(); ++i) {
      const double d = steps_.D(steps_.k - 1, 0, 0)[i];
      gram[n * n - 1] += d * d;
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i; j < n; ++j) gram[j * n + i] = gram[i * n + j];
  }

  // A_j := sum over i of weights_ji of all old and new terms i; weights [r, N].
  void Combine(const T* weights) {
    const int64_t across = (steps_.n + kLanes<T> - 1) / kLanes<T>;
    for (int64_t row = 0; row < m_; ++row) {
      for (int64_t gate = 0; gate < steps_.g; ++gate) {
        const T d = steps_.D(steps_.k - 1, row / steps_.n, gate)[row % steps_.n];
        for (int64_t unit = 0; unit < steps_.n; unit += kColumns<T>) {
          const int64_t there = std::min(kColumns<T>, steps_.n - unit), newest = row % steps_.n - unit;
          Gather(row, gate * across + unit / kLanes<T>, there > kLanes<T> ? 2 : 1, panel_, kColumns<T>);
          const int64_t at = row * r_ * steps_.q() + gate * steps_.n + unit, inside = newest >= 0 && newest < there;
          if constexpr (kNarrow) {
            MixInto(weights, mixed_, kColumns<T>, there, inside ? newest : -1, d);
            for (int64_t j = 0; j < r_; ++j) Round(mixed_ + j * kColumns<T>, at + j * steps_.q(), there);
          } else {
            MixInto(weights, kept_ + at, steps_.q(), there, inside ? newest : -1, d);
          }
        }
      }
    }
  }

 private:
  static constexpr int64_t kWidth = 1536 / sizeof(Sum);  // numbers of each term whose inner products are taken at a time, at most

  struct Parts {
    int64_t suffixes, left, panel, terms, sums, mixed, product;
    int64_t Bytes() const {
      return Room::Bytes<T>(suffixes) + Room::Bytes<T>(left) + Room::Bytes<T>(panel) + Room::Bytes<Sum>(terms) +
             Room::Bytes<Vector<Sum>>(sums) + Room::Bytes<T>(mixed) + Room::Bytes<T>(product);
    }
  };

  int64_t padded() const { return RoundUp(dense_, kSide); }

  Parts Sizes() const {
    return {steps_.k * m_ * m_,
            RoundUp(m_, kRows) * (m_ + 1),
            std::max(std::max(kBlock, Panels()) * (m_ + 1), dense_ + 1) * kColumns<T>,
            padded() * kWidth,
            padded() * padded(),
            r_ * kColumns<T>,
            kNarrow ? m_ * stride() : 0};
  }

  // From row to row of P A. Rows that are apart by a power of two share few places in a cache.
  int64_t stride() const { return r_ * steps_.q() + (kNarrow ? 2 * kLanes<T> : 0); }

  // S of a step, and P for step -1; that of the newest is the identity, and not here.
  T* Suffix(int64_t step) const { return suffixes_ + (step + 1) * m_ * m_; }

  static uint32_t* pairs(T* numbers) { return reinterpret_cast<uint32_t*>(numbers); }

  void MixInto(const T* weights, T* out, int64_t stride, int64_t there, int64_t newest, T d) const {
    const int64_t strips = (r_ + kRows - 1) / kRows, n = count();
    for (int64_t strip = 0; strip < strips; ++strip) {
      const int64_t from = strip * r_ / strips, rows = (strip + 1) * r_ / strips - from;
      SomeRowsOf<T, false>(rows, std::make_integer_sequence<int64_t, kRows>())(
          weights + from * n, n, panel_, dense_, out + from * stride, stride, there, false);
    }
    if (newest < 0) return;  // the newest step adds a diagonal
    for (int64_t j = 0; j < r_; ++j) out[j * stride + newest] += weights[j * n + dense_] * d;
  }

  void Round(const T* from, int64_t at, int64_t there) {
    for (int64_t half = 0; half < there; half += kLanes<T>)
      StoreRounded(kept_ + at + half, Load(from + half), noise_.At(at + half), there - half);
  }

  // Row (a, i) of the columns of H that start with `column`.
  void TransitionRow(int64_t step, int64_t a, int64_t i, int64_t column, T* to) const {
    const int64_t n = steps_.n, there = std::min(kColumns<T>, n - column), more = there - kLanes<T>;
    const T alive = steps_.alive[step];
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

  int64_t Panels() const { return (steps_.n + kColumns<T> - 1) / kColumns<T>; }

  // The dense columns of H, as panels. Row by row, since the weights of a window are in no near cache.
  void PackTransition(int64_t step) {
    for (int64_t row = 0; row < m_; ++row)
      for (int64_t i = 0; i < Panels(); ++i)
        TransitionRow(step, row / steps_.n, row % steps_.n, i * kColumns<T>, panel_ + (i * m_ + row) * kColumns<T>);
  }

  // The same, rounded at random, as pairs of rows.
  void PackPairs(int64_t step, Noise noise) {
    alignas(64) T two[2][kColumns<T>] = {};
    const int64_t depth = (m_ + 1) / 2;
    for (int64_t row = 0; row < m_; row += 2) {
      for (int64_t i = 0; i < Panels(); ++i) {
        const int64_t column = i * kColumns<T>;
        TransitionRow(step, row / steps_.n, row % steps_.n, column, two[0]);
        if (row + 1 < m_) {
          TransitionRow(step, (row + 1) / steps_.n, (row + 1) % steps_.n, column, two[1]);
        } else {
          std::fill(two[1], two[1] + kColumns<T>, T(0));
        }
        for (int64_t half = 0; half < kColumns<T>; half += kLanes<T>) {
          const Bits random = noise.At(row / 2 * Panels() * kColumns<T> + column + half);
          const Bits found = RoundedPair(Load(two[0] + half), Load(two[1] + half), random);
          std::memcpy(panel_ + (i * depth + row / 2) * kColumns<T> + half, &found, sizeof found);
        }
      }
    }
  }

  // S of the step before: S · H of this one, or H itself of the newest.
  void Extend(int64_t step) {
    const int64_t n = steps_.n;
    const bool newest = step == steps_.k - 1;
    const T* suffix = newest ? nullptr : Suffix(step);
    T* next = Suffix(step - 1);
    if (newest || !kNarrow) PackTransition(step);
    if constexpr (kNarrow) {
      if (!newest) {
        RoundLeft(suffix, m_, m_, noise_.Apart(2 * step + 1), pairs(left_));
        PackPairs(step, noise_.Apart(2 * step + 2));
      }
    }
    for (int64_t column = 0; column < n; column += kColumns<T>) {
      const int64_t there = std::min(kColumns<T>, n - column);
      if (newest) {
        for (int64_t row = 0; row < m_; ++row)
          std::memcpy(next + row * m_ + column, panel_ + column * m_ + row * kColumns<T>, there * sizeof(T));
      } else if constexpr (kNarrow) {
        const int64_t depth = (m_ + 1) / 2;
        TimesPairs(pairs(left_), m_, depth, pairs(panel_ + column * depth), next + column, m_, kLanes<T>, there,
                   there - kLanes<T>);
      } else {
        const int64_t strips = (m_ + kRows - 1) / kRows;
        for (int64_t strip = 0; strip < strips; ++strip) {
          const int64_t from = strip * m_ / strips, rows = (strip + 1) * m_ / strips - from;
          SomeRowsOf<T, false>(rows, std::make_integer_sequence<int64_t, kRows>())(
              suffix + from * m_, m_, panel_ + column * m_, m_, next + from * m_ + column, m_, there, false);
        }
      }
    }
    ExtendDiagonals(step, suffix, next);
  }

  // The columns of the other state variables are diagonal.
  void ExtendDiagonals(int64_t step, const T* suffix, T* next) const {
    const int64_t n = steps_.n;
    const T alive = steps_.alive[step];
    for (int64_t row = 0; row < m_; ++row) {
      for (int64_t b = 1; b < steps_.s; ++b) {
        T* to = next + row * m_ + b * n;
        std::fill(to, to + n, T(0));
        for (int64_t a = 0; a < steps_.s; ++a) {
          const T* e = steps_.E(step, a, b);
          if (suffix != nullptr) {
            for (int64_t i = 0; i < n; ++i) to[i] += alive * suffix[row * m_ + a * n + i] * e[i];
          } else if (row / n == a) {
            to[row % n] = alive * e[row % n];
          }
        }
      }
    }
  }

  // Some columns of P A.
  void CarryColumns(int64_t from, int64_t width) {
    const int64_t depth = kNarrow ? (m_ + 1) / 2 : m_, row_of_a = r_ * steps_.q();
    for (int64_t k = 0; k < depth; ++k) {
      T* to = panel_ + k * kColumns<T>;
      for (int64_t c = 0; c < width; c += kColumns<T>, to += depth * kColumns<T>) {
        for (int64_t half = 0; half < std::min(kColumns<T>, width - c); half += kLanes<T>) {
          const int64_t there = width - c - half;
          if constexpr (kNarrow) {
            const Kept* pair = kept_ + 2 * k * row_of_a + from + c + half;
            const Bits second = 2 * k + 1 < m_ ? LoadHalves(pair + row_of_a, there) << 16 : Bits{};
            const Bits found = LoadHalves(pair, there) | second;
            std::memcpy(to + half, &found, sizeof found);
          } else {
            Store(to + half, LoadSome(kept_ + k * row_of_a + from + c + half, there));
          }
        }
      }
    }
    for (int64_t c = 0; c < width; c += kColumns<T>) {
      const int64_t there = std::min(kColumns<T>, width - c);
      T *right = panel_ + c * depth, *out = product_ + from + c;
      if constexpr (kNarrow) {
        TimesPairs(pairs(left_), m_, depth, pairs(right), out, stride(), kLanes<T>, there, there - kLanes<T>);
      } else {
        Panel(left_, right, kColumns<T>, m_, m_, out, stride(), there);
      }
    }
  }

  // A vector of one old term, and of what one step adds, for one row of the state, a gate and some units. The next row comes next.
  Vector<T> Old(int64_t row, int64_t term, int64_t gate, int64_t unit, int64_t there) const {
    const T* from = product_ + row * stride() + term * steps_.q() + gate * steps_.n + unit;
    __builtin_prefetch(from + stride());
    return LoadSome(from, there);
  }

  Vector<T> New(int64_t row, int64_t step, int64_t gate, int64_t unit, int64_t there) const {
    Vector<T> sum = {};
    for (int64_t a = 0; a < steps_.s; ++a) {
      const T* from = Suffix(step) + row * m_ + a * steps_.n + unit;
      __builtin_prefetch(from + m_);
      sum += LoadSome(from, there) * LoadSome(steps_.D(step, a, gate) + unit, there);
    }
    return sum;
  }

  // Some vectors of one row of every term, those of a gate after those of the gate before; terms are `pitch` numbers apart.
  template <typename To>
  void Gather(int64_t row, int64_t from, int64_t vectors, To* to, int64_t pitch) const {
    const int64_t across = (steps_.n + kLanes<T> - 1) / kLanes<T>;
    for (int64_t i = 0; i < dense_; ++i, to += pitch) {
      int64_t gate = from / across, unit = from % across * kLanes<T>;
      for (int64_t v = 0; v < vectors; ++v) {
        const int64_t there = steps_.n - unit;
        StoreAs(to + v * kLanes<T>, i < r_ ? Old(row, i, gate, unit, there) : New(row, i - r_, gate, unit, there));
        unit += kLanes<T>;
        if (unit >= steps_.n) {
          unit = 0;
          ++gate;
        }
      }
    }
  }

  // The inner products, with sums over every few rows, so that long ones are off by little.
  void Inner(double* gram) {
    constexpr int64_t kTogether = kWidth / kLanes<T>, kRowsTogether = 16;
    const int64_t n = steps_.n, across = (n + kLanes<T> - 1) / kLanes<T>, all = across * steps_.g;
    for (int64_t row = 0; row < m_; ++row) {
      if (row % kRowsTogether == 0) std::memset(sums_, 0, padded() * padded() * sizeof(Vector<Sum>));
      for (int64_t from = 0; from < all; from += kTogether) {
        const int64_t vectors = std::min(kTogether, all - from), width = vectors * kLanes<T>;
        Gather(row, from, vectors, terms_, width);
        for (int64_t v = 0; v < vectors; ++v) {
          const int64_t gate = (from + v) / across, at = row % n - (from + v) % across * kLanes<T>;
          if (at >= 0 && at < kLanes<T>) WithNewest(row, gate, terms_ + v * kLanes<T> + at, width, gram);
        }
        std::fill(terms_ + dense_ * width, terms_ + padded() * width, Sum(0));
        Vector<Sum>* sums = sums_;
        for (int64_t i = 0; i < padded(); i += kSide)
          for (int64_t j = i; j < padded(); j += kSide, sums += kSide * kSide)
            InnerSquare(terms_ + i * width, terms_ + j * width, width, sums);
      }
      if (row % kRowsTogether == kRowsTogether - 1 || row == m_ - 1) AddSums(gram);
    }
  }

  void AddSums(double* gram) const {
    const Vector<Sum>* sums = sums_;
    for (int64_t i = 0; i < padded(); i += kSide) {
      for (int64_t j = i; j < padded(); j += kSide, sums += kSide * kSide) {
        for (int64_t a = i; a < std::min(dense_, i + kSide); ++a)
          for (int64_t b = std::max(a, j); b < std::min(dense_, j + kSide); ++b)
            for (int64_t lane = 0; lane < kLanes<Sum>; ++lane)
              gram[a * count() + b] += sums[(a - i) * kSide + b - j][lane];
      }
    }
  }

  // The newest step adds D, a diagonal.
  void WithNewest(int64_t row, int64_t gate, const Sum* terms, int64_t pitch, double* gram) const {
    const double d = steps_.D(steps_.k - 1, row / steps_.n, gate)[row % steps_.n];
    for (int64_t i = 0; i < dense_; ++i) gram[i * count() + dense_] += d * terms[i * pitch];
  }

  const Steps<T>& steps_;
  Kept* kept_;
  Noise noise_;
  int64_t r_, m_, dense_;
  Room room_;
  T *suffixes_, *left_, *panel_, *mixed_, *product_;
  Sum* terms_;
  Vector<Sum>* sums_;
};

}  // namespace

#endif  // EVERGRAD_FOLD_H_
