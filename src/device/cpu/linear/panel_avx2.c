#include <immintrin.h>

/* 12 of 16 registers hold the tile. */
#define V __m256
#define WIDTH 8
#define ROWS 6
#define PANELS 1
#define ZERO() _mm256_setzero_ps()
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define STREAM(p, v) _mm256_stream_ps(p, v)
#define SPLAT(p) _mm256_broadcast_ss(p)
#define ADD(a, b) _mm256_add_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define TABLE ech__panel_avx2
#include "device/cpu/linear/panel_body.h"
