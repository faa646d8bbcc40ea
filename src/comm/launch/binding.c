#include "comm/launch/binding.h"

#include "device/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ech__binding_kind ech__binding_judge(const ech__cpus *masks, int ranks, int cores, bool *sharing,
                                     ech__cpus *mask)
{
    for (int r = 0; r < ranks; r++) {
        int same = 0;
        for (int other = 0; other < ranks; other++) {
            sharing[other] = ech__cpus_equal(&masks[r], &masks[other]);
            same += sharing[other];
        }
        *mask = masks[r];
        if (same == ranks && ranks > 1 && ech__cpus_count(mask) >= ranks)
            return ECH__BINDING_SHARE;
        if (same > ech__cpus_count(mask) && cores >= ranks)
            return ECH__BINDING_SHARED;
    }
    return ECH__BINDING_KEEP;
}

static ech_status take_share(ech_ctx *ctx, int local, int ranks)
{
    int cores[ECH__MAX_CPUS], count = 0;
    ECH_TRY(ech__machine_share_cores(ctx, local, ranks, cores, ECH__MAX_CPUS, &count));
    ech__cpus mine = {0};
    for (int i = 0; i < count; i++)
        ech__cpus_add(&mine, cores[i]);
    if (count > 0 && !ech__cpus_bind(&mine))
        return ech__fail(ctx, ECH_E_IO, "binding to %d cores from core %d on: %s", count, cores[0],
                         strerror(errno));
    return ECH_OK;
}

/* "0, 2, 5" */
static void list_numbers(char *text, size_t bytes, const int *numbers, int count)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < count && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%d", i ? ", " : "", numbers[i]);
}

static void warn(ech_ctx *ctx, const bool *sharing, const int *ids, int ranks,
                 const ech__cpus *mask, int cores)
{
    char who[128], where[128], host[65] = "this machine";
    int numbers[ECH__MAX_CPUS], count = 0;
    for (int r = 0; r < ranks && count < ECH__MAX_CPUS; r++) {
        if (sharing[r])
            numbers[count++] = ids[r];
    }
    list_numbers(who, sizeof who, numbers, count);
    count = 0;
    for (int c = 0; c < ECH__MAX_CPUS; c++) {
        if (ech__cpus_has(mask, c))
            numbers[count++] = c;
    }
    list_numbers(where, sizeof where, numbers, count);
    gethostname(host, sizeof host - 1);
    ech__log(ctx,
             "ranks %s are bound to core %s of %s, which has %d for its %d ranks: use mpirun "
             "--bind-to core, or --bind-to none",
             who, where, host, cores, ranks);
}

ech_status ech__binding_apply(ech_ctx *ctx, const ech__cpus *masks, const int *ids, int local,
                              int ranks)
{
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    bool *sharing = ech__new(ctx, (size_t)ranks * sizeof *sharing);
    ech__cpus mask;
    ech_status status = ECH_OK;
    if (!sharing)
        return ech__no_memory(ctx, "the binding of %d ranks", ranks);
    const ech__binding_kind what = ech__binding_judge(masks, ranks, cores, sharing, &mask);
    bool first = true;
    for (int r = 0; r < local; r++)
        first &= !sharing[r];
    if (what == ECH__BINDING_SHARE)
        status = take_share(ctx, local, ranks);
    else if (what == ECH__BINDING_SHARED && sharing[local] && first)
        warn(ctx, sharing, ids, ranks, &mask, cores);
    ech__delete(ctx, sharing, (size_t)ranks * sizeof *sharing);
    return status;
}
