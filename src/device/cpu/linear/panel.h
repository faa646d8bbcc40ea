/* Tiles of a matrix product in f32, compiled once for each vector width: the inner loops of
 * panel.c.
 *
 * One side of the product comes in panels of 16 columns, so that a vector load takes neighbours;
 * the other side is read number by number, so its order is free. A tile is rows x 16 * panels
 * numbers of the result, kept in registers over the whole inner dimension it is given.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { ECH__PANEL = 16 };

/* c[r][q] (+)= sum over k of a[r][k] * b[k][q], for r < rows and q < 16 * panels. k runs through
 * runs of run_length, and a jumps by run_jump from one run to the next. The same is done count
 * times, with a and c moved on each time. */
typedef struct ech__tile {
    int rows, panels;
    int64_t count, a_next, c_next;
    int64_t runs, run_length, run_jump;
    const float *a;
    int64_t a_row, a_k; /* strides of a */
    const float *b;     /* [k][16], the next panel at b_panel */
    int64_t b_panel;
    float *c; /* [r][16] */
    int64_t c_row, c_panel;
    /* Lines to fetch at each run for a later tile; NULL: none. The pointer moves on by
     * ahead_jump. */
    const float *ahead;
    int64_t ahead_lines, ahead_jump;
    bool add;    /* to what c holds */
    bool stream; /* past the caches: c is aligned, not added to and not needed soon */
} ech__tile;

typedef struct ech__panel_loops {
    int rows;   /* most of a tile */
    int panels; /* most of a tile */
    void (*tile)(const ech__tile *t);
} ech__panel_loops;

extern const ech__panel_loops ech__panel_generic, ech__panel_avx2, ech__panel_avx512;
