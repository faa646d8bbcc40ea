#include "tensor/shape.h"
#include "base/names.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>

int64_t ech__dtype_bytes(ech_dtype dtype)
{
    static const int64_t bytes[] = {
#define ROW(id, text, size) size,
        ECH_DTYPE_LIST(ROW)
#undef ROW
    };
    return bytes[dtype];
}

ECH__NAMES(ech__dtype_name, ech_dtype, ECH_DTYPE_LIST)

bool ech__dtype_is_low(ech_dtype dtype)
{
    return dtype == ECH_BF16 || dtype == ECH_F16;
}

bool ech__shape_equal(const ech__shape *a, const ech__shape *b)
{
    if (a->ndims != b->ndims)
        return false;
    for (int i = 0; i < a->ndims; i++) {
        if (a->dims[i] != b->dims[i])
            return false;
    }
    return true;
}

ech__shape ech__shape_bind(const ech__shape *shape, int64_t batch)
{
    ech__shape bound = *shape;
    for (int i = 0; i < bound.ndims; i++) {
        if (bound.dims[i] == ECH_BATCH)
            bound.dims[i] = batch;
    }
    return bound;
}

bool ech__shape_elems(const ech__shape *shape, int64_t *out)
{
    int64_t count = 1;
    for (int i = 0; i < shape->ndims; i++) {
        if (shape->dims[i] < 0 || !ech__mul(count, shape->dims[i], &count))
            return false;
    }
    *out = count;
    return true;
}

ech__shape_text ech__shape_format(const ech__shape *shape)
{
    ech__shape_text text;
    size_t used = (size_t)snprintf(text.s, sizeof text.s, "[");
    for (int i = 0; i < shape->ndims && used < sizeof text.s; i++) {
        const char *comma = i ? ", " : "";
        if (shape->dims[i] == ECH_BATCH)
            used += (size_t)snprintf(text.s + used, sizeof text.s - used, "%sN", comma);
        else
            used += (size_t)snprintf(text.s + used, sizeof text.s - used, "%s%" PRId64, comma,
                                     shape->dims[i]);
    }
    if (used < sizeof text.s)
        snprintf(text.s + used, sizeof text.s - used, "]");
    return text;
}
