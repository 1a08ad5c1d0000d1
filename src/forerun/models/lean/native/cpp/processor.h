// What this processor has. Every library can say so of every instruction set: asking needs none of them.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace forerun {

// AVX2 with FMA; AVX-512 with VNNI; AVX-VNNI beside AVX2; ARM's dot products. native/library.py has the same numbers.
enum Has { AVX2 = 1, AVX512 = 2, AVXVNNI = 4, DOTPROD = 8 };

inline int processor() {
  int found = 0;
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks whether the operating system keeps the registers
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found |= AVX2;
    // by itself: not every compiler's builtin knows its name
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4) found |= AVXVNNI;
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
    found |= AVX512;
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long ASIMDDP = 1ul << 20;
  if (getauxval(AT_HWCAP) & ASIMDDP) found |= DOTPROD;
#elif defined(__aarch64__) && defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  if (!sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) && has) found |= DOTPROD;
#endif
  return found;
}

}  // namespace forerun
