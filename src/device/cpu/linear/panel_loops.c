/* The tile of panel.h. */
#define GENERIC_LANES 4
#include "device/cpu/linear/panel.h"
#include "device/cpu/vec/width.h"

#include <stddef.h>

/* The largest tile: 12 of 16 registers, or 24 of 32. */
enum {
    ROWS = PER_WIDTH(3, 6, 12),
    PANELS = PER_WIDTH(1, 1, 2),
    PER_PANEL = ECH__PANEL / LANES,
    VECTORS = PER_PANEL * PANELS,
};

/* rows and panels are constants wherever this is expanded, so all loops over them unroll. */
INLINE void tile_of(const ech__tile *given, const int rows, const int panels)
{
    const ech__tile t = *given; /* a copy: stores to c cannot change it */
    const float *a_first = t.a;
    float *c_first = t.c;
    for (int64_t n = 0; n < t.count; n++, a_first += t.a_next, c_first += t.c_next) {
        vec acc[ROWS][VECTORS];
        const float *a = a_first, *b = t.b, *ahead = t.ahead;
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < panels * PER_PANEL; v++)
                acc[r][v] = ZERO;
        }
        for (int64_t run = 0; run < t.runs; run++, a += t.run_jump) {
            const float *ak = a;
            for (int64_t line = 0; line < t.ahead_lines; line++)
                __builtin_prefetch(ahead + line * ECH__PANEL, 0, 2);
            ahead += t.ahead_jump;
            for (int64_t k = 0; k < t.run_length; k++, ak += t.a_k, b += ECH__PANEL) {
                vec bv[VECTORS];
#pragma GCC unroll 4
                for (int v = 0; v < panels * PER_PANEL; v++)
                    bv[v] = LOAD(b + v / PER_PANEL * t.b_panel + v % PER_PANEL * LANES);
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++) {
                    const vec av = SPLAT(ak + r * t.a_row);
#pragma GCC unroll 4
                    for (int v = 0; v < panels * PER_PANEL; v++)
                        acc[r][v] = FMA(av, bv[v], acc[r][v]);
                }
            }
        }
#define C_AT(r, v) (c_first + (r)*t.c_row + (v) / PER_PANEL * t.c_panel + (v) % PER_PANEL * LANES)
#define EACH(action)                                                                               \
    _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++)                                        \
    {                                                                                              \
        _Pragma("GCC unroll 4") for (int v = 0; v < panels * PER_PANEL; v++) action;               \
    }
        if (t.add)
            EACH(STORE(C_AT(r, v), acc[r][v] + LOAD(C_AT(r, v))))
        else if (t.stream)
            EACH(STREAM(C_AT(r, v), acc[r][v]))
        else
            EACH(STORE(C_AT(r, v), acc[r][v]))
#undef EACH
#undef C_AT
    }
}

static void tile(const ech__tile *t)
{
    /* One body for each size, so that the accumulators stay in registers. */
#define SIZE(rows_)                                                                                \
    case rows_:                                                                                    \
        if (rows_ > ROWS)                                                                          \
            break;                                                                                 \
        if (PANELS == 2 && t->panels == 2)                                                         \
            tile_of(t, rows_, PANELS);                                                             \
        else                                                                                       \
            tile_of(t, rows_, 1);                                                                  \
        break;
    switch (t->rows) {
        UP_TO_11(SIZE)
        SIZE(12)
    default:
        break;
    }
#undef SIZE
}

const ech__panel_loops TABLE(ech__panel) = {.rows = ROWS, .panels = PANELS, .tile = tile};
