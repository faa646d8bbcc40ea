/* echelon plan: measures what a step costs on one device where that is not known yet, and prices it on others. */
#include "cli/train/capacity.h"
#include "cli/plan/plan.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef ech__plan_args args;

/* ---- prices ---- */

static ech_status price_all(ech_ctx *ctx, ech__plan_result *r)
{
    const args *a = r->args;
    const ech__load *load = &a->load;
    const ech__plan_counts *devices = &a->counts;
    int64_t most = 1;
    r->rows = calloc(devices->count + 1, sizeof *r->rows);
    if (!r->rows)
        return ech__no_memory(ctx, "%zu prices", devices->count);
    r->count = devices->count;
    for (size_t i = 0; i < devices->count; i++) {
        ECH_TRY(ech__scale(r->pricing, load, devices->n[i], &r->rows[i]));
        most = devices->n[i] > most ? devices->n[i] : most;
    }
    if (!ech__strategy_row_of(r->config->parallel)->cuts_model)
        ECH_TRY(ech__find_break_even(r->pricing, load, &r->half));
    if (ech__strategy_row_of(r->config->parallel)->has_ranks)
        ECH_TRY(
            ech__find_crossings(r->pricing, load, &r->half, most, r->crossings, &r->ncrossings));
    if (a->advise)
        ECH_TRY(ech__advise(r->pricing, load, most, a->efficiency, a->run.train.device_memory,
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

static ech_status price(const ech__plan_measuring *m, ech__costs *costs, const char *file)
{
    ech_ctx *ctx = m->ctx;
    const args *a = m->args;
    const ech__device_spec *device = a->device_spec ? &a->device : NULL;
    ech__run_config config = ech__plan_config(a);
    config.train.device_memory = a->run.train.device_memory;
    ech__plan_result r = {.args = a,
                          .config = &config,
                          .given_links = m->given_links,
                          .costs = *file ? file : NULL,
                          .machine = ech__costs_exported(costs) ? ech__costs_exported(costs)
                                                                : ech__costs_machine_name(costs),
                          .exported = ech__costs_exported(costs) != NULL,
                          .device = device};
    const ech__pricing_options o = {.config = &config,
                                    .strategy = config.parallel,
                                    .costs = costs,
                                    .sped_up = a->device_speed != 1,
                                    .device = device,
                                    .cluster = m->given_links ? &a->cluster : NULL,
                                    .algorithm = a->run.algorithm,
                                    .beside = m->beside};
    ech_status status = ech__pricing_create(ctx, &o, &r.pricing);
    if (status == ECH_OK && ech__strategy_row_of(config.parallel)->has_ranks)
        status = find_capacity(ctx, ech__load_of(&a->load, 1), &r);
    if (status == ECH_OK) {
        r.beside = ech__pricing_beside(r.pricing);
        status = price_all(ctx, &r);
    }
    if (status == ECH_OK)
        status = show(ctx, a, &r);
    free(r.rows);
    ech__pricing_destroy(r.pricing);
    return status;
}

/* ---- the command ---- */

static int plan(ech_ctx *ctx, const ech__command *command, char **argv, const args *a)
{
    const ech__run_config *t = &a->run;
    char file[4096] = "";
    ech__costs *costs;
    if (!a->device_spec)
        ECH_TRY(ech__plan_costs_file(ctx, a->costs_file, file, sizeof file));
    ECH_TRY(ech__costs_open(ctx, file, NULL, &costs));
    const bool given = t->link || t->cluster || a->device_spec;
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
                                   .key = key.s,
                                   .given_links = given,
                                   .beside = given || cores < 2 ? 1 : cores};
    int code = ECH__EXIT_GOOD;
    if (exported && a->measure) {
        ech__fail(ctx, ECH_E_INVALID, "--measure: %s has the costs of another machine (%s)", file,
                  ech__costs_exported(costs));
        code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    } else if (!a->device_spec && !exported) {
        code = ech__plan_measure(&m, costs);
    }
    if (a->device_speed != 1)
        ech__costs_speed_up(costs, a->device_speed);
    if (code == ECH__EXIT_GOOD)
        code = price(&m, costs, file);
    ech__costs_close(costs);
    return code;
}

int ech__plan_run(ech_ctx *ctx, const ech__option_result *given)
{
    const ech__command *command = given->command;
    const args *a = given->args;
    if (ech__plan_is_rank(a))
        return ech__plan_measure_as_rank(ctx, command, a);
    if (!a->memory)
        return plan(ctx, command, given->argv, a);
    ech__run_config config = ech__plan_config(a);
    config.train.device_memory = a->run.train.device_memory;
    return ech__cli_memory_list(ctx, command, &config, a->memory, a->run.json);
}
