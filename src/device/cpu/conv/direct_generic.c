/* Vectors as the compiler makes them: half as wide on most processors, so a tile has half the places. */
typedef float lanes __attribute__((vector_size(32)));
typedef int bits __attribute__((vector_size(32)));
typedef float unaligned __attribute__((vector_size(32), aligned(4), may_alias));

#define V lanes
#define B 8
#define ONE 6
#define TWO 6
#define ZERO() ((V){0})
#define LOAD(p) ((V) * (const unaligned *)(p))
#define STORE(p, v) (*(unaligned *)(p) = (v))
#define SPLAT(p) (*(p) - (V){0})
#define ADD(a, b) ((a) + (b))
#define FMA(a, b, c) ((a) * (b) + (c))
#define LARGER(a, b) ((V)(((bits)(a) & ((a) > (b))) | ((bits)(b) & ~((a) > (b)))))
#define SECRET_VECTOR(v) ((void)(v))
#define TABLE ech__direct_generic
#include "device/cpu/conv/direct_body.h"
