/* Memory of each kind of device, and data on its way there, between devices and back. */
#include "device/device.h"
#include "plan/transfer.h"
#include "support/cmocka_first.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = ECH__DEVICE_HIDDEN + 1, BYTES = 3 << 20 };

static ech_ctx *ctx;
static ech__device *devices[KINDS];

static int setup(void **state)
{
    (void)state;
    if (ech_ctx_create(&(ech_ctx_options){.log = NULL}, &ctx) < 0)
        return -1;
    for (int k = 0; k < KINDS; k++) {
        const ech__device_options options = {.kind = (ech__device_kind)k, .threads = 1};
        if (ech__device_create(ctx, &options, &devices[k]) < 0)
            return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        ech__device_destroy(devices[k]);
    ech_ctx_destroy(ctx);
    return 0;
}

static void good(ech_status status)
{
    if (status != ECH_OK)
        fail_msg("%s", ech_ctx_error(ctx));
}

static char *block_on(ech__device *device, int64_t bytes)
{
    void *at;
    good(device->ops->alloc(device, bytes, &at));
    return at;
}

static char *pattern(int64_t bytes)
{
    char *at = malloc((size_t)bytes);
    assert_non_null(at);
    for (int64_t i = 0; i < bytes; i++)
        at[i] = (char)(i * 31 + i / 251);
    return at;
}

static void expect_bytes(ech__device *device, const char *src, const char *want, int64_t bytes)
{
    char *seen = malloc((size_t)bytes);
    assert_non_null(seen);
    good(device->memory->read(device, seen, src, bytes));
    assert_memory_equal(seen, want, (size_t)bytes);
    free(seen);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    char *data = pattern(BYTES), zeros[100] = {0}, sevens[100];
    memset(sevens, 7, sizeof sevens);
    for (int k = 0; k < KINDS; k++) {
        ech__device *device = devices[k];
        char *at = block_on(device, BYTES + 100);
        expect_bytes(device, at + BYTES, zeros, 100);
        good(device->memory->write(device, at + 50, data, BYTES));
        expect_bytes(device, at + 50, data, BYTES);
        expect_bytes(device, at, zeros, 50);
        good(device->memory->fill(device, at + 100, 7, 100));
        expect_bytes(device, at + 100, sevens, 100);
        expect_bytes(device, at + 200, data + 150, 100);
        device->ops->free(device, at, BYTES + 100);
    }
    free(data);
}

static void between_any_two_devices(void **state)
{
    (void)state;
    char *data = pattern(BYTES);
    for (int k = 0; k < KINDS * KINDS; k++) {
        ech__device *from = devices[k / KINDS], *to = devices[k % KINDS];
        char *src = block_on(from, BYTES), *dst = block_on(to, BYTES);
        good(from->memory->write(from, src, data, BYTES));
        good(ech__device_copy(to, dst + 1, from, src + 2, BYTES - 2));
        expect_bytes(to, dst + 1, data + 2, BYTES - 2);
        from->ops->free(from, src, BYTES);
        to->ops->free(to, dst, BYTES);
    }
    free(data);
}

/* Only the device itself: a child that looks dies of it. */
static void hidden_memory_faults(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        char *at = block_on(devices[k], 4096);
        const bool visible = devices[k]->memory->host_visible;
        int how;
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL); /* a sanitizer would tell about it and exit */
            setrlimit(RLIMIT_CORE, &(struct rlimit){0});
            _exit(*(volatile char *)at);
        }
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        assert_int_equal(visible, k != ECH__DEVICE_HIDDEN);
        if (visible)
            assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        else
            assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
        devices[k]->ops->free(devices[k], at, 4096);
    }
}

/* Layouts that have blocks, padding and another order of axes, in pieces that cut them anywhere. */
static void laid_out_memory(void **state)
{
    (void)state;
    const ech__shape image = {4, {2, 19, 5, 3}}, matrix = {2, {37, 11}};
    const ech__layout layouts[] = {
        ech__layout_plain(&image),
        ech__layout_blocked_channels(&image, 8),
        ech__layout_transposed(&matrix),
    };
    for (int k = 0; k < KINDS * 3; k++) {
        ech__device *device = devices[k / 3];
        const ech__layout *layout = &layouts[k % 3];
        int64_t elems, extent;
        assert_true(ech__shape_elems(&layout->shape, &elems) &&
                    ech__layout_extent(layout, &extent));
        char *data = pattern(elems * 4), *want = calloc((size_t)extent, 4), *seen = malloc(4 * 23);
        assert_true(want && seen);
        ech__layout_scatter(layout, 4, 0, elems, data, want);
        char *at = block_on(device, extent * 4);
        for (int64_t first = 0; first < elems; first += 23) {
            const int64_t count = elems - first < 23 ? elems - first : 23;
            good(ech__device_scatter(device, layout, 4, first, count, data + first * 4, at));
            good(ech__device_gather(device, layout, 4, first, count, at, seen));
            assert_memory_equal(seen, data + first * 4, (size_t)count * 4);
        }
        expect_bytes(device, at, want, extent * 4); /* the padding is as it was */
        device->ops->free(device, at, extent * 4);
        free(data);
        free(want);
        free(seen);
    }
}

static void rows_to_a_laid_out_tensor(void **state)
{
    (void)state;
    const ech__shape image = {4, {2, 19, 5, 3}};
    const ech__layout layout = ech__layout_blocked_channels(&image, 8);
    int64_t elems, extent;
    assert_true(ech__shape_elems(&image, &elems) && ech__layout_extent(&layout, &extent));
    char *data = pattern(elems * 4), *want = calloc((size_t)extent, 4);
    assert_non_null(want);
    ech__layout_scatter(&layout, 4, 0, elems, data, want);
    for (int k = 0; k < KINDS * KINDS; k++) {
        ech__device *from = devices[k / KINDS], *to = devices[k % KINDS];
        char *src = block_on(from, elems * 4), *dst = block_on(to, extent * 4);
        good(from->memory->write(from, src, data, elems * 4));
        good(ech__device_send(to, &layout, 4, elems, dst, from, src));
        expect_bytes(to, dst, want, extent * 4);
        from->ops->free(from, src, elems * 4);
        to->ops->free(to, dst, extent * 4);
    }
    free(data);
    free(want);
}

static void the_last_that_is_not_finite(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    float values[COUNT] = {0};
    for (int k = 0; k < KINDS; k++) {
        ech__device *device = devices[k];
        char *at = block_on(device, sizeof values);
        bool finite = false;
        values[COUNT - 1] = 1;
        good(device->memory->write(device, at, values, sizeof values));
        good(ech__device_all_finite(device, ECH_F32, COUNT, at, &finite));
        assert_true(finite);
        values[COUNT - 1] = INFINITY;
        good(device->memory->write(device, at, values, sizeof values));
        good(ech__device_all_finite(device, ECH_F32, COUNT, at, &finite));
        assert_false(finite);
        good(ech__device_all_finite(device, ECH_F32, COUNT - 1, at, &finite));
        assert_true(finite);
        device->ops->free(device, at, sizeof values);
    }
}

/* Times are there when the device has been waited for, and in order. */
static void stamps(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        int64_t ns[100] = {0};
        for (int i = 0; i < 100; i++)
            devices[k]->memory->stamp(devices[k], &ns[i]);
        good(devices[k]->memory->sync(devices[k]));
        assert_true(ns[0] > 0);
        for (int i = 1; i < 100; i++)
            assert_true(ns[i] >= ns[i - 1]);
    }
}

static void the_kind_of_a_process(void **state)
{
    (void)state;
    const char *before = getenv(ECH__DEVICE_VARIABLE);
    char kept[32] = "";
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    ech__device_kind kind;
    for (int k = 0; k < KINDS; k++) {
        setenv(ECH__DEVICE_VARIABLE, ech__device_name((ech__device_kind)k), 1);
        good(ech__device_asked(ctx, &kind));
        assert_int_equal(kind, k);
        assert_int_equal(ech__device_shards_updates(kind), k == ECH__DEVICE_CPU);
    }
    unsetenv(ECH__DEVICE_VARIABLE);
    good(ech__device_asked(ctx, &kind));
    assert_int_equal(kind, ECH__DEVICE_CPU);
    setenv(ECH__DEVICE_VARIABLE, "gpu", 1);
    assert_int_equal(ech__device_asked(ctx, &kind), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx),
                        "ECHELON_DEVICE 'gpu': must be one of cpu|ref|ref-hidden");
    if (before)
        setenv(ECH__DEVICE_VARIABLE, kept, 1);
    else
        unsetenv(ECH__DEVICE_VARIABLE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(between_any_two_devices),
        TEST(hidden_memory_faults),
        TEST(laid_out_memory),
        TEST(rows_to_a_laid_out_tensor),
        TEST(the_last_that_is_not_finite),
        TEST(stamps),
        TEST(the_kind_of_a_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
