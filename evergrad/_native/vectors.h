// Vectors as wide as the processor's, and memory to work in.

#ifndef EVERGRAD_VECTORS_H_
#define EVERGRAD_VECTORS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
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

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

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

}  // namespace

#endif  // EVERGRAD_VECTORS_H_
