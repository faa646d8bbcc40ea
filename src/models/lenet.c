#include "models/internal.h"

ech_value ech__lenet(ech_graph *g, ech_value x)
{
    const ech_conv six = {.out_channels = 6, .kernel = 5, .bias = true};
    const ech_conv sixteen = {.out_channels = 16, .kernel = 5, .bias = true};
    ech_value h =
        ech_maxpool2d(g, ech_relu(g, ech_conv2d(g, "conv1", x, &six)), 2, 2);     /* [N,6,14,14] */
    h = ech_maxpool2d(g, ech_relu(g, ech_conv2d(g, "conv2", h, &sixteen)), 2, 2); /* [N,16,5,5] */
    h = ech_relu(g, ech_linear(g, "fc1", ech_flatten(g, h), 120, true));
    h = ech_relu(g, ech_linear(g, "fc2", h, 84, true));
    return ech_linear(g, "fc3", h, 10, true);
}
