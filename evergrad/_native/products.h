// Products of matrices. They are computed in tiles of as many rows by two vectors as the registers hold (16 of 32 bytes, or 32
// of 64).

#ifndef EVERGRAD_PRODUCTS_H_
#define EVERGRAD_PRODUCTS_H_

#include "team.h"
#include "vectors.h"

namespace {

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

// ---- whole products ----------------------------------------------------------------------------------------------

constexpr int64_t kDepth = 256;  // of the block that is in the cache

// `Rows` rows and two vectors of columns of a product, added to what is there or written over it. The left operand has its
// rows as rows, or, turned, as columns.
template <typename T, int64_t Rows, bool Turned>
void SomeRows(const T* left, int64_t pitch, const T* panel, int64_t depth, T* out, int64_t stride, int64_t columns,
              bool add) {
  alignas(64) T edge[Rows][kColumns<T>];
  const bool whole = columns == kColumns<T>;
  if (!whole && add)
    for (int64_t i = 0; i < Rows; ++i) std::memcpy(edge[i], out + i * stride, columns * sizeof(T));
  T* to = whole ? out : &edge[0][0];
  const int64_t step = whole ? stride : kColumns<T>;
  Vector<T> sum[Rows][2] = {};
  if (add) {
    for (int64_t i = 0; i < Rows; ++i) {
      sum[i][0] = Load(to + i * step);
      sum[i][1] = Load(to + i * step + kLanes<T>);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Vector<T> first = Load(panel + k * kColumns<T>), second = Load(panel + k * kColumns<T> + kLanes<T>);
    for (int64_t i = 0; i < Rows; ++i) {
      const T weight = Turned ? left[k * pitch + i] : left[i * pitch + k];
      sum[i][0] += weight * first;
      sum[i][1] += weight * second;
    }
  }
  for (int64_t i = 0; i < Rows; ++i) {
    Store(to + i * step, sum[i][0]);
    Store(to + i * step + kLanes<T>, sum[i][1]);
    if (!whole) std::memcpy(out + i * stride, edge[i], columns * sizeof(T));
  }
}

// SomeRows for 1 ... kRows rows.
template <typename T, bool Turned, int64_t... Less>
auto SomeRowsOf(int64_t rows, std::integer_sequence<int64_t, Less...>) {
  using Function = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, int64_t, bool);
  constexpr Function of[] = {SomeRows<T, Less + 1, Turned>...};
  return of[rows - 1];
}

// Two matrices to be multiplied: left [rows, depth], or, turned, [depth, rows], and right [depth, columns].
template <typename T, bool Turned>
struct Factors {
  const T *left, *right;
  int64_t rows, depth, columns;

  // out [rows, columns] = left · right, for the columns from `begin` to `end`.
  void Multiply(int64_t begin, int64_t end, T* out) const {
    const int64_t blocks = std::max<int64_t>(1, (depth + kDepth - 1) / kDepth), some = (depth + blocks - 1) / blocks;
    Scratch<T> scratch(some * kColumns<T>);
    T* panel = scratch.Take(some * kColumns<T>);
    for (int64_t from = 0; from == 0 || from < depth; from += some) {
      for (int64_t column = begin; column < end; column += kColumns<T>)
        Block(from, std::min(some, depth - from), column, std::min(kColumns<T>, end - column), panel, out);
    }
  }

 private:
  void Block(int64_t from, int64_t some, int64_t column, int64_t there, T* panel, T* out) const {
    for (int64_t k = 0; k < some; ++k) {
      T* to = panel + k * kColumns<T>;
      std::memcpy(to, right + (from + k) * columns + column, there * sizeof(T));
      std::fill(to + there, to + kColumns<T>, T(0));
    }
    const int64_t strips = (rows + kRows - 1) / kRows, pitch = Turned ? rows : depth;
    for (int64_t strip = 0; strip < strips; ++strip) {
      const int64_t row = strip * rows / strips, height = (strip + 1) * rows / strips - row;
      const T* first = Turned ? left + from * pitch + row : left + row * pitch + from;
      SomeRowsOf<T, Turned>(height, std::make_integer_sequence<int64_t, kRows>())(
          first, pitch, panel, some, out + row * columns + column, columns, there, from > 0);
    }
  }
};

// How many parts to make of so much work, in multiply-adds, that can be cut in so many: one if waking a thread costs more.
inline int64_t Parts(ffi::ThreadPool& pool, int64_t work, int64_t most) {
  constexpr int64_t kSmall = 1 << 19;
  return work < kSmall ? 1 : std::max<int64_t>(1, std::min(most, 2 * pool.num_threads()));
}

template <typename T, bool Turned>
void MultiplyAll(ffi::ThreadPool& pool, const Factors<T, Turned>& factors, T* out) {
  const int64_t panels = (factors.columns + kColumns<T> - 1) / kColumns<T>;
  const int64_t parts = Parts(pool, factors.rows * factors.depth * factors.columns, panels);
  ShareOut(pool, parts, [&](int64_t part) {
    const int64_t begin = part * panels / parts * kColumns<T>, end = (part + 1) * panels / parts * kColumns<T>;
    factors.Multiply(begin, std::min(end, factors.columns), out);
  });
}

}  // namespace

#endif  // EVERGRAD_PRODUCTS_H_
