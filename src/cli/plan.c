/* echelon plan: measures what a step costs on one device where that is not known yet, and prices it on others. */
#include "cli/plan.h"
#include "cli/capacity.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "device/device.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct args {
    int model, optimizer, parallel, algorithm, tune, recompute, separate_update, amp, grad_dtype;
    int64_t dim, depth, batch, global, accum, threads, measure_batch, device_memory;
    double momentum, weight_decay, bucket_mb, efficiency, seconds;
    bool measure, advise, json, measure_link, measure_copies;
    const char *devices, *link, *cluster, *costs_file, *tuning_file, *plot, *fit;
} args;

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
             "all goes through the first device."},
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

static ech__run_config config_of(const args *a)
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
    return c;
}

enum { MOST_ROWS = 8192, MOST_DEVICES = 1000000 };

typedef struct counts {
    int64_t n[MOST_ROWS];
    size_t count;
} counts;

static ech_status add_counts(ech_ctx *ctx, const char *text, int64_t first, int64_t last,
                             counts *out)
{
    if (first < 1 || last > MOST_DEVICES)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %s: must be from 1 to %d", text,
                         MOST_DEVICES);
    if (first > last)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %s: the range ends before it begins", text);
    for (int64_t n = first; n <= last; n++) {
        if (out->count == MOST_ROWS)
            return ech__fail(ctx, ECH_E_LIMIT, "--devices %s: more than %d numbers", text,
                             MOST_ROWS);
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
static size_t distinct(int64_t *numbers, size_t count)
{
    size_t kept = 0;
    qsort(numbers, count, sizeof *numbers, compare);
    for (size_t i = 0; i < count; i++) {
        if (!kept || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    }
    return kept;
}

static ech_status parse_devices(ech_ctx *ctx, const char *text, counts *out)
{
    ECH_TRY(parse_list(ctx, text, out));
    out->count = distinct(out->n, out->count);
    return ECH_OK;
}

static ech_status check(ech_ctx *ctx, const args *a, const ech__load *load, const counts *devices)
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
    for (size_t i = 0; i < devices->count; i++) {
        const int64_t n = devices->n[i], most = ech__strategy_most((ech__strategy)a->parallel);
        if (n > most)
            return ech__fail(ctx, ECH_E_INVALID, "--devices %lld: --parallel %s has at most %lld",
                             (long long)n, ech__strategy_name((ech__strategy)a->parallel),
                             (long long)most);
        if (ech__load_of(load, n) < n)
            return ech__fail(ctx, ECH_E_INVALID,
                             "--global-batch %lld for %lld devices: each needs one sample at least",
                             (long long)a->global, (long long)n);
    }
    return ECH_OK;
}

static ech_status find_links(ech_ctx *ctx, const args *a, const counts *devices, ech__cluster *out)
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

/* ---- measuring, as ranks ---- */

static ech_status measure(ech__comm *comm, const args *a)
{
    ech__costs *costs;
    const ech__run_config config = config_of(a);
    ECH_TRY(ech__costs_open(comm->ctx, a->costs_file, NULL, &costs));
    ech_status status = ECH_OK;
    if (a->measure_link)
        status = ech__costs_measure_link(costs, comm);
    if (status == ECH_OK && a->measure_copies)
        status = ech__costs_measure_copies(comm->ctx, costs);
    if (status == ECH_OK && a->measure_batch) {
        const ech__run_config single =
            ech__pricing_single(&config, (ech__strategy)a->parallel, a->measure_batch);
        status = ech__costs_measure(comm->ctx, costs, &single, comm, a->seconds);
    }
    if (status == ECH_OK && comm->rank == 0)
        status = ech__costs_save(costs);
    ech__costs_close(costs);
    return status;
}

static int measure_as_rank(ech_ctx *ctx, const ech__command *command, const args *a)
{
    ech__comm *comm;
    if (ech__comm_open(ctx, &(ech__comm_options){.backend = ECH__BACKEND_SHM}, &comm) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    const int code =
        measure(comm, a) < 0 ? ech__cli_fail_rank(comm, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    ech__comm_close(comm);
    return code;
}

/* The command line of such ranks: that of this command and what they are to measure. */
static int launch(ech_ctx *ctx, const ech__command *command, char **argv, const char *costs_file,
                  int ranks, const char *what)
{
    char *all[ECH_OPTION_MAX_ROWS * 2 + 8], file[4200], job[64];
    size_t n = 0;
    for (; argv[n]; n++) {
        if (n + 4 > sizeof all / sizeof *all) {
            ech__fail(ctx, ECH_E_LIMIT, "more than %zu arguments", n);
            return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        }
        all[n] = argv[n];
    }
    snprintf(file, sizeof file, "--costs-file=%s", costs_file);
    snprintf(job, sizeof job, "%s", what);
    all[n++] = file;
    all[n++] = job;
    all[n] = NULL;
    return ech__cli_launch_helpers(ctx, command, ranks, all);
}

/* ---- what must be measured ---- */

enum { MOST_BATCHES = 6, ROOM = MOST_ROWS + 16 };
static const double LONGEST_STEP_S =
    3; /* that is still worth measuring; longer ones are computed */

typedef struct work {
    ech_ctx *ctx;
    const ech__command *command;
    char **argv;
    const args *a;
    const char *file;
    ech__costs_key key;
    int beside;
} work;

/* The batches per device that are asked about; where they are many, the least, the largest and some between. One that is
 * clearly smaller shows what does not depend on the batch. */
static size_t wanted_batches(const args *a, const ech__load *load, const counts *devices,
                             int64_t *out)
{
    size_t count = 0;
    out[count++] = ech__load_of(load, 1);
    for (size_t i = 0; i < devices->count; i++)
        out[count++] = (ech__load_of(load, devices->n[i]) - 1) / devices->n[i] + 1;
    if (a->advise && load->batch) {
        out[count++] = load->batch * 2;
        out[count++] = load->batch * 4;
        out[count++] = load->batch / 2 > 0 ? load->batch / 2 : 1;
    }
    count = distinct(out, count);
    if (count < MOST_BATCHES)
        out[count++] = out[0] / 8 > 0 ? out[0] / 8 : 1;
    count = distinct(out, count);
    if (count <= MOST_BATCHES)
        return count;
    for (size_t i = 0; i < MOST_BATCHES; i++)
        out[i] = out[i * (count - 1) / (MOST_BATCHES - 1)];
    return distinct(out, MOST_BATCHES);
}

/* Costs that are there already, or a guess from them whether the next batch is too much. */
static bool too_much(const ech__costs *costs, const work *w, int64_t batch, int copies)
{
    int64_t known[64];
    const int count = ech__costs_batches(costs, w->key.s, 1, known, 64);
    const ech__step_cost *below = NULL;
    for (int i = 0; i < count && known[i] <= batch; i++)
        below = ech__costs_find(costs, w->key.s, known[i], 1);
    if (!below)
        return false;
    const double factor = (double)batch / (double)below->batch;
    double bytes = 0;
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        bytes += (double)below->memory[k];
    if (below->step_s * factor > LONGEST_STEP_S && below->batch != batch)
        return true;
    return bytes * factor * copies > 0.9 * (double)ech__machine_available();
}

static int measure_batch(const work *w, int64_t batch, int copies)
{
    char what[64];
    ech__costs *costs;
    if (ech__costs_open(w->ctx, w->file, NULL, &costs) < 0)
        return ech__cli_fail(w->ctx, w->command, ECH__EXIT_FAILED);
    const bool known = ech__costs_find(costs, w->key.s, batch, copies) != NULL;
    const bool skip = (known && !w->a->measure) || too_much(costs, w, batch, copies);
    ech__costs_close(costs);
    if (skip)
        return ECH__EXIT_GOOD;
    fprintf(stderr, "echelon plan: measuring a step of %lld samples on one device%s\n",
            (long long)batch, copies > 1 ? ", beside others" : "");
    snprintf(what, sizeof what, "--measure-batch=%lld", (long long)batch);
    return launch(w->ctx, w->command, w->argv, w->file, copies, what);
}

static int measure_machine(const work *w, bool given_links)
{
    ech__costs *costs;
    if (ech__costs_open(w->ctx, w->file, NULL, &costs) < 0)
        return ech__cli_fail(w->ctx, w->command, ECH__EXIT_FAILED);
    const ech__machine_costs m = *ech__costs_machine(costs);
    ech__costs_close(costs);
    int code = ECH__EXIT_GOOD;
    if (!given_links && (m.allreduce.count == 0 || w->a->measure)) {
        fprintf(stderr, "echelon plan: measuring the exchange between two devices\n");
        code = launch(w->ctx, w->command, w->argv, w->file, 2, "--measure-link");
    }
    const bool copies = w->a->parallel == ECH__STRATEGY_DP || w->a->accum > 1 || w->a->grad_dtype;
    if (code == ECH__EXIT_GOOD && copies && (m.copy.count == 0 || w->a->measure)) {
        fprintf(stderr, "echelon plan: measuring copies between two devices\n");
        code = launch(w->ctx, w->command, w->argv, w->file, 1, "--measure-copies");
    }
    return code;
}

static int measure_all(const work *w, const ech__load *load, const counts *devices,
                       bool given_links)
{
    int64_t *batches = malloc(ROOM * sizeof *batches);
    if (!batches) {
        ech__fail(w->ctx, ECH_E_NOMEM, "no memory for %d batches", ROOM);
        return ech__cli_fail(w->ctx, w->command, ECH__EXIT_FAILED);
    }
    const size_t count = wanted_batches(w->a, load, devices, batches);
    int code = measure_machine(w, given_links);
    for (size_t i = 0; i < count && code == ECH__EXIT_GOOD; i++) {
        code = measure_batch(w, batches[i], 1);
        if (code == ECH__EXIT_GOOD && w->beside > 1)
            code = measure_batch(w, batches[i], w->beside);
    }
    free(batches);
    return code;
}

/* ---- prices ---- */

static ech_status price_all(ech_ctx *ctx, const args *a, const counts *devices, ech__plan_result *r)
{
    int64_t most = 1;
    r->rows = calloc(devices->count + 1, sizeof *r->rows);
    if (!r->rows)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for %zu prices", devices->count);
    r->count = devices->count;
    for (size_t i = 0; i < devices->count; i++) {
        ECH_TRY(ech__scale(r->pricing, &r->load, devices->n[i], &r->rows[i]));
        most = devices->n[i] > most ? devices->n[i] : most;
    }
    ECH_TRY(ech__find_break_even(r->pricing, &r->load, &r->half));
    if (a->advise)
        ECH_TRY(
            ech__advise(r->pricing, &r->load, most, a->efficiency, a->device_memory, &r->advice));
    return ECH_OK;
}

static ech_status show(ech_ctx *ctx, const args *a, const ech__plan_result *r)
{
    if (a->plot)
        ECH_TRY(ech__plan_plot(ctx, r, a->plot));
    if (!a->json) {
        ech__plan_show(r);
        return ECH_OK;
    }
    ech_json *json = ech__plan_json(r);
    const ech_status status = ech__json_print(ctx, json, ECH_JSON_INDENT, stdout);
    ech__json_destroy(json);
    return status;
}

/* From the plan alone: what one device needs, and the most that it could take. */
static ech_status find_capacity(ech_ctx *ctx, const args *a, int64_t batch, ech__plan_result *r)
{
    ech__capacity capacity;
    ech__run_config config = config_of(a);
    config.train.device_memory = a->device_memory;
    ECH_TRY(ech__capacity_init(ctx, &config, 1, &capacity));
    r->limit = capacity.limit;
    ECH_TRY(ech__capacity_need(&capacity, batch, &r->need));
    return ech__capacity_largest(&capacity, &r->largest);
}

static ech_status price(ech_ctx *ctx, const work *w, const ech__load *load, const counts *devices,
                        const ech__cluster *cluster)
{
    const args *a = w->a;
    const ech__run_config config = config_of(a);
    ech__costs *costs;
    ECH_TRY(ech__costs_open(ctx, w->file, NULL, &costs));
    ech__plan_result r = {.config = &config,
                          .strategy = (ech__strategy)a->parallel,
                          .load = *load,
                          .given_links = cluster != NULL,
                          .links = a->cluster ? a->cluster : a->link,
                          .costs = w->file,
                          .advised = a->advise,
                          .efficiency = a->efficiency};
    const ech__pricing_options o = {.config = &config,
                                    .strategy = r.strategy,
                                    .costs = costs,
                                    .cluster = cluster,
                                    .algorithm = (ech__algorithm)a->algorithm,
                                    .beside = w->beside};
    ech_status status = ech__pricing_create(ctx, &o, &r.pricing);
    if (status == ECH_OK && r.strategy == ECH__STRATEGY_DDP)
        status = find_capacity(ctx, a, ech__load_of(load, 1), &r);
    if (status == ECH_OK) {
        r.beside = ech__pricing_beside(r.pricing);
        status = price_all(ctx, a, devices, &r);
    }
    if (status == ECH_OK)
        status = show(ctx, a, &r);
    free(r.rows);
    ech__pricing_destroy(r.pricing);
    ech__costs_close(costs);
    return status;
}

/* ---- the command ---- */

/* Ranks hand their costs over in a file; without a cache directory it is one for this run only. */
static ech_status find_file(ech_ctx *ctx, const args *a, char *out, size_t bytes, bool *temporary)
{
    *temporary = false;
    if (a->costs_file) {
        if ((size_t)snprintf(out, bytes, "%s", a->costs_file) >= bytes)
            return ech__fail(ctx, ECH_E_INVALID, "--costs-file: the path is too long");
        return ECH_OK;
    }
    ECH_TRY(ech__costs_default_path(ctx, out, bytes));
    if (*out)
        return ECH_OK;
    snprintf(out, bytes, "/tmp/echelon-costs-XXXXXX");
    const int fd = mkstemp(out);
    if (fd < 0)
        return ech__fail(ctx, ECH_E_IO, "there is no place to keep costs: give --costs-file");
    close(fd);
    unlink(out); /* an empty file is no file of costs */
    *temporary = true;
    return ECH_OK;
}

static int plan(ech_ctx *ctx, const ech__command *command, char **argv, const args *a,
                const counts *devices)
{
    /* Of a micro-step: the price is of as many as the step has. */
    const ech__load load = {.batch = a->global  ? 0
                                     : a->batch ? a->batch
                                                : 64,
                            .global = a->global / a->accum};
    ech__cluster cluster;
    if (check(ctx, a, &load, devices) < 0 || find_links(ctx, a, devices, &cluster) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    char file[4096];
    bool temporary;
    if (find_file(ctx, a, file, sizeof file, &temporary) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    const bool given = a->link || a->cluster;
    const ech__run_config config = config_of(a);
    const ech__run_config single = ech__pricing_single(&config, (ech__strategy)a->parallel, 1);
    const int cores = ech__device_cores() / (int)a->threads;
    const work w = {.ctx = ctx,
                    .command = command,
                    .argv = argv,
                    .a = a,
                    .file = file,
                    .key = ech__costs_key_of(&single),
                    .beside = given || cores < 2 ? 1 : cores};
    int code = measure_all(&w, &load, devices, given);
    if (code == ECH__EXIT_GOOD && price(ctx, &w, &load, devices, given ? &cluster : NULL) < 0)
        code = ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    if (temporary)
        unlink(file);
    return code;
}

static int fit(ech_ctx *ctx, const ech__command *command, const args *a)
{
    ech__run_config config = config_of(a);
    config.train.device_memory = a->device_memory;
    const bool other = a->batch || a->global || a->advise || a->plot || a->measure;
    if (other || a->parallel != ECH__STRATEGY_DDP) {
        ech__fail(ctx, ECH_E_INVALID, "--fit has the batches and measures nothing: %s",
                  other
                      ? "--batch-size, --global-batch, --advise, --plot and --measure have nothing "
                        "to do"
                      : "ask echelon train --parallel dp --fit about the devices of DataParallel");
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    }
    return ech__cli_fit_list(ctx, command, &config, a->fit, a->json);
}

int ech__run_plan(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a = {0};
    ech__option_result result;
    int code;
    if (!ech__cli_parse(ctx, command, argv, &a, &result, &code))
        return code;
    if (a.measure_batch || a.measure_link || a.measure_copies)
        return measure_as_rank(ctx, command, &a);
    if (a.fit)
        return fit(ctx, command, &a);
    counts *devices = malloc(sizeof *devices);
    if (!devices) {
        ech__fail(ctx, ECH_E_NOMEM, "no memory for the numbers of devices");
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    }
    if (parse_devices(ctx, a.devices, devices) < 0)
        code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    else
        code = plan(ctx, command, argv, &a, devices);
    free(devices);
    return code;
}
