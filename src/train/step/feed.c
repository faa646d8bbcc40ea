#include "train/step/feed.h"
#include "base/file/sha256.h"
#include "base/size.h"

#include <string.h>

/* What a step is, in samples: given as a whole, or for each micro-step of a rank. */
static ech_status size_steps(ech__feed *feed, const ech__feed_options *o, int64_t rows)
{
    const int64_t parts = (int64_t)o->world * o->micros;
    feed->rank = o->rank;
    feed->world = o->world;
    feed->micros = o->micros;
    feed->undivided = o->undivided;
    if (o->global)
        feed->global = o->global;
    else if (rows && !o->batch)
        feed->global = rows;
    else if (!ech__mul(o->batch ? o->batch : 64, parts, &feed->global))
        return ech__fail(feed->ctx, ECH_E_LIMIT, "%lld samples in each of %lld parts overflow",
                         (long long)o->batch, (long long)parts);
    if (feed->global < parts)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "%lld samples per step for %d devices with %d micro-steps each: at least "
                         "%lld are needed",
                         (long long)feed->global, o->world, o->micros, (long long)parts);
    if (o->drop_last && feed->global % parts) /* the reproducible mode: slots are all alike */
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "%lld samples a step cannot be divided into %lld equal slots",
                         (long long)feed->global, (long long)parts);
    feed->batch = ech__part_of(ech__part_of(feed->global, 0, o->world).count, 0, o->micros).count;
    return ECH_OK;
}

static ech_status open_vectors(ech__feed *feed, const ech__feed_options *o)
{
    if (!o->data)
        return size_steps(feed, o, 0); /* made when the plan has said that it fits */
    if (!strcmp(o->data, "cifar10"))
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "the linear stack takes vectors; cifar10 has images");
    ECH_TRY(ech__vectors_load(feed->ctx, &feed->vectors, o->data));
    if (feed->vectors.dim != o->model.dim)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "%s: x has %lld columns; a linear stack of dim %lld needs %lld", o->data,
                         (long long)feed->vectors.dim, (long long)o->model.dim,
                         (long long)o->model.dim);
    ECH_TRY(size_steps(feed, o, feed->vectors.count));
    if (feed->global != feed->vectors.count)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "%s holds one batch of %lld samples; a step takes %lld", o->data,
                         (long long)feed->vectors.count, (long long)feed->global);
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
            "cifar10 needs --data-dir DIR; echelon data cifar10 --dir DIR fetches the data");
    i.source = o->data ? ECH__IMAGES_CIFAR10 : ECH__IMAGES_SYNTHETIC;
    i.dir = o->data_dir;
    i.split = ECH__SPLIT_TRAIN;
    i.limit = o->limit;
    i.sharers = o->sharers;
    ECH_TRY(ech__images_open(feed->ctx, &i, &feed->train));
    i.split = ECH__SPLIT_TEST;
    i.limit = o->limit && o->limit < 10000 ? o->limit : 0;
    ECH_TRY(ech__images_open(feed->ctx, &i, &feed->test));
    ECH_TRY(size_steps(feed, o, 0));
    if (feed->global > feed->train->count)
        return ech__fail(feed->ctx, ECH_E_INVALID,
                         "a batch of %lld samples is larger than the set of %lld",
                         (long long)feed->global, (long long)feed->train->count);
    feed->per_epoch = o->drop_last ? feed->train->count / feed->global
                                   : (feed->train->count - 1) / feed->global + 1;
    feed->nothing = ech__new(feed->ctx, ech__images_bytes(feed->train) * sizeof *feed->nothing);
    if (!feed->nothing)
        return ech__no_memory(feed->ctx, "a sample");
    feed->norm = o->model.kind == ECH__MODEL_LENET ? ECH__NORM_HALF : ECH__NORM_CIFAR10;
    return ECH_OK;
}

/* Of every image that the run trains on, in their order. Synthetic ones follow from their numbers,
 * so that some of them tell which program made them. */
static ech_status hash_pixels(ech__feed *feed)
{
    enum { SOME = 64 };
    const ech__images *set = feed->train;
    const size_t bytes = ech__images_bytes(set);
    const bool synthetic = !strcmp(set->name, ech__images_source_name(ECH__IMAGES_SYNTHETIC));
    const int64_t count = synthetic && set->count > SOME ? SOME : set->count;
    const uint8_t *pixels;
    ech_status status = ECH_OK;
    ech__sha256 sha;
    uint8_t *scratch = ech__new(feed->ctx, bytes);
    if (!scratch)
        return ech__no_memory(feed->ctx, "an image");
    ech__sha256_init(&sha);
    for (int64_t i = 0; i < count && status == ECH_OK; i++) {
        status = ech__images_read(feed->ctx, set, i, scratch, &pixels);
        if (status == ECH_OK)
            ech__sha256_update(&sha, pixels, bytes);
    }
    ech__delete(feed->ctx, scratch, bytes);
    memcpy(feed->pixels_sha256, ech__sha256_final(&sha).s, sizeof feed->pixels_sha256);
    return status;
}

/* Tells one set from another, for a run that goes on from a checkpoint. */
static ech_status identify(ech__feed *feed, const ech__feed_options *o)
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
        return ECH_OK;
    }
    memcpy(feed->sha256, ech__sha256_final(&sha).s, sizeof feed->sha256);
    return feed->train && o->checkpointed ? hash_pixels(feed) : ECH_OK;
}

ech_status ech__feed_open(ech_ctx *ctx, const ech__feed_options *o, ech__feed *out)
{
    *out = (ech__feed){.ctx = ctx, .per_epoch = 1};
    ech_status status =
        ech__model_takes_images(o->model.kind) ? open_images(out, o) : open_vectors(out, o);
    if (status == ECH_OK)
        status = identify(out, o);
    if (status < 0)
        ech__feed_close(out);
    return status;
}

ech_status ech__feed_start(ech__feed *feed, const ech__feed_options *o)
{
    if (!feed->train)
        return feed->vectors.x ? ECH_OK
                               : ech__vectors_synthetic(feed->ctx, &feed->vectors, feed->global,
                                                        o->model.dim, o->seed);
    ech__loader_options l = ech__loader_defaults();
    l.global = feed->global;
    l.batch = ech__part_of(feed->global, 0, feed->world).count;
    l.rank = feed->rank;
    l.world = feed->world;
    l.norm = feed->norm;
    l.seed = o->seed;
    l.shuffle = o->shuffle;
    l.augment = o->augment;
    l.drop_last = o->drop_last;
    l.epoch = o->epoch;
    l.step = o->step;
    return ech__loader_create(feed->ctx, feed->train, &l, &feed->loader);
}

void ech__feed_close(ech__feed *feed)
{
    if (!feed->ctx)
        return;
    ech__loader_destroy(feed->loader);
    if (feed->nothing)
        ech__delete(feed->ctx, feed->nothing,
                    ech__images_bytes(feed->train) * sizeof *feed->nothing);
    ech__images_close(feed->train);
    ech__images_close(feed->test);
    ech__vectors_fini(feed->ctx, &feed->vectors);
    *feed = (ech__feed){.ctx = NULL};
}

/* ---- steps ---- */

static ech_status write_images(ech_trainer *trainer, const ech__variant *v, const ech__batch *b,
                               int64_t first, size_t image_floats)
{
    const size_t count = (size_t)v->batch;
    ECH_TRY(ech__variant_write(trainer, v, "x", b->x + (size_t)first * image_floats,
                               count * image_floats * sizeof *b->x));
    return ech__variant_write(trainer, v, "labels", b->y + first, count * sizeof *b->y);
}

ech_status ech__feed_next(ech__feed *feed)
{
    feed->now.global = feed->global;
    feed->now.micros = feed->micros;
    if (!feed->train)
        return ECH_OK;
    ECH_TRY(ech__loader_next(feed->loader, &feed->now.images, NULL));
    feed->now.global = feed->now.images->global_count;
    /* As many as the rank with the most samples needs. */
    const int64_t most = ech__part_of(feed->now.global, 0, feed->world).count;
    feed->now.micros = (int)((most - 1) / feed->batch + 1);
    return ECH_OK;
}

/* Samples of one rank in one micro-step, as a stretch of those that the rank has. */
static ech__part part_of(const ech__feed *feed, int rank, int index)
{
    const int64_t count = ech__part_of(feed->now.global, rank, feed->world).count;
    return ech__part_of(count, index, feed->now.micros);
}

static ech_status write_vectors(ech__feed *feed, ech_trainer *trainer, const ech__variant *variant,
                                ech__part part)
{
    const ech__vectors *all = &feed->vectors;
    if (feed->written) /* the one micro-step there is has them already */
        return ECH_OK;
    const int64_t first = ech__part_of(feed->global, feed->rank, feed->world).first + part.first;
    const size_t bytes = (size_t)(part.count * all->dim) * sizeof(float);
    ECH_TRY(ech__variant_write(trainer, variant, "x", all->x + first * all->dim, bytes));
    ECH_TRY(ech__variant_write(trainer, variant, "y", all->y + first * all->dim, bytes));
    if (feed->micros == 1) {
        feed->written = true;
        ech__vectors_fini(feed->ctx, &feed->vectors); /* the device has its own copy */
    }
    return ECH_OK;
}

ech_status ech__feed_micro(ech__feed *feed, ech_trainer *trainer, int index, ech__micro *micro,
                           const ech__variant **variant)
{
    int64_t together = 0;
    for (int rank = 0; rank < feed->world; rank++)
        together += part_of(feed, rank, index).count;
    const ech__part part = part_of(feed, feed->rank, index);
    *micro = (ech__micro){.index = index,
                          .count = feed->now.micros,
                          .weight = (double)part.count / (double)feed->now.global,
                          .share = (double)part.count / (double)together};
    if (feed->undivided)
        micro->weight *= feed->now.micros;
    ECH_TRY(ech__trainer_variant(trainer, part.count ? part.count : 1, micro, variant));
    if (!feed->train)
        return write_vectors(feed, trainer, *variant, part);
    const size_t floats = ech__images_bytes(feed->train);
    if (part.count)
        return write_images(trainer, *variant, feed->now.images, part.first, floats);
    const ech__batch black = {.x = feed->nothing, .y = &(int32_t){0}};
    return write_images(trainer, *variant, &black, 0, floats);
}

/* ---- evaluation ---- */

static ech_status add_up(ech_trainer *trainer, ech__evaluation *out)
{
    double mine[3] = {out->loss, out->accuracy, (double)out->samples}, sums[3] = {0};
    if (trainer->comm) {
        double *all = ech__new(trainer->ctx, (size_t)trainer->comm->world * sizeof mine);
        if (!all)
            return ech__no_memory(trainer->ctx, "an evaluation");
        const ech_status status = ech__comm_allgather(trainer->comm, mine, all, sizeof mine);
        for (int i = 0; i < 3 * trainer->comm->world; i++)
            sums[i % 3] += all[i];
        ech__delete(trainer->ctx, all, (size_t)trainer->comm->world * sizeof mine);
        ECH_TRY(status);
        memcpy(mine, sums, sizeof mine);
    }
    *out = (ech__evaluation){
        .loss = mine[0] / mine[2], .accuracy = mine[1] / mine[2], .samples = (int64_t)mine[2]};
    return ECH_OK;
}

ech_status ech__feed_evaluate(ech__feed *feed, ech_trainer *trainer, const ech__model *model,
                              ech__evaluation *out)
{
    *out = (ech__evaluation){.samples = 0};
    if (!feed->test)
        return ECH_OK;
    ech__loader_options l = ech__loader_defaults();
    l.rank = feed->rank;
    l.world = feed->world;
    l.global = trainer->plan->batch * feed->world; /* the memory of a training step is enough */
    if (l.global > feed->test->count)
        l.global = feed->test->count;
    l.batch = ech__part_of(l.global, 0, l.world).count;
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
        double loss = 0, correct = 0;
        if (!b->count)
            continue;
        status = ech__trainer_variant(trainer, b->count, NULL, &v);
        if (status == ECH_OK)
            status = write_images(trainer, v, b, 0, ech__images_bytes(feed->test));
        if (status == ECH_OK)
            status = ech__variant_evaluate(trainer, v);
        if (status == ECH_OK)
            status = ech__variant_scalar(trainer, v, model->loss, &loss);
        if (status == ECH_OK)
            status = ech__variant_scalar(trainer, v, model->correct, &correct);
        if (status < 0)
            break;
        out->loss += loss * (double)b->count;
        out->accuracy += correct;
        out->samples += b->count;
    }
    ech__loader_destroy(loader);
    return status < 0 ? status : add_up(trainer, out);
}
