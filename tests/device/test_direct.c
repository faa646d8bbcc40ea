/* Direct convolutions, straight through their offers, against sums in f64.
 *
 * With ECH_PERF=1: the times of LeNet's shapes beside the device's other kernels, at batches of 4, 32 and 128.
 */
#include "support/conv_bench.h"
#include "support/levels.h"

#include <math.h>
#include <stdlib.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static const conv_variant FORWARD = {ECH__OP_CONV2D, false, false};

static const conv_variant VARIANTS[] = {
    {ECH__OP_CONV2D, false, false},
    {ECH__OP_CONV2D, true, false},
    {ECH__OP_CONV2D, true, true},
    {ECH__OP_CONV2D_BWD_DATA, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, true, false},
};

/* ---- errors ---- */

/* Over the sum of the terms' sizes. */
static const double LIMIT = 1e-6;

/* The sums of the terms' sizes, by which their rounding is judged. */
static conv_data sizes_of(const conv *c)
{
    conv_data sizes = conv_inputs(c);
    for (int64_t k = 0; k < sizes.nx; k++)
        sizes.x[k] = fabs(sizes.x[k]);
    for (int64_t k = 0; k < sizes.nw; k++)
        sizes.w[k] = fabs(sizes.w[k]);
    for (int64_t k = 0; k < sizes.ny; k++)
        sizes.dy[k] = fabs(sizes.dy[k]);
    conv_expect(&sizes);
    return sizes;
}

static void check_errors(const conv_run *r, int operand, const char *what, const double *right,
                         const double *size)
{
    const conv *c = &r->given->c;
    const ech__kernel_desc *desc = &r->fixed.desc;
    const double *got = r->data.at[operand];
    for (int64_t k = 0; k < r->data.elems[operand]; k++) {
        if (fabs(got[k] - right[k]) <= LIMIT * (size[k] + 1))
            continue;
        fail_msg("%s N%d I%d O%d %dx%d kernel %d stride %d pad %d x %s weight %s: %s at %d is %g, "
                 "not %g",
                 ech__op_name(desc->op), (int)c->N, (int)c->I, (int)c->O, (int)c->H, (int)c->W,
                 (int)c->K, (int)c->stride, (int)c->pad, c->plain ? "row-major" : "blocked",
                 ech__layout_tag(&desc->operands[ech__weight_operand(desc->op)].layout).s, what,
                 (int)k, got[k], right[k]);
    }
}

/* ---- running a case ---- */

static void run_and_check(conv_bench *b, const ech__kernel_desc *desc,
                          const ech__candidate *candidate, const conv_data *d,
                          const conv_data *sizes)
{
    conv_run r;
    conv_run_init(&r, b, desc, candidate, d);
    conv_run_check(&r);
    double *right = conv_right(&r);
    check_errors(&r, desc->nin, "the result", right, conv_sums(sizes, desc->op));
    if (desc->nout == 2)
        check_errors(&r, desc->nin + 1, "the bias gradient", d->db, sizes->db);
    free(right);
    conv_run_fini(&r);
}

/* The layouts of a weight that must be taken: as they are offered for either kind of x, and row-major. */
static int weight_layouts(conv_bench *b, const conv *c, const conv_variant *v, ech__layout *out)
{
    int count = 0;
    for (int plain = 0; plain < 2; plain++) {
        conv other = *c;
        other.plain = plain;
        const ech__kernel_desc desc = conv_describe(b, &other, plain ? &FORWARD : v);
        ech__candidate found[ECH__MAX_CANDIDATES];
        const int offers = conv_offers(b, &desc, found);
        assert_int_equal(offers, plain ? 1 : 2);
        for (int i = 0; i < offers; i++)
            out[count++] = found[i].layouts[ech__weight_operand(desc.op)];
    }
    out[count] = ech__layout_plain(&out[0].shape);
    return count + 1;
}

/* Every direction, with every layout of the weight. */
static void check_conv(conv_bench *b, const conv *c)
{
    conv_data d = conv_inputs(c), sizes = sizes_of(c);
    conv_expect(&d);
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        if (c->plain && VARIANTS[v].op == ECH__OP_CONV2D_BWD_DATA)
            continue;
        ech__layout layouts[8];
        const int count = weight_layouts(b, c, &VARIANTS[v], layouts);
        for (int layout = 0; layout < count; layout++) {
            ech__kernel_desc desc = conv_describe(b, c, &VARIANTS[v]);
            const ech__candidate only = conv_only_offer(b, &desc, &layouts[layout]);
            assert_string_equal(only.name, "direct");
            run_and_check(b, &desc, &only, &d, &sizes);
        }
    }
    conv_data_fini(&d);
    conv_data_fini(&sizes);
}

/* ---- tests ---- */

/* All kernels, strides and padding, on images from the smallest that fits, with channels that take turns. */
static void shapes(void **state)
{
    conv_bench *b = *state;
    static const int64_t channels[][2] = {{1, 6},  {3, 6},  {6, 16},  {8, 8},   {16, 1},
                                          {17, 3}, {6, 17}, {16, 16}, {17, 24}, {3, 40}};
    static const int64_t kernels[] = {1, 2, 3, 5, 7};
    int turn = 0;
    for (int k = 0; k < LENGTH(kernels); k++) {
        for (int64_t stride = 1; stride <= 3; stride++) {
            for (int64_t pad = 0; pad < kernels[k]; pad++) {
                for (int64_t more = 0; more < 6; more += 1 + more / 2, turn++) {
                    const int64_t *io = channels[turn % LENGTH(channels)];
                    const int64_t side = kernels[k] - 2 * pad > 1 ? kernels[k] - 2 * pad : 1;
                    const conv c = {.N = turn % 2 ? 3 : 1,
                                    .I = io[0],
                                    .O = io[1],
                                    .H = side + more,
                                    .W = side + more * more % 17,
                                    .K = kernels[k],
                                    .stride = stride,
                                    .pad = pad,
                                    .plain = turn % 3 == 0};
                    check_conv(b, &c);
                }
            }
        }
    }
    assert_true(b->runs > 0);
}

/* Rows of every length up to three tiles, and more taps in a row than a tile has. */
static void widths(void **state)
{
    for (int64_t width = 1; width <= 43; width++)
        check_conv(*state, &(conv){1, 3 + width % 9, 6 + width % 13, 3, width, 3, 1, 1, width % 2});
    check_conv(*state, &(conv){2, 2, 9, 17, 19, 17, 1, 8, true});
    check_conv(*state, &(conv){2, 2, 9, 17, 19, 17, 1, 3, false});
}

static const conv LENET[] = {{4, 3, 6, 32, 32, 5, 1, 0, true}, {4, 6, 16, 14, 14, 5, 1, 0, false}};

static void networks(void **state)
{
    for (int i = 0; i < LENGTH(LENET); i++)
        check_conv(*state, &LENET[i]);
    check_conv(*state, &(conv){2, 3, 64, 32, 32, 3, 1, 1, true});
    check_conv(*state, &(conv){1, 64, 64, 8, 8, 3, 2, 1, false});
}

/* More than it is made for: where no other kernel is, it must be right all the same. */
static void many_channels(void **state)
{
    check_conv(*state, &(conv){2, 65, 80, 4, 5, 1, 2, 0, false});
    check_conv(*state, &(conv){1, 130, 72, 6, 5, 3, 2, 1, false});
    check_conv(*state, &(conv){2, 70, 129, 5, 7, 3, 1, 1, true});
    check_conv(*state, &(conv){1, 3, 100, 15, 15, 7, 2, 3, true});
}

/* A NaN in x is one in y too, with and without ReLU. */
static void nan_stays(void **state)
{
    conv_bench *b = *state;
    const conv *c = &LENET[1];
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        if (VARIANTS[v].op != ECH__OP_CONV2D)
            continue;
        conv_data d = conv_inputs(c);
        d.x[0] = (double)NAN;
        const ech__kernel_desc desc = conv_describe(b, c, &VARIANTS[v]);
        const ech__candidate first = conv_first_offer(b, &desc);
        conv_run r;
        conv_run_init(&r, b, &desc, &first, &d);
        conv_run_once(&r);
        assert_true(isnan(r.data.at[desc.nin][0]));
        conv_run_fini(&r);
        conv_data_fini(&d);
    }
}

static void refused(void **state)
{
    conv_bench *b = *state;
    ech__candidate found[ECH__MAX_CANDIDATES];
    const ech__kernel_desc many =
        conv_describe(b, &(conv){1, 65, 8, 4, 4, 3, 1, 1, false}, &FORWARD);
    assert_int_equal(conv_offers(b, &many, found), 2);
    assert_true(found[0].stands_in && found[1].stands_in);
    /* Distances of more than 32 bits. */
    const ech__kernel_desc far =
        conv_describe(b, &(conv){1, 2048, 8, 900, 900, 3, 1, 1, false}, &FORWARD);
    assert_int_equal(conv_offers(b, &far, found), 0);
    const ech__kernel_desc padding =
        conv_describe(b, &(conv){1, 8, 8, 4, 4, 1, 1, 1, false}, &FORWARD);
    assert_int_equal(conv_offers(b, &padding, found), 0);
    ech__kernel_desc weight = conv_describe(b, &LENET[1], &FORWARD);
    ech__operand *w = &weight.operands[1];
    w->free = false;
    w->layout = ech__layout_blocked_channels(&w->layout.shape, b->cpu->loops->channels);
    assert_int_equal(conv_offers(b, &weight, found), 0);
    ech__kernel_desc plain = conv_describe(b, &LENET[1], &FORWARD);
    ech__operand *y = &plain.operands[2];
    y->layout = ech__layout_plain(&y->layout.shape);
    assert_int_equal(conv_offers(b, &plain, found), 0);
}

/* ---- performance ---- */

static void measure(conv_bench *b, const conv *c, const conv_variant *v)
{
    conv_data d = conv_inputs(c);
    const ech__kernel_desc desc = conv_describe(b, c, v);
    ech__candidate found[ECH__MAX_CANDIDATES];
    const int count = conv_all_offers(b, &desc, found);
    const double flops = 2.0 * (double)(d.ny * c->I * c->K * c->K) * 1e-9;
    for (int i = 0; i < count; i++) {
        if (found[i].is_fallback)
            continue;
        conv_run r;
        conv_run_init(&r, b, &desc, &found[i], &d);
        const double seconds = conv_run_time(&r, 0.2, 2000);
        conv_run_fini(&r);
        print_message("%-18s %3d-%-3d %2dx%-2d batch %3d  %-16s %-12s %8.1f us %6.1f GF/s\n",
                      ech__op_name(v->op), (int)c->I, (int)c->O, (int)c->H, (int)c->W, (int)c->N,
                      found[i].name,
                      ech__layout_tag(&found[i].layouts[ech__weight_operand(v->op)]).s,
                      seconds * 1e6, flops / seconds);
    }
    conv_data_fini(&d);
}

static void performance(void **state)
{
    if (!getenv("ECH_PERF"))
        skip();
    static const conv_variant directions[] = {{ECH__OP_CONV2D, true, true},
                                              {ECH__OP_CONV2D_BWD_DATA, false, false},
                                              {ECH__OP_CONV2D_BWD_WEIGHTS, true, false}};
    static const int64_t batches[] = {4, 32, 128};
    for (int i = 0; i < LENGTH(batches); i++) {
        for (int c = 0; c < LENGTH(LENET); c++) {
            for (int d = 0; d < LENGTH(directions); d++) {
                conv large = LENET[c];
                large.N = batches[i];
                if (!large.plain || directions[d].op != ECH__OP_CONV2D_BWD_DATA)
                    measure(*state, &large, &directions[d]);
            }
        }
    }
}

int main(void)
{
    static conv_setting one = {ech__direct_offer, 1, false}, two = {ech__direct_offer, 2, false},
                        generic = {ech__direct_offer, 1, true};
    const struct CMUnitTest tests[] = {
        {"shapes", shapes, conv_bench_setup, conv_bench_teardown, &one},
        {"shapes, two threads", shapes, conv_bench_setup, conv_bench_teardown, &two},
        {"shapes, any processor", shapes, conv_bench_setup, conv_bench_teardown, &generic},
        {"widths", widths, conv_bench_setup, conv_bench_teardown, &one},
        {"widths, any processor", widths, conv_bench_setup, conv_bench_teardown, &generic},
        {"networks", networks, conv_bench_setup, conv_bench_teardown, &one},
        {"networks, two threads", networks, conv_bench_setup, conv_bench_teardown, &two},
        {"many channels", many_channels, conv_bench_setup, conv_bench_teardown, &two},
        {"many channels, any processor", many_channels, conv_bench_setup, conv_bench_teardown,
         &generic},
        {"a NaN stays one", nan_stays, conv_bench_setup, conv_bench_teardown, &one},
        {"a NaN stays one, any processor", nan_stays, conv_bench_setup, conv_bench_teardown,
         &generic},
        {"refused", refused, conv_bench_setup, conv_bench_teardown, &one},
        {"performance", performance, conv_bench_setup, conv_bench_teardown, &one},
    };
    return run_kernel_tests("direct", tests);
}
