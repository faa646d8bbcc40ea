#include "data/images.h"
#include "base/names.h"
#include "base/system/available.h"
#include "data/cifar.h"

#include <stdlib.h>

ECH__NAMES(ech__images_source_name, ech__images_source, ECH__IMAGES_SOURCE_LIST)

ech__images_options ech__images_defaults(void)
{
    return (ech__images_options){.source = ECH__IMAGES_SYNTHETIC, .split = ECH__SPLIT_TRAIN};
}

/* ---- CIFAR-10 as a source ---- */

/* The type of scratch is that of every source. NOLINTNEXTLINE(readability-non-const-parameter) */
static ech_status cifar_read(ech_ctx *ctx, const ech__images *set, int64_t stored, uint8_t *scratch,
                             const uint8_t **pixels)
{
    (void)ctx;
    (void)scratch;
    *pixels = ech__cifar_pixels(set->state, stored);
    return ECH_OK;
}

static void cifar_close(ech_ctx *ctx, void *state)
{
    ech__cifar_fini(state);
    ech__delete(ctx, state, sizeof(ech__cifar));
}

static const ech__image_source cifar_source = {.read = cifar_read, .close = cifar_close};

static ech_status open_cifar(ech__images *set, const ech__images_options *o)
{
    if (!o->dir)
        return ech__fail(set->ctx, ECH_E_INVALID,
                         "CIFAR-10 needs the directory of its files (--data-dir DIR)");
    ech__cifar *cifar = ech__new(set->ctx, sizeof *cifar);
    if (!cifar)
        return ech__no_memory(set->ctx, "a set of images");
    const int files = o->split == ECH__SPLIT_TRAIN ? ECH__CIFAR_TRAIN_FILES : 1;
    set->state = cifar;
    set->source = &cifar_source;
    ECH_TRY(ech__memory_check(
        set->ctx, o->split == ECH__SPLIT_TRAIN ? "CIFAR-10's training set" : "CIFAR-10's test set",
        (int64_t)files * ECH__CIFAR_FILE, o->sharers > 1 ? o->sharers : 1, 1));
    ECH_TRY(ech__cifar_open(set->ctx, o->dir, o->split, cifar));
    set->count = cifar->count;
    set->labels = malloc((size_t)set->count);
    if (!set->labels)
        return ech__no_memory(set->ctx, "%lld labels", (long long)set->count);
    for (int64_t i = 0; i < set->count; i++)
        set->labels[i] = ech__cifar_label(cifar, i);
    return ECH_OK;
}

/* ---- limit ---- */

/* Which samples stay: kept[0..limit) in their order. False where a class has fewer than its share; *lacking is
 * then the class and *share what it should have. */
static bool select_balanced(const ech__images *set, int64_t limit, int32_t *kept, int *lacking,
                            int64_t *share)
{
    int64_t left[256];
    for (int c = 0; c < set->classes; c++)
        left[c] = limit / set->classes + (c < limit % set->classes);
    int64_t count = 0;
    for (int64_t i = 0; i < set->count && count < limit; i++) {
        if (left[set->labels[i]] > 0) {
            left[set->labels[i]]--;
            kept[count++] = (int32_t)i;
        }
    }
    for (int c = 0; c < set->classes && count < limit; c++) {
        if (left[c] > 0) {
            *lacking = c;
            *share = limit / set->classes + (c < limit % set->classes);
            return false;
        }
    }
    return true;
}

ech_status ech__images_limit(ech__images *set, int64_t limit)
{
    if (limit < 0)
        return ech__fail(set->ctx, ECH_E_INVALID, "--limit %lld: must be at least 0",
                         (long long)limit);
    if (limit > set->count)
        return ech__fail(set->ctx, ECH_E_INVALID, "--limit %lld: the %s set has %lld images",
                         (long long)limit, set->name, (long long)set->count);
    if (limit == 0 || limit == set->count)
        return ECH_OK;
    int32_t *kept = calloc((size_t)limit, sizeof *kept);
    if (!kept)
        return ech__no_memory(set->ctx, "a list of %lld images", (long long)limit);
    int lacking;
    int64_t share;
    if (!select_balanced(set, limit, kept, &lacking, &share)) {
        free(kept);
        return ech__fail(set->ctx, ECH_E_INVALID,
                         "--limit %lld: class %d of the %s set has fewer than its share of %lld "
                         "images",
                         (long long)limit, lacking, set->name, (long long)share);
    }
    /* kept[i] >= i, so that both lists can be moved up in place. */
    for (int64_t i = 0; i < limit; i++) {
        set->labels[i] = set->labels[kept[i]];
        if (set->stored)
            kept[i] = set->stored[kept[i]];
    }
    free(set->stored);
    set->stored = kept;
    set->count = limit;
    return ECH_OK;
}

/* ---- open and close ---- */

enum { MOST_CHANNELS = 64, MOST_SIDE = 4096, MOST_CLASSES = 256 };

static ech_status take_size(ech_ctx *ctx, const char *what, int given, int most, int *out)
{
    if (given < 0 || given > most)
        return ech__fail(ctx, ECH_E_INVALID, "%s of synthetic images: %d, must be from 1 to %d",
                         what, given, most);
    *out = given ? given : *out;
    return ECH_OK;
}

static ech_status take_shape(ech__images *set, const ech__images_options *o)
{
    if (o->source != ECH__IMAGES_SYNTHETIC && (o->channels || o->height || o->width || o->classes))
        return ech__fail(set->ctx, ECH_E_INVALID,
                         "a shape of images is for synthetic ones; those of %s have theirs",
                         set->name);
    ECH_TRY(take_size(set->ctx, "channels", o->channels, MOST_CHANNELS, &set->channels));
    ECH_TRY(take_size(set->ctx, "height", o->height, MOST_SIDE, &set->height));
    ECH_TRY(take_size(set->ctx, "width", o->width, MOST_SIDE, &set->width));
    return take_size(set->ctx, "classes", o->classes, MOST_CLASSES, &set->classes);
}

ech_status ech__images_open(ech_ctx *ctx, const ech__images_options *options, ech__images **out)
{
    *out = NULL;
    ech__images *set = ech__new(ctx, sizeof *set);
    if (!set)
        return ech__no_memory(ctx, "a set of images");
    *set = (ech__images){.ctx = ctx,
                         .name = ech__images_source_name(options->source),
                         .channels = ECH__CIFAR_CHANNELS,
                         .height = ECH__CIFAR_SIDE,
                         .width = ECH__CIFAR_SIDE,
                         .classes = ECH__CIFAR_CLASSES};
    ech_status status = take_shape(set, options);
    if (status == ECH_OK)
        status = options->source == ECH__IMAGES_CIFAR10 ? open_cifar(set, options)
                                                        : ech__synthetic_open(set, options->split);
    if (status == ECH_OK)
        status = ech__images_limit(set, options->limit);
    if (status < 0) {
        ech__images_close(set);
        return status;
    }
    *out = set;
    return ECH_OK;
}

void ech__images_close(ech__images *set)
{
    if (!set)
        return;
    ech_ctx *ctx = set->ctx;
    if (set->source && set->source->close)
        set->source->close(ctx, set->state);
    free(set->labels);
    free(set->stored);
    ech__delete(ctx, set, sizeof *set);
}
