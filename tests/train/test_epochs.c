/* What is recorded of epochs: losses and accuracies over ranks whose shares are uneven, times, and how far running
 * statistics drift apart between ranks that do not broadcast them.
 *
 * Ranks are threads here. With a learning rate of 0 an epoch's loss is the mean over its samples at
 * the initial parameters, which does not depend on how they are shared out. */
#include "comm/comm.h"
#include "support/ranks.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4, EPOCHS = 2, CHANNELS = 16 };

typedef struct job {
    ech__run_config config;
    ech__run_epoch epochs[EPOCHS]; /* as rank 0 has them */
    ech__epoch_shares shares;
    size_t layers;                    /* with a drift of their own, in the last epoch */
    ech__drift first_layer;           /* "bn1" */
    float mean[MOST_RANKS][CHANNELS]; /* bn1's running statistics on each rank */
    float variance[MOST_RANKS][CHANNELS];
    int64_t buffer_bytes;
    double buffers_s;
} job;

static ech__run_config config_of(ech__model_kind model, int64_t global, int64_t limit)
{
    ech__run_config c = ech__run_defaults();
    c.model.kind = model;
    c.global_batch = global;
    c.limit = limit;
    c.epochs = EPOCHS;
    c.warmup = 0;
    c.train.threads = 1;
    c.train.tune = false;
    c.train.seed = 3;
    c.train.optimizer.lr = 0;
    return c;
}

static void keep(const ech__run *run, job *j)
{
    memcpy(j->epochs, run->epochs, sizeof j->epochs);
    j->shares = ech__run_epoch_shares(run);
    j->buffer_bytes = run->traffic.bytes.buffers;
    j->buffers_s = run->traffic.buffers_s;
    const ech__drift *layers = ech__drift_layers(&run->drift, EPOCHS - 1);
    j->layers = layers ? run->drift.nlayers : 0;
    for (size_t k = 0; k < j->layers; k++) {
        if (!strcmp(run->drift.names[k], "bn1"))
            j->first_layer = layers[k];
    }
}

static void work(ech__comm *comm, void *user)
{
    job *j = user;
    ech_group group = {comm, false};
    ech__run_config c = j->config;
    ech__run *run;
    c.train.ddp.group = &group;
    RANK_OK(ech__run_create(comm->ctx, &c, &run));
    RANK_OK(ech__run_steps(run, NULL));
    RANK_CHECK(run->epochs_done == EPOCHS);
    if (comm->rank == 0)
        keep(run, j);
    if (c.model.kind == ECH__MODEL_RESNET8) {
        const size_t bytes = CHANNELS * sizeof(float);
        RANK_OK(ech_trainer_read(run->trainer, "bn1.running_mean", j->mean[comm->rank], bytes));
        RANK_OK(ech_trainer_read(run->trainer, "bn1.running_var", j->variance[comm->rank], bytes));
    }
    ech__run_destroy(run);
}

static job train(const ech__run_config *config, int world)
{
    job j = {.config = *config};
    run_ranks(RANKS_AS_THREADS, world, 60, work, &j);
    return j;
}

/* ---- sums ---- */

static void test_ranks_with_uneven_shares_record_what_one_does(void **state)
{
    (void)state;
    const ech__run_config c = config_of(ECH__MODEL_LENET, 7, 37); /* 5 full steps and one of 2 */
    const job one = train(&c, 1);
    assert_true(one.epochs[0].train_accuracy > 0 && one.epochs[0].loss > 1);
    for (int world = 2; world <= MOST_RANKS; world++) {
        const job many = train(&c, world);
        for (int e = 0; e < EPOCHS; e++) {
            const ech__run_epoch *a = &one.epochs[e], *b = &many.epochs[e];
            assert_int_equal(b->epoch, e + 1);
            assert_int_equal(b->samples, 37);
            assert_true(fabs(a->loss - b->loss) <= 1e-6 * a->loss);
            assert_true(a->train_accuracy == b->train_accuracy);
            assert_int_equal(b->test.samples, a->test.samples);
            assert_true(b->test.accuracy == a->test.accuracy);
            assert_true(fabs(a->test.loss - b->test.loss) <= 1e-6 * a->test.loss);
        }
    }
}

static void expect_times(const job *j)
{
    for (int e = 0; e < EPOCHS; e++) {
        const ech__run_epoch *epoch = &j->epochs[e];
        assert_true(epoch->compute_s > 0 && epoch->data_s >= 0);
        assert_true(epoch->compute_s <= epoch->time_s * (1 + 1e-9));
        assert_true(ech__epoch_overhead(epoch) >= 0);
        assert_true(ech__epoch_overhead(epoch) <= epoch->time_s - epoch->compute_s + 1e-9);
    }
    assert_true(j->shares.time_s >= j->epochs[0].time_s + j->epochs[1].time_s - 1e-9);
    assert_true(j->shares.data >= 0 && j->shares.overhead >= 0);
}

static void test_times_are_parts_of_the_whole(void **state)
{
    (void)state;
    const ech__run_config c = config_of(ECH__MODEL_LENET, 8, 40);
    const job one = train(&c, 1), two = train(&c, 2);
    expect_times(&one);
    expect_times(&two);
    assert_true(one.epochs[0].data_s > 0 && two.epochs[1].data_s > 0 && two.shares.data > 0);
    assert_true(one.epochs[0].evaluation_s > 0 && one.shares.evaluation > 0);
}

static void test_on_the_virtual_clock_an_epoch_is_its_steps_with_their_loading(void **state)
{
    (void)state;
    ech__run_config c = config_of(ECH__MODEL_LENET, 8, 40);
    c.clock = ECH__CLOCK_VIRTUAL;
    const job j = train(&c, 2);
    expect_times(&j);
    for (int e = 0; e < EPOCHS; e++) {
        const ech__run_epoch *epoch = &j.epochs[e];
        /* The rank with most loading may be another one than that whose steps are counted. */
        assert_true(epoch->compute_s + epoch->data_s >= epoch->time_s * (1 - 1e-9));
        assert_true(epoch->evaluation_s == 0);
    }
}

/* ---- drift ---- */

static void test_drift_by_hand(void **state)
{
    (void)state;
    /* Two ranks, two channels and a third that is not looked at. */
    const float mean[] = {1, 5, 100, 3, 5, -100}, variance[] = {4, 1, 9, 4, 3, 90};
    const ech__drift d = ech__drift_of(mean, variance, 2, 3, 2);
    assert_int_equal(d.ranks, 2);
    assert_true(fabs(d.mean_largest - 0.5) < 1e-5);        /* 1 from 2, in units of 2 */
    assert_true(fabs(d.mean_rms - sqrt(0.25 / 2)) < 1e-5); /* of the two channels one differs */
    assert_true(fabs(d.variance_largest - 0.5) < 1e-4);    /* 1 from 2 */
    assert_true(fabs(d.variance_rms - sqrt(0.25 / 2)) < 1e-4);
    const ech__drift none = ech__drift_of(mean, variance, 1, 3, 3);
    assert_true(none.mean_largest == 0 && none.variance_rms == 0);
    const float odd[] = {NAN, 0};
    assert_true(isnan(ech__drift_of(odd, variance, 2, 1, 1).mean_largest));
}

static ech__run_config bn_config(void)
{
    ech__run_config c = config_of(ECH__MODEL_RESNET8, 8, 24);
    c.train.optimizer.lr = 0.1;
    c.train.ddp.broadcast_buffers = false;
    return c;
}

static void test_statistics_that_are_not_broadcast_drift_apart(void **state)
{
    (void)state;
    const ech__run_config c = bn_config();
    const job j = train(&c, 3);
    const ech__drift want = ech__drift_of(j.mean[0], j.variance[0], 3, CHANNELS, CHANNELS);
    const ech__drift *all = &j.epochs[EPOCHS - 1].drift;
    assert_true(want.mean_largest > 1e-3 && want.variance_largest > 1e-3);
    assert_int_equal(j.layers, 9);
    assert_int_equal(j.first_layer.ranks, want.ranks);
    assert_true(j.first_layer.mean_largest == want.mean_largest &&
                j.first_layer.mean_rms == want.mean_rms &&
                j.first_layer.variance_largest == want.variance_largest &&
                j.first_layer.variance_rms == want.variance_rms);
    assert_int_equal(all->ranks, 3);
    assert_true(all->mean_largest >= want.mean_largest &&
                all->variance_largest >= want.variance_largest);
    assert_true(all->mean_rms > 0 && all->mean_rms < all->mean_largest);
    assert_int_equal(j.buffer_bytes, 0);
    assert_true(j.buffers_s == 0);
}

static void test_synchronised_ones_do_not(void **state)
{
    (void)state;
    ech__run_config c = bn_config();
    c.train.ddp.sync_bn = true;
    const job j = train(&c, 3);
    const ech__drift *all = &j.epochs[EPOCHS - 1].drift;
    assert_int_equal(all->ranks, 3);
    assert_true(all->mean_largest < 1e-6 && all->variance_largest < 1e-6);
}

static void test_what_is_broadcast_is_counted_and_not_compared(void **state)
{
    (void)state;
    ech__run_config c = bn_config();
    c.train.ddp.broadcast_buffers = true;
    const job j = train(&c, 2);
    assert_int_equal(j.epochs[EPOCHS - 1].drift.ranks, 0);
    assert_int_equal(j.layers, 0);
    assert_memory_equal(j.mean[0], j.mean[1], sizeof j.mean[0]);
    /* Channels of bn1, and of two or three batch norms in each of the stages of 16, 32 and 64. */
    const int64_t channels = 16 + 2 * 16 + 3 * 32 + 3 * 64;
    assert_int_equal(j.buffer_bytes, 2 * channels * (int64_t)sizeof(float));
    assert_true(j.buffers_s > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_with_uneven_shares_record_what_one_does),
        cmocka_unit_test(test_times_are_parts_of_the_whole),
        cmocka_unit_test(test_on_the_virtual_clock_an_epoch_is_its_steps_with_their_loading),
        cmocka_unit_test(test_drift_by_hand),
        cmocka_unit_test(test_statistics_that_are_not_broadcast_drift_apart),
        cmocka_unit_test(test_synchronised_ones_do_not),
        cmocka_unit_test(test_what_is_broadcast_is_counted_and_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
