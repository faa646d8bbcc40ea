#include "train/step/divergence.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run.h"
#include "train/strategy/strategy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what came first ---- */

/* The parameter that a copy in another type or layout is of. */
static const ech__value *original(const ech_graph *graph, ech_value v)
{
    while (graph->values[v].kind == ECH__VALUE_COPY && graph->values[v].of >= 0)
        v = graph->values[v].of;
    return &graph->values[v];
}

ech__cause ech__cause_of(const ech_trainer *trainer, const ech__variant *variant)
{
    int device = 0;
    const ech__nonfinite found = trainer->ops->nonfinite(trainer, variant, &device);
    ech__cause cause = {.what = ""};
    char where[32] = "";
    if (!found.node)
        return cause;
    if (device >= 0 && !ech__trainer_model_group(trainer))
        snprintf(where, sizeof where, " on device %d", device);
    const ech__op op = found.node->op;
    const ech__value *value = original(found.graph, found.value);
    cause.is_parameter =
        found.read && (value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_BUFFER);
    cause.is_input = found.read && value->kind == ECH__VALUE_INPUT;
    if (op == ECH__OP_SEND || op == ECH__OP_RECV) {
        snprintf(cause.what, sizeof cause.what, "what device %d %s ('%.64s')", device,
                 op == ECH__OP_SEND ? "sends" : "receives", found.node->name);
    } else if (found.read) {
        const ech__value *read = &found.graph->values[found.value];
        const bool copied = read->type.dtype != value->type.dtype; /* it may only be too large */
        snprintf(cause.what, sizeof cause.what, "%s%s%s%s '%.96s'", copied ? "the " : "",
                 copied ? ech__dtype_name(read->type.dtype) : "", copied ? " copy of " : "",
                 ech__value_kind_name(value->kind), value->name);
    } else {
        snprintf(cause.what, sizeof cause.what, "%s '%.96s'%s", ech__op_name(op), found.node->name,
                 where);
    }
    return cause;
}

/* ---- what ranks know together ---- */

/* That of the first rank that has one, and which it is. */
static ech_status first_cause(const ech__run *run, ech__cause *cause, int *rank)
{
    ech__comm *comm = ech__trainer_all_ranks(run->trainer);
    *rank = 0;
    if (!comm || comm->world == 1)
        return ECH_OK;
    ech__cause *all = ech__new(run->ctx, (size_t)comm->world * sizeof *all);
    if (!all)
        return ech__no_memory(run->ctx, "what %d ranks found", comm->world);
    const ech_status status = ech__comm_allgather(comm, cause, all, (int64_t)sizeof *all);
    while (*rank + 1 < comm->world && !all[*rank].what[0])
        ++*rank;
    *cause = all[*rank];
    ech__delete(run->ctx, all, (size_t)comm->world * sizeof *all);
    return status;
}

/* ---- the run ---- */

/* text has room, and what does not fit is cut off. */
static void add(ech__divergence *d, const char *text)
{
    const size_t used = strlen(d->text);
    snprintf(d->text + used, sizeof d->text - used, "%s", text);
}

static void append_checkpoint(const ech__run *run, ech__divergence *d)
{
    char text[96];
    const int64_t last = run->checkpoints ? ech__checkpoint_last(run->checkpoints) : -1;
    if (!run->checkpoints)
        return;
    if (run->config.keep_going)
        snprintf(text, sizeof text, "; checkpoints are saved of finite parameters only");
    else if (last < 0)
        snprintf(text, sizeof text, "; no checkpoint is saved of it");
    else
        snprintf(text, sizeof text, "; the checkpoint of step %lld stays the last",
                 (long long)last);
    add(d, text);
}

static void begin(ech__run *run, const ech__cause *cause)
{
    run->diverged.step = run->done;
    snprintf(run->diverged.what, sizeof run->diverged.what, "%s", cause->what);
}

/* A run that goes on says so at once; else it is the last word of the run. */
static void end(ech__run *run)
{
    append_checkpoint(run, &run->diverged);
    if (run->config.keep_going && run->rank == 0)
        ech__log(run->ctx, "the run has diverged and continues: %s", run->diverged.text);
}

static void append_cause(const ech__run *run, const ech__cause *cause, int rank, ech__divergence *d)
{
    const long long before = (long long)run->done - 1;
    char text[320], where[32] = "";
    if (ech__trainer_all_ranks(run->trainer) && ech__trainer_all_ranks(run->trainer)->world > 1)
        snprintf(where, sizeof where, " on rank %d", rank);
    if (!cause->what[0])
        snprintf(text, sizeof text, "; which operator was the first is not known");
    else if (cause->is_parameter && run->done > run->first + 1)
        snprintf(text, sizeof text, "; %s has not been finite since the update of step %lld",
                 cause->what, before);
    else if (cause->is_parameter || cause->is_input)
        snprintf(text, sizeof text, "; %s was not finite before the step%s", cause->what, where);
    else
        snprintf(text, sizeof text, "; first not finite in the forward pass: %s%s", cause->what,
                 where);
    add(d, text);
}

ech_status ech__run_check_loss(ech__run *run, const ech__run_step *step)
{
    ech__divergence *d = &run->diverged;
    ech__cause cause = run->trainer->cause;
    int rank;
    if (d->step || isfinite(step->result.loss))
        return ECH_OK;
    ECH_TRY(first_cause(run, &cause, &rank));
    begin(run, &cause);
    snprintf(d->text, sizeof d->text, "the loss is %g at step %lld", step->result.loss,
             (long long)run->done);
    append_cause(run, &cause, rank, d);
    end(run);
    return ECH_OK;
}

ech_status ech__run_check_params(ech__run *run)
{
    ech__divergence *d = &run->diverged;
    const ech__value *found;
    ech__cause cause = {.what = ""};
    int rank;
    ECH_TRY(ech__trainer_nonfinite(run->trainer, &found));
    if (found)
        snprintf(cause.what, sizeof cause.what, "%s '%.96s'", ech__value_kind_name(found->kind),
                 found->name);
    ECH_TRY(first_cause(run, &cause, &rank));
    run->sound = !cause.what[0];
    if (run->sound || d->step)
        return ECH_OK;
    begin(run, &cause);
    snprintf(d->text, sizeof d->text, "%s is not finite after the update of step %lld", cause.what,
             (long long)run->done);
    end(run);
    return ECH_OK;
}

bool ech__run_stops(const ech__run *run)
{
    return run->diverged.step && !run->config.keep_going;
}
