/* Vectors of the compiler's own, eight floats each: two registers on most processors. */
typedef float lanes __attribute__((vector_size(32)));
typedef int bits __attribute__((vector_size(32)));
typedef float unaligned __attribute__((vector_size(32), aligned(4), may_alias));

#define V lanes
#define B 8
#define ROWS 6
#define ZERO() ((V){0})
#define LOAD(p) ((V) * (const unaligned *)(p))
#define STORE(p, v) (*(unaligned *)(p) = (v))
#define SPLAT(p) (*(p) - (V){0})
#define CONST(x) ((float)(x) - (V){0})
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define FMA(a, b, c) ((a) * (b) + (c))
#define FNMA(a, b, c) ((c) - (a) * (b))
#define MAX(a, b) ((V)(((bits)(a) & ((a) > (b))) | ((bits)(b) & ~((a) > (b)))))
#define TABLE ech__winograd_generic
#include "device/cpu/conv/winograd_body.h"
