#include <immintrin.h>

/* 12 of 16 registers hold a tile of the product. */
#define V __m256
#define B 8
#define ROWS 6
#define ZERO() _mm256_setzero_ps()
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SPLAT(p) _mm256_broadcast_ss(p)
#define CONST(x) _mm256_set1_ps((float)(x))
#define ADD(a, b) _mm256_add_ps(a, b)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define MAX(a, b) _mm256_max_ps(a, b)
#define TABLE ech__winograd_avx2
#include "device/cpu/conv/winograd_body.h"
