// dL/dh carried back through remembered steps.

#ifndef EVERGRAD_BACKWARD_H_
#define EVERGRAD_BACKWARD_H_

#include "products.h"
#include "vectors.h"

namespace {

// ---- products of rows with rows ----------------------------------------------------------------------------------

// The lanes of x and y that come `Half`-wise: those of every first half of a group of 2 Half lanes, or of every second.
template <typename T, int64_t Half, int64_t Second, int64_t... Lane>
inline Vector<T> HalvesOf(Vector<T> x, Vector<T> y, std::integer_sequence<int64_t, Lane...>) {
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(x, y, (Lane / Half * 2 * Half + Second * Half + Lane % Half)...);
#else
  constexpr int64_t kFrom[] = {(Lane / Half * 2 * Half + Second * Half + Lane % Half)...};
  Vector<T> out;
  for (int64_t i = 0; i < kLanes<T>; ++i) out[i] = kFrom[i] < kLanes<T> ? x[kFrom[i]] : y[kFrom[i] - kLanes<T>];
  return out;
#endif
}

// The sums over the lanes of as many vectors as a vector has lanes.
template <typename T, int64_t Half = kLanes<T> / 2>
inline Vector<T> Sums(Vector<T>* vectors) {
  constexpr auto kAll = std::make_integer_sequence<int64_t, kLanes<T>>();
  if constexpr (Half == 0) {
    return vectors[0];
  } else {
    for (int64_t i = 0; i < Half; ++i) {
      const Vector<T> x = vectors[2 * i], y = vectors[2 * i + 1];
      vectors[i] = HalvesOf<T, Half, 0>(x, y, kAll) + HalvesOf<T, Half, 1>(x, y, kAll);
    }
    return Sums<T, Half / 2>(vectors);
  }
}

#ifdef __AVX512F__
constexpr int64_t kLefts = 4, kRights = 4;
#else
constexpr int64_t kLefts = 4, kRights = 2;
#endif

// The inner products of `Lefts` rows with `Rights` rows of `depth` numbers. The left rows go on with zeros up to a whole vector.
template <typename T, int64_t Lefts, int64_t Rights>
void Inner(const T* left, int64_t left_pitch, const T* right, int64_t right_pitch, int64_t depth, T* out,
           int64_t stride) {
  constexpr int64_t kCount = (Lefts * Rights + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  Vector<T> sums[kCount] = {};
  const int64_t whole = depth / kLanes<T> * kLanes<T>, rest = depth - whole;
  for (int64_t k = 0; k < whole; k += kLanes<T>) {
    Vector<T> there[Rights];
    for (int64_t j = 0; j < Rights; ++j) there[j] = Load(right + j * right_pitch + k);
    for (int64_t i = 0; i < Lefts; ++i) {
      const Vector<T> here = Load(left + i * left_pitch + k);
      for (int64_t j = 0; j < Rights; ++j) sums[i * Rights + j] += here * there[j];
    }
  }
  if (rest) {
    alignas(64) T last[kLanes<T>] = {};
    for (int64_t j = 0; j < Rights; ++j) {
      std::memcpy(last, right + j * right_pitch + whole, rest * sizeof(T));
      for (int64_t i = 0; i < Lefts; ++i) sums[i * Rights + j] += Load(left + i * left_pitch + whole) * Load(last);
    }
  }
  alignas(64) T totals[kCount];
  for (int64_t from = 0; from < kCount; from += kLanes<T>) Store(totals + from, Sums<T>(sums + from));
  for (int64_t i = 0; i < Lefts; ++i)
    for (int64_t j = 0; j < Rights; ++j) out[i * stride + j] = totals[i * Rights + j];
}

template <typename T, int64_t Lefts, int64_t... Less>
auto InnerOf(int64_t rights, std::integer_sequence<int64_t, Less...>) {
  using Function = void (*)(const T*, int64_t, const T*, int64_t, int64_t, T*, int64_t);
  constexpr Function of[] = {Inner<T, Lefts, Less + 1>...};
  return of[rights - 1];
}

// out [rows, columns] = left [rows, depth] · right [columns, depth] turned.
template <typename T>
void TimesTurned(const T* left, int64_t left_pitch, const T* right, int64_t right_pitch, int64_t rows, int64_t columns,
                 int64_t depth, T* out) {
  constexpr auto kRightsUpTo = std::make_integer_sequence<int64_t, kRights>();
  for (int64_t column = 0; column < columns; column += kRights) {
    const int64_t there = std::min(kRights, columns - column);
    const auto four = InnerOf<T, kLefts>(there, kRightsUpTo), one = InnerOf<T, 1>(there, kRightsUpTo);
    const T* from = right + column * right_pitch;
    for (int64_t row = 0; row < rows;) {
      const bool many = row + kLefts <= rows;
      (many ? four : one)(left + row * left_pitch, left_pitch, from, right_pitch, depth,
                          out + row * columns + column, columns);
      row += many ? kLefts : 1;
    }
  }
}

// ---- remembered steps --------------------------------------------------------------------------------------------

// Of B streams, in slots: D [slots, B, s, g, n], E [slots, B, s, s, n], alive [slots, B], and what arrives besides at the steps
// that waited, [slots, B, m]. W_h [n, gn] is that of all steps, or of a slot `between` numbers after that of the slot before.
template <typename T>
struct Ring {
  const T *diagonals, *direct, *alive, *noted, *weights;
  int64_t slots, streams, s, g, n, between;
  int64_t newest, reach, waited;
  int64_t m() const { return s * n; }
  int64_t q() const { return g * n; }

  int64_t Slot(int64_t back) const { return ((newest - back) % slots + slots) % slots; }

  // The streams from `begin` to `end`: dL/dh [B, m] carried back, newest step first, and what of it arrives at the gates of
  // every step, [slots, B, gn].
  void Back(const T* delta, int64_t begin, int64_t end, T* left, T* columns) const {
    const int64_t some = end - begin, pitch = RoundUp(q(), kLanes<T>) + kLanes<T>;
    Scratch<T> scratch(some * (m() + pitch + n) + 256);
    T *here = scratch.Take(some * m()), *gates = scratch.Take(some * pitch), *through = scratch.Take(some * n);
    std::fill(gates, gates + some * pitch, T(0));
    std::copy(delta + begin * m(), delta + end * m(), here);
    for (int64_t back = 0; back < reach; ++back) {
      const int64_t slot = Slot(back), first = slot * streams + begin;
      for (int64_t b = 0; b < some; ++b) {
        if (back > 0 && back < waited) Add(noted + (first + b) * m(), here + b * m());
        ToGates(first + b, here + b * m(), gates + b * pitch);
        std::memcpy(columns + (first + b) * q(), gates + b * pitch, q() * sizeof(T));
      }
      TimesTurned(gates, pitch, weights + slot * between, q(), some, n, q(), through);
      for (int64_t b = 0; b < some; ++b) ToState(first + b, through + b * n, here + b * m());
    }
    std::copy(here, here + some * m(), left + begin * m());
  }

 private:
  void Add(const T* more, T* here) const {
    for (int64_t i = 0; i < m(); ++i) here[i] += more[i];
  }

  // δ D.
  void ToGates(int64_t step, const T* here, T* gates) const {
    const T* d = diagonals + step * m() * g;
    for (int64_t gate = 0; gate < g; ++gate) {
      T* to = gates + gate * n;
      for (int64_t i = 0; i < n; ++i) to[i] = here[i] * d[gate * n + i];
      for (int64_t a = 1; a < s; ++a)
        for (int64_t i = 0; i < n; ++i) to[i] += here[a * n + i] * d[(a * g + gate) * n + i];
    }
  }

  // δ := alive (δ E + what came through the gates).
  void ToState(int64_t step, const T* through, T* here) const {
    constexpr int64_t kStates = 16;
    const T *e = direct + step * m() * s, on = alive[step];
    T old[kStates];
    if (s == 1) {
      for (int64_t i = 0; i < n; ++i) here[i] = on * (here[i] * e[i] + through[i]);
    } else if (s == 2) {
      T* other = here + n;
      for (int64_t i = 0; i < n; ++i) {
        const T first = here[i], second = other[i];
        here[i] = on * (first * e[i] + second * e[2 * n + i] + through[i]);
        other[i] = on * (first * e[n + i] + second * e[3 * n + i]);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t a = 0; a < s; ++a) old[a] = here[a * n + i];
        for (int64_t b = 0; b < s; ++b) {
          T sum = b == 0 ? through[i] : T(0);
          for (int64_t a = 0; a < s; ++a) sum += old[a] * e[(a * s + b) * n + i];
          here[b * n + i] = on * sum;
        }
      }
    }
  }
};

}  // namespace

#endif  // EVERGRAD_BACKWARD_H_
