/* A graph as text, for people and for tests of passes: one line for each operator.
 *
 *     ech__graph_print(graph, stdout);
 *
 *     forward    linear+bias+relu  layers.0  x:f32[batch,64] layers.0.weight:f32[64,64] ... -> layers.0:f32[batch,64]
 *
 * After the operands come the device, where a model is spread over several, and what the operator
 * reads and writes for one sample.
 */
#pragma once

#include "graph/graph.h"

#include <stdio.h>

void ech__graph_print(const ech_graph *graph, FILE *file);
/* For Graphviz: operators as boxes, values as arrows, a colour for each phase. name: of the graph. */
void ech__graph_dot(const ech_graph *graph, const char *name, FILE *file);
