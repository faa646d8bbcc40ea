/* The part of a record that is about layers on several devices. */
#include "train/record/totals.h"
#include "train/record/trace_events.h"
#include "train/strategy/pipe.h"

#include <stdio.h>

/* Times of layers, from those of the operators. */
static void sum_up_layers(ech__run *run)
{
    const ech_trainer *t = run->trainer;
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    for (size_t n = 0; n < run->nops; n++) {
        const ech__node *node = run->ops[n].instr->node;
        const bool often = node->phase == ECH__PHASE_FORWARD || node->phase == ECH__PHASE_BACKWARD;
        const int layer =
            ech__op_info(node->op)->exchange ? -1 : ech__layer_of(t->graph, layers, node);
        if (layer >= 0)
            run->pipe_totals.layer_s[layer] +=
                run->ops[n].median_s * (often ? run->pipe_totals.micros * t->micro_steps : 1);
    }
}

static ech_json *placement_json(const ech__run *run)
{
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    ech_json *array = ech__json_array();
    for (int i = 0; i < layers->count; i++) {
        const ech__layer *layer = &layers->at[i];
        ech_json *json = ech__json_object();
        ech__json_set_string(&json, "layer", layer->name);
        ech__json_set_int(&json, "device", layer->device);
        ech__json_set_int(&json, "parameters", layer->params);
        ech__json_set_int(&json, "bytes", layer->bytes);
        ech__json_set_real(&json, "time_s", run->pipe_totals.layer_s[i]);
        ech__json_append(&array, json);
    }
    return array;
}

static ech_json *move_json(const ech__move_total *m)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "from", m->move.from);
    ech__json_set_int(&json, "to", m->move.to);
    ech__json_set_string(&json, "phase", m->move.backward ? "backward" : "forward");
    ech__json_set_string(&json, "after_op", ech__op_name(m->move.op));
    ech__json_set_string(&json, "after", m->move.after);
    ech__json_set_int(&json, "bytes", m->bytes);
    ech__json_set_real(&json, "time_s", m->copy_s);
    return json;
}

static ech_json *transfers_json(const ech__run *run)
{
    const ech__pipe_totals *t = &run->pipe_totals;
    ech_json *json = ech__json_object(), *moves = ech__json_array();
    ech__json_set_int(&json, "asked", t->nlayers);
    ech__json_set_int(&json, "forward", t->forward_moves);
    ech__json_set_int(&json, "backward", t->nmoves - t->forward_moves);
    ech__json_set_int(&json, "inputs", t->input_moves);
    ech__json_set_int(&json, "micro_batches", t->micros);
    ech__json_set_int(&json, "bytes", t->moved_bytes);
    ech__json_set_int(&json, "input_bytes", t->input_bytes);
    for (int i = 0; i < t->nmoves; i++)
        ech__json_append(&moves, move_json(&t->moves[i]));
    ech__json_set(&json, "moves", moves);
    return json;
}

static ech_json *stage_json(const ech__run *run, int device)
{
    const ech__stage_total *s = &run->pipe_totals.stage[device];
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    int64_t count = 0, params = 0;
    for (int i = 0; i < layers->count; i++) {
        count += layers->at[i].device == device;
        params += layers->at[i].device == device ? layers->at[i].params : 0;
    }
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "layers", count);
    ech__json_set_int(&json, "parameters", params);
    ech__json_set_real(&json, "forward_s", s->forward_s);
    ech__json_set_real(&json, "backward_s", s->backward_s);
    ech__json_set_real(&json, "optimizer_s", s->update_s);
    ech__json_set_real(&json, "copy_s", s->copy_s);
    ech__json_set_real(&json, "wait_s", s->wait_s);
    ech__json_set_real(&json, "exchange_s", s->exchange_s);
    ech__json_set_real(&json, "busy_s", s->busy_s);
    ech__json_set_int(&json, "bytes_in", s->bytes_in);
    ech__json_set_int(&json, "bytes_out", s->bytes_out);
    return json;
}

static void set_json(const ech__run *run, ech_json **summary)
{
    const ech__pipe_totals *t = &run->pipe_totals;
    ech_json *stages = ech__json_array(), *bubble = ech__json_object();
    for (int d = 0; d < t->devices; d++)
        ech__json_append(&stages, stage_json(run, d));
    ech__json_set_real(&bubble, "measured", t->bubble);
    ech__json_set_real(&bubble, "ideal", t->ideal);
    ech__json_set(summary, "placement", placement_json(run));
    ech__json_set(summary, "transfers", transfers_json(run));
    ech__json_set(summary, "stages", stages);
    ech__json_set(summary, "bubble", bubble);
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
        ech_json *args = ech__json_object();
        ech__json_set_string(&args, "kernel", plan->instrs[n].choice.name);
        ech__json_set_int(&args, "micro_batch", micro);
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

static ech_status init(ech__run *run)
{
    return ech__pipe_totals_init(&run->pipe_totals, run->trainer, run->op_steps);
}

static void fini(ech__run *run)
{
    ech__pipe_totals_fini(&run->pipe_totals);
}

static void add(ech__run *run, double step_s)
{
    ech__pipe_totals_add(&run->pipe_totals, run->trainer, step_s);
}

static ech_status sum_up(ech__run *run)
{
    sum_up_layers(run);
    return ech__pipe_totals_sum_up(&run->pipe_totals, run->trainer);
}

/* All groups have the same figures. */
static const ech__stage_total *total_of(const ech__run *run, int device)
{
    return &run->pipe_totals.stage[device % run->pipe_totals.devices];
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
    return run->pipe_totals.moved_bytes + run->traffic.bytes.gradients + run->traffic.bytes.buffers;
}

const ech__totals_row ech__totals_pipe = {
    .init = init,
    .fini = fini,
    .add = add,
    .sum_up = sum_up,
    .memory = memory,
    .busy = busy,
    .bytes = bytes,
    .json = set_json,
    .trace = trace,
};
