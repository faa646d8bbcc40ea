#include <immintrin.h>

/* 24 of 32 registers hold a tile of the product. */
#define V __m512
#define B 16
#define ROWS 12
#define ZERO() _mm512_setzero_ps()
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SPLAT(p) _mm512_set1_ps(*(p))
#define CONST(x) _mm512_set1_ps((float)(x))
#define ADD(a, b) _mm512_add_ps(a, b)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define MAX(a, b) _mm512_max_ps(a, b)
#define TABLE ech__winograd_avx512
#include "device/cpu/conv/winograd_body.h"
