#include "price/costs_internal.h"
#include "base/names.h"
#include "device/machine.h"
#include "plan/tuning.h"
#include "price/collective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ECH__NAMES(ech__dp_phase_name, ech__dp_phase, ECH__DP_PART_LIST)

double ech__size_seconds(const ech__size_costs *c, int64_t bytes)
{
    if (c->count == 0)
        return 0;
    if (bytes <= c->bytes[0])
        return c->seconds[0];
    for (int i = 1; i < c->count; i++) {
        if (bytes > c->bytes[i])
            continue;
        const double share =
            (double)(bytes - c->bytes[i - 1]) / (double)(c->bytes[i] - c->bytes[i - 1]);
        return c->seconds[i - 1] + share * (c->seconds[i] - c->seconds[i - 1]);
    }
    return c->seconds[c->count - 1] * (double)bytes / (double)c->bytes[c->count - 1];
}

/* ---- the store ---- */

ech__cost_entry *ech__costs_look_up(const ech__costs *costs, const char *machine, const char *key,
                                    int64_t batch, int beside)
{
    for (size_t i = 0; i < costs->count; i++) {
        ech__cost_entry *e = &costs->entries[i];
        if (e->cost.batch == batch && e->cost.beside == beside && !strcmp(e->key, key) &&
            !strcmp(e->machine, machine))
            return e;
    }
    return NULL;
}

ech_status ech__costs_store(ech__costs *costs, const char *machine, const char *key,
                            const ech__step_cost *cost)
{
    ech__arena *arena = &costs->arena;
    ech__cost_entry *e = ech__costs_look_up(costs, machine, key, cost->batch, cost->beside);
    if (!e) {
        if (!ech__arena_grow(arena, (void **)&costs->entries, costs->count, &costs->cap,
                             sizeof *costs->entries))
            return ech__no_memory(costs->ctx, "the store of costs");
        e = &costs->entries[costs->count];
        *e = (ech__cost_entry){.machine = ech__arena_printf(arena, "%s", machine),
                               .key = ech__arena_printf(arena, "%s", key)};
        if (!e->machine || !e->key)
            return ech__no_memory(costs->ctx, "the store of costs");
        costs->count++;
    }
    e->cost = *cost;
    e->cost.ops = ech__arena_array(arena, cost->nops, sizeof *cost->ops);
    if (!e->cost.ops)
        return ech__no_memory(costs->ctx, "the store of costs");
    for (size_t i = 0; i < cost->nops; i++) {
        ech__op_cost *op = &e->cost.ops[i];
        *op = cost->ops[i];
        op->op = ech__arena_printf(arena, "%s", op->op);
        op->name = ech__arena_printf(arena, "%s", op->name);
        op->phase = ech__arena_printf(arena, "%s", op->phase);
        if (!op->op || !op->name || !op->phase)
            return ech__no_memory(costs->ctx, "the store of costs");
    }
    return ECH_OK;
}

ech__machine_row *ech__costs_row(ech__costs *costs, const char *name)
{
    for (size_t i = 0; i < costs->nmachines; i++) {
        if (!strcmp(costs->machines[i].name, name))
            return &costs->machines[i];
    }
    if (!ech__arena_grow(&costs->arena, (void **)&costs->machines, costs->nmachines,
                         &costs->cap_machines, sizeof *costs->machines))
        return NULL;
    ech__machine_row *m = &costs->machines[costs->nmachines];
    *m = (ech__machine_row){.name = ech__arena_printf(&costs->arena, "%s", name)};
    if (!m->name)
        return NULL;
    costs->nmachines++;
    return m;
}

ech__machine_costs *ech__costs_machine(ech__costs *costs)
{
    return &ech__costs_row(costs, costs->machine)->costs; /* made when the store was opened */
}

const ech__step_cost *ech__costs_find(const ech__costs *costs, const char *key, int64_t batch,
                                      int beside)
{
    const ech__cost_entry *e = ech__costs_look_up(costs, costs->machine, key, batch, beside);
    return e ? &e->cost : NULL;
}

int ech__costs_batches(const ech__costs *costs, const char *key, int beside, int64_t *out, int max)
{
    int count = 0;
    for (size_t i = 0; i < costs->count && count < max; i++) {
        const ech__cost_entry *e = &costs->entries[i];
        if (e->cost.beside != beside || strcmp(e->key, key) || strcmp(e->machine, costs->machine))
            continue;
        int at = count++;
        for (; at > 0 && out[at - 1] > e->cost.batch; at--)
            out[at] = out[at - 1];
        out[at] = e->cost.batch;
    }
    return count;
}

int ech__costs_beside(const ech__costs *costs, const char *key)
{
    int most = 1;
    for (size_t i = 0; i < costs->count; i++) {
        const ech__cost_entry *e = &costs->entries[i];
        if (e->cost.beside > most && !strcmp(e->key, key) && !strcmp(e->machine, costs->machine))
            most = e->cost.beside;
    }
    return most;
}

const char *ech__costs_exported(const ech__costs *costs)
{
    return costs->exported ? costs->machine : NULL;
}

static void divide(double *times, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++)
        times[i] /= factor;
}

static void speed_up_step(ech__step_cost *c, double factor)
{
    double *const times[] = {&c->step_s, &c->low_s,     &c->high_s,      &c->overhead_s,
                             &c->wait_s, &c->loading_s, &c->hand_over_s, &c->loader_s};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] /= factor;
    divide(c->phase_s, ECH__DP_PHASES, factor);
    for (size_t i = 0; i < c->nops; i++) {
        ech__op_cost *op = &c->ops[i];
        op->median_s /= factor;
        op->low_s /= factor;
        op->high_s /= factor;
        op->tuned_s /= factor;
    }
}

void ech__costs_speed_up(ech__costs *costs, double factor)
{
    for (size_t i = 0; i < costs->count; i++)
        speed_up_step(&costs->entries[i].cost, factor);
    ech__machine_costs *m = ech__costs_machine(costs);
    divide(m->copy.seconds, (size_t)m->copy.count, factor);
    divide(m->add.seconds, (size_t)m->add.count, factor);
    divide(m->fetch.seconds, (size_t)m->fetch.count, factor);
    divide(m->rewrite.seconds, (size_t)m->rewrite.count, factor);
    m->step_job_s /= factor;
    m->part_job_s /= factor;
}

ech_status ech__costs_check(ech_ctx *ctx, const ech__step_cost *cost)
{
    const double times[] = {cost->low_s,  cost->high_s,    cost->overhead_s,  cost->wait_s,
                            cost->step_s, cost->loading_s, cost->hand_over_s, cost->loader_s};
    bool good = cost->batch >= 1 && cost->beside >= 1 && cost->step_s > 0;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        good = good && isfinite(times[i]);
    for (int p = 0; p < ECH__DP_PHASES; p++)
        good = good && isfinite(cost->phase_s[p]);
    if (!good)
        return ech__fail(ctx, ECH_E_FORMAT,
                         "a step of %lld samples that takes %g s: batch and time must be above 0, "
                         "and all times finite",
                         (long long)cost->batch, cost->step_s);
    for (size_t i = 0; i < cost->nops; i++) {
        const ech__op_cost *op = &cost->ops[i];
        if (!(isfinite(op->median_s) && op->median_s >= 0 && isfinite(op->low_s) &&
              isfinite(op->high_s) && isfinite(op->tuned_s)))
            return ech__fail(ctx, ECH_E_FORMAT, "the time of %s '%s' is %g s", op->op, op->name,
                             op->median_s);
    }
    return ECH_OK;
}

ech_status ech__costs_put(ech__costs *costs, const char *key, const ech__step_cost *cost)
{
    ECH_TRY(ech__costs_check(costs->ctx, cost));
    ECH_TRY(ech__costs_store(costs, costs->machine, key, cost));
    ech__costs_look_up(costs, costs->machine, key, cost->batch, cost->beside)->fresh = true;
    return ECH_OK;
}

void ech__costs_forget(ech__costs *costs, const char *key)
{
    size_t left = 0;
    for (size_t i = 0; i < costs->count; i++) {
        const ech__cost_entry *e = &costs->entries[i];
        if (strcmp(e->key, key) || strcmp(e->machine, costs->machine))
            costs->entries[left++] = *e;
    }
    costs->count = left;
}

const char *ech__costs_machine_name(const ech__costs *costs)
{
    return costs->machine;
}

bool ech__costs_link(const ech__costs *costs, int64_t bytes, bool aftermath, ech__link *out)
{
    const ech__size_costs *c = NULL;
    for (size_t i = 0; i < costs->nmachines; i++) {
        if (!strcmp(costs->machines[i].name, costs->machine))
            c = aftermath ? &costs->machines[i].costs.exchange
                          : &costs->machines[i].costs.allreduce;
    }
    if (!c || c->count < 2)
        return false;
    /* Between two devices the direct exchange of b bytes costs 2 latency + b / bandwidth. */
    const int64_t few = c->bytes[0], many = bytes > 2 * few ? bytes : c->bytes[c->count - 1];
    const double least = ech__size_seconds(c, few), most = ech__size_seconds(c, many);
    if (!(most > least))
        return false;
    const double bandwidth = (double)(many - few) / (most - least);
    const double latency = (least - (double)few / bandwidth) / 2;
    *out = (ech__link){.bytes_per_s = bandwidth, .latency_s = latency > 0 ? latency : 0};
    return true;
}

/* ---- opening ---- */

static ech_status name_machine(ech__costs *costs)
{
    ech__machine m;
    ECH_TRY(ech__machine_read(costs->ctx, &m));
    costs->machine = ech__arena_printf(&costs->arena, "%s; isa %s; %d cores; %s; %s", m.processor,
                                       ech__isa_name(m.isa), m.cores, m.onednn, m.openblas);
    return costs->machine ? ECH_OK : ech__no_memory(costs->ctx, "the store of costs");
}

static ech_status open_store(ech__costs *costs, const char *path, const char *machine)
{
    if (machine)
        costs->machine = ech__arena_printf(&costs->arena, "%s", machine);
    else
        ECH_TRY(name_machine(costs));
    if (path && *path) {
        costs->path = ech__arena_printf(&costs->arena, "%s", path);
        if (!costs->path)
            return ech__no_memory(costs->ctx, "the store of costs");
        const char *here = costs->machine;
        if (ech__costs_read(costs) < 0) {
            costs->machine = here;
            costs->exported = false;
            ech__log(costs->ctx, "starting without costs: %s", costs->ctx->error);
            costs->ctx->error[0] = 0;
            costs->count = costs->nmachines = 0;
        }
    }
    return costs->machine && ech__costs_row(costs, costs->machine)
               ? ECH_OK
               : ech__no_memory(costs->ctx, "the store of costs");
}

ech_status ech__costs_open(ech_ctx *ctx, const char *path, const char *machine, ech__costs **out)
{
    *out = NULL;
    ech__costs *costs = ech__new(ctx, sizeof *costs);
    if (!costs)
        return ech__no_memory(ctx, "the store of costs");
    costs->ctx = ctx;
    ech__arena_init(&costs->arena, ctx->alloc);
    const ech_status status = open_store(costs, path, machine);
    if (status < 0) {
        ech__costs_close(costs);
        return status;
    }
    *out = costs;
    return ECH_OK;
}

void ech__costs_close(ech__costs *costs)
{
    if (!costs)
        return;
    ech__arena_fini(&costs->arena);
    ech__delete(costs->ctx, costs, sizeof *costs);
}

ech_status ech__costs_default_path(ech_ctx *ctx, char *out, size_t bytes)
{
    const char *given = getenv("ECHELON_COSTS");
    char tuning[4096];
    if (given && *given) {
        if ((size_t)snprintf(out, bytes, "%s", given) >= bytes)
            return ech__fail(ctx, ECH_E_INVALID,
                             "the path of the costs file is longer than %zu bytes", bytes);
        return ECH_OK;
    }
    /* Beside the kernel timings that the costs belong to. */
    out[0] = 0;
    ECH_TRY(ech__tuning_default_path(ctx, tuning, sizeof tuning));
    char *slash = strrchr(tuning, '/');
    if (!*tuning)
        return ECH_OK;
    const int length =
        snprintf(out, bytes, "%.*scosts.json", slash ? (int)(slash + 1 - tuning) : 0, tuning);
    return length >= 0 && (size_t)length < bytes
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID,
                           "the path of the costs file is longer than %zu bytes", bytes);
}
