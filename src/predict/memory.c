#include "predict/memory.h"
#include "predict/capacity.h"

static ech_status plan(ech_ctx *ctx, const ech__planned_memory *m, int64_t devices, int64_t global,
                       int64_t samples, int64_t *out)
{
    ech__run_config c = *m->config;
    ech__capacity capacity;
    ech__need need;
    const ech__strategy_row *row = ech__strategy_row_of(m->strategy);
    const bool layers = row->cuts_model && devices > 1;
    c.global_batch = 0;
    c.train.batch = samples;
    c.train.ddp.group = NULL;
    ech__strategy_set(&c.train, m->strategy, row->cuts_model && !layers ? 0 : (int)devices);
    c.train.pipeline.micro_batches =
        layers ? ech__strategy_micros(m->strategy, m->config, devices, global) : 0;
    ECH_TRY(ech__capacity_init(ctx, &c, 1, &capacity));
    if (row->has_ranks && devices > 1)
        capacity.devices = 2; /* with more ranks each needs as much */
    ECH_TRY(ech__capacity_need(&capacity, samples, &need));
    if (!need.countable)
        return ech__fail(ctx, ECH_E_LIMIT,
                         "a batch of %lld samples: its sizes cannot be counted in 64 bits",
                         (long long)samples);
    *out = need.total;
    return ECH_OK;
}

ech_status ech__planned_memory_at(ech_ctx *ctx, ech__planned_memory *m, int64_t devices,
                                  int64_t global, int64_t *out)
{
    const bool ranks = ech__strategy_row_of(m->strategy)->has_ranks;
    const int64_t samples =
        ranks ? ech__strategy_batch(m->strategy, m->config, devices, global) : global;
    const int64_t alike = ranks && devices > 1 ? 2 : devices;
    for (int i = 0; i < ECH__MOST_PLANNED; i++) {
        if (m->kept[i].devices == alike && m->kept[i].samples == samples) {
            *out = m->kept[i].bytes;
            return ECH_OK;
        }
    }
    ECH_TRY(plan(ctx, m, devices, global, samples, out));
    const size_t at = m->count++ % ECH__MOST_PLANNED;
    m->kept[at].devices = alike;
    m->kept[at].samples = samples;
    m->kept[at].bytes = *out;
    return ECH_OK;
}
