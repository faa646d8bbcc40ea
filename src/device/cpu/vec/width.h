/* The vocabulary of loops that are compiled once for each vector width.
 *
 * The build compiles every file named *_loops.c for each width in ech__width (isa.h), with the
 * flags of that width and ECH_WIDTH defined as its name. A file ends with a table of its functions,
 * whose name has the width as its suffix:
 *
 *     enum { ROWS = PER_WIDTH(6, 6, 12) };                             generic, avx2, avx512
 *     vec acc = FMA(SPLAT(a), LOAD(b), LOAD(c));
 *     const ech__panel_loops TABLE(ech__panel) = {.rows = ROWS, ...};  defines ech__panel_avx2
 *
 * Vectors are the compiler's own, so + - * / and comparisons need no names.
 *
 *   LANES            floats in a vector
 *   vec, vec_s32     a vector of floats, and of as many integers, such as a comparison gives
 *   LOAD STORE       at any address of a float
 *   STREAM           to an aligned address, past the caches
 *   SPLAT(p)         the number at p in every lane
 *   CONST(x)         a constant in every lane, rounded to f32 once
 *   FMA FNMA         a * b + c and c - a * b, rounded once where the processor can do that
 *   MAX(a, b)        the larger one; b where one is a NaN
 *   HIDE(v)          makes the compiler forget what v holds, so that it keeps no second copy
 */
#pragma once

#include <stdint.h>

#ifndef ECH_WIDTH /* for tools that read a file without the build */
#define ECH_WIDTH generic
#endif

#define CHOOSE_generic(generic, avx2, avx512) generic
#define CHOOSE_avx2(generic, avx2, avx512) avx2
#define CHOOSE_avx512(generic, avx2, avx512) avx512
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define PER_WIDTH(...) PASTE(CHOOSE_, ECH_WIDTH)(__VA_ARGS__)
#define TABLE(name) PASTE(name##_, ECH_WIDTH)

#define INLINE static inline __attribute__((always_inline))

/* Eight floats are two registers on most processors without AVX. A file whose vectors need not
 * be a block of channels asks for four. */
#ifndef GENERIC_LANES
#define GENERIC_LANES 8
#endif
enum { LANES = PER_WIDTH(GENERIC_LANES, 8, 16) };

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t vec_s32 __attribute__((vector_size(4 * LANES)));
typedef float vec_aligned __attribute__((vector_size(4 * LANES), may_alias));
typedef float vec_unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Sizes for which a body is compiled, each apart. */
#define UP_TO_11(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#define ZERO ((vec){0})
#define CONST(x) ((float)(x) - (vec){0})
#define LOAD(p) ((vec) * (const vec_unaligned *)(p))
#define STORE(p, v) (*(vec_unaligned *)(p) = (v))

#if PER_WIDTH(1, 0, 0)
#define STREAM(p, v) STORE(p, v)
#define SPLAT(p) (*(p) - (vec){0})
#define FMA(a, b, c) ((a) * (b) + (c))
#define FNMA(a, b, c) ((c) - (a) * (b))
#define MAX(a, b) ((vec)(((vec_s32)(a) & ((a) > (b))) | ((vec_s32)(b) & ~((a) > (b)))))
#define HIDE(v) ((void)(v))
#elif PER_WIDTH(0, 1, 0)
#include <immintrin.h>
#define STREAM(p, v) _mm256_stream_ps(p, v)
#define SPLAT(p) _mm256_broadcast_ss(p)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define MAX(a, b) _mm256_max_ps(a, b)
#define HIDE(v) __asm__("" : "+x"(v))
#else
#include <immintrin.h>
#define STREAM(p, v) _mm512_stream_ps(p, v)
#define SPLAT(p) _mm512_set1_ps(*(p))
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define MAX(a, b) _mm512_max_ps(a, b)
#define HIDE(v) __asm__("" : "+v"(v))
#endif
