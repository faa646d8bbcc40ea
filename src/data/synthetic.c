/* Images that can be learnt, from integers alone, so that every machine makes the same ones.
 *
 * A pattern is a plane for each channel: a grid of random values with bilinear steps between them, which wraps
 * around at the edges. An image is the pattern of its class, shifted and faded by chance, plus a pattern drawn from a
 * pool that all classes share, plus noise on every pixel.
 */
#include "data/images.h"
#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLASSES = 10,
    CHANNELS = 3,
    SIDE = 32,
    GRID = 4,           /* random values across a pattern */
    CELL = SIDE / GRID, /* pixels between two of them */
    PLANE = SIDE * SIDE,
    POOL = 32, /* patterns without a class */
    TRAIN = 50000,
    TEST = 10000,
    HEIGHT = 64, /* a pattern's values lie within +-HEIGHT */
    JITTER = 16, /* a class pattern starts up to JITTER - 1 pixels further down and right */
    NOISE = 72,  /* of one pixel: within +-NOISE */
    NOISE_LENGTH = 1 << 15,
    MIDDLE = 128, /* grey */
};

static const uint64_t SEED = 0x65636865;

typedef struct synthetic {
    int64_t first; /* number of the split's first image */
    int16_t classes[CLASSES][CHANNELS][PLANE];
    int16_t pool[POOL][CHANNELS][PLANE];
    int16_t noise[NOISE_LENGTH + SIDE]; /* a row of an image starts anywhere in it */
} synthetic;

/* One plane of a pattern: grid[GRID][GRID], bilinear, wrapping around. */
static void make_plane(uint64_t number, int16_t *plane)
{
    int grid[GRID * GRID];
    for (unsigned g = 0; g < GRID * GRID; g++) {
        uint32_t words[4];
        ech__rng_block(SEED, ech__rng_stream("pattern"), number * GRID * GRID + g, words);
        grid[g] = (int)(words[0] % (2 * HEIGHT + 1)) - HEIGHT;
    }
    for (int y = 0; y < SIDE; y++) {
        const int top = y / CELL, bottom = (top + 1) % GRID, v = y % CELL;
        for (int x = 0; x < SIDE; x++) {
            const int left = x / CELL, right = (left + 1) % GRID, u = x % CELL;
            const int above = grid[top * GRID + left] * (CELL - u) + grid[top * GRID + right] * u;
            const int below =
                grid[bottom * GRID + left] * (CELL - u) + grid[bottom * GRID + right] * u;
            plane[y * SIDE + x] = (int16_t)((above * (CELL - v) + below * v) / (CELL * CELL));
        }
    }
}

static void make_noise(int16_t *noise)
{
    uint32_t words[4] = {0};
    for (uint64_t i = 0; i < NOISE_LENGTH + SIDE; i++) {
        if (i % 4 == 0)
            ech__rng_block(SEED, ech__rng_stream("noise table"), i / 4, words);
        noise[i] = (int16_t)((int)(words[i % 4] % (2 * NOISE + 1)) - NOISE);
    }
}

/* What chance decided for one image. */
typedef struct look {
    int down, right; /* shift of the class pattern */
    int strength;    /* of it, 256ths */
    int other;       /* which pattern of the pool */
    int other_down, other_right;
    int other_strength;
} look;

static look look_of(uint64_t image)
{
    uint32_t w[4];
    ech__rng_block(SEED, ech__rng_stream("look"), image, w);
    return (look){
        .down = (int)(w[0] % JITTER),
        .right = (int)(w[0] / JITTER % JITTER),
        .strength = 64 + (int)(w[1] % 128),
        .other = (int)(w[2] % POOL),
        .other_down = (int)(w[2] / POOL % SIDE),
        .other_right = (int)(w[2] / POOL / SIDE % SIDE),
        .other_strength = 64 + (int)(w[3] % 192),
    };
}

/* A row of a pattern, shifted cyclically. */
static void shift_row(const int16_t *plane, int y, int right, int16_t *row)
{
    const int16_t *from = plane + (size_t)(y % SIDE) * SIDE;
    memcpy(row, from + right, (size_t)(SIDE - right) * sizeof *row);
    memcpy(row + SIDE - right, from, (size_t)right * sizeof *row);
}

static ech_status synthetic_read(ech_ctx *ctx, const ech__images *set, int64_t stored,
                                 uint8_t *scratch, const uint8_t **pixels)
{
    (void)ctx;
    enum { ROWS = CHANNELS * SIDE };
    const synthetic *s = set->state;
    const uint64_t image = (uint64_t)(s->first + stored), stream = ech__rng_stream("noise");
    const look l = look_of(image);
    uint32_t words[4] = {0};
    for (int row = 0; row < ROWS; row++) {
        const int c = row / SIDE, y = row % SIDE;
        int16_t a[SIDE], b[SIDE];
        if (row % 4 == 0)
            ech__rng_block(SEED, stream, image * (ROWS / 4) + (uint64_t)(row / 4), words);
        const int16_t *noise = s->noise + words[row % 4] % NOISE_LENGTH;
        shift_row(s->classes[stored % CLASSES][c], y + l.down, l.right, a);
        shift_row(s->pool[l.other][c], y + l.other_down, l.other_right, b);
        for (int x = 0; x < SIDE; x++) {
            const int value =
                MIDDLE + ((a[x] * l.strength + b[x] * l.other_strength) >> 8) + noise[x];
            scratch[row * SIDE + x] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    *pixels = scratch;
    return ECH_OK;
}

static void synthetic_close(ech_ctx *ctx, void *state)
{
    ech__delete(ctx, state, sizeof(synthetic));
}

static const ech__image_source source = {.read = synthetic_read, .close = synthetic_close};

ech_status ech__synthetic_open(ech__images *set, ech__split split)
{
    assert(set->channels == CHANNELS && set->height == SIDE && set->width == SIDE &&
           set->classes == CLASSES);
    set->count = split == ECH__SPLIT_TRAIN ? TRAIN : TEST;
    set->labels = malloc((size_t)set->count);
    synthetic *s = ech__new(set->ctx, sizeof *s);
    set->state = s;
    set->source = &source;
    if (!set->labels || !s)
        return ech__no_memory(set->ctx, "a set of images");
    s->first = split == ECH__SPLIT_TRAIN ? 0 : TRAIN;
    for (int64_t i = 0; i < set->count; i++)
        set->labels[i] = (uint8_t)(i % CLASSES);
    make_noise(s->noise);
    uint64_t number = 0;
    for (int c = 0; c < CLASSES; c++)
        for (int plane = 0; plane < CHANNELS; plane++)
            make_plane(number++, s->classes[c][plane]);
    for (int p = 0; p < POOL; p++)
        for (int plane = 0; plane < CHANNELS; plane++)
            make_plane(number++, s->pool[p][plane]);
    return ECH_OK;
}
