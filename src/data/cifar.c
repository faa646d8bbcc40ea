#include "data/cifar.h"
#include "base/file/file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[ECH__CIFAR_FILES] = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
};

/* Records of CIFAR-100 have a second label. */
enum { CIFAR100_RECORD = ECH__CIFAR_RECORD + 1 };

const char *ech__cifar_file_name(int file)
{
    assert(file >= 0 && file < ECH__CIFAR_FILES);
    return names[file];
}

/* ---- one file ---- */

/* head: the first bytes of the file, which tell what else it could be. */
static ech_status check_size(ech_ctx *ctx, const char *path, const uint8_t head[2], int64_t bytes)
{
    if (bytes >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return ech__fail(ctx, ECH_E_FORMAT, "%s: is a gzip file; unpack it", path);
    if (bytes == ECH__CIFAR_FILE)
        return ECH_OK;
    if (bytes && bytes % CIFAR100_RECORD == 0)
        return ech__fail(ctx, ECH_E_FORMAT,
                         "%s: has %" PRId64 " records of %d bytes, which is CIFAR-100; "
                         "CIFAR-10 has records of %d bytes",
                         path, bytes / CIFAR100_RECORD, CIFAR100_RECORD, ECH__CIFAR_RECORD);
    return ech__fail(ctx, ECH_E_FORMAT,
                     "%s: is too %s: it has %" PRId64 " bytes, and %d records of %d bytes are %d",
                     path, bytes < ECH__CIFAR_FILE ? "short" : "long", bytes, ECH__CIFAR_RECORDS,
                     ECH__CIFAR_RECORD, ECH__CIFAR_FILE);
}

static ech_status check_labels(ech_ctx *ctx, const char *path, const uint8_t *records)
{
    for (int i = 0; i < ECH__CIFAR_RECORDS; i++) {
        const int label = records[i * ECH__CIFAR_RECORD];
        if (label >= ECH__CIFAR_CLASSES)
            return ech__fail(ctx, ECH_E_FORMAT,
                             "%s: record %d of %d has label %d; the largest is %d", path, i + 1,
                             ECH__CIFAR_RECORDS, label, ECH__CIFAR_CLASSES - 1);
    }
    return ECH_OK;
}

static ech_status read_open(ech_ctx *ctx, const char *path, int fd, int64_t bytes, uint8_t *records)
{
    uint8_t head[2] = {0};
    const size_t first = bytes < 2 ? (size_t)bytes : 2;
    ECH_TRY(ech__file_pread(ctx, path, fd, (ech__file_range){.buffer = head, .bytes = first}));
    ECH_TRY(check_size(ctx, path, head, bytes));
    ECH_TRY(ech__file_pread(ctx, path, fd,
                            (ech__file_range){.buffer = records, .bytes = ECH__CIFAR_FILE}));
    return check_labels(ctx, path, records);
}

ech_status ech__cifar_read(ech_ctx *ctx, const char *path, uint8_t *records)
{
    int fd;
    int64_t bytes;
    ECH_TRY(ech__file_open(ctx, path, &fd, &bytes));
    const ech_status status = read_open(ctx, path, fd, bytes, records);
    close(fd);
    return status;
}

/* ---- a split ---- */

enum { PATH_BYTES = 4096 };

/* False where there is no file DIR/FOLDER/NAME, or its path is too long. */
static bool find(const char *dir, const char *folder, const char *name, char path[PATH_BYTES])
{
    const int length = snprintf(path, PATH_BYTES, "%s/%s%s", dir, folder, name);
    return length > 0 && length < PATH_BYTES && access(path, F_OK) == 0;
}

/* The error message for a missing file; it depends on what the directory has instead. */
static ech_status missing(ech_ctx *ctx, const char *dir, const char *name)
{
    struct stat st;
    char path[PATH_BYTES];
    if (stat(dir, &st) != 0)
        return ech__fail(ctx, ECH_E_IO, "%s: there is no such directory", dir);
    if (!S_ISDIR(st.st_mode))
        return ech__fail(ctx, ECH_E_IO, "%s: is not a directory", dir);
    if (find(dir, "", "train.bin", path) && find(dir, "", "test.bin", path))
        return ech__fail(ctx, ECH_E_FORMAT,
                         "%s: holds CIFAR-100 (train.bin, test.bin); CIFAR-10 is needed", dir);
    if (find(dir, "", "data_batch_1", path))
        return ech__fail(ctx, ECH_E_FORMAT,
                         "%s: holds CIFAR-10 for Python; the binary version (%s) is needed", dir,
                         name);
    return ech__fail(ctx, ECH_E_IO,
                     "%s/%s: is missing; 'echelon data cifar10 --dir %s' fetches the set", dir,
                     name, dir);
}

static ech_status read_file(ech_ctx *ctx, const char *dir, int file, uint8_t *records)
{
    char path[PATH_BYTES];
    /* As the archive unpacks, or as it was copied out of there. */
    return find(dir, "", names[file], path) || find(dir, "cifar-10-batches-bin/", names[file], path)
               ? ech__cifar_read(ctx, path, records)
               : missing(ctx, dir, names[file]);
}

ech_status ech__cifar_open(ech_ctx *ctx, const char *dir, ech__split split, ech__cifar *out)
{
    const int first = split == ECH__SPLIT_TRAIN ? 0 : ECH__CIFAR_TRAIN_FILES;
    const int files = split == ECH__SPLIT_TRAIN ? ECH__CIFAR_TRAIN_FILES : 1;
    *out = (ech__cifar){.count = 0};
    uint8_t *records = malloc((size_t)files * ECH__CIFAR_FILE);
    if (!records)
        return ech__no_memory(ctx, "%lld bytes of images of %s", (long long)files * ECH__CIFAR_FILE,
                              dir);
    for (int i = 0; i < files; i++) {
        const ech_status status =
            read_file(ctx, dir, first + i, records + (size_t)i * ECH__CIFAR_FILE);
        if (status < 0) {
            free(records);
            return status;
        }
    }
    *out = (ech__cifar){.count = (int64_t)files * ECH__CIFAR_RECORDS, .records = records};
    return ECH_OK;
}

void ech__cifar_fini(ech__cifar *cifar)
{
    free(cifar->records);
    *cifar = (ech__cifar){.count = 0};
}

/* ---- sums ---- */

void ech__cifar_add(ech__cifar_tally *tally, const uint8_t *records, int64_t count)
{
    enum { PLANE = ECH__CIFAR_PIXELS / ECH__CIFAR_CHANNELS };
    tally->count += count;
    for (int64_t i = 0; i < count; i++, records += ECH__CIFAR_RECORD) {
        tally->labels[records[0]]++;
        for (int c = 0; c < ECH__CIFAR_CHANNELS; c++) {
            unsigned sum = 0;
            for (int p = 0; p < PLANE; p++)
                sum += records[1 + c * PLANE + p];
            tally->sums[c] += sum;
        }
    }
}

double ech__cifar_mean(const ech__cifar_tally *tally, int channel)
{
    const double pixels = (double)tally->count * ECH__CIFAR_SIDE * ECH__CIFAR_SIDE;
    return (double)tally->sums[channel] / (255.0 * pixels);
}
