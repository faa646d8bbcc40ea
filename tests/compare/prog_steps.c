/* A user's program that trains for as long as it may: prog_steps [WIDTH]. */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>

static ech_status train(ech_ctx *ctx, ech_graph *g, int64_t width)
{
    const int64_t dims[] = {ECH_BATCH, width};
    const ech_value x = ech_input(g, "x", ECH_F32, 2, dims),
                    y = ech_input(g, "y", ECH_F32, 2, dims);
    const ech_value loss = ech_mse(g, ech_linear(g, "layer", x, width, true), y);
    ech_train_options options = ech_train_defaults();
    ech_group *group = NULL;
    ech_trainer *trainer = NULL;
    ech_status status = ech_group_open(ctx, &group);
    options.ddp.group = group;
    options.batch = 8;
    options.threads = 1;
    options.tune = false;
    if (status == ECH_OK)
        status = ech_trainer_create(ctx, g, loss, &options, &trainer);
    while (status == ECH_OK)
        status = ech_trainer_step(trainer, NULL);
    ech_trainer_destroy(trainer);
    ech_group_close(group);
    return status;
}

int main(int argc, char **argv)
{
    ech_ctx *ctx;
    ech_graph *g = NULL;
    if (ech_ctx_create(NULL, &ctx) < 0)
        return 1;
    ech_status status = ech_graph_create(ctx, &g);
    if (status == ECH_OK)
        status = train(ctx, g, argc > 1 ? strtol(argv[1], NULL, 10) : 32);
    fprintf(stderr, "%s\n", ech_ctx_error(ctx));
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return status < 0;
}
