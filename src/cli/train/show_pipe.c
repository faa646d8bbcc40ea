#include "base/format.h"
#include "cli/train/show.h"
#include "train/record/totals.h"

#include <stdio.h>
#include <string.h>

static void show_layers(const ech__run *run)
{
    const ech__layers *layers = ech__trainer_layers(run->trainer);
    size_t wide = strlen("layer");
    for (int i = 0; i < layers->count; i++)
        wide = strlen(layers->at[i].name) > wide ? strlen(layers->at[i].name) : wide;
    printf("\n%*s  %8s  %12s  %10s  %10s\n", (int)wide, "layer", "device", "parameters", "bytes",
           "time");
    for (int i = 0; i < layers->count; i++) {
        const ech__layer *layer = &layers->at[i];
        printf("%*s  %8d  %12lld  %10s  %10s\n", (int)wide, layer->name, layer->device,
               (long long)layer->params, ech__format_bytes(layer->bytes).s,
               ech__format_seconds(ech__run_pipe_totals(run)->layer_s[i]).s);
    }
}

static void show_moves(const ech__run *run)
{
    const ech__pipe_totals *t = ech__run_pipe_totals(run);
    printf("\n%8s  %8s  %10s  %10s  %10s  %s\n", "from", "to", "pass", "bytes", "time", "after");
    for (int i = 0; i < t->nmoves; i++) {
        const ech__move_total *m = &t->moves[i];
        printf("%8d  %8d  %10s  %10s  %10s  %s %s\n", m->move.from, m->move.to,
               m->move.backward ? "backward" : "forward", ech__format_bytes(m->bytes).s,
               ech__format_seconds(m->copy_s).s, ech__op_name(m->move.op), m->move.after);
    }
    printf(
        "\ntransfers    %d requested in a forward pass, one per layer; %d forward and %d backward "
        "performed",
        t->nlayers, t->forward_moves, t->nmoves - t->forward_moves);
    if (t->micros > 1)
        printf(", each split into %d micro-batches", t->micros);
    printf(", %s per step; inputs and targets add %d, %s\n", ech__format_bytes(t->moved_bytes).s,
           t->input_moves, ech__format_bytes(t->input_bytes).s);
}

static void show_devices(const ech__run *run)
{
    const ech__pipe_totals *t = ech__run_pipe_totals(run);
    printf("\n%8s  %10s  %10s  %10s  %10s  %10s  %6s\n", "device", "forward", "backward",
           "optimizer", "fetching", "waiting", "busy");
    for (int d = 0; d < t->devices; d++) {
        const ech__stage_total *s = &t->stage[d];
        printf("%8d  %10s  %10s  %10s  %10s  %10s  %4.0f %%\n", d,
               ech__format_seconds(s->forward_s).s, ech__format_seconds(s->backward_s).s,
               ech__format_seconds(s->update_s).s, ech__format_seconds(s->copy_s).s,
               ech__format_seconds(s->wait_s).s, 100 * s->busy_share);
    }
}

void ech__show_memory_of_devices(const ech_trainer *trainer)
{
    printf("%8s", "device");
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        printf("  %11s", ech__memory_name((ech__memory_kind)k));
    printf("  %11s\n", "total");
    for (int d = 0; d < ech__trainer_devices(trainer); d++) {
        int64_t memory[ECH__MEMORY_COUNT];
        ech__trainer_memory(trainer, d, memory);
        printf("%8d", d);
        for (int k = 0; k < ECH__MEMORY_COUNT; k++)
            printf("  %11s", ech__format_bytes(memory[k]).s);
        printf("  %11s\n", ech__format_bytes(ech__trainer_planned(trainer, d)).s);
    }
}

void ech__show_pipe_head(const ech__run *run)
{
    const ech_pipeline_options *o = &run->config.train.pipeline;
    const int micros = ech__run_pipe_totals(run)->micros;
    printf("%d layers on %d devices%s, placement %s, %d micro-batch%s%s%s\n",
           ech__run_pipe_totals(run)->nlayers, o->devices, run->world > 1 ? " per group" : "",
           o->placement ? o->placement : "even", micros, micros == 1 ? "" : "es",
           micros == 1 ? "" : ", ", micros == 1 ? "" : ech__pipeline_name(o->schedule));
}

void ech__show_pipe(const ech__run *run)
{
    const ech__pipe_totals *t = ech__run_pipe_totals(run);
    if (!t)
        return;
    show_layers(run);
    show_moves(run);
    show_devices(run);
    putchar('\n');
    ech__show_memory_of_devices(run->trainer);
    printf("\nbubble       devices idle %.1f %% of the time until the pipeline drains (%s); "
           "(D-1)/(M+D-1) is %.1f %%\n",
           100 * t->bubble, ech__run_clock(run), 100 * t->ideal);
}
