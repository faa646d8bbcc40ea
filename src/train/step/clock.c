#include "train/step/clock.h"
#include "base/names.h"
#include "base/system/cpus.h"
#include "comm/comm.h"
#include "device/device.h"
#include "parallel/strategy.h"
#include "price/costs.h"

#include <stdlib.h>
#include <string.h>

/* ---- cores ---- */

typedef struct rank_cores {
    ech__cpus cores; /* that a rank may use */
    int node;
} rank_cores;

/* Ranks on a node, and the cores that they have together. */
static ech__core_share share_of_node(const rank_cores *ranks, int world, int node)
{
    ech__cpus together = {0};
    ech__core_share share = {0};
    for (int r = 0; r < world; r++) {
        if (ranks[r].node != node)
            continue;
        ech__cpus_add_all(&together, &ranks[r].cores);
        share.devices++;
    }
    share.cores = ech__cpus_count(&together);
    return share;
}

static bool is_scarcer(const ech__core_share *a, const ech__core_share *b)
{
    return (int64_t)a->devices * b->cores > (int64_t)b->devices * a->cores;
}

ech_status ech__core_share_find(ech_ctx *ctx, const ech_train_options *o, ech__core_share *out)
{
    ech__comm *comm = o->ddp.group ? o->ddp.group->comm : NULL;
    const int each = ech__strategy_devices(o);
    *out = (ech__core_share){.devices = each, .cores = ech__device_cores(), .one_machine = true};
    if (!comm || comm->world == 1)
        return ECH_OK;
    rank_cores mine = {.node = comm->node};
    rank_cores *all = ech__new(ctx, (size_t)comm->world * sizeof *all);
    if (!all)
        return ech__no_memory(ctx, "the cores of %d ranks", comm->world);
    ech__cpus_read(&mine.cores);
    const ech_status status = ech__comm_allgather(comm, &mine, all, (int64_t)sizeof mine);
    *out = (ech__core_share){.cores = 1};
    for (int r = 0; status == ECH_OK && r < comm->world; r++) {
        ech__core_share share = share_of_node(all, comm->world, all[r].node);
        share.devices *= each;
        if (is_scarcer(&share, out))
            *out = share;
    }
    out->one_machine = comm->local_world == comm->world;
    ech__delete(ctx, all, (size_t)comm->world * sizeof *all);
    return status;
}

/* ---- choice ---- */

ech_status ech__clock_choose(ech_ctx *ctx, const ech__core_share *share, ech_train_options *o,
                             ech__clock_kind *kind)
{
    const ech__spread_by by = ech__strategy_of(o);
    const bool possible = !ech__strategy_refusal(by, ECH__FEATURE_VIRTUAL) && o->threads <= 1;
    if (*kind == ECH__CLOCK_AUTO)
        *kind = share->devices > share->cores && share->one_machine && possible ? ECH__CLOCK_VIRTUAL
                                                                                : ECH__CLOCK_REAL;
    if (*kind == ECH__CLOCK_REAL)
        return ECH_OK;
    ECH_TRY(ech__strategy_check(ctx, by, ECH__FEATURE_BIT(VIRTUAL)));
    if (o->threads > 1)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%d threads: the virtual clock supports one thread per device",
                         o->threads);
    o->threads = 1;
    return ECH_OK;
}

/* ---- what a program is asked ---- */

/* Bytes of one exchange, by which the price of memory is looked up: all gradients, or a full
 * bucket. 0: unknown. */
static int64_t bytes_at_a_time(const ech_graph *graph, int64_t bucket_bytes)
{
    int64_t all = 0, largest = bucket_bytes, elements;
    for (size_t v = 0; graph && v < graph->nvalues; v++) {
        if (graph->values[v].kind != ECH__VALUE_PARAM ||
            !ech__shape_elems(&graph->values[v].type.shape, &elements))
            continue;
        const int64_t bytes = elements * (int64_t)sizeof(float);
        all += bytes;
        largest = bytes > largest ? bytes : largest;
    }
    return largest < all ? largest : all;
}

ech__emulation ech__emulation_here(ech_ctx *ctx, const ech_graph *graph, int64_t bucket_bytes)
{
    ech__emulation e = {.cluster = ech__cluster_defaults(), .algorithm = ECH__ALGORITHM_DIRECT};
    char path[4096];
    ech__costs *costs;
    if (ech__costs_default_path(ctx, path, sizeof path) == ECH_OK && *path &&
        ech__costs_open(ctx, path, NULL, &costs) == ECH_OK) {
        const int64_t bytes = bytes_at_a_time(graph, bucket_bytes);
        if (ech__costs_link(costs, bytes, false, &e.cluster.inside)) {
            e.cluster.between = e.cluster.inside;
            e.cluster.source = ECH__LINK_MEASURED;
        }
        ech__costs_close(costs);
    }
    ctx->error[0] = 0;
    return e;
}

ECH__NAMES(ech__clock_kind_name, ech__clock_kind, ECH__CLOCK_LIST)

static ech_status clock_named(ech_ctx *ctx, const char *name, ech__clock_kind *out)
{
    for (*out = ECH__CLOCK_AUTO; *out <= ECH__CLOCK_VIRTUAL; ++*out) {
        if (!strcmp(name, ech__clock_kind_name(*out)))
            return ECH_OK;
    }
    return ech__fail(ctx, ECH_E_INVALID, "ECHELON_CLOCK '%.40s': must be auto, real or virtual",
                     name);
}

ech_status ech__clock_asked(ech_ctx *ctx, const ech_graph *graph, int64_t bucket_bytes,
                            ech__clock_kind *kind, ech__emulation *emulation)
{
    const char *clock = getenv("ECHELON_CLOCK"), *link = getenv("ECHELON_LINK");
    *kind = ECH__CLOCK_REAL;
    if (clock && *clock)
        ECH_TRY(clock_named(ctx, clock, kind));
    if (*kind == ECH__CLOCK_REAL)
        return ECH_OK;
    *emulation = ech__emulation_here(ctx, graph, bucket_bytes);
    if (!link || !*link)
        return ECH_OK;
    emulation->algorithm = ECH__ALGORITHM_BEST; /* of a link that is given, as echelon train does */
    const ech_status status = ech__cluster_of_link(ctx, link, ECH__NODE_SIZE, &emulation->cluster);
    return status < 0 ? ech__fail_in(ctx, status, "ECHELON_LINK") : ECH_OK;
}
