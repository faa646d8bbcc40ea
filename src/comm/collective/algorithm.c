#include "comm/collective/algorithm.h"

#include <assert.h>
#include <stdio.h>

/* BEST is a choice by price: echelon plan and emulated runs make it, a real exchange is direct. */
static const ech__algorithm_run runs_as[ECH__ALGORITHM_COUNT] = {
    [ECH__ALGORITHM_BEST] = ECH__RUN_NOWHERE,       [ECH__ALGORITHM_RING] = ECH__RUN_RANKS,
    [ECH__ALGORITHM_TREE] = ECH__RUN_RANKS,         [ECH__ALGORITHM_HALVING] = ECH__RUN_RANKS,
    [ECH__ALGORITHM_HIERARCHICAL] = ECH__RUN_NODES, [ECH__ALGORITHM_DIRECT] = ECH__RUN_NODES,
};

ech__algorithm_run ech__algorithm_run_of(ech__algorithm algorithm)
{
    assert((unsigned)algorithm < ECH__ALGORITHM_COUNT);
    return runs_as[algorithm];
}

ech__algorithm_text ech__comm_algorithm(const ech__comm *comm)
{
    ech__algorithm_text text;
    const char *runs = ech__algorithm_name(comm->algorithm);
    const char *asked = ech__algorithm_name(comm->asked);
    if (comm->asked == comm->algorithm)
        snprintf(text.s, sizeof text.s, "%s", runs);
    else if (comm->nodes == 1)
        snprintf(text.s, sizeof text.s,
                 "%s through shared memory (%s would run between nodes; all ranks are on one)",
                 runs, asked);
    else
        snprintf(text.s, sizeof text.s, "%s (%s is a choice by price, not run here)", runs, asked);
    return text;
}

bool ech__comm_keeps_tree(const ech__comm *comm)
{
    const bool ranks = runs_as[comm->algorithm] == ECH__RUN_RANKS;
    if (comm->nodes == 1)
        return true;
    /* Ranks of a node are added up first, so they must follow each other. */
    return (ranks || comm->per_node > 0) && ech__schedule_keeps_tree(&(ech__schedule){
                                                .algorithm = comm->algorithm,
                                                .devices = comm->world,
                                                .per_node = comm->per_node ? comm->per_node : 1});
}
