#include <immintrin.h>

/* 16 registers: the accumulators, a vector of each block, and a spread number. */
#define V __m256
#define B 8
#define ONE 14
#define TWO 12
#define ZERO() _mm256_setzero_ps()
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SPLAT(p) _mm256_broadcast_ss(p)
#define ADD(a, b) _mm256_add_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define LARGER(a, b) _mm256_max_ps(a, b)
#define SECRET_VECTOR(v) __asm__("" : "+x"(v))
#define TABLE ech__direct_avx2
#include "device/cpu/conv/direct_body.h"
