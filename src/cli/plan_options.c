#include "cli/plan_options.h"
#include "device/device.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef ech__plan_args args;
typedef ech__plan_counts counts;

#define CHOICE(id, text) "|" text

static const ech__option options[] = {
    {.name = "model",
     ECH_OPTION(CHOICE, args, model),
     .choices = ECH__MODEL_LIST(CHOICE),
     .initial = "linear",
     .group = "Training",
     .help = "As in echelon train."},
    {.name = "dim",
     ECH_OPTION(INT, args, dim),
     .arg = "D",
     .initial = "1024",
     .min = 1,
     .max = 1 << 20,
     .help = "Width of every layer of the linear stack."},
    {.name = "depth",
     ECH_OPTION(INT, args, depth),
     .arg = "L",
     .initial = "2",
     .min = 1,
     .max = 1000,
     .help = "Layers of the linear stack."},
    {.name = "batch-size",
     ECH_OPTION(INT, args, batch),
     .arg = "N",
     .min = 1,
     .max = 1 << 24,
     .help = "Samples per device and micro-step, on any number of devices. Default: 64."},
    {.name = "global-batch",
     ECH_OPTION(INT, args, global),
     .arg = "N",
     .min = 1,
     .max = 1 << 30,
     .help = "Samples per step over all devices; give this or --batch-size."},
    {.name = "accum",
     ECH_OPTION(INT, args, accum),
     .arg = "N",
     .initial = "1",
     .min = 1,
     .max = 1e6,
     .help = "Micro-steps of a step; gradients are exchanged in the last."},
    {.name = "amp",
     ECH_OPTION(CHOICE, args, amp),
     .choices = ECH_AMP_LIST(CHOICE),
     .initial = "off",
     .help = "Mixed precision, as in echelon train."},
    {.name = "grad-dtype",
     ECH_OPTION(CHOICE, args, grad_dtype),
     .choices = "f32|bf16",
     .initial = "f32",
     .help = "Type of gradients on their way between devices."},
    {.name = "optimizer",
     ECH_OPTION(CHOICE, args, optimizer),
     .choices = ECH_OPTIMIZER_LIST(CHOICE),
     .initial = "sgd",
     .help = "Update rule."},
    {.name = "momentum",
     ECH_OPTION(REAL, args, momentum),
     .arg = "M",
     .initial = "0",
     .min = 0,
     .max = 0.999999,
     .help = "Of sgd."},
    {.name = "weight-decay",
     ECH_OPTION(REAL, args, weight_decay),
     .arg = "W",
     .initial = "0",
     .min = 0,
     .max = 1e6,
     .help = "Decay of the parameters."},
    {.name = "threads",
     ECH_OPTION(INT, args, threads),
     .arg = "T",
     .initial = "1",
     .min = 1,
     .max = 1024,
     .help = "Threads of a device."},
    {.name = "recompute",
     ECH_OPTION(CHOICE, args, recompute),
     .choices = "bn|off",
     .initial = "bn",
     .help = "As in echelon train."},
    {.name = "devices",
     ECH_OPTION(STRING, args, devices),
     .arg = "LIST",
     .initial = "1,2,4,8",
     .group = "Devices and links",
     .help = "Numbers of devices, such as 1,2,4,64 or 1-16."},
    {.name = "parallel",
     ECH_OPTION(CHOICE, args, parallel),
     .choices = ECH__STRATEGY_LIST(CHOICE),
     .initial = "ddp",
     .help = "ddp: every device has a rank, and gradients are added up. dp: DataParallel, where "
             "all goes through the first device. mp: layers are spread over the devices. pipeline: "
             "the same with micro-batches; for both, the batch is that of all devices."},
    {.name = "placement",
     ECH_OPTION(STRING, args, placement),
     .arg = "even|half|balanced|LIST",
     .choices = "even|half|balanced|balanced-memory",
     .help = "Of mp and pipeline, as in echelon train."},
    {.name = "micro-batches",
     ECH_OPTION(INT, args, micro_batches),
     .arg = "M",
     .min = 1,
     .max = ECH__PIPE_MOST_MICROS,
     .help = "Of a pipeline, as in echelon train."},
    {.name = "pipeline-schedule",
     ECH_OPTION(CHOICE, args, pipeline),
     .choices = ECH_PIPELINE_LIST(CHOICE),
     .initial = "1f1b",
     .help = "As in echelon train."},
    {.name = "link",
     ECH_OPTION(STRING, args, link),
     .arg = "BANDWIDTH,LATENCY",
     .help = "The links between devices, such as 12GB/s,5us; each device then has memory of its "
             "own. Default: devices of this machine, which share its memory, as measured."},
    {.name = "cluster",
     ECH_OPTION(STRING, args, cluster),
     .arg = "FILE",
     .help = "Nodes, devices per node and the links inside and between, as JSON."},
    {.name = "algorithm",
     ECH_OPTION(CHOICE, args, algorithm),
     .choices = ECH__ALGORITHM_LIST(CHOICE),
     .initial = "best",
     .help = "How an all-reduce goes over the links that are given."},
    {.name = "bucket-mb",
     ECH_OPTION(REAL, args, bucket_mb),
     .arg = "MB",
     .initial = "25",
     .min = 1e-6,
     .max = 1e6,
     .help = "Gradients travel in buckets of about this size (MiB)."},
    {.name = "shared-update",
     ECH_OPTION(CHOICE, args, separate_update),
     .choices = "on|off",
     .initial = "on",
     .help = "As in echelon train, between devices that share memory."},
    {.name = "measure",
     ECH_OPTION(FLAG, args, measure),
     .group = "Costs",
     .help = "Measure the costs anew, also where they are known."},
    {.name = "measure-seconds",
     ECH_OPTION(REAL, args, seconds),
     .arg = "S",
     .initial = "1.5",
     .min = 0.01,
     .max = 600,
     .help = "Time for each measurement: each batch, alone and beside others."},
    {.name = "costs-file",
     ECH_OPTION(STRING, args, costs_file),
     .arg = "FILE",
     .help = "Where costs are kept. Default: $ECHELON_COSTS, or costs.json beside the kernel "
             "timings."},
    {.name = "tuning-file",
     ECH_OPTION(STRING, args, tuning_file),
     .arg = "FILE",
     .help = "Where kernel timings are kept, as in echelon train."},
    {.name = "tune",
     ECH_OPTION(CHOICE, args, tune),
     .choices = "on|off",
     .initial = "on",
     .help = "As in echelon train."},
    {.name = "advise",
     ECH_OPTION(FLAG, args, advise),
     .group = "Output",
     .help = "Look for the batch and the number of devices with most samples per second at the "
             "efficiency of --efficiency or more."},
    {.name = "efficiency",
     ECH_OPTION(REAL, args, efficiency),
     .arg = "E",
     .initial = "0.8",
     .min = 0.01,
     .max = 1,
     .help = "Of --advise: the speedup by the number of devices."},
    {.name = "device-memory",
     ECH_OPTION(BYTES, args, device_memory),
     .arg = "BYTES",
     .min = 1,
     .max = HUGE_VAL,
     .help = "Most memory of a device, of --advise and for the largest batch that fits; it may be "
             "more than this machine has. Default: the memory of the machine."},
    {.name = "fit",
     ECH_OPTION(STRING, args, fit),
     .arg = "BATCH,...",
     .help = "Print the memory of these batches by kind, whether each fits a device, and the "
             "largest batch that does, from the plan alone; nothing is measured."},
    {.name = "plot",
     ECH_OPTION(STRING, args, plot),
     .arg = "FILE",
     .help = "Draw samples per second over the devices, as SVG or PNG by the end of the name."},
    {.name = "json", ECH_OPTION(FLAG, args, json), .help = "Print one JSON object."},
    /* A rank that measures for the command that has started it. */
    {.name = "measure-batch",
     ECH_OPTION(INT, args, measure_batch),
     .hidden = true,
     .min = 1,
     .max = 1 << 24},
    {.name = "measure-link", ECH_OPTION(FLAG, args, measure_link), .hidden = true},
    {.name = "measure-copies", ECH_OPTION(FLAG, args, measure_copies), .hidden = true},
};

static const ech__option_example examples[] = {
    {"echelon plan --model resnet18 --batch-size 32 --devices 1,2,4,8,64,1024 --link 12GB/s,5us",
     "What more devices would bring over such links."},
    {"echelon plan --dim 2048 --depth 4 --global-batch 256 --devices 1,2",
     "The same step cut over devices of this machine."},
    {"echelon plan --model resnet18 --devices 1-64 --cluster cluster.json --plot scaling.svg",
     "Nodes with several devices each, and the curve."},
    {"echelon plan --dim 2048 --depth 20 --parallel pipeline --batch-size 1024 --devices 1,2,5,10",
     "What a pipeline over more devices would bring, and its bubble."},
    {"echelon plan --model resnet18 --momentum 0.9 --fit 32,128,512,2048,8192 --device-memory 48GB",
     "Which batches a device with 48 GB would take."},
    {"echelon plan --model lenet --devices 1,64 --link 1GB/s,20us --advise --efficiency 0.9",
     "Which batch and how many devices still pay."},
};

const ech__command ech__cli_plan = {
    .name = "plan",
    .brief = "predict time, bytes and memory on other numbers of devices",
    .about =
        "Measures once what every operator of a training step costs on one device of this machine, "
        "keeps it, and puts the step on a timeline with the exchange of gradients between N "
        "devices. Nothing is run on N devices: figures for them are predicted, and marked so. "
        "Speedup and efficiency are those of samples per second against one device.",
    .options = options,
    .count = sizeof options / sizeof *options,
    .examples = examples,
    .example_count = sizeof examples / sizeof *examples,
};

/* ---- arguments ---- */

ech__run_config ech__plan_config(const args *a)
{
    ech__run_config c = ech__run_defaults();
    c.model.kind = (ech__model_kind)a->model;
    c.model.dim = a->dim;
    c.model.depth = a->depth;
    c.train.threads = (int)a->threads;
    c.train.accum = (int)a->accum;
    c.train.amp = (ech_amp)a->amp;
    c.train.grad_dtype = a->grad_dtype ? ECH_BF16 : ECH_F32;
    c.train.optimizer = (ech_optimizer)a->optimizer;
    c.train.momentum = a->momentum;
    c.train.weight_decay = a->weight_decay;
    c.train.tune = a->tune == 0;
    c.train.recompute = a->recompute == 0;
    c.train.tuning_file = a->tuning_file;
    c.train.shared_update = a->separate_update == 0;
    const double bytes = a->bucket_mb * (1 << 20);
    c.train.bucket_bytes = bytes >= 1 ? (int64_t)bytes : 1;
    c.train.placement = a->placement;
    c.train.micro_batches = (int)a->micro_batches;
    c.train.pipeline = (ech_pipeline)a->pipeline;
    return c;
}

static ech_status add_counts(ech_ctx *ctx, const char *text, int64_t first, int64_t last,
                             counts *out)
{
    if (first < 1 || last > ECH__PLAN_MOST_DEVICES)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %s: must be from 1 to %d", text,
                         ECH__PLAN_MOST_DEVICES);
    if (first > last)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %s: the range ends before it begins", text);
    for (int64_t n = first; n <= last; n++) {
        if (out->count == ECH__PLAN_MOST_ROWS)
            return ech__fail(ctx, ECH_E_LIMIT, "--devices %s: more than %d numbers", text,
                             ECH__PLAN_MOST_ROWS);
        out->n[out->count++] = n;
    }
    return ECH_OK;
}

/* "1,2,4" and "1-16". */
static ech_status parse_list(ech_ctx *ctx, const char *text, counts *out)
{
    const char *at = text;
    out->count = 0;
    for (;;) {
        char *end;
        const bool digit = *at >= '0' && *at <= '9';
        const long long first = digit ? strtoll(at, &end, 10) : 0;
        long long last = first;
        const bool range = digit && *end == '-' && end[1] >= '0' && end[1] <= '9';
        if (range)
            last = strtoll(end + 1, &end, 10);
        if (!digit || (*end && *end != ','))
            return ech__fail(ctx, ECH_E_INVALID,
                             "--devices '%s': must be numbers such as 1,2,4 or 1-16", text);
        ECH_TRY(add_counts(ctx, text, first, last, out));
        if (!*end)
            return ECH_OK;
        at = end + 1;
    }
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorted, each once. */
size_t ech__plan_distinct(int64_t *numbers, size_t count)
{
    size_t kept = 0;
    qsort(numbers, count, sizeof *numbers, compare);
    for (size_t i = 0; i < count; i++) {
        if (!kept || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    }
    return kept;
}

ech_status ech__plan_devices(ech_ctx *ctx, const char *text, counts *out)
{
    ECH_TRY(parse_list(ctx, text, out));
    out->count = ech__plan_distinct(out->n, out->count);
    return ECH_OK;
}

/* Of layers on several devices. */
static ech_status check_layers(ech_ctx *ctx, const args *a, const ech__load *load,
                               const counts *devices)
{
    const ech__run_config config = ech__plan_config(a);
    if (a->parallel == ECH__STRATEGY_MP && a->micro_batches > 1)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--micro-batches %lld: --parallel mp has one; --parallel pipeline has more",
            (long long)a->micro_batches);
    if (a->micro_batches && load->global % a->micro_batches)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--micro-batches %lld: must divide the batch of %lld samples",
                         (long long)a->micro_batches, (long long)load->global);
    if (a->advise)
        return ech__fail(ctx, ECH_E_INVALID, "--advise is of --parallel ddp and dp");
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->n[i] > 1)
            ECH_TRY(ech__pricing_check_layers(ctx, &config, devices->n[i]));
    }
    return ECH_OK;
}

ech_status ech__plan_check(ech_ctx *ctx, const args *a, const ech__load *load,
                           const counts *devices)
{
    if (a->batch && a->global)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--batch-size and --global-batch are both given; give one of them");
    if (a->link && a->cluster)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--link and --cluster are both given; give one of them");
    if (a->algorithm && !a->link && !a->cluster)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--algorithm is of --link and --cluster: this machine's own devices "
                         "exchange directly");
    if (a->optimizer != ECH_SGD && a->momentum != 0)
        return ech__fail(ctx, ECH_E_INVALID, "--momentum is of sgd");
    if (a->plot && !ech__is_picture_name(a->plot))
        return ech__fail(ctx, ECH_E_INVALID, "--plot %.200s: the name must end in .svg or .png",
                         a->plot);
    if (a->global % a->accum)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--global-batch %lld with --accum %lld: must be divisible by it",
                         (long long)a->global, (long long)a->accum);
    if (a->parallel == ECH__STRATEGY_DP && (a->accum > 1 || a->amp || a->grad_dtype))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--parallel dp has one process: --accum, --amp and --grad-dtype are of "
                         "ddp");
    const bool layers = ech__strategy_cuts_model((ech__strategy)a->parallel);
    if (!layers && (a->placement || a->micro_batches))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--placement and --micro-batches are of --parallel mp and pipeline");
    for (size_t i = 0; i < devices->count; i++) {
        const int64_t n = devices->n[i], most = ech__strategy_most((ech__strategy)a->parallel);
        if (n > most)
            return ech__fail(ctx, ECH_E_INVALID, "--devices %lld: --parallel %s has at most %lld",
                             (long long)n, ech__strategy_name((ech__strategy)a->parallel),
                             (long long)most);
        if (ech__load_of(load, n) < n && !layers)
            return ech__fail(ctx, ECH_E_INVALID,
                             "--global-batch %lld for %lld devices: each needs one sample at least",
                             (long long)a->global, (long long)n);
    }
    return layers ? check_layers(ctx, a, load, devices) : ECH_OK;
}

ech_status ech__plan_links(ech_ctx *ctx, const args *a, const counts *devices, ech__cluster *out)
{
    *out = ech__cluster_defaults();
    if (a->cluster)
        ECH_TRY(ech__cluster_load(ctx, a->cluster, out));
    else if (a->link)
        ECH_TRY(ech__link_parse(ctx, a->link, &out->inside));
    if (a->link)
        out->between = out->inside;
    for (size_t i = 0; a->cluster && i < devices->count; i++)
        ECH_TRY(ech__cluster_check(ctx, out, devices->n[i]));
    return ECH_OK;
}
