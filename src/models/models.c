#include "models/models.h"
#include "base/names.h"
#include "models/internal.h"

#include <stdio.h>

ECH__NAMES(ech__model_name, ech__model_kind, ECH__MODEL_LIST)

bool ech__model_takes_images(ech__model_kind kind)
{
    return kind != ECH__MODEL_LINEAR;
}

ech_value ech__linear_stack(ech_graph *graph, int64_t dim, int64_t depth)
{
    const int64_t dims[] = {ECH_BATCH, dim}; /* [N, D] */
    ech_value h = ech_input(graph, "x", ECH_F32, 2, dims);
    const ech_value target = ech_input(graph, "y", ECH_F32, 2, dims);
    for (int64_t k = 0; k < depth; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%lld", (long long)k);
        h = ech_relu(graph, ech_linear(graph, name, h, dim, true));
    }
    return ech_mse(graph, h, target);
}

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

ech_status ech__model_build(ech_graph *graph, const ech__model_options *o, ech__model *out)
{
    *out = (ech__model){.loss = -1, .correct = -1};
    if (!ech__model_takes_images(o->kind)) {
        out->loss = ech__linear_stack(graph, o->dim, o->depth);
        return ech_graph_status(graph);
    }
    const ech_value x =
        ech_input(graph, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32}); /* [N,C,H,W] */
    const ech_value labels = ech_input(graph, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    static const ech__resnet resnet18 = {.width = 64, .stages = 4, .blocks = 2};
    static const ech__resnet resnet8 = {.width = 16, .stages = 3, .blocks = 1};
    const ech_value logits = o->kind == ECH__MODEL_LENET      ? ech__lenet(graph, x)
                             : o->kind == ECH__MODEL_RESNET18 ? ech__resnet_of(graph, x, &resnet18)
                                                              : ech__resnet_of(graph, x, &resnet8);
    out->loss = ech_cross_entropy(graph, logits, labels);
    out->correct = ech_count_correct(graph, logits, labels);
    return ech_graph_status(graph);
}
