#include "device/cpu/int8/layer.h"
#include "base/size.h"
#include "device/cpu/share.h"

ech__int8_layer ech__int8_layer_of(const ech__cpu *cpu, const ech__kernel_desc *desc)
{
    const int64_t *x = desc->operands[0].layout.shape.dims;
    const int64_t *y = desc->operands[4].layout.shape.dims;
    const ech__attrs *a = &desc->attrs;
    ech__int8_layer l = {.image = desc->op == ECH__OP_QCONV2D,
                         .is_signed = desc->operands[0].dtype == ECH_S8,
                         .relu = a->relu,
                         .type = a->dtype,
                         .N = x[0],
                         .I = x[1],
                         .H = 1,
                         .W = 1,
                         .O = y[1],
                         .P = 1,
                         .Q = 1,
                         .K = 1,
                         .stride = 1,
                         .B = cpu->loops->channels};
    if (l.image) {
        l.H = x[2];
        l.W = x[3];
        l.P = y[2];
        l.Q = y[3];
        l.K = a->kernel;
        l.stride = a->stride;
        l.pad = a->pad;
    }
    l.outputs = ceil_div(l.O, l.B) * l.B;
    return l;
}

bool ech__int8_layer_fits(const ech__int8_layer *layer, const ech__kernel_desc *desc)
{
    for (int i = 0; i < 5; i += 4) { /* x and y */
        const ech__layout *layout = &desc->operands[i].layout;
        if (layer->image ? !ech__is_blocked(layout, layer->B) : !ech__layout_is_plain(layout))
            return false;
    }
    return layer->K * layer->K * layer->I <= INT32_MAX / (255 * 128);
}

/* Floats of a vector of factors. */
static int64_t vector_of(const ech__int8_layer *layer)
{
    return ech__round_up(layer->outputs, 64 / (int64_t)sizeof(float));
}

int64_t ech__int8_layer_bytes(const ech__int8_layer *layer)
{
    return 2 * vector_of(layer) * (int64_t)sizeof(float);
}

void *ech__int8_layer_bind(ech__int8_layer *layer, const ech__binding *binding)
{
    layer->x = binding->operands[0];
    layer->w = binding->operands[1];
    layer->bias = binding->operands[2];
    layer->scale = binding->operands[3];
    layer->y = binding->operands[4];
    layer->biases = binding->kept;
    layer->scales = layer->biases + vector_of(layer);
    return layer->scales + vector_of(layer);
}

void ech__int8_layer_factors(const ech__int8_layer *layer)
{
    for (int64_t o = 0; o < layer->outputs; o++) {
        layer->biases[o] = o < layer->O ? (float)layer->bias[o] : 0;
        layer->scales[o] = o < layer->O ? layer->scale[o] : 0;
    }
}

char *ech__int8_layer_result(const ech__int8_layer *layer, int64_t n, int64_t o)
{
    const int64_t bytes = ech__dtype_bytes(layer->type);
    if (!layer->image)
        return layer->y + (n * layer->O + o) * bytes;
    const int64_t block = n * (layer->outputs / layer->B) + o / layer->B;
    return layer->y + (block * layer->P * layer->Q * layer->B + o % layer->B) * bytes;
}
