/* Steps of a trainer: the variants of its plan, micro-steps, loss scaling and clipping, and what a
 * step reports. */
#include "base/system/clock.h"
#include "base/format.h"
#include "train/step/divergence.h"
#include "train/step/params.h"
#include "train/strategy/strategy.h"

#include <math.h>
#include <stdio.h>

/* ---- variants ---- */

ech_status ech__trainer_variant(ech_trainer *trainer, int64_t batch, const ech__micro *micro,
                                const ech__variant **out)
{
    const bool training = micro != NULL;
    const int role = training ? ech__role_of(trainer->tree, micro->index, micro->count) : 0;
    const int micros = training && trainer->ops->micro_batches
                           ? trainer->ops->micro_batches(trainer, batch, micro->share)
                           : 0;
    for (int i = 0; i < trainer->nvariants; i++) {
        const ech__variant *v = &trainer->variants[i];
        if (v->batch == batch && v->training == training && v->role == role &&
            v->micros == micros) {
            *out = v;
            return ECH_OK;
        }
    }
    *out = NULL;
    if (trainer->nvariants == ECH__MAX_VARIANTS)
        return ech__fail(trainer->ctx, ECH_E_LIMIT,
                         "a trainer takes at most %d batch sizes and places in a step",
                         ECH__MAX_VARIANTS);
    ech__variant *v = &trainer->variants[trainer->nvariants];
    *v = (ech__variant){.batch = batch, .training = training, .role = role, .micros = micros};
    ECH_TRY(trainer->ops->variant(trainer, v));
    trainer->nvariants++;
    *out = v;
    return ECH_OK;
}

/* ---- steps that fail ---- */

/* A step that fails before anything was updated can be tried again; after that, parameters may be
 * those of two steps. */
static ech_status end_step(ech_trainer *trainer, ech_status status)
{
    if (status < 0 && !trainer->broken[0] && trainer->ops->updates(trainer) != trainer->updates)
        snprintf(trainer->broken, sizeof trainer->broken, "step %lld failed: %.340s",
                 (long long)trainer->steps_done + 1, trainer->ctx->error);
    return status;
}

ech_status ech__trainer_check(const ech_trainer *trainer)
{
    return trainer->broken[0]
               ? ech__fail(trainer->ctx, ECH_E_INVALID,
                           "the parameters may be those of two steps and cannot be used: %s",
                           trainer->broken)
               : ECH_OK;
}

/* ---- steps ---- */

ech_status ech__variant_scalar(const ech_trainer *trainer, const ech__variant *variant,
                               ech_value value, double *out)
{
    ECH_TRY(trainer->ops->scalar ? trainer->ops->scalar(trainer, variant, value, out)
                                 : ech__exec_scalar(variant->exec, value, out));
    *out = ech__unsigned_nan(*out);
    return ECH_OK;
}

static ech_status run_phases(ech_trainer *trainer, const ech__variant *variant, unsigned phases,
                             const ech__scalars *scalars)
{
    return trainer->ops->run ? trainer->ops->run(trainer, variant, phases, scalars, &trainer->times)
                             : ech__exec_run(variant->exec, phases, scalars, &trainer->times);
}

/* Not part of the step's time: in other steps the optimizer does it. */
static ech_status refresh(ech_trainer *trainer)
{
    if (trainer->stale)
        ECH_TRY(trainer->ops->refresh ? trainer->ops->refresh(trainer)
                                      : ech__exec_run(trainer->exec, ECH__PHASE_BIT(REFRESH),
                                                      &trainer->scalars, NULL));
    trainer->stale = false;
    return ECH_OK;
}

static int64_t now(const ech_trainer *trainer)
{
    return trainer->emulated ? trainer->clock.now_ns : ech__clock_wall();
}

/* ---- what ranks tell each other ---- */

/* Where a rank stands when its gradients are ready and it must wait: after all but the optimizer's
 * work. */
static int64_t waits_from(const ech__report *r)
{
    return r->start_ns + (int64_t)(1e9 * (r->time_s - r->optimizer_s));
}

/* The exchange of a rank on a virtual clock, once it is known when each bucket moves. worked_ns: by
 * the device itself, else links move them. Returns when the rank is done. */
static int64_t add_exchange(ech__report *report, ech__spans buckets, int64_t worked_ns)
{
    const int64_t from = waits_from(report), able = from + worked_ns;
    const int64_t done = buckets.count ? buckets.at[buckets.count - 1].end_ns : 0;
    const ech__span waiting = {able, done > able ? done : able}, before = {report->start_ns, from};
    if (worked_ns)
        buckets.count = 0; /* each waits for the others, who do the same work */
    const ech__account hidden =
        ech__account_for(before, (ech__spans){&before, 1}, buckets, (ech__spans){.count = 0});
    const ech__account account =
        ech__account_for(waiting, (ech__spans){.count = 0}, buckets, (ech__spans){&waiting, 1});
    report->exposed_s += ech__seconds(worked_ns + account.exposed_ns);
    report->wait_s += ech__seconds(account.wait_ns);
    report->hidden_s += ech__seconds(hidden.hidden_ns);
    return waiting.end_ns + (int64_t)(1e9 * report->optimizer_s);
}

/* On a virtual clock: when each bucket would have been exchanged, and so when the slowest rank
 * would have been done. All ranks come to the same. */
static ech_status emulate_exchange(ech_trainer *trainer)
{
    ech__reports *reports = &trainer->reports;
    const int world = trainer->comm->world, nbuckets = reports->nbuckets;
    const size_t each =
        (size_t)world * sizeof(int64_t) + sizeof(ech__coll_times) + sizeof(ech__span);
    const size_t bytes = (size_t)nbuckets * each;
    ech__coll_times *times = ech__new(trainer->ctx, bytes);
    if (!times)
        return ech__no_memory(trainer->ctx, "emulating %d ranks", world);
    ech__span *spans = (ech__span *)(times + nbuckets);
    int64_t *ready = (int64_t *)(spans + nbuckets), end = 0, worked;
    for (int i = 0; i < nbuckets * world; i++)
        ready[i] = ech__reports_bucket(reports, i % world, i / world)->ready_ns;
    ech__ranks_emulate(trainer->ranks, ready, times, &worked);
    for (int b = 0; b < nbuckets; b++)
        spans[b] = (ech__span){times[b].start_ns, times[b].done_ns};
    for (int r = 0; r < world; r++) {
        ech__report *report = ech__reports_change(reports, r);
        report->end_ns = add_exchange(report, (ech__spans){spans, (size_t)nbuckets}, worked);
        end = report->end_ns > end ? report->end_ns : end;
        for (int b = 0; b < nbuckets; b++)
            ech__reports_set_bucket(reports, r, b, times[b].start_ns, times[b].done_ns);
    }
    ech__delete(trainer->ctx, times, bytes);
    ech__reports_end(reports, end);
    trainer->clock.now_ns = end; /* all begin the next step together */
    return ECH_OK;
}

/* Tells the other ranks, and adds up what they tell. Ranks wait here for the slowest instead of at
 * the start of the next exchange. */
static ech_status exchange_reports(ech_trainer *trainer, ech_step *step)
{
    ech__report *mine = &trainer->report;
    mine->sync_s = ech__seconds(trainer->ranks->sync_ns);
    mine->buffers_s = ech__seconds(trainer->ranks->buffers_ns);
    mine->arrived_ns = trainer->ranks->clock ? 0 : trainer->ranks->arrived_ns;
    mine->end_ns = now(trainer);
    ECH_TRY(ech__reports_exchange(&trainer->reports, mine));
    step->loss = 0;
    for (int rank = 0; rank < trainer->comm->world; rank++)
        step->loss += ech__reports_of(&trainer->reports, rank)->loss;
    step->loss = ech__unsigned_nan(step->loss); /* infinities of opposite sign */
    if (trainer->emulated) {
        ECH_TRY(emulate_exchange(trainer));
    } else {
        ech__reports_split_buffers(&trainer->reports);
        ech__reports_split_buckets(&trainer->reports);
        ech__reports_end(&trainer->reports, ech__clock_wall() + trainer->comm->clock_offset_ns);
    }
    const ech__report *own = ech__reports_of(&trainer->reports, trainer->comm->rank);
    step->time_s = own->time_s;
    step->comm_exposed_s = own->exposed_s;
    step->wait_s = own->wait_s;
    step->comm_hidden_s = own->hidden_s;
    return ECH_OK;
}

static ech_status finish(ech_trainer *trainer, ech_step *out)
{
    ech__phase_times *times = &trainer->times;
    int64_t *ns = times->ns, inside = 0;
    if (trainer->ranks) { /* done in the exchange, but the optimizer's work */
        ns[ECH__PHASE_OPTIMIZER] += trainer->ranks->update_ns;
        if (trainer->emulated) /* where the exchange takes no time */
            trainer->time_ns += trainer->ranks->update_ns;
        else
            times->exposed_ns -= trainer->ranks->update_ns;
    }
    for (int phase = 0; phase < ECH__PHASE_COUNT; phase++)
        inside += ns[phase];
    ech_step step = {
        .loss = ech__unsigned_nan(trainer->report.loss),
        .time_s = ech__seconds(trainer->time_ns),
        .forward_s = ech__seconds(ns[ECH__PHASE_FORWARD]),
        .backward_s = ech__seconds(ns[ECH__PHASE_BACKWARD] + ns[ECH__PHASE_EXCHANGE]),
        .optimizer_s =
            ech__seconds(ns[ECH__PHASE_CHECK] + ns[ECH__PHASE_OPTIMIZER] + ns[ECH__PHASE_REFRESH]),
        .comm_exposed_s = ech__seconds(times->exposed_ns),
        .wait_s = ech__seconds(times->wait_ns),
        .other_s = ech__seconds(trainer->time_ns - inside - times->exposed_ns - times->wait_ns),
        .comm_hidden_s = ech__seconds(times->hidden_ns),
        .scale = trainer->grad_check.scale,
        .skipped = trainer->grad_check.skip,
        .grad_norm = ech__unsigned_nan(trainer->grad_check.norm),
        .grad_max = ech__unsigned_nan(trainer->grad_check.max)};
    ech__report *report = &trainer->report;
    report->time_s = step.time_s;
    report->forward_s = step.forward_s;
    report->backward_s = step.backward_s;
    report->optimizer_s = step.optimizer_s;
    report->exposed_s = step.comm_exposed_s;
    report->wait_s = step.wait_s;
    report->other_s = step.other_s;
    report->hidden_s = step.comm_hidden_s;
    if (trainer->ranks)
        ECH_TRY(exchange_reports(trainer, &step));
    trainer->scalars.step += !trainer->grad_check.skip; /* which adam corrects its means by */
    trainer->micro = 0;
    trainer->steps_done++;
    trainer->unsettled = trainer->scaler.on;
    if (out)
        *out = step;
    return ech__turns_step(trainer->turns, step.time_s);
}

static void begin(ech_trainer *trainer)
{
    trainer->times = (ech__phase_times){.exposed_ns = 0};
    trainer->time_ns = 0;
    trainer->report = (ech__report){.start_ns = now(trainer)};
    trainer->grad_check = (ech__grad_check){.scale = trainer->scaler.scale};
    trainer->cause = (ech__cause){.what = ""};
    trainer->updates = trainer->ops->updates(trainer);
    if (trainer->ranks)
        trainer->ranks->sync_ns = trainer->ranks->buffers_ns = trainer->ranks->arrived_ns =
            trainer->ranks->update_ns = 0;
}

/* A forward and a backward pass, and what follows them in the last micro-step of a step. */
static ech_status run_micro_step(ech_trainer *trainer, const ech__variant *variant,
                                 const ech__micro *micro, unsigned more)
{
    const unsigned compute = ECH__PHASE_BIT(FORWARD) | ECH__PHASE_BIT(BACKWARD);
    ech__scalars scalars = trainer->scalars;
    ECH_TRY(refresh(trainer));
    if (micro->index == 0)
        begin(trainer);
    scalars.loss_scale = trainer->scaler.scale * micro->weight;
    scalars.share = micro->share;
    const int64_t start = now(trainer);
    trainer->clock.now_ns += trainer->loading_ns;
    trainer->loading_ns = 0;
    ECH_TRY(run_phases(trainer, variant, compute | more, &scalars));
    trainer->time_ns += now(trainer) - start;
    trainer->micro = micro->index + 1;
    double loss, correct;
    ECH_TRY(ech__variant_scalar(trainer, variant, trainer->graph->loss, &loss));
    trainer->report.loss += micro->weight * loss;
    if (!isfinite(loss) && !trainer->cause.what[0])
        trainer->cause = ech__cause_of(trainer, variant);
    if (micro->weight > 0)
        trainer->report.samples += (double)variant->batch;
    if (micro->weight > 0 && trainer->counted >= 0) {
        ECH_TRY(ech__variant_scalar(trainer, variant, trainer->counted, &correct));
        trainer->report.correct += correct;
    }
    return ECH_OK;
}

static bool is_last(const ech__micro *micro)
{
    return micro->index + 1 == micro->count;
}

ech_status ech__variant_gradients(ech_trainer *trainer, const ech__variant *variant,
                                  const ech__micro *micro)
{
    const unsigned more = ECH__PHASE_BIT(EXCHANGE) | ECH__PHASE_BIT(CHECK);
    ECH_TRY(ech__trainer_check(trainer));
    ECH_TRY(end_step(trainer, run_micro_step(trainer, variant, micro, is_last(micro) ? more : 0)));
    if (is_last(micro))
        trainer->ready = variant;
    return ECH_OK;
}

/* A step without checks of its gradients is one run. */
ech_status ech__variant_step(ech_trainer *trainer, const ech__variant *variant,
                             const ech__micro *micro, ech_step *out)
{
    const unsigned all = ECH__PHASE_BIT(EXCHANGE) | ECH__PHASE_BIT(CHECK) |
                         ECH__PHASE_BIT(OPTIMIZER) | ECH__PHASE_BIT(REFRESH);
    ECH_TRY(ech__trainer_check(trainer));
    if (!trainer->checks && is_last(micro)) {
        ECH_TRY(end_step(trainer, run_micro_step(trainer, variant, micro, all)));
        return end_step(trainer, finish(trainer, out));
    }
    ECH_TRY(ech__variant_gradients(trainer, variant, micro));
    if (!is_last(micro))
        return ECH_OK;
    ECH_TRY(ech_trainer_apply(trainer, out));
    return ech_trainer_update_scale(trainer);
}

/* ---- the end of a step in parts ---- */

static ech_status add_stats(const ech__variant *variant, double sums[ECH__GRAD_STATS])
{
    double stats[ECH__GRAD_STATS];
    for (size_t n = 0; n < variant->plan->ninstrs; n++) {
        const ech__node *node = variant->plan->instrs[n].node;
        if (node->op != ECH__OP_GRAD_STATS)
            continue;
        ECH_TRY(ech__exec_read(variant->exec, node->out[0], 0, ECH__GRAD_STATS, stats));
        sums[ECH__GRAD_SQUARES] += stats[ECH__GRAD_SQUARES];
        sums[ECH__GRAD_LARGEST] = fmax(sums[ECH__GRAD_LARGEST], stats[ECH__GRAD_LARGEST]);
        sums[ECH__GRAD_BROKEN] += stats[ECH__GRAD_BROKEN];
    }
    return ECH_OK;
}

/* Every rank has the same sums of gradients, to the bit, since a sum over ranks is made once and
 * handed to all. What is not finite on one rank is not finite in the sum, so all ranks find it and
 * decide alike, without a message. */
static ech_status check_gradients(ech_trainer *trainer)
{
    double sums[ECH__GRAD_STATS] = {0};
    ech__grad_check *grad_check = &trainer->grad_check;
    if (trainer->checks)
        ECH_TRY(trainer->ops->grad_stats ? trainer->ops->grad_stats(trainer, sums)
                                         : add_stats(trainer->ready, sums));
    *grad_check = (ech__grad_check){.scale = trainer->scaler.scale};
    grad_check->norm = sqrt(sums[ECH__GRAD_SQUARES]) / grad_check->scale;
    grad_check->max = sums[ECH__GRAD_LARGEST] / grad_check->scale;
    grad_check->broken = sums[ECH__GRAD_BROKEN] > 0;
    grad_check->skip = grad_check->broken && trainer->scaler.on;
    return ECH_OK;
}

/* As torch.nn.utils.clip_grad_norm_, on unscaled gradients. */
static double clip_factor(const ech_trainer *trainer, double norm)
{
    const double factor = trainer->clip_norm > 0 ? trainer->clip_norm / (norm + 1e-6) : 1;
    return factor < 1 ? factor : 1;
}

ech_status ech_trainer_apply(ech_trainer *trainer, ech_step *out)
{
    if (!trainer->ready)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "a step has %d micro-steps, and ech_trainer_apply comes after that many "
                         "calls of ech_trainer_accumulate; %d came",
                         trainer->micro_steps, trainer->micro);
    ECH_TRY(ech__trainer_check(trainer));
    const unsigned update = ECH__PHASE_BIT(OPTIMIZER) | ECH__PHASE_BIT(REFRESH);
    ech__scalars scalars = trainer->scalars;
    ECH_TRY(end_step(trainer, check_gradients(trainer)));
    scalars.grad_factor =
        clip_factor(trainer, trainer->grad_check.norm) / trainer->grad_check.scale;
    const int64_t start = now(trainer);
    if (!trainer->grad_check.skip)
        ECH_TRY(end_step(trainer, run_phases(trainer, trainer->ready, update, &scalars)));
    trainer->time_ns += now(trainer) - start;
    trainer->ready = NULL;
    return end_step(trainer, finish(trainer, out));
}

ech_status ech_trainer_update_scale(ech_trainer *trainer)
{
    if (!trainer->scaler.on)
        return ECH_OK;
    if (!trainer->unsettled)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "the loss scale follows from a step: ech_trainer_update_scale comes once "
                         "after each ech_trainer_apply");
    trainer->unsettled = false;
    return ech__scaler_update(trainer->ctx, &trainer->scaler, trainer->grad_check.broken);
}

/* ---- evaluation ---- */

ech_status ech__variant_evaluate(ech_trainer *trainer, const ech__variant *variant)
{
    ECH_TRY(ech__trainer_check(trainer));
    ECH_TRY(refresh(trainer));
    return trainer->ops->evaluate
               ? trainer->ops->evaluate(trainer, variant)
               : ech__exec_run(variant->exec, ECH__PHASE_BIT(FORWARD), &trainer->scalars, NULL);
}

/* ---- a program's own steps ---- */

/* The next micro-step of a program that writes its inputs into the trainer's own plan. */
static ech_status next_micro_step(ech_trainer *trainer, ech__micro *micro,
                                  const ech__variant **variant)
{
    const int world = ech__trainer_world(trainer), count = trainer->micro_steps;
    *micro = (ech__micro){.index = trainer->micro,
                          .count = count,
                          .weight = 1.0 / ((double)count * world),
                          .share = 1.0 / world};
    if (trainer->ready)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "all %d micro-steps of the step came: ech_trainer_apply is next", count);
    if (trainer->unsettled)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "the loss scale is still that of the last step: ech_trainer_update_scale "
                         "comes after ech_trainer_apply");
    ECH_TRY(ech__trainer_variant(trainer, trainer->variants[0].batch, micro, variant));
    return *variant != &trainer->variants[0]
               ? ech__variant_take_inputs(trainer, &trainer->variants[0], *variant)
               : ECH_OK;
}

ech_status ech_trainer_step(ech_trainer *trainer, ech_step *out)
{
    ech__micro micro;
    const ech__variant *variant;
    const int count = trainer->micro_steps;
    if (trainer->micro + 1 < count)
        return ech__fail(
            trainer->ctx, ECH_E_INVALID,
            "a step has %d micro-steps: %d calls of ech_trainer_accumulate and then one "
            "of ech_trainer_step; %d came",
            count, count - 1, trainer->micro);
    ECH_TRY(next_micro_step(trainer, &micro, &variant));
    return ech__variant_step(trainer, variant, &micro, out);
}

ech_status ech_trainer_accumulate(ech_trainer *trainer)
{
    ech__micro micro;
    const ech__variant *variant;
    if (trainer->ops->whole_steps)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%s does all of a step at once: ech_trainer_step",
                         ech__strategy_row_of(trainer->by.strategy)->title);
    ECH_TRY(next_micro_step(trainer, &micro, &variant));
    return ech__variant_gradients(trainer, variant, &micro);
}

ech_status ech__trainer_check_scalar(const ech_trainer *trainer, ech_value value)
{
    const ech_graph *model = trainer->model;
    if (value < 0 || (size_t)value >= model->nvalues ||
        model->values[value].type.shape.ndims != 0 || !trainer->graph->values[value].kept)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "value %d is neither the loss nor a count of correct samples", (int)value);
    return ECH_OK;
}

ech_status ech_trainer_evaluate(ech_trainer *trainer, ech_value value, double *out)
{
    const ech__variant *training = &trainer->variants[0], *variant;
    ECH_TRY(ech__trainer_check_scalar(trainer, value));
    ECH_TRY(ech__trainer_variant(trainer, training->batch, NULL, &variant));
    ECH_TRY(ech__variant_take_inputs(trainer, training, variant));
    ECH_TRY(ech__variant_evaluate(trainer, variant));
    return ech__variant_scalar(trainer, variant, value, out);
}
