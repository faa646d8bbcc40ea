#include "models/internal.h"

#include <stdio.h>

/* Names are short and layers few: "layer4.1.shortcut.0". */
typedef struct name {
    char s[64];
} name;

static name part(const char *block, const char *what)
{
    name n;
    snprintf(n.s, sizeof n.s, "%s%s", block, what);
    return n;
}

static ech_value conv_bn(ech_graph *g, const char *conv, const char *bn, ech_value x,
                         const ech_conv *options)
{
    return ech_batchnorm2d(g, bn, ech_conv2d(g, conv, x, options));
}

/* relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)) */
static ech_value block(ech_graph *g, const char *prefix, ech_value x, int64_t channels,
                       int64_t stride, bool same)
{
    const ech_conv first = {.out_channels = channels, .kernel = 3, .stride = stride, .pad = 1};
    const ech_conv second = {.out_channels = channels, .kernel = 3, .stride = 1, .pad = 1};
    const ech_conv shortcut = {.out_channels = channels, .kernel = 1, .stride = stride};
    ech_value h =
        ech_relu(g, conv_bn(g, part(prefix, "conv1").s, part(prefix, "bn1").s, x, &first));
    h = conv_bn(g, part(prefix, "conv2").s, part(prefix, "bn2").s, h, &second);
    if (!same)
        x = conv_bn(g, part(prefix, "shortcut.0").s, part(prefix, "shortcut.1").s, x, &shortcut);
    return ech_relu(g, ech_add(g, h, x));
}

ech_value ech__resnet_of(ech_graph *g, ech_value x, const ech__resnet *shape)
{
    const ech_conv stem = {.out_channels = shape->width, .kernel = 3, .stride = 1, .pad = 1};
    ech_value h = ech_relu(g, conv_bn(g, "conv1", "bn1", x, &stem));
    int64_t channels = shape->width, side = 32;
    for (int stage = 0; stage < shape->stages; stage++) {
        const int64_t wide = shape->width << stage;
        for (int b = 0; b < shape->blocks; b++) {
            const int64_t stride = stage > 0 && b == 0 ? 2 : 1;
            char prefix[40];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, b);
            h = block(g, prefix, h, wide, stride, stride == 1 && channels == wide);
            channels = wide;
            side /= stride;
        }
    }
    h = ech_flatten(g, ech_avgpool2d(g, h, side, side)); /* over the whole image */
    return ech_linear(g, "linear", h, 10, true);
}
