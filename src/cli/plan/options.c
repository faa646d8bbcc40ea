#include "cli/plan/plan.h"
#include "base/file/file.h"
#include "device/device.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef ech__plan_args args;
typedef ech__plan_counts counts;

_Static_assert(offsetof(args, run) == 0, "rows store into the configuration");

static const ech__option options[] = {
#define OPTION(train, bench, plan, graph, ...) ECH__IN_##plan(ECH__OPTION_ROW(__VA_ARGS__))
#include "train/options.inc"
    ECH_ROW(COUNT, args, run.train.threads, "threads", "Threads per device.", .arg = "T",
            .initial = "1", .min = 1, .max = 1024, .group = "Devices"),
    ECH_ROW(STRING, args, devices, "devices", "Numbers of devices, such as 1,2,4,64 or 1-16.",
            .arg = "LIST", .initial = "1,2,4,8"),
    ECH_ROW(STRING, args, device_spec, "device-spec",
            "Price each operator by a device's description (peak flops, bandwidth, efficiency by "
            "kind of operator, launch time, memory, link) instead of measured costs. Nothing is "
            "measured. examples/devices has some; docs/devices.md lists the members.",
            .arg = "FILE", .group = "Costs"),
    ECH_ROW(FLAG, args, measure, "measure", "Measure all costs again, even those that are known."),
    ECH_ROW(REAL, args, seconds, "measure-seconds",
            "Time for each measurement: each batch, on one device and on all cores at once.",
            .arg = "S", .initial = "1.5", .min = 0.01, .max = 600),
    ECH_ROW(STRING, args, costs_file, "costs-file",
            "File that stores costs. Default: $ECHELON_COSTS, or costs.json next to the kernel "
            "timings. One that echelon plan export wrote on another machine has the costs of that "
            "machine; nothing is measured then.",
            .arg = "FILE"),
    ECH_ROW(REAL, args, device_speed, "device-speed",
            "Price devices that are X times as fast as the one that was measured. Requires --link "
            "or --cluster.",
            .arg = "X", .initial = "1", .min = 1e-3, .max = 1e6),
    ECH_ROW(FLAG, args, advise, "advise",
            "Find the batch and the number of devices with the highest throughput at an "
            "efficiency of at least --efficiency.",
            .group = "Output"),
    ECH_ROW(REAL, args, efficiency, "efficiency",
            "Lowest efficiency for --advise: speedup divided by the number of devices.", .arg = "E",
            .initial = "0.8", .min = 0.01, .max = 1),
    ECH_ROW(STRING, args, memory, "memory",
            "Print planned memory by kind for these batches, whether each fits on a device, and "
            "the largest batch that fits. Nothing is measured.",
            .also = "fit", .arg = "BATCH,..."),
    ECH_ROW(STRING, args, plot, "plot",
            "Draw the efficiency over the devices, with the points where communication takes half, "
            "another algorithm wins, or the batch no longer divides, as SVG or PNG by the end of "
            "the name.",
            .arg = "FILE"),
    ECH_ROW(FLAG, args, run.json, "json", "Print one JSON object."),
    /* A rank that measures for the command that has started it. */
    ECH_ROW(INT, args, measure_batch, "measure-batch", NULL, .hidden = true, .min = 1,
            .max = 1 << 24),
    ECH_ROW(STRING, args, measure_file, "measure-file", NULL, .arg = "FILE", .hidden = true),
    ECH_ROW(FLAG, args, measure_link, "measure-link", NULL, .hidden = true),
    ECH_ROW(FLAG, args, measure_copies, "measure-copies", NULL, .hidden = true),
};

static const ech__option_example examples[] = {
    {"echelon plan --model resnet18 --batch-size 32 --devices 1,2,4,8,64,1024 --link 12GB/s,5us",
     "Predict scaling to 1,024 devices over given links."},
    {"echelon plan --dim 2048 --depth 4 --global-batch 256 --devices 1,2",
     "Strong scaling on this machine: the same global batch on 1 and 2 devices."},
    {"echelon plan --model resnet18 --devices 1-64 --cluster cluster.json --plot scaling.svg",
     "Nodes with several devices each; plot the scaling curve."},
    {"echelon plan --dim 2048 --depth 20 --parallel pipeline --batch-size 1024 --devices 1,2,5,10",
     "Predict a pipeline on more devices, with its bubble."},
    {"echelon plan --model resnet18 --momentum 0.9 --memory 32,128,512,2048,8192 --device-memory "
     "48GB",
     "Which batches fit on a device with 48 GB."},
    {"echelon plan --model resnet18 --momentum 0.9 --batch-size 128 --devices 1,2,4,8 "
     "--device-spec examples/devices/a40.json",
     "A GPU by its data sheet: time, memory and scaling, with nothing measured here."},
    {"echelon plan --model lenet --devices 1,64 --link 1GB/s,20us --advise --efficiency 0.9",
     "The batch and number of devices with the highest throughput at 90 % efficiency."},
};

/* ---- arguments ---- */

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

bool ech__plan_is_rank(const args *a)
{
    return a->measure_batch || a->measure_link || a->measure_copies;
}

ech_status ech__plan_costs_file(ech_ctx *ctx, const char *given, char *out, size_t bytes)
{
    if (!given)
        return ech__costs_default_path(ctx, out, bytes);
    if ((size_t)snprintf(out, bytes, "%s", given) >= bytes)
        return ech__fail(ctx, ECH_E_INVALID, "--costs-file: the path is longer than %zu bytes",
                         bytes);
    return ECH_OK;
}

ech__run_config ech__plan_config(const args *a)
{
    ech__run_config config = a->run;
    config.train.batch = config.global_batch = config.train.device_memory = 0;
    return config;
}

/* Of layers on several devices. */
static ech_status check_layers(ech_ctx *ctx, const args *a)
{
    const ech__run_config config = ech__plan_config(a), *t = &config;
    const int micros = t->train.pipeline.micro_batches;
    if (micros && a->load.global % micros)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--micro-batches %d must divide the batch of %lld samples", micros,
                         (long long)a->load.global);
    for (size_t i = 0; i < a->counts.count; i++) {
        if (a->counts.n[i] > 1)
            ECH_TRY(ech__pricing_check_layers(ctx, &config, a->counts.n[i]));
    }
    return ECH_OK;
}

/* Before anything is measured: the picture is written after all of it. */
static ech_status check_plot(ech_ctx *ctx, const char *path)
{
    ech__file_writer writer;
    if (!path)
        return ECH_OK;
    if (!ech__is_picture_name(path))
        return ech__fail(ctx, ECH_E_INVALID, "--plot %.200s: the name must end in .svg or .png",
                         path);
    const ech_status status = ech__file_writer_init(ctx, &writer, path);
    ech__file_writer_fini(&writer);
    return status < 0 ? ech__fail_in(ctx, status, "--plot") : ECH_OK;
}

/* Refuses what does not go together. */
static ech_status check(ech_ctx *ctx, const args *a)
{
    const ech__run_config *t = &a->run;
    ECH_TRY(ech__training_check(ctx, t));
    if (a->device_spec && (a->measure || a->costs_file || a->device_speed != 1))
        return ech__fail(ctx, ECH_E_INVALID, "--device-spec measures nothing: %s does not apply",
                         a->measure      ? "--measure"
                         : a->costs_file ? "--costs-file"
                                         : "--device-speed");
    if (a->device_speed != 1 && !t->link && !t->cluster)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--device-speed %g requires --link or --cluster: devices of this machine "
                         "do their exchange themselves, at its speed",
                         a->device_speed);
    if (t->algorithm && !t->link && !t->cluster && !a->device_spec)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--algorithm requires --link or --cluster: devices of this machine "
                         "exchange directly");
    ECH_TRY(check_plot(ctx, a->plot));
    if (t->global_batch % t->train.accum)
        return ech__fail(ctx, ECH_E_INVALID, "--global-batch %lld must be divisible by --accum %d",
                         (long long)t->global_batch, t->train.accum);
    ECH_TRY(ech__strategy_check_flags(ctx, (ech__spread_by){.strategy = t->parallel},
                                      ech__training_asked(t, t->parallel) |
                                          (a->advise ? ECH__FEATURE_BIT(ADVISE) : 0)));
    const bool layers = ech__strategy_row_of(t->parallel)->cuts_model;
    for (size_t i = 0; i < a->counts.count; i++) {
        const int64_t n = a->counts.n[i], most = ech__strategy_row_of(t->parallel)->most;
        if (n > most)
            return ech__fail(ctx, ECH_E_INVALID,
                             "--devices %lld: --parallel %s supports at most %lld", (long long)n,
                             ech__strategy_name(t->parallel), (long long)most);
        if (ech__load_of(&a->load, n) < n && !layers)
            return ech__fail(ctx, ECH_E_INVALID,
                             "--global-batch %lld for %lld devices: each needs at least one sample",
                             (long long)t->global_batch, (long long)n);
    }
    return layers ? check_layers(ctx, a) : ECH_OK;
}

static ech_status find_links(ech_ctx *ctx, args *a)
{
    const ech__run_config *t = &a->run;
    ech__cluster *out = &a->cluster;
    *out = ech__cluster_defaults();
    if (t->cluster)
        ECH_TRY(ech__cluster_load(ctx, t->cluster, out));
    else if (t->link)
        ECH_TRY(ech__cluster_of_link(ctx, t->link, ech__training_node_size(t), out));
    else if (a->device_spec) /* as one link of every device, with the nodes of --link */
        *out = (ech__cluster){.devices_per_node = ech__training_node_size(t),
                              .inside = a->device.link,
                              .between = a->device.link,
                              .source = ECH__LINK_DEVICE};
    for (size_t i = 0; t->cluster && i < a->counts.count; i++)
        ECH_TRY(ech__cluster_check(ctx, out, a->counts.n[i]));
    return ECH_OK;
}

static ech_status check_memory(ech_ctx *ctx, const args *a)
{
    const ech__run_config *t = &a->run;
    if (t->train.batch || t->global_batch || a->advise || a->plot || a->measure)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--memory lists the batches and measures nothing: --batch-size, "
                         "--global-batch, --advise, --plot and --measure do not apply");
    if (!ech__strategy_row_of(t->parallel)->has_ranks)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--memory lists the batches and measures nothing: for other strategies "
                         "use echelon train --parallel dp|mp|pipeline --memory");
    return ECH_OK;
}

/* Of a micro-step: the price is of as many as the step has. Of layers on several devices the batch is that of all. */
static ech__load load_of(const ech__run_config *c)
{
    const int64_t batch = c->train.batch ? c->train.batch : 64;
    if (ech__strategy_row_of(c->parallel)->cuts_model)
        return (ech__load){.global = c->global_batch ? c->global_batch : batch};
    return (ech__load){.batch = c->global_batch ? 0 : batch,
                       .global = c->global_batch / c->train.accum};
}

static ech_status settle(ech_ctx *ctx, const ech__option_result *given)
{
    static const ech__option_numbers option = {"devices", 1000000, ECH__PLAN_MOST_ROWS};
    args *a = given->args;
    counts *c = &a->counts;
    if (a->device_spec) {
        if (ech__device_spec_load(ctx, a->device_spec, &a->device) < 0)
            return ech__fail_in(ctx, ECH_E_INVALID, "--device-spec");
        if (!a->run.train.device_memory)
            a->run.train.device_memory = (int64_t)a->device.memory;
    }
    if (ech__plan_is_rank(a))
        return ECH_OK;
    if (a->memory)
        return check_memory(ctx, a);
    ECH_TRY(ech__option_read_numbers(ctx, &option, a->devices, c->n, &c->count));
    c->count = ech__plan_distinct(c->n, c->count);
    a->load = load_of(&a->run);
    ECH_TRY(check(ctx, a));
    return find_links(ctx, a);
}

const ech__command ech__cli_plan = {
    .name = "plan",
    .brief = "predict time, bytes and memory on other numbers of devices",
    .about =
        "Measures once what each operator of a training step costs on one device of this machine "
        "and stores it. Then it simulates the step on N devices, with the gradient exchange. "
        "Nothing is run on N devices: their figures are predicted and marked so. Speedup and "
        "efficiency compare samples per second with one device.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, ech__plan_run),
    .check = settle,
    .defaults = ech__training_defaults,
};
