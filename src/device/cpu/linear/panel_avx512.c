#include <immintrin.h>

/* 24 of 32 registers hold the tile. */
#define V __m512
#define WIDTH 16
#define ROWS 12
#define PANELS 2
#define ZERO() _mm512_setzero_ps()
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define STREAM(p, v) _mm512_stream_ps(p, v)
#define SPLAT(p) _mm512_set1_ps(*(p))
#define ADD(a, b) _mm512_add_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define TABLE ech__panel_avx512
#include "device/cpu/linear/panel_body.h"
