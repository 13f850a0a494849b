// What the terms of one stream become: r of N, right in the mean and quietest. It is `mixing` of evergrad/_estimators/ok.py, which says
// why, in the same order and in double precision throughout.

#ifndef EVERGRAD_MIXING_H_
#define EVERGRAD_MIXING_H_

#include <cmath>
#include <limits>
#include <numeric>

#include "vectors.h"

namespace {

enum class Mix : int64_t { kSampling = 0, kSigns = 1, kTruncate = 2 };

constexpr double kEps = std::numeric_limits<double>::epsilon();

inline double Total(Vector<double> v) {
  double total = 0;
  for (int64_t lane = 0; lane < kLanes<double>; ++lane) total += v[lane];
  return total;
}

inline double Dot(const double* x, const double* y, int64_t count) {
  Vector<double> sum = {};
  int64_t i = 0;
  for (; i + kLanes<double> <= count; i += kLanes<double>) sum += Load(x + i) * Load(y + i);
  double total = Total(sum);
  for (; i < count; ++i) total += x[i] * y[i];
  return total;
}

// y += weight x
inline void AddTo(double* y, double weight, const double* x, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes<double> <= count; i += kLanes<double>) Store(y + i, Load(y + i) + weight * Load(x + i));
  for (; i < count; ++i) y[i] += weight * x[i];
}

// (x, y) := (c x - s y, s x + c y)
inline void Rotate(double* x, double* y, double c, double s, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes<double> <= count; i += kLanes<double>) {
    const Vector<double> a = Load(x + i), b = Load(y + i);
    Store(x + i, c * a - s * b);
    Store(y + i, s * a + c * b);
  }
  for (; i < count; ++i) {
    const double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

struct Rows {  // a matrix
  double* at;
  int64_t rows, columns;
  double* operator[](int64_t row) const { return at + row * columns; }
};

// Orthonormal rows q [M, p] and r [M, N] with vectors = r^T q, by reflections; M is the smaller of N and p. `vectors` are overwritten.
inline void Orthonormal(Rows vectors, Rows q, Rows r) {
  const int64_t p = vectors.columns, n = vectors.rows, m = q.rows;
  std::vector<double> scale(m);
  for (int64_t j = 0; j < m; ++j) {
    double* v = vectors[j] + j;
    const double length = std::sqrt(Dot(v, v, p - j)), end = v[0] > 0 ? -length : length;
    for (int64_t i = 0; i < j; ++i) r[j][i] = 0;
    r[j][j] = end;
    v[0] -= end;
    const double square = Dot(v, v, p - j);
    scale[j] = square > 0 ? 2 / square : 0;
    for (int64_t other = j + 1; other < n; ++other) {
      double* x = vectors[other] + j;
      AddTo(x, -scale[j] * Dot(v, x, p - j), v, p - j);
      r[j][other] = x[0];
    }
  }
  std::fill(q.at, q.at + m * p, 0.0);
  for (int64_t j = m - 1; j >= 0; --j) {
    q[j][j] = 1;
    for (int64_t other = j; other < m; ++other) {
      const double* v = vectors[j] + j;
      AddTo(q[other] + j, -scale[j] * Dot(v, q[other] + j, p - j), v, p - j);
    }
  }
}

// How exact inner products are: what a long sum of products is off by, and how much more than that keeps a square root from breaking.
struct Accuracy {
  double eps, jitter;
};
constexpr Accuracy kDouble{kEps, 512 * kEps};

// l with l l^T = gram, a whisker larger.
inline void SquareRoot(Rows gram, double more, Rows l) {
  const int64_t n = gram.rows;
  const double jitter = 1 + n * more, least = std::numeric_limits<double>::min() / kEps;
  std::vector<double> norms(n);
  for (int64_t i = 0; i < n; ++i) norms[i] = gram[i][i] > least ? std::sqrt(gram[i][i]) : gram[i][i] <= least ? 0 : NAN;
  for (int64_t i = 0; i < n; ++i) {
    std::fill(l[i], l[i] + n, 0.0);
    for (int64_t j = 0; j <= i; ++j) {
      const double size = norms[i] * norms[j], cosine = i == j ? jitter : size == 0 ? 0 : gram[i][j] / size;
      const double left = cosine - Dot(l[i], l[j], j);
      l[i][j] = i == j ? std::sqrt(left) : left / l[j][j];
    }
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) l[i][j] *= norms[i];
}

// Rotates the rows of b [M, N] until they are orthogonal, x [M, M] with them: one-sided Jacobi, which finds small ones as exactly as
// large ones.
inline void Orthogonalise(Rows b, Rows x) {
  constexpr int64_t kSweeps = 30;
  const int64_t m = b.rows, n = b.columns;
  const double enough = std::sqrt(static_cast<double>(m)) * kEps;
  std::vector<double> squares(m);
  for (int64_t sweep = 0, rotated = 1; sweep < kSweeps && rotated; ++sweep) {
    rotated = 0;
    for (int64_t i = 0; i < m; ++i) squares[i] = Dot(b[i], b[i], n);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = i + 1; j < m; ++j) {
        const double inner = Dot(b[i], b[j], n);
        if (!(std::abs(inner) > enough * std::sqrt(squares[i]) * std::sqrt(squares[j]))) continue;
        rotated = 1;
        const double zeta = (squares[j] - squares[i]) / (2 * inner);
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        Rotate(b[i], b[j], c, s, n);
        Rotate(x[i], x[j], c, s, m);
        squares[i] = std::max(0.0, squares[i] - t * inner);
        squares[j] += t * inner;
      }
    }
  }
}

// p_j = min(1, d_j / tau) with sum min(rank, number of d_j > 0).
inline std::vector<double> Inclusion(const std::vector<double>& d, int64_t rank, Mix mix) {
  const int64_t m = d.size();
  std::vector<double> p(m);
  for (int64_t j = 0; j < m; ++j) p[j] = d[j] > 0;
  if (rank >= m) return p;
  std::vector<int64_t> order(m);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return d[a] > d[b]; });
  if (mix == Mix::kTruncate) {
    for (int64_t i = rank; i < m; ++i) p[order[i]] = 0;
    return p;
  }
  std::vector<double> tail(m + 1);
  for (int64_t i = m - 1; i >= 0; --i) tail[i] = tail[i + 1] + d[order[i]];
  int64_t first = 0;
  while (first < rank - 1 && (rank - first) * d[order[first]] > tail[first]) ++first;
  const double tau = tail[first] / (rank - first), almost = 1 - 4 * m * kEps;
  if (!(tau > 0)) return p;
  for (int64_t j = 0; j < m; ++j) p[j] = d[j] / tau > almost ? 1 : d[j] / tau;
  return p;
}

// Rows that are zero, or one of which each column has one: by one uniform number.
inline void SampledRows(const std::vector<double>& p, const uint32_t* bits, Rows z) {
  const double u = (bits[0] + (bits[1] >> 12) / 1048576.0) / 4294967296.0;
  double sum = 0, before = 0;
  for (int64_t j = 0; j < z.rows; ++j) {
    sum += p[j];
    const double count = std::ceil(sum - u);
    if (count > before && count <= z.columns) z[j][static_cast<int64_t>(count) - 1] = 1;
    before = count;
  }
}

// Rows of squared norms p of a projection, each with a sign.
inline void SignedRows(const std::vector<double>& p, const uint32_t* bits, Rows z) {
  const int64_t rank = z.columns;
  std::vector<int64_t> order(z.rows);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a] > p[b]; });
  std::vector<double> active(rank), partner(rank);
  active[0] = 1;
  double length = 1;
  int64_t used = 1;
  for (const int64_t j : order) {
    const double target = p[j];
    const bool shorten = length >= target;
    double cos2 = shorten ? (length > 0 ? target / length : 1) : (1 - target) / (length < 1 ? 1 - length : 1);
    cos2 = std::min(1.0, std::max(0.0, cos2));
    const double c = std::sqrt(cos2), s = std::sqrt(1 - cos2), sign = bits[j] >> 31 ? -1 : 1;
    std::fill(partner.begin(), partner.end(), 0.0);
    if (!shorten && used < rank) partner[used] = 1;
    for (int64_t i = 0; i < rank; ++i) {
      z[j][i] = sign * (c * active[i] + s * partner[i]);
      active[i] = c * partner[i] - s * active[i];
    }
    length = std::min(1.0, std::max(0.0, shorten ? length - target : length + 1 - target));
    used += !shorten;
  }
}

// d_j, the lengths of the rows of right A, from their inner products; 0 only where all of a row is rounding.
inline std::vector<double> Lengths(Rows right, Rows gram, double eps) {
  const int64_t m = right.rows, n = right.columns;
  std::vector<double> d(m), parts(m), through(n);
  for (int64_t j = 0; j < m; ++j) {
    std::fill(through.begin(), through.end(), 0.0);
    for (int64_t i = 0; i < n; ++i) {
      AddTo(through.data(), right[j][i], gram[i], n);
      parts[j] += std::abs(right[j][i]) * std::sqrt(gram[i][i]);
    }
    d[j] = std::sqrt(std::max(Dot(through.data(), right[j], n), eps * parts[j] * parts[j]));
  }
  const double most = *std::max_element(parts.begin(), parts.end());
  for (int64_t j = 0; j < m; ++j)
    if (!(parts[j] > m * kEps * most)) d[j] = 0;
  return d;
}

// out [rows of x, columns of y] = x y
inline void Times(Rows x, Rows y, Rows out) {
  std::fill(out.at, out.at + out.rows * out.columns, 0.0);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t k = 0; k < x.columns; ++k) AddTo(out[i], x[i][k], y[k], y.columns);
}

inline bool Finite(Rows x) {
  return std::all_of(x.at, x.at + x.rows * x.columns, [](double each) { return std::isfinite(each); });
}

// New vectors [r, p] and weights [r, N], for vectors [N, p], which are overwritten, and the inner products of their terms.
inline void Mixed(Rows vectors, Rows gram, Accuracy accuracy, Mix mix, const uint32_t* bits, Rows new_vectors, Rows weights) {
  const int64_t n = vectors.rows, p = vectors.columns, m = std::min(n, p), rank = weights.rows;
  std::vector<double> room(m * p + 3 * m * n + n * n + m * m + m * rank + 2 * rank * m + m * p);
  double* next = room.data();
  const auto take = [&](int64_t rows, int64_t columns) {
    Rows part{next, rows, columns};
    next += rows * columns;
    return part;
  };
  const Rows q = take(m, p), r = take(m, n), b = take(m, n), right = take(m, n), root = take(n, n), x = take(m, m);
  const Rows z = take(m, rank), of_left = take(rank, m), of_right = take(rank, m), left = take(m, p);
  if (!Finite(vectors) || !Finite(gram)) {  // a network that has diverged is not to look well
    std::fill(new_vectors.at, new_vectors.at + rank * p, NAN);
    std::fill(weights.at, weights.at + rank * n, NAN);
    return;
  }
  Orthonormal(vectors, q, r);
  SquareRoot(gram, accuracy.jitter, root);
  Times(r, root, b);
  for (int64_t j = 0; j < m; ++j) x[j][j] = 1;
  Orthogonalise(b, x);
  std::vector<double> squares(m);
  for (int64_t j = 0; j < m; ++j) squares[j] = Dot(b[j], b[j], n);
  std::vector<int64_t> order(m);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t c) { return squares[a] > squares[c]; });
  std::vector<double> sorted(m * m);
  for (int64_t j = 0; j < m; ++j) std::copy(x[order[j]], x[order[j]] + m, sorted.data() + j * m);
  const Rows turned{sorted.data(), m, m};
  Times(turned, r, right);
  Times(turned, q, left);
  std::vector<double> generic(p);
  for (int64_t i = 0; i < p; ++i) generic[i] = std::cos(static_cast<double>(i + 1));
  for (int64_t j = 0; j < m; ++j) {  // a draw must not depend on the signs that directions happen to have
    if (!(Dot(generic.data(), left[j], p) < 0)) continue;
    for (int64_t i = 0; i < p; ++i) left[j][i] = -left[j][i];
    for (int64_t i = 0; i < n; ++i) right[j][i] = -right[j][i];
  }
  const std::vector<double> d = Lengths(right, gram, accuracy.eps), share = Inclusion(d, rank, mix);
  if (mix == Mix::kSigns) {
    SignedRows(share, bits, z);
  } else {
    SampledRows(share, bits, z);
  }
  for (int64_t j = 0; j < m; ++j) {
    const double size = share[j] > 0 ? std::sqrt(d[j] / share[j]) : 0;
    for (int64_t c = 0; c < rank; ++c) {
      of_left[c][j] = size * z[j][c];
      of_right[c][j] = d[j] > 0 ? size * z[j][c] / d[j] : 0;
    }
  }
  Times(of_left, left, new_vectors);
  Times(of_right, right, weights);
}

}  // namespace

#endif  // EVERGRAD_MIXING_H_
