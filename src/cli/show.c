#include "cli/show.h"
#include "base/clock.h"
#include "base/format.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ech__show_head(const ech__run *run)
{
    const ech__run_config *c = &run->config;
    const ech_trainer *t = run->trainer;
    printf("%s", ech__model_name(c->model.kind));
    if (c->model.kind == ECH__MODEL_LINEAR)
        printf(" %lldx%lld", (long long)c->model.dim, (long long)c->model.depth);
    printf(", %lld parameters, batch %lld, %s, 1 device of %d thread%s\n",
           (long long)ech__trainer_param_count(t), (long long)c->train.batch,
           ech__optimizer_name(c->train.optimizer), t->device->threads,
           t->device->threads == 1 ? "" : "s");
    printf("planned in %s", ech__format_seconds(t->planning_s).s);
    if (t->timed_kernels)
        printf(", %d kernels timed", t->timed_kernels);
    printf("; needs %s\n", ech__format_bytes(t->plan->total_bytes).s);
    if (run->resumed)
        printf("goes on from %s\n", run->resumed->path);
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
    fprintf(stderr, "%sstep %lld/%lld  loss %-12.6g %s a step%s", terminal ? "\r" : "",
            (long long)step->step, (long long)run->config.steps, step->result.loss,
            ech__format_seconds(step->result.time_s).s, terminal ? "   " : "\n");
    fflush(stderr);
}

void ech__show_epoch(void *user, const ech__run *run, const ech__run_epoch *e)
{
    ech__show_progress_end(user);
    printf("[Epoch %lld/%lld] time=%.2fs compute=%.2fs loss=%.4f train_acc=%.4f",
           (long long)e->epoch, (long long)run->config.epochs, e->time_s, e->compute_s, e->loss,
           e->train_accuracy);
    if (e->test.samples)
        printf(" test_loss=%.4f acc=%.4f", e->test.loss, e->test.accuracy);
    printf("\n");
    fflush(stdout);
}

void ech__show_progress_end(ech__progress *p)
{
    if (p->open)
        fprintf(stderr, "\r%72s\r", "");
    p->open = false;
}

/* ---- tables ---- */

enum { STEP_ROWS = 10 };

static void show_steps(const ech__run *run)
{
    printf("\n%8s  %12s  %10s  %10s  %10s  %10s  %10s\n", "step", "loss", "time", "forward",
           "backward", "optimizer", "lr");
    const int64_t steps = run->done - run->first, rows = steps < STEP_ROWS ? steps : STEP_ROWS;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t i = run->first + (rows > 1 ? row * (steps - 1) / (rows - 1) : 0);
        const ech__run_step *s = &run->steps[i];
        printf("%8lld  %12.7g  %10s  %10s  %10s  %10s  %10.4g%s\n", (long long)s->step,
               s->result.loss, ech__format_seconds(s->result.time_s).s,
               ech__format_seconds(s->result.forward_s).s,
               ech__format_seconds(s->result.backward_s).s,
               ech__format_seconds(s->result.optimizer_s).s, s->lr,
               i < run->first + run->config.warmup ? "  warm-up" : "");
    }
}

static void show_summary(const ech__run *run)
{
    const ech__run_summary *s = &run->summary;
    const ech__stats *t = &s->step_time;
    printf("\nstep time    %s median, %s mean, %s std, %s p95, %s min (measured, %lld steps)\n",
           ech__format_seconds(t->median).s, ech__format_seconds(t->mean).s,
           ech__format_seconds(t->std).s, ech__format_seconds(t->p95).s,
           ech__format_seconds(t->min).s, (long long)s->timed);
    printf("  of it      forward %s, backward %s, optimizer %s; %.2f %% outside kernels\n",
           ech__format_seconds(s->forward_s).s, ech__format_seconds(s->backward_s).s,
           ech__format_seconds(s->optimizer_s).s, 100 * s->outside_kernels);
    printf("throughput   %.1f samples/s\n", s->samples_per_s);
    printf("loss         %.9g at the first step, %.9g at the last\n", s->first_loss, s->final_loss);
    printf("memory       %s planned, %s allocated\n",
           ech__format_bytes(ech_trainer_planned_memory(run->trainer)).s,
           ech__format_bytes(ech_trainer_peak_memory(run->trainer)).s);
    printf("parameters   sha256 %s\n", s->params_sha256);
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

/* Multiplications and additions of a linear operator or a convolution; 0 for others. */
static double flops_of(const ech__instr *instr)
{
    const ech__kernel_desc *d = &instr->desc;
    const ech__shape *w,
        *out; /* the weight, and what has an element for each use of a weight row */
    switch (instr->node->op) {
    case ECH__OP_LINEAR:
    case ECH__OP_CONV2D:
        w = &d->operands[1].layout.shape;
        out = &d->operands[d->nin].layout.shape;
        break;
    case ECH__OP_LINEAR_BWD_DATA:
    case ECH__OP_CONV2D_BWD_DATA:
        w = &d->operands[1].layout.shape;
        out = &d->operands[0].layout.shape;
        break;
    case ECH__OP_LINEAR_BWD_WEIGHTS:
    case ECH__OP_CONV2D_BWD_WEIGHTS:
        w = &d->operands[2].layout.shape;
        out = &d->operands[1].layout.shape;
        break;
    default:
        return 0;
    }
    int64_t weights = 0, outputs = 0;
    ech__shape_elems(w, &weights);
    ech__shape_elems(out, &outputs);
    return 2.0 * (double)outputs * (double)weights / (double)w->dims[0];
}

void ech__show_kernels(const ech__run *run)
{
    printf("\n%-20s  %-18s  %-22s  %10s  %8s  %7s\n", "operator", "layer", "kernel", "time", "GF/s",
           "share");
    for (size_t n = 0; n < run->trainer->plan->ninstrs; n++) {
        const ech__run_op *op = &run->ops[n];
        if (ech__plan_is_idle(run->trainer->plan, op->instr))
            continue;
        const double flops = flops_of(op->instr);
        char rate[16] = "";
        if (flops > 0)
            snprintf(rate, sizeof rate, "%.1f", flops / op->median_s * 1e-9);
        printf("%-20s  %-18s  %-22s  %10s  %8s  %5.1f %%\n", ech__op_name(op->instr->node->op),
               op->instr->node->name, op->instr->choice.name, ech__format_seconds(op->median_s).s,
               rate, 100 * op->median_s / run->summary.step_time.median);
    }
    show_summary(run);
}

void ech__show_memory(const ech__plan *plan)
{
    printf("A batch of %lld needs, as planned:\n\n", (long long)plan->batch);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        printf("  %-12s  %10s  %16lld bytes\n", ech__memory_name((ech__memory_kind)k),
               ech__format_bytes(plan->memory[k]).s, (long long)plan->memory[k]);
    printf("  %-12s  %10s  %16lld bytes\n", "total", ech__format_bytes(plan->total_bytes).s,
           (long long)plan->total_bytes);
}
