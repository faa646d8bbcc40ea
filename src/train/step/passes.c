#include "train/step/passes.h"
#include "train/step/optimizer.h"

static ech_status autocast(ech_graph *graph, ech_amp amp)
{
    return amp == ECH_AMP_OFF ? ECH_OK
                              : ech__autocast(graph, amp == ECH_AMP_BF16 ? ECH_BF16 : ECH_F16);
}

/* After a pass: who watches the graph is told. */
static ech_status done(ech_graph *graph, const char *pass, ech_status status)
{
    if (status == ECH_OK && graph->on_pass)
        graph->on_pass(graph->on_pass_user, graph, pass);
    return status;
}

ech_status ech__passes_forward(ech_graph *graph)
{
    return done(graph, "fuse", ech__fuse(graph));
}

ech_status ech__passes_backward(ech_graph *graph, ech__backward_from from,
                                const ech_train_options *options)
{
    ECH_TRY(done(graph, "autodiff",
                 from.grad < 0 ? ech__autodiff(graph, from.value)
                               : ech__autodiff_from(graph, from.value, from.grad)));
    if (options->recompute)
        ECH_TRY(done(graph, "recompute", ech__recompute(graph)));
    return options->amp.type ? done(graph, "autocast", autocast(graph, options->amp.type)) : ECH_OK;
}

ech_status ech__passes_step(ech_graph *graph, const ech__step_passes *p)
{
    if (p->accumulation)
        ECH_TRY(done(graph, "accumulate", ech__accumulate(graph, p->accumulation)));
    if (p->exchange)
        ECH_TRY(done(graph, "exchange", ech__ddp(graph, p->exchange)));
    if (p->checks)
        ECH_TRY(done(graph, "check", ech__check_gradients(graph)));
    if (p->updates)
        ECH_TRY(done(graph, "optimize", ech__optimize(graph, p->train)));
    if (p->sharded_update)
        ECH_TRY(done(graph, "sharded update", ech__ddp_update(graph)));
    if (p->delay_s > 0)
        ECH_TRY(done(graph, "delay", ech__insert_delay(graph, p->delay_s)));
    return done(graph, "copies", ech__copy_weights(graph));
}

ech_status ech__passes_infer(ech_graph *graph)
{
    ECH_TRY(ech__infer_only(graph));
    return ech__fuse(graph);
}

ech_status ech__passes_infer_cast(ech_graph *graph, ech_amp amp)
{
    return autocast(graph, amp);
}

ech_status ech__passes_infer_end(ech_graph *graph)
{
    return ech__copy_weights(graph);
}
