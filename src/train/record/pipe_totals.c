/* Totals of layers on several devices. */
#include "base/stats.h"
#include "base/system/clock.h"
#include "train/record/totals.h"
#include "train/record/trace.h"
#include "train/strategy/pipe.h"

#include <stdio.h>

enum { FORWARD, BACKWARD, UPDATE, COPY, WAIT, EXCHANGE, BUSY, COLUMNS };
enum { BUBBLE, STEP, BEHIND };

const ech__pipe_totals *ech__run_pipe_totals(const ech__run *run)
{
    return ech__totals_of(run->trainer) == &ech__totals_pipe ? run->totals : NULL;
}

static size_t width_of(const ech__pipe_totals *t)
{
    return (size_t)t->devices * COLUMNS + BEHIND;
}

/* ---- steps ---- */

static ech_status find_moves(ech__run *run, ech__pipe_totals *t)
{
    const ech_trainer *trainer = run->trainer;
    const ech__pass *full = trainer->variants[0].own;
    ech__move *found = ech__arena_array(&run->arena, (size_t)t->nmoves, sizeof *found);
    if (!found)
        return ECH_E_NOMEM;
    ech__moves_of(trainer->graph, found);
    for (int i = 0; i < t->nmoves; i++) {
        const int64_t bytes = found[i].bytes * full->batch * trainer->micro_steps;
        t->moves[i] = (ech__move_total){.move = found[i], .bytes = bytes};
        t->moved_bytes += bytes;
        t->forward_moves += !found[i].backward;
    }
    t->input_bytes =
        ech__pipe_input_bytes(ech__trainer_pipe(trainer), &t->input_moves) * trainer->micro_steps;
    return ECH_OK;
}

static ech_status init(ech__run *run)
{
    const ech__pipe *pipe = ech__trainer_pipe(run->trainer);
    const size_t steps = (size_t)run->op_steps;
    ech__pipe_totals *t = run->totals = ech__arena_alloc(&run->arena, sizeof *t);
    ech_status status = ECH_E_NOMEM;
    if (t) {
        t->steps = run->op_steps;
        t->devices = ech__pipe_devices(pipe);
        t->micros = ech__pipe_micros(pipe);
        t->ideal = ech__pipe_bubble(t->devices, t->micros);
        t->nmoves = ech__moves_count(run->trainer->graph);
        t->nlayers = ech__trainer_layers(run->trainer)->count;
        t->samples = ech__arena_array(&run->arena, steps, width_of(t) * sizeof(double));
        t->column = ech__arena_array(&run->arena, steps, sizeof(double));
        t->moves = ech__arena_array(&run->arena, (size_t)t->nmoves, sizeof *t->moves);
        t->layer_s =
            ech__arena_array(&run->arena, (size_t)t->nlayers + (size_t)t->nmoves, sizeof(double));
        if (t->samples && t->column && t->moves && t->layer_s)
            status = find_moves(run, t);
    }
    return status == ECH_OK
               ? ECH_OK
               : ech__no_memory(run->ctx, "the records of %lld steps", (long long)run->op_steps);
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

static void add(ech__run *run, double step_s)
{
    ech__pipe_totals *t = run->totals;
    const ech__pipe *pipe = ech__trainer_pipe(run->trainer);
    if (t->kept == t->steps)
        return;
    double *row = t->samples + (size_t)t->kept++ * width_of(t);
    for (int d = 0; d < t->devices; d++)
        add_stage(ech__pipe_stage(pipe, d), row + (ptrdiff_t)d * COLUMNS);
    row += (ptrdiff_t)t->devices * COLUMNS;
    row[BUBBLE] = ech__pipe_measured_bubble(pipe);
    row[STEP] = step_s;
    const ech__pass *pass = ech__pipe_last(pipe);
    for (int i = 0; i < t->nmoves && i < pass->links; i++) {
        int64_t sum = 0;
        for (int m = 0; m < pass->micros; m++) {
            const ech__message *message = &pass->messages[i * pass->micros + m];
            sum += message->taken_ns - message->fetch_ns;
        }
        t->moves[i].copy_s = ech__seconds(sum / pass->micros);
    }
}

/* ---- their sums ---- */

/* Median of a column, or of its share in the step. */
static double median_of(const ech__pipe_totals *t, size_t column, bool share)
{
    const size_t width = width_of(t);
    for (int64_t i = 0; i < t->kept; i++) {
        const double *row = t->samples + (size_t)i * width;
        t->column[i] = share ? row[column] / row[width - BEHIND + STEP] : row[column];
    }
    return ech__stats_of(t->column, (size_t)t->kept).median;
}

static ech__stage_total sum_up_stage(const ech__pipe_totals *t, const ech__pipe *pipe, int device)
{
    const size_t first = (size_t)device * COLUMNS;
    const ech__stage *stage = ech__pipe_stage(pipe, device);
    return (ech__stage_total){.forward_s = median_of(t, first + FORWARD, false),
                              .backward_s = median_of(t, first + BACKWARD, false),
                              .update_s = median_of(t, first + UPDATE, false),
                              .copy_s = median_of(t, first + COPY, false),
                              .wait_s = median_of(t, first + WAIT, false),
                              .exchange_s = median_of(t, first + EXCHANGE, false),
                              .busy_s = median_of(t, first + BUSY, false),
                              .busy_share = median_of(t, first + BUSY, true),
                              .bytes_in = stage->work.bytes_in,
                              .bytes_out = stage->work.bytes_out,
                              .memory = stage->work.peak,
                              .planned = ech__pipe_planned(pipe, device)};
}

/* Times of layers, from those of the operators. */
static void sum_up_layers(const ech__run *run, ech__pipe_totals *totals)
{
    const ech_trainer *t = run->trainer;
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    for (size_t n = 0; n < run->nops; n++) {
        const ech__node *node = run->ops[n].instr->node;
        const bool often = node->phase == ECH__PHASE_FORWARD || node->phase == ECH__PHASE_BACKWARD;
        const int layer =
            ech__op_info(node->op)->exchange ? -1 : ech__layer_of(t->graph, layers, node);
        if (layer >= 0)
            totals->layer_s[layer] +=
                run->ops[n].median_s * (often ? totals->micros * t->micro_steps : 1);
    }
}

/* A layer and the receiving end of a move are in one process each: the sums are what that one
 * knows. */
static ech_status share(ech__pipe_totals *t, ech__comm *comm)
{
    const ech__coll sum = {.op = ECH__COLL_ALLREDUCE,
                           .dtype = ECH_F64,
                           .count = t->nlayers + t->nmoves,
                           .src = t->layer_s,
                           .dst = t->layer_s};
    double *copy_s = t->layer_s + t->nlayers;
    for (int i = 0; i < t->nmoves; i++)
        copy_s[i] = t->moves[i].copy_s;
    ECH_TRY(ech__comm_run(comm, &sum));
    for (int i = 0; i < t->nmoves; i++)
        t->moves[i].copy_s = copy_s[i];
    return ECH_OK;
}

static ech_status sum_up(ech__run *run)
{
    ech__pipe_totals *t = run->totals;
    ech__comm *group = ech__trainer_model_group(run->trainer);
    sum_up_layers(run, t);
    if (group)
        ECH_TRY(share(t, group));
    for (int d = 0; t->kept && d < t->devices; d++)
        t->stage[d] = sum_up_stage(t, ech__trainer_pipe(run->trainer), d);
    if (t->kept)
        t->bubble = median_of(t, (size_t)t->devices * COLUMNS + BUBBLE, false);
    return ECH_OK;
}

/* ---- the record ---- */

static ech_json *placement_json(const ech__run *run)
{
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    ech_json *array = ech__json_array();
    for (int i = 0; i < layers->count; i++) {
        const ech__layer *layer = &layers->at[i];
        ech__json_append(
            &array,
            ECH__JSON(ech__string("layer", layer->name), ech__int("device", layer->device),
                      ech__int("parameters", layer->params), ech__int("bytes", layer->bytes),
                      ech__real("time_s", ech__run_pipe_totals(run)->layer_s[i])));
    }
    return array;
}

static ech_json *move_json(const ech__move_total *m)
{
    return ECH__JSON(ech__int("from", m->move.from), ech__int("to", m->move.to),
                     ech__string("phase", m->move.backward ? "backward" : "forward"),
                     ech__string("after_op", ech__op_name(m->move.op)),
                     ech__string("after", m->move.after), ech__int("bytes", m->bytes),
                     ech__real("time_s", m->copy_s));
}

static ech_json *transfers_json(const ech__run *run)
{
    const ech__pipe_totals *t = ech__run_pipe_totals(run);
    ech_json *json = ech__json_object(), *moves = ech__json_array();
    ECH__JSON_SET(&json, ech__int("asked", t->nlayers), ech__int("forward", t->forward_moves),
                  ech__int("backward", t->nmoves - t->forward_moves),
                  ech__int("inputs", t->input_moves), ech__int("micro_batches", t->micros),
                  ech__int("bytes", t->moved_bytes), ech__int("input_bytes", t->input_bytes));
    for (int i = 0; i < t->nmoves; i++)
        ech__json_append(&moves, move_json(&t->moves[i]));
    ech__json_set(&json, "moves", moves);
    return json;
}

static ech_json *stage_json(const ech__run *run, int device)
{
    const ech__stage_total *s = &ech__run_pipe_totals(run)->stage[device];
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    int64_t count = 0, params = 0;
    for (int i = 0; i < layers->count; i++) {
        count += layers->at[i].device == device;
        params += layers->at[i].device == device ? layers->at[i].params : 0;
    }
    return ECH__JSON(ech__int("layers", count), ech__int("parameters", params),
                     ech__real("forward_s", s->forward_s), ech__real("backward_s", s->backward_s),
                     ech__real("optimizer_s", s->update_s), ech__real("copy_s", s->copy_s),
                     ech__real("wait_s", s->wait_s), ech__real("exchange_s", s->exchange_s),
                     ech__real("busy_s", s->busy_s), ech__int("bytes_in", s->bytes_in),
                     ech__int("bytes_out", s->bytes_out));
}

static void set_json(const ech__run *run, ech_json **summary)
{
    const ech__pipe_totals *t = ech__run_pipe_totals(run);
    ech_json *stages = ech__json_array(), *bubble = ech__json_object();
    for (int d = 0; d < t->devices; d++)
        ech__json_append(&stages, stage_json(run, d));
    ECH__JSON_SET(&bubble, ech__real("measured", t->bubble), ech__real("ideal", t->ideal));
    ECH__JSON_SET(summary, ech__member("placement", placement_json(run)),
                  ech__member("transfers", transfers_json(run)), ech__member("stages", stages),
                  ech__member("bubble", bubble));
}

/* ---- trace ---- */

/* A transfer: waiting for it, fetching it, and an arrow from where it was sent. */
static void trace_move(ech__trace *t, const ech__message *message, const char *name,
                       int64_t start_ns)
{
    char text[128];
    ech_json *args = ech__json_object();
    const int64_t from = start_ns > message->fetch_ns ? start_ns : message->fetch_ns;
    /* On the virtual clock it may have arrived before the device came to it. */
    const int64_t until = message->taken_ns > from ? message->taken_ns : from;
    snprintf(text, sizeof text, "wait for device %d", message->from);
    if (from > start_ns)
        ech__trace_bar(t, text, "wait", message->to, (ech__span){start_ns, from}, NULL);
    ech__json_set_int(&args, "bytes", message->bytes);
    snprintf(text, sizeof text, "transfer %s, device %d to %d", name, message->from, message->to);
    ech__trace_bar(t, text, "transfer", message->to, (ech__span){from, until}, args);
    if (message->sent_ns)
        ech__trace_arrow(t, "transfer", message->from, message->sent_ns, message->to, until);
}

/* One micro-batch on one device: operators, and its ends of transfers. */
static void trace_micro(ech__trace *t, const ech_trainer *trainer, const ech__pass *pass,
                        int device, int micro)
{
    const ech__plan *plan = pass->plans[device * pass->micros + micro];
    if (!plan) /* another process has it */
        return;
    const ech__span *spans = ech__exec_spans(pass->execs[device * pass->micros + micro]);
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        if (ech__plan_is_idle(plan, &plan->instrs[n]) ||
            spans[n].start_ns < trainer->report.start_ns)
            continue;
        if (node->op == ECH__OP_RECV) {
            const int at = (int)node->attrs.link * pass->micros + micro;
            trace_move(t, &pass->messages[at], node->name, spans[n].start_ns);
            continue;
        }
        char name[128];
        ech_json *args = ECH__JSON(ech__string("kernel", plan->instrs[n].choice.name),
                                   ech__int("micro_batch", micro));
        snprintf(name, sizeof name, "%s %s", ech__op_name(node->op), node->name);
        ech__trace_bar(t, name, ech__phase_name(node->phase), device, spans[n], args);
    }
}

static void trace(ech__trace *t, const ech_trainer *trainer, const ech__variant *variant)
{
    const ech__pipe *pipe = ech__trainer_pipe(trainer);
    const ech__pass *pass = ech__pipe_last(pipe);
    (void)variant;
    for (int d = 0; d < ech__pipe_devices(pipe); d++) {
        for (int m = 0; m < pass->micros; m++)
            trace_micro(t, trainer, pass, d, m);
    }
}

/* ---- the row ---- */

/* All groups have the same figures. */
static const ech__stage_total *total_of(const ech__run *run, int device)
{
    const ech__pipe_totals *t = ech__run_pipe_totals(run);
    return &t->stage[device % t->devices];
}

static int64_t memory(const ech__run *run, int device, bool planned)
{
    return planned ? total_of(run, device)->planned : total_of(run, device)->memory;
}

static double busy(const ech__run *run, int device)
{
    return total_of(run, device)->busy_share;
}

static int64_t bytes(const ech__run *run)
{
    const ech__ddp_bytes *b = &run->traffic.bytes;
    return ech__run_pipe_totals(run)->moved_bytes + b->gradients + b->buffers;
}

const ech__totals_row ech__totals_pipe = {
    .init = init,
    .add = add,
    .sum_up = sum_up,
    .memory = memory,
    .busy = busy,
    .bytes = bytes,
    .json = set_json,
    .trace = trace,
};
