// A step of KTP: G ≈ sum over i of a_i ⊗ b_i ⊗ c_i, r triples for every stream.

#ifndef EVERGRAD_TRIPLES_H_
#define EVERGRAD_TRIPLES_H_

#include <cmath>
#include <limits>

#include "adam.h"
#include "products.h"
#include "team.h"
#include "vectors.h"

namespace {

// D of one stream [s, g, n], s = 1 or 2, as a random sum of `rank` products d ⊗ d~, each within one unit: right in the mean, and of
// the least variance.
template <typename T>
class Drawn {
 public:
  // One of the products: its unit, which of the unit's singular directions, and the root of the size that it is kept with.
  struct Term {
    int64_t unit = 0, direction = 0;
    T root = 0;
  };

  Drawn(const T* diagonals, int64_t s, int64_t g, int64_t n, int64_t rank, T uniform)
      : diagonals_(diagonals), s_(s), g_(g), n_(n), rank_(rank) {
    Measure();
    Choose(uniform);
  }

  const Term& operator[](int64_t i) const { return terms_[i]; }

  // The entry of d at state variable `a`, and that of d~ at a gate, without the root of the size.
  T Left(const Term& term, int64_t a) const {
    if (s_ == 1) return 1;
    const T cos = turns_[2 * term.unit], sin = turns_[2 * term.unit + 1];
    return term.direction == 0 ? (a == 0 ? cos : sin) : (a == 0 ? -sin : cos);
  }
  T Right(const Term& term, int64_t gate) const {
    T sum = 0;
    for (int64_t a = 0; a < s_; ++a) sum += Left(term, a) * diagonals_[(a * g_ + gate) * n_ + term.unit];
    return sum / values_[term.direction * n_ + term.unit];
  }

 private:
  // The singular values of every unit's s x g block of D; for s = 2 by the angle that makes its two rows orthogonal.
  void Measure() {
    values_.assign(s_ * n_, T(0));
    if (s_ == 1) {
      for (int64_t gate = 0; gate < g_; ++gate)
        for (int64_t i = 0; i < n_; ++i) values_[i] += diagonals_[gate * n_ + i] * diagonals_[gate * n_ + i];
    } else {
      turns_.resize(2 * n_);
      const T *first = diagonals_, *second = diagonals_ + g_ * n_;
      for (int64_t i = 0; i < n_; ++i) {
        T both = 0, one = 0, other = 0;
        for (int64_t at = i; at < g_ * n_; at += n_) {
          both += first[at] * second[at];
          one += first[at] * first[at];
          other += second[at] * second[at];
        }
        const T angle = T(0.5) * std::atan2(2 * both, one - other), cos = std::cos(angle), sin = std::sin(angle);
        turns_[2 * i] = cos;
        turns_[2 * i + 1] = sin;
        for (int64_t at = i; at < g_ * n_; at += n_) {
          const T x = cos * first[at] + sin * second[at], y = cos * second[at] - sin * first[at];
          values_[i] += x * x;
          values_[n_ + i] += y * y;
        }
      }
    }
    for (T& value : values_) value = std::sqrt(value);
  }

  // The chance min(1, d / tau) of each direction, with tau such that they add up to the rank; systematic sampling with one
  // uniform number.
  void Choose(T uniform) {
    const int64_t count = values_.size();
    const double tau = rank_ >= count ? 0 : Threshold();
    const T almost = 1 - 4 * count * std::numeric_limits<T>::epsilon();
    terms_.assign(rank_, Term{});
    double sum = 0;
    int64_t before = 0;
    for (int64_t j = 0; j < count; ++j) {
      const T d = values_[j];
      T chance = tau > 0 ? T(d / tau) : T(d > 0);
      if (chance > almost) chance = 1;
      sum += chance;
      const int64_t now = static_cast<int64_t>(std::ceil(sum - uniform));
      if (now > before && now <= rank_ && chance > 0) terms_[now - 1] = {j % n_, j / n_, std::sqrt(d / chance)};
      before = now;
    }
  }

  double Threshold() const {
    std::vector<T> sorted(values_);
    std::partial_sort(sorted.begin(), sorted.begin() + rank_, sorted.end(), std::greater<T>());
    double tail = 0;
    for (T each : sorted) tail += each;
    for (int64_t i = 0; i < rank_; ++i) {
      const double room = rank_ - i;
      if (room * sorted[i] <= tail || i == rank_ - 1) return tail / room;
      tail -= sorted[i];
    }
    return tail;
  }

  const T* diagonals_;
  int64_t s_, g_, n_, rank_;
  std::vector<T> values_, turns_;
  std::vector<Term> terms_;
};

// Factors, of product 1, that bring three norms to their geometric mean; all 0 where one is.
template <typename T>
inline void BalanceThree(const T* norms, T* factors) {
  const T mean = std::cbrt(norms[0]) * std::cbrt(norms[1]) * std::cbrt(norms[2]);
  for (int i = 0; i < 3; ++i) factors[i] = mean == 0 ? T(0) : mean / norms[i];
}

// One stream: ĥ [p], D [s, g, n], E [s, s, n], and what its step does to its triples a [r, p], b [r, m] and c [r, q]. The products
// of h's part of b with W_h are there, [r, q].
template <typename T>
struct TripleStep {
  const T *vector, *diagonals, *direct, *signs;
  T alive, uniform;
  int64_t p, s, g, n, rank;

  void Take(const T* through, T* a, T* b, T* c) const {
    const int64_t m = s * n, q = g * n;
    const Drawn<T> drawn(diagonals, s, g, n, rank, uniform);
    const T size = std::sqrt(SumOfSquares(vector, p));
    for (int64_t i = 0; i < rank; ++i, a += p, b += m, c += q, through += q) {
      Carry(through, b);
      const auto& term = drawn[i];
      T left[2], lefts = 0, rights = 0;
      for (int64_t k = 0; k < s; ++k) {
        left[k] = term.root == 0 ? T(0) : term.root * drawn.Left(term, k);
        lefts += left[k] * left[k];
      }
      T right[kGates];
      for (int64_t k = 0; k < g; ++k) {
        right[k] = term.root == 0 ? T(0) : term.root * drawn.Right(term, k);
        rights += right[k] * right[k];
      }
      const T old[3] = {std::sqrt(SumOfSquares(a, p)), std::sqrt(SumOfSquares(b, m)), std::sqrt(SumOfSquares(c, q))};
      const T fresh[3] = {size, std::sqrt(lefts), std::sqrt(rights)};
      T keep[3], add[3];
      BalanceThree(old, keep);
      BalanceThree(fresh, add);
      const T one = signs[2 * i], two = signs[2 * i + 1], by = one * add[0];
      for (int64_t j = 0; j < p; ++j) a[j] = keep[0] * a[j] + by * vector[j];
      for (int64_t j = 0; j < m; ++j) b[j] *= keep[1];
      for (int64_t j = 0; j < q; ++j) c[j] *= keep[2];
      for (int64_t k = 0; k < s; ++k) b[k * n + term.unit] += two * add[1] * left[k];
      for (int64_t k = 0; k < g; ++k) c[k * n + term.unit] += one * two * add[2] * right[k];
    }
  }

  static constexpr int64_t kGates = 16;

 private:
  // b := H b.
  void Carry(const T* through, T* b) const {
    for (int64_t i = 0; i < n; ++i) {
      T old[2];
      for (int64_t k = 0; k < s; ++k) old[k] = b[k * n + i];
      for (int64_t k = 0; k < s; ++k) {
        T sum = 0;
        for (int64_t l = 0; l < s; ++l) sum += direct[(k * s + l) * n + i] * old[l];
        for (int64_t gate = 0; gate < g; ++gate) sum += diagonals[(k * g + gate) * n + i] * through[gate * n + i];
        b[k * n + i] = alive * sum;
      }
    }
  }
};

// `weights` are W, of which W_h begins at row `first`; signs [B, r, 2], uniform [B].
template <ffi::DataType kType>
ffi::Error TriplesCall(ffi::ThreadPool pool, ffi::Buffer<kType> a, ffi::Buffer<kType> b, ffi::Buffer<kType> c,
                       ffi::Buffer<kType> vectors, ffi::Buffer<kType> diagonals, ffi::Buffer<kType> direct,
                       ffi::Buffer<kType> alive, ffi::Buffer<kType> weights, ffi::Buffer<kType> signs,
                       ffi::Buffer<kType> uniform, ffi::Result<ffi::Buffer<kType>> new_a,
                       ffi::Result<ffi::Buffer<kType>> new_b, ffi::Result<ffi::Buffer<kType>> new_c, int64_t first) {
  using T = ffi::NativeType<kType>;
  if (new_a->typed_data() != a.typed_data() || new_b->typed_data() != b.typed_data() ||
      new_c->typed_data() != c.typed_data())
    return ffi::Error::Internal("triples works in place");
  auto d = diagonals.dimensions();
  const int64_t streams = d[0], s = d[1], g = d[2], n = d[3], rank = a.dimensions()[1], p = a.dimensions()[2];
  const int64_t m = s * n, q = g * n, rows = streams * rank;
  if (s > 2 || g > TripleStep<T>::kGates) return ffi::Error::InvalidArgument("triples: too many state variables");
  thread_local std::vector<T> memory;  // a product takes the thread's scratch for itself
  if (static_cast<int64_t>(memory.size()) < rows * (q + n)) memory.resize(rows * (q + n));
  T *through = memory.data(), *h = new_b->typed_data();
  if (s > 1) {
    h = through + rows * q;
    for (int64_t i = 0; i < rows; ++i) std::memcpy(h + i * n, new_b->typed_data() + i * m, n * sizeof(T));
  }
  MultiplyAll(pool, Factors<T, false>{h, weights.typed_data() + first * q, rows, n, q}, through);
  ShareOut(pool, streams, [&](int64_t i) {
    const TripleStep<T> step{vectors.typed_data() + i * p, diagonals.typed_data() + i * s * q,
                             direct.typed_data() + i * s * m, signs.typed_data() + i * rank * 2,
                             alive.typed_data()[i], uniform.typed_data()[i], p, s, g, n, rank};
    step.Take(through + i * rank * q, new_a->typed_data() + i * rank * p, new_b->typed_data() + i * rank * m,
              new_c->typed_data() + i * rank * q);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto BindTriples() {
  using A = ffi::Buffer<kType>;
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>().template Arg<A>()
      .template Ret<A>().template Ret<A>().template Ret<A>().template Attr<int64_t>("first");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(triples_float32, TriplesCall<ffi::F32>, BindTriples<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(triples_float64, TriplesCall<ffi::F64>, BindTriples<ffi::F64>());

#endif  // EVERGRAD_TRIPLES_H_
