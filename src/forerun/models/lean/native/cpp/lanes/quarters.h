// 16 lanes as four vectors of 128 bits. Included after what is done to one of them: names are looked up where they stand.
#pragma once

#include "fours.h"

namespace forerun {

using Floats = Pair<Pair<FloatPiece>>;
using Ints = Pair<Pair<IntPiece>>;
using Bytes = Pair<Pair<BytePiece>>;

inline Floats load(const float* from) { return Access<Floats>::load(from); }
inline void store(float* to, Floats x) { Access<Floats>::store(to, x); }
inline Floats all(float x) { return Access<Floats>::all(x); }
inline Ints all(int32_t x) { return Access<Ints>::all(x); }
inline Bytes codes(const uint8_t* from) { return Access<Bytes>::load(from); }

template <class H>
inline auto floats(Pair<H> x) { return Pair<decltype(floats(x.a))>{floats(x.a), floats(x.b)}; }
template <class H>
inline auto rounded(Pair<H> x) { return Pair<decltype(rounded(x.a))>{rounded(x.a), rounded(x.b)}; }
template <class H>
inline Pair<H> fma(Pair<H> a, Pair<H> b, Pair<H> c) { return {fma(a.a, b.a, c.a), fma(a.b, b.b, c.b)}; }

// Lane i and the one half the lanes further, and so on.
template <class H>
inline auto sum(Pair<H> x) { return sum(x.a + x.b); }
template <class H>
inline float top(Pair<H> x) { return top(where(x.a > x.b, x.a, x.b)); }

template <class H>
inline void store_bytes(int8_t* to, Pair<H> x) { store_bytes(to, x.a), store_bytes(to + sizeof(H) / 4, x.b); }

}  // namespace forerun
