/* echelon plan: measures what a step costs on one device where that is not known yet, and prices it on others. */
#include "cli/train/capacity.h"
#include "cli/plan/plan.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef ech__plan_args args;
typedef ech__plan_counts counts;

/* ---- prices ---- */

static ech_status price_all(ech_ctx *ctx, const args *a, const counts *devices, ech__plan_result *r)
{
    int64_t most = 1;
    r->rows = calloc(devices->count + 1, sizeof *r->rows);
    if (!r->rows)
        return ech__no_memory(ctx, "%zu prices", devices->count);
    r->count = devices->count;
    for (size_t i = 0; i < devices->count; i++) {
        ECH_TRY(ech__scale(r->pricing, &r->load, devices->n[i], &r->rows[i]));
        most = devices->n[i] > most ? devices->n[i] : most;
    }
    if (!ech__strategy_row_of(r->config->parallel)->cuts_model)
        ECH_TRY(ech__find_break_even(r->pricing, &r->load, &r->half));
    if (ech__strategy_row_of(r->config->parallel)->has_ranks)
        ECH_TRY(ech__find_crossings(r->pricing, &r->load, &r->half, most, r->crossings,
                                    &r->ncrossings));
    if (a->advise)
        ECH_TRY(ech__advise(r->pricing, &r->load, most, a->efficiency, a->run.train.device_memory,
                            &r->advice));
    return ECH_OK;
}

static ech_status show(ech_ctx *ctx, const args *a, const ech__plan_result *r)
{
    if (a->plot)
        ECH_TRY(ech__plan_plot(ctx, r, a->plot));
    if (!a->run.json) {
        ech__plan_show(r);
        return ECH_OK;
    }
    return ech__cli_json(ctx, ech__plan_json(r));
}

/* From the plan alone: what one device needs, and the most that it could take. */
static ech_status find_capacity(ech_ctx *ctx, int64_t batch, ech__plan_result *r)
{
    ech__capacity capacity;
    ECH_TRY(ech__capacity_init(ctx, r->config, 1, &capacity));
    r->limit = capacity.limit;
    ECH_TRY(ech__capacity_need(&capacity, batch, &r->need));
    return ech__capacity_largest(&capacity, &r->largest);
}

static ech_status price(const ech__plan_measuring *m, ech__costs *costs,
                        const ech__cluster *cluster, const char *file)
{
    ech_ctx *ctx = m->ctx;
    const args *a = m->args;
    const ech__load *load = m->load;
    ech__run_config config = ech__plan_config(a);
    config.train.device_memory = a->run.train.device_memory;
    ech__plan_result r = {.args = a,
                          .config = &config,
                          .load = *load,
                          .given_links = cluster != NULL,
                          .costs = *file ? file : NULL,
                          .machine = ech__costs_exported(costs) ? ech__costs_exported(costs)
                                                                : ech__costs_machine_name(costs),
                          .exported = ech__costs_exported(costs) != NULL,
                          .device = m->device};
    const ech__pricing_options o = {.config = &config,
                                    .strategy = config.parallel,
                                    .costs = costs,
                                    .sped_up = a->device_speed != 1,
                                    .device = m->device,
                                    .cluster = cluster,
                                    .algorithm = a->run.algorithm,
                                    .beside = m->beside};
    ech_status status = ech__pricing_create(ctx, &o, &r.pricing);
    if (status == ECH_OK && ech__strategy_row_of(config.parallel)->has_ranks)
        status = find_capacity(ctx, ech__load_of(load, 1), &r);
    if (status == ECH_OK) {
        r.beside = ech__pricing_beside(r.pricing);
        status = price_all(ctx, a, m->devices, &r);
    }
    if (status == ECH_OK)
        status = show(ctx, a, &r);
    free(r.rows);
    ech__pricing_destroy(r.pricing);
    return status;
}

/* ---- the command ---- */

static int plan(ech_ctx *ctx, const ech__command *command, char **argv, const args *a,
                const counts *devices, const ech__device_spec *device)
{
    const ech__run_config *t = &a->run;
    /* Of a micro-step: the price is of as many as the step has. */
    ech__load load = {.batch = t->global_batch  ? 0
                               : t->train.batch ? t->train.batch
                                                : 64,
                      .global = t->global_batch / t->train.accum};
    if (ech__strategy_row_of(t->parallel)->cuts_model) /* the batch is that of all devices */
        load = (ech__load){.global = t->global_batch ? t->global_batch : load.batch};
    ech__cluster cluster;
    if (ech__plan_check(ctx, a, &load, devices) < 0 ||
        ech__plan_links(ctx, a, devices, device, &cluster) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    char file[4096] = "";
    ech__costs *costs;
    if (!device)
        ECH_TRY(ech__plan_costs_file(ctx, a->costs_file, file, sizeof file));
    ECH_TRY(ech__costs_open(ctx, file, NULL, &costs));
    const bool given = t->link || t->cluster || device;
    const ech__run_config config = ech__plan_config(a);
    const ech__run_config single = ech__pricing_single(&config, t->parallel, 1);
    const ech__costs_key key = ech__costs_key_of(&single);
    const bool exported = ech__costs_exported(costs);
    const int cores =
        exported ? ech__costs_beside(costs, key.s) : ech__device_cores() / t->train.threads;
    const ech__plan_measuring m = {.ctx = ctx,
                                   .command = command,
                                   .argv = argv,
                                   .args = a,
                                   .load = &load,
                                   .devices = devices,
                                   .key = key.s,
                                   .device = device,
                                   .given_links = given,
                                   .beside = given || cores < 2 ? 1 : cores};
    int code = ECH__EXIT_GOOD;
    if (exported && a->measure) {
        ech__fail(ctx, ECH_E_INVALID, "--measure: %s has the costs of another machine (%s)", file,
                  ech__costs_exported(costs));
        code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    } else if (!device && !exported) {
        code = ech__plan_measure(&m, costs);
    }
    if (a->device_speed != 1)
        ech__costs_speed_up(costs, a->device_speed);
    if (code == ECH__EXIT_GOOD)
        code = price(&m, costs, given ? &cluster : NULL, file);
    ech__costs_close(costs);
    return code;
}

static int memory(ech_ctx *ctx, const ech__command *command, const args *a)
{
    const ech__run_config *t = &a->run;
    ech__run_config config = ech__plan_config(a);
    config.train.device_memory = t->train.device_memory;
    const bool other = t->train.batch || t->global_batch || a->advise || a->plot || a->measure;
    if (other || !ech__strategy_row_of(t->parallel)->has_ranks) {
        ech__fail(
            ctx, ECH_E_INVALID, "--memory lists the batches and measures nothing: %s",
            other ? "--batch-size, --global-batch, --advise, --plot and --measure do not apply"
                  : "for other strategies use echelon train --parallel dp|mp|pipeline --memory");
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    }
    return ech__cli_memory_list(ctx, command, &config, a->memory, a->run.json);
}

int ech__plan_run(ech_ctx *ctx, const ech__command *command, const ech__option_result *given)
{
    args *a = given->args;
    ech__device_spec device;
    int code;
    if (a->device_spec) {
        if (ech__device_spec_load(ctx, a->device_spec, &device) < 0) {
            ech__fail_in(ctx, ECH_E_INVALID, "--device-spec");
            return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        }
        if (!a->run.train.device_memory)
            a->run.train.device_memory = (int64_t)device.memory;
    }
    if (a->measure_batch || a->measure_link || a->measure_copies)
        return ech__plan_measure_as_rank(ctx, command, a);
    if (a->memory)
        return memory(ctx, command, a);
    counts *devices = malloc(sizeof *devices);
    if (!devices)
        return ech__no_memory(ctx, "the numbers of devices");
    if (ech__plan_devices(ctx, a->devices, devices) < 0)
        code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    else
        code = plan(ctx, command, given->argv, a, devices, a->device_spec ? &device : NULL);
    free(devices);
    return code;
}
