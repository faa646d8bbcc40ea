/* Winograd convolutions, straight through their offers, against direct sums in f64.
 *
 * With ECH_PERF=1: the times of ResNet-18's shapes beside the device's other kernels (ECH_BATCH, 64).
 */
#include "support/conv_bench.h"
#include "support/levels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static const conv_variant VARIANTS[] = {
    {ECH__OP_CONV2D, false, false},
    {ECH__OP_CONV2D, false, true},
    {ECH__OP_CONV2D, true, false},
    {ECH__OP_CONV2D, true, true},
    {ECH__OP_CONV2D_BWD_DATA, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, true, false},
};

/* ---- errors ---- */

/* Norm of the error over the norm of what is right, and the largest error over the root mean square. */
typedef struct errors {
    double norm, largest;
} errors;

static errors errors_of(const double *got, const double *right, int64_t count)
{
    double error = 0, size = 0, largest = 0;
    for (int64_t k = 0; k < count; k++) {
        const double d = got[k] - right[k];
        if (isnan(d))
            return (errors){INFINITY, INFINITY};
        error += d * d;
        size += right[k] * right[k];
        largest = fmax(largest, fabs(d));
    }
    if (size == 0)
        return (errors){error == 0 ? 0 : INFINITY, error == 0 ? 0 : INFINITY};
    return (errors){sqrt(error / size), largest / sqrt(size / (double)count)};
}

/* Direct sums in f32 come to about 1e-7 and 1e-6. */
static const errors LIMIT = {2e-6, 1.5e-5};

static errors worst;

static void check_errors(const conv_run *r, int operand, const char *what, const double *right)
{
    const conv *c = &r->given->c;
    const ech__kernel_desc *desc = &r->fixed.desc;
    const errors e = errors_of(r->data.at[operand], right, r->data.elems[operand]);
    worst.norm = fmax(worst.norm, e.norm);
    worst.largest = fmax(worst.largest, e.largest);
    if (!(e.norm <= LIMIT.norm && e.largest <= LIMIT.largest))
        fail_msg("%s N%d I%d O%d %dx%d pad %d weight %s: %s is off by %.2g in norm, %.2g at most",
                 ech__op_name(desc->op), (int)c->N, (int)c->I, (int)c->O, (int)c->H, (int)c->W,
                 (int)c->pad,
                 ech__layout_tag(&desc->operands[ech__weight_operand(desc->op)].layout).s, what,
                 e.norm, e.largest);
}

/* ---- running a case ---- */

static void run_and_check(conv_bench *b, const ech__kernel_desc *desc,
                          const ech__candidate *candidate, const conv_data *d)
{
    conv_run r;
    conv_run_init(&r, b, desc, candidate, d);
    conv_run_check(&r);
    double *right = conv_right(&r);
    check_errors(&r, desc->nin, "the result", right);
    if (desc->nout == 2)
        check_errors(&r, desc->nin + 1, "the bias gradient", d->db);
    free(right);
    conv_run_fini(&r);
}

/* Every direction, with every layout of the weight: those that are offered, and row-major. */
static void check_conv(conv_bench *b, const conv *c)
{
    conv_data d = conv_inputs(c);
    conv_expect(&d);
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        ech__kernel_desc desc = conv_describe(b, c, &VARIANTS[v]);
        const int weight = ech__weight_operand(desc.op);
        ech__candidate found[ECH__MAX_CANDIDATES];
        assert_int_equal(conv_offers(b, &desc, found), 2);
        const ech__layout layouts[] = {found[0].layouts[weight], found[1].layouts[weight],
                                       ech__layout_plain(&desc.operands[weight].layout.shape)};
        for (int layout = 0; layout < LENGTH(layouts); layout++) {
            const ech__candidate only = conv_only_offer(b, &desc, &layouts[layout]);
            assert_string_equal(only.name, "winograd");
            run_and_check(b, &desc, &only, &d);
        }
    }
    conv_data_fini(&d);
}

/* ---- tests ---- */

static void shapes(void **state)
{
    conv_bench *b = *state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 3}, {4, 4}, {5, 7}, {8, 8}, {13, 13}, {32, 32}};
    static const int64_t channels[][2] = {{3, 6},  {6, 3},   {8, 8},   {16, 17}, {17, 16},
                                          {3, 64}, {64, 17}, {24, 40}, {40, 8}};
    for (int s = 0; s < LENGTH(sizes); s++) {
        for (int k = 0; k < LENGTH(channels); k++) {
            const int64_t batch = (s + k) % 2 ? 3 : 1;
            const bool large = sizes[s][0] == 32 && k > 3;
            if (!large)
                check_conv(b, &(conv){batch, channels[k][0], channels[k][1], sizes[s][0],
                                      sizes[s][1], 3, 1, 1, false});
        }
    }
    print_message("largest errors against f64: %.2g in norm, %.2g of the root mean square\n",
                  worst.norm, worst.largest);
    assert_true(b->runs > 0);
}

/* Both ways to cut the work, with more than one chunk of each. */
static void many_tiles(void **state)
{
    check_conv(*state, &(conv){6, 8, 16, 32, 32, 3, 1, 1, false});
    check_conv(*state, &(conv){7, 24, 17, 13, 29, 3, 1, 1, false});
    check_conv(*state, &(conv){5, 64, 96, 8, 8, 3, 1, 1, false});
    check_conv(*state, &(conv){2, 17, 72, 5, 4, 3, 1, 1, false});
}

static void other_padding(void **state)
{
    check_conv(*state, &(conv){2, 8, 17, 3, 3, 3, 1, 0, false});
    check_conv(*state, &(conv){3, 17, 8, 9, 14, 3, 1, 0, false});
    check_conv(*state, &(conv){2, 6, 8, 5, 6, 3, 1, 2, false});
    check_conv(*state, &(conv){1, 8, 8, 1, 1, 3, 1, 2, false});
}

/* The result of one run, whose memory the caller frees. */
static char *result_of(conv_bench *b, const conv_variant *v, const conv_data *d, int64_t *bytes)
{
    const ech__kernel_desc desc = conv_describe(b, &d->c, v);
    const ech__candidate first = conv_first_offer(b, &desc);
    conv_run r;
    conv_run_init(&r, b, &desc, &first, d);
    conv_run_once(&r);
    *bytes = r.kernel.operand[desc.nin].bytes;
    char *result = conv_bytes(&r, desc.nin);
    conv_run_fini(&r);
    return result;
}

/* No split between threads changes the order of a sum. */
static void same_bits_on_any_threads(void **state)
{
    conv_bench *one = *state;
    static const conv convs[] = {{9, 24, 40, 13, 29, 3, 1, 1, false},
                                 {3, 72, 56, 8, 8, 3, 1, 1, false}};
    for (int threads = 2; threads <= 3; threads++) {
        conv_bench other;
        conv_bench_init(&other, &(conv_setting){ech__winograd_offer, threads, false});
        for (int s = 0; s < LENGTH(convs); s++) {
            conv_data d = conv_inputs(&convs[s]);
            for (int v = 0; v < LENGTH(VARIANTS); v++) {
                int64_t bytes;
                char *first = result_of(one, &VARIANTS[v], &d, &bytes);
                char *second = result_of(&other, &VARIANTS[v], &d, &bytes);
                assert_memory_equal(first, second, (size_t)bytes);
                free(first);
                free(second);
            }
            conv_data_fini(&d);
        }
        conv_bench_fini(&other);
    }
}

/* What no Winograd kernel may be offered for. */
static void refused(void **state)
{
    conv_bench *b = *state;
    const conv c = {2, 8, 8, 8, 8, 3, 1, 1, false};
    for (int change = 0; change < 5; change++) {
        ech__kernel_desc desc = conv_describe(b, &c, &VARIANTS[0]);
        ech__operand *x = &desc.operands[0], *w = &desc.operands[1];
        if (change == 0)
            desc.attrs.stride = 2;
        if (change == 1)
            desc.attrs.kernel = 1;
        if (change == 2)
            x->layout = ech__layout_plain(&x->layout.shape);
        if (change == 3) {
            w->free = false;
            w->layout.strides[2] = 1;
            w->layout.strides[3] = 3;
        }
        if (change == 4)
            x->dtype = ECH_BF16;
        ech__candidate found[ECH__MAX_CANDIDATES];
        assert_int_equal(conv_offers(b, &desc, found), 0);
    }
}

/* The device's kernels but for Winograd's and a library's own reference code. */
static int other_kernels(conv_bench *b, const ech__kernel_desc *desc, ech__candidate *out)
{
    ech__candidate found[ECH__MAX_CANDIDATES];
    const int all = conv_all_offers(b, desc, found);
    int count = 0;
    for (int i = 0; i < all; i++) {
        if (strcmp(found[i].name, "winograd") != 0 && !found[i].is_fallback)
            out[count++] = found[i];
    }
    return count;
}

/* The least error of the device's other kernels; infinite where there is none. */
static errors other_errors(conv_bench *b, const ech__kernel_desc *desc, const conv_data *d)
{
    errors best = {INFINITY, INFINITY};
    ech__candidate others[ECH__MAX_CANDIDATES];
    const int count = other_kernels(b, desc, others);
    for (int i = 0; i < count; i++) {
        conv_run r;
        conv_run_init(&r, b, desc, &others[i], d);
        conv_run_once(&r);
        const errors found =
            errors_of(r.data.at[desc->nin], conv_sums(d, desc->op), r.data.elems[desc->nin]);
        assert_true(isfinite(found.norm));
        best = found.norm < best.norm ? found : best;
        conv_run_fini(&r);
    }
    return best;
}

/* ResNet-18's shapes. */
static void accuracy(void **state)
{
    conv_bench *b = *state;
    static const conv convs[] = {{1, 64, 64, 32, 32, 3, 1, 1, false},
                                 {1, 128, 128, 16, 16, 3, 1, 1, false},
                                 {2, 256, 256, 8, 8, 3, 1, 1, false},
                                 {4, 512, 512, 4, 4, 3, 1, 1, false}};
    for (int s = 0; s < LENGTH(convs); s++) {
        const conv *c = &convs[s];
        conv_data d = conv_inputs(c);
        conv_expect(&d);
        for (int v = 0; v < LENGTH(VARIANTS); v++) {
            if (VARIANTS[v].bias || VARIANTS[v].relu)
                continue;
            const ech__kernel_desc desc = conv_describe(b, c, &VARIANTS[v]);
            const ech__candidate first = conv_first_offer(b, &desc);
            worst = (errors){0, 0};
            run_and_check(b, &desc, &first, &d);
            const errors other = other_errors(b, &desc, &d);
            print_message("%-18s %3dch %2dx%-2d  error against f64: %.1e in norm, %.1e at most; "
                          "other kernels %.1e, %.1e\n",
                          ech__op_name(desc.op), (int)c->I, (int)c->H, (int)c->W, worst.norm,
                          worst.largest, other.norm, other.largest);
        }
        conv_data_fini(&d);
    }
}

/* ---- performance ---- */

static double time_of(conv_bench *b, const ech__kernel_desc *desc, const ech__candidate *candidate,
                      const conv_data *d)
{
    conv_run r;
    conv_run_init(&r, b, desc, candidate, d);
    const double seconds = conv_run_time(&r, 0.4, 200);
    conv_run_fini(&r);
    return seconds;
}

static void measure(conv_bench *b, const conv *c, const conv_variant *v, double totals[2])
{
    conv_data d = conv_inputs(c);
    const ech__kernel_desc desc = conv_describe(b, c, v);
    const ech__candidate first = conv_first_offer(b, &desc);
    const double ours = time_of(b, &desc, &first, &d);
    double best = INFINITY;
    const char *name = "nothing else";
    ech__candidate others[ECH__MAX_CANDIDATES];
    const int count = other_kernels(b, &desc, others);
    for (int i = 0; i < count; i++) {
        const double seconds = time_of(b, &desc, &others[i], &d);
        if (seconds < best) {
            best = seconds;
            name = others[i].name;
        }
    }
    const double flops = 18.0 * (double)(d.ny * c->I) * 1e-9;
    print_message("%-18s %3dch %2dx%-2d  winograd %7.2f ms %4.0f GF/s  %-14s %7.2f ms %4.0f GF/s  "
                  "%.2fx  %5.1f MB\n",
                  ech__op_name(v->op), (int)c->I, (int)c->H, (int)c->W, ours * 1e3, flops / ours,
                  name, best * 1e3, flops / best, best / ours, (double)first.scratch_bytes * 1e-6);
    totals[0] += ours;
    totals[1] += best;
    conv_data_fini(&d);
}

static void performance(void **state)
{
    conv_bench *b = *state;
    if (!getenv("ECH_PERF"))
        skip();
    const char *given = getenv("ECH_BATCH");
    const int64_t batch = given ? strtoll(given, NULL, 10) : 64;
    double totals[2] = {0};
    static const conv_variant directions[] = {{ECH__OP_CONV2D, false, false},
                                              {ECH__OP_CONV2D_BWD_DATA, false, false},
                                              {ECH__OP_CONV2D_BWD_WEIGHTS, false, false}};
    for (int d = 0; d < LENGTH(directions); d++) {
        for (int64_t c = 64, side = 32; c <= 512; c *= 2, side /= 2)
            measure(b, &(conv){batch, c, c, side, side, 3, 1, 1, false}, &directions[d], totals);
    }
    print_message("sums: winograd %.1f ms, other kernels %.1f ms: %.2fx\n", totals[0] * 1e3,
                  totals[1] * 1e3, totals[1] / totals[0]);
}

int main(void)
{
    static conv_setting one = {ech__winograd_offer, 1, false},
                        two = {ech__winograd_offer, 2, false};
    const struct CMUnitTest tests[] = {
        {"shapes", shapes, conv_bench_setup, conv_bench_teardown, &one},
        {"shapes, two threads", shapes, conv_bench_setup, conv_bench_teardown, &two},
        {"many tiles", many_tiles, conv_bench_setup, conv_bench_teardown, &one},
        {"many tiles, two threads", many_tiles, conv_bench_setup, conv_bench_teardown, &two},
        {"other padding", other_padding, conv_bench_setup, conv_bench_teardown, &one},
        {"same bits on any threads", same_bits_on_any_threads, conv_bench_setup,
         conv_bench_teardown, &one},
        {"refused", refused, conv_bench_setup, conv_bench_teardown, &one},
        {"accuracy", accuracy, conv_bench_setup, conv_bench_teardown, &one},
        {"performance", performance, conv_bench_setup, conv_bench_teardown, &one},
    };
    return run_kernel_tests("winograd", tests);
}
