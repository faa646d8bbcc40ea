/* The loops of winograd.h.
 *
 * The points are 0, +-P, +-Q and infinity, so that sums and differences serve two points each. With
 * N(x) = x (x^2 - P^2) (x^2 - Q^2):
 *   inputs    coefficients of N(x) / (x - point), and of N(x) for infinity
 *   weights   powers of the point over N'(point)
 *   results   powers of the point
 */
#include "device/cpu/conv/winograd.h"
#include "device/cpu/vec/width.h"

#include <stddef.h>

enum {
    B = LANES, /* channels in a vector */
    ROWS =
        B / 4 * 3, /* of a tile of the product, two vectors each: 12 of 16 registers, or 24 of 32 */
};
/* Terms of a sum at a time: a part of b stays in L1, and short sums of f32 lose less. */
enum { CUT = 64 };
/* Tiles that are fetched ahead: about the time that memory takes. */
enum { AHEAD = 6 };
enum { SIDE = 6, TILE = ECH__WINOGRAD_TILE };

/* Of the pairs that were tried, this one has the least error: less than half of that of 1 and 2.
 * In f64, so that each constant is rounded once. */
#define P 0.625
#define Q 1.5
#define P2 (P * P)
#define Q2 (Q * Q)
#define AT_0 (1 / (P2 * Q2)) /* 1 / N'(0) */
#define AT_P (1 / (2 * P2 * (P2 - Q2)))
#define AT_Q (1 / (2 * Q2 * (Q2 - P2)))

/* ---- transforms along one axis ---- */

/* Six inputs at six points. */
INLINE void input_points(const vec x[SIDE], vec y[SIDE])
{
    const vec even_p = FNMA(CONST(Q2), x[2], x[4]), odd_p = FNMA(CONST(Q2), x[1], x[3]);
    const vec even_q = FNMA(CONST(P2), x[2], x[4]), odd_q = FNMA(CONST(P2), x[1], x[3]);
    y[0] = FMA(CONST(P2 * Q2), x[0], FNMA(CONST(P2 + Q2), x[2], x[4]));
    y[1] = FMA(CONST(P), odd_p, even_p);
    y[2] = FNMA(CONST(P), odd_p, even_p);
    y[3] = FMA(CONST(Q), odd_q, even_q);
    y[4] = FNMA(CONST(Q), odd_q, even_q);
    y[5] = FMA(CONST(P2 * Q2), x[1], FNMA(CONST(P2 + Q2), x[3], x[5]));
}

/* Three taps of a weight at six points. */
INLINE void weight_points(const vec w[3], vec y[SIDE])
{
    const vec even_p = FMA(CONST(P2 * AT_P), w[2], CONST(AT_P) * w[0]);
    const vec even_q = FMA(CONST(Q2 * AT_Q), w[2], CONST(AT_Q) * w[0]);
    y[0] = CONST(AT_0) * w[0];
    y[1] = FMA(CONST(P * AT_P), w[1], even_p);
    y[2] = FNMA(CONST(P * AT_P), w[1], even_p);
    y[3] = FMA(CONST(Q * AT_Q), w[1], even_q);
    y[4] = FNMA(CONST(Q * AT_Q), w[1], even_q);
    y[5] = w[2];
}

/* Four gradients of a tile at six points. */
INLINE void gradient_points(const vec d[TILE], vec y[SIDE])
{
    const vec even_p = FMA(CONST(P2 * AT_P), d[2], CONST(AT_P) * d[0]);
    const vec even_q = FMA(CONST(Q2 * AT_Q), d[2], CONST(AT_Q) * d[0]);
    const vec odd_p = FMA(CONST(P2), d[3], d[1]), odd_q = FMA(CONST(Q2), d[3], d[1]);
    y[0] = CONST(AT_0) * d[0];
    y[1] = FMA(CONST(P * AT_P), odd_p, even_p);
    y[2] = FNMA(CONST(P * AT_P), odd_p, even_p);
    y[3] = FMA(CONST(Q * AT_Q), odd_q, even_q);
    y[4] = FNMA(CONST(Q * AT_Q), odd_q, even_q);
    y[5] = d[3];
}

/* From six points to count (3 or 4) results. */
INLINE void results(const vec m[SIDE], vec y[TILE], const int count)
{
    const vec even_p = m[1] + m[2], odd_p = m[1] - m[2];
    const vec even_q = m[3] + m[4], odd_q = m[3] - m[4];
    y[0] = m[0] + (even_p + even_q);
    y[1] = FMA(CONST(P), odd_p, CONST(Q) * odd_q);
    y[2] = FMA(CONST(P2), even_p, CONST(Q2) * even_q);
    if (count == 3)
        y[2] += m[5];
    else
        y[3] = FMA(CONST(P2 * P), odd_p, FMA(CONST(Q2 * Q), odd_q, m[5]));
}

/* ---- tiles of images ---- */

static const float nothing[SIDE * B];

/* The address of one tile: rows outside the image point at zeros. */
typedef struct tile_place {
    const float *rows[SIDE]; /* of column 0 of the tile; only columns [first, end) may be read */
    int64_t first, end;
} tile_place;

typedef struct tile_walk {
    const ech__winograd_image *image;
    int64_t block, n, h, w; /* tile w of row h of image n */
} tile_walk;

INLINE tile_walk walk_from(const ech__winograd_image *image, ech__winograd_span span)
{
    const int64_t w = span.first % image->tiles_w, rows = span.first / image->tiles_w;
    return (tile_walk){image, span.block, rows / image->tiles_h, rows % image->tiles_h, w};
}

INLINE void walk_on(tile_walk *walk)
{
    if (++walk->w < walk->image->tiles_w)
        return;
    walk->w = 0;
    if (++walk->h < walk->image->tiles_h)
        return;
    walk->h = 0;
    walk->n++;
}

INLINE tile_place place_of(const tile_walk *walk, const int side)
{
    const ech__winograd_image *image = walk->image;
    const int64_t top = walk->h * TILE - image->before, left = walk->w * TILE - image->before;
    const int64_t plane = (walk->n * image->blocks + walk->block) * image->height;
    tile_place place;
    for (int r = 0; r < side; r++) {
        const bool inside = top + r >= 0 && top + r < image->height;
        place.rows[r] =
            inside ? image->data + ((plane + top + r) * image->width + left) * B : nothing;
    }
    place.first = left < 0 ? -left : 0;
    place.end = image->width - left < side ? image->width - left : side;
    return place;
}

/* A walk some tiles ahead of another one, which goes on with the next block of channels where
 * the span ends. Rows of a tile are far apart in memory, so the processor does not see by itself
 * what comes next. */
typedef struct ahead_walk {
    tile_walk at, first;
    int64_t left;
} ahead_walk;

INLINE ahead_walk ahead_of(const ech__winograd_image *image, ech__winograd_span span)
{
    const int64_t ahead = span.count < AHEAD ? span.count : AHEAD;
    ahead_walk walk = {.first = walk_from(image, span), .left = span.count - ahead};
    walk.first.block++;
    span.first += ahead;
    walk.at = walk.left ? walk_from(image, span) : walk.first;
    return walk;
}

/* Fetches the 4 x 4 places of the tile ahead, all but the rims it has in common with others. */
INLINE void fetch_ahead(ahead_walk *walk, const bool write)
{
    const ech__winograd_image *image = walk->at.image;
    const int64_t plane = (walk->at.n * image->blocks + walk->at.block) * image->height;
    const float *row =
        image->data + ((plane + walk->at.h * TILE) * image->width + walk->at.w * TILE) * B;
    for (int r = 0; r < TILE; r++, row += image->width * B) {
        for (int line = 0; line < TILE * B; line += 16) {
            if (write)
                __builtin_prefetch(row + line, 1);
            else
                __builtin_prefetch(row + line, 0);
        }
    }
    if (--walk->left == 0)
        walk->at = walk->first;
    else
        walk_on(&walk->at);
}

static void input(const ech__winograd_image *x, ech__winograd_span span, float *v, int64_t stride)
{
    tile_walk walk = walk_from(x, span);
    ahead_walk ahead = ahead_of(x, span);
    for (int64_t t = 0; t < span.count; t++, v += B, walk_on(&walk)) {
        fetch_ahead(&ahead, false);
        const tile_place at = place_of(&walk, SIDE);
        vec half[SIDE][SIDE]; /* [point][column] */
        for (int64_t c = 0; c < SIDE; c++) {
            vec from[SIDE], to[SIDE];
            const bool inside = c >= at.first && c < at.end;
            for (int r = 0; r < SIDE; r++)
                from[r] = inside ? LOAD(at.rows[r] + c * B) : ZERO;
            input_points(from, to);
            for (int r = 0; r < SIDE; r++)
                half[r][c] = to[r];
        }
        for (int r = 0; r < SIDE; r++) {
            vec to[SIDE];
            input_points(half[r], to);
            for (int c = 0; c < SIDE; c++)
                STORE(v + (r * SIDE + c) * stride, to[c]);
        }
    }
}

static void gradient(const ech__winograd_image *dy, ech__winograd_span span, float *v,
                     int64_t stride)
{
    tile_walk walk = walk_from(dy, span);
    ahead_walk ahead = ahead_of(dy, span);
    for (int64_t t = 0; t < span.count; t++, v += B, walk_on(&walk)) {
        fetch_ahead(&ahead, false);
        const tile_place at = place_of(&walk, TILE);
        vec half[SIDE][TILE]; /* [point][column] */
        for (int64_t c = 0; c < TILE; c++) {
            vec from[TILE], to[SIDE];
            for (int r = 0; r < TILE; r++)
                from[r] = c < at.end ? LOAD(at.rows[r] + c * B) : ZERO;
            gradient_points(from, to);
            for (int r = 0; r < SIDE; r++)
                half[r][c] = to[r];
        }
        for (int r = 0; r < SIDE; r++) {
            vec to[SIDE];
            gradient_points(half[r], to);
            for (int c = 0; c < SIDE; c++)
                STORE(v + (r * SIDE + c) * stride, to[c]);
        }
    }
}

static void output(const ech__winograd_image *y, ech__winograd_span span, const float *m,
                   int64_t stride, const float *bias, bool relu)
{
    tile_walk walk = walk_from(y, span);
    ahead_walk ahead = ahead_of(y, span);
    const vec shift = bias ? LOAD(bias) : ZERO;
    for (int64_t t = 0; t < span.count; t++, m += B, walk_on(&walk)) {
        fetch_ahead(&ahead, true);
        vec half[TILE][SIDE]; /* [row][point] */
        for (int c = 0; c < SIDE; c++) {
            vec from[SIDE], to[TILE];
            for (int r = 0; r < SIDE; r++)
                from[r] = LOAD(m + (r * SIDE + c) * stride);
            results(from, to, TILE);
            for (int r = 0; r < TILE; r++)
                half[r][c] = to[r];
        }
        const int64_t top = walk.h * TILE, left = walk.w * TILE;
        const int64_t rows = y->height - top, cols = y->width - left;
        const int64_t plane = (walk.n * y->blocks + walk.block) * y->height;
        float *to_row = y->data + ((plane + top) * y->width + left) * B;
        for (int r = 0; r < TILE && r < rows; r++, to_row += y->width * B) {
            vec to[TILE];
            results(half[r], to, TILE);
            for (int c = 0; c < TILE; c++) {
                to[c] += shift;
                if (relu)
                    to[c] = MAX(ZERO, to[c]); /* a NaN stays one */
                if (c < cols)
                    STORE(to_row + c * B, to[c]);
            }
        }
    }
}

static void sums(const ech__winograd_image *dy, int64_t images, int64_t block, float *out)
{
    /* One sum for each image first: long sums of f32 lose what is added last. */
    vec total = ZERO;
    const int64_t places = dy->height * dy->width;
    for (int64_t n = 0; n < images; n++) {
        const float *from = dy->data + (n * dy->blocks + block) * places * B;
        vec some[4] = {ZERO, ZERO, ZERO, ZERO};
        for (int64_t at = 0; at < places; at++)
            some[at % 4] += LOAD(from + at * B);
        total += (some[0] + some[1]) + (some[2] + some[3]);
    }
    STORE(out, total);
}

/* ---- weights ---- */

static void weight(const float *taps, bool rotate, float *u, int64_t stride)
{
    for (int k = 0; k < B; k++, u += (ptrdiff_t)(2 * B)) {
        vec half[SIDE][3]; /* [point][column] */
        for (int c = 0; c < 3; c++) {
            vec from[3], to[SIDE];
            for (int r = 0; r < 3; r++) {
                const int tap = r * 3 + c;
                from[r] = LOAD(taps + ((rotate ? ECH__WINOGRAD_TAPS - 1 - tap : tap) * B + k) * B);
            }
            weight_points(from, to);
            for (int r = 0; r < SIDE; r++)
                half[r][c] = to[r];
        }
        for (int r = 0; r < SIDE; r++) {
            vec to[SIDE];
            weight_points(half[r], to);
            for (int c = 0; c < SIDE; c++)
                STORE(u + (r * SIDE + c) * stride, to[c]);
        }
    }
}

static void weight_gradient(const float *m, int64_t stride, float *taps)
{
    for (int k = 0; k < B; k++, m += B) {
        vec half[3][SIDE]; /* [row][point] */
        for (int c = 0; c < SIDE; c++) {
            vec from[SIDE], to[TILE];
            for (int r = 0; r < SIDE; r++)
                from[r] = LOAD(m + (r * SIDE + c) * stride);
            results(from, to, 3);
            for (int r = 0; r < 3; r++)
                half[r][c] = to[r];
        }
        for (int r = 0; r < 3; r++) {
            vec to[TILE];
            results(half[r], to, 3);
            for (int c = 0; c < 3; c++)
                STORE(taps + ((r * 3 + c) * B + k) * B, to[c]);
        }
    }
}

/* from[8][8] -> to[8][8], rows B apart. */
INLINE void transpose_8(const float *from, float *to)
{
#if PER_WIDTH(0, 1, 1)
    __m256 a[8], b[8];
    for (int r = 0; r < 8; r++)
        a[r] = _mm256_loadu_ps(from + r * B);
    for (int r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
    for (int r = 0; r < 8; r += 4) {
        a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
    }
    for (int r = 0; r < 4; r++) {
        _mm256_storeu_ps(to + r * B, _mm256_permute2f128_ps(a[r], a[r + 4], 0x20));
        _mm256_storeu_ps(to + (r + 4) * B, _mm256_permute2f128_ps(a[r], a[r + 4], 0x31));
    }
#else
    for (int r = 0; r < 8; r++) {
        for (int c = 0; c < 8; c++)
            to[c * B + r] = from[r * B + c];
    }
#endif
}

static void transpose(const float *from, float *to)
{
    for (int tap = 0; tap < ECH__WINOGRAD_TAPS;
         tap++, from += (ptrdiff_t)(B * B), to += (ptrdiff_t)(B * B)) {
        for (int r = 0; r < B; r += 8) {
            for (int c = 0; c < B; c += 8)
                transpose_8(from + r * B + c, to + c * B + r);
        }
    }
}

/* ---- products ---- */

/* The sizes are constants wherever these are expanded, so all loops over them unroll and the
 * accumulators stay in registers. */
INLINE void clear(vec acc[ROWS][2], const int rows, const int vectors)
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            acc[r][v] = ZERO;
    }
}

INLINE void store_tile(const ech__winograd_product *p, vec acc[ROWS][2], float *c, bool add,
                       const int rows, const int vectors)
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * B + v * p->c_block;
            STORE(at, add ? LOAD(at) + acc[r][v] : acc[r][v]);
        }
    }
}

INLINE void channels_tile(const ech__winograd_product *p, const float *a, const float *b, float *c,
                          int64_t depth, bool add, const int rows, const int vectors)
{
    vec acc[ROWS][2];
    clear(acc, rows, vectors);
    const int64_t a_block = p->a_block;
    for (int64_t k = 0; k < depth; k += B, a += a_block) {
#pragma GCC unroll 8
        for (int lane = 0; lane < B; lane++, b += (ptrdiff_t)(2 * B)) {
            vec bv[2];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                bv[v] = LOAD(b + v * B);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                const vec av = SPLAT(a + r * B + lane);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    acc[r][v] = FMA(av, bv[v], acc[r][v]);
            }
        }
    }
    store_tile(p, acc, c, add, rows, vectors);
}

/* All rows of one vector or two, for a part of the depth. */
INLINE void channels_rows(const ech__winograd_product *p, const float *a, const float *b, float *c,
                          int64_t depth, bool add, const int vectors)
{
#define SIZE(rows_)                                                                                \
    case rows_:                                                                                    \
        if (rows_ < ROWS)                                                                          \
            channels_tile(p, a, b, c, depth, add, rows_, vectors);                                 \
        break;
    int64_t row = 0;
    for (; row + ROWS <= p->rows;
         row += ROWS, a += (ptrdiff_t)(ROWS * B), c += (ptrdiff_t)(ROWS * B))
        channels_tile(p, a, b, c, depth, add, ROWS, vectors);
    switch (p->rows - row) {
        UP_TO_11(SIZE)
    default:
        break;
    }
#undef SIZE
}

static void over_channels(const ech__winograd_product *p)
{
    for (int64_t block = 0; block < p->blocks; block += 2) {
        float *c = p->c + block * p->c_block;
        for (int64_t k = 0; k < p->depth; k += CUT) {
            const int64_t depth = p->depth - k < CUT ? p->depth - k : CUT;
            const float *a = p->a + k / B * p->a_block;
            const float *b = p->b + block / 2 * p->b_block + k * 2 * B;
            if (block + 1 < p->blocks)
                channels_rows(p, a, b, c, depth, k > 0, 2);
            else
                channels_rows(p, a, b, c, depth, k > 0, 1);
        }
    }
}

/* The rows are channels, and ROWS of them may begin in one block and end in the next: head of
 * them are at a, the others begin a block. */
INLINE void tiles_tile(const ech__winograd_product *p, const float *a, const float *b, float *c,
                       int64_t depth, bool add, const int head, const int rows, const int vectors)
{
    vec acc[ROWS][2];
    clear(acc, rows, vectors);
    const float *next = head < rows ? a + p->a_block - (B - head) : a;
    const float *b_next = vectors > 1 ? b + p->b_block : b;
    for (int64_t t = 0; t < depth; t++, a += B, next += B, b += B, b_next += B) {
        const vec first = LOAD(b), second = LOAD(b_next);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vec av = SPLAT(r < head ? a + r : next + (r - head));
            acc[r][0] = FMA(av, first, acc[r][0]);
            if (vectors > 1)
                acc[r][1] = FMA(av, second, acc[r][1]);
        }
    }
    store_tile(p, acc, c, add, rows, vectors);
}

/* All rows of one vector or two, for a part of the depth. */
INLINE void tiles_rows(const ech__winograd_product *p, const float *a, const float *b, float *c,
                       int64_t depth, bool add, const int vectors)
{
    enum { THIRD = ROWS / 3 };
#define SIZE(head, rows) tiles_tile(p, from, b, c, depth, add, head, rows, vectors)
    for (int64_t row = 0; row < p->rows; row += ROWS, c += (ptrdiff_t)(ROWS * B)) {
        const float *from = a + row / B * p->a_block + row % B;
        const int64_t left = p->rows - row, head = B - row % B;
        if (left >= ROWS && head >= ROWS)
            SIZE(ROWS, ROWS);
        else if (left >= ROWS && head == THIRD)
            SIZE(THIRD, ROWS);
        else if (left >= ROWS)
            SIZE(2 * THIRD, ROWS);
        else if (left == THIRD)
            SIZE(THIRD, THIRD);
        else
            SIZE(2 * THIRD, 2 * THIRD);
    }
#undef SIZE
}

static void over_tiles(const ech__winograd_product *p)
{
    for (int64_t block = 0; block < p->blocks; block += 2) {
        float *c = p->c + block * p->c_block;
        for (int64_t t = 0; t < p->depth; t += CUT) {
            const int64_t depth = p->depth - t < CUT ? p->depth - t : CUT;
            const float *a = p->a + t * B, *b = p->b + block * p->b_block + t * B;
            if (block + 1 < p->blocks)
                tiles_rows(p, a, b, c, depth, p->add || t > 0, 2);
            else
                tiles_rows(p, a, b, c, depth, p->add || t > 0, 1);
        }
    }
}

const ech__winograd_loops TABLE(ech__winograd) = {.channels = B,
                                                  .rows = ROWS,
                                                  .input = input,
                                                  .gradient = gradient,
                                                  .output = output,
                                                  .weight = weight,
                                                  .weight_gradient = weight_gradient,
                                                  .transpose = transpose,
                                                  .over_channels = over_channels,
                                                  .over_tiles = over_tiles,
                                                  .sums = sums};
