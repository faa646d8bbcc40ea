/* Sets of images: the made-up one, CIFAR-10 as a set, and the limit. */
#include "base/file/sha256.h"
#include "data/cifar.h"
#include "data/images.h"

#include "support/cmocka_first.h"
#include "support/temp_dir.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGE = 3072 };

static ech_ctx *ctx;

static ech__images *open_set(ech__images_options o)
{
    ech__images *set;
    if (ech__images_open(ctx, &o, &set) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return set;
}

static ech__images *open_synthetic(ech__split split, int64_t limit)
{
    return open_set((ech__images_options){.split = split, .limit = limit});
}

static void read_image(const ech__images *set, int64_t i, uint8_t out[IMAGE])
{
    const uint8_t *pixels;
    assert_int_equal(ech__images_read(ctx, set, i, out, &pixels), ECH_OK);
    memmove(out, pixels, IMAGE);
}

/* ---- synthetic ---- */

static void has_the_shapes_of_cifar_10(void **state)
{
    (void)state;
    for (int split = 0; split < 2; split++) {
        ech__images *set = open_synthetic((ech__split)split, 0);
        assert_int_equal(set->count, split == ECH__SPLIT_TRAIN ? 50000 : 10000);
        assert_int_equal(set->channels, 3);
        assert_int_equal(set->height, 32);
        assert_int_equal(set->width, 32);
        assert_int_equal(set->classes, 10);
        assert_int_equal(ech__images_bytes(set), IMAGE);
        int64_t counts[10] = {0};
        for (int64_t i = 0; i < set->count; i++)
            counts[set->labels[i]]++;
        for (int c = 0; c < 10; c++)
            assert_int_equal(counts[c], set->count / 10);
        ech__images_close(set);
    }
    assert_string_equal(ech__images_source_name(ECH__IMAGES_SYNTHETIC), "synthetic");
    assert_string_equal(ech__images_source_name(ECH__IMAGES_CIFAR10), "cifar10");
    assert_int_equal(ech__images_defaults().source, ECH__IMAGES_SYNTHETIC);
    ech__images_close(NULL);
}

/* Records of a run name the set; were it to change, old figures could not be compared. */
static void is_the_same_everywhere(void **state)
{
    (void)state;
    ech__sha256 sha;
    uint8_t image[IMAGE];
    ech__sha256_init(&sha);
    for (int split = 0; split < 2; split++) {
        ech__images *set = open_synthetic((ech__split)split, 0);
        for (int64_t i = 0; i < set->count; i += 997) {
            read_image(set, i, image);
            ech__sha256_update(&sha, image, sizeof image);
        }
        ech__images_close(set);
    }
    assert_string_equal(ech__sha256_final(&sha).s,
                        "9bb2ea51bce0ffd2e9d5e45b9c5b5e344a2a3861e006ee619299539e3f3d66a3");
}

static void no_two_images_are_alike(void **state)
{
    (void)state;
    ech__images *train = open_synthetic(ECH__SPLIT_TRAIN, 0);
    ech__images *test = open_synthetic(ECH__SPLIT_TEST, 0);
    uint8_t a[IMAGE], b[IMAGE];
    read_image(train, 0, a);
    read_image(train, 0, b);
    assert_memory_equal(a, b, IMAGE);
    read_image(train, 10, b); /* the same class */
    assert_memory_not_equal(a, b, IMAGE);
    read_image(test, 0, b);
    assert_memory_not_equal(a, b, IMAGE);
    ech__images_close(train);
    ech__images_close(test);
}

/* The nearest class mean of 2,000 images tells far more of others than chance would, and not all. */
static void can_be_learnt(void **state)
{
    (void)state;
    enum { TRAIN = 2000, TEST = 500 };
    static double means[10][IMAGE];
    ech__images *train = open_synthetic(ECH__SPLIT_TRAIN, TRAIN);
    ech__images *test = open_synthetic(ECH__SPLIT_TEST, TEST);
    uint8_t image[IMAGE];
    for (int64_t i = 0; i < TRAIN; i++) {
        read_image(train, i, image);
        for (int p = 0; p < IMAGE; p++)
            means[train->labels[i]][p] += image[p] / (TRAIN / 10.0);
    }
    int right = 0;
    for (int64_t i = 0; i < TEST; i++) {
        double least = 1e30;
        int nearest = -1;
        read_image(test, i, image);
        for (int c = 0; c < 10; c++) {
            double distance = 0;
            for (int p = 0; p < IMAGE; p++)
                distance += (image[p] - means[c][p]) * (image[p] - means[c][p]);
            if (distance < least) {
                least = distance;
                nearest = c;
            }
        }
        right += nearest == test->labels[i];
    }
    print_message("nearest class mean: %d of %d right\n", right, TEST);
    assert_in_range(right, TEST * 3 / 10, TEST * 8 / 10);
    ech__images_close(train);
    ech__images_close(test);
}

/* ---- CIFAR-10 ---- */

/* A test file whose record i has label i*i/7%10 (classes of many sizes) and its number in the first pixels. */
static int label_of(int64_t i)
{
    return (int)(i * i / 7 % 10);
}

static temp_dir make_cifar(void)
{
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "test_batch.bin", path);
    uint8_t *records = calloc(ECH__CIFAR_RECORDS, ECH__CIFAR_RECORD);
    for (int64_t i = 0; i < ECH__CIFAR_RECORDS; i++) {
        uint8_t *r = records + i * ECH__CIFAR_RECORD;
        r[0] = (uint8_t)label_of(i);
        r[1] = (uint8_t)(i / 256);
        r[2] = (uint8_t)i;
    }
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, records, ECH__CIFAR_FILE), ECH__CIFAR_FILE);
    close(fd);
    free(records);
    return dir;
}

static int64_t number_of(const ech__images *set, int64_t i)
{
    uint8_t image[IMAGE];
    read_image(set, i, image);
    return image[0] * 256 + image[1];
}

static void shows_cifar_10_in_file_order(void **state)
{
    (void)state;
    temp_dir dir = make_cifar();
    ech__images *set = open_set((ech__images_options){
        .source = ECH__IMAGES_CIFAR10, .split = ECH__SPLIT_TEST, .dir = dir.path});
    assert_int_equal(set->count, 10000);
    for (int64_t i = 0; i < set->count; i++) {
        assert_int_equal(number_of(set, i), i);
        assert_int_equal(set->labels[i], label_of(i));
    }
    ech__images_close(set);
    temp_dir_destroy(&dir);
}

/* ---- limit ---- */

/* Floor or ceiling for every class, the first of each in the order of the file. */
static void limits_evenly_in_file_order(void **state)
{
    (void)state;
    temp_dir dir = make_cifar();
    static const int64_t limits[] = {1, 9, 10, 11, 123, 1000};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        ech__images *set = open_set((ech__images_options){.source = ECH__IMAGES_CIFAR10,
                                                          .split = ECH__SPLIT_TEST,
                                                          .dir = dir.path,
                                                          .limit = limits[l]});
        assert_int_equal(set->count, limits[l]);
        int64_t counts[10] = {0}, i = 0;
        for (int64_t n = 0; n < 10000; n++) {
            const int c = label_of(n);
            if (counts[c] == limits[l] / 10 + (c < limits[l] % 10))
                continue;
            counts[c]++;
            assert_int_equal(number_of(set, i), n);
            assert_int_equal(set->labels[i], c);
            i++;
        }
        assert_int_equal(i, limits[l]);
        ech__images_close(set);
    }
    temp_dir_destroy(&dir);
}

static void limits_a_limited_set(void **state)
{
    (void)state;
    temp_dir dir = make_cifar();
    ech__images *once = open_set((ech__images_options){
        .source = ECH__IMAGES_CIFAR10, .split = ECH__SPLIT_TEST, .dir = dir.path, .limit = 300});
    ech__images *twice = open_set((ech__images_options){
        .source = ECH__IMAGES_CIFAR10, .split = ECH__SPLIT_TEST, .dir = dir.path, .limit = 321});
    assert_int_equal(ech__images_limit(twice, 300), ECH_OK);
    assert_int_equal(twice->count, 300);
    for (int64_t i = 0; i < 300; i++) {
        assert_int_equal(number_of(once, i), number_of(twice, i));
        assert_int_equal(once->labels[i], twice->labels[i]);
    }
    ech__images_close(once);
    ech__images_close(twice);
    temp_dir_destroy(&dir);
}

static void a_limited_synthetic_set_is_its_beginning(void **state)
{
    (void)state;
    ech__images *all = open_synthetic(ECH__SPLIT_TRAIN, 0);
    ech__images *some = open_synthetic(ECH__SPLIT_TRAIN, 25);
    uint8_t a[IMAGE], b[IMAGE];
    assert_int_equal(some->count, 25);
    for (int64_t i = 0; i < 25; i++) {
        read_image(all, i, a);
        read_image(some, i, b);
        assert_memory_equal(a, b, IMAGE);
        assert_int_equal(all->labels[i], some->labels[i]);
    }
    ech__images_close(all);
    ech__images_close(some);
}

static void assert_refused(const ech__images_options *o, const char *sentence)
{
    ech__images *set;
    assert_true(ech__images_open(ctx, o, &set) < 0);
    assert_null(set);
    assert_string_equal(ech_ctx_error(ctx), sentence);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    temp_dir dir = make_cifar();
    ech__images_options o = ech__images_defaults();
    o.limit = 50001;
    assert_refused(&o, "--limit 50001: the synthetic set has 50000 images");
    o.limit = -1;
    assert_refused(&o, "--limit -1: must be at least 0");
    o.limit = 50000;
    ech__images_close(open_set(o));
    o = (ech__images_options){.source = ECH__IMAGES_CIFAR10, .split = ECH__SPLIT_TEST};
    assert_refused(&o, "CIFAR-10 needs the directory of its files (--data-dir DIR)");
    o.dir = "/no/such/place";
    assert_refused(&o, "/no/such/place: there is no such directory");
    o.dir = dir.path;
    o.limit = 9990;
    ech__images *set;
    assert_int_equal(ech__images_open(ctx, &o, &set), ECH_E_INVALID);
    assert_non_null(
        strstr(ech_ctx_error(ctx), "of the cifar10 set has fewer than its share of 999"));
    temp_dir_destroy(&dir);
}

static int make_ctx(void **state)
{
    (void)state;
    return ech_ctx_create(NULL, &ctx);
}

static int end_ctx(void **state)
{
    (void)state;
    ech_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_shapes_of_cifar_10),
        cmocka_unit_test(is_the_same_everywhere),
        cmocka_unit_test(no_two_images_are_alike),
        cmocka_unit_test(can_be_learnt),
        cmocka_unit_test(shows_cifar_10_in_file_order),
        cmocka_unit_test(limits_evenly_in_file_order),
        cmocka_unit_test(limits_a_limited_set),
        cmocka_unit_test(a_limited_synthetic_set_is_its_beginning),
        cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, make_ctx, end_ctx);
}
