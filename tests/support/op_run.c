#include "support/op_run.h"
#include "base/rng.h"
#include "base/size.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 192, GUARD_BYTE = 0xa5 };

int op_operands(const ech__kernel_desc *desc)
{
    return desc->nin + desc->nout;
}

/* "linear f32 [7, 3].ab [5, 3].AB16b64a [7, 5].ab, onednn:brgemm" */
const char *op_describe(const ech__kernel_desc *desc, const ech__candidate *candidate, char *out)
{
    size_t used = (size_t)snprintf(out, OP_TEXT, "%s%s", ech__op_name(desc->op),
                                   desc->attrs.relu ? "+relu" : "");
    for (int i = 0; i < op_operands(desc) && used < OP_TEXT; i++)
        used += (size_t)snprintf(out + used, OP_TEXT - used, " %s%s.%s",
                                 ech__dtype_name(desc->operands[i].dtype),
                                 ech__shape_format(&desc->operands[i].layout.shape).s,
                                 ech__layout_tag(&desc->operands[i].layout).s);
    if (used < OP_TEXT)
        snprintf(out + used, OP_TEXT - used, ", %s", candidate ? candidate->name : "no candidate");
    return out;
}

/* ---- data ---- */

static bool is_mean_of_squares(ech__op op, int i)
{
    return (op == ECH__OP_ADAM && i == 3) || (op == ECH__OP_BN_APPLY && i == 2) ||
           (op == ECH__OP_BN_RUNNING && (i == 1 || i == 3)) ||
           ((op == ECH__OP_BN_REDUCE || op == ECH__OP_BN_BWD_DATA) && i == 3);
}

bool op_is_integer(ech__op op)
{
    switch (op) {
    case ECH__OP_QUANTIZE:
    case ECH__OP_DEQUANTIZE:
    case ECH__OP_QLINEAR:
    case ECH__OP_QCONV2D:
    case ECH__OP_QADD:
    case ECH__OP_QMAXPOOL2D:
    case ECH__OP_QAVGPOOL2D:
    case ECH__OP_QFLATTEN:
    case ECH__OP_ROUND:
        return true;
    default:
        return false;
    }
}

/* All of a type's range, biases of the size of sums, and scales that leave some results inside of a range and some
 * beyond it. With exact data scales are powers of two, so that halves are met and must go to the even side. */
static double integer_element(const op_case *c, int i, data_kind kind, double u)
{
    const bool vector = c->desc.operands[i].layout.shape.ndims == 1;
    switch (c->desc.operands[i].dtype) {
    case ECH_S8:
        return floor(u * 256) - 128;
    case ECH_U8:
        return floor(u * 256);
    case ECH_S32:
        return floor((u - 0.5) * 40000);
    default:
        break;
    }
    if (c->desc.op == ECH__OP_ROUND && vector)
        return kind == DATA_EXACT ? 4 : (double)(float)(u * 200);
    if (vector)
        return kind == DATA_EXACT ? 0x1p-6 : (double)(float)(u * 0.01);
    if (c->desc.op == ECH__OP_QADD) /* whole numbers */
        return floor(u * 256) - 128;
    return kind == DATA_EXACT ? floor(u * 65) / 8 - 4 : (double)(float)(u * 2 - 1);
}

/* The nearest number that the type has. */
static double rounded(ech_dtype dtype, double x)
{
    float f32 = (float)x;
    uint16_t low;
    if (ech__dtype_is_low(dtype)) {
        ech__narrow(dtype, 1, &f32, &low);
        ech__widen(dtype, 1, &low, &f32);
    }
    return (double)f32;
}

static double element(const op_case *c, int i, data_kind kind, double u)
{
    if (op_is_integer(c->desc.op))
        return integer_element(c, i, kind, u);
    if (c->desc.operands[i].dtype == ECH_S32) /* labels[N] of logits[N,C] */
        return floor(u * (double)c->desc.operands[0].layout.shape.dims[1]);
    if (c->desc.operands[i].dtype == ECH_U8) /* places in a window */
        return floor(u * (double)(c->desc.attrs.kernel * c->desc.attrs.kernel));
    const double x =
        kind == DATA_EXACT ? floor(u * 17) / 8 - 1 : rounded(c->desc.operands[i].dtype, u * 2 - 1);
    if (!is_mean_of_squares(c->desc.op, i))
        return x;
    return c->desc.op == ECH__OP_ADAM ? fabs(x) : fabs(x) + 0.125; /* a variance is divided by */
}

op_data op_data_create(const op_case *c, data_kind kind, uint64_t seed)
{
    op_data data = {.count = op_operands(&c->desc)};
    for (int i = 0; i < data.count; i++) {
        assert_true(ech__shape_elems(&c->desc.operands[i].layout.shape, &data.elems[i]));
        data.at[i] = malloc((size_t)data.elems[i] * sizeof(double));
        assert_non_null(data.at[i]);
        for (int64_t k = 0; k < data.elems[i]; k++)
            data.at[i][k] =
                i < c->desc.nin
                    ? element(c, i, kind, (double)ech__rng_uniform(seed, (uint64_t)i, (uint64_t)k))
                    : (double)NAN;
    }
    return data;
}

op_data op_data_copy(const op_data *from)
{
    op_data data = *from;
    for (int i = 0; i < data.count; i++) {
        data.at[i] = malloc((size_t)data.elems[i] * sizeof(double));
        assert_non_null(data.at[i]);
        memcpy(data.at[i], from->at[i], (size_t)data.elems[i] * sizeof(double));
    }
    return data;
}

void op_data_destroy(op_data *data)
{
    for (int i = 0; i < data->count; i++)
        free(data->at[i]);
    data->count = 0;
}

static void to_memory(const ech__operand *to, const double *data, int64_t elems, void *memory)
{
    const int64_t bytes = ech__dtype_bytes(to->dtype);
    char *canonical = malloc((size_t)(elems * bytes));
    assert_non_null(canonical);
    for (int64_t k = 0; k < elems; k++) {
        const float f32 = (float)data[k];
        const int32_t s32 = to->dtype == ECH_S32 && !isnan(data[k]) ? (int32_t)data[k] : 0;
        const uint8_t u8 = to->dtype == ECH_U8 && !isnan(data[k]) ? (uint8_t)data[k] : UINT8_MAX;
        const int8_t s8 = to->dtype == ECH_S8 && !isnan(data[k]) ? (int8_t)data[k] : INT8_MIN;
        uint16_t low = 0;
        if (ech__dtype_is_low(to->dtype))
            ech__narrow(to->dtype, 1, &f32, &low);
        const void *from = to->dtype == ECH_F64           ? (const void *)&data[k]
                           : ech__dtype_is_low(to->dtype) ? (const void *)&low
                           : to->dtype == ECH_F32         ? (const void *)&f32
                           : to->dtype == ECH_S8          ? (const void *)&s8
                           : to->dtype == ECH_U8          ? (const void *)&u8
                                                          : (const void *)&s32;
        memcpy(canonical + k * bytes, from, (size_t)bytes);
    }
    ech__layout_scatter(&to->layout, bytes, 0, elems, canonical, memory);
    free(canonical);
}

static double to_double(ech_dtype dtype, const void *at)
{
    float f32;
    int32_t s32;
    uint8_t u8;
    int8_t s8;
    double f64;
    if (ech__dtype_is_low(dtype)) {
        ech__widen(dtype, 1, at, &f32);
        return (double)f32;
    }
    switch (dtype) {
    case ECH_F32:
        memcpy(&f32, at, sizeof f32);
        return (double)f32;
    case ECH_S32:
        memcpy(&s32, at, sizeof s32);
        return s32;
    case ECH_U8:
        memcpy(&u8, at, sizeof u8);
        return u8;
    case ECH_S8:
        memcpy(&s8, at, sizeof s8);
        return s8;
    default:
        assert_int_equal(dtype, ECH_F64);
        memcpy(&f64, at, sizeof f64);
        return f64;
    }
}

static void from_memory(const ech__operand *from, const void *memory, int64_t elems, double *data)
{
    const int64_t bytes = ech__dtype_bytes(from->dtype);
    char *canonical = malloc((size_t)(elems * bytes));
    assert_non_null(canonical);
    ech__layout_gather(&from->layout, bytes, 0, elems, memory, canonical);
    for (int64_t k = 0; k < elems; k++)
        data[k] = to_double(from->dtype, canonical + k * bytes);
    free(canonical);
}

/* ---- memory between guards ---- */

/* On an odd multiple of 64 bytes, which is all that a kernel may rely on. */
static guarded guarded_create(int64_t bytes, int fill)
{
    const size_t total = (size_t)ech__round_up(bytes + 2 * GUARD, 128);
    guarded g = {.block = aligned_alloc(128, total), .bytes = bytes};
    assert_non_null(g.block);
    memset(g.block, GUARD_BYTE, total);
    g.data = g.block + GUARD;
    memset(g.data, fill, (size_t)bytes);
    return g;
}

static bool guards_hold(const guarded *g)
{
    for (int k = 0; k < GUARD; k++) {
        if ((unsigned char)g->block[k] != GUARD_BYTE ||
            (unsigned char)g->data[g->bytes + k] != GUARD_BYTE)
            return false;
    }
    return true;
}

/* ---- one kernel ---- */

int64_t op_bytes(const ech__operand *o)
{
    int64_t extent;
    assert_true(ech__layout_extent(&o->layout, &extent));
    return extent * ech__dtype_bytes(o->dtype);
}

op_kernel op_kernel_create(ech__device *device, const op_case *c, const ech__candidate *candidate,
                           bool in_place)
{
    op_kernel p = {.device = device, .c = c, .candidate = *candidate, .reused = -1};
    if (in_place)
        p.reused = ech__op_info(c->desc.op)->reuses;
    ech__binding binding = {.scratch = NULL};
    for (int i = 0; i < op_operands(&c->desc); i++) {
        p.operand[i] = guarded_create(op_bytes(&c->desc.operands[i]), 0);
        binding.operands[i] = p.operand[i].data;
    }
    if (p.reused >= 0)
        binding.operands[c->desc.nin] = p.operand[p.reused].data;
    p.scratch = guarded_create(candidate->scratch_bytes, 0xff);
    if (candidate->scratch_bytes)
        binding.scratch = p.scratch.data;
    p.kept = guarded_create(candidate->kept_bytes, 0xff);
    if (candidate->kept_bytes)
        binding.kept = p.kept.data;
    char text[OP_TEXT];
    if (device->ops->create(&(ech__kernel_args){device, &c->desc, &p.candidate, &binding},
                            &p.kernel) < 0)
        fail_msg("%s: %s", op_describe(&c->desc, candidate, text), ech_ctx_error(device->ctx));
    return p;
}

static ech_status destroy_kernel(void *arg)
{
    op_kernel *p = arg;
    p->kernel->destroy(p->kernel);
    return ECH_OK;
}

void op_kernel_destroy(op_kernel *p)
{
    p->device->ops->call(p->device, destroy_kernel, p);
    for (int i = 0; i < op_operands(&p->c->desc); i++)
        free(p->operand[i].block);
    free(p->scratch.block);
    free(p->kept.block);
}

static bool shares(const op_kernel *p, int i)
{
    return p->reused >= 0 && i == p->c->desc.nin;
}

void op_kernel_load(op_kernel *p, const op_data *data)
{
    for (int i = 0; i < data->count; i++) {
        if (!shares(p, i))
            to_memory(&p->c->desc.operands[i], data->at[i], data->elems[i], p->operand[i].data);
    }
    memset(p->scratch.data, 0xff, (size_t)p->scratch.bytes);
    memset(p->kept.data, 0xff, (size_t)p->kept.bytes);
}

ech_status op_kernel_run(void *arg)
{
    op_kernel *p = arg;
    if (p->kernel->prepare)
        ECH_TRY(p->kernel->prepare(p->kernel));
    return p->kernel->run(p->kernel, &p->c->scalars);
}

/* Every element that holds no data must still be zero. */
static bool padding_is_zero(const ech__operand *o, const guarded *g, int64_t elems)
{
    const int64_t bytes = ech__dtype_bytes(o->dtype);
    char *copy = malloc((size_t)g->bytes), *zeros = calloc((size_t)elems, (size_t)bytes);
    assert_true(copy && zeros);
    memcpy(copy, g->data, (size_t)g->bytes);
    ech__layout_scatter(&o->layout, bytes, 0, elems, zeros, copy);
    bool all = true;
    for (int64_t k = 0; k < g->bytes; k += bytes)
        all &= to_double(o->dtype, copy + k) == 0;
    free(copy);
    free(zeros);
    return all;
}

static bool inputs_are_finite(const op_kernel *p, const op_data *data)
{
    bool all = true;
    for (int i = 0; i < p->c->desc.nin; i++) {
        for (int64_t k = 0; k < data->elems[i]; k++)
            all &= isfinite(data->at[i][k]) != 0;
    }
    return all;
}

void op_kernel_check(const op_kernel *p, const op_data *data)
{
    char text[OP_TEXT];
    op_describe(&p->c->desc, &p->candidate, text);
    const unsigned changes = ech__op_info(p->c->desc.op)->changes;
    /* A NaN times the zeros of a weight's padding is a NaN. */
    const bool keeps_zeros = inputs_are_finite(p, data);
    if (!guards_hold(&p->scratch))
        fail_msg("%s: wrote outside of its scratch", text);
    if (!guards_hold(&p->kept))
        fail_msg("%s: wrote outside of what it keeps", text);
    for (int i = 0; i < data->count; i++) {
        const ech__operand *o = &p->c->desc.operands[i];
        const guarded *g = &p->operand[i];
        if (!guards_hold(g))
            fail_msg("%s: wrote outside of operand %d", text, i);
        if (keeps_zeros && !padding_is_zero(o, g, data->elems[i]))
            fail_msg("%s: wrote into the padding of operand %d", text, i);
        if (i >= p->c->desc.nin || changes >> i & 1 || i == p->reused)
            continue;
        guarded before = guarded_create(g->bytes, 0);
        to_memory(o, data->at[i], data->elems[i], before.data);
        if (memcmp(before.data, g->data, (size_t)g->bytes) != 0)
            fail_msg("%s: changed input %d", text, i);
        free(before.block);
    }
}

void op_kernel_read(const op_kernel *p, op_data *data)
{
    for (int i = 0; i < data->count; i++) {
        const guarded *g = &p->operand[shares(p, i) ? p->reused : i];
        from_memory(&p->c->desc.operands[i], g->data, data->elems[i], data->at[i]);
    }
}
