#include "train/costs.h"
#include "base/arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 2, MAX_BYTES = 64 << 20 };

typedef struct entry {
    const char *machine, *key;
    ech__step_cost cost;
} entry;

typedef struct machine_row {
    const char *name;
    ech__machine_costs costs;
} machine_row;

struct ech__costs {
    ech_ctx *ctx;
    ech__arena arena;
    const char *path;    /* NULL: in memory only */
    const char *machine; /* this one */
    entry *entries;
    size_t count, cap;
    machine_row *machines;
    size_t nmachines, cap_machines;
};

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

ech__costs_key ech__costs_key_of(const ech__run_config *c)
{
    ech__costs_key key;
    int n = snprintf(key.s, sizeof key.s, "%s", ech__model_name(c->model.kind));
    if (c->model.kind == ECH__MODEL_LINEAR)
        n += snprintf(key.s + n, sizeof key.s - (size_t)n, " %lldx%lld", (long long)c->model.dim,
                      (long long)c->model.depth);
    snprintf(key.s + n, sizeof key.s - (size_t)n, ", threads %d, %s%s%s%s%s%s%s%s%s",
             c->train.threads, ech__optimizer_name(c->train.optimizer),
             c->train.momentum != 0 ? " momentum" : "", c->train.weight_decay != 0 ? " decay" : "",
             c->train.recompute ? "" : ", nothing recomputed", c->train.tune ? "" : ", untuned",
             c->train.dp_devices ? ", dp" : "", c->train.amp != ECH_AMP_OFF ? ", " : "",
             c->train.amp != ECH_AMP_OFF ? ech__amp_name(c->train.amp) : "",
             ech__checks_gradients(&c->train) ? ", gradients checked" : "");
    return key;
}

/* ---- the store ---- */

static entry *look_up(const ech__costs *costs, const char *machine, const char *key, int64_t batch,
                      int beside)
{
    for (size_t i = 0; i < costs->count; i++) {
        entry *e = &costs->entries[i];
        if (e->cost.batch == batch && e->cost.beside == beside && !strcmp(e->key, key) &&
            !strcmp(e->machine, machine))
            return e;
    }
    return NULL;
}

static ech_status no_memory(const ech__costs *costs)
{
    return ech__fail(costs->ctx, ECH_E_NOMEM, "no memory for the store of costs");
}

static ech_status put(ech__costs *costs, const char *machine, const char *key,
                      const ech__step_cost *cost)
{
    ech__arena *arena = &costs->arena;
    entry *e = look_up(costs, machine, key, cost->batch, cost->beside);
    if (!e) {
        if (!ech__arena_grow(arena, (void **)&costs->entries, costs->count, &costs->cap,
                             sizeof *costs->entries))
            return no_memory(costs);
        e = &costs->entries[costs->count];
        *e = (entry){.machine = ech__arena_printf(arena, "%s", machine),
                     .key = ech__arena_printf(arena, "%s", key)};
        if (!e->machine || !e->key)
            return no_memory(costs);
        costs->count++;
    }
    e->cost = *cost;
    e->cost.ops = ech__arena_array(arena, cost->nops, sizeof *cost->ops);
    if (!e->cost.ops)
        return no_memory(costs);
    for (size_t i = 0; i < cost->nops; i++) {
        ech__op_cost *op = &e->cost.ops[i];
        *op = cost->ops[i];
        op->op = ech__arena_printf(arena, "%s", op->op);
        op->name = ech__arena_printf(arena, "%s", op->name);
        op->phase = ech__arena_printf(arena, "%s", op->phase);
        if (!op->op || !op->name || !op->phase)
            return no_memory(costs);
    }
    return ECH_OK;
}

static ech__machine_costs *machine_of(ech__costs *costs, const char *name)
{
    for (size_t i = 0; i < costs->nmachines; i++) {
        if (!strcmp(costs->machines[i].name, name))
            return &costs->machines[i].costs;
    }
    if (!ech__arena_grow(&costs->arena, (void **)&costs->machines, costs->nmachines,
                         &costs->cap_machines, sizeof *costs->machines))
        return NULL;
    machine_row *m = &costs->machines[costs->nmachines];
    *m = (machine_row){.name = ech__arena_printf(&costs->arena, "%s", name)};
    if (!m->name)
        return NULL;
    costs->nmachines++;
    return &m->costs;
}

ech__machine_costs *ech__costs_machine(ech__costs *costs)
{
    return machine_of(costs, costs->machine); /* made when the store was opened */
}

const ech__step_cost *ech__costs_find(const ech__costs *costs, const char *key, int64_t batch,
                                      int beside)
{
    const entry *e = look_up(costs, costs->machine, key, batch, beside);
    return e ? &e->cost : NULL;
}

int ech__costs_batches(const ech__costs *costs, const char *key, int beside, int64_t *out, int max)
{
    int count = 0;
    for (size_t i = 0; i < costs->count && count < max; i++) {
        const entry *e = &costs->entries[i];
        if (e->cost.beside != beside || strcmp(e->key, key) || strcmp(e->machine, costs->machine))
            continue;
        int at = count++;
        for (; at > 0 && out[at - 1] > e->cost.batch; at--)
            out[at] = out[at - 1];
        out[at] = e->cost.batch;
    }
    return count;
}

ech_status ech__costs_put(ech__costs *costs, const char *key, const ech__step_cost *cost)
{
    return put(costs, costs->machine, key, cost);
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

/* ---- from text ---- */

static ech_status read_sizes(ech_ctx *ctx, const ech_json *object, const char *key,
                             ech__size_costs *out)
{
    const ech_json *list;
    if (!ech__json_find(object, key))
        return ECH_OK;
    ECH_TRY(ech__json_get_array(ctx, object, key, &list));
    if (ech__json_count(list) > ECH__COSTS_SIZES)
        return ech__fail(ctx, ECH_E_FORMAT, "%s has more than %d sizes", key, ECH__COSTS_SIZES);
    for (size_t i = 0; i < ech__json_count(list); i++) {
        const ech_json *row = ech__json_at(list, i);
        ECH_TRY(ech__json_get_int(ctx, row, "bytes", &out->bytes[i]));
        ECH_TRY(ech__json_get_real(ctx, row, "seconds", &out->seconds[i]));
        if (out->bytes[i] <= (i ? out->bytes[i - 1] : 0) || !(out->seconds[i] >= 0))
            return ech__fail(ctx, ECH_E_FORMAT, "%s: sizes must grow, and times be 0 or more", key);
    }
    out->count = (int)ech__json_count(list);
    return ECH_OK;
}

static ech_status read_op(ech_ctx *ctx, const ech_json *row, ech__op_cost *op)
{
    ECH_TRY(ech__json_get_string(ctx, row, "operator", &op->op));
    ECH_TRY(ech__json_get_string(ctx, row, "name", &op->name));
    ECH_TRY(ech__json_get_string(ctx, row, "phase", &op->phase));
    ECH_TRY(ech__json_get_real(ctx, row, "median_s", &op->median_s));
    ECH_TRY(ech__json_get_real(ctx, row, "low_s", &op->low_s));
    ECH_TRY(ech__json_get_real(ctx, row, "high_s", &op->high_s));
    ECH_TRY(ech__json_get_real(ctx, row, "tuned_s", &op->tuned_s));
    if (!(op->median_s >= 0))
        return ech__fail(ctx, ECH_E_FORMAT, "the time of %s '%s' is no number", op->op, op->name);
    return ECH_OK;
}

static ech_status read_numbers(ech_ctx *ctx, const ech_json *row, ech__step_cost *cost)
{
    const ech_json *memory, *phases;
    int64_t beside;
    ECH_TRY(ech__json_get_int(ctx, row, "batch", &cost->batch));
    ECH_TRY(ech__json_get_int(ctx, row, "beside", &beside));
    cost->beside = (int)beside;
    ECH_TRY(ech__json_get_int(ctx, row, "steps", &cost->steps));
    ECH_TRY(ech__json_get_real(ctx, row, "step_s", &cost->step_s));
    ECH_TRY(ech__json_get_real(ctx, row, "low_s", &cost->low_s));
    ECH_TRY(ech__json_get_real(ctx, row, "high_s", &cost->high_s));
    ECH_TRY(ech__json_get_real(ctx, row, "overhead_s", &cost->overhead_s));
    ECH_TRY(ech__json_get_real(ctx, row, "wait_s", &cost->wait_s));
    ECH_TRY(ech__json_get_real(ctx, row, "loading_s", &cost->loading_s));
    ECH_TRY(ech__json_get_real(ctx, row, "hand_over_s", &cost->hand_over_s));
    ECH_TRY(ech__json_get_real(ctx, row, "loader_s", &cost->loader_s));
    ECH_TRY(ech__json_get_object(ctx, row, "memory", &memory));
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        ECH_TRY(ech__json_get_int(ctx, memory, ech__memory_name((ech__memory_kind)k),
                                  &cost->memory[k]));
    if (ech__json_find(row, "phases")) {
        ECH_TRY(ech__json_get_object(ctx, row, "phases", &phases));
        for (int p = 0; p < ECH__DP_PHASES; p++)
            ECH_TRY(ech__json_get_real(ctx, phases, ech__dp_phase_name((ech__dp_phase)p),
                                       &cost->phase_s[p]));
    }
    if (cost->batch < 1 || cost->beside < 1 || !(cost->step_s > 0))
        return ech__fail(ctx, ECH_E_FORMAT, "batch, beside and step_s must be above 0");
    return ECH_OK;
}

static ech_status read_step(ech__costs *costs, const char *machine, const char *key,
                            const ech_json *row)
{
    ech_ctx *ctx = costs->ctx;
    const ech_json *ops;
    ech__step_cost cost = {0};
    ECH_TRY(read_numbers(ctx, row, &cost));
    ECH_TRY(ech__json_get_array(ctx, row, "operators", &ops));
    cost.nops = ech__json_count(ops);
    const size_t bytes = cost.nops * sizeof *cost.ops;
    cost.ops = ech__new(ctx, bytes);
    if (!cost.ops)
        return no_memory(costs);
    ech_status status = ECH_OK;
    for (size_t i = 0; i < cost.nops && status == ECH_OK; i++)
        status = read_op(ctx, ech__json_at(ops, i), &cost.ops[i]);
    if (status == ECH_OK)
        status = put(costs, machine, key, &cost);
    ech__delete(ctx, cost.ops, bytes);
    return status;
}

static ech_status read_machine(ech__costs *costs, const char *name, const ech_json *object)
{
    ech_ctx *ctx = costs->ctx;
    const ech_json *steps, *rows;
    ech__machine_costs *m = machine_of(costs, name);
    if (!m)
        return no_memory(costs);
    ECH_TRY(read_sizes(ctx, object, "allreduce", &m->allreduce));
    ECH_TRY(read_sizes(ctx, object, "exchange", &m->exchange));
    ECH_TRY(read_sizes(ctx, object, "fetch", &m->fetch));
    ECH_TRY(read_sizes(ctx, object, "rewrite", &m->rewrite));
    ECH_TRY(read_sizes(ctx, object, "copy", &m->copy));
    ECH_TRY(read_sizes(ctx, object, "add", &m->add));
    ECH_TRY(ech__json_get_real(ctx, object, "step_job_s", &m->step_job_s));
    ECH_TRY(ech__json_get_real(ctx, object, "part_job_s", &m->part_job_s));
    ECH_TRY(ech__json_get_object(ctx, object, "steps", &steps));
    for (ech__json_iter k = ech__json_begin(steps); k.key; ech__json_next(&k)) {
        ECH_TRY(ech__json_get_array(ctx, steps, k.key, &rows));
        for (size_t i = 0; i < ech__json_count(rows); i++)
            ECH_TRY(read_step(costs, name, k.key, ech__json_at(rows, i)));
    }
    return ECH_OK;
}

static ech_status read_all(ech__costs *costs, const ech_json *doc)
{
    ech_ctx *ctx = costs->ctx;
    const ech_json *machines, *object;
    int64_t version;
    ECH_TRY(ech__json_get_int(ctx, doc, "version", &version));
    if (version >= 1 && version < VERSION)
        return ECH_OK; /* what it says was measured otherwise: an empty store, to be written anew */
    if (version != VERSION)
        return ech__fail(ctx, ECH_E_FORMAT, "version is %lld; this program reads %d",
                         (long long)version, VERSION);
    ECH_TRY(ech__json_get_object(ctx, doc, "machines", &machines));
    for (ech__json_iter m = ech__json_begin(machines); m.key; ech__json_next(&m)) {
        ECH_TRY(ech__json_get_object(ctx, machines, m.key, &object));
        ECH_TRY(read_machine(costs, m.key, object));
    }
    return ECH_OK;
}

static ech_status read_file(ech__costs *costs)
{
    ech_json *doc = NULL;
    if (access(costs->path, F_OK) != 0 && errno == ENOENT)
        return ECH_OK;
    ech_status status = ech__json_load(costs->ctx, costs->path, MAX_BYTES, &doc);
    if (status == ECH_OK) {
        status = read_all(costs, doc);
        if (status < 0)
            ech__fail_in(costs->ctx, status, "%s", costs->path);
    }
    ech__json_destroy(doc);
    return status < 0 ? ech__fail_in(costs->ctx, status, "costs file (delete it to measure anew)")
                      : ECH_OK;
}

/* ---- to text ---- */

static ech_json *sizes_json(const ech__size_costs *c)
{
    ech_json *list = ech__json_array();
    for (int i = 0; i < c->count; i++) {
        ech_json *row = ech__json_object();
        ech__json_set_int(&row, "bytes", c->bytes[i]);
        ech__json_set_real(&row, "seconds", c->seconds[i]);
        ech__json_append(&list, row);
    }
    return list;
}

static ech_json *ops_json(const ech__step_cost *cost)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < cost->nops; i++) {
        const ech__op_cost *op = &cost->ops[i];
        ech_json *row = ech__json_object();
        ech__json_set_string(&row, "operator", op->op);
        ech__json_set_string(&row, "name", op->name);
        ech__json_set_string(&row, "phase", op->phase);
        ech__json_set_real(&row, "median_s", op->median_s);
        ech__json_set_real(&row, "low_s", op->low_s);
        ech__json_set_real(&row, "high_s", op->high_s);
        ech__json_set_real(&row, "tuned_s", op->tuned_s);
        ech__json_append(&list, row);
    }
    return list;
}

static ech_json *step_json(const ech__step_cost *cost)
{
    ech_json *row = ech__json_object(), *memory = ech__json_object(), *phases = ech__json_object();
    ech__json_set_int(&row, "batch", cost->batch);
    ech__json_set_int(&row, "beside", cost->beside);
    ech__json_set_int(&row, "steps", cost->steps);
    ech__json_set_real(&row, "step_s", cost->step_s);
    ech__json_set_real(&row, "low_s", cost->low_s);
    ech__json_set_real(&row, "high_s", cost->high_s);
    ech__json_set_real(&row, "overhead_s", cost->overhead_s);
    ech__json_set_real(&row, "wait_s", cost->wait_s);
    ech__json_set_real(&row, "loading_s", cost->loading_s);
    ech__json_set_real(&row, "hand_over_s", cost->hand_over_s);
    ech__json_set_real(&row, "loader_s", cost->loader_s);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        ech__json_set_int(&memory, ech__memory_name((ech__memory_kind)k), cost->memory[k]);
    ech__json_set(&row, "memory", memory);
    for (int p = 0; p < ECH__DP_PHASES; p++)
        ech__json_set_real(&phases, ech__dp_phase_name((ech__dp_phase)p), cost->phase_s[p]);
    ech__json_set(&row, "phases", phases);
    ech__json_set(&row, "operators", ops_json(cost));
    return row;
}

static ech_json *machine_json(const ech__costs *costs, const machine_row *m)
{
    ech_json *object = ech__json_object(), *steps = ech__json_object();
    ech__json_set(&object, "allreduce", sizes_json(&m->costs.allreduce));
    ech__json_set(&object, "exchange", sizes_json(&m->costs.exchange));
    ech__json_set(&object, "fetch", sizes_json(&m->costs.fetch));
    ech__json_set(&object, "rewrite", sizes_json(&m->costs.rewrite));
    ech__json_set(&object, "copy", sizes_json(&m->costs.copy));
    ech__json_set(&object, "add", sizes_json(&m->costs.add));
    ech__json_set_real(&object, "step_job_s", m->costs.step_job_s);
    ech__json_set_real(&object, "part_job_s", m->costs.part_job_s);
    for (size_t i = 0; i < costs->count; i++) {
        const entry *e = &costs->entries[i];
        if (strcmp(e->machine, m->name) || ech__json_find(steps, e->key))
            continue;
        ech_json *rows = ech__json_array();
        for (size_t k = i; k < costs->count; k++) {
            const entry *other = &costs->entries[k];
            if (!strcmp(other->machine, m->name) && !strcmp(other->key, e->key))
                ech__json_append(&rows, step_json(&other->cost));
        }
        ech__json_set(&steps, e->key, rows);
    }
    ech__json_set(&object, "steps", steps);
    return object;
}

ech_status ech__costs_save(ech__costs *costs)
{
    if (!costs->path)
        return ECH_OK;
    ech_json *doc = ech__json_object(), *machines = ech__json_object();
    for (size_t i = 0; i < costs->nmachines; i++)
        ech__json_set(&machines, costs->machines[i].name, machine_json(costs, &costs->machines[i]));
    ech__json_set_int(&doc, "version", VERSION);
    ech__json_set(&doc, "machines", machines);
    const ech_status status = ech__json_save(costs->ctx, costs->path, doc, ECH_JSON_LINE);
    ech__json_destroy(doc);
    return status;
}

/* ---- opening ---- */

static ech_status name_machine(ech__costs *costs)
{
    ech__machine m;
    ECH_TRY(ech__machine_read(costs->ctx, &m));
    costs->machine = ech__arena_printf(&costs->arena, "%s; %s; %d cores; %s; %s", m.processor,
                                       m.vectors, m.cores, m.onednn, m.openblas);
    return costs->machine ? ECH_OK : no_memory(costs);
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
            return no_memory(costs);
        ECH_TRY(read_file(costs));
    }
    return costs->machine && machine_of(costs, costs->machine) ? ECH_OK : no_memory(costs);
}

ech_status ech__costs_open(ech_ctx *ctx, const char *path, const char *machine, ech__costs **out)
{
    *out = NULL;
    ech__costs *costs = ech__new(ctx, sizeof *costs);
    if (!costs)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for the store of costs");
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
