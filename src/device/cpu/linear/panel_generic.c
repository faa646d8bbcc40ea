/* Vectors of the compiler's own, four floats each: what every processor has. 12 of 16 registers hold the tile. */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

#define V four
#define WIDTH 4
#define ROWS 3
#define PANELS 1
#define ZERO() ((four){0})
#define LOAD(p) (*(const four *)(p))
#define STORE(p, v) (*(four *)(p) = (v))
#define STREAM(p, v) STORE(p, v)
#define SPLAT(p) (*(p) - (four){0})
#define ADD(a, b) ((a) + (b))
#define FMA(a, b, c) ((a) * (b) + (c))
#define TABLE ech__panel_generic
#include "device/cpu/linear/panel_body.h"
