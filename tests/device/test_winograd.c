/* Winograd convolutions, straight through their offers, against direct sums in f64.
 *
 * With ECH_PERF=1: the times of ResNet-18's shapes beside the device's other kernels (ECH_BATCH, 64).
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

/* One convolution: x[N,I,H,W] w[O,I,3,3] -> y[N,O,H+2*pad-2,W+2*pad-2] */
typedef struct conv {
    int64_t N, I, O, H, W, pad;
} conv;

static int64_t out_of(const conv *c, int64_t length)
{
    return length + 2 * c->pad - 2;
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
    return image_shape(c->O, c->I, 3, 3);
}

/* ---- what is expected ---- */

/* y and dx are sums over taps of shifted images, dw over images: the three directions in one loop. Arrays in
 * canonical order; what is added to is not NULL. */
static void direct(const conv *c, const double *x, const double *w, const double *dy, double *y,
                   double *dx, double *dw)
{
    const int64_t OH = out_of(c, c->H), OW = out_of(c, c->W);
    for (int64_t n = 0; n < c->N; n++) {
        for (int64_t o = 0; o < c->O; o++) {
            for (int64_t i = 0; i < c->I; i++) {
                const int64_t x_at = (n * c->I + i) * c->H, y_at = (n * c->O + o) * OH;
                for (int64_t kh = 0; kh < 3; kh++) {
                    for (int64_t kw = 0; kw < 3; kw++) {
                        const int64_t w_at = ((o * c->I + i) * 3 + kh) * 3 + kw;
                        double sum = 0;
                        for (int64_t h = 0; h < OH; h++) {
                            const int64_t from_h = h + kh - c->pad;
                            if (from_h < 0 || from_h >= c->H)
                                continue;
                            for (int64_t v = 0; v < OW; v++) {
                                const int64_t from_w = v + kw - c->pad;
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
    ech__winograd_offer(ech__device_state(r->b->device), r->b->device->threads, &r->desc, &offer);
    r->count = offer.count;
    return ECH_OK;
}

static ech_status do_create(void *arg)
{
    kernel_run *r = arg;
    if (r->listed)
        return r->b->device->ops->create(r->b->device, &r->desc, r->candidate, &r->binding,
                                         &r->kernel);
    return ech__winograd_create(r->b->device, &r->desc, r->candidate, &r->binding, &r->kernel);
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
    {ECH__OP_CONV2D, false, true},
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
                                       .kernel = 3,
                                       .stride = 1,
                                       .pad = c->pad,
                                       .channels = c->I,
                                       .height = c->H,
                                       .width = c->W}};
    const ech__shape xs = x_shape(c), ys = y_shape(c), ws = w_shape(c), bs = {1, {c->O}};
    const ech__layout x = ech__layout_blocked_channels(&xs, channels);
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

static bool has_winograd(const bench *b)
{
    return cpu_of(b)->vec != &ech__vec_generic;
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
} expectation;

static expectation expect(const conv *c)
{
    const int64_t places = out_of(c, c->H) * out_of(c, c->W);
    expectation e = {
        .nx = c->N * c->I * c->H * c->W, .ny = c->N * c->O * places, .nw = c->O * c->I * 9};
    e.x = random_data(e.nx, 1);
    e.w = random_data(e.nw, 2);
    e.b = random_data(c->O, 3);
    e.dy = random_data(e.ny, 4);
    e.y = zeros(e.ny);
    e.dx = zeros(e.nx);
    e.dw = zeros(e.nw);
    e.db = zeros(c->O);
    direct(c, e.x, e.w, e.dy, e.y, e.dx, e.dw);
    for (int64_t k = 0; k < e.ny; k++)
        e.db[k / places % c->O] += e.dy[k];
    return e;
}

static void expectation_fini(expectation *e)
{
    double *all[] = {e->x, e->w, e->b, e->dy, e->y, e->dx, e->dw, e->db};
    for (int i = 0; i < LENGTH(all); i++)
        free(all[i]);
}

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

static void check_errors(const kernel_run *r, const conv *c, const char *what, const double *got,
                         const double *right, int64_t count)
{
    const errors e = errors_of(got, right, count);
    worst.norm = fmax(worst.norm, e.norm);
    worst.largest = fmax(worst.largest, e.largest);
    if (!(e.norm <= LIMIT.norm && e.largest <= LIMIT.largest))
        fail_msg("%s N%d I%d O%d %dx%d pad %d weight %s: %s is off by %.2g in norm, %.2g at most",
                 ech__op_name(r->desc.op), (int)c->N, (int)c->I, (int)c->O, (int)c->H, (int)c->W,
                 (int)c->pad,
                 ech__layout_tag(&r->candidate->layouts[ech__weight_operand(r->desc.op)]).s, what,
                 e.norm, e.largest);
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
        memcpy(right, r->desc.op == ECH__OP_CONV2D_BWD_DATA ? e->dx : e->dw,
               (size_t)count * sizeof *right);
    }
    check_errors(r, c, "the result", got, right, count);
    if (r->desc.nout == 2) {
        double *db = zeros(c->O);
        get(r, first + 1, db);
        check_errors(r, c, "the bias gradient", db, e->db, c->O);
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

/* Every direction, with every layout of the weight: those that are offered, and row-major. */
static void check_conv(bench *b, const conv *c)
{
    expectation e = expect(c);
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        kernel_run open = {.b = b, .desc = describe(c, &VARIANTS[v], cpu_of(b)->vec->channels)};
        call(&open, do_offer);
        assert_int_equal(open.count, 2);
        for (int layout = 0; layout < 3; layout++) {
            kernel_run r = {.b = b, .desc = open.desc};
            ech__operand *weight = &r.desc.operands[ech__weight_operand(r.desc.op)];
            weight->free = false;
            if (layout < 2)
                weight->layout = open.candidates[layout].layouts[ech__weight_operand(r.desc.op)];
            call(&r, do_offer);
            assert_int_equal(r.count, 1);
            assert_string_equal(r.candidates[0].name, "winograd");
            r.candidate = &r.candidates[0];
            run_and_check(&r, c, &e);
        }
    }
    expectation_fini(&e);
}

/* ---- tests ---- */

static int open_bench(bench *b, int threads)
{
    const ech__device_options options = {.kind = ECH__DEVICE_CPU, .threads = threads};
    if (ech_ctx_create(NULL, &b->ctx) < 0)
        return -1;
    return ech__device_create(b->ctx, &options, &b->device) < 0 ? -1 : 0;
}

static void close_bench(bench *b)
{
    ech__device_destroy(b->device);
    ech_ctx_destroy(b->ctx);
}

static int setup(void **state)
{
    const int threads = *(const int *)*state;
    bench *b = calloc(1, sizeof *b);
    *state = b;
    return b ? open_bench(b, threads) : -1;
}

static int teardown(void **state)
{
    close_bench(*state);
    free(*state);
    return 0;
}

static void need(const bench *b)
{
    if (!has_winograd(b))
        skip();
}

static void shapes(void **state)
{
    bench *b = *state;
    need(b);
    static const int64_t sizes[][2] = {{1, 1}, {3, 3}, {4, 4}, {5, 7}, {8, 8}, {13, 13}, {32, 32}};
    static const int64_t channels[][2] = {{3, 6},  {6, 3},   {8, 8},   {16, 17}, {17, 16},
                                          {3, 64}, {64, 17}, {24, 40}, {40, 8}};
    for (int s = 0; s < LENGTH(sizes); s++) {
        for (int k = 0; k < LENGTH(channels); k++) {
            const int64_t batch = (s + k) % 2 ? 3 : 1;
            const bool large = sizes[s][0] == 32 && k > 3;
            if (!large)
                check_conv(
                    b, &(conv){batch, channels[k][0], channels[k][1], sizes[s][0], sizes[s][1], 1});
        }
    }
    print_message("largest errors against f64: %.2g in norm, %.2g of the root mean square\n",
                  worst.norm, worst.largest);
    assert_true(b->runs > 0);
}

/* Both ways to cut the work, with more than one chunk of each. */
static void many_tiles(void **state)
{
    need(*state);
    check_conv(*state, &(conv){6, 8, 16, 32, 32, 1});
    check_conv(*state, &(conv){7, 24, 17, 13, 29, 1});
    check_conv(*state, &(conv){5, 64, 96, 8, 8, 1});
    check_conv(*state, &(conv){2, 17, 72, 5, 4, 1});
}

static void other_padding(void **state)
{
    need(*state);
    check_conv(*state, &(conv){2, 8, 17, 3, 3, 0});
    check_conv(*state, &(conv){3, 17, 8, 9, 14, 0});
    check_conv(*state, &(conv){2, 6, 8, 5, 6, 2});
    check_conv(*state, &(conv){1, 8, 8, 1, 1, 2});
}

/* The result of one run, whose memory the caller frees. */
static char *result_of(bench *b, const conv *c, const variant *v, const expectation *e,
                       int64_t *bytes)
{
    kernel_run r = {.b = b, .desc = describe(c, v, cpu_of(b)->vec->channels), .repeats = 1};
    call(&r, do_offer);
    r.candidate = &r.candidates[0];
    prepare(&r);
    load(&r, e);
    call(&r, do_run);
    *bytes = r.bytes[r.desc.nin];
    char *copy = malloc((size_t)*bytes);
    assert_non_null(copy);
    memcpy(copy, r.blocks[r.desc.nin] + GUARD, (size_t)*bytes);
    release(&r);
    return copy;
}

/* No split between threads changes the order of a sum. */
static void same_bits_on_any_threads(void **state)
{
    bench *one = *state;
    need(one);
    static const conv convs[] = {{9, 24, 40, 13, 29, 1}, {3, 72, 56, 8, 8, 1}};
    for (int threads = 2; threads <= 3; threads++) {
        bench other = {.runs = 0};
        assert_int_equal(open_bench(&other, threads), 0);
        for (int s = 0; s < LENGTH(convs); s++) {
            expectation e = expect(&convs[s]);
            for (int v = 0; v < LENGTH(VARIANTS); v++) {
                int64_t bytes;
                char *first = result_of(one, &convs[s], &VARIANTS[v], &e, &bytes);
                char *second = result_of(&other, &convs[s], &VARIANTS[v], &e, &bytes);
                assert_memory_equal(first, second, (size_t)bytes);
                free(first);
                free(second);
            }
            expectation_fini(&e);
        }
        close_bench(&other);
    }
}

/* What no Winograd kernel may be offered for. */
static void refused(void **state)
{
    bench *b = *state;
    need(b);
    const conv c = {2, 8, 8, 8, 8, 1};
    for (int change = 0; change < 5; change++) {
        kernel_run r = {.b = b, .desc = describe(&c, &VARIANTS[0], cpu_of(b)->vec->channels)};
        ech__operand *x = &r.desc.operands[0], *w = &r.desc.operands[1];
        if (change == 0)
            r.desc.attrs.stride = 2;
        if (change == 1)
            r.desc.attrs.kernel = 1;
        if (change == 2)
            x->layout = ech__layout_plain(&x->layout.shape);
        if (change == 3) {
            w->free = false;
            w->layout.strides[2] = 1;
            w->layout.strides[3] = 3;
        }
        if (change == 4)
            x->dtype = ECH_BF16;
        call(&r, do_offer);
        assert_int_equal(r.count, 0);
    }
}

/* The least error of the device's other kernels; infinite where there is none. */
static errors other_errors(bench *b, const ech__kernel_desc *desc, const expectation *e)
{
    errors best = {INFINITY, INFINITY};
    kernel_run r = {.b = b, .listed = true, .repeats = 1};
    assert_int_equal(b->device->ops->candidates(b->device, desc, r.candidates, &r.count), ECH_OK);
    const double *right = desc->op == ECH__OP_CONV2D            ? e->y
                          : desc->op == ECH__OP_CONV2D_BWD_DATA ? e->dx
                                                                : e->dw;
    for (int i = 0; i < r.count; i++) {
        r.candidate = &r.candidates[i];
        if (!strcmp(r.candidate->name, "winograd") || r.candidate->is_fallback)
            continue;
        r.desc = *desc;
        prepare(&r);
        load(&r, e);
        call(&r, do_run);
        const int64_t count = elems_of(&r.candidate->layouts[desc->nin]);
        double *got = zeros(count);
        get(&r, desc->nin, got);
        const errors found = errors_of(got, right, count);
        best = found.norm < best.norm ? found : best;
        free(got);
        release(&r);
    }
    return best;
}

/* ResNet-18's shapes. */
static void accuracy(void **state)
{
    bench *b = *state;
    need(b);
    static const conv convs[] = {{1, 64, 64, 32, 32, 1},
                                 {1, 128, 128, 16, 16, 1},
                                 {2, 256, 256, 8, 8, 1},
                                 {4, 512, 512, 4, 4, 1}};
    for (int s = 0; s < LENGTH(convs); s++) {
        const conv *c = &convs[s];
        expectation e = expect(c);
        for (int v = 0; v < LENGTH(VARIANTS); v++) {
            if (VARIANTS[v].bias || VARIANTS[v].relu)
                continue;
            kernel_run r = {.b = b, .desc = describe(c, &VARIANTS[v], cpu_of(b)->vec->channels)};
            const ech__kernel_desc desc = r.desc;
            call(&r, do_offer);
            r.candidate = &r.candidates[0];
            worst = (errors){0, 0};
            run_and_check(&r, c, &e);
            const errors other = other_errors(b, &desc, &e);
            print_message("%-18s %3dch %2dx%-2d  error against f64: %.1e in norm, %.1e at most; "
                          "other kernels %.1e, %.1e\n",
                          ech__op_name(desc.op), (int)c->I, (int)c->H, (int)c->W, worst.norm,
                          worst.largest, other.norm, other.largest);
        }
        expectation_fini(&e);
    }
}

/* ---- performance ---- */

/* The best of many runs on random data, on one thread: other work on the machine only makes it slower. */
static double time_of(kernel_run *r, const expectation *e)
{
    prepare(r);
    load(r, e);
    r->repeats = 2;
    call(r, do_run);
    const int rounds = (int)fmin(fmax(0.4 / r->best, 3), 200);
    r->repeats = rounds;
    call(r, do_run);
    release(r);
    return r->best;
}

static void measure(bench *b, const conv *c, const variant *v, double totals[2])
{
    expectation e = {
        .nx = c->N * c->I * c->H * c->W, .ny = c->N * c->O * c->H * c->W, .nw = c->O * c->I * 9};
    e.x = random_data(e.nx, 1);
    e.w = random_data(e.nw, 2);
    e.dy = random_data(e.ny, 4);
    kernel_run r = {.b = b, .desc = describe(c, v, cpu_of(b)->vec->channels)};
    const ech__kernel_desc desc = r.desc;
    call(&r, do_offer);
    r.candidate = &r.candidates[0];
    const double ours = time_of(&r, &e);
    kernel_run other = {.b = b, .desc = desc, .listed = true};
    assert_int_equal(b->device->ops->candidates(b->device, &desc, other.candidates, &other.count),
                     ECH_OK);
    double best = INFINITY;
    const char *name = "nothing else";
    for (int i = 0; i < other.count; i++) {
        other.candidate = &other.candidates[i];
        if (!strcmp(other.candidate->name, "winograd") || other.candidate->is_fallback)
            continue;
        other.desc = desc;
        const double seconds = time_of(&other, &e);
        if (seconds < best) {
            best = seconds;
            name = other.candidate->name;
        }
    }
    const double flops = 18.0 * (double)(e.ny * c->I) * 1e-9;
    print_message("%-18s %3dch %2dx%-2d  winograd %7.2f ms %4.0f GF/s  %-14s %7.2f ms %4.0f GF/s  "
                  "%.2fx  %5.1f MB\n",
                  ech__op_name(v->op), (int)c->I, (int)c->H, (int)c->W, ours * 1e3, flops / ours,
                  name, best * 1e3, flops / best, best / ours,
                  (double)r.candidate->scratch_bytes * 1e-6);
    totals[0] += ours;
    totals[1] += best;
    expectation_fini(&e);
}

static void performance(void **state)
{
    bench *b = *state;
    need(b);
    if (!getenv("ECH_PERF"))
        skip();
    const char *given = getenv("ECH_BATCH");
    const int64_t batch = given ? strtoll(given, NULL, 10) : 64;
    double totals[2] = {0};
    static const variant directions[] = {{ECH__OP_CONV2D, false, false},
                                         {ECH__OP_CONV2D_BWD_DATA, false, false},
                                         {ECH__OP_CONV2D_BWD_WEIGHTS, false, false}};
    for (int d = 0; d < LENGTH(directions); d++) {
        for (int64_t c = 64, side = 32; c <= 512; c *= 2, side /= 2)
            measure(b, &(conv){batch, c, c, side, side, 1}, &directions[d], totals);
    }
    print_message("sums: winograd %.1f ms, other kernels %.1f ms: %.2fx\n", totals[0] * 1e3,
                  totals[1] * 1e3, totals[1] / totals[0]);
}

int main(void)
{
    static int one = 1, two = 2;
    const struct CMUnitTest tests[] = {
        {"shapes", shapes, setup, teardown, &one},
        {"shapes, two threads", shapes, setup, teardown, &two},
        {"many tiles", many_tiles, setup, teardown, &one},
        {"many tiles, two threads", many_tiles, setup, teardown, &two},
        {"other padding", other_padding, setup, teardown, &one},
        {"same bits on any threads", same_bits_on_any_threads, setup, teardown, &one},
        {"refused", refused, setup, teardown, &one},
        {"accuracy", accuracy, setup, teardown, &one},
        {"performance", performance, setup, teardown, &one},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
