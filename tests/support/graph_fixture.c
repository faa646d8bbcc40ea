#include "support/graph_fixture.h"

#include <stdio.h>

ech_ctx *ctx;
ech_graph *g;

int graph_setup(void **state)
{
    (void)state;
    return ech_ctx_create(NULL, &ctx) < 0 || ech_graph_create(ctx, &g) < 0 ? -1 : 0;
}

int graph_teardown(void **state)
{
    (void)state;
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return 0;
}

ech_value input(const char *name, int64_t width)
{
    return ech_input(g, name, ECH_F32, 2, (int64_t[]){ECH_BATCH, width});
}

const char *listing(const ech_graph *graph)
{
    static char text[2048];
    size_t used = 0;
    text[0] = 0;
    for (size_t n = 0; n < graph->nnodes; n++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", n ? ", " : "",
                                 ech__op_name(graph->nodes[n].op), graph->nodes[n].name);
    return text;
}

int count_ops(const ech_graph *graph, ech__op op)
{
    int count = 0;
    for (size_t n = 0; n < graph->nnodes; n++)
        count += graph->nodes[n].op == op;
    return count;
}

void expect_sound(const ech_graph *graph)
{
    if (ech__graph_check(graph) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
}

void expect_refused(ech_value value, const char *sentence)
{
    assert_int_equal(value, ECH_E_INVALID);
    assert_int_equal(ech_graph_status(g), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx), sentence);
}
