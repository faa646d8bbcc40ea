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
        ECH__JSON_SET(&json, ech__int("straggle_rank", c.straggler),
                      ech__real("straggle_ms", c.straggle_ms));
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
    return ECH__JSON(ech__real("step_s", r->step_s), ech__real("forward_s", r->forward_s),
                     ech__real("backward_s", r->backward_s),
                     ech__real("optimizer_s", r->optimizer_s),
                     ech__real("comm_exposed_s", r->exposed_s), ech__real("wait_s", r->wait_s),
                     ech__real("other_s", r->other_s), ech__real("comm_hidden_s", r->hidden_s),
                     ech__real("sync_s", r->sync_s), ech__real("buffers_s", r->buffers_s));
}

static ech_json *bucket_json(const ech__bucket_traffic *b)
{
    return ECH__JSON(ech__int("bytes", b->bytes), ech__real("ready_s", b->ready_s),
                     ech__real("transfer_s", b->transfer_s),
                     ech__real("busbw_gbs", b->bus_bytes_per_s * 1e-9));
}

static ech_json *communication_json(const ech__run *run)
{
    const ech__traffic *t = &run->traffic;
    ech_json *json = ech__json_object(), *ranks = ech__json_array(), *buckets = ech__json_array();
    ECH__JSON_SET(&json, ech__string("backend", ech__backend_name(run->trainer->comm->backend)),
                  ech__int("nodes", run->trainer->comm->nodes),
                  ech__string("algorithm", ech__algorithm_name(run->trainer->comm->algorithm)),
                  ech__int("gradient_bytes", t->bytes.gradients),
                  ech__int("buffer_bytes", t->bytes.buffers),
                  ech__int("statistics_bytes", t->bytes.statistics));
    for (int rank = 0; rank < t->world; rank++)
        ech__json_append(&ranks, rank_json(&t->ranks[rank]));
    for (int b = 0; b < t->nbuckets; b++)
        ech__json_append(&buckets, bucket_json(&t->bucket_totals[b]));
    ECH__JSON_SET(&json, ech__member("ranks", ranks), ech__member("buckets", buckets));
    if (t->straggler.rank >= 0) {
        ech__json_set(&json, "straggler",
                      ECH__JSON(ech__int("rank", t->straggler.rank),
                                ech__string("phase", ech__phase_name(t->straggler.phase)),
                                ech__real("ms", t->straggler.seconds * 1e3),
                                ech__real("share_of_steps", t->straggler.share)));
    }
    return json;
}

static ech_json *stats_json(const ech__stats *s)
{
    return ECH__JSON(ech__real("median", s->median), ech__real("mean", s->mean),
                     ech__real("std", s->std), ech__real("p95", s->p95), ech__real("min", s->min));
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
        ECH__JSON_SET(&op, ech__string("op", ech__op_name(instr->node->op)),
                      ech__string("name", instr->node->name),
                      ech__string("phase", ech__phase_name(instr->node->phase)),
                      ech__string("kernel", instr->choice.name),
                      ech__real("median_s", run->ops[n].median_s));
        ech__json_append(&array, op);
    }
    return array;
}

static void set_drift(ech_json **json, const ech__drift *d)
{
    ECH__JSON_SET(json, ech__real("mean_largest", d->mean_largest),
                  ech__real("mean_rms", d->mean_rms),
                  ech__real("variance_largest", d->variance_largest),
                  ech__real("variance_rms", d->variance_rms));
}

/* Of running statistics between ranks: over all layers, and of each layer where this process has
 * compared them. */
static ech_json *drift_json(const ech__run *run, const ech__run_epoch *e)
{
    ech_json *json = ech__json_object(), *array = ech__json_array();
    const ech__drift *layers = ech__drift_layers(&run->drift, e->epoch - 1);
    set_drift(&json, &e->drift);
    for (size_t k = 0; layers && k < run->drift.nlayers; k++) {
        ech_json *layer = ECH__JSON(ech__string("layer", run->drift.names[k]));
        set_drift(&layer, &layers[k]);
        ech__json_append(&array, layer);
    }
    ech__json_set(&json, "layers", array);
    return json;
}

static ech_json *epoch_json(const ech__run *run, const ech__run_epoch *e)
{
    ech_json *json =
        ECH__JSON(ech__real("time_s", e->time_s), ech__real("compute_s", e->compute_s),
                  ech__real("data_s", e->data_s), ech__real("overhead_s", ech__epoch_overhead(e)),
                  ech__int("samples", e->samples), ech__real("loss", e->loss),
                  ech__real("train_accuracy", e->train_accuracy));
    if (e->test.samples) { /* the accuracy of an epoch is that on the test set */
        ECH__JSON_SET(&json, ech__real("accuracy", e->test.accuracy),
                      ech__real("test_accuracy", e->test.accuracy),
                      ech__real("test_loss", e->test.loss),
                      ech__real("evaluation_s", e->evaluation_s));
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
    ECH__JSON_SET(json, ech__member("epochs", array), ech__real("epoch_data_share", shares.data),
                  ech__real("epoch_overhead_share", shares.overhead));
}

static ech_json *diverged_json(const ech__divergence *d)
{
    return ECH__JSON(ech__int("step", d->step),
                     ech__string("operator", d->what[0] ? d->what : NULL),
                     ech__string("message", d->text));
}

/* What the virtual clock counts with. */
static ech_json *emulation_json(const ech__emulation *e)
{
    return ECH__JSON(ech__member("links", ech__cluster_json(&e->cluster)),
                     ech__string("algorithm", ech__algorithm_name(e->algorithm)));
}

static ech_json *summary_json(const ech__run *run)
{
    const ech__run_summary *s = &run->summary;
    ech_json *json = ECH__JSON(ech__string("clock", ech__run_clock(run)));
    if (run->trainer->emulated)
        ech__json_set(&json, "emulation", emulation_json(&run->trainer->emulation));
    ECH__JSON_SET(&json, ech__bool("oversubscribed", run->trainer->oversubscribed),
                  ech__int("world_size", run->world), ech__int("devices", ech__run_devices(run)),
                  ech__member("step_time_s", stats_json(&s->step_time)),
                  ech__real("forward_s", s->forward_s), ech__real("backward_s", s->backward_s),
                  ech__real("optimizer_s", s->optimizer_s),
                  ech__real("comm_exposed_s", s->comm_exposed_s), ech__real("wait_s", s->wait_s),
                  ech__real("other_s", s->other_s), ech__real("comm_hidden_s", s->comm_hidden_s));
    if (run->trainer->nroles > 1)
        ech__json_set_real(&json, "sums_s", s->sums_s);
    ECH__JSON_SET(&json, ech__real("outside_kernels", s->outside_kernels),
                  ech__real("samples_per_s", s->samples_per_s));
    const ech__ddp_bytes *bytes = &run->traffic.bytes;
    const ech__totals_row *totals = ech__totals_of(run->trainer);
    ech__json_set_int(&json, "comm_bytes_per_step", totals->bytes(run));
    if (totals->json)
        totals->json(run, &json);
    if (run->world > 1) {
        ECH__JSON_SET(&json, ech__int("buffer_bytes_per_step", bytes->buffers),
                      ech__real("buffer_s", run->traffic.buffers_s),
                      ech__member("communication", communication_json(run)));
    }
    ECH__JSON_SET(&json, ech__member("peak_memory_bytes", memory_list(run, false)),
                  ech__member("planned_memory_bytes", memory_list(run, true)),
                  ech__member("memory_by_kind", memory_json(run)),
                  ech__member("utilisation", utilisation_list(run)),
                  ech__int("parameters", ech__trainer_param_count(run->trainer)),
                  ech__real("planning_s", run->trainer->planning_s),
                  ech__int("timed_kernels", run->trainer->timed_kernels),
                  ech__real("first_loss", s->first_loss), ech__real("final_loss", s->final_loss));
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
        ECH__JSON_SET(&json, ech__int("checkpoints", run->saves),
                      ech__real("checkpoint_s", run->save_s / (double)run->saves));
    }
    ECH__JSON_SET(&json, ech__string("losses_sha256", s->losses_sha256),
                  ech__string("params_sha256", s->params_sha256));
    if (run->config.params_against) {
        ech__json_set(&json, "params_against",
                      ECH__JSON(ech__string("file", run->config.params_against),
                                ech__real("distance", s->gap.distance),
                                ech__real("norm", s->gap.norm)));
    }
    return json;
}

static ech_json *resumed_json(const ech__run *run)
{
    return ECH__JSON(
        ech__string("checkpoint", run->resumed->path), ech__int("step", run->first),
        ech__string("kernels", run->trainer->chosen_anew ? "chosen anew" : "the same"));
}

ech_json *ech__run_json(const ech__run *run, const char *state)
{
    ech_json *json = ECH__JSON(ech__string("state", state), ech__string("version", ech_version()),
                               ech__string("command", run->config.command),
                               ech__int("seed", (int64_t)run->config.train.seed),
                               ech__member("config", config_json(run)),
                               ech__member("machine", ech__machine_json(&run->machine)));
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
        ech__json_append(
            &buckets,
            ECH__JSON(
                ech__member("ready_s", stamps_json(run, b, offsetof(ech__coll_times, ready_ns))),
                ech__member("start_s", stamps_json(run, b, offsetof(ech__coll_times, start_ns))),
                ech__member("done_s", stamps_json(run, b, offsetof(ech__coll_times, done_ns)))));
    }
    ECH__JSON_SET(json, ech__int("slowest_rank", ech__reports_slowest(&run->trainer->reports)),
                  ech__member("rank_wait_s", waits_json(run)), ech__member("buckets", buckets));
}

static ech_json *step_json(const ech__run *run, const ech__run_step *step)
{
    ech_json *json = ECH__JSON(
        ech__int("step", step->step), ech__int("epoch", step->epoch),
        ech__real("loss", step->result.loss), ech__real("time_s", step->result.time_s),
        ech__real("data_s", step->data_s), ech__real("forward_s", step->result.forward_s),
        ech__real("backward_s", step->result.backward_s),
        ech__real("optimizer_s", step->result.optimizer_s),
        ech__real("comm_exposed_s", step->result.comm_exposed_s),
        ech__real("wait_s", step->result.wait_s), ech__real("other_s", step->result.other_s),
        ech__real("comm_hidden_s", step->result.comm_hidden_s), ech__real("lr", step->lr));
    if (run->config.train.amp.type != ECH_AMP_OFF || run->trainer->scaler.on) {
        ECH__JSON_SET(&json, ech__real("scale", step->result.scale),
                      ech__bool("skipped", step->result.skipped));
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
    ech_json *json = ECH__JSON(ech__string("file", file), ech__string("reason", why));
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
