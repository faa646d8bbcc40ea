#include "cli/train/show.h"
#include "base/format.h"
#include "base/system/clock.h"
#include "graph/flops.h"
#include "train/checkpoint/checkpoint.h"
#include "train/record/record.h"
#include "train/record/totals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nothing for plain f32. */
static void show_precision(const ech_train_options *o)
{
    const char *before = "";
    if (o->amp.type != ECH_AMP_OFF) {
        printf("layers in %s", ech__amp_name(o->amp.type));
        before = ", ";
    }
    if (ech__loss_scale(o) > 0) {
        printf("%sinitial loss scale %g", before, ech__loss_scale(o));
        before = ", ";
    }
    if (o->optimizer.clip_norm > 0) {
        printf("%sgradient norm clipped to %g", before, o->optimizer.clip_norm);
        before = ", ";
    }
    if (o->ddp.grad_dtype != ECH_F32) {
        printf("%sgradients exchanged in %s", before, ech__dtype_name(o->ddp.grad_dtype));
        before = ", ";
    }
    if (*before)
        putchar('\n');
}

void ech__show_head(const ech__run *run)
{
    const ech__run_config *c = &run->config;
    const ech_trainer *t = run->trainer;
    const ech__strategy_row *row = ech__strategy_row_of(t->by.strategy);
    printf("%s", ech__model_name(c->model.kind));
    if (c->model.kind == ECH__MODEL_LINEAR)
        printf(" %lldx%lld", (long long)c->model.dim, (long long)c->model.depth);
    printf(", %lld parameters, batch %lld", (long long)ech__trainer_param_count(t),
           (long long)run->feed.global);
    if (run->feed.batch != run->feed.global)
        printf(" (%lld per device and micro-step)", (long long)run->feed.batch);
    const int devices = ech__run_devices(run);
    printf(", %s, %d device%s with %d thread%s%s%s\n", ech__optimizer_name(c->train.optimizer.kind),
           devices, devices == 1 ? "" : "s", t->device->threads, t->device->threads == 1 ? "" : "s",
           devices == 1 ? "" : " each", row->one_process ? ", DataParallel" : "");
    if (row->cuts_model)
        ech__show_pipe_head(run);
    show_precision(&c->train);
    printf("planned in %s", ech__format_seconds(t->planning_s).s);
    if (t->timed_kernels)
        printf(", %d kernels timed", t->timed_kernels);
    printf("; memory %s%s\n", ech__format_bytes(ech_trainer_planned_memory(t)).s,
           row->cuts_model       ? " on the device that needs the most"
           : run->world > 1      ? " per device"
           : row->first_has_loss ? " on device 0"
                                 : "");
    if (t->tree)
        printf("reproducible: %d slots of %lld samples, %d per device, summed in a fixed tree; "
               "%s of the memory holds the sums\n",
               c->train.ddp.slots, (long long)run->feed.batch, t->micro_steps,
               ech__format_bytes(t->plan->memory[ECH__MEMORY_SUMS]).s);
    if (t->comm && !t->emulated && (t->comm->nodes > 1 || c->algorithm))
        printf("all-reduce on %d node%s: %s%s\n", t->comm->nodes, t->comm->nodes == 1 ? "" : "s",
               ech__comm_algorithm(t->comm).s, t->comm->helper ? ", by a thread of its own" : "");
    if (run->resumed)
        printf("resumed from %s\n", run->resumed->path);
    fflush(stdout);
}

/* ---- progress ---- */

static const double ON_TERMINAL = 0.1, ELSEWHERE = 5; /* seconds between two updates */

/* Rank 0 writes through its launcher, which knows whether there is a terminal at the end. */
static bool on_terminal(void)
{
    const char *said = getenv("ECHELON_TERMINAL");
    return isatty(STDERR_FILENO) || (said && !strcmp(said, "1"));
}

void ech__show_progress(void *user, const ech__run *run, const ech__run_step *step)
{
    ech__progress *p = user;
    const bool terminal = on_terminal();
    const int64_t now = ech__clock_wall();
    if (!p->last_ns && !terminal) /* short runs need no lines in a log */
        p->last_ns = now;
    if (ech__seconds(now - p->last_ns) < (terminal ? ON_TERMINAL : ELSEWHERE))
        return;
    p->last_ns = now;
    p->open = terminal;
    fprintf(stderr, "%sstep %lld/%lld  loss %-12.6g %s per step%s", terminal ? "\r" : "",
            (long long)step->step, (long long)run->config.steps, step->result.loss,
            ech__format_seconds(step->result.time_s).s, terminal ? "   " : "\n");
    fflush(stderr);
}

static void show_drift(const ech__run *run, const ech__run_epoch *e)
{
    const ech__drift *d = &e->drift;
    const ech__drift *layers = ech__drift_layers(&run->drift, e->epoch - 1);
    if (!d->ranks)
        return;
    printf("    running statistics differ between %d ranks: means by up to %.2g standard "
           "deviations (rms %.2g), variances by up to %.2g %% (rms %.2g %%)",
           d->ranks, d->mean_largest, d->mean_rms, 100 * d->variance_largest,
           100 * d->variance_rms);
    if (layers)
        printf("; largest in %s", run->drift.names[ech__drift_worst(&run->drift, e->epoch - 1)]);
    printf("\n");
}

void ech__show_epoch(void *user, const ech__run *run, const ech__run_epoch *e)
{
    ech__show_progress_end(user);
    printf("[Epoch %lld/%lld] time=%.2fs compute=%.2fs data=%.3fs loss=%.4f train_acc=%.4f",
           (long long)e->epoch, (long long)run->config.epochs, e->time_s, e->compute_s, e->data_s,
           e->loss, e->train_accuracy);
    if (e->test.samples)
        printf(" test_loss=%.4f acc=%.4f", e->test.loss, e->test.accuracy);
    printf("\n");
    show_drift(run, e);
    fflush(stdout);
}

void ech__show_progress_end(ech__progress *p)
{
    if (p->open)
        fprintf(stderr, "\r%72s\r", "");
    p->open = false;
}

/* ---- tables ---- */

static void show_steps(const ech__run *run)
{
    const bool ranks = ech__run_devices(run) > 1;
    printf("\n%8s  %12s  %10s  %10s  %10s", "step", "loss", "time", "forward", "backward");
    printf("  %10s", "optimizer");
    if (ranks)
        printf("  %10s  %10s", "exposed", "wait");
    printf("  %10s  %10s\n", "other", "lr");
    for (int row = 0; row < run->history.nrows; row++) {
        const ech__run_step *s = &run->history.rows[row];
        printf("%8lld  %12.7g  %10s  %10s  %10s", (long long)s->step, s->result.loss,
               ech__format_seconds(s->result.time_s).s, ech__format_seconds(s->result.forward_s).s,
               ech__format_seconds(s->result.backward_s).s);
        printf("  %10s", ech__format_seconds(s->result.optimizer_s).s);
        if (ranks)
            printf("  %10s  %10s", ech__format_seconds(s->result.comm_exposed_s).s,
                   ech__format_seconds(s->result.wait_s).s);
        printf("  %10s  %10.4g%s%s\n", ech__format_seconds(s->result.other_s).s, s->lr,
               s->step <= run->first + run->config.warmup ? "  warm-up" : "",
               s->result.skipped ? "  skipped" : "");
    }
}

static void show_buckets(const ech__traffic *t)
{
    printf("\n%8s  %10s  %12s  %12s  %10s\n", "bucket", "size", "ready at", "transfer", "bus GB/s");
    for (int b = 0; b < t->nbuckets; b++) {
        const ech__bucket_traffic *bucket = &t->bucket_totals[b];
        printf("%8d  %10s  %12s  %12s  %10.2f\n", b, ech__format_bytes(bucket->bytes).s,
               ech__format_seconds(bucket->ready_s).s, ech__format_seconds(bucket->transfer_s).s,
               bucket->bus_bytes_per_s * 1e-9);
    }
}

/* step = forward + backward + optimizer + exposed + wait + other */
static void show_ranks(const ech__traffic *t)
{
    static const char *const heads[] = {"step",    "forward", "backward", "optimizer",
                                        "exposed", "wait",    "other",    "hidden"};
    printf("\n%6s", "rank");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        printf("  %9s", heads[i]);
    printf("  %5s  %9s\n", "busy", "memory");
    for (int rank = 0; rank < t->world; rank++) {
        const ech__rank_traffic *r = &t->ranks[rank];
        const double parts[] = {r->step_s,    r->forward_s, r->backward_s, r->optimizer_s,
                                r->exposed_s, r->wait_s,    r->other_s,    r->hidden_s};
        printf("%6d", rank);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            printf("  %9s", ech__format_seconds(parts[i]).s);
        printf("  %3.0f %%  %9s\n", 100 * r->busy, ech__format_bytes(r->peak_memory).s);
    }
}

static void show_exchange(const ech__run *run)
{
    const ech__traffic *t = &run->traffic;
    const ech__straggler *late = &t->straggler;
    if (run->world == 1)
        return;
    show_ranks(t);
    show_buckets(t);
    printf("\nexchange     %s of gradients", ech__format_bytes(t->bytes.gradients).s);
    if (t->bytes.buffers)
        printf(", %s of buffers (in %s)", ech__format_bytes(t->bytes.buffers).s,
               ech__format_seconds(t->buffers_s).s);
    if (t->bytes.statistics)
        printf(", %s of statistics", ech__format_bytes(t->bytes.statistics).s);
    printf(" per step and rank over %s; medians, %s\n",
           run->trainer->emulated ? "emulated links"
                                  : ech__backend_name(run->trainer->comm->backend),
           ech__run_clock(run));
    if (run->trainer->emulated)
        printf("             %s; all-reduce: %s\n"
               "             operators take the CPU time of their thread, the exchange its "
               "predicted time; memory contention between more cores is not included\n",
               ech__cluster_describe(&run->trainer->emulation.cluster).s,
               ech__algorithm_name(run->trainer->emulation.algorithm));
    else if (run->world * run->trainer->device->threads >= run->machine.threads)
        printf("             all cores compute, so the exchange takes time from computing\n");
    if (late->rank >= 0)
        printf("straggler    rank %d is %.2f ms late in %s and is last in %.0f %% of the steps\n",
               late->rank, late->seconds * 1e3, ech__phase_name(late->phase), 100 * late->share);
}

static void show_dp(const ech__dp_totals *t)
{
    if (!t)
        return;
    printf("\n%8s  %10s  %10s  %10s  %6s  %10s\n", "device", "in", "out", "busy", "share",
           "memory");
    for (int d = 0; d < t->devices; d++)
        printf("%8d  %10s  %10s  %10s  %4.0f %%  %10s\n", d,
               ech__format_bytes(t->device[d].bytes_in).s,
               ech__format_bytes(t->device[d].bytes_out).s,
               ech__format_seconds(t->device[d].busy_s).s, 100 * t->device[d].busy_share,
               ech__format_bytes(t->device[d].memory).s);
    printf("\n%-18s  %10s\n", "part of a step", "time");
    for (int p = 0; p < ECH__DP_PHASES; p++)
        printf("%-18s  %10s\n", ech__dp_phase_name((ech__dp_phase)p),
               ech__format_seconds(t->phase_s[p]).s);
}

static void show_stability(const ech__run *run)
{
    if (!ech__run_is_watched(run))
        return;
    const ech__stability *s = &run->stability;
    const ech_trainer *t = run->trainer;
    printf("stability    %lld non-finite step%s, %lld skipped", (long long)s->broken,
           s->broken == 1 ? "" : "s", (long long)t->scaler.skipped);
    if (t->scaler.on)
        printf("; loss scale %g to %g", s->least, s->most);
    if (t->checks)
        printf("; largest gradient %.4g", s->largest);
    if (run->baseline)
        printf("; losses differ from those of %s by at most %.3g %%, by %.3g %% at the end",
               run->config.against, 100 * s->worst, 100 * s->final);
    putchar('\n');
}

static void show_epochs(const ech__run *run)
{
    const ech__epoch_shares shares = ech__run_epoch_shares(run);
    if (!run->config.epochs || !run->epochs_done)
        return;
    printf("epochs       %s of training in total; %.3f %% exposed data loading, %.3f %% "
           "besides steps and loading",
           ech__format_seconds(shares.time_s).s, 100 * shares.data, 100 * shares.overhead);
    if (shares.evaluation > 0)
        printf("; evaluation adds %.1f %%", 100 * shares.evaluation);
    printf("\n");
}

static void show_crowd(const ech_trainer *t)
{
    const int threads = t->device->threads;
    if (t->oversubscribed)
        printf(
            "             oversubscribed: %d device%s with %d thread%s%s on %d core%s, so this is "
            "not the time of %d device%s with dedicated cores\n",
            t->sharing, t->sharing == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
            t->sharing == 1 ? "" : " each", t->shared, t->shared == 1 ? "" : "s", t->sharing,
            t->sharing == 1 ? "" : "s");
}

/* Files of the run directory that are incomplete. */
static void show_incomplete(const ech__run *run)
{
    ech_json *files = ech__records_incomplete(run->records);
    const char *file, *why;
    for (size_t i = 0; i < ech__json_count(files); i++) {
        const ech_json *one = ech__json_at(files, i);
        if (ech__json_string(ech__json_find(one, "file"), &file) &&
            ech__json_string(ech__json_find(one, "reason"), &why))
            printf("records      %s is incomplete: %s\n", file, why);
    }
    ech__json_destroy(files);
}

static void show_times(const ech__run *run)
{
    const ech__run_summary *s = &run->summary;
    const ech__stats *t = &s->step_time;
    if (!s->timed) { /* the run diverged during the warm-up */
        printf("\nstep time    not measured: no step after the warm-up\n");
        return;
    }
    printf("\nstep time    %s median, %s mean, %s std, %s p95, %s min (%s, %lld steps)\n",
           ech__format_seconds(t->median).s, ech__format_seconds(t->mean).s,
           ech__format_seconds(t->std).s, ech__format_seconds(t->p95).s,
           ech__format_seconds(t->min).s, ech_clock_name(ech_trainer_clock(run->trainer)),
           (long long)s->timed);
    show_crowd(run->trainer);
    printf("  of it      forward %s, backward %s, optimizer %s, ",
           ech__format_seconds(s->forward_s).s, ech__format_seconds(s->backward_s).s,
           ech__format_seconds(s->optimizer_s).s);
    if (ech__run_devices(run) > 1)
        printf("exposed communication %s, wait %s, ", ech__format_seconds(s->comm_exposed_s).s,
               ech__format_seconds(s->wait_s).s);
    printf("other %s", ech__format_seconds(s->other_s).s);
    if (run->op_done)
        printf("; %.2f %% outside kernels", 100 * s->outside_kernels);
    printf("\n");
    if (run->trainer->tree)
        printf("             summing slots %s, %.2f %% of the step\n",
               ech__format_seconds(s->sums_s).s, 100 * s->sums_s / t->median);
    printf("throughput   %.1f samples/s\n", s->samples_per_s);
}

static void show_summary(const ech__run *run)
{
    show_exchange(run);
    show_dp(ech__run_dp_totals(run));
    ech__show_pipe(run);
    show_times(run);
    const ech__run_summary *s = &run->summary;
    show_epochs(run);
    printf("loss         %.9g at the first step, %.9g at the last\n", s->first_loss, s->final_loss);
    show_stability(run);
    show_incomplete(run);
    printf("memory       %s planned, %s allocated\n",
           ech__format_bytes(ech_trainer_planned_memory(run->trainer)).s,
           ech__format_bytes(ech_trainer_peak_memory(run->trainer)).s);
    printf("parameters   sha256 %s\n", s->params_sha256);
    if (run->config.params_against)
        printf("             difference from %s: norm %.6g, relative to a norm of %.6g\n",
               run->config.params_against, s->gap.distance, s->gap.norm);
    if (run->saves)
        printf("checkpoints  %s, %lld saved in %s each\n", run->config.save, (long long)run->saves,
               ech__format_seconds(run->save_s / (double)run->saves).s);
    if (run->config.run_dir)
        printf("records      %s\n", run->config.run_dir);
}

void ech__show_run(const ech__run *run)
{
    show_steps(run);
    show_summary(run);
}

void ech__show_kernels(const ech__run *run)
{
    printf("\n%-20s  %-18s  %-22s  %10s  %8s  %7s\n", "operator", "layer", "kernel", "time", "GF/s",
           "share");
    for (size_t n = 0; n < run->nops; n++) {
        const ech__run_op *op = &run->ops[n];
        const ech__plan *plan = ech__trainer_plan_of(run->trainer, op->device);
        if (ech__plan_is_idle(plan, op->instr))
            continue;
        const double flops = ech__node_flops(plan->graph, op->instr->node, plan->batch);
        char rate[16] = "";
        if (flops > 0)
            snprintf(rate, sizeof rate, "%.1f", flops / op->median_s * 1e-9);
        printf("%-20s  %-18s  %-22s  %10s  %8s  %5.1f %%\n", ech__op_name(op->instr->node->op),
               op->instr->node->name, op->instr->choice.name, ech__format_seconds(op->median_s).s,
               rate, 100 * op->median_s / run->summary.step_time.median);
    }
    show_summary(run);
}
