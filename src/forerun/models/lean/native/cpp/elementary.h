// Exponentials and what is made of them.
#pragma once

#include <initializer_list>

#include "lanes.h"

namespace forerun {

// Relative error below 2e-7 in -87..88, the values at these limits beyond them.
inline Floats exponential(Floats x) {
  x = smallest(largest(x, all(-87.f)), all(88.f));
  const Ints n = rounded(x * all(1.44269504f));
  Floats r = fma(-floats(n), all(0.693359375f), x);
  r = fma(-floats(n), all(-2.12194440e-4f), r);
  Floats p = all(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = fma(p, r, all(c));
  p = fma(p, r * r, r) + all(1.f);
  return p * (Floats)((n + 127) << 23);
}

inline Floats silu(Floats x) { return x / (all(1.f) + exponential(-x)); }

// gelu by tanh: x (1 + tanh u) / 2 = x / (1 + e^-2u)
inline Floats gelu(Floats x) {
  const Floats u = x * fma(x * x, all(0.044715f * 1.5957691216f), all(1.5957691216f));
  return x / (all(1.f) + exponential(-u));
}

}  // namespace forerun
