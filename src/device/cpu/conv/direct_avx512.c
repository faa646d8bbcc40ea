#include <immintrin.h>

/* 32 registers, and a number may be spread as it is multiplied. */
#define V __m512
#define B 16
#define ONE 28
#define TWO 28
#define ZERO() _mm512_setzero_ps()
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SPLAT(p) _mm512_set1_ps(*(p))
#define ADD(a, b) _mm512_add_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define LARGER(a, b) _mm512_max_ps(a, b)
#define SECRET_VECTOR(v) __asm__("" : "+v"(v))
#define TABLE ech__direct_avx512
#include "device/cpu/conv/direct_body.h"
