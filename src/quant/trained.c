/* Takes the parameters of a trainer for quantization; the other files of this folder do not depend
 * on trainers. */
#include "quant/model.h"
#include "train/step/trainer.h"

ech_status ech__tensors_take(ech__tensors *tensors, ech_trainer *trainer)
{
    const ech_graph *graph = trainer->model;
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *value = &graph->values[v];
        if (value->kind != ECH__VALUE_PARAM && value->kind != ECH__VALUE_BUFFER)
            continue;
        ech__tensor *tensor;
        ECH_TRY(
            ech__tensors_add(tensors, value->name, value->type.dtype, &value->type.shape, &tensor));
        ECH_TRY(ech_trainer_read(trainer, value->name, tensor->data,
                                 (size_t)(tensor->elems * ech__dtype_bytes(tensor->dtype))));
    }
    return ECH_OK;
}

ech_status ech__qmodel_init(ech__qmodel *model, ech_trainer *trainer, ech_value prediction)
{
    ech__tensors weights;
    ech__tensors_init(trainer->ctx, &weights);
    ech_status status = ech__tensors_take(&weights, trainer);
    if (status == ECH_OK)
        status = ech__qmodel_from(model, trainer->model, prediction, &weights);
    ech__tensors_fini(&weights);
    return status;
}
