/* echelon graph: the graph of a training step after each pass. */
#include "graph/print.h"
#include "base/file/file.h"
#include "cli/cli.h"
#include "cli/train/training.h"
#include "predict/pricing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct args {
    ech__run_config run; /* first: the rows of options store there */
    const char *pass, *dot;
} args;

_Static_assert(offsetof(args, run) == 0, "rows store into the configuration");

static const ech__option options[] = {
#define OPTION(train, bench, plan, graph, ...) ECH__IN_##graph(ECH__OPTION_ROW(__VA_ARGS__))
#include "train/options.inc"
    ECH_ROW(INT, args, run.devices, "devices", "Devices.", .arg = "N", .initial = "1", .min = 1,
            .max = 256, .group = "Devices"),
    ECH_ROW(STRING, args, pass, "pass",
            "Only the graphs after this pass: fuse, autodiff, recompute, autocast, accumulate, "
            "exchange, check, "
            "optimize, 'sharded update', delay or copies. Default: all.",
            .arg = "NAME", .group = "Output"),
    ECH_ROW(STRING, args, dot, "dot", "Write the last graph for Graphviz: dot -Tsvg FILE.",
            .arg = "FILE"),
};

static const ech__option_example examples[] = {
    {"echelon graph --model lenet", "every pass of one device"},
    {"echelon graph --model resnet18 --devices 2 --pass exchange", "where gradients are exchanged"},
    {"echelon graph --dim 64 --depth 4 --parallel pipeline --devices 2 --micro-batches 4 --pass "
     "copies",
     "the graph of each device"},
};

typedef struct watcher {
    const args *args;
    int shown;
    char *dot; /* the last graph that was shown */
    size_t dot_bytes;
} watcher;

static void on_pass(void *user, const ech_graph *graph, const char *pass)
{
    watcher *w = user;
    if (w->args->pass && strcmp(w->args->pass, pass) != 0)
        return;
    printf("%s== %s: %zu operators\n", w->shown++ ? "\n" : "", pass, graph->nnodes);
    ech__graph_print(graph, stdout);
    if (!w->args->dot)
        return;
    free(w->dot);
    w->dot = NULL;
    FILE *file = open_memstream(&w->dot, &w->dot_bytes);
    if (file) {
        ech__graph_dot(graph, pass, file);
        fclose(file);
    }
}

static ech_train_options train_options(const ech__run_config *c)
{
    ech_train_options o = c->train;
    const int micros = o.pipeline.micro_batches ? o.pipeline.micro_batches : 1;
    o.batch = 8 * (int64_t)micros;
    o.threads = 1;
    o.tune = false;
    o.pipeline.micro_batches = micros;
    ech__strategy_set(&o, c->parallel, (int)c->devices);
    return o;
}

static ech_status show(ech_ctx *ctx, const args *a, watcher *w, ech_graph *graph)
{
    ech__model model;
    ech_trainer *trainer;
    const ech__run_config *c = &a->run;
    const ech_train_options train = train_options(c);
    const ech__trainer_options o = {
        .train = &train,
        .only_graphs = true,
        .pretended_ranks = ech__strategy_row_of(c->parallel)->has_ranks ? (int)c->devices : 0};
    ECH_TRY(ech__training_check(ctx, c));
    ECH_TRY(ech__model_build(graph, &c->model, &model));
    graph->on_pass = on_pass;
    graph->on_pass_user = w;
    ECH_TRY(ech__trainer_create(ctx, graph, model.loss, &o, &trainer));
    ech_trainer_destroy(trainer);
    if (!w->shown)
        return ech__fail(ctx, ECH_E_INVALID, "--pass %.40s: this training run has no such pass",
                         a->pass);
    return a->dot ? ech__file_write(ctx, a->dot, w->dot, w->dot_bytes) : ECH_OK;
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    ech_graph *graph;
    watcher w = {.args = a};
    ech_status status = ech_graph_create(ctx, &graph);
    if (status == ECH_OK) {
        status = show(ctx, a, &w, graph);
        ech_graph_destroy(graph);
    }
    free(w.dot);
    return status;
}

const ech__command ech__cli_graph = {
    .name = "graph",
    .brief = "show the graph of a training step after each pass",
    .about = "Prints a line for each operator: phase, operator, layer, operands with their types "
             "and shapes, the device if the model is split over several, and the bytes that the "
             "operator reads and writes for one sample.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
    .defaults = ech__training_defaults,
};
