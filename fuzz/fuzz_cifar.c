/* Any file as CIFAR-10's: taken exactly when it has the size, is no gzip file and every label is good; else one
 * sentence on one line. The first byte chooses the size of the file; the others are spread over its records. */
#include "data/cifar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* 0: as much as there is. */
static const int64_t sizes[] = {0,
                                ECH__CIFAR_FILE,
                                ECH__CIFAR_FILE - 1,
                                ECH__CIFAR_FILE + 1,
                                ECH__CIFAR_FILE - ECH__CIFAR_RECORD,
                                10000 * (int64_t)(ECH__CIFAR_RECORD + 1),
                                50000 * (int64_t)(ECH__CIFAR_RECORD + 1),
                                (int64_t)1 << 40};

/* Byte k of the input goes to the start of a record: all of them at the front, later ones further apart. */
static int64_t place_of(size_t k)
{
    return (int64_t)(k < 4 ? k : k * k * ECH__CIFAR_RECORD % ECH__CIFAR_FILE);
}

static int make_file(int64_t bytes, const uint8_t *data, size_t size)
{
    const int fd = memfd_create("cifar", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, bytes) == 0);
    for (size_t k = 0; k < size; k++)
        if (place_of(k) < bytes)
            must(pwrite(fd, data + k, 1, place_of(k)) == 1);
    return fd;
}

/* Whether every label will be good, told from the input alone. */
static bool good(const uint8_t *data, size_t size)
{
    static uint8_t labels[ECH__CIFAR_RECORDS];
    memset(labels, 0, sizeof labels);
    for (size_t k = 0; k < size; k++)
        if (place_of(k) % ECH__CIFAR_RECORD == 0)
            labels[place_of(k) / ECH__CIFAR_RECORD] = data[k];
    for (int i = 0; i < ECH__CIFAR_RECORDS; i++)
        if (labels[i] > 9)
            return false;
    return true;
}

static void check_records(const uint8_t *records)
{
    enum { SOME = 8 };
    ech__cifar_tally tally = {.count = 0};
    ech__cifar_add(&tally, records + (ECH__CIFAR_RECORDS - SOME) * ECH__CIFAR_RECORD, SOME);
    int64_t labels = 0;
    for (int c = 0; c < ECH__CIFAR_CLASSES; c++)
        labels += tally.labels[c];
    must(labels == SOME);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t records[ECH__CIFAR_FILE];
    ech_ctx *ctx;
    if (size == 0 || size > 4096)
        return 0;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    int64_t bytes = sizes[data[0] % (sizeof sizes / sizeof *sizes)];
    if (bytes == 0)
        bytes = (int64_t)size - 1;
    const int fd = make_file(bytes, data + 1, size - 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ech__cifar_read(ctx, path, records) == ECH_OK) {
        must(bytes == ECH__CIFAR_FILE && good(data + 1, size - 1));
        check_records(records);
    } else {
        must(bytes != ECH__CIFAR_FILE || !good(data + 1, size - 1));
        must(ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
    }
    close(fd);
    ech_ctx_destroy(ctx);
    return 0;
}
