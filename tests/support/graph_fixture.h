/* A graph for each test of src/graph, and what such tests ask of it.
 *
 *     cmocka_unit_test_setup_teardown(test, graph_setup, graph_teardown)
 */
#pragma once

#include "graph/graph.h"
#include "support/cmocka_first.h"

/* Of the test that runs. */
extern ech_ctx *ctx;
extern ech_graph *g;

int graph_setup(void **state);
int graph_teardown(void **state);

/* [N, width] */
ech_value input(const char *name, int64_t width);

/* "linear fc1, add fc1, relu relu_2": the operators of a graph in their order. Good until the next call. */
const char *listing(const ech_graph *graph);
int count_ops(const ech_graph *graph, ech__op op);

void expect_sound(const ech_graph *graph);
/* The building call failed with this sentence, and the graph knows. */
void expect_refused(ech_value value, const char *sentence);
