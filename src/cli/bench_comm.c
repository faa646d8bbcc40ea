/* echelon bench comm: collectives between ranks, in the columns of nccl-tests. */
#include "base/format.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/train/ranks.h"
#include "comm/bench.h"
#include "comm/collective/reduce.h"
#include "comm/mpi/mpi.h"
#include "device/machine.h"

#include <math.h>
#include <stdio.h>

typedef struct args {
    ech__bench_config config; /* its op is the one to time, or ALL_OPS */
    int64_t ranks;
    int backend, algorithm, in_place;
    const char *isa;
    bool json;
} args;

#define ALL_OPS ECH__BENCH_COUNT

static const int dtypes[] = {ECH_F32, ECH_BF16, ECH_F16, ECH_S32};

static const ech__option options[] = {
    ECH_ROW(INT, args, ranks, "ranks",
            "Ranks to start on this machine. Default: one per core, but at least 2. Under mpirun, "
            "its ranks are used.",
            .letter = 'n', .arg = "N", .min = 1, .max = ECH__MAX_RANKS_PER_NODE, .group = "Ranks"),
    ECH_ROW(CHOICE, args, backend, "backend",
            "shm: shared memory; mpi: MPI, also intra-node; auto: shared memory intra-node and "
            "MPI inter-node.",
            .choices = ECH__BACKEND_LIST(ECH_OPTION_WORD), .initial = "auto"),
    ECH_ROW(CHOICE, args, algorithm, "algorithm",
            "Algorithm of allreduce between nodes; the head of the output says what runs. Inside "
            "one node it is always direct, through shared memory. What is not run here is run as "
            "direct." ECH__ALGORITHM_HELP,
            .choices = ECH__ALGORITHM_LIST(ECH_OPTION_WORD), .initial = "best"),
    ECH_ROW(CHOICE, args, config.op, "op",
            "Collective to time. broadcast sends from rank 0; in sendrecv each rank sends to the "
            "next.",
            .choices = ECH__BENCH_OP_LIST(ECH_OPTION_WORD) "|all", .initial = "allreduce",
            .group = "What to run"),
    ECH_ROW(CHOICE, args, config.reduction, "reduction",
            "Reduction of allreduce and reduce_scatter. mean does not support s32.",
            .choices = ECH__REDUCTION_LIST(ECH_OPTION_WORD), .initial = "sum"),
    ECH_ROW(CHOICE, args, config.dtype, "dtype", "Data type of the elements.",
            .choices = "f32|bf16|f16|s32", .values = dtypes, .initial = "f32"),
    ECH_ROW(CHOICE, args, in_place, "in-place",
            "For allreduce. on: in place in shared memory, as for gradients; off: between private "
            "buffers.",
            .choices = "off|on", .initial = "on"),
    ECH_ROW(BYTES, args, config.min_bytes, "min",
            "Smallest size, rounded down to whole elements. For reduce_scatter and allgather it is "
            "the size on all ranks together.",
            .arg = "BYTES", .initial = "4K", .min = 1, .max = HUGE_VAL, .group = "Sizes and times"),
    ECH_ROW(BYTES, args, config.max_bytes, "max", "Largest size.", .arg = "BYTES", .initial = "64M",
            .min = 1, .max = HUGE_VAL),
    ECH_ROW(INT, args, config.factor, "factor", "Factor between sizes.", .arg = "N", .initial = "2",
            .min = 2, .max = 1 << 30),
    ECH_ROW(COUNT, args, config.iters, "iters",
            "Timed iterations per size. Operations that are too short for the clock are timed in "
            "batches; an iteration is then a batch.",
            .arg = "N", .initial = "20", .min = 1, .max = ECH__BENCH_MAX_ITERS),
    ECH_ROW(COUNT, args, config.warmup, "warmup", "Warm-up runs per size.", .arg = "N",
            .initial = "5", .min = 0, .max = 1e6),
    ECH__ROW_ISA(args, isa),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object.", .group = "Output"),
};

static const ech__option_example examples[] = {
    {"echelon bench comm -n 2", "all-reduce between two ranks, from 4 KiB to 64 MiB"},
    {"echelon bench comm -n 3 --op all --dtype bf16 --max 1M", "every collective, in bf16"},
    {"mpirun -np 4 echelon bench comm --backend mpi", "MPI between all ranks"},
    {"mpirun -np 4 echelon bench comm --backend mpi --algorithm ring",
     "the same, with all-reduces around a ring"},
};

/* ---- arguments -> configuration ---- */

static ech__bench_config config_of(const args *a, ech__bench_op op)
{
    ech__bench_config config = a->config;
    config.op = op;
    config.in_place = a->in_place;
    return config;
}

/* The ops that are asked for; one rank alone has no peer. */
static bool wanted(const args *a, int op, int world)
{
    const int asked = (int)a->config.op;
    return asked == op || (asked == ALL_OPS && (world > 1 || op != ECH__BENCH_SENDRECV));
}

static ech_status check(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    const ech__bench_config *c = &a->config;
    if (c->min_bytes > c->max_bytes)
        return ech__fail(ctx, ECH_E_INVALID, "--min %lld is larger than --max %lld",
                         (long long)c->min_bytes, (long long)c->max_bytes);
    if (c->dtype == ECH_S32 && c->reduction == ECH__REDUCTION_MEAN)
        return ech__fail(ctx, ECH_E_INVALID, "--reduction mean does not support --dtype s32");
    if (c->op == ECH__BENCH_SENDRECV && a->ranks == 1)
        return ech__fail(ctx, ECH_E_INVALID, "--op sendrecv needs at least 2 ranks, got 1");
    return ECH_OK;
}

/* ranks: those on this machine. */
static ech_status check_memory(ech_ctx *ctx, const args *a, int ranks, int world)
{
    ech__machine machine;
    ECH_TRY(ech__machine_read(ctx, &machine));
    for (int op = 0; op < ECH__BENCH_COUNT; op++) {
        if (!wanted(a, op, world))
            continue;
        const ech__bench_config c = config_of(a, (ech__bench_op)op);
        int64_t bytes;
        if (!ech__bench_bytes(&c, world, &bytes) || !ech__mul(bytes, ranks, &bytes))
            bytes = INT64_MAX;
        if (bytes > machine.memory_bytes)
            return ech__fail(ctx, ECH_E_LIMIT,
                             "--max %lld: %s on %d ranks needs %s of memory; this machine has %s",
                             (long long)c.max_bytes, ech__bench_op_name(c.op), ranks,
                             ech__format_bytes(bytes).s, ech__format_bytes(machine.memory_bytes).s);
    }
    return ECH_OK;
}

/* ---- what rank 0 prints ---- */

typedef struct show {
    bool json, quiet; /* quiet: another rank prints */
    int op;           /* whose heading stands; -1: none */
    double busbw_sum; /* of rows that have one */
    int busbw_rows;
    int64_t wrong;
    ech_json *results;
} show;

static void append_row(ech_json **results, const ech__bench_row *row)
{
    ech_json *json = ECH__JSON(
        ech__string("op", ech__bench_op_name(row->op)), ech__int("ranks", row->ranks),
        ech__int("bytes", row->bytes), ech__int("count", row->count),
        ech__string("dtype", ech__dtype_name(row->dtype)),
        ech__string("reduction",
                    ech__bench_op_reduces(row->op) ? ech__reduction_name(row->reduction) : NULL),
        ech__bool("in_place", row->in_place), ech__real("time_s", row->time_s),
        ech__real("algbw_gbs", row->algbw_gbs), ech__real("busbw_gbs", row->busbw_gbs),
        ech__int("wrong", row->wrong), ech__reals("samples_s", row->samples_s, (size_t)row->iters));
    ech__json_append(results, json);
}

static void print_row(show *s, const ech__bench_row *row)
{
    if (s->op != (int)row->op) {
        printf("#\n# %s%s\n", ech__bench_op_name(row->op), row->in_place ? ", in place" : "");
        printf("#%12s %13s %6s %6s %11s %9s %9s %8s\n", "size", "count", "type", "redop", "time",
               "algbw", "busbw", "#wrong");
        printf("#%12s %13s %6s %6s %11s %9s %9s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
               "(GB/s)");
        s->op = (int)row->op;
    }
    printf("%13lld %13lld %6s %6s %11.2f %9.2f %9.2f %8lld\n", (long long)row->bytes,
           (long long)row->count, ech__dtype_name(row->dtype),
           ech__bench_op_reduces(row->op) ? ech__reduction_name(row->reduction) : "none",
           row->time_s * 1e6, row->algbw_gbs, row->busbw_gbs, (long long)row->wrong);
    fflush(stdout);
}

static void on_row(void *user, const ech__bench_row *row)
{
    show *s = user;
    s->wrong += row->wrong;
    if (row->op != ECH__BENCH_BARRIER) {
        s->busbw_sum += row->busbw_gbs;
        s->busbw_rows++;
    }
    if (s->json)
        append_row(&s->results, row);
    else if (!s->quiet)
        print_row(s, row);
}

static const char *transport_of(const ech__comm *comm)
{
    return comm->world == 1 ? "alone" : ech__backend_name(comm->backend);
}

static void print_head(const ech__comm *comm, ech__bench_place place, const args *a)
{
    printf("# %d rank%s on %d core%s, ", comm->world, comm->world == 1 ? "" : "s", place.cores,
           place.cores == 1 ? "" : "s");
    if (place.hosts > 1)
        printf("%d machines, ", place.hosts);
    printf("transport %s; %d warm-up runs, median of %d iterations\n", transport_of(comm),
           a->config.warmup, a->config.iters);
    if (comm->world > 1 && (comm->nodes > 1 || a->algorithm))
        printf("# allreduce: %s\n", ech__comm_algorithm(comm).s);
}

/* Takes s->results over. */
static ech_status print_json(const ech__comm *comm, ech__bench_place place, show *s, double average)
{
    ech_json *json = ECH__JSON(
        ech__int("ranks", comm->world), ech__int("machines", place.hosts),
        ech__int("cores", place.cores), ech__string("transport", transport_of(comm)),
        ech__int("nodes", comm->nodes),
        ech__string("algorithm", comm->world > 1 ? ech__algorithm_name(comm->algorithm) : NULL),
        ech__member("results", s->results), ech__real("average_busbw_gbs", average));
    s->results = NULL;
    return ech__cli_json(comm->ctx, json);
}

/* ---- a rank ---- */

static ech_status measure(ech__comm *comm, const args *a, show *s)
{
    ech__bench_place place;
    ECH_TRY(check_memory(comm->ctx, a, comm->local_world, comm->world));
    ECH_TRY(ech__bench_find(comm, &place));
    if (!s->json && !s->quiet)
        print_head(comm, place, a);
    for (int op = 0; op < ECH__BENCH_COUNT; op++) {
        const ech__bench_config config = config_of(a, (ech__bench_op)op);
        if (wanted(a, op, comm->world))
            ECH_TRY(ech__bench_comm(comm, &config, on_row, s));
    }
    const double average = s->busbw_rows ? s->busbw_sum / s->busbw_rows : 0;
    if (s->json && !s->quiet)
        ECH_TRY(print_json(comm, place, s, average));
    else if (!s->quiet)
        printf("#\n# average bus bandwidth: %.4g GB/s\n", average);
    /* Once is enough. */
    if (s->wrong && !s->quiet)
        return ech__fail(comm->ctx, ECH_E_INTERNAL, "%lld elements are wrong", (long long)s->wrong);
    return ECH_OK;
}

static int run_rank(ech_ctx *ctx, const ech__command *command, const args *a)
{
    ech__comm *comm;
    const ech__comm_options o = {.backend = (ech__backend)a->backend,
                                 .algorithm = (ech__algorithm)a->algorithm};
    ECH_TRY(ech__comm_open(ctx, &o, &comm));
    show s = {.json = a->json, .quiet = comm->rank != 0, .op = -1, .results = ech__json_array()};
    ech_status status;
    if (a->ranks && a->ranks != comm->world)
        status = ech__fail(ctx, ECH_E_INVALID, "-n %lld: the launcher already started %d ranks",
                           (long long)a->ranks, comm->world);
    else
        status = measure(comm, a, &s);
    const int code =
        status < 0 ? ech__cli_fail_rank(comm, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    ech__json_destroy(s.results);
    ech__comm_close(comm);
    return code;
}

static int launch(ech_ctx *ctx, const ech__command *command, const args *a, char **argv)
{
    if (a->backend == ECH__BACKEND_MPI) {
        ech__fail(ctx, ECH_E_INVALID,
                  "--backend mpi needs mpirun: mpirun -np 2 echelon bench comm");
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    }
    ech__cores own;
    ECH_TRY(ech__machine_cores(ctx, &own));
    const int cores = own.cores > 2 ? own.cores : 2;
    const int most = cores < ECH__MAX_RANKS_PER_NODE ? cores : ECH__MAX_RANKS_PER_NODE;
    const int ranks = a->ranks ? (int)a->ranks : most;
    ECH_TRY(check_memory(ctx, a, ranks, ranks));
    return ech__cli_launch(ctx, command, ranks, 0, argv, false);
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    if (a->ranks == 1 || ech__cli_is_rank() || ech__mpi_wanted())
        return run_rank(ctx, given->command, a);
    return launch(ctx, given->command, a, given->argv);
}

const ech__command ech__cli_bench_comm = {
    .name = "bench comm",
    .brief = "time collectives between ranks and check their results",
    .about = "Columns as in nccl-tests: algbw is size / time; busbw is that times 2(n-1)/n for "
             "allreduce and (n-1)/n for reduce_scatter and allgather, so that it can be compared "
             "with the bandwidth of the memory or the network for any number of ranks. A time is "
             "the median over iterations of the slowest rank. Every rank checks every result "
             "against a result that is known exactly; #wrong counts the elements that differ, and "
             "the exit code is 1 if there are any.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
    .check = check,
};
