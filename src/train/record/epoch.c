/* Epochs of a run: their sums, and what is done and recorded at their end. */
#include "base/system/clock.h"
#include "train/run.h"

double ech__epoch_overhead(const ech__run_epoch *epoch)
{
    const double left = epoch->time_s - epoch->compute_s - epoch->data_s;
    return left > 0 ? left : 0;
}

void ech__run_add_to_epoch(ech__run *run, const ech__run_step *step, double wall_s)
{
    ech__epoch_sums *now = &run->now;
    const bool emulated = run->trainer->emulated;
    now->loss += step->result.loss * (double)step->samples;
    now->correct += step->correct;
    now->samples += step->samples;
    now->compute_s += step->result.time_s - (emulated ? step->loading_s : 0);
    now->data_s += emulated ? step->loading_s : step->data_s;
    now->time_s += emulated ? step->result.time_s : wall_s;
}

/* When another rank waits for data, rank 0 waits for it in the exchange. So the rank that waited
 * most counts. */
static ech_status find_most_data(const ech__run *run, double *data_s)
{
    ech__comm *comm = run->trainer->comm;
    if (!comm)
        return ECH_OK;
    double most = 0;
    const ech__coll largest = {.op = ECH__COLL_ALLREDUCE,
                               .reduction = ECH__REDUCTION_MAX,
                               .dtype = ECH_F64,
                               .count = 1,
                               .src = data_s,
                               .dst = &most};
    ECH_TRY(ech__comm_run(comm, &largest));
    *data_s = most;
    return ECH_OK;
}

static ech_status evaluate(ech__run *run, ech__run_epoch *epoch)
{
    const int64_t start = ech__clock_wall();
    ECH_TRY(ech__feed_evaluate(&run->feed, run->trainer, &run->model, &epoch->test));
    if (!run->trainer->emulated) /* evaluation is not on the virtual clock */
        epoch->evaluation_s = ech__seconds(ech__clock_wall() - start);
    return ECH_OK;
}

ech_status ech__run_end_epoch(ech__run *run, const ech__run_events *events)
{
    const ech__epoch_sums *now = &run->now;
    const double samples = (double)now->samples;
    if (run->epochs_done == run->nepochs) { /* of so short ones none is listed */
        run->now = (ech__epoch_sums){.samples = 0};
        return ECH_OK;
    }
    ech__run_epoch *epoch = &run->epochs[run->epochs_done++];
    *epoch = (ech__run_epoch){.epoch = run->epochs_done,
                              .samples = now->samples,
                              .time_s = now->time_s,
                              .compute_s = now->compute_s,
                              .data_s = now->data_s,
                              .loss = now->loss / samples,
                              .train_accuracy = now->correct / samples};
    run->now = (ech__epoch_sums){.samples = 0};
    if (!run->config.epochs) /* steps were asked for, which only happen to be as many */
        return ECH_OK;
    ECH_TRY(find_most_data(run, &epoch->data_s));
    ECH_TRY(evaluate(run, epoch));
    ECH_TRY(ech__drift_measure(&run->drift, run->trainer, run->epochs_done - 1, &epoch->drift));
    if (events && events->on_epoch && run->rank == 0)
        events->on_epoch(events->user, run, epoch);
    return ECH_OK;
}

ech__epoch_shares ech__run_epoch_shares(const ech__run *run)
{
    ech__epoch_shares all = {0};
    for (int64_t i = 0; i < run->epochs_done; i++) {
        const ech__run_epoch *e = &run->epochs[i];
        all.time_s += e->time_s;
        all.data += e->data_s;
        all.overhead += ech__epoch_overhead(e);
        all.evaluation += e->evaluation_s;
    }
    if (all.time_s > 0) {
        all.data /= all.time_s;
        all.overhead /= all.time_s;
        all.evaluation /= all.time_s;
    }
    return all;
}
