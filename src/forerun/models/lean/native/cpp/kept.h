// Keys and values in their slots, as float32 or as bfloat16: then two vectors of 16 share 32-bit lanes, one in the low
// halves and one in the high ones, and widening them takes an operation each.
#pragma once

#include "lanes.h"

namespace forerun {

template <class T>
constexpr int BESIDE = LANES * int(sizeof(float) / sizeof(T));  // slots of keys, or components of values, in 64 bytes

inline float held(float x, float) { return x; }
// to the nearest, of two equally near ones the even; keys and values are finite
inline uint16_t held(float x, uint16_t) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Where the i-th of some numbers stands that come in runs of BESIDE, `apart` between two runs.
template <class T>
inline size_t place_of(int i, size_t apart) {
  constexpr int each = BESIDE<T> / LANES;
  return size_t(i / BESIDE<T>) * apart + size_t(i % LANES * each + i % BESIDE<T> / LANES);
}

// Components first..first + n of a slot's key, in a plane [slots / BESIDE, head_dim, BESIDE].
template <class T>
inline void put_key(T* plane, int head_dim, int slot, int first, int n, const float* x) {
  T* to = plane + place_of<T>(slot, size_t(BESIDE<T>) * head_dim) + size_t(first) * BESIDE<T>;
  for (int k = 0; k < n; k++) to[k * BESIDE<T>] = held(x[k], T());
}

// The same of its value, in a plane [slots, wide].
template <class T>
inline void put_value(T* plane, size_t wide, int slot, int first, int n, const float* x) {
  T* to = plane + size_t(slot) * wide;
  if constexpr (BESIDE<T> == LANES)
    std::memcpy(to + first, x, sizeof(float) * n);
  else
    for (int k = 0; k < n; k++) to[place_of<T>(first + k, BESIDE<T>)] = held(x[k], T());
}

// The w-th of some vectors, `apart` numbers from one to the next. One at a time, since registers are full of sums.
inline Floats vector_at(const float* from, size_t apart, int w) { return load(from + w * apart); }
inline Floats vector_at(const uint16_t* from, size_t apart, int w) {
  const Ints pair = Access<Ints>::load(from + w / 2 * 2 * apart);
  return (Floats)(w % 2 ? pair & int32_t(0xffff0000) : pair << 16);
}

}  // namespace forerun
