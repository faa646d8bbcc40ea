#include "comm/collective/algorithm.h"

#include <assert.h>
#include <stdio.h>

/* By messages between all ranks, in rank order. */
static ech_status run_ranks(const ech__comm *c, const ech__members *members, ech__layout *out)
{
    out->started = (ech__between_options){.algorithm = c->algorithm,
                                          .places = c->world,
                                          .per_node = 1,
                                          .place = c->rank,
                                          .ranks = members->everyone,
                                          .first_tag = ECH__TAG_STARTED};
    out->blocking = out->started;
    out->blocking.first_tag = ECH__TAG_CHUNK;
    out->flat = true;
    return ECH_OK;
}

/* Through shared memory inside the nodes, by messages between the owners of a shard. */
static ech_status run_owners(const ech__comm *c, const ech__members *members, ech__layout *out)
{
    out->started = (ech__between_options){.algorithm = ECH__ALGORITHM_DIRECT,
                                          .places = c->nodes,
                                          .per_node = 1,
                                          .place = members->peers[0] < 0 ? -1 : c->node,
                                          .ranks = members->peers,
                                          .first_tag = ECH__TAG_STARTED};
    return ECH_OK;
}

/* The same, in rings of owners; all of it by messages where it is waited for. */
static ech_status run_rings(const ech__comm *c, const ech__members *members, ech__layout *out)
{
    if (c->per_node == 0)
        return ech__fail(c->ctx, ECH_E_UNSUPPORTED,
                         "--algorithm hierarchical needs ranks that are numbered node by node, as "
                         "many on every node; direct runs on any nodes");
    ech__layout ranks;
    ECH_TRY(run_ranks(c, members, &ranks));
    ECH_TRY(run_owners(c, members, out));
    out->started.algorithm = ECH__ALGORITHM_RING;
    out->blocking = ranks.blocking;
    out->blocking.per_node = c->per_node;
    return ECH_OK;
}

ech__algorithm_run *ech__algorithm_run_of(ech__algorithm algorithm)
{
#define run_none NULL
#define RUN(id, name, about, geometry, price, run) run_##run,
    static ech__algorithm_run *const runs[] = {ECH__ALGORITHM_LIST(RUN)};
    assert((unsigned)algorithm < ECH__ALGORITHM_COUNT);
    return runs[algorithm];
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
    const bool ranks = ech__algorithm_run_of(comm->algorithm) == run_ranks;
    if (comm->nodes == 1)
        return true;
    /* Ranks of a node are added up first, so they must follow each other. */
    return (ranks || comm->per_node > 0) && ech__schedule_keeps_tree(&(ech__schedule){
                                                .algorithm = comm->algorithm,
                                                .devices = comm->world,
                                                .per_node = comm->per_node ? comm->per_node : 1});
}
