#include "train/record/record.h"
#include "base/arena.h"
#include "base/file/dir.h"
#include "base/system/clock.h"
#include "train/checkpoint/checkpoint.h"
#include "train/record/step_lines.h"
#include "train/record/totals.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

struct ech__records {
    ech_ctx *ctx;
    ech__arena arena;
    const char *run_path, *steps_path, *trace_path;
    ech__step_lines steps;
    /* Why the trace is incomplete; empty: it is complete, or there is none. */
    char trace_error[256];
};

/* ---- opening ---- */

static ech_status open_all(ech__records *r, const char *dir, int64_t kept)
{
    r->run_path = ech__arena_printf(&r->arena, "%s/run.json", dir);
    r->steps_path = ech__arena_printf(&r->arena, "%s/steps.jsonl", dir);
    r->trace_path = ech__arena_printf(&r->arena, "%s/trace.json", dir);
    if (!r->run_path || !r->steps_path || !r->trace_path)
        return ech__no_memory(r->ctx, "the paths of a run directory");
    unlink(r->run_path);
    unlink(r->trace_path); /* an earlier run's would not belong to this one */
    return ech__step_lines_open(r->ctx, &r->steps, r->steps_path, kept);
}

ech_status ech__records_open(ech_ctx *ctx, const char *dir, int64_t kept, ech__records **out)
{
    *out = NULL;
    ech__records *r = ech__new(ctx, sizeof *r);
    if (!r)
        return ech__no_memory(ctx, "records");
    r->ctx = ctx;
    r->steps.fd = -1;
    ech__arena_init(&r->arena, ctx->alloc);
    const ech_status status = open_all(r, dir, kept);
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
    ech__run_config c = run->config;
    ech_json *json = ech__json_object();
    c.global_batch = run->feed.global;
    c.devices = ech__run_devices(run);
    c.parallel = ech__run_strategy(run);
    c.train.threads = run->trainer->device->threads;
    ech__options_record(&c, &json);
    ech__json_set_real(&json, "lr_largest", c.schedule.lr);
    if (c.schedule.warmup)
        ech__json_set_int(&json, "lr_warmup_steps", c.schedule.warmup);
    if (c.straggle_ms > 0) {
        ech__json_set_int(&json, "straggle_rank", c.straggler);
        ech__json_set_real(&json, "straggle_ms", c.straggle_ms);
    }
    return json;
}

const char *ech__run_clock(const ech__run *run)
{
    return run->trainer->emulated ? "emulated" : "measured";
}

int ech__run_devices(const ech__run *run)
{
    return ech__trainer_devices(run->trainer) * run->world;
}

ech__strategy ech__run_strategy(const ech__run *run)
{
    return ech__strategy_of(&run->config.train).strategy;
}

int64_t ech__run_memory(const ech__run *run, int device, bool planned)
{
    return ech__totals_of(run->trainer)->memory(run, device, planned);
}

static ech_json *memory_list(const ech__run *run, bool planned)
{
    ech_json *array = ech__json_array();
    for (int device = 0; device < ech__run_devices(run); device++)
        ech__json_append_int(&array, ech__run_memory(run, device, planned));
    return array;
}

static ech_json *utilisation_list(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (int d = 0; d < ech__run_devices(run); d++)
        ech__json_append_real(&array, ech__totals_of(run->trainer)->busy(run, d));
    return array;
}

static ech_json *rank_json(const ech__rank_traffic *r)
{
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "step_s", r->step_s);
    ech__json_set_real(&json, "forward_s", r->forward_s);
    ech__json_set_real(&json, "backward_s", r->backward_s);
    ech__json_set_real(&json, "optimizer_s", r->optimizer_s);
    ech__json_set_real(&json, "comm_exposed_s", r->exposed_s);
    ech__json_set_real(&json, "wait_s", r->wait_s);
    ech__json_set_real(&json, "other_s", r->other_s);
    ech__json_set_real(&json, "comm_hidden_s", r->hidden_s);
    ech__json_set_real(&json, "sync_s", r->sync_s);
    ech__json_set_real(&json, "buffers_s", r->buffers_s);
    return json;
}

static ech_json *bucket_json(const ech__bucket_traffic *b)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "bytes", b->bytes);
    ech__json_set_real(&json, "ready_s", b->ready_s);
    ech__json_set_real(&json, "transfer_s", b->transfer_s);
    ech__json_set_real(&json, "busbw_gbs", b->bus_bytes_per_s * 1e-9);
    return json;
}

static ech_json *communication_json(const ech__run *run)
{
    const ech__traffic *t = &run->traffic;
    ech_json *json = ech__json_object(), *ranks = ech__json_array(), *buckets = ech__json_array();
    ech__json_set_string(&json, "backend", ech__backend_name(run->trainer->comm->backend));
    ech__json_set_int(&json, "nodes", run->trainer->comm->nodes);
    ech__json_set_string(&json, "algorithm", ech__algorithm_name(run->trainer->comm->algorithm));
    ech__json_set_int(&json, "gradient_bytes", t->bytes.gradients);
    ech__json_set_int(&json, "buffer_bytes", t->bytes.buffers);
    ech__json_set_int(&json, "statistics_bytes", t->bytes.statistics);
    for (int rank = 0; rank < t->world; rank++)
        ech__json_append(&ranks, rank_json(&t->ranks[rank]));
    for (int b = 0; b < t->nbuckets; b++)
        ech__json_append(&buckets, bucket_json(&t->bucket_totals[b]));
    ech__json_set(&json, "ranks", ranks);
    ech__json_set(&json, "buckets", buckets);
    if (t->straggler.rank >= 0) {
        ech_json *late = ech__json_object();
        ech__json_set_int(&late, "rank", t->straggler.rank);
        ech__json_set_string(&late, "phase", ech__phase_name(t->straggler.phase));
        ech__json_set_real(&late, "ms", t->straggler.seconds * 1e3);
        ech__json_set_real(&late, "share_of_steps", t->straggler.share);
        ech__json_set(&json, "straggler", late);
    }
    return json;
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

/* For every device. Ranks have made the same plan. */
static ech_json *memory_json(const ech__run *run)
{
    const ech_trainer *trainer = run->trainer;
    ech_json *array = ech__json_array();
    for (int d = 0; d < ech__run_devices(run); d++) {
        ech_json *kinds = ech__json_object();
        int64_t bytes[ECH__MEMORY_COUNT];
        ech__trainer_memory(trainer, d % ech__trainer_devices(trainer), bytes);
        for (int k = 0; k < ECH__MEMORY_COUNT; k++)
            ech__json_set_int(&kinds, ech__memory_name((ech__memory_kind)k), bytes[k]);
        ech__json_append(&array, kinds);
    }
    return array;
}

static ech_json *kernels_json(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (size_t n = 0; n < run->nops; n++) {
        const ech__instr *instr = run->ops[n].instr;
        if (ech__plan_is_idle(ech__trainer_plan_of(run->trainer, run->ops[n].device), instr))
            continue;
        ech_json *op = ech__json_object();
        if (ech__strategy_row_of(run->trainer->by.strategy)->cuts_model)
            ech__json_set_int(&op, "device", run->ops[n].device);
        ech__json_set_string(&op, "op", ech__op_name(instr->node->op));
        ech__json_set_string(&op, "name", instr->node->name);
        ech__json_set_string(&op, "phase", ech__phase_name(instr->node->phase));
        ech__json_set_string(&op, "kernel", instr->choice.name);
        ech__json_set_real(&op, "median_s", run->ops[n].median_s);
        ech__json_append(&array, op);
    }
    return array;
}

static void set_drift(ech_json **json, const ech__drift *d)
{
    ech__json_set_real(json, "mean_largest", d->mean_largest);
    ech__json_set_real(json, "mean_rms", d->mean_rms);
    ech__json_set_real(json, "variance_largest", d->variance_largest);
    ech__json_set_real(json, "variance_rms", d->variance_rms);
}

/* Of running statistics between ranks: over all layers, and of each layer where this process has
 * compared them. */
static ech_json *drift_json(const ech__run *run, const ech__run_epoch *e)
{
    ech_json *json = ech__json_object(), *array = ech__json_array();
    const ech__drift *layers = ech__drift_layers(&run->drift, e->epoch - 1);
    set_drift(&json, &e->drift);
    for (size_t k = 0; layers && k < run->drift.nlayers; k++) {
        ech_json *layer = ech__json_object();
        ech__json_set_string(&layer, "layer", run->drift.names[k]);
        set_drift(&layer, &layers[k]);
        ech__json_append(&array, layer);
    }
    ech__json_set(&json, "layers", array);
    return json;
}

static ech_json *epoch_json(const ech__run *run, const ech__run_epoch *e)
{
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "time_s", e->time_s);
    ech__json_set_real(&json, "compute_s", e->compute_s);
    ech__json_set_real(&json, "data_s", e->data_s);
    ech__json_set_real(&json, "overhead_s", ech__epoch_overhead(e));
    ech__json_set_int(&json, "samples", e->samples);
    ech__json_set_real(&json, "loss", e->loss);
    ech__json_set_real(&json, "train_accuracy", e->train_accuracy);
    if (e->test.samples) { /* the accuracy of an epoch is that on the test set */
        ech__json_set_real(&json, "accuracy", e->test.accuracy);
        ech__json_set_real(&json, "test_accuracy", e->test.accuracy);
        ech__json_set_real(&json, "test_loss", e->test.loss);
        ech__json_set_real(&json, "evaluation_s", e->evaluation_s);
    }
    if (e->drift.ranks)
        ech__json_set(&json, "statistics_drift", drift_json(run, e));
    return json;
}

static void set_epochs(ech_json **json, const ech__run *run)
{
    ech_json *array = ech__json_array();
    const ech__epoch_shares shares = ech__run_epoch_shares(run);
    for (int64_t i = 0; i < run->epochs_done; i++)
        ech__json_append(&array, epoch_json(run, &run->epochs[i]));
    ech__json_set(json, "epochs", array);
    ech__json_set_real(json, "epoch_data_share", shares.data);
    ech__json_set_real(json, "epoch_overhead_share", shares.overhead);
}

static ech_json *diverged_json(const ech__divergence *d)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "step", d->step);
    ech__json_set_string(&json, "operator", d->what[0] ? d->what : NULL);
    ech__json_set_string(&json, "message", d->text);
    return json;
}

/* What the virtual clock counts with. */
static ech_json *emulation_json(const ech__emulation *e)
{
    ech_json *json = ech__json_object();
    ech__json_set(&json, "links", ech__cluster_json(&e->cluster));
    ech__json_set_string(&json, "algorithm", ech__algorithm_name(e->algorithm));
    return json;
}

static ech_json *summary_json(const ech__run *run)
{
    const ech__run_summary *s = &run->summary;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "clock", ech__run_clock(run));
    if (run->trainer->emulated)
        ech__json_set(&json, "emulation", emulation_json(&run->trainer->emulation));
    ech__json_set_bool(&json, "oversubscribed", run->trainer->oversubscribed);
    ech__json_set_int(&json, "world_size", run->world);
    ech__json_set_int(&json, "devices", ech__run_devices(run));
    ech__json_set(&json, "step_time_s", stats_json(&s->step_time));
    ech__json_set_real(&json, "forward_s", s->forward_s);
    ech__json_set_real(&json, "backward_s", s->backward_s);
    ech__json_set_real(&json, "optimizer_s", s->optimizer_s);
    ech__json_set_real(&json, "comm_exposed_s", s->comm_exposed_s);
    ech__json_set_real(&json, "wait_s", s->wait_s);
    ech__json_set_real(&json, "other_s", s->other_s);
    ech__json_set_real(&json, "comm_hidden_s", s->comm_hidden_s);
    if (run->trainer->nroles > 1)
        ech__json_set_real(&json, "sums_s", s->sums_s);
    ech__json_set_real(&json, "outside_kernels", s->outside_kernels);
    ech__json_set_real(&json, "samples_per_s", s->samples_per_s);
    const ech__ddp_bytes *bytes = &run->traffic.bytes;
    const ech__totals_row *totals = ech__totals_of(run->trainer);
    ech__json_set_int(&json, "comm_bytes_per_step", totals->bytes(run));
    if (totals->json)
        totals->json(run, &json);
    if (run->world > 1) {
        ech__json_set_int(&json, "buffer_bytes_per_step", bytes->buffers);
        ech__json_set_real(&json, "buffer_s", run->traffic.buffers_s);
        ech__json_set(&json, "communication", communication_json(run));
    }
    ech__json_set(&json, "peak_memory_bytes", memory_list(run, false));
    ech__json_set(&json, "planned_memory_bytes", memory_list(run, true));
    ech__json_set(&json, "memory_by_kind", memory_json(run));
    ech__json_set(&json, "utilisation", utilisation_list(run));
    ech__json_set_int(&json, "parameters", ech__trainer_param_count(run->trainer));
    ech__json_set_real(&json, "planning_s", run->trainer->planning_s);
    ech__json_set_int(&json, "timed_kernels", run->trainer->timed_kernels);
    ech__json_set_real(&json, "first_loss", s->first_loss);
    ech__json_set_real(&json, "final_loss", s->final_loss);
    if (run->diverged.step)
        ech__json_set(&json, "diverged", diverged_json(&run->diverged));
    if (ech__run_is_watched(run))
        ech__json_set(&json, "stability", ech__stability_json(run));
    if (run->config.epochs && run->epochs_done) {
        const ech__evaluation *test = &run->epochs[run->epochs_done - 1].test;
        if (test->samples)
            ech__json_set_real(&json, "accuracy", test->accuracy);
        set_epochs(&json, run);
    }
    if (run->saves) {
        ech__json_set_int(&json, "checkpoints", run->saves);
        ech__json_set_real(&json, "checkpoint_s", run->save_s / (double)run->saves);
    }
    ech__json_set_string(&json, "losses_sha256", s->losses_sha256);
    ech__json_set_string(&json, "params_sha256", s->params_sha256);
    if (run->config.params_against) {
        ech_json *gap = ech__json_object();
        ech__json_set_string(&gap, "file", run->config.params_against);
        ech__json_set_real(&gap, "distance", s->gap.distance);
        ech__json_set_real(&gap, "norm", s->gap.norm);
        ech__json_set(&json, "params_against", gap);
    }
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
    ech_json *incomplete = ech__records_incomplete(run->records);
    if (incomplete)
        ech__json_set(&json, "incomplete_records", incomplete);
    if (run->summary.params_sha256[0]) { /* the steps are done, and summed up */
        ech__json_set(&json, "summary", summary_json(run));
        if (run->op_done)
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

/* Seconds from the start of the step on rank 0, for every rank. */
static ech_json *stamps_json(const ech__run *run, int bucket, size_t member)
{
    const ech__reports *reports = &run->trainer->reports;
    const int64_t origin = ech__reports_of(reports, 0)->start_ns;
    ech_json *array = ech__json_array();
    for (int rank = 0; rank < run->world; rank++) {
        const char *times = (const char *)ech__reports_bucket(reports, rank, bucket);
        ech__json_append_real(&array, ech__seconds(*(const int64_t *)(times + member) - origin));
    }
    return array;
}

static ech_json *waits_json(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (int rank = 0; rank < run->world; rank++)
        ech__json_append_real(&array, ech__reports_of(&run->trainer->reports, rank)->wait_s);
    return array;
}

/* When each bucket of gradients was ready, started on and done on every rank, and for whom they
 * waited. */
static void set_exchange(ech_json **json, const ech__run *run)
{
    ech_json *buckets = ech__json_array();
    for (int b = 0; b < run->trainer->reports.nbuckets; b++) {
        ech_json *bucket = ech__json_object();
        ech__json_set(&bucket, "ready_s", stamps_json(run, b, offsetof(ech__coll_times, ready_ns)));
        ech__json_set(&bucket, "start_s", stamps_json(run, b, offsetof(ech__coll_times, start_ns)));
        ech__json_set(&bucket, "done_s", stamps_json(run, b, offsetof(ech__coll_times, done_ns)));
        ech__json_append(&buckets, bucket);
    }
    ech__json_set_int(json, "slowest_rank", ech__reports_slowest(&run->trainer->reports));
    ech__json_set(json, "rank_wait_s", waits_json(run));
    ech__json_set(json, "buckets", buckets);
}

static ech_json *step_json(const ech__run *run, const ech__run_step *step)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "step", step->step);
    ech__json_set_int(&json, "epoch", step->epoch);
    ech__json_set_real(&json, "loss", step->result.loss);
    ech__json_set_real(&json, "time_s", step->result.time_s);
    ech__json_set_real(&json, "data_s", step->data_s);
    ech__json_set_real(&json, "forward_s", step->result.forward_s);
    ech__json_set_real(&json, "backward_s", step->result.backward_s);
    ech__json_set_real(&json, "optimizer_s", step->result.optimizer_s);
    ech__json_set_real(&json, "comm_exposed_s", step->result.comm_exposed_s);
    ech__json_set_real(&json, "wait_s", step->result.wait_s);
    ech__json_set_real(&json, "other_s", step->result.other_s);
    ech__json_set_real(&json, "comm_hidden_s", step->result.comm_hidden_s);
    ech__json_set_real(&json, "lr", step->lr);
    if (run->config.train.amp.type != ECH_AMP_OFF || run->trainer->scaler.on) {
        ech__json_set_real(&json, "scale", step->result.scale);
        ech__json_set_bool(&json, "skipped", step->result.skipped);
    }
    if (run->trainer->checks)
        ech__json_set_real(&json, "grad_norm", step->result.grad_norm);
    if (run->world > 1 && ech__step_has_details(step->step))
        set_exchange(&json, run);
    return json;
}

void ech__records_step(ech__records *r, const ech__run *run, const ech__run_step *step)
{
    if (!ech__step_has_line(step->step) && step->step != run->config.steps)
        return;
    ech_json *json = step_json(run, step);
    ech__step_lines_write(&r->steps, step->step, json);
    ech__json_destroy(json);
}

/* ---- incomplete files ---- */

void ech__records_trace_failed(ech__records *r, const char *why)
{
    snprintf(r->trace_error, sizeof r->trace_error, "%s", why);
}

static void append_incomplete(ech_json **array, const char *file, const char *why)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "file", file);
    ech__json_set_string(&json, "reason", why);
    ech__json_append(array, json);
}

ech_json *ech__records_incomplete(const ech__records *r)
{
    char why[160];
    if (!r || (!r->steps.error && !r->trace_error[0]))
        return NULL;
    ech_json *array = ech__json_array();
    if (r->steps.error) {
        snprintf(why, sizeof why, "%s after step %lld", strerror(r->steps.error),
                 (long long)r->steps.last_step);
        append_incomplete(&array, "steps.jsonl", why);
    }
    if (r->trace_error[0])
        append_incomplete(&array, "trace.json", r->trace_error);
    return array;
}

/* ---- closing ---- */

void ech__records_close(ech__records *r)
{
    if (!r)
        return;
    ech__step_lines_close(&r->steps);
    ech__arena_fini(&r->arena);
    ech__delete(r->ctx, r, sizeof *r);
}
