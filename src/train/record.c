#include "train/record.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/file.h"
#include "train/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ech__records {
    ech_ctx *ctx;
    ech__arena arena;
    const char *run_path, *steps_path, *trace_path;
    FILE *steps, *trace; /* trace: NULL when not asked for */
    int64_t origin_ns;   /* time 0 of the trace */
    bool has_event;      /* the next one needs a comma */
};

/* ---- opening ---- */

static ech_status open_one(ech__records *r, const char *path, const char *mode, FILE **out)
{
    *out = fopen(path, mode);
    return *out ? ECH_OK
                : ech__fail(r->ctx, ECH_E_IO, "%s cannot be written: %s", path, strerror(errno));
}

/* Whether a line is the record of one of the first `kept` steps. A line that a killed run did not finish is none. */
static bool is_kept(const char *line, size_t bytes, int64_t kept)
{
    ech_json *json;
    int64_t step;
    if (!bytes || line[bytes - 1] != '\n' ||
        ech__json_parse(NULL, "a line", line, bytes - 1, &json) < 0)
        return false;
    const bool good =
        ech__json_int(ech__json_find(json, "step"), &step) && step >= 1 && step <= kept;
    ech__json_destroy(json);
    return good;
}

/* Leaves of steps.jsonl the lines up to the step that the run goes on from. */
static ech_status keep_steps(ech__records *r, int64_t kept)
{
    FILE *old = fopen(r->steps_path, "re");
    if (!old && errno == ENOENT)
        return ECH_OK;
    if (!old)
        return ech__fail(r->ctx, ECH_E_IO, "%s cannot be read: %s", r->steps_path, strerror(errno));
    ech__file_writer writer;
    ech_status status = ech__file_writer_init(r->ctx, &writer, r->steps_path);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t bytes; status == ECH_OK && (bytes = getline(&line, &room, old)) > 0;) {
        if (is_kept(line, (size_t)bytes, kept))
            status = ech__file_writer_write(&writer, line, (size_t)bytes);
    }
    if (status == ECH_OK)
        status = ech__file_writer_commit(&writer);
    ech__file_writer_fini(&writer);
    free(line);
    fclose(old);
    return status;
}

static ech_status open_all(ech__records *r, const char *dir, bool trace, int64_t kept)
{
    r->run_path = ech__arena_printf(&r->arena, "%s/run.json", dir);
    r->steps_path = ech__arena_printf(&r->arena, "%s/steps.jsonl", dir);
    r->trace_path = ech__arena_printf(&r->arena, "%s/trace.json", dir);
    if (!r->run_path || !r->steps_path || !r->trace_path)
        return ech__fail(r->ctx, ECH_E_NOMEM, "no memory for the paths of a run directory");
    ECH_TRY(ech__dir_check(r->ctx, "run directory", dir));
    ECH_TRY(ech__dir_make(r->ctx, "run directory", dir));
    if (kept)
        ECH_TRY(keep_steps(r, kept));
    ECH_TRY(open_one(r, r->steps_path, kept ? "ae" : "we", &r->steps));
    unlink(r->run_path);
    unlink(r->trace_path); /* an earlier run's would not belong to this one */
    return trace ? open_one(r, r->trace_path, "we", &r->trace) : ECH_OK;
}

ech_status ech__records_open(ech_ctx *ctx, const char *dir, bool trace, int64_t kept,
                             ech__records **out)
{
    *out = NULL;
    ech__records *r = ech__new(ctx, sizeof *r);
    if (!r)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for records");
    r->ctx = ctx;
    r->origin_ns = ech__clock_wall();
    ech__arena_init(&r->arena, ctx->alloc);
    const ech_status status = open_all(r, dir, trace, kept);
    if (status < 0) {
        ech__records_close(r);
        return status;
    }
    *out = r;
    return ECH_OK;
}

/* ---- run.json ---- */

static ech_json *config_json(const ech__run *run)
{
    const ech__run_config *c = &run->config;
    const ech_train_options *o = &c->train;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "model", ech__model_name(c->model.kind));
    if (c->model.kind == ECH__MODEL_LINEAR) {
        ech__json_set_int(&json, "dim", c->model.dim);
        ech__json_set_int(&json, "depth", c->model.depth);
    }
    ech__json_set_string(&json, "data", c->data ? c->data : "synthetic");
    ech__json_set_int(&json, "limit", c->limit);
    ech__json_set_bool(&json, "shuffle", c->shuffle);
    ech__json_set_bool(&json, "augment", c->augment);
    ech__json_set_int(&json, "batch_size", o->batch);
    ech__json_set_int(&json, "epochs", c->epochs);
    ech__json_set_int(&json, "steps", c->steps);
    ech__json_set_int(&json, "warmup", c->warmup);
    ech__json_set_int(&json, "threads", run->trainer->device->threads);
    ech__json_set_string(&json, "optimizer", ech__optimizer_name(o->optimizer));
    ech__json_set_real(&json, "lr", o->lr);
    ech__json_set_string(&json, "lr_schedule", ech__schedule_name(c->schedule.kind));
    ech__json_set_real(&json, "momentum", o->momentum);
    ech__json_set_bool(&json, "nesterov", o->nesterov);
    ech__json_set_real(&json, "weight_decay", o->weight_decay);
    ech__json_set_string(&json, "init", o->init);
    ech__json_set_bool(&json, "tune", o->tune);
    ech__json_set_bool(&json, "recompute", o->recompute);
    ech__json_set_int(&json, "device_memory", o->device_memory);
    ech__json_set_real(&json, "delay_ms", o->delay_ms);
    return json;
}

static ech_json *one_int(int64_t value)
{
    ech_json *array = ech__json_array();
    ech__json_append_int(&array, value);
    return array;
}

static ech_json *one_real(double value)
{
    ech_json *array = ech__json_array();
    ech__json_append_real(&array, value);
    return array;
}

static ech_json *stats_json(const ech__stats *s)
{
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "median", s->median);
    ech__json_set_real(&json, "mean", s->mean);
    ech__json_set_real(&json, "std", s->std);
    ech__json_set_real(&json, "p95", s->p95);
    ech__json_set_real(&json, "min", s->min);
    return json;
}

static ech_json *memory_json(const ech__plan *plan)
{
    ech_json *kinds = ech__json_object(), *array = ech__json_array();
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        ech__json_set_int(&kinds, ech__memory_name((ech__memory_kind)k), plan->memory[k]);
    ech__json_append(&array, kinds);
    return array;
}

static ech_json *kernels_json(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (size_t n = 0; n < run->trainer->plan->ninstrs; n++) {
        const ech__instr *instr = &run->trainer->plan->instrs[n];
        if (ech__plan_is_idle(run->trainer->plan, instr))
            continue;
        ech_json *op = ech__json_object();
        ech__json_set_string(&op, "op", ech__op_name(instr->node->op));
        ech__json_set_string(&op, "name", instr->node->name);
        ech__json_set_string(&op, "phase", ech__phase_name(instr->node->phase));
        ech__json_set_string(&op, "kernel", instr->choice.name);
        ech__json_set_real(&op, "median_s", run->ops[n].median_s);
        ech__json_append(&array, op);
    }
    return array;
}

static ech_json *epochs_json(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (int64_t i = 0; i < run->epochs_done; i++) {
        const ech__run_epoch *e = &run->epochs[i];
        ech_json *json = ech__json_object();
        ech__json_set_real(&json, "time_s", e->time_s);
        ech__json_set_real(&json, "compute_s", e->compute_s);
        ech__json_set_real(&json, "loss", e->loss);
        ech__json_set_real(&json, "train_accuracy", e->train_accuracy);
        if (e->test.samples) {
            ech__json_set_real(&json, "accuracy", e->test.accuracy);
            ech__json_set_real(&json, "test_loss", e->test.loss);
        }
        ech__json_append(&array, json);
    }
    return array;
}

static ech_json *summary_json(const ech__run *run)
{
    const ech__run_summary *s = &run->summary;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "clock", "measured");
    ech__json_set_int(&json, "world_size", 1);
    ech__json_set_int(&json, "devices", 1);
    ech__json_set(&json, "step_time_s", stats_json(&s->step_time));
    ech__json_set_real(&json, "forward_s", s->forward_s);
    ech__json_set_real(&json, "backward_s", s->backward_s);
    ech__json_set_real(&json, "optimizer_s", s->optimizer_s);
    ech__json_set_real(&json, "outside_kernels", s->outside_kernels);
    ech__json_set_real(&json, "samples_per_s", s->samples_per_s);
    ech__json_set_int(&json, "comm_bytes_per_step", 0);
    ech__json_set(&json, "peak_memory_bytes", one_int(ech_trainer_peak_memory(run->trainer)));
    ech__json_set(&json, "planned_memory_bytes", one_int(ech_trainer_planned_memory(run->trainer)));
    ech__json_set(&json, "memory_by_kind", memory_json(run->trainer->plan));
    ech__json_set(&json, "utilisation", one_real(s->utilisation));
    ech__json_set_int(&json, "parameters", ech__trainer_param_count(run->trainer));
    ech__json_set_real(&json, "planning_s", run->trainer->planning_s);
    ech__json_set_int(&json, "timed_kernels", run->trainer->timed_kernels);
    ech__json_set_real(&json, "first_loss", s->first_loss);
    ech__json_set_real(&json, "final_loss", s->final_loss);
    if (run->config.epochs && run->epochs_done) {
        const ech__evaluation *test = &run->epochs[run->epochs_done - 1].test;
        if (test->samples)
            ech__json_set_real(&json, "accuracy", test->accuracy);
        ech__json_set(&json, "epochs", epochs_json(run));
    }
    if (run->saves) {
        ech__json_set_int(&json, "checkpoints", run->saves);
        ech__json_set_real(&json, "checkpoint_s", run->save_s / (double)run->saves);
    }
    ech__json_set_string(&json, "params_sha256", s->params_sha256);
    return json;
}

static ech_json *resumed_json(const ech__run *run)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "checkpoint", run->resumed->path);
    ech__json_set_int(&json, "step", run->first);
    ech__json_set_string(&json, "kernels", run->trainer->chosen_anew ? "chosen anew" : "the same");
    return json;
}

ech_json *ech__run_json(const ech__run *run, const char *state)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "state", state);
    ech__json_set_string(&json, "version", ech_version());
    ech__json_set_string(&json, "command", run->config.command);
    ech__json_set_int(&json, "seed", (int64_t)run->config.train.seed);
    ech__json_set(&json, "config", config_json(run));
    ech__json_set(&json, "machine", ech__machine_json(&run->machine));
    if (run->resumed)
        ech__json_set(&json, "resumed", resumed_json(run));
    if (run->summary.params_sha256[0]) { /* the steps are done, and summed up */
        ech__json_set(&json, "summary", summary_json(run));
        ech__json_set(&json, "kernels", kernels_json(run));
    }
    return json;
}

ech_status ech__records_run(ech__records *r, const ech__run *run, const char *state)
{
    ech_json *json = ech__run_json(run, state);
    const ech_status status = ech__json_save(r->ctx, r->run_path, json, ECH_JSON_INDENT);
    ech__json_destroy(json);
    return status;
}

/* ---- steps.jsonl ---- */

static ech_json *step_json(const ech__run_step *step)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "step", step->step);
    ech__json_set_int(&json, "epoch", step->epoch);
    ech__json_set_real(&json, "loss", step->result.loss);
    ech__json_set_real(&json, "time_s", step->result.time_s);
    ech__json_set_real(&json, "data_s", step->data_s);
    ech__json_set_real(&json, "forward_s", step->result.forward_s);
    ech__json_set_real(&json, "backward_s", step->result.backward_s);
    ech__json_set_real(&json, "comm_exposed_s", 0);
    ech__json_set_real(&json, "optimizer_s", step->result.optimizer_s);
    ech__json_set_real(&json, "lr", step->lr);
    return json;
}

/* ---- trace.json: Chrome's trace events, microseconds; one process a rank, one thread a device ---- */

static ech_status add_event(ech__records *r, ech_json *event)
{
    fputs(r->has_event ? ",\n" : "[\n", r->trace);
    r->has_event = true;
    char *text;
    const ech_status status = ech__json_dump(r->ctx, event, ECH_JSON_LINE, &text, NULL);
    ech__json_destroy(event);
    ECH_TRY(status);
    fputs(text, r->trace);
    free(text);
    return ECH_OK;
}

static ech_status add_name(ech__records *r, const char *what, const char *name)
{
    ech_json *args = ech__json_object(), *event = ech__json_object();
    ech__json_set_string(&args, "name", name);
    ech__json_set_string(&event, "name", what);
    ech__json_set_string(&event, "ph", "M");
    ech__json_set_int(&event, "pid", 0);
    ech__json_set_int(&event, "tid", 0);
    ech__json_set(&event, "args", args);
    return add_event(r, event);
}

/* A bar from start to end. Takes args over. */
static ech_status add_span(ech__records *r, const char *name, const char *category, ech__span span,
                           ech_json *args)
{
    ech_json *event = ech__json_object();
    ech__json_set_string(&event, "name", name);
    ech__json_set_string(&event, "cat", category);
    ech__json_set_string(&event, "ph", "X");
    ech__json_set_int(&event, "pid", 0);
    ech__json_set_int(&event, "tid", 0);
    ech__json_set_real(&event, "ts", (double)(span.start_ns - r->origin_ns) * 1e-3);
    ech__json_set_real(&event, "dur", (double)(span.end_ns - span.start_ns) * 1e-3);
    ech__json_set(&event, "args", args);
    return add_event(r, event);
}

static ech_status trace_step(ech__records *r, const ech__run_step *step,
                             const ech__variant *variant)
{
    const ech__plan *plan = variant->plan;
    const ech__span *spans = ech__exec_spans(variant->exec);
    if (!r->has_event) {
        ECH_TRY(add_name(r, "process_name", "rank 0"));
        ECH_TRY(add_name(r, "thread_name", "device 0"));
    }
    char name[128];
    ech_json *args = ech__json_object();
    ech__json_set_real(&args, "loss", step->result.loss);
    ech__json_set_real(&args, "lr", step->lr);
    snprintf(name, sizeof name, "step %lld", (long long)step->step);
    const int64_t end = spans[0].start_ns + (int64_t)(step->result.time_s * 1e9);
    ECH_TRY(add_span(r, name, "step", (ech__span){spans[0].start_ns, end}, args));
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        if (ech__plan_is_idle(plan, instr))
            continue;
        args = ech__json_object();
        ech__json_set_string(&args, "kernel", instr->choice.name);
        snprintf(name, sizeof name, "%s %s", ech__op_name(instr->node->op), instr->node->name);
        ECH_TRY(add_span(r, name, ech__phase_name(instr->node->phase), spans[n], args));
    }
    return ECH_OK;
}

ech_status ech__records_step(ech__records *r, const ech__run *run, const ech__run_step *step,
                             const ech__variant *variant)
{
    (void)run;
    ech_json *json = step_json(step);
    const ech_status status = ech__json_print(r->ctx, json, ECH_JSON_LINE, r->steps);
    ech__json_destroy(json);
    if (status < 0)
        return ech__fail_in(r->ctx, status, "%s", r->steps_path);
    return r->trace ? trace_step(r, step, variant) : ECH_OK;
}

/* ---- closing ---- */

static ech_status close_one(ech__records *r, FILE *file, const char *path)
{
    if (!file)
        return ECH_OK;
    const bool bad = ferror(file);
    return fclose(file) == 0 && !bad
               ? ECH_OK
               : ech__fail(r->ctx, ECH_E_IO, "%s cannot be written: %s", path, strerror(errno));
}

ech_status ech__records_close(ech__records *r)
{
    if (r->trace && r->has_event)
        fputs("\n]\n", r->trace);
    const ech_status steps = close_one(r, r->steps, r->steps_path);
    const ech_status trace = close_one(r, r->trace, r->trace_path);
    ech__arena_fini(&r->arena);
    ech__delete(r->ctx, r, sizeof *r);
    return steps < 0 ? steps : trace;
}
