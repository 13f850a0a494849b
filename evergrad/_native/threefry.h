// Random bits, the same that JAX draws: Threefry-2x32 with 20 rounds (Salmon et al. 2011), of counters 0, 1, 2, …

#ifndef EVERGRAD_THREEFRY_H_
#define EVERGRAD_THREEFRY_H_

#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

inline uint32_t Turned(uint32_t x, int by) { return x << by | x >> (32 - by); }

inline void Threefry(const uint32_t* key, uint32_t high, uint32_t low, uint32_t* out) {
  constexpr int kTurns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  uint32_t x = high + keys[0], y = low + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int turn : kTurns[group % 2]) {
      x += y;
      y = Turned(y, turn) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + group + 1;
  }
  out[0] = x;
  out[1] = y;
}

// Of every key [..., 2]: both halves at each counter, or, folded, their exclusive or.
template <bool Folded>
void Draw(const uint32_t* given, int64_t numbers, uint32_t* out) {
  const uint32_t key[2] = {given[0], given[1]};
  for (int64_t i = 0; i < numbers; ++i) {
    uint32_t both[2];
    Threefry(key, uint32_t(uint64_t(i) >> 32), uint32_t(i), both);
    if constexpr (Folded) {
      out[i] = both[0] ^ both[1];
    } else {
      out[2 * i] = both[0];
      out[2 * i + 1] = both[1];
    }
  }
}

inline ffi::Error BitsCall(ffi::Buffer<ffi::U32> keys, ffi::Result<ffi::Buffer<ffi::U32>> out, bool folded) {
  const int64_t streams = keys.element_count() / 2, each = streams ? out->element_count() / streams : 0;
  for (int64_t b = 0; b < streams; ++b) {
    uint32_t* to = out->typed_data() + b * each;
    if (folded) {
      Draw<true>(keys.typed_data() + 2 * b, each, to);
    } else {
      Draw<false>(keys.typed_data() + 2 * b, each / 2, to);
    }
  }
  return ffi::Error::Success();
}

// Every key at a counter of its own: a new key.
inline ffi::Error FoldCall(ffi::Buffer<ffi::U32> keys, ffi::Buffer<ffi::U32> at, ffi::Result<ffi::Buffer<ffi::U32>> out) {
  for (int64_t b = 0; b < static_cast<int64_t>(at.element_count()); ++b)
    Threefry(keys.typed_data() + 2 * b, 0, at.typed_data()[b], out->typed_data() + 2 * b);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bits_uint32, BitsCall,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::U32>>().Ret<ffi::Buffer<ffi::U32>>().Attr<bool>("folded"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(fold_uint32, FoldCall,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::U32>>().Arg<ffi::Buffer<ffi::U32>>().Ret<ffi::Buffer<ffi::U32>>());

#endif  // EVERGRAD_THREEFRY_H_
