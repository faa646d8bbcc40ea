#include "price/timeline.h"

void ech__timeline_begin(ech__timeline *t, const ech__cluster *cluster, ech__algorithm algorithm,
                         int64_t devices)
{
    *t = (ech__timeline){.cluster = cluster, .algorithm = algorithm, .devices = devices};
}

double ech__timeline_bucket(ech__timeline *t, double ready_s, int64_t bytes)
{
    const ech__collective_price price =
        ech__price_allreduce(t->cluster, t->algorithm, t->devices, bytes);
    const double start = ready_s > t->done_s ? ready_s : t->done_s;
    t->done_s = start + price.seconds;
    t->comm_s += price.seconds;
    t->busiest_bytes += price.busiest_bytes;
    return t->done_s;
}

ech__priced_step ech__price_step(const ech__priced_op *ops, size_t count,
                                 const ech__cluster *cluster, ech__algorithm algorithm,
                                 int64_t devices, double overhead_s)
{
    ech__priced_step step = {0};
    ech__timeline t;
    double now = overhead_s, sync = 0;
    ech__timeline_begin(&t, cluster, algorithm, devices);
    for (size_t i = 0; i < count; i++) {
        switch (ops[i].kind) {
        case ECH__PRICED_BUCKET: {
            const double done = ech__timeline_bucket(&t, now, ops[i].bytes);
            if (cluster->mover == ECH__MOVER_DEVICES) {
                step.exposed_s += done - now;
                now = done;
            }
            now += ops[i].seconds;
            step.compute_s += ops[i].seconds;
            break;
        }
        case ECH__PRICED_SYNC: {
            const ech__collective_price price =
                ech__price_allreduce(cluster, algorithm, devices, ops[i].bytes);
            now += price.seconds;
            sync += price.seconds;
            step.busiest_bytes += price.busiest_bytes;
            break;
        }
        case ECH__PRICED_WAIT:
            if (t.done_s > now) {
                step.exposed_s += t.done_s - now;
                now = t.done_s;
            }
            break;
        default:
            now += ops[i].seconds;
            step.compute_s += ops[i].seconds;
        }
    }
    step.step_s = now;
    step.exposed_s += sync;
    step.comm_s = t.comm_s + sync;
    /* The rest is rounding where all of it is exposed. */
    const double hidden = step.comm_s - step.exposed_s;
    step.hidden_s = hidden > 1e-9 * step.comm_s ? hidden : 0;
    step.busiest_bytes += t.busiest_bytes;
    return step;
}
