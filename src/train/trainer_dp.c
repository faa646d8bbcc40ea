#include "train/trainer_dp.h"
#include "base/clock.h"
#include "train/optimizer.h"

ech_status ech__trainer_dp_graph(ech_trainer *trainer, ech_value loss,
                                 const ech_train_options *options)
{
    if (options->dp_devices < 0 || options->dp_devices > ECH__DP_MAX_DEVICES)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%d data parallel devices: from 1 to %d are possible, or 0 for none",
                         options->dp_devices, ECH__DP_MAX_DEVICES);
    ech__halves *halves = &trainer->halves;
    ECH_TRY(ech__split_loss(trainer->model, loss, halves));
    ech_graph *graph = trainer->graph = halves->body;
    ECH_TRY(ech__fuse(graph));
    ECH_TRY(ech__autodiff_from(graph, halves->prediction, halves->grad_in));
    if (options->recompute)
        ECH_TRY(ech__recompute(graph));
    ECH_TRY(ech__optimize(graph, options));
    if (options->delay_ms > 0)
        ECH_TRY(ech__insert_delay(graph, options->delay_ms * 1e-3));
    ECH_TRY(ech__copy_weights(graph));
    graph->loss =
        loss; /* which the head makes: what is asked for by the trainer's graph is found there */
    ech__graph_keep(graph, loss);
    return ECH_OK;
}

static ech__device_options device_options(const ech_train_options *options)
{
    const int share = ech__device_cores() / options->dp_devices;
    return (ech__device_options){.kind = ECH__DEVICE_CPU,
                                 .threads = options->threads ? options->threads
                                            : share          ? share
                                                             : 1,
                                 .memory_limit = options->device_memory};
}

ech_status ech__trainer_dp_device(ech_trainer *trainer, const ech_train_options *options)
{
    int cores[ECH__DP_MAX_CORES];
    ech__device_options device = device_options(options);
    device.cores = cores;
    device.ncores = ech__dp_cores(0, options->dp_devices, cores);
    if (device.threads > device.ncores)
        device.ncores = 0;
    return ech__device_create(trainer->ctx, &device, &trainer->device);
}

ech_status ech__trainer_dp_plan(ech_trainer *trainer, const ech_train_options *options)
{
    ECH_TRY(ech__plan_create(trainer->halves.head, trainer->device,
                             &(ech__plan_options){.batch = options->batch}, &trainer->whole));
    return ech__dp_check_memory(trainer->plan, trainer->whole);
}

ech_status ech__trainer_dp_create(ech_trainer *trainer, const ech_train_options *options)
{
    const ech__dp_options o = {.devices = options->dp_devices,
                               .batch = options->batch,
                               .model = &trainer->halves,
                               .plan = trainer->plan,
                               .exec = trainer->exec,
                               .whole = trainer->whole,
                               .device = device_options(options),
                               .tuning = trainer->tuning};
    return ech__dp_create(trainer->ctx, &o, &trainer->dp);
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

static double seconds(const ech__span *phases, ech__dp_phase first, ech__dp_phase last)
{
    return ech__seconds(phases[last].end_ns - phases[first].start_ns);
}

ech_status ech__trainer_dp_step(ech_trainer *trainer, const ech__variant *variant, ech_step *out)
{
    ECH_TRY(ech__dp_step(trainer->dp, variant->batch, &trainer->scalars));
    trainer->scalars.step++;
    if (!out)
        return ECH_OK;
    const ech__span *phases = ech__dp_phases(trainer->dp);
    out->loss = ech__variant_scalar(trainer, variant, trainer->graph->loss);
    out->time_s = seconds(phases, ECH__DP_SCATTER, ECH__DP_OPTIMIZER);
    out->forward_s = seconds(phases, ECH__DP_SCATTER, ECH__DP_LOSS);
    out->backward_s = seconds(phases, ECH__DP_SCATTER_GRADIENT, ECH__DP_REDUCE);
    out->optimizer_s = seconds(phases, ECH__DP_OPTIMIZER, ECH__DP_OPTIMIZER);
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
    const int devices = trainer->dp ? ech__dp_devices(trainer->dp) : 1;
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
    } else {
        out->samples = trainer->plan->batch;
        out->busy_s = busy_seconds(trainer);
        out->memory = trainer->device->memory_peak;
        for (int k = 0; k < ECH__MEMORY_COUNT; k++)
            memory[k] = trainer->plan->memory[k];
    }
    out->weights = memory[ECH__MEMORY_WEIGHTS] + memory[ECH__MEMORY_COPIES];
    out->gradients = memory[ECH__MEMORY_GRADIENTS];
    out->optimizer = memory[ECH__MEMORY_OPTIMIZER];
    out->inputs = memory[ECH__MEMORY_INPUTS];
    out->activations = memory[ECH__MEMORY_ACTIVATIONS] + memory[ECH__MEMORY_WORKSPACE];
    return ECH_OK;
}
