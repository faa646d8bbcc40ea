#include "support/conv_bench.h"
#include "base/system/clock.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* Fails the test with the context's sentence where status is one. */
static void good(const conv_bench *b, ech_status status)
{
    if (status < 0)
        fail_msg("%s", ech_ctx_error(b->ctx));
}

/* ---- shapes ---- */

static int64_t out_of(const conv *c, int64_t length)
{
    return (length + 2 * c->pad - c->K) / c->stride + 1;
}

/* Of one channel of y. */
static int64_t places_of(const conv *c)
{
    return out_of(c, c->H) * out_of(c, c->W);
}

static ech__shape x_shape(const conv *c)
{
    return (ech__shape){4, {c->N, c->I, c->H, c->W}};
}

static ech__shape y_shape(const conv *c)
{
    return (ech__shape){4, {c->N, c->O, out_of(c, c->H), out_of(c, c->W)}};
}

static ech__shape w_shape(const conv *c)
{
    return (ech__shape){4, {c->O, c->I, c->K, c->K}};
}

/* ---- the device ---- */

void conv_bench_init(conv_bench *b, const conv_setting *setting)
{
    *b = (conv_bench){.offer = setting->offer};
    assert_int_equal(ech_ctx_create(NULL, &b->ctx), ECH_OK);
    const ech__device_options options = {.kind = ECH__DEVICE_CPU, .threads = setting->threads};
    good(b, ech__device_create(b->ctx, &options, &b->device));
    ech__cpu *cpu = ech__device_state(b->device);
    if (setting->generic)
        cpu->loops = ech__loops_for(ECH__ISA_GENERIC);
    b->cpu = cpu;
}

void conv_bench_fini(conv_bench *b)
{
    ech__device_destroy(b->device);
    ech_ctx_destroy(b->ctx);
}

int conv_bench_setup(void **state)
{
    const conv_setting *setting = *state;
    conv_bench *b = malloc(sizeof *b);
    assert_non_null(b);
    conv_bench_init(b, setting);
    *state = b;
    return 0;
}

int conv_bench_teardown(void **state)
{
    conv_bench_fini(*state);
    free(*state);
    return 0;
}

/* ---- what it offers ---- */

static void add_operand(ech__kernel_desc *desc, ech__layout layout, bool input, bool is_free)
{
    desc->operands[desc->nin + desc->nout] = (ech__operand){ECH_F32, layout, is_free};
    desc->nin += input;
    desc->nout += !input;
}

ech__kernel_desc conv_describe(const conv_bench *b, const conv *c, const conv_variant *v)
{
    ech__kernel_desc desc = {.op = v->op,
                             .attrs = {.relu = v->relu,
                                       .kernel = c->K,
                                       .stride = c->stride,
                                       .pad = c->pad,
                                       .channels = c->I,
                                       .height = c->H,
                                       .width = c->W}};
    const int channels = b->cpu->loops->channels;
    const ech__shape xs = x_shape(c), ys = y_shape(c), ws = w_shape(c), bs = {1, {c->O}};
    const ech__layout x =
        c->plain ? ech__layout_plain(&xs) : ech__layout_blocked_channels(&xs, channels);
    const ech__layout y = ech__layout_blocked_channels(&ys, channels);
    const ech__layout weight = ech__layout_plain(&ws), bias = ech__layout_plain(&bs);
    switch (v->op) {
    case ECH__OP_CONV2D: /* x w (b) -> y */
        add_operand(&desc, x, true, false);
        add_operand(&desc, weight, true, true);
        if (v->bias)
            add_operand(&desc, bias, true, false);
        add_operand(&desc, y, false, false);
        break;
    case ECH__OP_CONV2D_BWD_DATA: /* dy w -> dx */
        add_operand(&desc, y, true, false);
        add_operand(&desc, weight, true, true);
        add_operand(&desc, x, false, false);
        break;
    default: /* x dy -> dw (db) */
        desc.attrs.bias = v->bias;
        add_operand(&desc, x, true, false);
        add_operand(&desc, y, true, false);
        add_operand(&desc, weight, false, true);
        if (v->bias)
            add_operand(&desc, bias, false, false);
    }
    return desc;
}

typedef struct request {
    const conv_bench *b;
    const ech__kernel_desc *desc;
    ech__offer offer;
} request;

static ech_status do_offer(void *arg)
{
    request *q = arg;
    q->b->offer(q->desc, &q->offer);
    return ECH_OK;
}

int conv_offers(conv_bench *b, const ech__kernel_desc *desc, ech__candidate *out)
{
    request q = {b, desc, {b->device, b->cpu, out, 0}};
    good(b, b->device->ops->call(b->device, do_offer, &q));
    return q.offer.count;
}

int conv_all_offers(conv_bench *b, const ech__kernel_desc *desc, ech__candidate *out)
{
    int count = 0;
    good(b, b->device->ops->candidates(b->device, desc, out, &count));
    return count;
}

ech__candidate conv_first_offer(conv_bench *b, const ech__kernel_desc *desc)
{
    ech__candidate found[ECH__MAX_CANDIDATES];
    assert_true(conv_offers(b, desc, found) > 0);
    return found[0];
}

ech__candidate conv_only_offer(conv_bench *b, ech__kernel_desc *desc, const ech__layout *weight)
{
    ech__operand *operand = &desc->operands[ech__weight_operand(desc->op)];
    operand->layout = *weight;
    operand->free = false;
    ech__candidate found[ECH__MAX_CANDIDATES];
    assert_int_equal(conv_offers(b, desc, found), 1);
    return found[0];
}

/* ---- data ---- */

static double *random_data(int64_t count, uint64_t stream)
{
    double *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t k = 0; k < count; k++)
        data[k] = (double)(float)(ech__rng_uniform(7, stream, (uint64_t)k) * 2 - 1);
    return data;
}

static double *zeros(int64_t count)
{
    double *data = calloc((size_t)count, sizeof *data);
    assert_non_null(data);
    return data;
}

conv_data conv_inputs(const conv *c)
{
    conv_data d = {.c = *c,
                   .nx = c->N * c->I * c->H * c->W,
                   .ny = c->N * c->O * places_of(c),
                   .nw = c->O * c->I * c->K * c->K};
    d.x = random_data(d.nx, 1);
    d.w = random_data(d.nw, 2);
    d.b = random_data(c->O, 3);
    d.dy = random_data(d.ny, 4);
    return d;
}

/* What one tap of the weight from channel i to channel o adds in sample n: y and dx are sums over taps of shifted
 * images, dw over images. */
static void add_tap(conv_data *d, int64_t n, int64_t o, int64_t i, int64_t kh, int64_t kw)
{
    const conv *c = &d->c;
    const int64_t OH = out_of(c, c->H), OW = out_of(c, c->W);
    const int64_t x_at = (n * c->I + i) * c->H, y_at = (n * c->O + o) * OH;
    const int64_t w_at = ((o * c->I + i) * c->K + kh) * c->K + kw;
    const double *x = d->x, *dy = d->dy, w = d->w[w_at];
    double *y = d->y, *dx = d->dx, dw = 0;
    for (int64_t h = 0; h < OH; h++) {
        const int64_t from_h = h * c->stride + kh - c->pad;
        if (from_h < 0 || from_h >= c->H)
            continue;
        for (int64_t v = 0; v < OW; v++) {
            const int64_t from_w = v * c->stride + kw - c->pad;
            if (from_w < 0 || from_w >= c->W)
                continue;
            const int64_t xi = (x_at + from_h) * c->W + from_w, yi = (y_at + h) * OW + v;
            y[yi] += x[xi] * w;
            dx[xi] += dy[yi] * w;
            dw += x[xi] * dy[yi];
        }
    }
    d->dw[w_at] += dw;
}

void conv_expect(conv_data *d)
{
    const conv *c = &d->c;
    const int64_t places = places_of(c);
    d->y = zeros(d->ny);
    d->dx = zeros(d->nx);
    d->dw = zeros(d->nw);
    d->db = zeros(c->O);
    for (int64_t n = 0; n < c->N; n++) {
        for (int64_t o = 0; o < c->O; o++) {
            for (int64_t i = 0; i < c->I; i++) {
                for (int64_t k = 0; k < c->K * c->K; k++)
                    add_tap(d, n, o, i, k / c->K, k % c->K);
            }
        }
    }
    for (int64_t k = 0; k < d->ny; k++)
        d->db[k / places % c->O] += d->dy[k];
}

void conv_data_fini(conv_data *d)
{
    double *all[] = {d->x, d->w, d->b, d->dy, d->y, d->dx, d->dw, d->db};
    for (int i = 0; i < LENGTH(all); i++)
        free(all[i]);
}

const double *conv_sums(const conv_data *d, ech__op op)
{
    return op == ECH__OP_CONV2D ? d->y : op == ECH__OP_CONV2D_BWD_DATA ? d->dx : d->dw;
}

/* ---- one kernel over guarded memory ---- */

static const double *input_of(const conv_data *d, ech__op op, int i)
{
    if (i == 0)
        return op == ECH__OP_CONV2D_BWD_DATA ? d->dy : d->x;
    if (i == 1)
        return op == ECH__OP_CONV2D_BWD_WEIGHTS ? d->dy : d->w;
    return d->b;
}

void conv_run_init(conv_run *r, conv_bench *b, const ech__kernel_desc *desc,
                   const ech__candidate *candidate, const conv_data *given)
{
    *r = (conv_run){.b = b, .given = given, .fixed = {.desc = *desc, .scalars = {.step = 1}}};
    r->data.count = op_operands(desc);
    for (int i = 0; i < r->data.count; i++) {
        r->fixed.desc.operands[i].layout = candidate->layouts[i];
        r->fixed.desc.operands[i].free = false;
        assert_true(ech__shape_elems(&candidate->layouts[i].shape, &r->data.elems[i]));
        r->data.at[i] = zeros(r->data.elems[i]);
        if (i < desc->nin)
            memcpy(r->data.at[i], input_of(given, desc->op, i),
                   (size_t)r->data.elems[i] * sizeof(double));
    }
    r->kernel = op_kernel_create(b->device, &r->fixed, candidate, false);
    op_kernel_load(&r->kernel, &r->data);
}

void conv_run_fini(conv_run *r)
{
    op_kernel_destroy(&r->kernel);
    op_data_destroy(&r->data);
}

/* Outputs are NaN before, their padding too. */
static void run_spoilt(conv_run *r, int scratch)
{
    for (int i = r->fixed.desc.nin; i < r->data.count; i++)
        memset(r->kernel.operand[i].data, 0xff, (size_t)r->kernel.operand[i].bytes);
    memset(r->kernel.scratch.data, scratch, (size_t)r->kernel.scratch.bytes);
    good(r->b, r->b->device->ops->call(r->b->device, op_kernel_run, &r->kernel));
}

void conv_run_once(conv_run *r)
{
    run_spoilt(r, 0xff);
    op_kernel_check(&r->kernel, &r->data);
    op_kernel_read(&r->kernel, &r->data);
}

void conv_run_check(conv_run *r)
{
    const int first = r->fixed.desc.nin;
    char *before[ECH__MAX_OPERANDS];
    run_spoilt(r, 0x7f);
    for (int i = first; i < r->data.count; i++)
        before[i] = conv_bytes(r, i);
    conv_run_once(r);
    for (int i = first; i < r->data.count; i++) {
        assert_memory_equal(before[i], r->kernel.operand[i].data,
                            (size_t)r->kernel.operand[i].bytes);
        free(before[i]);
    }
    for (int64_t k = 0; r->fixed.desc.attrs.relu && k < r->data.elems[first]; k++)
        assert_true(r->data.at[first][k] >= 0);
    r->b->runs++;
}

typedef struct timing {
    op_kernel *kernel;
    int repeats;
    double best; /* seconds */
} timing;

static ech_status do_time(void *arg)
{
    timing *t = arg;
    t->best = INFINITY;
    for (int i = 0; i < t->repeats; i++) {
        const int64_t start = ech__clock_cpu();
        ECH_TRY(op_kernel_run(t->kernel));
        t->best = fmin(t->best, ech__seconds(ech__clock_cpu() - start));
    }
    return ECH_OK;
}

double conv_run_time(conv_run *r, double seconds, int most)
{
    timing t = {.kernel = &r->kernel, .repeats = 2};
    good(r->b, r->b->device->ops->call(r->b->device, do_time, &t));
    t.repeats = (int)fmin(fmax(seconds / t.best, 3), most);
    good(r->b, r->b->device->ops->call(r->b->device, do_time, &t));
    op_kernel_check(&r->kernel, &r->data);
    return t.best;
}

double *conv_right(const conv_run *r)
{
    const ech__kernel_desc *desc = &r->fixed.desc;
    const int64_t count = r->data.elems[desc->nin], places = places_of(&r->given->c);
    const double *sums = conv_sums(r->given, desc->op);
    double *right = zeros(count);
    for (int64_t k = 0; k < count; k++) {
        right[k] = sums[k];
        if (desc->nin == 3)
            right[k] += r->given->b[k / places % r->given->c.O];
        if (desc->attrs.relu)
            right[k] = fmax(right[k], 0);
    }
    return right;
}

char *conv_bytes(const conv_run *r, int operand)
{
    const guarded *memory = &r->kernel.operand[operand];
    char *copy = malloc((size_t)memory->bytes);
    assert_non_null(copy);
    memcpy(copy, memory->data, (size_t)memory->bytes);
    return copy;
}
