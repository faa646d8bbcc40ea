#include "train/passes.h"
#include "train/optimizer.h"

static ech_status autocast(ech_graph *graph, ech_amp amp)
{
    return amp == ECH_AMP_OFF ? ECH_OK
                              : ech__autocast(graph, amp == ECH_AMP_BF16 ? ECH_BF16 : ECH_F16);
}

ech_status ech__passes_forward(ech_graph *graph)
{
    return ech__fuse(graph);
}

ech_status ech__passes_backward(ech_graph *graph, ech__backward_from from,
                                const ech_train_options *options)
{
    ECH_TRY(from.grad < 0 ? ech__autodiff(graph, from.value)
                          : ech__autodiff_from(graph, from.value, from.grad));
    if (options->recompute)
        ECH_TRY(ech__recompute(graph));
    return autocast(graph, options->amp);
}

ech_status ech__passes_step(ech_graph *graph, const ech__step_passes *p)
{
    if (p->accumulation)
        ECH_TRY(ech__accumulate(graph, p->accumulation));
    if (p->exchange)
        ECH_TRY(ech__ddp(graph, p->exchange));
    if (p->checks)
        ECH_TRY(ech__check_gradients(graph));
    if (p->updates)
        ECH_TRY(ech__optimize(graph, p->train));
    if (p->sharded_update)
        ECH_TRY(ech__ddp_update(graph));
    if (p->delay_s > 0)
        ECH_TRY(ech__insert_delay(graph, p->delay_s));
    return ech__copy_weights(graph);
}

ech_status ech__passes_infer(ech_graph *graph)
{
    ECH_TRY(ech__infer_only(graph));
    return ech__fuse(graph);
}

ech_status ech__passes_infer_end(ech_graph *graph, ech_amp amp)
{
    ECH_TRY(autocast(graph, amp));
    return ech__copy_weights(graph);
}
