// Vectors made of two halves, themselves vectors or pairs: what one register can't hold. Operators go to the halves.
#pragma once

#include <cstdint>
#include <cstring>

namespace forerun {

constexpr int LANES = 16;

template <class Half>
struct Pair {
  Half a, b;

  template <class Other>
  explicit operator Pair<Other>() const {
    return {(Other)a, (Other)b};
  }
  auto operator[](int i) const {
    constexpr int COUNT = sizeof(Half) / sizeof(a[0]);
    return i < COUNT ? a[i] : b[i - COUNT];
  }
};

template <class H>
inline Pair<H> operator+(Pair<H> x, Pair<H> y) { return {x.a + y.a, x.b + y.b}; }
template <class H>
inline Pair<H> operator-(Pair<H> x, Pair<H> y) { return {x.a - y.a, x.b - y.b}; }
template <class H>
inline Pair<H> operator*(Pair<H> x, Pair<H> y) { return {x.a * y.a, x.b * y.b}; }
template <class H>
inline Pair<H> operator/(Pair<H> x, Pair<H> y) { return {x.a / y.a, x.b / y.b}; }
template <class H>
inline Pair<H> operator^(Pair<H> x, Pair<H> y) { return {x.a ^ y.a, x.b ^ y.b}; }
template <class H>
inline Pair<H> operator|(Pair<H> x, Pair<H> y) { return {x.a | y.a, x.b | y.b}; }
template <class H>
inline Pair<H>& operator|=(Pair<H>& x, Pair<H> y) { return x = x | y; }
template <class H>
inline Pair<H>& operator^=(Pair<H>& x, Pair<H> y) { return x = x ^ y; }
template <class H>
inline Pair<H> operator-(Pair<H> x) { return {-x.a, -x.b}; }

template <class H>
inline Pair<H> operator+(Pair<H> x, int32_t y) { return {x.a + y, x.b + y}; }
template <class H>
inline Pair<H> operator&(Pair<H> x, int32_t y) { return {x.a & y, x.b & y}; }
template <class H>
inline Pair<H> operator<<(Pair<H> x, int y) { return {x.a << y, x.b << y}; }
template <class H>
inline Pair<H> operator>>(Pair<H> x, int y) { return {x.a >> y, x.b >> y}; }

template <class H>
inline auto operator>(Pair<H> x, Pair<H> y) { return Pair<decltype(x.a > y.a)>{x.a > y.a, x.b > y.b}; }
template <class H>
inline auto operator<(Pair<H> x, Pair<H> y) { return Pair<decltype(x.a < y.a)>{x.a < y.a, x.b < y.b}; }
template <class H>
inline auto operator!=(Pair<H> x, Pair<H> y) { return Pair<decltype(x.a != y.a)>{x.a != y.a, x.b != y.b}; }
template <class H>
inline auto operator==(Pair<H> x, Pair<H> y) { return Pair<decltype(x.a == y.a)>{x.a == y.a, x.b == y.b}; }

// a where the mask says so, else b.
template <class Mask, class V>
inline V where(Mask mask, V a, V b) { return mask ? a : b; }
template <class M, class H>
inline Pair<H> where(Pair<M> mask, Pair<H> a, Pair<H> b) { return {where(mask.a, a.a, b.a), where(mask.b, a.b, b.b)}; }

// Neighbours swapped; the even, the odd lanes twice.
template <class V>
inline V swapped(V x) {
  if constexpr (sizeof x == 16) return __builtin_shufflevector(x, x, 1, 0, 3, 2);
  if constexpr (sizeof x == 32) return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
  if constexpr (sizeof x == 64) return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
}
template <class V>
inline V evens(V x) {
  if constexpr (sizeof x == 16) return __builtin_shufflevector(x, x, 0, 0, 2, 2);
  if constexpr (sizeof x == 32) return __builtin_shufflevector(x, x, 0, 0, 2, 2, 4, 4, 6, 6);
  if constexpr (sizeof x == 64) return __builtin_shufflevector(x, x, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
}
template <class V>
inline V odds(V x) { return evens(swapped(x)); }
template <class H>
inline Pair<H> swapped(Pair<H> x) { return {swapped(x.a), swapped(x.b)}; }
template <class H>
inline Pair<H> evens(Pair<H> x) { return {evens(x.a), evens(x.b)}; }

// Register by register: a copy of a whole pair would go through memory.
template <class V>
struct Access {
  static V load(const void* from) {
    V x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  static void store(void* to, V x) { std::memcpy(to, &x, sizeof x); }
  static V all(float x) { return x - V{}; }
  static V all(int32_t x) { return x + V{}; }
};
template <class H>
struct Access<Pair<H>> {
  static Pair<H> load(const void* from) {
    return {Access<H>::load(from), Access<H>::load(static_cast<const uint8_t*>(from) + sizeof(H))};
  }
  static void store(void* to, Pair<H> x) {
    Access<H>::store(to, x.a), Access<H>::store(static_cast<uint8_t*>(to) + sizeof(H), x.b);
  }
  template <class T>
  static Pair<H> all(T x) { return {Access<H>::all(x), Access<H>::all(x)}; }
};

}  // namespace forerun
