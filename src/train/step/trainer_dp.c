#include "train/step/trainer_dp.h"
#include "base/system/clock.h"

static ech_status check(const ech_trainer *trainer, const ech_train_options *o)
{
    if (o->dp.devices < 0 || o->dp.devices > ECH__DP_MAX_DEVICES)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%d data parallel devices: from 1 to %d are possible, or 0 for none",
                         o->dp.devices, ECH__DP_MAX_DEVICES);
    return ECH_OK;
}

int64_t ech__trainer_dp_batch(const ech_train_options *options)
{
    return options->dp.devices ? ech__dp_first_part(options->batch, options->dp.devices)
                               : options->batch;
}

ech_status ech__trainer_dp_graph(ech_trainer *trainer, ech_value loss,
                                 const ech__graphs_options *options)
{
    ech__halves *halves = &trainer->halves;
    ECH_TRY(check(trainer, options->train));
    const ech_status status = ech__graphs_of_halves(trainer->model, loss, options, halves);
    ech_graph *graph = trainer->graph = trainer->graphs[0] = halves->body;
    trainer->nroles = 1;
    ECH_TRY(status);
    graph->loss =
        loss; /* which the head makes: what is asked for by the trainer's graph is found there */
    ech__graph_keep(graph, loss);
    return ECH_OK;
}

static ech__device_options device_options(const ech_trainer *trainer,
                                          const ech_train_options *options)
{
    return (ech__device_options){.kind = trainer->device_kind,
                                 .threads = options->threads,
                                 .memory_limit = options->device_memory};
}

ech_status ech__trainer_dp_device(ech_trainer *trainer, const ech_train_options *options)
{
    const ech__device_options device = device_options(trainer, options);
    return ech__dp_open_device(trainer->ctx, 0, options->dp.devices, &device, &trainer->device);
}

ech_status ech__trainer_dp_plan(ech_trainer *trainer, const ech_train_options *options)
{
    ECH_TRY(ech__plan_create(trainer->halves.head, trainer->device,
                             &(ech__plan_options){.batch = options->batch}, &trainer->whole));
    return ech__dp_check_memory(trainer->plan, trainer->whole);
}

ech_status ech__trainer_dp_create(ech_trainer *trainer, const ech_train_options *options)
{
    const ech__dp_options o = {.devices = options->dp.devices,
                               .batch = options->batch,
                               .model = &trainer->halves,
                               .plan = trainer->plan,
                               .exec = trainer->exec,
                               .whole = trainer->whole,
                               .device = device_options(trainer, options),
                               .tuning = trainer->tuning};
    ECH_TRY(ech__dp_create(trainer->ctx, &o, &trainer->dp));
    return ech__trainer_dp_variant(trainer, &trainer->variants[0]);
}

void ech__trainer_dp_destroy(ech_trainer *trainer)
{
    ech__dp_destroy(trainer->dp);
    ech__plan_destroy(trainer->whole);
    ech_graph_destroy(trainer->halves.head); /* the body is the trainer's graph */
    trainer->dp = NULL;
    trainer->halves.head = NULL;
}

ech_status ech__trainer_dp_variant(ech_trainer *trainer, ech__variant *variant)
{
    const ech__dp_whole *whole;
    ECH_TRY(ech__dp_whole_of(trainer->dp, variant->batch, &whole));
    variant->plan = whole->plan;
    variant->exec = whole->exec;
    return ECH_OK;
}

ech_status ech__trainer_dp_run(ech_trainer *trainer, const ech__variant *variant,
                               const ech__scalars *scalars, ech__phase_times *times)
{
    static const ech__phase kinds[ECH__DP_PHASES] = {
        [ECH__DP_SCATTER] = ECH__PHASE_EXCHANGE,
        [ECH__DP_REPLICATE] = ECH__PHASE_EXCHANGE,
        [ECH__DP_FORWARD] = ECH__PHASE_FORWARD,
        [ECH__DP_GATHER] = ECH__PHASE_EXCHANGE,
        [ECH__DP_LOSS] = ECH__PHASE_FORWARD,
        [ECH__DP_SCATTER_GRADIENT] = ECH__PHASE_EXCHANGE,
        [ECH__DP_BACKWARD] = ECH__PHASE_BACKWARD,
        [ECH__DP_REDUCE] = ECH__PHASE_EXCHANGE,
        [ECH__DP_OPTIMIZER] = ECH__PHASE_OPTIMIZER,
    };
    ECH_TRY(ech__dp_step(trainer->dp, variant->batch, scalars));
    const ech__span *phases = ech__dp_phases(trainer->dp);
    for (int p = 0; p < ECH__DP_PHASES; p++)
        times->ns[kinds[p]] += phases[p].end_ns - phases[p].start_ns;
    return ECH_OK;
}

/* ---- what each device did ---- */

static double busy_seconds(const ech_trainer *trainer)
{
    const ech__span *spans = ech__exec_spans(trainer->exec);
    int64_t busy = 0;
    for (size_t n = 0; n < trainer->plan->ninstrs; n++)
        busy += spans[n].end_ns - spans[n].start_ns;
    return ech__seconds(busy);
}

ech_status ech_trainer_device_stats(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const int devices = ech__trainer_devices(trainer);
    *out = (ech_device_stats){.samples = 0};
    if (device < 0 || device >= devices)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "there is no device %d; this training has %d, from 0 on", device, devices);
    int64_t memory[ECH__MEMORY_COUNT];
    if (trainer->dp) {
        const ech__dp_work *work = ech__dp_work_of(trainer->dp, device);
        out->samples = work->samples;
        out->bytes_in = work->bytes_in;
        out->bytes_out = work->bytes_out;
        out->busy_s = ech__seconds(work->busy_ns);
        out->memory = ech__dp_device(trainer->dp, device)->memory_peak;
        ech__dp_memory(trainer->dp, device, memory);
    } else if (trainer->pipe) {
        const ech__stage *stage = ech__pipe_stage(trainer->pipe, device);
        out->samples = trainer->variants[0].batch;
        out->bytes_in = stage->work.bytes_in;
        out->bytes_out = stage->work.bytes_out;
        out->busy_s = ech__stage_busy_s(stage);
        out->memory = stage->device ? stage->device->memory_peak : stage->work.peak;
        ech__pipe_memory(trainer->pipe, device, memory);
    } else {
        out->samples = trainer->plan->batch;
        out->busy_s = busy_seconds(trainer);
        out->memory = trainer->device->memory_peak;
        for (int k = 0; k < ECH__MEMORY_COUNT; k++)
            memory[k] = trainer->plan->memory[k];
    }
    out->weights = memory[ECH__MEMORY_WEIGHTS] + memory[ECH__MEMORY_COPIES];
    out->gradients = memory[ECH__MEMORY_GRADIENTS] + memory[ECH__MEMORY_SUMS];
    out->optimizer = memory[ECH__MEMORY_OPTIMIZER];
    out->inputs = memory[ECH__MEMORY_INPUTS];
    out->activations = memory[ECH__MEMORY_ACTIVATIONS] + memory[ECH__MEMORY_WORKSPACE];
    out->copies = memory[ECH__MEMORY_COPIES];
    out->workspace = memory[ECH__MEMORY_WORKSPACE];
    return ECH_OK;
}
