/* A communicator: the ranks of one training run and their collectives.
 *
 *     ech__comm *comm;
 *     ECH_TRY(ech__comm_open(ctx, &(ech__comm_options){0}, &comm));    as the environment says; alone: world 1
 *     float *grads;
 *     ECH_TRY(ech__comm_alloc(comm, bytes, (void **)&grads));          memory that the node's ranks share
 *     ech__coll sum = {.op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = n, .src = grads, .dst = grads};
 *     uint64_t ticket;
 *     ECH_TRY(ech__comm_start(comm, &sum, &ticket));                   this rank's part is ready
 *     ... compute, calling ech__comm_progress(comm) now and then ...
 *     ECH_TRY(ech__comm_wait(comm, ticket, &times));
 *     ech__comm_close(comm);
 *
 * Every rank calls the collectives in the same order. Sums are taken in a fixed binary tree over
 * the ranks (ech__tree_split in price/tree.h), so a result has the same bits on every rank, in
 * every run and over every transport; only with another algorithm than direct it may be another
 * order (ech__comm_keeps_tree). The calls do the work, or, between nodes, a thread that helps
 * (comm/helper.h). Every wait has a time-out; its error message names the rank that was waited for,
 * the operation and its sequence number. One thread of the program uses a comm at a time.
 */
#pragma once

#include "base/status.h"
#include "price/collective.h"
#include "tensor/shape.h"

#define ECH__COLL_LIST(X)                                                                          \
    X(ALLREDUCE, "allreduce") /* src[count] of each rank -> dst[count], the same everywhere */     \
    X(REDUCE_SCATTER, "reduce_scatter") /* src[world*count] -> dst[count], this rank's part */     \
    X(ALLGATHER, "allgather")           /* src[count] -> dst[world*count] */                       \
    X(BROADCAST, "broadcast")           /* dst[count] of peer -> dst[count]; src is not read */    \
    X(BARRIER, "barrier")                                                                          \
    X(SEND, "send") /* src[count] to peer */                                                       \
    X(RECV, "recv") /* dst[count] from peer */

typedef enum ech__coll_op {
#define ECH__COLL_ENUM(id, text) ECH__COLL_##id,
    ECH__COLL_LIST(ECH__COLL_ENUM)
#undef ECH__COLL_ENUM
        ECH__COLL_COUNT
} ech__coll_op;

#define ECH__REDUCTION_LIST(X)                                                                     \
    X(SUM, "sum")                                                                                  \
    X(MEAN, "mean") /* the sum divided by the world; s32 has none */                               \
    X(MAX, "max")

typedef enum ech__reduction {
#define ECH__REDUCTION_ENUM(id, text) ECH__REDUCTION_##id,
    ECH__REDUCTION_LIST(ECH__REDUCTION_ENUM)
#undef ECH__REDUCTION_ENUM
        ECH__REDUCTION_COUNT
} ech__reduction;

const char *ech__coll_name(ech__coll_op op);
const char *ech__reduction_name(ech__reduction reduction);

/* What is to be done. src and dst may be the same, or not overlap at all. 16-bit types are added up
 * in f32 and rounded once. Types that are not reduced may be any. */
typedef struct ech__coll {
    ech__coll_op op;
    ech__reduction reduction;
    ech_dtype dtype;
    int64_t count;
    const void *src;
    void *dst;
    int peer; /* root of a broadcast; other side of send and recv */
    /* For a started all-reduce whose result only the reducing rank needs: called with a chunk of
     * the sum, elements first to first + count of the whole, instead of writing it to every rank's
     * memory. NULL: it is written. */
    ech_status (*apply)(void *user, int64_t first, int64_t count, const void *sum);
    void *user;
} ech__coll;

/* When a started all-reduce was ready here, when this rank began to reduce its share (ready
 * everywhere), and when it was complete on all ranks; ns of the monotonic clock. work_ns: this
 * rank's time spent on it. */
typedef struct ech__coll_times {
    int64_t ready_ns, start_ns, done_ns, work_ns;
} ech__coll_times;

#define ECH__BACKEND_LIST(X)                                                                       \
    X(AUTO, "auto") /* shared memory inside a node, MPI between nodes */                           \
    X(SHM, "shm")   /* shared memory only */                                                       \
    X(MPI, "mpi")   /* MPI between all ranks, also on one node */

typedef enum ech__backend {
#define ECH__BACKEND_ENUM(id, text) ECH__BACKEND_##id,
    ECH__BACKEND_LIST(ECH__BACKEND_ENUM)
#undef ECH__BACKEND_ENUM
} ech__backend;

const char *ech__backend_name(ech__backend backend);

typedef struct ech__comm_options {
    ech__backend backend;
    double timeout_s; /* of every wait; 0: ECHELON_TIMEOUT, or else 600 */
    /* Of all-reduces between nodes; BEST: direct. See comm/collective/algorithm.h. */
    ech__algorithm algorithm;
} ech__comm_options;

typedef struct ech__comm ech__comm;
typedef struct ech__comm_ops ech__comm_ops;
typedef struct ech__helper ech__helper;

/* The part that others may read. Transports put their own behind it. */
struct ech__comm {
    const ech__comm_ops *ops;
    ech_ctx *ctx;
    int rank, world;
    int local_rank, local_world; /* on this node */
    int node, nodes;
    int per_node; /* ranks 0 to per_node - 1 are on the first node, and so on, fewer on the last; 0: not so */
    ech__backend backend;            /* what is really used: SHM or MPI; AUTO stands for alone */
    ech__algorithm asked, algorithm; /* of all-reduces: in the options, and what is really used */
    double timeout_s;
    int64_t clock_offset_ns; /* add it to this node's monotonic clock to get rank 0's */
    int restarts;            /* how often the launcher has started this job again */
    ech__helper *helper;     /* comm/helper.h; NULL: none */
};

/* The rank that the environment says this process is: one of `echelon run` or of --devices
 * (launch.h), one of mpirun or srun, or alone. Nonsense in RANK or WORLD_SIZE is refused. */
ech_status ech__comm_open(ech_ctx *ctx, const ech__comm_options *options, ech__comm **out);
/* The time-out that ranks will take from the environment, in seconds; a launcher finds nonsense
 * before there are ranks. */
ech_status ech__comm_timeout(ech_ctx *ctx, double *out);
/* NULL is allowed. Does not wait for other ranks: a failing rank must not hang here. */
void ech__comm_close(ech__comm *comm);
/* For a rank that ends because of a failure, whose sentence the context holds: the calls of the
 * others fail from here on, and name it. False where another rank has failed for the same reason
 * before, so that it need not be said again. Waits for nobody. */
bool ech__comm_abort(ech__comm *comm);

/* Tells the launcher that this job has done a step: a failure from here on is not one of its
 * configuration. */
void ech__comm_begun(ech__comm *comm);

/* Runs a collective and returns when this rank's dst has the result. */
ech_status ech__comm_run(ech__comm *comm, const ech__coll *coll);
ech_status ech__comm_barrier(ech__comm *comm);
/* Raw bytes, each rank's or the root's. */
ech_status ech__comm_allgather(ech__comm *comm, const void *src, void *dst, int64_t bytes);
ech_status ech__comm_broadcast(ech__comm *comm, void *data, int64_t bytes, int root);

/* What runs an all-reduce here, and why where another algorithm was asked for. */
typedef struct ech__algorithm_text {
    char s[128];
} ech__algorithm_text;
ech__algorithm_text ech__comm_algorithm(const ech__comm *comm);
/* Whether all sums are taken in the fixed tree over the ranks: other algorithms, and nodes whose
 * ranks do not follow each other, add in another order, which is the same on every rank and in
 * every run. */
bool ech__comm_keeps_tree(const ech__comm *comm);

/* Zeroed memory of the same size on every rank, in which all-reduces need no copies. Collective;
 * the memory is reserved before it is used, or the call fails on every rank. */
ech_status ech__comm_alloc(ech__comm *comm, int64_t bytes, void **out);
/* Not collective; the memory is released when the last rank has freed it. NULL is allowed. */
void ech__comm_free(ech__comm *comm, void *ptr);

/* The address on rank `index` that corresponds to ptr, which is in memory from ech__comm_alloc.
 * index counts the ranks that share this memory, including this one; NULL if there are fewer. */
void *ech__comm_peer(ech__comm *comm, void *ptr, int index);

/* Starts an all-reduce in place (src == dst) inside memory from ech__comm_alloc, at the same offset
 * on every rank. The memory must be left alone until it is done. At most ECH__MAX_STARTED are in
 * progress. */
enum { ECH__MAX_STARTED = 1024 };
ech_status ech__comm_start(ech__comm *comm, const ech__coll *coll, uint64_t *ticket);
/* Advances the started operations without waiting. Costs nothing when nothing is in progress. */
ech_status ech__comm_progress(ech__comm *comm);
/* Waits until one is done everywhere, working on it and on those before it. times may be NULL. */
ech_status ech__comm_wait(ech__comm *comm, uint64_t ticket, ech__coll_times *times);

/* Every rank hands in a text of lines "name: value"; fails on every rank where two differ, and
 * names both ranks and what each has. Collective. */
ech_status ech__comm_agree(ech__comm *comm, const char *text);
/* A text of rank 0 on every rank, to be freed with free(). text is read on rank 0 only. Collective. */
ech_status ech__comm_share_text(ech__comm *comm, const char *text, char **out);
/* Texts of all ranks on rank 0: texts[world], each to be freed with free(); left NULL on the
 * others. Collective. */
ech_status ech__comm_gather_texts(ech__comm *comm, const char *text, char **texts);

/* ---- what a transport implements ---- */

struct ech__comm_ops {
    void (*close)(ech__comm *comm);
    bool (*abort)(ech__comm *comm); /* NULL: the others find out when they wait */
    void (*begun)(ech__comm *comm); /* NULL: nobody wants to know */
    ech_status (*run)(ech__comm *comm, const ech__coll *coll);
    ech_status (*alloc)(ech__comm *comm, int64_t bytes, void **out);
    void (*free)(ech__comm *comm, void *ptr);
    ech_status (*start)(ech__comm *comm, const ech__coll *coll, uint64_t *ticket);
    ech_status (*progress)(ech__comm *comm);
    /* A small part of progress. moved: something was done; busy: something is in progress. NULL:
     * there is nothing to do without this rank's own calls. */
    ech_status (*step)(ech__comm *comm, bool *moved, bool *busy);
    ech_status (*wait)(ech__comm *comm, uint64_t ticket, ech__coll_times *times);
    void *(*peer)(ech__comm *comm, void *ptr, int index);
};

/* A comm of one rank, which needs nobody. */
ech_status ech__solo_open(ech_ctx *ctx, double timeout_s, ech__comm **out);

/* Bytes of count elements; the count has been checked. */
static inline int64_t ech__coll_bytes(const ech__coll *coll, int64_t count)
{
    return count * ech__dtype_bytes(coll->dtype);
}

/* The public face of a group of ranks. */
struct ech_group {
    ech__comm *comm;
    bool owned; /* the comm is closed with the group */
};
