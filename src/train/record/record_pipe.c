/* The part of a record that is about layers on several devices. */
#include "train/record/record.h"

void ech__run_sum_up_layers(ech__run *run)
{
    const ech_trainer *t = run->trainer;
    for (size_t n = 0; run->pipe_totals.devices && n < run->nops; n++) {
        const ech__node *node = run->ops[n].instr->node;
        const bool often = node->phase == ECH__PHASE_FORWARD || node->phase == ECH__PHASE_BACKWARD;
        const int layer =
            ech__op_info(node->op)->exchange ? -1 : ech__layer_of(t->graph, &t->layers, node);
        if (layer >= 0)
            run->pipe_totals.layer_s[layer] +=
                run->ops[n].median_s * (often ? run->pipe_totals.micros : 1);
    }
}

static ech_json *placement_json(const ech__run *run)
{
    const ech__layers *layers = &run->trainer->layers;
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
    ech__json_set_int(&json, "asked", run->trainer->layers.count);
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
    const ech__layers *layers = &run->trainer->layers;
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

void ech__record_pipe(const ech__run *run, ech_json **summary)
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
