#include "support/op_harness.h"
#include "base/system/clock.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void harness_init(harness *h, ech__device_kind kind, int threads)
{
    *h = (harness){.kind = kind};
    assert_int_equal(ech_ctx_create(NULL, &h->ctx), ECH_OK);
    const ech__device_options options = {.kind = kind, .threads = threads};
    const ech__device_options reference = {.kind = ECH__DEVICE_REFERENCE, .threads = 1};
    if (ech__device_create(h->ctx, &options, &h->device) < 0 ||
        ech__device_create(h->ctx, &reference, &h->reference) < 0)
        fail_msg("no device: %s", ech_ctx_error(h->ctx));
}

void harness_fini(harness *h)
{
    ech__device_destroy(h->device);
    ech__device_destroy(h->reference);
    ech_ctx_destroy(h->ctx);
}

int harness_setup(void **state)
{
    const harness_target *t = *state;
    harness *h = malloc(sizeof *h);
    assert_non_null(h);
    harness_init(h, t->kind, t->threads);
    *state = h;
    return 0;
}

int harness_teardown(void **state)
{
    harness *h = *state;
    const int runs = h->runs;
    harness_fini(h);
    free(h);
    return runs > 0 ? 0 : -1; /* a test that ran no kernel tested nothing */
}

/* ---- cases ---- */

ech__type harness_type(ech_dtype dtype, int ndims, const int64_t *dims)
{
    ech__type type = {.dtype = dtype, .shape = {.ndims = ndims}};
    for (int k = 0; k < ndims; k++)
        type.shape.dims[k] = dims[k];
    return type;
}

static ech__operand operand(harness *h, const ech__type *type, bool free)
{
    const ech__layout layout = free ? ech__layout_plain(&type->shape)
                                    : h->device->ops->activation_layout(h->device, &type->shape);
    return (ech__operand){type->dtype, layout, free};
}

op_case harness_case(harness *h, const ech__node *given, const ech__type *in, unsigned free)
{
    ech__node node = *given;
    node.nout = 1; /* unless its shape rule says otherwise */
    ech__type out[ECH__MAX_OUT];
    if (ech__op_infer(h->ctx, &node, in, out) < 0)
        fail_msg("%s", ech_ctx_error(h->ctx));
    op_case c = {
        .desc = {.op = node.op, .attrs = node.attrs, .nin = node.nin, .nout = node.nout},
        .scalars = {.lr = 0.1, .loss_scale = 1, .grad_factor = 1, .step = 3},
    };
    for (int i = 0; i < node.nin + node.nout; i++)
        c.desc.operands[i] = operand(h, i < node.nin ? &in[i] : &out[i - node.nin], free >> i & 1);
    return c;
}

ech_status harness_run(harness *h, ech__device *device, const op_case *c,
                       const ech__candidate *candidate, bool in_place, op_data *data)
{
    op_kernel p = op_kernel_create(device, c, candidate, in_place);
    op_kernel_load(&p, data);
    const ech_status status = device->ops->call(device, op_kernel_run, &p);
    op_kernel_check(&p, data);
    if (status == ECH_OK)
        op_kernel_read(&p, data);
    op_kernel_destroy(&p);
    h->runs++;
    return status;
}

static int find_candidates(harness *h, ech__device *device, const ech__kernel_desc *desc,
                           ech__candidate *out)
{
    int count = -1;
    char text[OP_TEXT];
    if (device->ops->candidates(device, desc, out, &count) < 0)
        fail_msg("%s: %s", op_describe(desc, NULL, text), ech_ctx_error(h->ctx));
    assert_in_range(count, 0, ECH__MAX_CANDIDATES);
    for (int k = 0; k < count; k++) {
        for (int other = 0; other < k; other++) {
            /* A timing is remembered under the name and the layouts. */
            bool same = !strcmp(out[k].name, out[other].name);
            for (int i = 0; i < op_operands(desc); i++)
                same = same && ech__layout_equal(&out[k].layouts[i], &out[other].layouts[i]);
            if (same)
                fail_msg("offered twice: %s", op_describe(desc, &out[k], text));
        }
    }
    return count;
}

void harness_expect(harness *h, const op_case *c, op_data *data)
{
    op_case wide = *c;
    for (int i = 0; i < op_operands(&wide.desc); i++) {
        ech__operand *o = &wide.desc.operands[i];
        o->free = false;
        o->layout = ech__layout_plain(&o->layout.shape);
        if ((o->dtype == ECH_F32 || ech__dtype_is_low(o->dtype)) && !op_is_integer(c->desc.op))
            o->dtype = ECH_F64;
    }
    ech__candidate plain[ECH__MAX_CANDIDATES];
    assert_int_equal(find_candidates(h, h->reference, &wide.desc, plain), 1);
    if (harness_run(h, h->reference, &wide, plain, false, data) < 0)
        fail_msg("reference: %s", ech_ctx_error(h->ctx));
}

/* ---- layouts ---- */

void harness_remember(harness *h, const ech__layout *layout)
{
    if (ech__layout_is_plain(layout))
        return;
    for (int k = 0; k < h->nlayouts; k++) {
        if (ech__layout_equal(&h->layouts[k], layout))
            return;
    }
    assert_true(h->nlayouts < HARNESS_MAX_LAYOUTS);
    h->layouts[h->nlayouts++] = *layout;
}

void harness_forget(harness *h)
{
    h->nlayouts = 0;
}

void harness_collect(harness *h, const op_case *c)
{
    ech__candidate found[ECH__MAX_CANDIDATES];
    const int count = find_candidates(h, h->device, &c->desc, found);
    char text[OP_TEXT];
    if (!count)
        fail_msg("%s", op_describe(&c->desc, NULL, text));
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < op_operands(&c->desc); i++) {
            if (!c->desc.operands[i].free)
                continue;
            harness_remember(h, &found[k].layouts[i]);
            /* What a device offers it must also take when asked for by name, as a plan does. */
            op_case fixed = *c;
            fixed.desc.operands[i].layout = found[k].layouts[i];
            fixed.desc.operands[i].free = false;
            ech__candidate again[ECH__MAX_CANDIDATES];
            if (!find_candidates(h, h->device, &fixed.desc, again))
                fail_msg("an offer was withdrawn: %s", op_describe(&fixed.desc, &found[k], text));
        }
    }
}

/* The case with the k-th collected layout where it fits, k = -1: row-major; false where it fits nowhere. */
static bool with_layout(const harness *h, const op_case *c, int k, op_case *out)
{
    *out = *c;
    const bool flat = ech__op_info(c->desc.op)->flat;
    bool fits = k < 0;
    for (int i = 0; i < op_operands(&c->desc); i++) {
        ech__operand *o = &out->desc.operands[i];
        if (k >= 0 && (o->free || flat) &&
            ech__shape_equal(&o->layout.shape, &h->layouts[k].shape)) {
            o->layout = h->layouts[k];
            fits = true;
        }
        o->free = false;
    }
    return fits;
}

bool harness_shares_layout(harness *h, const op_case *cases, int count)
{
    for (int k = -1; k < h->nlayouts; k++) {
        int served = 0;
        for (int i = 0; i < count; i++) {
            op_case fixed;
            ech__candidate found[ECH__MAX_CANDIDATES];
            if (with_layout(h, &cases[i], k, &fixed))
                served += find_candidates(h, h->device, &fixed.desc, found) > 0;
        }
        if (served == count)
            return true;
    }
    return false;
}

static bool is_conv(ech__op op)
{
    return op == ECH__OP_CONV2D || op == ECH__OP_CONV2D_BWD_DATA ||
           op == ECH__OP_CONV2D_BWD_WEIGHTS || op == ECH__OP_QCONV2D || op == ECH__OP_QLINEAR;
}

/* Sums that each result of a product takes, or 0 for other operators. */
static int64_t terms_of(const op_case *c)
{
    const int64_t *first = c->desc.operands[0].layout.shape.dims;
    const int64_t *second = c->desc.operands[1].layout.shape.dims;
    const int64_t window = c->desc.attrs.kernel * c->desc.attrs.kernel;
    switch (c->desc.op) {
    case ECH__OP_LINEAR:
    case ECH__OP_QLINEAR:
        return first[1];
    case ECH__OP_LINEAR_BWD_DATA:
        return second[0];
    case ECH__OP_LINEAR_BWD_WEIGHTS:
    case ECH__OP_LINEAR_ADD_WEIGHTS:
        return first[0];
    case ECH__OP_CONV2D:
    case ECH__OP_QCONV2D:
        return first[1] * window;
    case ECH__OP_CONV2D_BWD_DATA:
        return second[0] * window;
    case ECH__OP_CONV2D_BWD_WEIGHTS:
        return second[0] * second[2] * second[3];
    default:
        return 0;
    }
}

static bool is_tiny(const op_case *c)
{
    int64_t elems;
    assert_true(ech__shape_elems(&c->desc.operands[c->desc.nin].layout.shape, &elems));
    return elems * terms_of(c) <= 1 << 12;
}

typedef void (*visit_fn)(harness *h, const op_case *c, const ech__candidate *candidate);

/* Row-major must be possible, but for the weights of convolutions, which no plan keeps so. */
static int visit_all(harness *h, const op_case *c, bool fallbacks, visit_fn visit)
{
    const bool flat = ech__op_info(c->desc.op)->flat;
    int visits = 0;
    for (int k = -1; k < h->nlayouts; k++) {
        op_case fixed;
        if (!with_layout(h, c, k, &fixed))
            continue;
        ech__candidate found[ECH__MAX_CANDIDATES];
        const int count = find_candidates(h, h->device, &fixed.desc, found);
        char text[OP_TEXT];
        if (!count && (k < 0 || flat) && !is_conv(c->desc.op))
            fail_msg("%s", op_describe(&fixed.desc, NULL, text));
        for (int n = 0; n < count; n++) {
            if (found[n].is_fallback && !fallbacks)
                continue;
            visit(h, &fixed, &found[n]);
            visits++;
        }
    }
    return visits;
}

/* Calls visit with every candidate for every layout. A library's own reference code, which is slow, counts
 * where there is little to do or nothing else. */
static void for_each(harness *h, const op_case *c, visit_fn visit)
{
    char text[OP_TEXT];
    if (!visit_all(h, c, is_tiny(c), visit) && !visit_all(h, c, true, visit))
        fail_msg("%s", op_describe(&c->desc, NULL, text));
}

/* ---- mode: against the reference ---- */

/* How far a result may be from the expected one: units * epsilon * max(magnitude, |expected|), and what it takes to
 * round it to a type of 16 bits. */
typedef struct tolerance {
    double units, magnitude;
} tolerance;

static tolerance tolerance_of(const op_case *c, const ech__candidate *candidate, data_kind kind)
{
    const int64_t *first = c->desc.operands[0].layout.shape.dims;
    const double terms = (double)terms_of(c);
    int64_t elems = 1;
    assert_true(ech__shape_elems(&c->desc.operands[0].layout.shape, &elems));
    const bool exact = kind == DATA_EXACT;
    switch (c->desc.op) {
    case ECH__OP_CONV2D:
    case ECH__OP_CONV2D_BWD_DATA:
    case ECH__OP_CONV2D_BWD_WEIGHTS:
        if (strstr(candidate->name, "wino")) /* adds numbers that are larger than the result */
            return (tolerance){64 * (8 + sqrt(terms)), 1};
        return (tolerance){exact ? 0 : 8 + terms, 1};
    case ECH__OP_LINEAR:
    case ECH__OP_LINEAR_BWD_DATA:
    case ECH__OP_LINEAR_BWD_WEIGHTS:
    case ECH__OP_LINEAR_ADD_WEIGHTS:
        return (tolerance){exact ? 0 : 8 + terms, 1};
    case ECH__OP_SUM_ROWS:
        return (tolerance){exact ? 0 : 8 + (double)first[0], 1};
    case ECH__OP_ADD:
    case ECH__OP_RELU:
    case ECH__OP_RELU_BWD:
    case ECH__OP_MAXPOOL2D:
    case ECH__OP_FLATTEN:
    case ECH__OP_UNFLATTEN:
    case ECH__OP_COUNT_CORRECT:
    case ECH__OP_REORDER:
    case ECH__OP_QUANTIZE: /* to the bit: the reference has the same types */
    case ECH__OP_DEQUANTIZE:
    case ECH__OP_QLINEAR:
    case ECH__OP_QCONV2D:
    case ECH__OP_QADD:
    case ECH__OP_QMAXPOOL2D:
    case ECH__OP_QAVGPOOL2D:
    case ECH__OP_QFLATTEN:
    case ECH__OP_ROUND:
    case ECH__OP_CAST: /* what it rounds is counted by the type */
        return (tolerance){0, 1};
    case ECH__OP_MAXPOOL2D_BWD:
        return (tolerance){exact ? 0 : 4, 1};
    case ECH__OP_AVGPOOL2D:
    case ECH__OP_AVGPOOL2D_BWD:
    case ECH__OP_BN_STATS:
    case ECH__OP_BN_RUNNING:
        return (tolerance){4, 1};
    case ECH__OP_BN_APPLY: /* gamma * (x - mean) / deviation is at most 2 / sqrt(1/8) */
        return (tolerance){4, 6};
    case ECH__OP_BN_REDUCE:
        return (tolerance){8 + sqrt((double)(elems / first[1])), 6};
    case ECH__OP_BN_BWD_DATA: /* as bn_apply, and divided by the deviation again */
        return (tolerance){4, 18};
    case ECH__OP_MSE:
    case ECH__OP_CROSS_ENTROPY:
        return (tolerance){8 + sqrt((double)elems), 0};
    case ECH__OP_MSE_BWD:
        return (tolerance){4, 0};
    case ECH__OP_CROSS_ENTROPY_BWD:
        return (tolerance){8 + (double)first[1], c->scalars.loss_scale / (double)first[0]};
    case ECH__OP_SGD:
    case ECH__OP_ADAM:
        return (tolerance){8, 1};
    case ECH__OP_ACCUMULATE: /* terms below 1 */
        return (tolerance){exact ? 0 : c->desc.nin, c->desc.nin};
    case ECH__OP_GRAD_STATS: /* squares of f32 are exact in f64, and so is all but their sum */
        return (tolerance){(double)elems * DBL_EPSILON / (double)FLT_EPSILON, 1};
    case ECH__OP_CONVERT:
        return (tolerance){0, 1};
    case ECH__OP_ALLREDUCE: /* no device has these */
    case ECH__OP_ALLREDUCE_WAIT:
    case ECH__OP_BROADCAST:
    case ECH__OP_SYNC_STATS:
    case ECH__OP_SYNC_SUMS:
    case ECH__OP_TRANSFER:
    case ECH__OP_SEND:
    case ECH__OP_RECV:
    case ECH__OP_DELAY:
    case ECH__OP_COUNT:
        break;
    }
    fail_msg("%s has no tolerance", ech__op_name(c->desc.op));
    return (tolerance){0, 0};
}

/* How far the nearest number of the type may be from x: half a unit in the last place, also below
 * the normal numbers. */
static double rounding(ech_dtype dtype, double x)
{
    if (dtype == ECH_BF16)
        return 0x1p-8 * fabs(x);
    return dtype == ECH_F16 ? fmax(0x1p-11 * fabs(x), 0x1p-25) : 0;
}

static void compare(const op_case *c, const ech__candidate *candidate, data_kind kind,
                    const op_data *got, const op_data *want)
{
    const tolerance t = tolerance_of(c, candidate, kind);
    const double epsilon = c->desc.operands[0].dtype == ECH_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    char text[OP_TEXT];
    for (int i = 0; i < got->count; i++) {
        for (int64_t k = 0; k < got->elems[i]; k++) {
            const double expected = want->at[i][k];
            const double scale = fmax(t.magnitude, fabs(expected));
            /* 16 bits are computed in f32 and rounded once. */
            const double computed = t.units * epsilon * scale;
            const double allowed =
                computed + rounding(c->desc.operands[i].dtype, fabs(expected) + computed);
            /* Also false where the result is not a number. */
            if (!(fabs(got->at[i][k] - expected) <= allowed))
                fail_msg("%s: operand %d at %lld is %.9g, not %.9g (%s data)",
                         op_describe(&c->desc, candidate, text), i, (long long)k, got->at[i][k],
                         expected, kind == DATA_EXACT ? "exact" : "random");
        }
    }
}

static void check_candidate(harness *h, const op_case *c, const ech__candidate *candidate)
{
    const int reuses = ech__op_info(c->desc.op)->reuses;
    for (data_kind kind = DATA_RANDOM; kind < DATA_KINDS; kind++) {
        const op_data *want = &h->expected[kind];
        op_data got = op_data_create(c, kind, 1);
        if (harness_run(h, h->device, c, candidate, false, &got) < 0)
            fail_msg("%s", ech_ctx_error(h->ctx));
        compare(c, candidate, kind, &got, want);
        op_data_destroy(&got);
        if (reuses >= 0) {
            got = op_data_create(c, kind, 1);
            if (harness_run(h, h->device, c, candidate, true, &got) < 0)
                fail_msg("%s", ech_ctx_error(h->ctx));
            memcpy(got.at[reuses], want->at[reuses], (size_t)got.elems[reuses] * sizeof(double));
            compare(c, candidate, kind, &got, want);
            op_data_destroy(&got);
        }
    }
}

void harness_check(harness *h, const op_case *c)
{
    for (data_kind kind = DATA_RANDOM; kind < DATA_KINDS; kind++) {
        h->expected[kind] = op_data_create(c, kind, 1);
        harness_expect(h, c, &h->expected[kind]);
    }
    for_each(h, c, check_candidate);
    for (data_kind kind = DATA_RANDOM; kind < DATA_KINDS; kind++)
        op_data_destroy(&h->expected[kind]);
}

void harness_check_node(harness *h, const ech__node *node, const ech__type *in)
{
    const op_case c = harness_case(h, node, in, 0);
    harness_check(h, &c);
}

/* ---- mode: bitwise repeat ---- */

/* The bytes of every operand after a run. */
static void run_for_bytes(harness *h, op_kernel *p, const op_data *data, char *out)
{
    op_kernel_load(p, data);
    if (p->device->ops->call(p->device, op_kernel_run, p) < 0)
        fail_msg("%s", ech_ctx_error(h->ctx));
    for (int i = 0; i < data->count; i++) {
        memcpy(out, p->operand[i].data, (size_t)p->operand[i].bytes);
        out += p->operand[i].bytes;
    }
}

static void repeat_candidate(harness *h, const op_case *c, const ech__candidate *candidate)
{
    op_data data = op_data_create(c, DATA_RANDOM, 2);
    size_t bytes = 0;
    for (int i = 0; i < data.count; i++)
        bytes += (size_t)op_bytes(&c->desc.operands[i]);
    char *first = malloc(bytes), *second = malloc(bytes), text[OP_TEXT];
    assert_true(first && second);
    op_kernel p = op_kernel_create(h->device, c, candidate, false);
    run_for_bytes(h, &p, &data, first);
    run_for_bytes(h, &p, &data, second);
    if (memcmp(first, second, bytes) != 0)
        fail_msg("%s: a second run gave other bits", op_describe(&c->desc, candidate, text));
    op_kernel anew =
        op_kernel_create(h->device, c, candidate, false); /* while p holds the first addresses */
    run_for_bytes(h, &anew, &data, second);
    if (memcmp(first, second, bytes) != 0)
        fail_msg("%s: a kernel created anew gave other bits",
                 op_describe(&c->desc, candidate, text));
    op_kernel_destroy(&anew);
    op_kernel_destroy(&p);
    free(first);
    free(second);
    op_data_destroy(&data);
    h->runs += 3;
}

void harness_repeat(harness *h, const op_case *c)
{
    for_each(h, c, repeat_candidate);
}

void harness_repeat_node(harness *h, const ech__node *node, const ech__type *in)
{
    const op_case c = harness_case(h, node, in, 0);
    harness_repeat(h, &c);
}

/* ---- mode: not finite ---- */

/* Whether a kernel may have more that is not finite than the reference: Winograd transforms whole
 * tiles; zeros around an image, or between its pixels, are multiplied or skipped; and oneDNN's
 * products of 16 bits may make a NaN of an infinity. */
static bool may_spread(const op_case *c, const ech__candidate *candidate)
{
    const bool conv = is_conv(c->desc.op);
    const bool low = ech__dtype_is_low(c->desc.operands[0].dtype);
    return (conv && (c->desc.attrs.pad > 0 || c->desc.attrs.stride > 1)) ||
           strstr(candidate->name, "wino") || (low && !strncmp(candidate->name, "onednn:", 7));
}

static bool is_as_broken(double got, double want, bool spreads)
{
    if (isfinite(want))
        return isfinite(got) || spreads;
    return isnan(got) || (!isnan(want) && (got == want || (spreads && isinf(got))));
}

static void compare_broken(const op_case *c, const ech__candidate *candidate, const op_data *got,
                           const op_data *want)
{
    const bool spreads = may_spread(c, candidate);
    char text[OP_TEXT];
    for (int i = 0; i < got->count; i++) {
        for (int64_t k = 0; k < got->elems[i]; k++) {
            if (!is_as_broken(got->at[i][k], want->at[i][k], spreads))
                fail_msg("%s: operand %d at %lld is %.9g, not %.9g",
                         op_describe(&c->desc, candidate, text), i, (long long)k, got->at[i][k],
                         want->at[i][k]);
        }
    }
}

/* Creating a kernel takes most of the time, so one does for all. */
static void break_candidate(harness *h, const op_case *c, const ech__candidate *candidate)
{
    op_kernel p = op_kernel_create(h->device, c, candidate, false);
    for (int b = 0; b < h->nbroken; b++) {
        op_data data = op_data_copy(&h->broken[0][b]);
        op_kernel_load(&p, &data);
        if (h->device->ops->call(h->device, op_kernel_run, &p) < 0)
            fail_msg("%s", ech_ctx_error(h->ctx));
        op_kernel_check(&p, &data);
        op_kernel_read(&p, &data);
        compare_broken(c, candidate, &data, &h->broken[1][b]);
        op_data_destroy(&data);
        h->runs++;
    }
    op_kernel_destroy(&p);
}

void harness_nonfinite(harness *h, const op_case *c)
{
    const double values[] = {(double)NAN, (double)INFINITY, (double)-INFINITY};
    h->nbroken = 0;
    for (int i = 0; i < c->desc.nin; i++) {
        const ech_dtype dtype = c->desc.operands[i].dtype;
        for (int v = 0; v < 3 && (dtype == ECH_F32 || ech__dtype_is_low(dtype)); v++) {
            op_data given = op_data_create(c, DATA_RANDOM, 3 + (uint64_t)v);
            given.at[i][(17 * v + 5) % given.elems[i]] = values[v];
            h->broken[0][h->nbroken] = given;
            h->broken[1][h->nbroken] = op_data_copy(&given);
            harness_expect(h, c, &h->broken[1][h->nbroken++]);
        }
    }
    for_each(h, c, break_candidate);
    for (int b = 0; b < h->nbroken; b++) {
        op_data_destroy(&h->broken[0][b]);
        op_data_destroy(&h->broken[1][b]);
    }
}

void harness_nonfinite_node(harness *h, const ech__node *node, const ech__type *in)
{
    const op_case c = harness_case(h, node, in, 0);
    harness_nonfinite(h, &c);
}

/* ---- mode: performance ---- */

enum { SAMPLES = 9 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct timing {
    op_kernel *p;
    double seconds[SAMPLES]; /* sorted */
} timing;

/* On the worker, so that the hand-over is not measured. The first run warms up. */
static ech_status time_kernel(void *arg)
{
    timing *t = arg;
    for (int s = -1; s < SAMPLES; s++) {
        const int64_t start = ech__clock_wall();
        ECH_TRY(s < 0 ? op_kernel_run(t->p) : t->p->kernel->run(t->p->kernel, &t->p->c->scalars));
        if (s >= 0)
            t->seconds[s] = ech__seconds(ech__clock_wall() - start);
    }
    qsort(t->seconds, SAMPLES, sizeof *t->seconds, by_value);
    return ECH_OK;
}

static void measure_candidate(harness *h, const op_case *c, const ech__candidate *candidate)
{
    if (candidate->is_fallback) /* takes seconds, and no plan runs it */
        return;
    op_data data = op_data_create(c, DATA_RANDOM, 3);
    op_kernel p = op_kernel_create(h->device, c, candidate, false);
    op_kernel_load(&p, &data);
    timing t = {.p = &p};
    if (h->device->ops->call(h->device, time_kernel, &t) < 0)
        fail_msg("%s", ech_ctx_error(h->ctx));
    const double median = t.seconds[SAMPLES / 2];
    const bool product = terms_of(c) > 0;
    double work = 0; /* bytes, or twice the multiplications */
    for (int i = 0; i < data.count; i++)
        work += (double)op_bytes(&c->desc.operands[i]) *
                (ech__op_info(c->desc.op)->changes >> i & 1 ? 2 : 1);
    if (product)
        work = 2 * (double)terms_of(c) * (double)data.elems[c->desc.nin];
    char text[OP_TEXT];
    print_message("%8.1f %s  %8.3f ms (%.3f to %.3f)  %s\n", work / median * 1e-9,
                  product ? "GF/s" : "GB/s", median * 1e3, t.seconds[0] * 1e3,
                  t.seconds[SAMPLES - 1] * 1e3, op_describe(&c->desc, candidate, text));
    op_kernel_destroy(&p);
    op_data_destroy(&data);
    h->runs++;
}

void harness_measure(harness *h, const op_case *c)
{
    for_each(h, c, measure_candidate);
}
