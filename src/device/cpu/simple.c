/* Elementwise operators, losses and optimizers, over the loops of vec.h. Work is cut into blocks
 * of a fixed size, so the bits do not depend on the number of threads. What flows may be of 16
 * bits: it is computed in f32, a block at a time. */
#include "base/system/clock.h"
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/port.h"

#include <math.h>
#include <omp.h>
#include <string.h>

typedef struct simple_kernel simple_kernel;

struct simple_kernel {
    ech__kernel base;
    const ech__vec *vec;
    void (*fn)(const simple_kernel *k);
    const ech__scalars *scalars; /* of the run in hand */
    ech__attrs attrs;
    int nin;
    bool has_labels;    /* as the second operand */
    int64_t n;          /* elements of the first operand, padding included */
    int64_t rows, cols; /* of the first operand: its last dimension, and all others */
    int64_t row_step;   /* cols where the second operand is one row only, else 0 */
    void *at[ECH__MAX_OPERANDS];
    ech__ports ports;
    void *scratch;
    void *copy; /* of an optimizer's parameter, in 16 bits; NULL: none */
    ech_dtype copy_type;
};

enum { BLOCK = ECH__SUM_BLOCK, PIECE = 1024 };

/* The block in hand of an operand. */
#define IN(i) ech__port_in(&k->ports, i, first, count)
#define OUT(i) ech__port_out(&k->ports, i, first)
#define DONE(i) ech__port_done(&k->ports, i, first, count)

static int64_t blocks_of(int64_t n)
{
    return n / BLOCK + (n % BLOCK != 0);
}

/* Runs body with first and count set to each block of size_ in turn; threads take neighbouring
 * blocks. */
#define FOR_SIZED_BLOCKS(k, n_, size_, body)                                                       \
    do {                                                                                           \
        const int64_t total_ = (n_), nblocks_ = total_ / (size_) + (total_ % (size_) != 0);        \
        _Pragma("omp parallel for schedule(static) num_threads((k)->base.device->threads)") for (  \
            int64_t block = 0; block < nblocks_; block++)                                          \
        {                                                                                          \
            const int64_t first = block * (size_);                                                 \
            const int64_t count = total_ - first < (size_) ? total_ - first : (size_);             \
            body;                                                                                  \
        }                                                                                          \
    } while (0)
#define FOR_BLOCKS(k, n_, body) FOR_SIZED_BLOCKS(k, n_, BLOCK, body)
/* What is elementwise goes in smaller ones, so that all operands of one are in the nearest cache
 * at a time. */
#define FOR_PIECES(k, n_, body) FOR_SIZED_BLOCKS(k, n_, PIECE, body)

static void run_add(const simple_kernel *k)
{
    if (!k->row_step) {
        FOR_PIECES(k, k->n, {
            k->vec->add(count, IN(0), IN(1), OUT(2));
            DONE(2);
        });
        return;
    }
    const float *a = k->at[0], *b = k->at[1];
    float *y = k->at[2];
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t row = 0; row < k->rows; row++)
        k->vec->add(k->cols, a + row * k->cols, b, y + row * k->cols);
}

static void run_sum_rows(const simple_kernel *k)
{
    const float *a = k->at[0];
    float *sums = k->at[1];
    FOR_BLOCKS(k, k->cols, {
        for (int64_t c = first; c < first + count; c++)
            sums[c] = 0;
        for (int64_t row = 0; row < k->rows; row++)
            k->vec->add(count, sums + first, a + row * k->cols + first, sums + first);
    });
}

static void run_relu(const simple_kernel *k)
{
    FOR_PIECES(k, k->n, {
        k->vec->relu(count, IN(0), OUT(1));
        DONE(1);
    });
}

/* dy y -> dx */
static void run_relu_bwd(const simple_kernel *k)
{
    FOR_PIECES(k, k->n, {
        k->vec->relu_bwd(count, IN(0), IN(1), OUT(2));
        DONE(2);
    });
}

static void run_mse(const simple_kernel *k)
{
    float *loss = k->at[2];
    double *sums = k->scratch, sum = 0;
    FOR_BLOCKS(k, k->n, sums[block] = k->vec->square_error(count, IN(0), IN(1)));
    for (int64_t block = 0; block < blocks_of(k->n); block++)
        sum += sums[block];
    *loss = (float)(sum / (double)k->n);
}

static void run_mse_bwd(const simple_kernel *k)
{
    const float scale = (float)(2.0 * k->scalars->loss_scale / (double)k->n);
    FOR_PIECES(k, k->n, {
        k->vec->scaled_difference(count, scale, IN(0), IN(1), OUT(2));
        DONE(2);
    });
}

static float largest(const float *row, int64_t n)
{
    float max = row[0];
    for (int64_t c = 1; c < n; c++)
        max = row[c] > max ? row[c] : max;
    return max;
}

static double sum_of_exp(const float *row, int64_t n, float max)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += exp((double)row[c] - (double)max);
    return sum;
}

static void run_cross_entropy(const simple_kernel *k)
{
    const float *logits = k->at[0];
    const int32_t *labels = k->at[1];
    float *loss = k->at[2];
    double *losses = k->scratch, sum = 0;
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t n = 0; n < k->rows; n++) {
        const float *row = logits + n * k->cols;
        const float max = largest(row, k->cols);
        losses[n] = log(sum_of_exp(row, k->cols, max)) + (double)max - (double)row[labels[n]];
    }
    for (int64_t n = 0; n < k->rows; n++)
        sum += losses[n];
    *loss = (float)(sum / (double)k->rows);
}

static void run_cross_entropy_bwd(const simple_kernel *k)
{
    const float *logits = k->at[0];
    const int32_t *labels = k->at[1];
    float *d = k->at[2];
    const double scale = k->scalars->loss_scale / (double)k->rows;
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t n = 0; n < k->rows; n++) {
        const float *row = logits + n * k->cols;
        const float max = largest(row, k->cols);
        const double sum = sum_of_exp(row, k->cols, max);
        for (int64_t c = 0; c < k->cols; c++) {
            const double p = exp((double)row[c] - (double)max) / sum;
            d[n * k->cols + c] = (float)(scale * (p - (c == labels[n] ? 1.0 : 0.0)));
        }
    }
}

static void run_count_correct(const simple_kernel *k)
{
    const float *logits = k->at[0];
    const int32_t *labels = k->at[1];
    float *correct = k->at[2];
    int64_t count = 0;
    for (int64_t n = 0; n < k->rows; n++) {
        const float *row = logits + n * k->cols;
        int64_t best = 0; /* the first of equals; a NaN counts as the largest, as in PyTorch */
        for (int64_t c = 1; c < k->cols; c++)
            best = row[c] > row[best] || (isnan(row[c]) && !isnan(row[best])) ? c : best;
        count += best == labels[n];
    }
    *correct = (float)count;
}

static ech__sgd_rule sgd_rule(const simple_kernel *k, const ech__scalars *scalars)
{
    return (ech__sgd_rule){.factor = (float)scalars->grad_factor,
                           .lr = (float)scalars->lr,
                           .momentum = (float)k->attrs.momentum,
                           .weight_decay = (float)k->attrs.weight_decay,
                           .nesterov = k->attrs.nesterov};
}

/* What the optimizer has just changed, while it is in the cache. */
static void refresh_copy(const simple_kernel *k, int64_t first, int64_t count)
{
    if (k->copy)
        k->vec->narrow(k->copy_type, count, (const float *)k->at[0] + first,
                       (uint16_t *)k->copy + first);
}

static ech__adam_rule adam_rule(const simple_kernel *k, const ech__scalars *scalars)
{
    const ech__attrs *a = &k->attrs;
    const double t = (double)scalars->step;
    return (ech__adam_rule){.factor = (float)scalars->grad_factor,
                            .step_size = (float)(scalars->lr / (1 - pow(a->beta1, t))),
                            .root_correction = (float)sqrt(1 - pow(a->beta2, t)),
                            .shrink =
                                a->decoupled ? (float)(1 - scalars->lr * a->weight_decay) : 1.0f,
                            .beta1 = (float)a->beta1,
                            .beta2 = (float)a->beta2,
                            .rest1 = (float)(1 - a->beta1),
                            .rest2 = (float)(1 - a->beta2),
                            .epsilon = (float)a->epsilon,
                            .weight_decay = a->decoupled ? 0.0f : (float)a->weight_decay};
}

/* Of the one or the other optimizer. */
typedef struct update_rule {
    bool is_adam;
    ech__sgd_rule sgd;
    ech__adam_rule adam;
} update_rule;

static update_rule rule_of(const simple_kernel *k, const ech__scalars *scalars)
{
    if (k->nin == 4)
        return (update_rule){.is_adam = true, .adam = adam_rule(k, scalars)};
    return (update_rule){.sgd = sgd_rule(k, scalars)};
}

/* A chunk of the parameter, with its part of the gradient. */
static void update(const simple_kernel *k, const update_rule *rule, int64_t first, int64_t count,
                   const float *g)
{
    float *p = (float *)k->at[0] + first, *state = k->nin > 2 ? (float *)k->at[2] + first : NULL;
    if (rule->is_adam)
        k->vec->adam(count, &rule->adam, g, p, state, (float *)k->at[3] + first);
    else if (state)
        k->vec->sgd_momentum(count, &rule->sgd, g, p, state);
    else
        k->vec->sgd(count, &rule->sgd, g, p);
}

static void run_update(const simple_kernel *k)
{
    const update_rule rule = rule_of(k, k->scalars);
    const float *g = k->at[1];
    FOR_BLOCKS(k, k->n, {
        update(k, &rule, first, count, g + first);
        refresh_copy(k, first, count);
    });
}

/* A chunk of an update, with the gradient at another address. */
static ech_status run_part(ech__kernel *base, const ech__scalars *scalars, int64_t first,
                           int64_t count, const void *gradient)
{
    const simple_kernel *k = (const simple_kernel *)base;
    const update_rule rule = rule_of(k, scalars);
    update(k, &rule, first, count, gradient);
    return ECH_OK;
}

/* g = g + part, or fresh: term + ... + (term + part); the later micro-step stands on the right. */
static void run_accumulate(const simple_kernel *k)
{
    float *g = k->at[0];
    const float *part = k->at[1];
    const bool fresh = k->attrs.fresh;
    FOR_BLOCKS(k, k->n, {
        const float *sum = part + first;
        for (int i = 2; i < k->nin; i++, sum = g + first)
            k->vec->add(count, (const float *)k->at[i] + first, sum, g + first);
        if (!fresh)
            k->vec->add(count, g + first, sum, g + first);
        else if (sum == part + first)
            memcpy(g + first, sum, (size_t)count * sizeof *g);
    });
}

/* Blocks are added up in their order. */
static void run_grad_stats(const simple_kernel *k)
{
    const float *g = k->at[0];
    double *stats = k->at[1], (*parts)[ECH__GRAD_STATS] = k->scratch;
    FOR_BLOCKS(k, k->n, k->vec->grad_stats(count, g + first, parts[block]));
    for (int i = 0; i < ECH__GRAD_STATS; i++)
        stats[i] = 0;
    for (int64_t block = 0; block < blocks_of(k->n); block++) {
        const double *part = parts[block];
        stats[ECH__GRAD_SQUARES] += part[ECH__GRAD_SQUARES];
        stats[ECH__GRAD_BROKEN] += part[ECH__GRAD_BROKEN];
        if (part[ECH__GRAD_LARGEST] > stats[ECH__GRAD_LARGEST])
            stats[ECH__GRAD_LARGEST] = part[ECH__GRAD_LARGEST];
    }
}

static void run_to_bf16(const simple_kernel *k)
{
    uint16_t *to = k->at[0];
    const float *from = k->at[1];
    FOR_BLOCKS(k, k->n, k->vec->narrow(ECH_BF16, count, from + first, to + first));
}

static void run_from_bf16(const simple_kernel *k)
{
    float *to = k->at[0];
    const uint16_t *from = k->at[1];
    FOR_BLOCKS(k, k->n, k->vec->widen(ECH_BF16, count, from + first, to + first));
}

static void run_delay(const simple_kernel *k)
{
    ech__clock_sleep(k->attrs.seconds);
}

typedef void (*simple_fn)(const simple_kernel *k);

static const simple_fn functions[ECH__OP_COUNT] = {
    [ECH__OP_ADD] = run_add,
    [ECH__OP_SUM_ROWS] = run_sum_rows,
    [ECH__OP_RELU] = run_relu,
    [ECH__OP_RELU_BWD] = run_relu_bwd,
    [ECH__OP_MSE] = run_mse,
    [ECH__OP_MSE_BWD] = run_mse_bwd,
    [ECH__OP_CROSS_ENTROPY] = run_cross_entropy,
    [ECH__OP_CROSS_ENTROPY_BWD] = run_cross_entropy_bwd,
    [ECH__OP_COUNT_CORRECT] = run_count_correct,
    [ECH__OP_SGD] = run_update,
    [ECH__OP_ADAM] = run_update,
    [ECH__OP_ACCUMULATE] = run_accumulate,
    [ECH__OP_GRAD_STATS] = run_grad_stats,
    [ECH__OP_DELAY] = run_delay,
};

/* ---- offering and creating ---- */

static bool is_conversion(const ech__kernel_desc *desc)
{
    const ech_dtype to = desc->operands[0].dtype, from = desc->operands[1].dtype;
    return (to == ECH_BF16 && from == ECH_F32) || (to == ECH_F32 && from == ECH_BF16);
}

/* Whether these operators work block by block, so that what flows may be of 16 bits. */
static bool takes_low(const ech__kernel_desc *desc)
{
    switch (desc->op) {
    case ECH__OP_ADD: /* of a row to each row: it is cut otherwise */
        return desc->operands[0].layout.shape.ndims == desc->operands[1].layout.shape.ndims;
    case ECH__OP_RELU:
    case ECH__OP_RELU_BWD:
    case ECH__OP_MSE:
    case ECH__OP_MSE_BWD:
        return true;
    default:
        return false;
    }
}

/* NULL where there is none for these types. */
static simple_fn function_of(const ech__kernel_desc *desc)
{
    const ech_dtype first = desc->nin ? desc->operands[0].dtype : ECH_F32;
    if (desc->op == ECH__OP_CONVERT)
        return !is_conversion(desc) ? NULL : first == ECH_BF16 ? run_to_bf16 : run_from_bf16;
    const bool low = ech__dtype_is_low(first) && takes_low(desc);
    return first == ECH_F32 || low ? functions[desc->op] : NULL;
}

static int64_t elements(const ech__kernel_desc *desc)
{
    int64_t n = 0;
    if (desc->nin)
        ech__layout_extent(&desc->operands[0].layout, &n);
    return n;
}

/* One partial sum for each block or row; a multiple of what slots are aligned to. */
static int64_t sums_bytes(const ech__kernel_desc *desc)
{
    int64_t sums = 0;
    if (desc->op == ECH__OP_MSE)
        sums = blocks_of(elements(desc));
    else if (desc->op == ECH__OP_GRAD_STATS)
        sums = blocks_of(elements(desc)) * ECH__GRAD_STATS;
    else if (desc->op == ECH__OP_CROSS_ENTROPY)
        sums = desc->operands[0].layout.shape.dims[0];
    return ech__round_up(sums * (int64_t)sizeof(double), 64);
}

static bool all_plain(const ech__kernel_desc *desc)
{
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        if (!desc->operands[i].free && !ech__layout_is_plain(&desc->operands[i].layout))
            return false;
    }
    return true;
}

/* Padding holds zeros, and what is elementwise keeps them. */
static bool all_alike(const ech__kernel_desc *desc)
{
    if (desc->op != ECH__OP_ADD && desc->op != ECH__OP_RELU && desc->op != ECH__OP_RELU_BWD)
        return false;
    for (int i = 1; i < desc->nin + desc->nout; i++) {
        if (!ech__layout_equal(&desc->operands[i].layout, &desc->operands[0].layout))
            return false;
    }
    return true;
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    simple_kernel *k = (simple_kernel *)base;
    if (k->has_labels)
        ECH_TRY(ech__check_labels(base->device, k->at[1], k->rows, k->cols));
    k->scalars = scalars;
    k->fn(k);
    return ECH_OK;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const ech__loops *loops = ech__cpu_of(args->device)->loops;
    const ech__shape *shape = &args->desc->operands[0].layout.shape;
    const bool updates = args->desc->op == ECH__OP_SGD || args->desc->op == ECH__OP_ADAM;
    simple_kernel k = {
        .base = {.run = run, .run_part = updates ? run_part : NULL},
        .vec = loops->vec,
        .fn = function_of(args->desc),
        .attrs = args->desc->attrs,
        .nin = args->desc->nin,
        .has_labels = ech__has_labels(args->desc),
        .n = elements(args->desc),
        .cols = args->desc->nin && shape->ndims ? shape->dims[shape->ndims - 1] : 1,
        .scratch = args->binding->scratch,
        .copy = args->binding->copy,
        .copy_type = args->binding->copy_type,
        .ports = ech__ports_of(loops->vec, args->desc, BLOCK),
    };
    k.rows = k.cols ? k.n / k.cols : 0;
    if (args->desc->op == ECH__OP_ADD && args->desc->operands[1].layout.shape.ndims != shape->ndims)
        k.row_step = k.cols;
    ech__ports_bind(&k.ports, args->desc, args->binding,
                    (char *)args->binding->scratch + sums_bytes(args->desc));
    memcpy(k.at, args->binding->operands, sizeof k.at);
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__simple_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    if (!function_of(desc))
        return;
    if (!ech__op_info(desc->op)->flat && !all_plain(desc) && !all_alike(desc))
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "loops", create_kernel);
    if (!candidate)
        return;
    const ech__ports ports = ech__ports_of(offer->cpu->loops->vec, desc, BLOCK);
    const bool slots = takes_low(desc);
    candidate->scratch_bytes =
        sums_bytes(desc) + (slots ? ech__ports_bytes(&ports, offer->device->threads) : 0);
}
