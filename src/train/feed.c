#include "train/feed.h"
#include "base/sha256.h"

#include <string.h>

static ech_status open_vectors(ech__feed *feed, const ech__feed_options *o)
{
    if (!o->data) {
        feed->batch = o->batch ? o->batch : 64;
        return ECH_OK; /* made when the plan has said that it fits */
    }
    if (!strcmp(o->data, "cifar10"))
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "the linear stack takes vectors; cifar10 has images");
    ECH_TRY(ech__vectors_load(feed->ctx, &feed->vectors, o->data));
    if (feed->vectors.dim != o->model.dim)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "%s: x has %lld columns; a linear stack of dim %lld needs %lld", o->data,
                         (long long)feed->vectors.dim, (long long)o->model.dim,
                         (long long)o->model.dim);
    if (o->batch && o->batch != feed->vectors.count)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "%s holds one batch of %lld samples; the batch size is %lld", o->data,
                         (long long)feed->vectors.count, (long long)o->batch);
    feed->batch = feed->vectors.count;
    return ECH_OK;
}

static ech_status open_images(ech__feed *feed, const ech__feed_options *o)
{
    ech__images_options i = ech__images_defaults();
    if (o->data && strcmp(o->data, "cifar10"))
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "data '%s': %s takes images, which come from synthetic or cifar10",
                         o->data, ech__model_name(o->model.kind));
    if (o->data && !o->data_dir)
        return ech__fail(
            feed->ctx, ECH_E_INVALID,
            "cifar10 needs a data directory; echelon data cifar10 --dir DIR makes one");
    i.source = o->data ? ECH__IMAGES_CIFAR10 : ECH__IMAGES_SYNTHETIC;
    i.dir = o->data_dir;
    i.split = ECH__SPLIT_TRAIN;
    i.limit = o->limit;
    ECH_TRY(ech__images_open(feed->ctx, &i, &feed->train));
    i.split = ECH__SPLIT_TEST;
    i.limit = o->limit && o->limit < 10000 ? o->limit : 0;
    ECH_TRY(ech__images_open(feed->ctx, &i, &feed->test));
    feed->batch = o->batch ? o->batch : 64;
    if (feed->batch > feed->train->count)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "a batch of %lld samples is larger than the set of %lld",
                         (long long)feed->batch, (long long)feed->train->count);
    feed->per_epoch = (feed->train->count + feed->batch - 1) / feed->batch;
    feed->norm = o->model.kind == ECH__MODEL_LENET ? ECH__NORM_HALF : ECH__NORM_CIFAR10;
    return ECH_OK;
}

/* Tells one set from another, for a run that goes on from a checkpoint. */
static void identify(ech__feed *feed)
{
    const ech__vectors *v = &feed->vectors;
    const size_t bytes = (size_t)(v->count * v->dim) * sizeof(float);
    ech__sha256 sha;
    ech__sha256_init(&sha);
    if (feed->train) {
        ech__sha256_update(&sha, feed->train->labels, (size_t)feed->train->count);
    } else if (v->x) {
        ech__sha256_update(&sha, v->x, bytes);
        ech__sha256_update(&sha, v->y, bytes);
    } else {
        return;
    }
    memcpy(feed->sha256, ech__sha256_final(&sha).s, sizeof feed->sha256);
}

ech_status ech__feed_open(ech_ctx *ctx, const ech__feed_options *o, ech__feed *out)
{
    *out = (ech__feed){.ctx = ctx, .per_epoch = 1};
    const ech_status status =
        ech__model_takes_images(o->model.kind) ? open_images(out, o) : open_vectors(out, o);
    if (status < 0)
        ech__feed_close(out);
    else
        identify(out);
    return status;
}

ech_status ech__feed_start(ech__feed *feed, const ech__feed_options *o)
{
    if (!feed->train)
        return feed->vectors.x ? ECH_OK
                               : ech__vectors_synthetic(feed->ctx, &feed->vectors, feed->batch,
                                                        o->model.dim, o->seed);
    ech__loader_options l = ech__loader_defaults();
    l.batch = feed->batch;
    l.norm = feed->norm;
    l.seed = o->seed;
    l.shuffle = o->shuffle;
    l.augment = o->augment;
    l.drop_last = false;
    l.epoch = o->epoch;
    l.step = o->step;
    return ech__loader_create(feed->ctx, feed->train, &l, &feed->loader);
}

void ech__feed_close(ech__feed *feed)
{
    if (!feed->ctx)
        return;
    ech__loader_destroy(feed->loader);
    ech__images_close(feed->train);
    ech__images_close(feed->test);
    ech__vectors_fini(feed->ctx, &feed->vectors);
    *feed = (ech__feed){.ctx = NULL};
}

static ech_status write_images(ech_trainer *trainer, const ech__variant *v, const ech__batch *b,
                               size_t image_floats)
{
    ECH_TRY(
        ech__variant_write(trainer, v, "x", b->x, (size_t)b->count * image_floats * sizeof *b->x));
    return ech__variant_write(trainer, v, "labels", b->y, (size_t)b->count * sizeof *b->y);
}

ech_status ech__feed_next(ech__feed *feed, ech_trainer *trainer, const ech__variant **variant)
{
    if (!feed->train) {
        ECH_TRY(ech__trainer_variant(trainer, feed->batch, true, variant));
        if (feed->written)
            return ECH_OK;
        const size_t bytes = (size_t)(feed->vectors.count * feed->vectors.dim) * sizeof(float);
        feed->written = true;
        ECH_TRY(ech__variant_write(trainer, *variant, "x", feed->vectors.x, bytes));
        ECH_TRY(ech__variant_write(trainer, *variant, "y", feed->vectors.y, bytes));
        ech__vectors_fini(feed->ctx, &feed->vectors); /* the device has its own copy */
        return ECH_OK;
    }
    const ech__batch *b;
    ECH_TRY(ech__loader_next(feed->loader, &b, NULL));
    ECH_TRY(ech__trainer_variant(trainer, b->count, true, variant));
    return write_images(trainer, *variant, b, ech__images_bytes(feed->train));
}

ech_status ech__feed_evaluate(ech__feed *feed, ech_trainer *trainer, const ech__model *model,
                              ech__evaluation *out)
{
    *out = (ech__evaluation){.samples = 0};
    if (!feed->test)
        return ECH_OK;
    ech__loader_options l = ech__loader_defaults();
    l.batch = feed->batch < feed->test->count ? feed->batch : feed->test->count;
    l.norm = feed->norm;
    l.shuffle = false;
    l.drop_last = false;
    l.epochs = 1;
    ech__loader *loader;
    ECH_TRY(ech__loader_create(feed->ctx, feed->test, &l, &loader));
    const ech__batch *b;
    ech_status status;
    while ((status = ech__loader_next(loader, &b, NULL)) == ECH_OK && b) {
        const ech__variant *v;
        status = ech__trainer_variant(trainer, b->count, false, &v);
        if (status == ECH_OK)
            status = write_images(trainer, v, b, ech__images_bytes(feed->test));
        if (status == ECH_OK)
            status = ech__variant_step(trainer, v, NULL);
        if (status < 0)
            break;
        out->loss += ech__variant_scalar(trainer, v, model->loss) * (double)b->count;
        out->accuracy += ech__variant_scalar(trainer, v, model->correct);
        out->samples += b->count;
    }
    ech__loader_destroy(loader);
    out->loss /= (double)out->samples;
    out->accuracy /= (double)out->samples;
    return status;
}
