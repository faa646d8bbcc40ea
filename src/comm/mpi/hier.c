#include "comm/mpi/mpi.h"

#include "base/system/clock.h"
#include "comm/collective/algorithm.h"
#include "comm/collective/reduce.h"
#include "comm/launch/binding.h"
#include "comm/mpi/wire.h"
#include "comm/shm/pass_fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Order of sums. Nodes are numbered by their lowest rank, ranks of a node by their number in the
 * job. With the algorithm direct, a blocking collective adds over the ranks in the order of their
 * numbers, whatever their nodes, and an all-reduce that is started adds inside the nodes first and
 * then over the nodes: this is the same order where ranks are numbered node by node and every node
 * has the same power of two of them (mpirun --map-by core or slot); with other numberings it is
 * another order, the same on every rank and in every run of that numbering. 16-bit types are
 * rounded once inside the node and once between the nodes; the other algorithms round them after
 * every addition of a message. */

typedef struct hier {
    ech__comm base;
    ech__comm *local; /* shared memory of this node; backend mpi: of this rank alone */
    ech__wire wire;
    ech__layout layout; /* of the algorithm of all-reduces */
    ech__between started, blocking;
    int owners;   /* ranks of each node that take part in the exchange between nodes */
    int *node_of; /* [world] the node of each rank */
    int *members; /* [nodes] how many ranks each has */
    int *
        peers; /* [nodes] the rank of this rank's place on each node; -1: this rank owns no shard */
    int *everyone;   /* [world] 0, 1, 2, ... */
    int *neighbours; /* [ranks of this node] their numbers in the job */
} hier;

static hier *of(ech__comm *comm)
{
    return (hier *)comm;
}

/* ---- who is where ---- */

/* How many nodes to pretend, by ECHELON_NODES: ranks of one machine are divided among them in their
 * order, to try out what happens between nodes. 0: as they are. */
static ech_status read_pretended(ech_ctx *ctx, int world, int *out)
{
    const char *text = getenv("ECHELON_NODES");
    char *end = NULL;
    *out = 0;
    if (!text || !*text)
        return ECH_OK;
    const long value = strtol(text, &end, 10);
    if (*end || value < 1 || value > world)
        return ech__fail(ctx, ECH_E_INVALID,
                         "ECHELON_NODES is \"%.64s\": it must be from 1 to the %d ranks", text,
                         world);
    *out = (int)value;
    return ECH_OK;
}

/* Numbers the nodes by their lowest ranks; with alone, every rank is a node. */
static void number_nodes(hier *h, const int *first, bool alone, int pretended)
{
    const int world = h->base.world, each = pretended ? (world + pretended - 1) / pretended : 0;
    h->base.nodes = 0;
    for (int r = 0; r < world; r++) {
        const bool opens = alone || (each ? r % each == 0 : first[r] == r);
        h->node_of[r] = opens ? h->base.nodes++ : h->node_of[each ? r - 1 : first[r]];
        h->members[h->node_of[r]] += 1;
    }
    h->base.node = h->node_of[h->base.rank];
    h->base.per_node = h->members[0];
    for (int r = 0; r < world; r++) {
        if (h->base.per_node && h->node_of[r] != r / h->base.per_node)
            h->base.per_node = 0;
    }
}

/* The rank that is number `local` on a node. */
static int rank_at(const hier *h, int node, int local)
{
    for (int r = 0; r < h->base.world; r++) {
        if (h->node_of[r] == node && local-- == 0)
            return r;
    }
    return -1;
}

static int place_on_node(const hier *h)
{
    int place = 0;
    for (int r = 0; r < h->base.rank; r++)
        place += h->node_of[r] == h->base.node;
    return place;
}

static ech_status find_nodes(hier *h, const int *first, bool alone)
{
    const size_t bytes = (size_t)h->base.world * sizeof(int);
    int pretended;
    ECH_TRY(read_pretended(h->base.ctx, h->base.world, &pretended));
    h->node_of = ech__new(h->base.ctx, bytes);
    h->members = ech__new(h->base.ctx, bytes);
    h->peers = ech__new(h->base.ctx, bytes);
    h->everyone = ech__new(h->base.ctx, bytes);
    h->neighbours = ech__new(h->base.ctx, bytes);
    if (!h->node_of || !h->members || !h->peers || !h->everyone || !h->neighbours)
        return ech__no_memory(h->base.ctx, "%d ranks", h->base.world);
    number_nodes(h, first, alone, pretended);
    for (int r = 0; r < h->base.world; r++)
        h->everyone[r] = r;
    h->owners = h->members[0];
    for (int n = 1; n < h->base.nodes; n++)
        h->owners = h->members[n] < h->owners ? h->members[n] : h->owners;
    const int place = place_on_node(h);
    for (int i = 0; i < h->members[h->base.node]; i++)
        h->neighbours[i] = rank_at(h, h->base.node, i);
    for (int n = 0; n < h->base.nodes; n++)
        h->peers[n] = place < h->owners ? rank_at(h, n, place) : -1;
    /* What shares cores is the machine, also where every rank counts as a node. */
    for (int r = 0; r < h->base.world; r++) {
        if (first[r] != first[h->base.rank])
            continue;
        h->base.local_rank += r < h->base.rank;
        h->base.local_world++;
    }
    return ECH_OK;
}

static ech_status check_limits(hier *h, ech__backend backend)
{
    const ech__comm *c = &h->base;
    for (int n = 0; n < c->nodes; n++) {
        if (h->members[n] > ECH__MAX_RANKS_PER_NODE)
            return ech__fail(c->ctx, ECH_E_LIMIT, "%d ranks on the node of rank %d: at most %d",
                             h->members[n], rank_at(h, n, 0), (int)ECH__MAX_RANKS_PER_NODE);
    }
    if (backend == ECH__BACKEND_SHM && c->nodes > 1)
        return ech__fail(c->ctx, ECH_E_INVALID,
                         "--backend shm: the %d ranks are on %d nodes, and shared memory reaches "
                         "one; use auto",
                         c->world, c->nodes);
    return ECH_OK;
}

/* One node needs no algorithm: shared memory does the work. What is not run here is direct. */
static ech_status choose_algorithm(hier *h, ech__algorithm asked)
{
    ech__comm *c = &h->base;
    c->asked = asked;
    c->algorithm = c->nodes > 1 && ech__algorithm_run_of(asked) ? asked : ECH__ALGORITHM_DIRECT;
    const ech__members members = {.everyone = h->everyone, .peers = h->peers};
    return ech__algorithm_run_of(c->algorithm)(c, &members, &h->layout);
}

/* ---- joining ---- */

/* The node's first rank makes the memory, and hands it to the others over a socket whose name goes
 * by message. */
static ech_status get_memory(hier *h, int place, int members, int *fd)
{
    ech_ctx *ctx = h->base.ctx;
    char name[ECH__PASS_NAME_BYTES] = "";
    if (place > 0) {
        ECH_TRY(ech__wire_recv(&h->wire, name, sizeof name, h->neighbours[0], ECH__TAG_NODE,
                               "joining the node"));
        return ech__pass_fetch(ctx, name, h->base.timeout_s, fd);
    }
    int listener;
    ECH_TRY(ech__shm_create(ctx, members, fd));
    if (members == 1)
        return ECH_OK;
    ech_status status = ech__pass_listen(ctx, &listener, name);
    if (status < 0) {
        close(*fd);
        return status;
    }
    for (int i = 1; i < members && status == ECH_OK; i++)
        status = ech__wire_send(&h->wire, name, sizeof name, h->neighbours[i], ECH__TAG_NODE,
                                "joining the node");
    if (status == ECH_OK)
        status = ech__pass_serve(ctx, listener, *fd, members - 1, h->base.timeout_s);
    close(listener);
    if (status < 0)
        close(*fd);
    return status;
}

static ech_status join_nodes(hier *h)
{
    ech__between_init(&h->started, &h->wire, &h->layout.started);
    ech__shm_set_inter(h->local, &(ech__inter){.begin = ech__between_begin,
                                               .test = ech__between_test,
                                               .push = ech__between_push,
                                               .user = &h->started,
                                               .flat = h->layout.flat,
                                               .flights = ECH__FLIGHTS,
                                               .chunk_bytes = ECH__CHUNK_BYTES,
                                               .owners = h->owners,
                                               .world = h->base.world,
                                               .ranks = h->neighbours});
    if (h->layout.blocking.places == 0)
        return ECH_OK;
    ech__between_init(&h->blocking, &h->wire, &h->layout.blocking);
    return ech__between_reserve(&h->blocking);
}

static ech_status join_node(hier *h)
{
    const int place = place_on_node(h), members = h->members[h->base.node];
    int fd;
    ECH_TRY(get_memory(h, place, members, &fd));
    const ech_status status =
        ech__shm_join(h->base.ctx, fd, place, members, h->base.timeout_s, &h->local);
    close(fd);
    ECH_TRY(status);
    if (h->base.nodes == 1)
        return ECH_OK;
    return join_nodes(h);
}

/* ---- clocks and cores ---- */

/* Rank 0 answers with its time; the shortest round trip tells best. */
static ech_status ask_clock(hier *h, int64_t *offset)
{
    const char *what = "comparing clocks";
    int64_t best = INT64_MAX;
    for (int i = 0; i < 16; i++) {
        int64_t theirs, sent = ech__clock_wall();
        ECH_TRY(ech__wire_send(&h->wire, &sent, sizeof sent, 0, ECH__TAG_CLOCK, what));
        ECH_TRY(ech__wire_recv(&h->wire, &theirs, sizeof theirs, 0, ECH__TAG_CLOCK, what));
        const int64_t got = ech__clock_wall();
        if (got - sent < best) {
            best = got - sent;
            *offset = theirs - (sent + (got - sent) / 2);
        }
    }
    return ECH_OK;
}

static ech_status answer_clock(hier *h, int peer)
{
    const char *what = "comparing clocks";
    for (int i = 0; i < 16; i++) {
        int64_t theirs;
        ECH_TRY(ech__wire_recv(&h->wire, &theirs, sizeof theirs, peer, ECH__TAG_CLOCK, what));
        const int64_t now = ech__clock_wall();
        ECH_TRY(ech__wire_send(&h->wire, &now, sizeof now, peer, ECH__TAG_CLOCK, what));
    }
    return ECH_OK;
}

/* The first rank of each machine compares its clock with rank 0's and tells its neighbours. */
static ech_status compare_clocks(hier *h, const int *first)
{
    int64_t offset = 0;
    const int rank = h->base.rank;
    for (int r = 1; r < h->base.world; r++) {
        if (first[r] != r)
            continue;
        if (rank == r)
            ECH_TRY(ask_clock(h, &offset));
        else if (rank == 0)
            ECH_TRY(answer_clock(h, r));
    }
    int64_t *all = ech__new(h->base.ctx, (size_t)h->base.world * sizeof *all);
    if (!all)
        return ech__no_memory(h->base.ctx, "%d clocks", h->base.world);
    const ech_status status = ech__wire_allgather(&h->wire, &offset, all, sizeof offset);
    h->base.clock_offset_ns = all[first[rank]];
    ech__delete(h->base.ctx, all, (size_t)h->base.world * sizeof *all);
    return status;
}

static ech_status bind_cores(hier *h, const int *first)
{
    const int world = h->base.world, rank = h->base.rank;
    ech__cpus mine, *masks = calloc((size_t)world, sizeof *masks);
    int *ids = calloc((size_t)world, sizeof *ids), count = 0;
    ech_status status = ECH_OK;
    if (!masks || !ids)
        status = ech__no_memory(h->base.ctx, "the cores of %d ranks", world);
    const bool known = ech__cpus_read(&mine);
    if (status == ECH_OK)
        status = ech__wire_allgather(&h->wire, &mine, masks, sizeof mine);
    for (int r = 0; r < world && status == ECH_OK; r++) {
        if (first[r] != first[rank])
            continue;
        masks[count] = masks[r];
        ids[count++] = r;
    }
    if (status == ECH_OK && known)
        status = ech__binding_apply(h->base.ctx, masks, ids, h->base.local_rank, count);
    free(masks);
    free(ids);
    return status;
}

/* ---- operations ---- */

static ech_status hier_run(ech__comm *comm, const ech__coll *coll)
{
    hier *h = of(comm);
    if (comm->nodes == 1)
        return h->local->ops->run(h->local, coll);
    if (coll->op == ECH__COLL_ALLREDUCE && h->layout.blocking.places > 0)
        return ech__between_run(&h->blocking, coll);
    return ech__wire_run(&h->wire, coll);
}

static void *hier_peer(ech__comm *comm, void *ptr, int index)
{
    return ech__comm_peer(of(comm)->local, ptr, index);
}

/* Nobody goes on unless all have the memory. */
static ech_status hier_alloc(ech__comm *comm, int64_t bytes, void **out)
{
    hier *h = of(comm);
    ech_status status = h->local->ops->alloc(h->local, bytes, out);
    if (comm->nodes == 1)
        return status;
    if (status == ECH_OK)
        status = ech__between_reserve(&h->started);
    /* The lowest rank that has no memory; the world: none. */
    int32_t failed = status < 0 ? -comm->rank : -comm->world;
    const ech_status told = ech__wire_run(&h->wire, &(ech__coll){.op = ECH__COLL_ALLREDUCE,
                                                                 .reduction = ECH__REDUCTION_MAX,
                                                                 .dtype = ECH_S32,
                                                                 .count = 1,
                                                                 .src = &failed,
                                                                 .dst = &failed});
    if (status == ECH_OK && told == ECH_OK && failed != -comm->world)
        status = ech__no_memory(comm->ctx, "%lld bytes that the ranks exchange, on rank %d",
                                (long long)bytes, -failed);
    if (status == ECH_OK)
        status = told;
    if (status < 0 && *out) {
        h->local->ops->free(h->local, *out);
        *out = NULL;
    }
    return status;
}

static void hier_free(ech__comm *comm, void *ptr)
{
    ech__comm *local = of(comm)->local;
    local->ops->free(local, ptr);
}

static ech_status hier_start(ech__comm *comm, const ech__coll *coll, uint64_t *ticket)
{
    hier *h = of(comm);
    return h->local->ops->start(h->local, coll, ticket);
}

static ech_status hier_progress(ech__comm *comm)
{
    hier *h = of(comm);
    return h->local->ops->progress(h->local);
}

static ech_status hier_step(ech__comm *comm, bool *moved, bool *busy)
{
    hier *h = of(comm);
    return h->local->ops->step(h->local, moved, busy);
}

static ech_status hier_wait(ech__comm *comm, uint64_t ticket, ech__coll_times *times)
{
    hier *h = of(comm);
    return h->local->ops->wait(h->local, ticket, times);
}

/* A wait between nodes goes on with what was started: another rank may need it before it can
 * answer. */
static ech_status idle(void *user)
{
    hier *h = user;
    return h->local->ops->progress(h->local);
}

/* ---- opening and closing ---- */

static void release(hier *h)
{
    ech_ctx *ctx = h->base.ctx;
    const size_t bytes = (size_t)h->base.world * sizeof(int);
    if (h->wire.mpi && (h->wire.failed || h->wire.stuck || h->started.begun > h->started.ended ||
                        h->blocking.begun > h->blocking.ended))
        h->wire.mpi->abandon();
    if (h->local)
        h->local->ops->close(h->local);
    ech__between_fini(&h->started);
    ech__between_fini(&h->blocking);
    ech__wire_fini(&h->wire);
    ech__delete(ctx, h->node_of, bytes);
    ech__delete(ctx, h->members, bytes);
    ech__delete(ctx, h->peers, bytes);
    ech__delete(ctx, h->everyone, bytes);
    ech__delete(ctx, h->neighbours, bytes);
    ech__delete(ctx, h, sizeof *h);
}

static void hier_close(ech__comm *comm)
{
    release(of(comm));
}

static const ech__comm_ops hier_ops = {
    .close = hier_close,
    .run = hier_run,
    .alloc = hier_alloc,
    .free = hier_free,
    .start = hier_start,
    .progress = hier_progress,
    .step = hier_step,
    .peer = hier_peer,
    .wait = hier_wait,
};

static ech_status connect_ranks(hier *h, const ech__mpi_table *mpi, const int *first,
                                const ech__comm_options *o)
{
    ech__comm *c = &h->base;
    const ech__backend backend = o->backend;
    ECH_TRY(find_nodes(h, first, backend == ECH__BACKEND_MPI));
    ECH_TRY(check_limits(h, backend));
    ECH_TRY(choose_algorithm(h, o->algorithm));
    c->backend = c->nodes > 1 || backend == ECH__BACKEND_MPI ? ECH__BACKEND_MPI : ECH__BACKEND_SHM;
    ECH_TRY(ech__wire_init(&h->wire, c->ctx, mpi, c->rank, c->world, c->timeout_s));
    ECH_TRY(join_node(h));
    ECH_TRY(compare_clocks(h, first));
    ECH_TRY(bind_cores(h, first));
    h->wire.idle = idle;
    h->wire.idle_user = h;
    h->wire.sequence = 0;
    return ECH_OK;
}

ech_status ech__hier_open(ech_ctx *ctx, const ech__mpi_table *mpi, int rank, int world,
                          const int *first, const ech__comm_options *o, ech__comm **out)
{
    hier *h = ech__new(ctx, sizeof *h);
    *out = NULL;
    if (!h)
        return ech__no_memory(ctx, "a comm of %d ranks", world);
    h->base = (ech__comm){
        .ops = &hier_ops, .ctx = ctx, .rank = rank, .world = world, .timeout_s = o->timeout_s};
    const ech_status status = connect_ranks(h, mpi, first, o);
    if (status < 0) {
        release(h);
        return status;
    }
    *out = &h->base;
    return ECH_OK;
}

uint64_t ech__hier_messages(const ech__comm *comm)
{
    return ((const hier *)comm)->wire.messages;
}
