/* Direct convolutions, straight through their offers, against sums in f64.
 *
 * With ECH_PERF=1: the times of LeNet's shapes beside the device's other kernels, at batches of 4, 32 and 128.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "support/cmocka_first.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

enum { GUARD = 192, GUARD_BYTE = 0xa5 };

/* One convolution: x[N,I,H,W] w[O,I,K,K] -> y[N,O,H',W'] */
typedef struct conv {
    int64_t N, I, O, H, W, K, stride, pad;
    bool plain; /* x is row-major */
} conv;

static int64_t out_of(const conv *c, int64_t length)
{
    return (length + 2 * c->pad - c->K) / c->stride + 1;
}

static ech__shape image_shape(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (ech__shape){4, {n, c, h, w}};
}

static ech__shape x_shape(const conv *c)
{
    return image_shape(c->N, c->I, c->H, c->W);
}

static ech__shape y_shape(const conv *c)
{
    return image_shape(c->N, c->O, out_of(c, c->H), out_of(c, c->W));
}

static ech__shape w_shape(const conv *c)
{
    return image_shape(c->O, c->I, c->K, c->K);
}

/* ---- what is expected ---- */

/* y and dx are sums over taps of shifted images, dw over images: the three directions in one loop. Arrays in
 * canonical order; what is added to is not NULL. */
static void sums(const conv *c, const double *x, const double *w, const double *dy, double *y,
                 double *dx, double *dw)
{
    const int64_t OH = out_of(c, c->H), OW = out_of(c, c->W);
    for (int64_t n = 0; n < c->N; n++) {
        for (int64_t o = 0; o < c->O; o++) {
            for (int64_t i = 0; i < c->I; i++) {
                const int64_t x_at = (n * c->I + i) * c->H, y_at = (n * c->O + o) * OH;
                for (int64_t kh = 0; kh < c->K; kh++) {
                    for (int64_t kw = 0; kw < c->K; kw++) {
                        const int64_t w_at = ((o * c->I + i) * c->K + kh) * c->K + kw;
                        double sum = 0;
                        for (int64_t h = 0; h < OH; h++) {
                            const int64_t from_h = h * c->stride + kh - c->pad;
                            if (from_h < 0 || from_h >= c->H)
                                continue;
                            for (int64_t v = 0; v < OW; v++) {
                                const int64_t from_w = v * c->stride + kw - c->pad;
                                if (from_w < 0 || from_w >= c->W)
                                    continue;
                                const int64_t xi = (x_at + from_h) * c->W + from_w;
                                const int64_t yi = (y_at + h) * OW + v;
                                if (y)
                                    y[yi] += x[xi] * w[w_at];
                                if (dx)
                                    dx[xi] += dy[yi] * w[w_at];
                                if (dw)
                                    sum += x[xi] * dy[yi];
                            }
                        }
                        if (dw)
                            dw[w_at] += sum;
                    }
                }
            }
        }
    }
}

/* ---- one kernel over guarded memory ---- */

typedef struct bench {
    ech_ctx *ctx;
    ech__device *device;
    int runs;
} bench;

typedef struct kernel_run {
    bench *b;
    ech__kernel_desc desc;
    ech__candidate candidates[ECH__MAX_CANDIDATES];
    int count;
    const ech__candidate *candidate;
    bool listed; /* the candidate is of the device's own list */
    ech__binding binding;
    ech__kernel *kernel;
    char *blocks[ECH__MAX_OPERANDS + 1]; /* the last: scratch */
    int64_t bytes[ECH__MAX_OPERANDS + 1];
    int repeats;
    double best; /* seconds */
} kernel_run;

static int operands(const kernel_run *r)
{
    return r->desc.nin + r->desc.nout;
}

static ech_status do_offer(void *arg)
{
    kernel_run *r = arg;
    ech__offer offer = {r->candidates, 0};
    ech__direct_offer(ech__device_state(r->b->device), r->b->device->threads, &r->desc, &offer);
    r->count = offer.count;
    return ECH_OK;
}

static ech_status do_create(void *arg)
{
    kernel_run *r = arg;
    if (r->listed)
        return r->b->device->ops->create(r->b->device, &r->desc, r->candidate, &r->binding,
                                         &r->kernel);
    return ech__direct_create(r->b->device, &r->desc, r->candidate, &r->binding, &r->kernel);
}

static ech_status do_run(void *arg)
{
    kernel_run *r = arg;
    r->best = INFINITY;
    for (int i = 0; i < r->repeats; i++) {
        const int64_t start = ech__clock_cpu();
        const ech_status status = r->kernel->run(r->kernel, &(ech__scalars){.step = 1});
        if (status < 0)
            return status;
        r->best = fmin(r->best, (double)(ech__clock_cpu() - start) * 1e-9);
    }
    return ECH_OK;
}

static ech_status do_destroy(void *arg)
{
    kernel_run *r = arg;
    r->kernel->destroy(r->kernel);
    return ECH_OK;
}

static void call(kernel_run *r, ech_status (*job)(void *arg))
{
    if (r->b->device->ops->call(r->b->device, job, r) < 0)
        fail_msg("%s", ech_ctx_error(r->b->ctx));
}

/* On an odd multiple of 64 bytes, which is all that a kernel may rely on; filled with NaN. */
static char *guarded(int64_t bytes)
{
    const size_t total = (size_t)ech__round_up(bytes + 2 * GUARD, 128);
    char *block = aligned_alloc(128, total);
    assert_non_null(block);
    memset(block, GUARD_BYTE, total);
    memset(block + GUARD, 0xff, (size_t)bytes);
    return block;
}

static void check_guards(const kernel_run *r, int i)
{
    for (int64_t k = 0; k < GUARD; k++) {
        if ((unsigned char)r->blocks[i][k] != GUARD_BYTE ||
            (unsigned char)r->blocks[i][GUARD + r->bytes[i] + k] != GUARD_BYTE)
            fail_msg("%s wrote outside of operand %d", ech__op_name(r->desc.op), i);
    }
}

static int64_t elems_of(const ech__layout *layout)
{
    int64_t elems;
    assert_true(ech__shape_elems(&layout->shape, &elems));
    return elems;
}

static void put(kernel_run *r, int i, const double *data)
{
    const ech__layout *layout = &r->candidate->layouts[i];
    const int64_t elems = elems_of(layout);
    float *canonical = malloc((size_t)elems * sizeof *canonical);
    assert_non_null(canonical);
    for (int64_t k = 0; k < elems; k++)
        canonical[k] = (float)data[k];
    memset(r->blocks[i] + GUARD, 0, (size_t)r->bytes[i]);
    ech__layout_scatter(layout, sizeof(float), 0, elems, canonical, r->blocks[i] + GUARD);
    free(canonical);
}

/* Reads an output; its padding must be zero. */
static void get(const kernel_run *r, int i, double *data)
{
    const ech__layout *layout = &r->candidate->layouts[i];
    const int64_t elems = elems_of(layout);
    float *canonical = malloc((size_t)elems * sizeof *canonical);
    float *again = calloc((size_t)r->bytes[i], 1);
    assert_true(canonical && again);
    ech__layout_gather(layout, sizeof(float), 0, elems, r->blocks[i] + GUARD, canonical);
    for (int64_t k = 0; k < elems; k++)
        data[k] = (double)canonical[k];
    ech__layout_scatter(layout, sizeof(float), 0, elems, canonical, again);
    const float *memory = (const float *)(const void *)(r->blocks[i] + GUARD);
    for (int64_t k = 0; k < r->bytes[i] / (int64_t)sizeof(float); k++) {
        if (memory[k] != again[k])
            fail_msg("%s: operand %d: padding holds %g", ech__op_name(r->desc.op), i,
                     (double)memory[k]);
    }
    free(canonical);
    free(again);
}

static void prepare(kernel_run *r)
{
    for (int i = 0; i < operands(r); i++) {
        int64_t extent;
        assert_true(ech__layout_extent(&r->candidate->layouts[i], &extent));
        r->desc.operands[i].layout = r->candidate->layouts[i];
        r->desc.operands[i].free = false;
        r->bytes[i] = extent * (int64_t)sizeof(float);
    }
    r->bytes[operands(r)] = r->candidate->scratch_bytes;
    for (int i = 0; i <= operands(r); i++)
        r->blocks[i] = guarded(r->bytes[i]);
    for (int i = 0; i < operands(r); i++)
        r->binding.operands[i] = r->blocks[i] + GUARD;
    r->binding.scratch = r->blocks[operands(r)] + GUARD;
    call(r, do_create);
}

static void release(kernel_run *r)
{
    call(r, do_destroy);
    for (int i = 0; i <= operands(r); i++) {
        check_guards(r, i);
        free(r->blocks[i]);
    }
}

/* ---- cases ---- */

typedef struct variant {
    ech__op op;
    bool bias, relu;
} variant;

static const variant VARIANTS[] = {
    {ECH__OP_CONV2D, false, false},
    {ECH__OP_CONV2D, true, false},
    {ECH__OP_CONV2D, true, true},
    {ECH__OP_CONV2D_BWD_DATA, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, true, false},
};

static void add_operand(ech__kernel_desc *desc, ech__layout layout, bool input, bool is_free)
{
    desc->operands[desc->nin + desc->nout] = (ech__operand){ECH_F32, layout, is_free};
    desc->nin += input;
    desc->nout += !input;
}

/* The weight is free. */
static ech__kernel_desc describe(const conv *c, const variant *v, int channels)
{
    ech__kernel_desc desc = {.op = v->op,
                             .attrs = {.relu = v->relu,
                                       .kernel = c->K,
                                       .stride = c->stride,
                                       .pad = c->pad,
                                       .channels = c->I,
                                       .height = c->H,
                                       .width = c->W}};
    const ech__shape xs = x_shape(c), ys = y_shape(c), ws = w_shape(c), bs = {1, {c->O}};
    const ech__layout x =
        c->plain ? ech__layout_plain(&xs) : ech__layout_blocked_channels(&xs, channels);
    const ech__layout y = ech__layout_blocked_channels(&ys, channels);
    const ech__layout w = ech__layout_plain(&ws), b = ech__layout_plain(&bs);
    switch (v->op) {
    case ECH__OP_CONV2D:
        add_operand(&desc, x, true, false);
        add_operand(&desc, w, true, true);
        if (v->bias)
            add_operand(&desc, b, true, false);
        add_operand(&desc, y, false, false);
        break;
    case ECH__OP_CONV2D_BWD_DATA:
        add_operand(&desc, y, true, false);
        add_operand(&desc, w, true, true);
        add_operand(&desc, x, false, false);
        break;
    default:
        desc.attrs.bias = v->bias;
        add_operand(&desc, x, true, false);
        add_operand(&desc, y, true, false);
        add_operand(&desc, w, false, true);
        if (v->bias)
            add_operand(&desc, b, false, false);
    }
    return desc;
}

static const ech__cpu *cpu_of(const bench *b)
{
    return ech__device_state(b->device);
}

/* Uniform in [-1, 1). */
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

/* Inputs, and what each direction should give. */
typedef struct expectation {
    int64_t nx, ny, nw;
    double *x, *w, *b, *dy;
    double *y, *dx, *dw, *db; /* y without bias and ReLU */
    /* The sums of the terms' sizes, by which their rounding is judged. */
    double *y_size, *dx_size, *dw_size, *db_size;
} expectation;

static double *sizes(const double *data, int64_t count)
{
    double *out = zeros(count);
    for (int64_t k = 0; k < count; k++)
        out[k] = fabs(data[k]);
    return out;
}

static expectation inputs(const conv *c)
{
    expectation e = {.nx = c->N * c->I * c->H * c->W,
                     .ny = c->N * c->O * out_of(c, c->H) * out_of(c, c->W),
                     .nw = c->O * c->I * c->K * c->K};
    e.x = random_data(e.nx, 1);
    e.w = random_data(e.nw, 2);
    e.b = random_data(c->O, 3);
    e.dy = random_data(e.ny, 4);
    return e;
}

static expectation expect(const conv *c)
{
    const int64_t places = out_of(c, c->H) * out_of(c, c->W);
    expectation e = inputs(c);
    double **results[] = {&e.y, &e.y_size, &e.dx, &e.dx_size, &e.dw, &e.dw_size};
    const int64_t counts[] = {e.ny, e.nx, e.nw};
    for (int i = 0; i < LENGTH(results); i++)
        *results[i] = zeros(counts[i / 2]);
    e.db = zeros(c->O);
    e.db_size = zeros(c->O);
    sums(c, e.x, e.w, e.dy, e.y, e.dx, e.dw);
    double *x = sizes(e.x, e.nx), *w = sizes(e.w, e.nw), *dy = sizes(e.dy, e.ny);
    sums(c, x, w, dy, e.y_size, e.dx_size, e.dw_size);
    for (int64_t k = 0; k < e.ny; k++) {
        e.db[k / places % c->O] += e.dy[k];
        e.db_size[k / places % c->O] += dy[k];
    }
    free(x);
    free(w);
    free(dy);
    return e;
}

static void expectation_fini(expectation *e)
{
    double *all[] = {e->x,  e->w,  e->b,      e->dy,      e->y,       e->dx,
                     e->dw, e->db, e->y_size, e->dx_size, e->dw_size, e->db_size};
    for (int i = 0; i < LENGTH(all); i++)
        free(all[i]);
}

/* ---- errors ---- */

/* Over the sum of the terms' sizes. */
static const double LIMIT = 1e-6;

static void check_errors(const kernel_run *r, const conv *c, const char *what, const double *got,
                         const double *right, const double *size, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        if (fabs(got[k] - right[k]) <= LIMIT * (size[k] + 1))
            continue;
        fail_msg("%s N%d I%d O%d %dx%d kernel %d stride %d pad %d x %s weight %s: %s at %d is %g, "
                 "not %g",
                 ech__op_name(r->desc.op), (int)c->N, (int)c->I, (int)c->O, (int)c->H, (int)c->W,
                 (int)c->K, (int)c->stride, (int)c->pad, c->plain ? "row-major" : "blocked",
                 ech__layout_tag(&r->candidate->layouts[ech__weight_operand(r->desc.op)]).s, what,
                 (int)k, got[k], right[k]);
    }
}

/* ---- running a case ---- */

static void load(kernel_run *r, const expectation *e)
{
    const bool forward = r->desc.op == ECH__OP_CONV2D;
    put(r, 0, r->desc.op == ECH__OP_CONV2D_BWD_DATA ? e->dy : e->x);
    put(r, 1, r->desc.op == ECH__OP_CONV2D_BWD_WEIGHTS ? e->dy : e->w);
    if (forward && r->desc.nin == 3)
        put(r, 2, e->b);
}

static void check_inputs(const kernel_run *r, char *const *before)
{
    for (int i = 0; i < r->desc.nin; i++)
        assert_memory_equal(before[i], r->blocks[i] + GUARD, (size_t)r->bytes[i]);
}

static void compare(const kernel_run *r, const conv *c, const expectation *e)
{
    const int first = r->desc.nin;
    const int64_t count = elems_of(&r->candidate->layouts[first]);
    double *got = zeros(count), *right = zeros(count);
    const double *size = e->y_size;
    get(r, first, got);
    if (r->desc.op == ECH__OP_CONV2D) {
        const int64_t places = out_of(c, c->H) * out_of(c, c->W);
        for (int64_t k = 0; k < count; k++) {
            right[k] = e->y[k] + (r->desc.nin == 3 ? e->b[k / places % c->O] : 0);
            if (r->desc.attrs.relu) {
                assert_true(got[k] >= 0);
                right[k] = fmax(right[k], 0);
            }
        }
    } else {
        const bool data = r->desc.op == ECH__OP_CONV2D_BWD_DATA;
        memcpy(right, data ? e->dx : e->dw, (size_t)count * sizeof *right);
        size = data ? e->dx_size : e->dw_size;
    }
    check_errors(r, c, "the result", got, right, size, count);
    if (r->desc.nout == 2) {
        double *db = zeros(c->O);
        get(r, first + 1, db);
        check_errors(r, c, "the bias gradient", db, e->db, e->db_size, c->O);
        free(db);
    }
    free(got);
    free(right);
}

/* Runs twice on spoilt scratch and outputs: the same bits, and the inputs as they were. */
static void run_and_check(kernel_run *r, const conv *c, const expectation *e)
{
    prepare(r);
    load(r, e);
    char *before[ECH__MAX_OPERANDS] = {NULL};
    for (int i = 0; i < r->desc.nin; i++) {
        before[i] = malloc((size_t)r->bytes[i]);
        assert_non_null(before[i]);
        memcpy(before[i], r->blocks[i] + GUARD, (size_t)r->bytes[i]);
    }
    r->repeats = 1;
    call(r, do_run);
    const int out = r->desc.nin;
    char *first = malloc((size_t)r->bytes[out]);
    assert_non_null(first);
    memcpy(first, r->blocks[out] + GUARD, (size_t)r->bytes[out]);
    memset(r->blocks[out] + GUARD, 0xff, (size_t)r->bytes[out]);
    memset(r->blocks[operands(r)] + GUARD, 0x7f, (size_t)r->bytes[operands(r)]);
    call(r, do_run);
    assert_memory_equal(first, r->blocks[out] + GUARD, (size_t)r->bytes[out]);
    check_inputs(r, before);
    compare(r, c, e);
    free(first);
    for (int i = 0; i < r->desc.nin; i++)
        free(before[i]);
    release(r);
    r->b->runs++;
}

/* The layouts of a weight that must be taken: as they are offered for either kind of x, and row-major. */
static int weight_layouts(bench *b, const conv *c, const variant *v, ech__layout *out)
{
    int count = 0;
    for (int plain = 0; plain < 2; plain++) {
        conv other = *c;
        other.plain = plain;
        const variant forward = {ECH__OP_CONV2D, false, false};
        kernel_run open = {
            .b = b, .desc = describe(&other, plain ? &forward : v, cpu_of(b)->vec->channels)};
        call(&open, do_offer);
        assert_int_equal(open.count, plain ? 1 : 2);
        for (int i = 0; i < open.count; i++)
            out[count++] = open.candidates[i].layouts[ech__weight_operand(open.desc.op)];
    }
    const ech__shape shape = w_shape(c);
    out[count++] = ech__layout_plain(&shape);
    return count;
}

/* Every direction, with every layout of the weight. */
static void check_conv(bench *b, const conv *c)
{
    expectation e = expect(c);
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        if (c->plain && VARIANTS[v].op == ECH__OP_CONV2D_BWD_DATA)
            continue;
        ech__layout layouts[8];
        const int count = weight_layouts(b, c, &VARIANTS[v], layouts);
        for (int layout = 0; layout < count; layout++) {
            kernel_run r = {.b = b, .desc = describe(c, &VARIANTS[v], cpu_of(b)->vec->channels)};
            ech__operand *weight = &r.desc.operands[ech__weight_operand(r.desc.op)];
            weight->free = false;
            weight->layout = layouts[layout];
            call(&r, do_offer);
            assert_int_equal(r.count, 1);
            assert_string_equal(r.candidates[0].name, "direct");
            r.candidate = &r.candidates[0];
            run_and_check(&r, c, &e);
        }
    }
    expectation_fini(&e);
}

/* ---- tests ---- */

typedef struct setting {
    int threads;
    const ech__vec *vec; /* NULL: what the processor has */
} setting;

static int setup(void **state)
{
    bench *b = calloc(1, sizeof *b);
    const setting *given = *state;
    if (!b || ech_ctx_create(NULL, &b->ctx) < 0 ||
        ech__device_create(
            b->ctx, &(ech__device_options){.kind = ECH__DEVICE_CPU, .threads = given->threads},
            &b->device) < 0)
        return -1;
    if (given->vec) {
        ech__cpu *cpu = ech__device_state(b->device);
        cpu->vec = given->vec;
    }
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;
    ech__device_destroy(b->device);
    ech_ctx_destroy(b->ctx);
    free(b);
    return 0;
}

/* All kernels, strides and padding, on images from the smallest that fits, with channels that take turns. */
static void shapes(void **state)
{
    bench *b = *state;
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

/* A NaN in x is one in y too, with and without ReLU. */
static void nan_stays(void **state)
{
    bench *b = *state;
    const conv *c = &LENET[1];
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        if (VARIANTS[v].op != ECH__OP_CONV2D)
            continue;
        expectation e = inputs(c);
        e.x[0] = NAN;
        kernel_run r = {.b = b, .desc = describe(c, &VARIANTS[v], cpu_of(b)->vec->channels)};
        call(&r, do_offer);
        r.candidate = &r.candidates[0];
        prepare(&r);
        load(&r, &e);
        r.repeats = 1;
        call(&r, do_run);
        const float *y = (const float *)(const void *)(r.blocks[r.desc.nin] + GUARD);
        assert_true(isnan(y[0]));
        release(&r);
        expectation_fini(&e);
    }
}

static void refused(void **state)
{
    bench *b = *state;
    const variant forward = {ECH__OP_CONV2D, false, false};
    const int channels = cpu_of(b)->vec->channels;
    kernel_run many = {
        .b = b, .desc = describe(&(conv){1, 65, 8, 4, 4, 3, 1, 1, false}, &forward, channels)};
    call(&many, do_offer);
    assert_int_equal(many.count, 0);
    kernel_run padding = {
        .b = b, .desc = describe(&(conv){1, 8, 8, 4, 4, 1, 1, 1, false}, &forward, channels)};
    call(&padding, do_offer);
    assert_int_equal(padding.count, 0);
    kernel_run weight = {.b = b, .desc = describe(&LENET[1], &forward, channels)};
    const ech__shape shape = w_shape(&LENET[1]);
    weight.desc.operands[1].free = false;
    weight.desc.operands[1].layout = ech__layout_blocked_channels(&shape, channels);
    call(&weight, do_offer);
    assert_int_equal(weight.count, 0);
    kernel_run y = {.b = b, .desc = describe(&LENET[1], &forward, channels)};
    const ech__shape ys = y_shape(&LENET[1]);
    y.desc.operands[2].layout = ech__layout_plain(&ys);
    call(&y, do_offer);
    assert_int_equal(y.count, 0);
}

/* ---- performance ---- */

/* The best of many runs on random data: other work on the machine only makes it slower. */
static double time_of(kernel_run *r, const expectation *e)
{
    prepare(r);
    load(r, e);
    r->repeats = 2;
    call(r, do_run);
    r->repeats = (int)fmin(fmax(0.2 / r->best, 3), 2000);
    call(r, do_run);
    release(r);
    return r->best;
}

static void measure(bench *b, const conv *c, const variant *v)
{
    expectation e = inputs(c);
    const ech__kernel_desc desc = describe(c, v, cpu_of(b)->vec->channels);
    kernel_run all = {.b = b, .desc = desc, .listed = true};
    assert_int_equal(b->device->ops->candidates(b->device, &desc, all.candidates, &all.count),
                     ECH_OK);
    const double flops = 2.0 * (double)(e.ny * c->I * c->K * c->K) * 1e-9;
    for (int i = 0; i < all.count; i++) {
        all.candidate = &all.candidates[i];
        all.desc = desc;
        if (all.candidate->is_fallback)
            continue;
        const double seconds = time_of(&all, &e);
        print_message("%-18s %3d-%-3d %2dx%-2d batch %3d  %-16s %-12s %8.1f us %6.1f GF/s\n",
                      ech__op_name(v->op), (int)c->I, (int)c->O, (int)c->H, (int)c->W, (int)c->N,
                      all.candidate->name,
                      ech__layout_tag(&all.candidate->layouts[ech__weight_operand(v->op)]).s,
                      seconds * 1e6, flops / seconds);
    }
    expectation_fini(&e);
}

static void performance(void **state)
{
    if (!getenv("ECH_PERF"))
        skip();
    static const variant directions[] = {{ECH__OP_CONV2D, true, true},
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
    static setting one = {1, NULL}, two = {2, NULL}, generic = {1, &ech__vec_generic};
    const struct CMUnitTest tests[] = {
        {"shapes", shapes, setup, teardown, &one},
        {"shapes, two threads", shapes, setup, teardown, &two},
        {"shapes, any processor", shapes, setup, teardown, &generic},
        {"widths", widths, setup, teardown, &one},
        {"widths, any processor", widths, setup, teardown, &generic},
        {"networks", networks, setup, teardown, &one},
        {"networks, two threads", networks, setup, teardown, &two},
        {"a NaN stays one", nan_stays, setup, teardown, &one},
        {"a NaN stays one, any processor", nan_stays, setup, teardown, &generic},
        {"refused", refused, setup, teardown, &one},
        {"performance", performance, setup, teardown, &one},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
