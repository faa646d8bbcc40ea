#include "train/record/pipe_totals.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "train/strategy/pipe.h"

enum { FORWARD, BACKWARD, UPDATE, COPY, WAIT, EXCHANGE, BUSY, COLUMNS };
enum { BUBBLE, STEP, BEHIND };

static size_t width_of(const ech__pipe_totals *t)
{
    return (size_t)t->devices * COLUMNS + BEHIND;
}

static size_t bytes_of(const ech__pipe_totals *t)
{
    return (size_t)t->steps * width_of(t) * sizeof *t->samples;
}

static void find_moves(ech__pipe_totals *t, const ech_trainer *trainer)
{
    const ech__pass *full = trainer->variants[0].own;
    for (int i = 0; i < t->nmoves; i++) {
        ech__move_total *total = &t->moves[i];
        total->bytes = total->move.bytes * full->batch * trainer->micro_steps;
        t->moved_bytes += total->bytes;
        t->forward_moves += !total->move.backward;
    }
    t->input_bytes =
        ech__pipe_input_bytes(ech__trainer_pipe(trainer), &t->input_moves) * trainer->micro_steps;
}

ech_status ech__pipe_totals_init(ech__pipe_totals *t, ech_trainer *trainer, int64_t steps)
{
    *t = (ech__pipe_totals){.ctx = trainer->ctx, .steps = steps};
    t->devices = ech__pipe_devices(ech__trainer_pipe(trainer));
    t->micros = ech__pipe_micros(ech__trainer_pipe(trainer));
    t->ideal = ech__pipe_bubble(t->devices, t->micros);
    t->nmoves = ech__moves_count(trainer->graph);
    t->samples = ech__new(t->ctx, bytes_of(t));
    t->moves = ech__new(t->ctx, (size_t)(t->nmoves + 1) * sizeof *t->moves);
    t->nlayers = ech__trainer_layers(trainer)->count;
    t->layer_s = ech__new(t->ctx, (size_t)t->nlayers * sizeof *t->layer_s);
    ech__move *found = ech__new(t->ctx, (size_t)(t->nmoves + 1) * sizeof *found);
    const bool ok = found && t->moves && t->samples && t->layer_s;
    if (ok) {
        ech__moves_of(trainer->graph, found);
        for (int i = 0; i < t->nmoves; i++)
            t->moves[i].move = found[i];
        find_moves(t, trainer);
    }
    ech__delete(t->ctx, found, (size_t)(t->nmoves + 1) * sizeof *found);
    return ok ? ECH_OK : ech__no_memory(t->ctx, "the records of %lld steps", (long long)steps);
}

void ech__pipe_totals_fini(ech__pipe_totals *t)
{
    if (!t->devices)
        return;
    ech__delete(t->ctx, t->layer_s, (size_t)t->nlayers * sizeof *t->layer_s);
    ech__delete(t->ctx, t->moves, (size_t)(t->nmoves + 1) * sizeof *t->moves);
    ech__delete(t->ctx, t->samples, bytes_of(t));
    t->devices = 0;
}

static void add_stage(const ech__stage *stage, double *row)
{
    const ech__stage_work *work = &stage->work;
    row[FORWARD] = ech__seconds(work->forward_ns);
    row[BACKWARD] = ech__seconds(work->backward_ns);
    row[UPDATE] = ech__seconds(work->update_ns);
    row[COPY] = ech__seconds(work->copy_ns);
    row[WAIT] = ech__seconds(work->wait_ns);
    row[EXCHANGE] = ech__seconds(work->exchange_ns);
    row[BUSY] = ech__stage_busy_s(stage);
}

void ech__pipe_totals_add(ech__pipe_totals *t, const ech_trainer *trainer, double step_s)
{
    if (t->kept == t->steps)
        return;
    double *row = t->samples + (size_t)t->kept++ * width_of(t);
    for (int d = 0; d < t->devices; d++)
        add_stage(ech__pipe_stage(ech__trainer_pipe(trainer), d), row + (ptrdiff_t)d * COLUMNS);
    row += (ptrdiff_t)t->devices * COLUMNS;
    row[BUBBLE] = ech__pipe_measured_bubble(ech__trainer_pipe(trainer));
    row[STEP] = step_s;
    const ech__pass *pass = ech__pipe_last(ech__trainer_pipe(trainer));
    for (int i = 0; i < t->nmoves && i < pass->links; i++) {
        int64_t sum = 0;
        for (int m = 0; m < pass->micros; m++) {
            const ech__message *message = &pass->messages[i * pass->micros + m];
            sum += message->taken_ns - message->fetch_ns;
        }
        t->moves[i].copy_s = ech__seconds(sum / pass->micros);
    }
}

/* Median of a column, or of its share in the step. */
static double median_of(const ech__pipe_totals *t, double *samples, size_t column, bool share)
{
    const size_t width = width_of(t);
    for (int64_t i = 0; i < t->kept; i++) {
        const double *row = t->samples + (size_t)i * width;
        samples[i] = share ? row[column] / row[width - BEHIND + STEP] : row[column];
    }
    return ech__stats_of(samples, (size_t)t->kept).median;
}

static ech__stage_total total_of(const ech__pipe_totals *t, const ech_trainer *trainer, int device,
                                 double *samples)
{
    const size_t first = (size_t)device * COLUMNS;
    const ech__stage *stage = ech__pipe_stage(ech__trainer_pipe(trainer), device);
    return (ech__stage_total){.forward_s = median_of(t, samples, first + FORWARD, false),
                              .backward_s = median_of(t, samples, first + BACKWARD, false),
                              .update_s = median_of(t, samples, first + UPDATE, false),
                              .copy_s = median_of(t, samples, first + COPY, false),
                              .wait_s = median_of(t, samples, first + WAIT, false),
                              .exchange_s = median_of(t, samples, first + EXCHANGE, false),
                              .busy_s = median_of(t, samples, first + BUSY, false),
                              .busy_share = median_of(t, samples, first + BUSY, true),
                              .bytes_in = stage->work.bytes_in,
                              .bytes_out = stage->work.bytes_out,
                              .memory = stage->work.peak,
                              .planned = ech__pipe_planned(ech__trainer_pipe(trainer), device)};
}

/* A layer and the receiving end of a move are in one process each: the sums are what that one
 * knows. */
static ech_status share(ech__pipe_totals *t, ech__comm *comm)
{
    const int count = t->nlayers + t->nmoves;
    double *sums = ech__new(t->ctx, (size_t)count * sizeof *sums);
    if (!sums)
        return ech__no_memory(t->ctx, "the totals of %d layers", t->nlayers);
    for (int i = 0; i < t->nlayers; i++)
        sums[i] = t->layer_s[i];
    for (int i = 0; i < t->nmoves; i++)
        sums[t->nlayers + i] = t->moves[i].copy_s;
    const ech_status status = ech__comm_run(
        comm,
        &(ech__coll){
            .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F64, .count = count, .src = sums, .dst = sums});
    for (int i = 0; status == ECH_OK && i < t->nlayers; i++)
        t->layer_s[i] = sums[i];
    for (int i = 0; status == ECH_OK && i < t->nmoves; i++)
        t->moves[i].copy_s = sums[t->nlayers + i];
    ech__delete(t->ctx, sums, (size_t)count * sizeof *sums);
    return status;
}

ech_status ech__pipe_totals_sum_up(ech__pipe_totals *t, const ech_trainer *trainer)
{
    ech__comm *group = ech__trainer_model_group(trainer);
    if (group)
        ECH_TRY(share(t, group));
    if (!t->kept)
        return ECH_OK;
    const size_t bytes = (size_t)t->kept * sizeof(double);
    double *samples = ech__new(t->ctx, bytes);
    if (!samples)
        return ech__no_memory(t->ctx, "the totals of %lld steps", (long long)t->kept);
    for (int d = 0; d < t->devices; d++)
        t->stage[d] = total_of(t, trainer, d, samples);
    t->bubble = median_of(t, samples, (size_t)t->devices * COLUMNS + BUBBLE, false);
    ech__delete(t->ctx, samples, bytes);
    return ECH_OK;
}
