/* The public interface of data/loader.h: image loaders for programs, and training steps over their
 * batches. */
#include "comm/comm.h"
#include "data/loader.h"
#include "train/step/trainer.h"

#include <stdlib.h>

struct ech_loader {
    ech_ctx *ctx;
    ech__images *set;
    ech__loader *loader;
};

/* ---- loaders ---- */

ech_loader_options ech_loader_defaults(void)
{
    return (ech_loader_options){
        .size = sizeof(ech_loader_options), .batch = 64, .shuffle = true, .augment = true};
}

static ech_status open_set(ech_loader *l, const ech_loader_options *o)
{
    ech__images_options i = ech__images_defaults();
    i.source = o->dir ? ECH__IMAGES_CIFAR10 : ECH__IMAGES_SYNTHETIC;
    i.dir = o->dir;
    i.split = o->test ? ECH__SPLIT_TEST : ECH__SPLIT_TRAIN;
    i.limit = o->limit;
    i.channels = o->channels;
    i.height = o->height;
    i.width = o->width;
    i.classes = o->classes;
    if (o->limit < 0)
        return ech__fail(l->ctx, ECH_E_INVALID, "a limit of %lld samples: must be 0 or more",
                         (long long)o->limit);
    return ech__images_open(l->ctx, &i, &l->set);
}

static ech_status open_all(ech_loader *l, const ech_loader_options *o)
{
    ech__loader_options options = ech__loader_defaults();
    ECH_TRY(open_set(l, o));
    options.batch = o->batch;
    options.seed = o->seed;
    options.shuffle = o->shuffle && !o->test;
    options.augment = o->augment && !o->test;
    options.drop_last = false;
    options.rank = o->group ? ech_group_rank(o->group) : 0;
    options.world = o->group ? ech_group_size(o->group) : 1;
    return ech__loader_create(l->ctx, l->set, &options, &l->loader);
}

ech_status ech_loader_open(ech_ctx *ctx, const ech_loader_options *options, ech_loader **out)
{
    *out = NULL;
    ech_loader *l = ech__new(ctx, sizeof *l);
    if (!l)
        return ech__no_memory(ctx, "a loader");
    l->ctx = ctx;
    ech_loader_options o = ech_loader_defaults();
    ech_status status = ech__options_take(ctx, "ech_loader_defaults", options, &o, sizeof o);
    if (status == ECH_OK)
        status = open_all(l, &o);
    if (status < 0) {
        ech_loader_close(l);
        return status;
    }
    *out = l;
    return ECH_OK;
}

void ech_loader_close(ech_loader *l)
{
    if (!l)
        return;
    ech__loader_destroy(l->loader);
    ech__images_close(l->set);
    ech__delete(l->ctx, l, sizeof *l);
}

int64_t ech_loader_steps(const ech_loader *l)
{
    return ech__loader_steps(l->loader);
}

int64_t ech_loader_samples(const ech_loader *l)
{
    return l->set->count;
}

ech_status ech_loader_next(ech_loader *l, ech_batch *out)
{
    const ech__batch *b;
    double waited;
    *out = (ech_batch){.count = 0};
    ECH_TRY(ech__loader_next(l->loader, &b, &waited));
    *out = (ech_batch){.images = b->x,
                       .labels = b->y,
                       .channels = l->set->channels,
                       .height = l->set->height,
                       .width = l->set->width,
                       .classes = l->set->classes,
                       .count = b->count,
                       .global_count = b->global_count,
                       .epoch = b->epoch,
                       .step = b->step,
                       .waited_s = waited};
    return ECH_OK;
}

/* ---- steps over their batches ---- */

static ech_status write_batch(ech_trainer *trainer, const ech__variant *v, const char *images,
                              const char *labels, const ech_batch *b)
{
    static const int32_t none[1];
    const size_t count = (size_t)v->batch;
    const int64_t image = (int64_t)b->channels * b->height * b->width;
    if (b->channels < 1 || b->height < 1 || b->width < 1)
        return ech__fail(trainer->ctx, ECH_E_INVALID, "a batch of images of %dx%dx%d pixels",
                         b->channels, b->height, b->width);
    const size_t bytes = count * (size_t)image * sizeof(float);
    if (b->count) {
        ECH_TRY(ech__variant_write(trainer, v, images, b->images, bytes));
        return ech__variant_write(trainer, v, labels, b->labels, count * sizeof(int32_t));
    }
    /* A rank without a sample computes on a black one that does not count. */
    float *black = calloc(1, bytes);
    if (!black)
        return ech__no_memory(trainer->ctx, "a batch");
    const ech_status status = ech__variant_write(trainer, v, images, black, bytes);
    free(black);
    ECH_TRY(status);
    return ech__variant_write(trainer, v, labels, none, count * sizeof(int32_t));
}

static ech_status check_count(const ech_trainer *trainer, const ech_batch *batch)
{
    const int64_t most = trainer->variants[0].batch;
    if (batch->count < 0 || batch->count > most)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "a batch of %lld samples: the trainer was created for up to %lld",
                         (long long)batch->count, (long long)most);
    return ECH_OK;
}

ech_status ech_trainer_step_batch(ech_trainer *trainer, const char *images, const char *labels,
                                  const ech_batch *batch, ech_step *out)
{
    const ech__variant *variant;
    if (trainer->micro_steps != 1)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "whole batches are not supported with %d micro-steps per step: write the "
                         "inputs of each micro-step",
                         trainer->micro_steps);
    ECH_TRY(check_count(trainer, batch));
    if (batch->global_count < 1 || batch->global_count < batch->count)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "a batch of %lld samples is not possible with %lld on all ranks",
                         (long long)batch->count, (long long)batch->global_count);
    const double share = (double)batch->count / (double)batch->global_count;
    const ech__micro micro = {.index = 0, .count = 1, .weight = share, .share = share};
    ECH_TRY(ech__trainer_variant(trainer, batch->count ? batch->count : 1, &micro, &variant));
    ECH_TRY(write_batch(trainer, variant, images, labels, batch));
    return ech__variant_step(trainer, variant, &micro, out);
}

ech_status ech_trainer_evaluate_batch(ech_trainer *trainer, const char *images, const char *labels,
                                      const ech_batch *batch, const ech_value *values, int count,
                                      double *out)
{
    const ech__variant *variant;
    for (int i = 0; i < count; i++) {
        ECH_TRY(ech__trainer_check_scalar(trainer, values[i]));
        out[i] = 0;
    }
    ECH_TRY(check_count(trainer, batch));
    if (!batch->count)
        return ECH_OK;
    ECH_TRY(ech__trainer_variant(trainer, batch->count, NULL, &variant));
    ECH_TRY(write_batch(trainer, variant, images, labels, batch));
    ECH_TRY(ech__variant_evaluate(trainer, variant));
    for (int i = 0; i < count; i++)
        ECH_TRY(ech__variant_scalar(trainer, variant, values[i], &out[i]));
    return ECH_OK;
}
