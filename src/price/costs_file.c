/* The file of costs: read, merged with what others wrote, and written. */
#include "base/file/dir.h"
#include "price/costs_internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 2, MAX_BYTES = 64 << 20 };
static const double LOCK_SECONDS = 5;

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
        if (out->bytes[i] <= (i ? out->bytes[i - 1] : 0) || !(out->seconds[i] >= 0) ||
            !isfinite(out->seconds[i]))
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
    return ech__json_get_real(ctx, row, "tuned_s", &op->tuned_s);
}

static ech_status read_numbers(ech_ctx *ctx, const ech_json *row, ech__step_cost *cost)
{
    const ech_json *phases;
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
    if (ech__json_find(row, "phases")) {
        ECH_TRY(ech__json_get_object(ctx, row, "phases", &phases));
        for (int p = 0; p < ECH__DP_PHASES; p++)
            ECH_TRY(ech__json_get_real(ctx, phases, ech__dp_phase_name((ech__dp_phase)p),
                                       &cost->phase_s[p]));
    }
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
        return ech__no_memory(costs->ctx, "the store of costs");
    ech_status status = ECH_OK;
    for (size_t i = 0; i < cost.nops && status == ECH_OK; i++)
        status = read_op(ctx, ech__json_at(ops, i), &cost.ops[i]);
    if (status == ECH_OK)
        status = ech__costs_check(ctx, &cost);
    if (status == ECH_OK)
        status = ech__costs_store(costs, machine, key, &cost);
    ech__delete(ctx, cost.ops, bytes);
    return status;
}

static ech_status read_machine(ech__costs *costs, const char *name, const ech_json *object)
{
    ech_ctx *ctx = costs->ctx;
    const ech_json *steps, *rows;
    ech__machine_row *machine = ech__costs_row(costs, name);
    if (!machine)
        return ech__no_memory(costs->ctx, "the store of costs");
    ech__machine_costs *m = &machine->costs;
    ECH_TRY(read_sizes(ctx, object, "allreduce", &m->allreduce));
    ECH_TRY(read_sizes(ctx, object, "exchange", &m->exchange));
    ECH_TRY(read_sizes(ctx, object, "fetch", &m->fetch));
    ECH_TRY(read_sizes(ctx, object, "rewrite", &m->rewrite));
    ECH_TRY(read_sizes(ctx, object, "copy", &m->copy));
    ECH_TRY(read_sizes(ctx, object, "add", &m->add));
    ECH_TRY(ech__json_get_real(ctx, object, "step_job_s", &m->step_job_s));
    ECH_TRY(ech__json_get_real(ctx, object, "part_job_s", &m->part_job_s));
    machine->kept = *m;
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
        return ECH_OK; /* measured in another way: start with an empty store */
    if (version != VERSION)
        return ech__fail(ctx, ECH_E_FORMAT, "version is %lld; this program reads %d",
                         (long long)version, VERSION);
    if (ech__json_find(doc, "exported")) {
        const char *name;
        ECH_TRY(ech__json_get_string(ctx, doc, "exported", &name));
        costs->machine = ech__arena_printf(&costs->arena, "%s", name);
        costs->exported = true;
        if (!costs->machine)
            return ech__no_memory(ctx, "the store of costs");
    }
    ECH_TRY(ech__json_get_object(ctx, doc, "machines", &machines));
    for (ech__json_iter m = ech__json_begin(machines); m.key; ech__json_next(&m)) {
        ECH_TRY(ech__json_get_object(ctx, machines, m.key, &object));
        ECH_TRY(read_machine(costs, m.key, object));
    }
    return ECH_OK;
}

ech_status ech__costs_read(ech__costs *costs)
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
    bool good = true;
    for (int i = 0; i < c->count; i++)
        good = good && isfinite(c->seconds[i]) && c->seconds[i] >= 0;
    for (int i = 0; good && i < c->count; i++) { /* a table that is no good is measured again */
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
    ech_json *row = ech__json_object(), *phases = ech__json_object();
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
    for (int p = 0; p < ECH__DP_PHASES; p++)
        ech__json_set_real(&phases, ech__dp_phase_name((ech__dp_phase)p), cost->phase_s[p]);
    ech__json_set(&row, "phases", phases);
    ech__json_set(&row, "operators", ops_json(cost));
    return row;
}

static ech_json *machine_json(const ech__costs *costs, const ech__machine_row *m)
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
        const ech__cost_entry *e = &costs->entries[i];
        if (strcmp(e->machine, m->name) || ech__json_find(steps, e->key))
            continue;
        ech_json *rows = ech__json_array();
        for (size_t k = i; k < costs->count; k++) {
            const ech__cost_entry *other = &costs->entries[k];
            if (!strcmp(other->machine, m->name) && !strcmp(other->key, e->key))
                ech__json_append(&rows, step_json(&other->cost));
        }
        ech__json_set(&steps, e->key, rows);
    }
    ech__json_set(&object, "steps", steps);
    return object;
}

/* only: a machine whose costs are exported; NULL: all machines of a store. */
static ech_status write_file(const ech__costs *costs, const char *path, const char *only)
{
    ech_json *doc = ech__json_object(), *machines = ech__json_object();
    ech__json_set_int(&doc, "version", VERSION);
    if (only)
        ech__json_set_string(&doc, "exported", only);
    for (size_t i = 0; i < costs->nmachines; i++) {
        const ech__machine_row *m = &costs->machines[i];
        if (!only || !strcmp(m->name, only))
            ech__json_set(&machines, m->name, machine_json(costs, m));
    }
    ech__json_set(&doc, "machines", machines);
    const ech_status status = ech__json_save(costs->ctx, path, doc, ECH_JSON_LINE);
    ech__json_destroy(doc);
    return status;
}

ech_status ech__costs_export(const ech__costs *costs, const char *path)
{
    struct stat store, file;
    size_t known = 0;
    for (size_t i = 0; i < costs->count; i++)
        known += !strcmp(costs->entries[i].machine, costs->machine);
    if (known == 0)
        return ech__fail(costs->ctx, ECH_E_INVALID,
                         "no costs of this machine are in %s: echelon plan measures them",
                         costs->path ? costs->path : "memory");
    if (costs->path && stat(costs->path, &store) == 0 && stat(path, &file) == 0 &&
        store.st_dev == file.st_dev && store.st_ino == file.st_ino)
        return ech__fail(costs->ctx, ECH_E_INVALID,
                         "%s is the store itself: it takes no more measurements once it is an "
                         "export; give another name",
                         path);
    return write_file(costs, path, costs->machine);
}

static bool same_sizes(const ech__size_costs *a, const ech__size_costs *b)
{
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++)
        same = a->bytes[i] == b->bytes[i] && a->seconds[i] == b->seconds[i];
    return same;
}

/* Takes over what is not as the file had it; returns whether anything is. */
static bool merge_sizes(ech__size_costs *to, const ech__size_costs *from,
                        const ech__size_costs *kept)
{
    if (same_sizes(from, kept))
        return false;
    *to = *from;
    return true;
}

static bool merge_time(double *to, double from, double kept)
{
    if (from == kept)
        return false;
    *to = from;
    return true;
}

/* Each table by itself: another process may have measured another one. */
static bool merge_machine(ech__machine_costs *to, const ech__machine_row *from)
{
    const ech__machine_costs *m = &from->costs, *kept = &from->kept;
    bool news = merge_sizes(&to->allreduce, &m->allreduce, &kept->allreduce);
    news |= merge_sizes(&to->exchange, &m->exchange, &kept->exchange);
    news |= merge_sizes(&to->copy, &m->copy, &kept->copy);
    news |= merge_sizes(&to->add, &m->add, &kept->add);
    news |= merge_sizes(&to->fetch, &m->fetch, &kept->fetch);
    news |= merge_sizes(&to->rewrite, &m->rewrite, &kept->rewrite);
    news |= merge_time(&to->step_job_s, m->step_job_s, kept->step_job_s);
    news |= merge_time(&to->part_job_s, m->part_job_s, kept->part_job_s);
    return news;
}

/* What was measured here goes over what the other has. */
static ech_status add_fresh(const ech__costs *costs, ech__costs *other)
{
    for (size_t i = 0; i < costs->count; i++) {
        const ech__cost_entry *e = &costs->entries[i];
        if (!e->fresh)
            continue;
        ECH_TRY(ech__costs_store(other, e->machine, e->key, &e->cost));
        ech__costs_look_up(other, e->machine, e->key, e->cost.batch, e->cost.beside)->fresh = true;
    }
    for (size_t i = 0; i < costs->nmachines; i++) {
        ech__machine_row *to = ech__costs_row(other, costs->machines[i].name);
        if (!to)
            return ech__no_memory(other->ctx, "the store of costs");
        merge_machine(&to->costs, &costs->machines[i]);
    }
    return ECH_OK;
}

/* With what others wrote since this store was opened. */
static ech_status merge_and_write(const ech__costs *costs)
{
    ech__costs file = {.ctx = costs->ctx, .path = costs->path, .machine = costs->machine};
    ech__arena_init(&file.arena, costs->ctx->alloc);
    ech_status status = ech__costs_read(&file);
    if (status == ECH_OK)
        status = add_fresh(costs, &file);
    if (status == ECH_OK)
        status = write_file(&file, file.path, NULL);
    ech__arena_fini(&file.arena);
    return status;
}

static bool has_news(const ech__costs *costs)
{
    bool news = false;
    for (size_t i = 0; i < costs->count; i++)
        news = news || costs->entries[i].fresh;
    for (size_t i = 0; i < costs->nmachines; i++) {
        ech__machine_costs copy = costs->machines[i].kept;
        news |= merge_machine(&copy, &costs->machines[i]);
    }
    return news;
}

ech_status ech__costs_save(ech__costs *costs)
{
    int lock;
    if (!costs->path || costs->exported || !has_news(costs))
        return ECH_OK;
    ECH_TRY(ech__store_lock(costs->ctx, costs->path, LOCK_SECONDS, &lock));
    const ech_status status = merge_and_write(costs);
    close(lock);
    ECH_TRY(status);
    for (size_t i = 0; i < costs->count; i++)
        costs->entries[i].fresh = false;
    for (size_t i = 0; i < costs->nmachines; i++)
        costs->machines[i].kept = costs->machines[i].costs;
    return ECH_OK;
}

ech_status ech__costs_add_file(ech__costs *costs, const char *path)
{
    ech__costs file = {.ctx = costs->ctx, .path = path, .machine = costs->machine};
    ech__arena_init(&file.arena, costs->ctx->alloc);
    ech_status status = ech__costs_read(&file);
    for (size_t i = 0; status == ECH_OK && i < file.count; i++)
        file.entries[i].fresh = true;
    for (size_t i = 0; status == ECH_OK && i < file.nmachines; i++)
        file.machines[i].kept = (ech__machine_costs){.step_job_s = 0};
    if (status == ECH_OK)
        status = add_fresh(&file, costs);
    ech__arena_fini(&file.arena);
    return status;
}
