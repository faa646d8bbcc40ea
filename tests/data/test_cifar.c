/* CIFAR-10's binary files: what is read from them, and the sentence for each that is not one. */
#include "data/cifar.h"

#include "support/cmocka_first.h"
#include "support/temp_dir.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    ech_ctx *ctx;
    temp_dir dir;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    f->dir = temp_dir_create();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    temp_dir_destroy(&f->dir);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

/* A file of zeros that takes no disk: as many records of class 0. */
static void make_file(fixture *f, const char *name, int64_t bytes)
{
    char path[TEMP_PATH];
    temp_dir_path(&f->dir, name, path);
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static void put(fixture *f, const char *name, int64_t offset, const void *data, size_t bytes)
{
    char path[TEMP_PATH];
    temp_dir_path(&f->dir, name, path);
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, bytes, offset), bytes);
    close(fd);
}

static void remove_file(fixture *f, const char *name)
{
    char path[TEMP_PATH];
    temp_dir_path(&f->dir, name, path);
    assert_int_equal(unlink(path), 0);
}

/* The split is refused with exactly this sentence; %s in it is the directory. */
static void assert_refused(fixture *f, ech__split split, const char *sentence)
{
    ech__cifar cifar;
    char want[1024];
    size_t used = 0;
    for (const char *s = sentence; *s; s++) {
        if (s[0] == '%' && s[1] == 's') {
            used += (size_t)snprintf(want + used, sizeof want - used, "%s", f->dir.path);
            s++;
        } else {
            want[used++] = *s;
        }
    }
    want[used] = '\0';
    assert_true(ech__cifar_open(f->ctx, f->dir.path, split, &cifar) < 0);
    assert_string_equal(ech_ctx_error(f->ctx), want);
    assert_null(cifar.records);
}

static void assert_test_refused(fixture *f, const char *sentence)
{
    assert_refused(f, ECH__SPLIT_TEST, sentence);
}

static void reads_labels_and_pixels(void **state)
{
    fixture *f = *state;
    ech__cifar cifar;
    uint8_t record[ECH__CIFAR_RECORD];
    make_file(f, "test_batch.bin", ECH__CIFAR_FILE);
    for (int i = 0; i < ECH__CIFAR_RECORD; i++)
        record[i] = (uint8_t)(i * 7 + 9);
    record[0] = 9;
    put(f, "test_batch.bin", 0, record, sizeof record);
    record[0] = 4;
    put(f, "test_batch.bin", 9999 * ECH__CIFAR_RECORD, record, sizeof record);
    assert_int_equal(ech__cifar_open(f->ctx, f->dir.path, ECH__SPLIT_TEST, &cifar), ECH_OK);
    assert_int_equal(cifar.count, 10000);
    assert_int_equal(ech__cifar_label(&cifar, 0), 9);
    assert_int_equal(ech__cifar_label(&cifar, 1), 0);
    assert_int_equal(ech__cifar_label(&cifar, 9999), 4);
    assert_memory_equal(ech__cifar_pixels(&cifar, 0), record + 1, ECH__CIFAR_PIXELS);
    assert_memory_equal(ech__cifar_pixels(&cifar, 9999), record + 1, ECH__CIFAR_PIXELS);
    ech__cifar_fini(&cifar);
    assert_null(cifar.records);
}

static void reads_five_training_files_in_order(void **state)
{
    fixture *f = *state;
    ech__cifar cifar;
    for (int i = 0; i < ECH__CIFAR_TRAIN_FILES; i++) {
        make_file(f, ech__cifar_file_name(i), ECH__CIFAR_FILE);
        put(f, ech__cifar_file_name(i), 0, (uint8_t[]){(uint8_t)(i + 1)}, 1);
    }
    assert_int_equal(ech__cifar_open(f->ctx, f->dir.path, ECH__SPLIT_TRAIN, &cifar), ECH_OK);
    assert_int_equal(cifar.count, 50000);
    for (int i = 0; i < ECH__CIFAR_TRAIN_FILES; i++)
        assert_int_equal(ech__cifar_label(&cifar, i * 10000), i + 1);
    ech__cifar_fini(&cifar);
}

static void names_a_missing_file(void **state)
{
    fixture *f = *state;
    assert_test_refused(f, "%s/test_batch.bin: is missing; "
                           "'echelon data cifar10 --dir %s' fetches the set");
    for (int i = 0; i < 4; i++)
        make_file(f, ech__cifar_file_name(i), ECH__CIFAR_FILE);
    assert_refused(f, ECH__SPLIT_TRAIN,
                   "%s/data_batch_5.bin: is missing; "
                   "'echelon data cifar10 --dir %s' fetches the set");
}

static void names_a_missing_directory(void **state)
{
    fixture *f = *state;
    ech__cifar cifar;
    assert_int_equal(ech__cifar_open(f->ctx, "/no/such/place", ECH__SPLIT_TEST, &cifar), ECH_E_IO);
    assert_string_equal(ech_ctx_error(f->ctx), "/no/such/place: there is no such directory");
    assert_int_equal(ech__cifar_open(f->ctx, "/dev/zero", ECH__SPLIT_TEST, &cifar), ECH_E_IO);
    assert_string_equal(ech_ctx_error(f->ctx), "/dev/zero: is not a directory");
}

static void looks_into_the_folder_of_the_archive(void **state)
{
    fixture *f = *state;
    char folder[TEMP_PATH];
    ech__cifar cifar;
    temp_dir_path(&f->dir, "cifar-10-batches-bin", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    make_file(f, "cifar-10-batches-bin/test_batch.bin", ECH__CIFAR_FILE);
    assert_int_equal(ech__cifar_open(f->ctx, f->dir.path, ECH__SPLIT_TEST, &cifar), ECH_OK);
    ech__cifar_fini(&cifar);
    remove_file(f, "cifar-10-batches-bin/test_batch.bin");
    assert_int_equal(rmdir(folder), 0);
}

static void refuses_wrong_sizes(void **state)
{
    fixture *f = *state;
    make_file(f, "test_batch.bin", 0);
    assert_test_refused(f, "%s/test_batch.bin: is too short: it has 0 bytes, "
                           "and 10000 records of 3073 bytes are 30730000");
    make_file(f, "test_batch.bin", 1);
    assert_test_refused(f, "%s/test_batch.bin: is too short: it has 1 bytes, "
                           "and 10000 records of 3073 bytes are 30730000");
    make_file(f, "test_batch.bin", ECH__CIFAR_FILE - 1);
    assert_test_refused(f, "%s/test_batch.bin: is too short: it has 30729999 bytes, "
                           "and 10000 records of 3073 bytes are 30730000");
    make_file(f, "test_batch.bin", ECH__CIFAR_FILE - ECH__CIFAR_RECORD);
    assert_test_refused(f, "%s/test_batch.bin: is too short: it has 30726927 bytes, "
                           "and 10000 records of 3073 bytes are 30730000");
    make_file(f, "test_batch.bin", ECH__CIFAR_FILE + 1);
    assert_test_refused(f, "%s/test_batch.bin: is too long: it has 30730001 bytes, "
                           "and 10000 records of 3073 bytes are 30730000");
    make_file(f, "test_batch.bin", (int64_t)1 << 40);
    assert_test_refused(f, "%s/test_batch.bin: is too long: it has 1099511627776 bytes, "
                           "and 10000 records of 3073 bytes are 30730000");
}

static void names_gzip(void **state)
{
    fixture *f = *state;
    static const uint8_t magic[] = {0x1f, 0x8b, 8, 0};
    make_file(f, "test_batch.bin", 2);
    put(f, "test_batch.bin", 0, magic, 2);
    assert_test_refused(f, "%s/test_batch.bin: is a gzip file; unpack it");
    make_file(f, "test_batch.bin", ECH__CIFAR_FILE);
    put(f, "test_batch.bin", 0, magic, sizeof magic);
    assert_test_refused(f, "%s/test_batch.bin: is a gzip file; unpack it");
}

static void names_cifar_100(void **state)
{
    fixture *f = *state;
    make_file(f, "test_batch.bin", 10000 * (int64_t)(ECH__CIFAR_RECORD + 1));
    assert_test_refused(f, "%s/test_batch.bin: has 10000 records of 3074 bytes, which is "
                           "CIFAR-100; CIFAR-10 has records of 3073 bytes");
    make_file(f, "test_batch.bin", 50000 * (int64_t)(ECH__CIFAR_RECORD + 1));
    assert_test_refused(f, "%s/test_batch.bin: has 50000 records of 3074 bytes, which is "
                           "CIFAR-100; CIFAR-10 has records of 3073 bytes");
    remove_file(f, "test_batch.bin");
    make_file(f, "train.bin", 10);
    make_file(f, "test.bin", 10);
    assert_test_refused(f, "%s: holds CIFAR-100 (train.bin, test.bin); CIFAR-10 is needed");
}

static void names_the_python_version(void **state)
{
    fixture *f = *state;
    make_file(f, "data_batch_1", 10);
    assert_refused(f, ECH__SPLIT_TRAIN,
                   "%s: holds CIFAR-10 for Python; the binary version (data_batch_1.bin) is "
                   "needed");
}

static void names_the_record_of_a_wrong_label(void **state)
{
    fixture *f = *state;
    make_file(f, "test_batch.bin", ECH__CIFAR_FILE);
    put(f, "test_batch.bin", 9999 * ECH__CIFAR_RECORD, (uint8_t[]){255}, 1);
    assert_test_refused(f, "%s/test_batch.bin: record 10000 of 10000 has label 255; "
                           "the largest is 9");
    put(f, "test_batch.bin", 0, (uint8_t[]){10}, 1);
    assert_test_refused(f, "%s/test_batch.bin: record 1 of 10000 has label 10; "
                           "the largest is 9");
}

/* None of them may block: the test would run out of time. */
static void refuses_what_is_no_regular_file(void **state)
{
    fixture *f = *state;
    char path[TEMP_PATH];
    temp_dir_path(&f->dir, "test_batch.bin", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_test_refused(f, "%s/test_batch.bin: is a pipe, not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_test_refused(f, "%s/test_batch.bin: is a device, not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_test_refused(f, "%s/test_batch.bin: is a directory, not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("test_batch.bin", path), 0);
    assert_test_refused(f, "%s/test_batch.bin: is missing; "
                           "'echelon data cifar10 --dir %s' fetches the set");
}

static void adds_up(void **state)
{
    (void)state;
    uint8_t *records = calloc(3, ECH__CIFAR_RECORD);
    ech__cifar_tally tally = {.count = 0};
    records[0] = 7;
    memset(records + 1, 255, 1024);             /* red plane of the first */
    records[ECH__CIFAR_RECORD + 1 + 1024] = 51; /* one green pixel of the second */
    memset(records + 2 * ECH__CIFAR_RECORD + 1 + 2048, 51, 1024); /* blue plane of the third */
    ech__cifar_add(&tally, records, 2);
    ech__cifar_add(&tally, records + 2 * ECH__CIFAR_RECORD, 1);
    assert_int_equal(tally.count, 3);
    assert_int_equal(tally.labels[7], 1);
    assert_int_equal(tally.labels[0], 2);
    assert_true(ech__cifar_mean(&tally, 0) == 255.0 * 1024 / (255.0 * 3072));
    assert_int_equal(tally.sums[1], 51);
    assert_int_equal(tally.sums[2], 51 * 1024);
    free(records);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(reads_labels_and_pixels),
        TEST(reads_five_training_files_in_order),
        TEST(names_a_missing_file),
        TEST(names_a_missing_directory),
        TEST(looks_into_the_folder_of_the_archive),
        TEST(refuses_wrong_sizes),
        TEST(names_gzip),
        TEST(names_cifar_100),
        TEST(names_the_python_version),
        TEST(names_the_record_of_a_wrong_label),
        TEST(refuses_what_is_no_regular_file),
        TEST(adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
