/* Figures of every gradient: what loss scaling and clipping are decided by. One operator for each
 * gradient, in the order of the parameters, whatever buckets they travel in: so the norm has the
 * same bits however many ranks there are. */
#include "graph/graph.h"

ech_status ech__check_gradients(ech_graph *graph)
{
    ECH_TRY(graph->status);
    graph->phase = ECH__PHASE_CHECK;
    const size_t nvalues = graph->nvalues;
    for (size_t v = 0; v < nvalues; v++) {
        if (graph->values[v].kind != ECH__VALUE_PARAM)
            continue;
        const ech_value gradient = ech__graph_gradient(graph, (ech_value)v);
        if (gradient < 0)
            continue;
        const ech_value stats = ech__graph_add(graph, &(ech__node){.op = ECH__OP_GRAD_STATS,
                                                                   .name = graph->values[v].name,
                                                                   .nin = 1,
                                                                   .in = {gradient}});
        if (stats < 0)
            return graph->status;
        ech__graph_keep(graph, stats);
    }
    return ECH_OK;
}
