#include "cli/plan/plan.h"
#include "base/format.h"
#include "cli/train/capacity.h"

#include <math.h>
#include <stdio.h>

const char *ech__plan_model(const ech__run_config *c, char *out, size_t bytes)
{
    if (c->model.kind == ECH__MODEL_LINEAR)
        snprintf(out, bytes, "linear %lldx%lld", (long long)c->model.dim,
                 (long long)c->model.depth);
    else
        snprintf(out, bytes, "%s", ech__model_name(c->model.kind));
    return out;
}

static const char *clock_of(const ech__price *price)
{
    return price->measured ? "measured" : "predicted";
}

/* ---- tables ---- */

static void show_links(const ech__plan_result *r)
{
    const ech__strategy_row *row = ech__strategy_row_of(r->config->parallel);
    const ech__cluster *c = ech__pricing_cluster(r->pricing);
    if (row->moves && !r->given_links) {
        printf("Devices share this machine's memory; %s at the measured speed.\n", row->moves);
        return;
    }
    printf("Links: %s%s.\n", ech__cluster_describe(c).s,
           c->mover == ECH__MOVER_DEVICES ? "; the devices do the exchange, so none of it is hidden"
                                          : "");
    if (row->has_ranks)
        printf(
            "All-reduce: %s.\n",
            ech__pricing_algorithm(r->pricing) == ECH__ALGORITHM_BEST
                ? "the cheapest algorithm for each size; the table names that of the largest bucket"
                : ech__algorithm_name(ech__pricing_algorithm(r->pricing)));
}

/* Nothing for plain f32 steps of one micro-step. */
static void show_precision(const ech_train_options *o)
{
    if (o->accum > 1)
        printf("A step has %d micro-steps, whose gradients are exchanged once.\n", o->accum);
    if (o->amp.type != ECH_AMP_OFF)
        printf("Layers compute in %s.\n", ech__amp_name(o->amp.type));
    if (o->ddp.grad_dtype != ECH_F32)
        printf("Gradients are exchanged in %s.\n", ech__dtype_name(o->ddp.grad_dtype));
}

static void show_device(const ech__plan_result *r)
{
    const ech__device_spec *d = r->device;
    printf("Device %s, by description (%s): every operator takes the longer of its flops and its "
           "bytes; nothing is measured.\n",
           d->name, r->args->device_spec);
    if (d->calibrated)
        printf("Calibrated on %s, with an error of about %.0f %%; kinds of operators that are not "
               "in it are ranges.\n\n",
               d->calibration, 100 * d->error);
    else
        puts("Not calibrated: a step is the middle of a range, which stands below the table.\n");
}

/* Where figures of the description are ranges, so are times. */
static void show_ranges(const ech__plan_result *r)
{
    printf("\n%8s %8s %9s   range of the step\n", "devices", "batch", "step");
    for (size_t i = 0; i < r->count; i++) {
        const ech__price *p = &r->rows[i].price;
        printf("%8lld %8lld %9s   %s to %s\n", (long long)p->devices, (long long)p->batch,
               ech__format_seconds(p->step.step_s).s, ech__format_seconds(p->low_s).s,
               ech__format_seconds(p->high_s).s);
    }
}

static void show_head(const ech__plan_result *r)
{
    char model[64];
    int64_t batches[64];
    const int count = ech__pricing_batches(r->pricing, batches, 64);
    printf("%s, %lld parameters, %s, ", ech__plan_model(r->config, model, sizeof model),
           (long long)ech__pricing_params(r->pricing),
           ech__optimizer_name(r->config->train.optimizer.kind));
    if (!r->device)
        printf("%d thread%s per device, ", r->config->train.threads,
               r->config->train.threads == 1 ? "" : "s");
    puts(ech__strategy_name(r->config->parallel));
    show_precision(&r->config->train);
    show_links(r);
    if (r->device) {
        show_device(r);
        return;
    }
    printf("Device: a core of %s.\n", r->machine);
    printf("Operator costs were measured on one device in training steps of");
    for (int i = 0; i < count; i++)
        printf("%s%lld", i ? ", " : " ", (long long)batches[i]);
    printf(" samples");
    if (r->beside > 1)
        printf(", alone and with %d devices at the same time", r->beside);
    if (r->exported)
        printf(", on another machine (%s)", r->machine);
    if (r->costs)
        printf(", and are kept in %s", r->costs);
    puts(".");
    if (r->args->device_speed != 1)
        printf("Devices are %g times as fast as the one that was measured (--device-speed).\n",
               r->args->device_speed);
    putchar('\n');
}

/* Of the largest bucket. */
static const char *algorithm_of(const ech__price *p)
{
    return p->devices > 1 && p->algorithm != ECH__ALGORITHM_BEST ? ech__algorithm_name(p->algorithm)
                                                                 : "-";
}

static void show_row(const ech__scaled *s)
{
    const ech__price *p = &s->price;
    const ech__priced_step *step = &p->step;
    printf("%8lld %7lld%c %9s %9s %9s %9s %9s %9s %7.2f %5.0f %% %10.1f %9s %9s  %-16s  %s\n",
           (long long)p->devices, (long long)p->batch, p->between ? '*' : ' ',
           ech__format_seconds(step->step_s).s, ech__format_seconds(step->compute_s).s,
           ech__format_seconds(step->exposed_s).s, ech__format_seconds(p->wait_s).s,
           ech__format_seconds(p->other_s).s, ech__format_seconds(step->hidden_s).s, s->speedup,
           100 * s->efficiency, p->samples_per_s, ech__format_bytes(s->memory).s,
           ech__format_bytes((int64_t)step->busiest_bytes).s, algorithm_of(p), clock_of(p));
}

/* For layers on several devices: micro-batches, and the bubble. */
static void show_pipeline(const ech__plan_result *r)
{
    printf("\n%8s %14s %8s %14s\n", "devices", "micro-batches", "bubble", "(D-1)/(M+D-1)");
    for (size_t i = 0; i < r->count; i++) {
        const ech__price *p = &r->rows[i].price;
        printf("%8lld %14d %6.1f %% %12.1f %%\n", (long long)p->devices, p->micros, 100 * p->bubble,
               100 * ech__pipe_bubble((int)p->devices, p->micros));
    }
}

enum { MOST_LINES = 8 };

/* A line for each batch that is beyond those that were measured. */
static void show_extrapolated(const ech__plan_result *r)
{
    int lines = 0, more = 0;
    int64_t last = 0;
    for (size_t i = 0; i < r->count; i++) {
        const ech__price *p = &r->rows[i].price;
        if (p->extrapolated == 1 || p->batch == last)
            continue;
        last = p->batch;
        if (lines == MOST_LINES) {
            more++;
            continue;
        }
        lines++;
        printf("Extrapolated from batch %lld to %lld (%.3gx): a step on %lld device%s takes %s to "
               "%s.\n",
               (long long)p->from, (long long)p->batch, p->extrapolated, (long long)p->devices,
               p->devices == 1 ? "" : "s", ech__format_seconds(p->low_s).s,
               ech__format_seconds(p->high_s).s);
    }
    if (more)
        printf("%d more batches are extrapolated.\n", more);
}

static void show_notes(const ech__plan_result *r)
{
    bool between = false, beyond = false;
    for (size_t i = 0; i < r->count; i++) {
        between |= r->rows[i].price.between;
        beyond |= !r->given_links && r->rows[i].price.devices > r->beside;
    }
    if (between)
        puts("* this batch was not measured; its times are interpolated linearly.");
    show_extrapolated(r);
    if (beyond && r->beside == 1)
        puts("Contention for this machine's memory is not included.");
    else if (beyond)
        printf("This machine has cores for %d devices. More devices are priced as if each had a "
               "core, with the memory contention of %d.\n",
               r->beside, r->beside);
}

static void show_break_even(const ech__plan_result *r)
{
    if (r->half.devices)
        printf("\nCommunication takes at least half of the step on %lld or more devices.",
               (long long)r->half.devices);
    else
        printf("\nCommunication takes less than half of the step on any number of devices.");
    if (r->half.batch)
        printf(" On 2 devices it takes at least half with up to %lld samples per device.",
               (long long)r->half.batch);
    putchar('\n');
}

static void show_crossings(const ech__plan_result *r)
{
    for (int i = 0; i < r->ncrossings; i++)
        printf("From %lld devices on: %s.\n", (long long)r->crossings[i].devices,
               r->crossings[i].what);
}

static void show_memory(const ech__plan_result *r)
{
    if (!r->need.batch)
        return;
    putchar('\n');
    ech__show_need(&r->need);
    putchar('\n');
    ech__show_largest(r->limit, r->largest);
}

static void show_advice(const ech__plan_result *r)
{
    const ech__price *best = &r->advice.best.price;
    if (!r->args->advise)
        return;
    printf("\nAt an efficiency of at least %.0f %%: ", 100 * r->args->efficiency);
    if (!r->advice.possible) {
        puts("one device; no larger number reaches it.");
        return;
    }
    printf("up to %lld device%s with the given batch (predicted).\n", (long long)r->advice.devices,
           r->advice.devices == 1 ? "" : "s");
    printf("Highest throughput: %lld devices with %lld samples each, %.1f samples/s at %.0f %% "
           "efficiency (predicted).\n",
           (long long)best->devices, (long long)best->batch, best->samples_per_s,
           100 * r->advice.best.efficiency);
}

void ech__plan_show(const ech__plan_result *r)
{
    show_head(r);
    printf("%8s %8s %9s %9s %9s %9s %9s %9s %7s %7s %10s %9s %9s  %s\n", "devices", "batch", "step",
           "compute", "exposed", "wait", "other", "hidden", "speedup", "effic.", "samples/s",
           "memory", "busiest", "algorithm");
    printf("%8s %8s %9s %9s %9s %9s %9s %9s %7s %7s %10s %9s %9s\n", "", "/device", "", "", "comm.",
           "", "", "comm.", "", "", "", "/device", "link");
    for (size_t i = 0; i < r->count; i++)
        show_row(&r->rows[i]);
    show_notes(r);
    if (r->device)
        show_ranges(r);
    if (ech__strategy_row_of(r->config->parallel)->cuts_model) {
        show_pipeline(r);
        return;
    }
    show_break_even(r);
    show_crossings(r);
    show_memory(r);
    show_advice(r);
}

/* ---- JSON ---- */

/* 0 becomes null. */
static ech__json_member count_or_null(const char *key, int64_t count)
{
    return count ? ech__int(key, count) : ech__string(key, NULL);
}

static ech_json *row_json(const ech__scaled *s)
{
    const ech__price *p = &s->price;
    return ECH__JSON(
        ech__int("devices", p->devices), ech__string("clock", clock_of(p)),
        ech__int("batch", p->batch), ech__int("global_batch", p->global),
        ech__bool("batch_measured", !p->between), ech__real("extrapolated", p->extrapolated),
        count_or_null("extrapolated_from", p->from), ech__real("step_time_s", p->step.step_s),
        ech__real("step_time_low_s", p->low_s), ech__real("step_time_high_s", p->high_s),
        ech__real("compute_s", p->step.compute_s), ech__real("overhead_s", p->overhead_s),
        ech__real("comm_s", p->step.comm_s), ech__real("comm_exposed_s", p->step.exposed_s),
        ech__real("comm_hidden_s", p->step.hidden_s), ech__real("wait_s", p->wait_s),
        ech__real("other_s", p->other_s), ech__real("loading_s", p->loading_s),
        ech__int("micro_batches", p->micros), ech__real("bubble", p->bubble),
        ech__real("speedup", s->speedup), ech__real("efficiency", s->efficiency),
        ech__real("samples_per_s", p->samples_per_s), ech__int("planned_memory_bytes", s->memory),
        ech__int("busiest_link_bytes", (int64_t)p->step.busiest_bytes),
        ech__string("algorithm", p->devices > 1 ? ech__algorithm_name(p->algorithm) : NULL));
}

static ech_json *device_json(const ech__plan_result *r)
{
    return ECH__JSON(
        ech__string("name", r->device->name), ech__string("file", r->args->device_spec),
        ech__string("calibration", r->device->calibrated ? r->device->calibration : NULL),
        ech__real("error", r->device->calibrated ? r->device->error : NAN));
}

static ech_json *costs_json(const ech__plan_result *r)
{
    int64_t batches[64];
    const int count = ech__pricing_batches(r->pricing, batches, 64);
    return ECH__JSON(ech__string("file", r->costs), ech__string("machine", r->machine),
                     ech__string("other_machine", r->exported ? r->machine : NULL),
                     ech__real("device_speed", r->args->device_speed),
                     ech__ints("batches", batches, (size_t)count), ech__int("beside", r->beside));
}

static ech_json *advice_json(const ech__plan_result *r)
{
    return ECH__JSON(
        ech__real("efficiency", r->args->efficiency), ech__bool("possible", r->advice.possible),
        ech__int("devices", r->advice.devices), ech__member("best", row_json(&r->advice.best)));
}

static ech_json *crossings_json(const ech__plan_result *r)
{
    ech_json *list = ech__json_array();
    for (int i = 0; i < r->ncrossings; i++) {
        const ech__crossing *c = &r->crossings[i];
        ech__json_append(&list,
                         ECH__JSON(ech__int("devices", c->devices), ech__string("what", c->what)));
    }
    return list;
}

ech_json *ech__plan_json(const ech__plan_result *r)
{
    char model[64];
    const ech_train_options *o = &r->config->train;
    const ech__strategy_row *strategy = ech__strategy_row_of(r->config->parallel);
    ech_json *json = ECH__JSON(
        ech__string("model", ech__plan_model(r->config, model, sizeof model)),
        ech__int("parameters", ech__pricing_params(r->pricing)),
        ech__string("parallel", ech__strategy_name(r->config->parallel)),
        ech__string("optimizer", ech__optimizer_name(o->optimizer.kind)),
        ech__int("threads", o->threads), ech__int("accum", o->accum),
        ech__string("amp", ech__amp_name(o->amp.type)),
        ech__string("grad_dtype", ech__dtype_name(o->ddp.grad_dtype)),
        ech__int("exchanged_bytes", ech__pricing_exchanged(r->pricing)),
        ech__member("links", ech__cluster_json(ech__pricing_cluster(r->pricing))),
        ech__string("algorithm", ech__algorithm_name(ech__pricing_algorithm(r->pricing))));
    if (r->device)
        ech__json_set(&json, "device", device_json(r));
    else
        ech__json_set(&json, "costs", costs_json(r));
    ech_json *rows = ech__json_array();
    for (size_t i = 0; i < r->count; i++)
        ech__json_append(&rows, row_json(&r->rows[i]));
    ech__json_set(&json, "rows", rows);
    if (r->need.batch) {
        ech_json *memory = ech__json_object();
        ech__need_json(&memory, &r->need);
        ECH__JSON_SET(&memory, ech__int("device_memory", r->limit),
                      ech__int("largest_batch", r->largest));
        ech__json_set(&json, "memory", memory);
    }
    if (!strategy->cuts_model)
        ech__json_set(&json, "communication_is_half",
                      ECH__JSON(count_or_null("devices", r->half.devices),
                                ech__int("batch_on_2_devices", r->half.batch)));
    if (strategy->has_ranks)
        ech__json_set(&json, "crossings", crossings_json(r));
    if (r->args->advise)
        ech__json_set(&json, "advice", advice_json(r));
    return json;
}
