#include "comm/comm.h"

#include "comm/collective/reduce.h"
#include "comm/mpi/mpi.h"
#include "comm/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* What the environment says about this process, read and checked before anything is opened. */
typedef struct place {
    int rank, world, local_rank, local_world;
    int fd; /* -1: not started by the launcher */
    int restarts;
    bool named; /* RANK or WORLD_SIZE is set */
} place;

static const char *const how_to =
    "start ranks with \"echelon run -n N -- PROGRAM\", or with mpirun";

/* A whole number from `least` to `most`. found tells whether the variable is set at all. */
static ech_status read_int(ech_ctx *ctx, const char *name, int least, int most, int *out,
                           bool *found)
{
    const char *text = getenv(name);
    *found = text != NULL;
    if (!text)
        return ECH_OK;
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || errno)
        return ech__fail(ctx, ECH_E_INVALID, "%s is \"%.64s\": it must be a whole number", name,
                         text);
    if (value < least || value > most)
        return ech__fail(ctx, ECH_E_INVALID, "%s is %ld: it must be from %d to %d", name, value,
                         least, most);
    *out = (int)value;
    return ECH_OK;
}

ech_status ech__comm_timeout(ech_ctx *ctx, double *out)
{
    *out = 600;
    const char *text = getenv("ECHELON_TIMEOUT");
    if (!text)
        return ECH_OK;
    const double most = 1e9; /* 31 years; nanoseconds are counted in 64 bits */
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= most))
        return ech__fail(ctx, ECH_E_INVALID,
                         "ECHELON_TIMEOUT is \"%s\": it must be a number of seconds above 0 and at "
                         "most %g",
                         text, most);
    *out = value;
    return ECH_OK;
}

/* One of RANK and WORLD_SIZE needs the other, and the rank must be in the world. */
static ech_status read_pair(ech_ctx *ctx, const char *rank_name, const char *world_name, int *rank,
                            int *world, bool *found)
{
    bool has_rank, has_world;
    const int most = 1 << 20;
    ECH_TRY(read_int(ctx, rank_name, 0, most, rank, &has_rank));
    ECH_TRY(read_int(ctx, world_name, 1, most, world, &has_world));
    if (has_rank != has_world)
        return ech__fail(ctx, ECH_E_INVALID, "%s is set and %s is not: %s",
                         has_rank ? rank_name : world_name, has_rank ? world_name : rank_name,
                         how_to);
    if (has_rank && *rank >= *world)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s is %d and %s is %d: a rank is below the world's size", rank_name,
                         *rank, world_name, *world);
    *found = has_rank;
    return ECH_OK;
}

static ech_status read_place(ech_ctx *ctx, place *out)
{
    bool has_fd, has_local, ignored;
    *out = (place){.world = 1, .local_world = 1, .fd = -1};
    ECH_TRY(read_int(ctx, "ECHELON_COMM_FD", 0, 1 << 20, &out->fd, &has_fd));
    ECH_TRY(read_pair(ctx, "RANK", "WORLD_SIZE", &out->rank, &out->world, &out->named));
    out->local_rank = out->rank;
    out->local_world = out->world;
    ECH_TRY(read_pair(ctx, "LOCAL_RANK", "LOCAL_WORLD_SIZE", &out->local_rank, &out->local_world,
                      &has_local));
    ECH_TRY(read_int(ctx, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, &out->restarts, &ignored));
    return ECH_OK;
}

static ech_status open_shm(ech_ctx *ctx, const place *at, double timeout_s, ech__comm **out)
{
    if (!at->named)
        return ech__fail(ctx, ECH_E_INVALID,
                         "ECHELON_COMM_FD is %d, but RANK and WORLD_SIZE are not set: %s", at->fd,
                         how_to);
    if (at->world > ECH__MAX_RANKS_PER_NODE)
        return ech__fail(ctx, ECH_E_LIMIT, "WORLD_SIZE is %d: a node has at most %d ranks",
                         at->world, (int)ECH__MAX_RANKS_PER_NODE);
    if (at->local_rank != at->rank || at->local_world != at->world)
        return ech__fail(ctx, ECH_E_INVALID,
                         "RANK is %d of %d and LOCAL_RANK %d of %d: ranks of several machines are "
                         "started with mpirun",
                         at->rank, at->world, at->local_rank, at->local_world);
    if (ech__shm_join(ctx, at->fd, at->rank, at->world, timeout_s, out) < 0)
        return ech__fail_in(ctx, ECH_E_INVALID, "ECHELON_COMM_FD is %d", at->fd);
    /* What this process starts is no rank. */
    fcntl(at->fd, F_SETFD, FD_CLOEXEC);
    return ECH_OK;
}

static ech_status open_alone(ech_ctx *ctx, const place *at, double timeout_s, ech__comm **out)
{
    if (at->world != 1)
        return ech__fail(ctx, ECH_E_INVALID,
                         "RANK is %d and WORLD_SIZE is %d, but nothing connects the ranks: %s",
                         at->rank, at->world, how_to);
    return ech__solo_open(ctx, timeout_s, out);
}

ech_status ech__comm_open(ech_ctx *ctx, const ech__comm_options *options, ech__comm **out)
{
    *out = NULL;
    place at;
    double timeout_s;
    ECH_TRY(ech__comm_timeout(ctx, &timeout_s));
    if (options->timeout_s > 0)
        timeout_s = options->timeout_s;
    /* MPI is more reliable than variables that another launcher may have left in the
     * environment. */
    if (!getenv("ECHELON_COMM_FD") && ech__mpi_wanted())
        return ech__mpi_open(ctx,
                             &(ech__comm_options){.backend = options->backend,
                                                  .timeout_s = timeout_s,
                                                  .algorithm = options->algorithm},
                             out);
    ECH_TRY(read_place(ctx, &at));
    if (options->backend == ECH__BACKEND_MPI)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--backend mpi needs mpirun: mpirun -np 2 echelon "
                         "train ...");
    if (at.fd >= 0)
        ECH_TRY(open_shm(ctx, &at, timeout_s, out));
    else
        ECH_TRY(open_alone(ctx, &at, timeout_s, out));
    (*out)->restarts = at.restarts;
    (*out)->asked = options->algorithm;
    (*out)->algorithm = ECH__ALGORITHM_DIRECT;
    return ECH_OK;
}
