#include "models/models.h"
#include "base/names.h"
#include "models/internal.h"

ECH__NAMES(ech__model_name, ech__model_kind, ECH__MODEL_LIST)

bool ech__model_takes_images(ech__model_kind kind)
{
    return kind != ECH__MODEL_LINEAR;
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
