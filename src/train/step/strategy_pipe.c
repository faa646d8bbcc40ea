/* Layers on several devices as a row of strategies; trainer_pipe.c does the work. */
#include "train/step/strategy.h"
#include "train/step/trainer_pipe.h"

static ech_status make_graphs(ech_trainer *trainer, ech_value loss, const ech__graphs_options *o)
{
    (void)loss;
    return ech__trainer_pipe_graph(trainer, o);
}

static ech_status run(ech_trainer *trainer, const ech__variant *variant, unsigned phases,
                      const ech__scalars *scalars, ech__phase_times *times)
{
    const unsigned compute = ECH__PHASE_BIT(FORWARD) | ECH__PHASE_BIT(BACKWARD);
    return phases & compute
               ? ech__trainer_pipe_run(trainer, variant, phases & ~compute, scalars, times)
               : ech__trainer_pipe_apply(trainer, scalars, times);
}

static int micro_batches(const ech_trainer *trainer, int64_t batch, double share)
{
    return ech__pipe_micros_of(trainer->pipe, batch, share);
}

static ech_status grad_stats(ech_trainer *trainer, double out[ECH__GRAD_STATS])
{
    return ech__pipe_grad_stats(trainer->pipe, out);
}

static ech_status evaluate(ech_trainer *trainer, const ech__variant *variant)
{
    const ech__pipe_step step = {.scalars = &trainer->scalars, .start_ns = trainer->clock.now_ns};
    return ech__pipe_run(trainer->pipe, variant->pass, &step);
}

static ech_status refresh(ech_trainer *trainer)
{
    return ech__pipe_refresh(trainer->pipe, &trainer->scalars);
}

static ech_status scalar(const ech_trainer *trainer, const ech__variant *variant, ech_value value,
                         double *out)
{
    (void)variant;
    *out = ech__pipe_result(trainer->pipe, value);
    return ECH_OK;
}

static int64_t updates(const ech_trainer *trainer)
{
    return ech__pipe_updates(trainer->pipe);
}

static ech__culprit culprit(const ech_trainer *trainer, const ech__variant *variant, int *device)
{
    (void)variant;
    return ech__pipe_culprit(trainer->pipe, device);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): other strategies write to it */
static double kernels(const ech_trainer *trainer, const ech__variant *variant, double *sums_s)
{
    (void)variant;
    (void)sums_s;
    return ech__pipe_busy_s(trainer->pipe);
}

static ech_status write_input(ech_trainer *trainer, const ech__variant *variant,
                              const ech__input *input)
{
    return ech__pipe_write(trainer->pipe, variant->pass, input->name, input->data, input->bytes);
}

static ech_status read_input(ech_trainer *trainer, const ech__variant *variant,
                             const ech__input *input)
{
    return ech__pipe_read(trainer->pipe, variant->pass, input->name, input->data, input->bytes);
}

static ech_status take_inputs(ech_trainer *trainer, const ech__variant *from,
                              const ech__variant *to)
{
    return ech__pipe_take_inputs(trainer->pipe, from->pass, to->pass);
}

static int devices(const ech_trainer *trainer)
{
    return ech__pipe_devices(trainer->pipe);
}

static const ech__plan *plan_of(const ech_trainer *trainer, int device)
{
    return ech__pipe_stage(trainer->pipe, device)->plan;
}

static const ech__exec *exec_of(const ech_trainer *trainer, int device)
{
    return ech__pipe_stage(trainer->pipe, device)->exec;
}

static bool home(const ech_trainer *trainer, ech_value value, const ech__plan **plan,
                 const ech__exec **exec, ech_value *there)
{
    const char *name = trainer->graph->values[value].name;
    const ech__stage *stage = ech__pipe_find(trainer->pipe, name, there);
    if (!stage)
        return false;
    *plan = stage->plan;
    *exec = stage->exec;
    return (*plan)->places[*there].used;
}

static void memory(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT])
{
    ech__pipe_memory(trainer->pipe, device, out);
}

static int64_t peak(const ech_trainer *trainer, int device)
{
    const ech__stage *stage = ech__pipe_stage(trainer->pipe, device);
    return stage->device ? stage->device->memory_peak : stage->work.peak;
}

static void work(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const ech__stage *stage = ech__pipe_stage(trainer->pipe, device);
    out->samples = trainer->variants[0].batch;
    out->bytes_in = stage->work.bytes_in;
    out->bytes_out = stage->work.bytes_out;
    out->busy_s = ech__stage_busy_s(stage);
}

const ech__strategy_ops ech__ops_pipe = {
    .graphs = make_graphs,
    .plans_graphs = true,
    .open = ech__trainer_pipe_open,
    .plan = ech__trainer_pipe_plan,
    .ready = ech__trainer_pipe_ready,
    .share_weights = ech__trainer_pipe_share_weights,
    .destroy = ech__trainer_pipe_destroy,
    .choices = ech__trainer_pipe_choices,
    .variant = ech__trainer_pipe_variant,
    .micro_batches = micro_batches,
    .run = run,
    .grad_stats = grad_stats,
    .evaluate = evaluate,
    .refresh = refresh,
    .scalar = scalar,
    .updates = updates,
    .culprit = culprit,
    .kernels = kernels,
    .write = write_input,
    .read = read_input,
    .take_inputs = take_inputs,
    .devices = devices,
    .planned_devices = devices,
    .plan_of = plan_of,
    .exec_of = exec_of,
    .home = home,
    .memory = memory,
    .peak = peak,
    .need = ech__trainer_pipe_planned,
    .work = work,
};
