/* Every collective with every type, over whatever transport the environment gives: run by scripts
 * under mpirun.
 *
 *     comm_prog_collectives [backend=auto|shm|mpi] [nodes=N] [algorithm=NAME] [quick=1] [reports=1] [die=RANK]
 *     [quit=RANK] [stop=RANK]
 *
 * Exits with 1 and a line for each wrong result. Rank 0 prints what it runs on, and digests of sums
 * whose last bits depend on their order, which must be the same over every transport. nodes: how
 * many there must be. quick: fewer types and counts. reports: only the reports of
 * steps, whose messages are counted. die, quit, stop: that rank kills itself, exits
 * with code 3, or stops, in the middle of all-reduces. */
#include "base/system/cpus.h"
#include "base/file/sha256.h"
#include "comm/comm.h"
#include "comm/mpi/mpi.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16, ECH_S32};
enum { TYPES = sizeof types / sizeof *types };

typedef struct run {
    ech_ctx *ctx;
    ech__comm *comm;
    int wrong;
    char *src, *dst; /* [world * MOST] elements of 8 bytes */
    char *shared;    /* [MOST] elements of 8 bytes, from ech__comm_alloc */
} run;

enum { MOST = 100003 };

static void complain(run *t, const char *what, ech_dtype dtype, int64_t count)
{
    printf("rank %d: wrong: %s, %lld %s\n", t->comm->rank, what, (long long)count,
           ech__dtype_name(dtype));
    fflush(stdout);
    t->wrong++;
}

static void must(run *t, ech_status status, const char *what)
{
    if (status == ECH_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", t->comm ? t->comm->rank : -1, what, ech_ctx_error(t->ctx));
    exit(1);
}

/* ---- exactly known values ---- */

/* A whole number of few bits in the given type. */
static void put(void *at, ech_dtype dtype, int value)
{
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint16_t bf16 = (uint16_t)(bits >> 16);
    const int exponent = (int)(bits >> 23 & 255) - 127 + 15;
    const uint16_t f16 =
        value ? (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff))
              : 0;
    const double d = value;
    const int32_t s32 = value;
    switch (dtype) {
    case ECH_F32:
        memcpy(at, &f, sizeof f);
        break;
    case ECH_F64:
        memcpy(at, &d, sizeof d);
        break;
    case ECH_BF16:
        memcpy(at, &bf16, sizeof bf16);
        break;
    case ECH_F16:
        memcpy(at, &f16, sizeof f16);
        break;
    default:
        memcpy(at, &s32, sizeof s32);
    }
}

/* What rank contributes at place i: multiples of the world, so that means are whole numbers too.
 * Sums have at most 8 bits. */
static int value_of(const run *t, int rank, int64_t i)
{
    const int range = t->comm->world > 4 ? 3 : 15;
    return ((int)((i * 7 + rank * 5) % range) - range / 3) * t->comm->world;
}

static int expected(const run *t, ech__reduction reduction, int64_t i)
{
    int sum = 0, max = value_of(t, 0, i);
    for (int r = 0; r < t->comm->world; r++) {
        const int v = value_of(t, r, i);
        sum += v;
        max = v > max ? v : max;
    }
    return reduction == ECH__REDUCTION_SUM   ? sum
           : reduction == ECH__REDUCTION_MAX ? max
                                             : sum / t->comm->world;
}

static void fill(const run *t, char *at, ech_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        put(at + i * ech__dtype_bytes(dtype), dtype, value_of(t, t->comm->rank, i));
}

/* Whether at[count] holds the values of f(first + i). */
static bool holds(const run *t, const char *at, ech_dtype dtype, int64_t count,
                  ech__reduction reduction, int64_t first)
{
    const int64_t unit = ech__dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
        char want[8];
        put(want, dtype, expected(t, reduction, first + i));
        if (memcmp(at + i * unit, want, (size_t)unit) != 0)
            return false;
    }
    return true;
}

static bool holds_of(const run *t, const char *at, ech_dtype dtype, int64_t count, int rank)
{
    const int64_t unit = ech__dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
        char want[8];
        put(want, dtype, value_of(t, rank, i));
        if (memcmp(at + i * unit, want, (size_t)unit) != 0)
            return false;
    }
    return true;
}

/* ---- cases ---- */

static void reductions(run *t, ech_dtype dtype, int64_t count)
{
    const int64_t unit = ech__dtype_bytes(dtype);
    for (int red = 0; red < ECH__REDUCTION_COUNT; red++) {
        if (dtype == ECH_S32 && red == ECH__REDUCTION_MEAN)
            continue;
        ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                       .reduction = (ech__reduction)red,
                       .dtype = dtype,
                       .count = count,
                       .src = t->src,
                       .dst = t->dst};
        fill(t, t->src, dtype, count);
        memset(t->dst, 0x55, (size_t)(count * unit));
        must(t, ech__comm_run(t->comm, &c), "allreduce");
        if (!holds(t, t->dst, dtype, count, c.reduction, 0) ||
            !holds_of(t, t->src, dtype, count, t->comm->rank))
            complain(t, "allreduce", dtype, count);
        c.dst = t->src;
        must(t, ech__comm_run(t->comm, &c), "allreduce in place");
        if (!holds(t, t->src, dtype, count, c.reduction, 0))
            complain(t, "allreduce in place", dtype, count);

        uint64_t ticket;
        ech__coll_times times;
        fill(t, t->shared, dtype, count);
        c.src = c.dst = t->shared;
        must(t, ech__comm_start(t->comm, &c, &ticket), "start");
        must(t, ech__comm_progress(t->comm), "progress");
        must(t, ech__comm_wait(t->comm, ticket, &times), "wait");
        if (!holds(t, t->shared, dtype, count, c.reduction, 0))
            complain(t, "started allreduce", dtype, count);
        if (times.ready_ns > times.done_ns || times.work_ns < 0)
            complain(t, "times of a started allreduce", dtype, count);

        const int64_t part = count / t->comm->world;
        c.op = ECH__COLL_REDUCE_SCATTER;
        c.count = part;
        c.src = t->src;
        c.dst = t->dst;
        fill(t, t->src, dtype, part * t->comm->world);
        must(t, ech__comm_run(t->comm, &c), "reduce_scatter");
        if (!holds(t, t->dst, dtype, part, c.reduction, part * t->comm->rank))
            complain(t, "reduce_scatter", dtype, part);
    }
}

static void copies(run *t, ech_dtype dtype, int64_t count)
{
    const int64_t unit = ech__dtype_bytes(dtype);
    const int world = t->comm->world, rank = t->comm->rank;
    ech__coll c = {.dtype = dtype, .count = count, .src = t->src, .dst = t->dst};
    fill(t, t->src, dtype, count);
    c.op = ECH__COLL_ALLGATHER;
    must(t, ech__comm_run(t->comm, &c), "allgather");
    for (int r = 0; r < world; r++) {
        if (!holds_of(t, t->dst + r * count * unit, dtype, count, r))
            complain(t, "allgather", dtype, count);
    }
    c.op = ECH__COLL_BROADCAST;
    for (c.peer = 0; c.peer < world; c.peer++) {
        fill(t, t->dst, dtype, count);
        must(t, ech__comm_run(t->comm, &c), "broadcast");
        if (!holds_of(t, t->dst, dtype, count, c.peer))
            complain(t, "broadcast", dtype, count);
    }
    /* Around a ring: even ranks send first. */
    if (world == 1)
        return;
    ech__coll send = c, recv = c;
    send.op = ECH__COLL_SEND;
    send.peer = (rank + 1) % world;
    recv.op = ECH__COLL_RECV;
    recv.peer = (rank + world - 1) % world;
    memset(t->dst, 0x55, (size_t)(count * unit));
    if (rank % 2 == 0)
        must(t, ech__comm_run(t->comm, &send), "send");
    must(t, ech__comm_run(t->comm, &recv), "recv");
    if (rank % 2 == 1)
        must(t, ech__comm_run(t->comm, &send), "send");
    if (!holds_of(t, t->dst, dtype, count, recv.peer))
        complain(t, "send and recv", dtype, count);
}

/* Several under way, waited for out of order, with blocking collectives between. */
static void overlapping(run *t)
{
    enum { PARTS = 7, EACH = 5003 };
    uint64_t tickets[PARTS];
    float *data = (float *)t->shared;
    fill(t, t->shared, ECH_F32, PARTS * EACH);
    for (int p = 0; p < PARTS; p++) {
        ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                       .dtype = ECH_F32,
                       .count = EACH,
                       .src = data + p * EACH,
                       .dst = data + p * EACH};
        must(t, ech__comm_start(t->comm, &c, &tickets[p]), "start");
        if (p == 2)
            must(t, ech__comm_barrier(t->comm), "barrier");
        if ((p + t->comm->rank) % 2)
            must(t, ech__comm_progress(t->comm), "progress");
    }
    copies(t, ECH_F32, 33);
    for (int p = PARTS - 1; p >= 0; p -= 2)
        must(t, ech__comm_wait(t->comm, tickets[p], NULL), "wait");
    for (int p = 0; p < PARTS; p++)
        must(t, ech__comm_wait(t->comm, tickets[p], NULL), "wait");
    if (!holds(t, t->shared, ECH_F32, PARTS * EACH, ECH__REDUCTION_SUM, 0))
        complain(t, "several started allreduces", ECH_F32, PARTS * EACH);
}

static void large(run *t)
{
    const int64_t count = 1500001;
    ech__coll c = {.op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = count};
    char *data = malloc((size_t)count * 4 * (size_t)(t->comm->world + 1));
    char *all = data + count * 4;
    if (!data)
        exit(1);
    fill(t, data, ECH_F32, count);
    c.src = c.dst = data;
    must(t, ech__comm_run(t->comm, &c), "large allreduce");
    if (!holds(t, data, ECH_F32, count, ECH__REDUCTION_SUM, 0))
        complain(t, "allreduce", ECH_F32, count);
    fill(t, data, ECH_F32, count);
    c.op = ECH__COLL_ALLGATHER;
    c.dst = all;
    must(t, ech__comm_run(t->comm, &c), "large allgather");
    for (int r = 0; r < t->comm->world; r++) {
        if (!holds_of(t, all + r * count * 4, ECH_F32, count, r))
            complain(t, "allgather", ECH_F32, count);
    }
    c.op = ECH__COLL_REDUCE_SCATTER;
    c.src = all;
    c.dst = data;
    fill(t, all, ECH_F32, count * t->comm->world);
    must(t, ech__comm_run(t->comm, &c), "large reduce_scatter");
    if (!holds(t, data, ECH_F32, count, ECH__REDUCTION_SUM, count * t->comm->rank))
        complain(t, "reduce_scatter", ECH_F32, count);
    c.op = ECH__COLL_BROADCAST;
    c.peer = t->comm->world - 1;
    fill(t, data, ECH_F32, count);
    must(t, ech__comm_run(t->comm, &c), "large broadcast");
    if (!holds_of(t, data, ECH_F32, count, c.peer))
        complain(t, "broadcast", ECH_F32, count);
    free(data);
}

/* ---- bits ---- */

/* Numbers of very different sizes, so that every order of a sum has bits of its own. */
static float rough(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i ^= i >> 29;
    i *= 0xbf58476d1ce4e5b9u;
    i ^= i >> 32;
    const float size[] = {1e-3F, 1.0F, 37.0F, 1e3F};
    return ((float)(i >> 40) / 16777216.0F - 0.5F) * size[i & 3];
}

static void fill_rough(const run *t, char *at, ech_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float f = rough((uint64_t)(i * 64 + t->comm->rank));
        const double d = f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        const uint16_t bf16 = (uint16_t)(bits >> 16);
        if (dtype == ECH_F32)
            memcpy(at + i * 4, &f, 4);
        else if (dtype == ECH_F64)
            memcpy(at + i * 8, &d, 8);
        else
            memcpy(at + i * 2, &bf16, 2);
    }
}

/* The digest of a result: the same on all ranks, or wrong. */
static void digest(run *t, const char *what, ech_dtype dtype, const char *data, int64_t count)
{
    char all[65 * 64];
    ech__sha256 sha;
    ech__sha256_init(&sha);
    ech__sha256_update(&sha, data, (size_t)(count * ech__dtype_bytes(dtype)));
    const ech__sha256_text mine = ech__sha256_final(&sha);
    must(t, ech__comm_allgather(t->comm, mine.s, all, sizeof mine.s), "digests");
    for (int r = 0; r < t->comm->world; r++) {
        if (strcmp(mine.s, all + r * 65) != 0)
            complain(t, what, dtype, count);
    }
    if (t->comm->rank == 0)
        printf("bits of %s %s: %.16s\n", what, ech__dtype_name(dtype), mine.s);
}

static void bits(run *t)
{
    const ech_dtype some[] = {ECH_F32, ECH_F64, ECH_BF16};
    const int64_t counts[] = {1001, 40009};
    for (int i = 0; i < 6; i++) {
        const ech_dtype dtype = some[i % 3];
        const int64_t count = counts[i / 3];
        ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                       .dtype = dtype,
                       .count = count,
                       .src = t->src,
                       .dst = t->dst};
        fill_rough(t, t->src, dtype, count);
        must(t, ech__comm_run(t->comm, &c), "allreduce");
        digest(t, "a sum of", dtype, t->dst, count);
        uint64_t ticket;
        fill_rough(t, t->shared, dtype, count);
        c.src = c.dst = t->shared;
        must(t, ech__comm_start(t->comm, &c, &ticket), "start");
        must(t, ech__comm_wait(t->comm, ticket, NULL), "wait");
        digest(t, "a started sum of", dtype, t->shared, count);
    }
}

/* ---- reports of steps ---- */

/* Every rank gets every rank's, by at most 2 log2 N messages of each; needs several nodes. */
static void reports(run *t)
{
    enum { BYTES = 200, STEPS = 5 };
    int most = 0;
    for (int n = 1; n < t->comm->world; n *= 2)
        most += 2;
    for (int step = 0; step < STEPS; step++) {
        const uint64_t before = ech__hier_messages(t->comm);
        for (int i = 0; i < BYTES; i++)
            t->src[i] = (char)(t->comm->rank * 7 + i * step);
        must(t, ech__comm_allgather(t->comm, t->src, t->dst, BYTES), "reports");
        const int sent = (int)(ech__hier_messages(t->comm) - before);
        for (int64_t i = 0; i < (int64_t)BYTES * t->comm->world; i++) {
            if (t->dst[i] != (char)(i / BYTES * 7 + i % BYTES * step))
                t->wrong++;
        }
        if (t->wrong || sent > most || sent < 1)
            complain(t, "reports of a step", ECH_U8, sent);
        must(t, ech__comm_barrier(t->comm), "barrier");
    }
    const int32_t sum = t->comm->world;
    int32_t ones = 1;
    const ech__coll count = {
        .op = ECH__COLL_ALLREDUCE, .dtype = ECH_S32, .count = 1, .src = &ones, .dst = &ones};
    must(t, ech__comm_run(t->comm, &count), "allreduce");
    if (ones != sum)
        complain(t, "allreduce", ECH_S32, 1);
    if (t->comm->rank == 0)
        printf("reports of %d ranks by at most %d messages each\n", t->comm->world, most);
}

/* ---- faults ---- */

/* All-reduces without end, in the middle of which one rank goes. */
static void go(run *t, int die, int quit, int stop)
{
    ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                   .dtype = ECH_F32,
                   .count = MOST,
                   .src = t->shared,
                   .dst = t->shared};
    for (int i = 0;; i++) {
        uint64_t ticket;
        if (i == 20 && t->comm->rank == die)
            raise(SIGKILL);
        if (i == 20 && t->comm->rank == quit) {
            ech__comm_close(t->comm);
            exit(3);
        }
        if (i == 20 && t->comm->rank == stop)
            raise(SIGSTOP);
        must(t, ech__comm_start(t->comm, &c, &ticket), "start");
        must(t, ech__comm_wait(t->comm, ticket, NULL), "wait");
        must(t, ech__comm_barrier(t->comm), "barrier");
    }
}

/* The inode of the memory that this rank shares with others; 0: none. */
static unsigned long shared_inode(void)
{
    char line[512];
    unsigned long inode = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !inode && fgets(line, sizeof line, maps)) {
        if (strstr(line, "/memfd:"))
            sscanf(line, "%*s %*s %*s %*s %lu", &inode);
    }
    if (maps)
        fclose(maps);
    return inode;
}

static void introduce(run *t)
{
    const ech__comm *c = t->comm;
    char host[65] = "";
    ech__cpus cpus;
    ech__cpus_read(&cpus);
    gethostname(host, sizeof host - 1);
    if (c->rank == 0)
        printf("%d ranks on %d nodes over %s\nalgorithm %s, %s\n", c->world, c->nodes,
               ech__backend_name(c->backend), ech__comm_algorithm(c).s,
               ech__comm_keeps_tree(c) ? "in the fixed tree" : "in another order");
    printf("rank %d, %d of %d on %s, may use %d cores, memory %lu\n", c->rank, c->local_rank,
           c->local_world, host, ech__cpus_count(&cpus), shared_inode());
    fflush(stdout);
}

static void log_line(void *user, const char *line)
{
    (void)user;
    printf("log: %s\n", line);
}

static int number(const char *text, const char *name, int otherwise)
{
    const size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && text[length] == '=' ? atoi(text + length + 1)
                                                                   : otherwise;
}

static void all_cases(run *t, bool quick)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 4099, MOST};
    for (int d = 0; d < TYPES; d += quick ? 2 : 1) {
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n += quick ? 4 : 1) {
            reductions(t, types[d], counts[n]);
            copies(t, types[d], counts[n]);
        }
    }
    must(t, ech__comm_barrier(t->comm), "barrier");
    overlapping(t);
    large(t);
    bits(t);
}

int main(int argc, char **argv)
{
    run t = {0};
    ech__comm_options o = {0};
    int nodes = 0, quick = 0, only_reports = 0, die = -1, quit = -1, stop = -1;
    for (int i = 1; i < argc; i++) {
        nodes = number(argv[i], "nodes", nodes);
        quick = number(argv[i], "quick", quick);
        only_reports = number(argv[i], "reports", only_reports);
        die = number(argv[i], "die", die);
        quit = number(argv[i], "quit", quit);
        stop = number(argv[i], "stop", stop);
        for (int b = 0; b <= ECH__BACKEND_MPI; b++) {
            if (strncmp(argv[i], "backend=", 8) == 0 &&
                strcmp(argv[i] + 8, ech__backend_name((ech__backend)b)) == 0)
                o.backend = (ech__backend)b;
        }
        for (int a = 0; a < ECH__ALGORITHM_COUNT; a++) {
            if (strncmp(argv[i], "algorithm=", 10) == 0 &&
                strcmp(argv[i] + 10, ech__algorithm_name((ech__algorithm)a)) == 0)
                o.algorithm = (ech__algorithm)a;
        }
    }
    if (ech_ctx_create(&(ech_ctx_options){.log = log_line}, &t.ctx) < 0)
        return 1;
    must(&t, ech__comm_open(t.ctx, &o, &t.comm), "open");
    const int64_t most = (int64_t)MOST * 8;
    t.src = malloc((size_t)(most * t.comm->world));
    t.dst = malloc((size_t)(most * t.comm->world));
    if (!t.src || !t.dst)
        return 1;
    must(&t, ech__comm_alloc(t.comm, most, (void **)&t.shared), "alloc");
    introduce(&t);
    if (nodes && nodes != t.comm->nodes) {
        printf("rank %d: wrong: %d nodes instead of %d\n", t.comm->rank, t.comm->nodes, nodes);
        t.wrong++;
    }
    /* The hosts of tests are one machine with one clock. */
    if (llabs((long long)t.comm->clock_offset_ns) > 1000000000) {
        printf("rank %d: wrong: clock is off by %lld ns\n", t.comm->rank,
               (long long)t.comm->clock_offset_ns);
        t.wrong++;
    }
    if (die >= 0 || quit >= 0 || stop >= 0)
        go(&t, die, quit, stop);
    if (only_reports)
        reports(&t);
    else
        all_cases(&t, quick != 0);
    ech__comm_free(t.comm, t.shared);
    ech__comm_close(t.comm);
    ech_ctx_destroy(t.ctx);
    free(t.src);
    free(t.dst);
    return t.wrong != 0;
}
