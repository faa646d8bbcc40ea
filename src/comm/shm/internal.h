/* What the files of the shared-memory transport share: the layout of the control block, and a
 * rank's own side of it.
 *
 *   shm.c         creating, joining, leaving
 *   nonblocking.c all-reduces that were started
 *   nodes.c       the same where there are other nodes
 *   blocking.c    blocking collectives, over the turns and slots
 *   pair.c        send and recv, over a ring for each ordered pair of ranks
 *   region.c      memory
 *   wait.c        waiting, and what ends it: time-out, a failure elsewhere, ranks that left
 *
 * The control block: one head, a ech__shm_rank for each rank, two slots for each rank, a ring for
 * each ordered pair. A rank writes only to its own ech__shm_rank (but for the counters of
 * sleepers), so every word has one writer.
 *
 * Blocking collectives are made of turns. In turn t a rank writes its slot t%2, says what it is
 * doing, sets turn[t%2].arrived to t+1 and waits until all have; then it may read all slots. It may
 * write slot t%2 again in turn t+2: it has seen all others in turn t+1 by then, so they are through
 * with reading those of turn t.
 */
#pragma once

#include "base/system/cpus.h"
#include "comm/collective/reduce.h"
#include "comm/comm.h"
#include "comm/shm/shm.h"
#include "price/tree.h"

#include <stdatomic.h>

enum {
    ECH__LINE = 64,         /* bytes of a cache line */
    ECH__SLOT = 64 * 1024,  /* bytes of a slot */
    ECH__MAX_REGIONS = 256, /* that are allocated at the same time */
    ECH__OP_ALLOC = ECH__COLL_COUNT,
};

/* What a rank is doing, for comparing. Packed into words, since others may read it while it is
 * written. */
typedef struct ech__shm_desc {
    _Atomic uint64_t what;  /* op, reduction, dtype, peer: a byte each, but for the peer's two */
    _Atomic uint64_t count; /* elements */
    _Atomic uint64_t sequence;
    _Atomic uint64_t
        where; /* of src == dst in a region, as region << 48 | offset + 1; 0: elsewhere */
} ech__shm_desc;

typedef struct ech__shm_turn {
    _Alignas(ECH__LINE) _Atomic uint64_t arrived;
    ech__shm_desc desc;
} ech__shm_turn;

/* An all-reduce that was started. */
typedef struct ech__shm_started {
    ech__shm_desc desc;
    _Atomic uint64_t done_sequence; /* its number + 1, once done_ns is its */
    _Atomic int64_t done_ns;        /* when this rank had distributed its shard */
} ech__shm_started;

typedef struct ech__shm_rank {
    ech__shm_turn turn[2];
    _Alignas(ECH__LINE) _Atomic uint64_t started; /* all-reduces that are ready here */
    _Alignas(ECH__LINE) _Atomic uint64_t reduced; /* of these, whose shard is distributed */
    /* Sleepers wait for a change of bell, which this rank rings whenever it has counted something
     * up. */
    _Alignas(ECH__LINE) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
    /* A rank is inside while joined == left + 1. */
    _Alignas(ECH__LINE) _Atomic uint32_t joined;
    _Atomic uint32_t left;
    ech__shm_started ring[ECH__MAX_STARTED];
} ech__shm_rank;

typedef struct ech__shm_region {
    _Atomic int holders; /* 0: free */
    int64_t offset;      /* in the file */
    int64_t bytes;       /* of all ranks */
} ech__shm_region;

/* A stream of bytes from one rank to another. */
typedef struct ech__shm_ring {
    _Alignas(ECH__LINE) _Atomic uint64_t written;
    _Alignas(ECH__LINE) _Atomic uint64_t read;
} ech__shm_ring;

typedef struct ech__shm_head {
    char magic[16];
    int32_t world;
    int64_t bytes;                         /* of the control block */
    int64_t ring_bytes;                    /* of data, for each ordered pair */
    _Atomic uint64_t cpus[ECH__CPU_WORDS]; /* that any of the ranks may use */
    _Atomic int aborted;                   /* 1: abort_text is being written; 2: it can be read */
    int aborter;                           /* the rank that wrote it */
    _Atomic int begun;                     /* a rank has done a step */
    char abort_text[1024];
    /* Written by local rank 0 inside an allocation. */
    int64_t end; /* of the file */
    int alloc_status, alloc_region;
    char alloc_text[1024];
    ech__shm_region regions[ECH__MAX_REGIONS];
} ech__shm_head;

/* A region as one rank has it mapped. */
typedef struct ech__shm_map {
    char *base; /* NULL: not mapped; rank r's part starts at base + r * stride */
    int64_t stride, bytes;
} ech__shm_map;

typedef struct ech__shm {
    ech__comm base;
    int fd;
    int parent;              /* process id of whoever started this one */
    uint32_t generation;     /* how often this rank had left before */
    bool all_known, crowded; /* more ranks than processors, once all ranks are known */
    ech__shm_head *head;
    ech__shm_rank *ranks;
    char *slots, *rings;
    /* blocking collectives */
    uint64_t turn, sequence;
    ech__shm_desc now; /* what this rank is in, for messages */
    uint64_t sent[ECH__MAX_RANKS_PER_NODE], received[ECH__MAX_RANKS_PER_NODE];
    /* started all-reduces: those below next have this rank's shard distributed */
    uint64_t started, next;
    uint64_t seen_started; /* every rank has started at least as many */
    int slow;              /* the rank that was late at the last check */
    bool failed;
    /* other nodes: chunks of this rank's shards. Those of all-reduces below `begun` are begun, of
     * number `begun` the first begun_count elements, once it is open; of number `next`, done_count
     * elements have come back and are distributed. */
    bool has_inter, begun_open;
    uint64_t begun;
    int64_t begun_count, done_count;
    int flights;
    ech__inter inter;
    ech__coll mine[ECH__MAX_STARTED];
    ech__coll_times times[ECH__MAX_STARTED];
    ech__shm_map maps[ECH__MAX_REGIONS];
    int maps_end; /* all maps are below it */
} ech__shm;

static inline char *ech__shm_slot(const ech__shm *s, int rank, uint64_t turn)
{
    return s->slots + ((int64_t)rank * 2 + (int64_t)(turn & 1)) * ECH__SLOT;
}

/* Pointers may be invalid if bytes is 0. */
static inline void ech__shm_copy(void *dst, const void *src, int64_t bytes)
{
    if (bytes > 0)
        ech__reduce_best()->copy(dst, src, bytes);
}

/* The number of a rank in error messages. */
static inline int ech__shm_name(const ech__shm *s, int rank)
{
    return s->has_inter && s->inter.ranks ? s->inter.ranks[rank] : rank;
}

/* ---- nonblocking.c, nodes.c ---- */

/* This rank's descriptor of a started all-reduce, and another's. */
static inline ech__shm_started *ech__shm_entry(const ech__shm *s, int rank, uint64_t number)
{
    return &s->ranks[rank].ring[number % ECH__MAX_STARTED];
}

/* A slice of a started all-reduce, and where it is in every rank's memory. */
typedef struct ech__shm_part {
    ech__range range;
    void *at[ECH__MAX_RANKS_PER_NODE];
} ech__shm_part;

void ech__shm_find_part(const ech__shm *s, uint64_t number, ech__range range, ech__shm_part *out);
/* Whether every rank of the node has started it. */
bool ech__shm_ready(ech__shm *s, uint64_t number);
/* Fails where ranks have started different ones. */
ech_status ech__shm_compare(ech__shm *s, uint64_t number);
/* This rank is done with number `next`. */
void ech__shm_finish(ech__shm *s);
/* With other nodes: begins and ends at most one chunk each. */
ech_status ech__shm_nodes_step(ech__shm *s, bool *moved);

ech_status ech__shm_start(ech__comm *comm, const ech__coll *coll, uint64_t *ticket);
ech_status ech__shm_progress(ech__comm *comm);
ech_status ech__shm_step(ech__comm *comm, bool *moved, bool *busy);
ech_status ech__shm_wait(ech__comm *comm, uint64_t ticket, ech__coll_times *times);

/* ---- blocking.c, pair.c ---- */

ech_status ech__shm_run(ech__comm *comm, const ech__coll *coll);
ech_status ech__shm_send(ech__shm *s, const ech__coll *coll);
ech_status ech__shm_recv(ech__shm *s, const ech__coll *coll);
/* Bytes of all rings of pairs, and of the data in each. */
int64_t ech__shm_rings_bytes(int world, int64_t *ring_bytes);

/* Says what this rank is in from now on; compares with the other ranks in each turn. */
void ech__shm_begin(ech__shm *s, const ech__coll *coll, uint64_t where);
/* One turn: waits until all ranks have arrived in it. */
ech_status ech__shm_turn_over(ech__shm *s);

/* ---- region.c ---- */

ech_status ech__shm_alloc(ech__comm *comm, int64_t bytes, void **out);
void ech__shm_free(ech__comm *comm, void *ptr);
void ech__shm_free_all(ech__shm *s);
/* The position of the range in memory from ech__shm_alloc, as in ech__shm_desc.where; 0: not in
 * it. */
uint64_t ech__shm_find(const ech__shm *s, const void *ptr, int64_t bytes);
/* The same place in rank's part. */
char *ech__shm_place(const ech__shm *s, uint64_t where, int rank);
void *ech__shm_peer(ech__comm *comm, void *ptr, int index);

/* ---- wait.c ---- */

/* "allreduce #17 of 1000 f32" */
typedef struct ech__desc_text {
    char s[96];
} ech__desc_text;
ech__desc_text ech__shm_describe(const ech__shm_desc *desc, bool numbered);
void ech__shm_desc_write(ech__shm_desc *desc, const ech__coll *coll, uint64_t sequence,
                         uint64_t where);
bool ech__shm_desc_same(const ech__shm_desc *a, const ech__shm_desc *b);

/* Waits until *counter, which `rank` counts up, is at least `least`. doing is for messages. */
ech_status ech__shm_await(ech__shm *s, const _Atomic uint64_t *counter, uint64_t least, int rank,
                          const ech__shm_desc *doing);
/* Called after incrementing a counter of this rank: wakes the ranks that sleep. */
void ech__shm_ring_bell(ech__shm *s);
/* Stores the error message of this rank's failure for the others, wakes them, and returns
 * status. */
ech_status ech__shm_abort(ech__shm *s, ech_status status);
bool ech__shm_comm_abort(ech__comm *comm);
/* Fails once any rank has. */
ech_status ech__shm_alive(ech__shm *s);
/* One look at what ends a wait, for loops that poll: gives the failure. left_ns is what is left of
 * the time to wait. rank -1: the other nodes are waited for. */
ech_status ech__shm_check(ech__shm *s, int64_t left_ns, int rank, const ech__shm_desc *doing);
/* Fails because ranks are in different collectives. */
ech_status ech__shm_mismatch(ech__shm *s, int rank, const ech__shm_desc *mine,
                             const ech__shm_desc *other);
