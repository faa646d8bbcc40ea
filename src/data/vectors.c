#include "data/vectors.h"
#include "base/rng.h"
#include "base/size.h"
#include "tensor/safetensors.h"

static size_t bytes_of(const ech__vectors *v)
{
    return (size_t)(v->count * v->dim) * sizeof(float);
}

static ech_status allocate(ech_ctx *ctx, ech__vectors *v, int64_t count, int64_t dim)
{
    int64_t bytes;
    *v = (ech__vectors){.count = count, .dim = dim};
    if (!ech__mul(count, dim, &bytes) || !ech__mul(bytes, (int64_t)sizeof(float), &bytes))
        return ech__fail(ctx, ECH_E_LIMIT, "a batch of %lld x %lld numbers is too large",
                         (long long)count, (long long)dim);
    v->x = ech__new(ctx, (size_t)bytes);
    v->y = ech__new(ctx, (size_t)bytes);
    if (v->x && v->y)
        return ECH_OK;
    ech__vectors_fini(ctx, v);
    return ech__no_memory(ctx, "two batches of %lld bytes", (long long)bytes);
}

void ech__vectors_fini(ech_ctx *ctx, ech__vectors *v)
{
    ech__delete(ctx, v->x, bytes_of(v));
    ech__delete(ctx, v->y, bytes_of(v));
    *v = (ech__vectors){.count = 0};
}

ech_status ech__vectors_synthetic(ech_ctx *ctx, ech__vectors *out, int64_t count, int64_t dim,
                                  uint64_t seed)
{
    ECH_TRY(allocate(ctx, out, count, dim));
    const uint64_t x = ech__rng_stream("data.x"), y = ech__rng_stream("data.y");
    for (int64_t i = 0; i < count * dim; i++) {
        out->x[i] = ech__rng_normal(seed, x, (uint64_t)i);
        out->y[i] = ech__rng_normal(seed, y, (uint64_t)i);
    }
    return ECH_OK;
}

static ech_status need(ech_ctx *ctx, const char *path, const ech__safetensors *file,
                       const char *name, const ech__safetensor **out)
{
    *out = ech__safetensors_find(file, name);
    if (!*out)
        return ech__fail(ctx, ECH_E_FORMAT, "%s: there is no tensor '%s'; data needs x and y", path,
                         name);
    if ((*out)->dtype != ECH_F32 || (*out)->shape.ndims != 2 || (*out)->bytes == 0)
        return ech__fail(ctx, ECH_E_FORMAT,
                         "%s: tensor '%s' is %s %s; it must be an f32 matrix [N, D]", path, name,
                         ech__dtype_name((*out)->dtype), ech__shape_format(&(*out)->shape).s);
    return ECH_OK;
}

static ech_status load(ech_ctx *ctx, ech__vectors *out, const char *path,
                       const ech__safetensors *file)
{
    const ech__safetensor *x, *y;
    ECH_TRY(need(ctx, path, file, "x", &x));
    ECH_TRY(need(ctx, path, file, "y", &y));
    if (!ech__shape_equal(&x->shape, &y->shape))
        return ech__fail(ctx, ECH_E_FORMAT, "%s: x has shape %s and y %s; they must be equal", path,
                         ech__shape_format(&x->shape).s, ech__shape_format(&y->shape).s);
    ECH_TRY(allocate(ctx, out, x->shape.dims[0], x->shape.dims[1]));
    ech_status status = ech__safetensors_read(file, x, 0, out->x, (size_t)x->bytes);
    if (status == ECH_OK)
        status = ech__safetensors_read(file, y, 0, out->y, (size_t)y->bytes);
    if (status < 0)
        ech__vectors_fini(ctx, out);
    return status;
}

ech_status ech__vectors_load(ech_ctx *ctx, ech__vectors *out, const char *path)
{
    *out = (ech__vectors){.count = 0};
    ech__safetensors *file;
    ECH_TRY(ech__safetensors_open(ctx, path, &file));
    const ech_status status = load(ctx, out, path, file);
    ech__safetensors_close(file);
    return status;
}
