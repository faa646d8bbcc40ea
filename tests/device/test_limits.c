/* Sizes near and beyond what the libraries can address: the device must answer, and offer no library there.
 *
 * Nothing is run: offers need no memory. oneDNN multiplies sizes as 32-bit integers on its way to a kernel, and powers of two are
 * what makes such products wrap around to zero. */
#include "base/size.h"
#include "support/conv_bench.h"
#include "support/levels.h"

#include <string.h>

static const ech__op DIRECTIONS[] = {ECH__OP_CONV2D, ECH__OP_CONV2D_BWD_DATA,
                                     ECH__OP_CONV2D_BWD_WEIGHTS};

static bool offers_library(const ech__candidate *found, int count)
{
    for (int i = 0; i < count; i++) {
        if (strstr(found[i].name, "onednn") || strstr(found[i].name, "openblas"))
            return true;
    }
    return false;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Every batch that is a power of two, or one less, up to 2^30. Returns how many were offered by a library. */
static int sweep_batches(conv_bench *b, conv c, ech__op op)
{
    int library = 0;
    for (int bits = 10; bits <= 30; bits++) {
        for (int less = 0; less < 2; less++) {
            c.N = ((int64_t)1 << bits) - less;
            const conv_variant v = {op, false, false};
            const ech__kernel_desc desc = conv_describe(b, &c, &v);
            ech__candidate found[ECH__MAX_CANDIDATES];
            const int count = conv_all_offers(b, &desc, found);
            const bool library_too = offers_library(found, count);
            const int64_t out = (c.H + 2 * c.pad - c.K) / c.stride + 1;
            const int64_t channels = b->cpu->loops->channels;
            const int64_t x = c.N * ech__round_up(c.I, channels) * c.H * c.W;
            const int64_t y = c.N * ech__round_up(c.O, channels) * out * out;
            if (larger(x, y) > ECH__LIBRARY_ELEMENTS)
                assert_false(library_too);
            library += library_too;
        }
    }
    return library;
}

static void convolutions(void **state)
{
    conv_bench *b = *state;
    static const int64_t channels[][2] = {{16, 16}, {64, 64}, {64, 128}, {512, 512}, {1024, 4096}};
    static const int64_t sides[] = {1, 8, 32};
    int library = 0;
    for (size_t io = 0; io < sizeof channels / sizeof *channels; io++) {
        for (size_t side = 0; side < sizeof sides / sizeof *sides; side++) {
            for (int64_t kernel = 1; kernel <= 3; kernel += 2) {
                for (size_t d = 0; d < sizeof DIRECTIONS / sizeof *DIRECTIONS; d++) {
                    const conv c = {.I = channels[io][0],
                                    .O = channels[io][1],
                                    .H = sides[side],
                                    .W = sides[side],
                                    .K = kernel,
                                    .stride = kernel == 1 && sides[side] > 1 ? 2 : 1,
                                    .pad = kernel / 2};
                    library += sweep_batches(b, c, DIRECTIONS[d]);
                }
            }
        }
    }
    assert_true(library > 0 ||
                !b->cpu->onednn); /* a build without it has no library for convolutions */
}

static void linear_layers(void **state)
{
    conv_bench *b = *state;
    static const ech__op ops[] = {ECH__OP_LINEAR, ECH__OP_LINEAR_BWD_DATA,
                                  ECH__OP_LINEAR_BWD_WEIGHTS};
    for (int k = 0; k < 3; k++) {
        for (int rows = 10; rows <= 40; rows++) {
            for (int cols = 10; cols <= 20; cols += 5) {
                const int64_t n = (int64_t)1 << rows, i = (int64_t)1 << cols, o = i;
                const ech__shape x = {2, {n, i}}, w = {2, {o, i}}, y = {2, {n, o}};
                const ech__operand xs = {ECH_F32, ech__layout_plain(&x), false};
                const ech__operand ws = {ECH_F32, ech__layout_plain(&w), true};
                const ech__operand ys = {ECH_F32, ech__layout_plain(&y), false};
                ech__kernel_desc desc = {.op = ops[k], .nin = 2, .nout = 1};
                desc.operands[0] = k == 1 ? ys : xs;
                desc.operands[1] = k == 2 ? ys : ws;
                desc.operands[2] = k == 0 ? ys : k == 1 ? xs : ws;
                ech__candidate found[ECH__MAX_CANDIDATES];
                int count;
                assert_int_equal(b->device->ops->candidates(b->device, &desc, found, &count),
                                 ECH_OK);
                if (n > INT32_MAX)
                    assert_false(offers_library(found, count));
            }
        }
    }
}

int main(void)
{
    static conv_setting one = {NULL, 1, false}, two = {NULL, 2, false};
    const struct CMUnitTest tests[] = {
        {"convolutions", convolutions, conv_bench_setup, conv_bench_teardown, &one},
        {"convolutions, two threads", convolutions, conv_bench_setup, conv_bench_teardown, &two},
        {"linear layers", linear_layers, conv_bench_setup, conv_bench_teardown, &one},
    };
    return run_kernel_tests("limits", tests);
}
