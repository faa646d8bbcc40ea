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
    GRID = 4,  /* random values across a pattern */
    POOL = 32, /* patterns without a class */
    TRAIN = 50000,
    TEST = 10000,
    HEIGHT = 64, /* a pattern's values lie within +-HEIGHT */
    NOISE = 72,  /* of one pixel: within +-NOISE */
    NOISE_LENGTH = 1 << 15,
    MIDDLE = 128, /* grey */
    MOST_WIDTH = 4096,
};

static const uint64_t SEED = 0x65636865;

typedef struct synthetic {
    int64_t first; /* number of the split's first image */
    size_t bytes;  /* of this struct */
    size_t plane;  /* pixels of one channel */
    /* Planes of the patterns of classes, [classes][channels], those of the pool, [POOL][channels], and
     * [NOISE_LENGTH + width] of noise: a row of an image starts anywhere in it. */
    int16_t values[];
} synthetic;

/* Channel c of a pattern; those of the pool come after those of the classes. */
static const int16_t *plane_of(const ech__images *set, int pattern, int c)
{
    const synthetic *s = set->state;
    return s->values + ((size_t)pattern * (size_t)set->channels + (size_t)c) * s->plane;
}

/* One plane of a pattern: grid[GRID][GRID], bilinear, wrapping around. */
static void make_plane(const ech__images *set, uint64_t number, int16_t *plane)
{
    const int down = (set->height + GRID - 1) / GRID, across = (set->width + GRID - 1) / GRID;
    int grid[GRID * GRID];
    for (unsigned g = 0; g < GRID * GRID; g++) {
        uint32_t words[4];
        ech__rng_block(SEED, ech__rng_stream("pattern"), number * GRID * GRID + g, words);
        grid[g] = (int)(words[0] % (2 * HEIGHT + 1)) - HEIGHT;
    }
    for (int y = 0; y < set->height; y++) {
        const int top = y / down, bottom = (top + 1) % GRID, v = y % down;
        for (int x = 0; x < set->width; x++) {
            const int left = x / across, right = (left + 1) % GRID, u = x % across;
            const int above = grid[top * GRID + left] * (across - u) + grid[top * GRID + right] * u;
            const int below =
                grid[bottom * GRID + left] * (across - u) + grid[bottom * GRID + right] * u;
            *plane++ = (int16_t)((above * (down - v) + below * v) / (across * down));
        }
    }
}

static void make_noise(int16_t *noise, uint64_t count)
{
    uint32_t words[4] = {0};
    for (uint64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            ech__rng_block(SEED, ech__rng_stream("noise table"), i / 4, words);
        noise[i] = (int16_t)((int)(words[i % 4] % (2 * NOISE + 1)) - NOISE);
    }
}

/* What chance decided for one image. */
typedef struct look {
    int down, right; /* shift of the class pattern, by less than half of the image */
    int strength;    /* of it, 256ths */
    int other;       /* which pattern of the pool */
    int other_down, other_right;
    int other_strength;
} look;

static look look_of(const ech__images *set, uint64_t image)
{
    const uint32_t height = (uint32_t)set->height, width = (uint32_t)set->width;
    const uint32_t down = (height + 1) / 2, right = (width + 1) / 2;
    uint32_t w[4];
    ech__rng_block(SEED, ech__rng_stream("look"), image, w);
    return (look){
        .down = (int)(w[0] % down),
        .right = (int)(w[0] / down % right),
        .strength = 64 + (int)(w[1] % 128),
        .other = (int)(w[2] % POOL),
        .other_down = (int)(w[2] / POOL % height),
        .other_right = (int)(w[2] / POOL / height % width),
        .other_strength = 64 + (int)(w[3] % 192),
    };
}

/* Adds a row of a pattern, shifted cyclically, to sums. */
static void add_row(const int16_t *row, int width, int right, int strength, int *sums)
{
    const int split = width - right;
    for (int x = 0; x < split; x++)
        sums[x] += row[x + right] * strength;
    for (int x = split; x < width; x++)
        sums[x] += row[x - split] * strength;
}

static ech_status synthetic_read(ech_ctx *ctx, const ech__images *set, int64_t stored,
                                 uint8_t *scratch, const uint8_t **pixels)
{
    (void)ctx;
    const synthetic *s = set->state;
    const int height = set->height, width = set->width, rows = set->channels * height;
    const int16_t *table = plane_of(set, set->classes + POOL, 0);
    const uint64_t image = (uint64_t)(s->first + stored), stream = ech__rng_stream("noise");
    const uint64_t first = image * (uint64_t)((rows + 3) / 4);
    const look l = look_of(set, image);
    const int class = (int)(stored % set->classes);
    uint32_t words[4] = {0};
    for (int row = 0; row < rows; row++) {
        const int c = row / height, y = row % height;
        int sums[MOST_WIDTH];
        memset(sums, 0, (size_t)width * sizeof *sums);
        if (row % 4 == 0)
            ech__rng_block(SEED, stream, first + (uint64_t)(row / 4), words);
        const int16_t *noise = table + words[row % 4] % NOISE_LENGTH;
        add_row(plane_of(set, class, c) + (size_t)((y + l.down) % height) * (size_t)width, width,
                l.right, l.strength, sums);
        add_row(plane_of(set, set->classes + l.other, c) +
                    (size_t)((y + l.other_down) % height) * (size_t)width,
                width, l.other_right, l.other_strength, sums);
        for (int x = 0; x < width; x++) {
            const int value = MIDDLE + (sums[x] >> 8) + noise[x];
            *scratch++ = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    *pixels = scratch - (size_t)rows * (size_t)width;
    return ECH_OK;
}

static void synthetic_close(ech_ctx *ctx, void *state)
{
    synthetic *s = state;
    if (s)
        ech__delete(ctx, s, s->bytes);
}

static const ech__image_source source = {.read = synthetic_read, .close = synthetic_close};

ech_status ech__synthetic_open(ech__images *set, ech__split split)
{
    const size_t plane = (size_t)set->height * (size_t)set->width;
    const size_t planes = (size_t)(set->classes + POOL) * (size_t)set->channels;
    const size_t noise = NOISE_LENGTH + (size_t)set->width;
    const size_t bytes = sizeof(synthetic) + (planes * plane + noise) * sizeof(int16_t);
    assert(set->width <= MOST_WIDTH);
    set->count = split == ECH__SPLIT_TRAIN ? TRAIN : TEST;
    set->labels = malloc((size_t)set->count);
    synthetic *s = ech__new(set->ctx, bytes);
    set->state = s;
    set->source = &source;
    if (!set->labels || !s)
        return ech__no_memory(set->ctx, "a set of images");
    s->first = split == ECH__SPLIT_TRAIN ? 0 : TRAIN;
    s->bytes = bytes;
    s->plane = plane;
    for (int64_t i = 0; i < set->count; i++)
        set->labels[i] = (uint8_t)(i % set->classes);
    for (size_t p = 0; p < planes; p++)
        make_plane(set, p, s->values + p * plane);
    make_noise(s->values + planes * plane, noise);
    return ECH_OK;
}
