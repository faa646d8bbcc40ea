/* What every kind of device has: a worker, memory with a limit, a thread count, a clock. */
#include "device/device.h"
#include "device/isa.h"
#include "base/system/clock.h"
#include "support/cmocka_first.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static const ech__device_kind KINDS[] = {ECH__DEVICE_CPU, ECH__DEVICE_REFERENCE,
                                         ECH__DEVICE_HIDDEN};
static const char *const NAMES[] = {"cpu", "reference", "hidden reference"};

/* A context that counts what is taken from it and given back. */
static int64_t live_bytes, live_blocks, taken;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    void *ptr = NULL;
    if (posix_memalign(&ptr, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0)
        return NULL;
    live_bytes += (int64_t)bytes;
    live_blocks++;
    taken++;
    return ptr;
}

static void counting_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    live_bytes -= (int64_t)bytes;
    live_blocks--;
    free(ptr);
}

static ech_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    live_bytes = live_blocks = taken = 0;
    const ech_ctx_options options = {.alloc = {counting_alloc, counting_free, NULL}};
    return ech_ctx_create(&options, &ctx) < 0 ? -1 : 0;
}

/* Every test gives back all that it took. */
static int teardown(void **state)
{
    (void)state;
    ech_ctx_destroy(ctx);
    return taken > 0 && live_bytes == 0 && live_blocks == 0 ? 0 : -1;
}

static ech__device *create(const ech__device_options *options)
{
    ech__device *device;
    if (ech__device_create(ctx, options, &device) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return device;
}

static ech__device *create_kind(ech__device_kind kind)
{
    return create(&(ech__device_options){.kind = kind, .threads = 1});
}

/* ---- worker ---- */

typedef struct visit {
    ech__device *device;
    pthread_t on;
    int depth, most;
    int omp_threads;
    ech_status gives;
} visit;

static ech_status look_around(void *arg)
{
    visit *v = arg;
    v->on = pthread_self();
    v->omp_threads = omp_get_max_threads();
    v->depth++;
    return v->gives;
}

/* Asks the device for the next level from inside. */
static ech_status go_deeper(void *arg)
{
    visit *v = arg;
    const pthread_t before = v->on;
    v->on = pthread_self();
    if (v->depth > 0 && !pthread_equal(before, v->on))
        return ECH_E_INTERNAL;
    return ++v->depth < v->most ? v->device->ops->call(v->device, go_deeper, v) : v->gives;
}

static void jobs_run_on_one_other_thread(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTH(KINDS); k++) {
        ech__device *device = create_kind(KINDS[k]);
        visit v = {.device = device};
        assert_int_equal(device->ops->call(device, look_around, &v), ECH_OK);
        const pthread_t first = v.on;
        assert_false(pthread_equal(first, pthread_self()));
        for (int n = 0; n < 100; n++)
            assert_int_equal(device->ops->call(device, look_around, &v), ECH_OK);
        assert_true(pthread_equal(v.on, first));
        assert_int_equal(v.depth, 101);
        ech__device_destroy(device);
    }
}

static void jobs_give_their_result(void **state)
{
    (void)state;
    ech__device *device = create_kind(ECH__DEVICE_REFERENCE);
    visit v = {.device = device, .gives = ECH_E_FORMAT};
    assert_int_equal(device->ops->call(device, look_around, &v), ECH_E_FORMAT);
    v.gives = ECH_OK;
    assert_int_equal(device->ops->call(device, look_around, &v), ECH_OK);
    ech__device_destroy(device);
}

static void jobs_call_from_inside(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTH(KINDS); k++) {
        ech__device *device = create_kind(KINDS[k]);
        visit v = {.device = device, .most = 5, .gives = ECH_E_LIMIT};
        assert_int_equal(device->ops->call(device, go_deeper, &v), ECH_E_LIMIT);
        assert_int_equal(v.depth, 5);
        assert_false(pthread_equal(v.on, pthread_self()));
        ech__device_destroy(device);
    }
}

static void devices_have_threads_of_their_own(void **state)
{
    (void)state;
    ech__device *one = create_kind(ECH__DEVICE_REFERENCE), *two = create_kind(ECH__DEVICE_CPU);
    visit a = {.device = one}, b = {.device = two};
    assert_int_equal(one->ops->call(one, look_around, &a), ECH_OK);
    assert_int_equal(two->ops->call(two, look_around, &b), ECH_OK);
    assert_false(pthread_equal(a.on, b.on));
    ech__device_destroy(one);
    ech__device_destroy(two);
}

/* A job that ends when two of them run at the same time. */
typedef struct meeting {
    _Atomic int *arrived;
    ech_status gives;
} meeting;

static ech_status meet(void *arg)
{
    const meeting *m = arg;
    ++*m->arrived;
    for (int i = 0; *m->arrived < 2; i++) {
        if (i == 5000)
            return ECH_E_LIMIT; /* the other one never came */
        ech__clock_sleep(0.001);
    }
    return m->gives;
}

static void devices_work_at_the_same_time(void **state)
{
    (void)state;
    ech__device *one = create_kind(ECH__DEVICE_REFERENCE), *two = create_kind(ECH__DEVICE_CPU);
    for (int round = 0; round < 20; round++) {
        _Atomic int arrived = 0;
        meeting a = {&arrived, ECH_E_FORMAT}, b = {&arrived, ECH_OK};
        one->ops->start(one, meet, &a);
        two->ops->start(two, meet, &b);
        assert_int_equal(one->ops->finish(one), ECH_E_FORMAT);
        assert_int_equal(two->ops->finish(two), ECH_OK);
    }
    ech__device_destroy(one);
    ech__device_destroy(two);
}

static ech_status idle(void *arg)
{
    (void)arg;
    ech__clock_sleep(0.02);
    return ECH_OK;
}

static void busy_time_is_the_time_of_jobs(void **state)
{
    (void)state;
    ech__device *device = create_kind(ECH__DEVICE_REFERENCE);
    const int64_t before = device->busy_ns, start = ech__clock_wall();
    ech__clock_sleep(0.02); /* outside of a job: not counted */
    const int64_t job = ech__clock_wall();
    assert_int_equal(device->ops->call(device, idle, NULL), ECH_OK);
    const int64_t end = ech__clock_wall(), busy = device->busy_ns - before;
    assert_true(busy >= 20000000);
    assert_true(busy <= end - job);
    assert_true(busy < end - start - 20000000 + 1);
    ech__device_destroy(device);
}

/* ---- threads ---- */

static void thread_counts(void **state)
{
    (void)state;
    const int counts[] = {1, 2, 3};
    for (int k = 0; k < LENGTH(KINDS); k++) {
        for (int n = 0; n < LENGTH(counts); n++) {
            ech__device *device =
                create(&(ech__device_options){.kind = KINDS[k], .threads = counts[n]});
            visit v = {.device = device};
            assert_int_equal(device->ops->call(device, look_around, &v), ECH_OK);
            assert_int_equal(device->threads, counts[n]);
            assert_int_equal(v.omp_threads, counts[n]);
            ech__device_destroy(device);
        }
    }
    ech__device *device = create(&(ech__device_options){.kind = ECH__DEVICE_REFERENCE});
    assert_int_equal(device->threads, ech__device_cores());
    ech__device_destroy(device);
}

static ech_status read_cores(void *arg)
{
    return sched_getaffinity(0, sizeof(cpu_set_t), arg) == 0 ? ECH_OK : ECH_E_INTERNAL;
}

static void a_device_stays_on_its_cores(void **state)
{
    (void)state;
    cpu_set_t usable, seen;
    assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
    int core = 0;
    while (!CPU_ISSET((size_t)core, &usable))
        core++;
    ech__device *device = create(&(ech__device_options){
        .kind = ECH__DEVICE_REFERENCE, .threads = 1, .cores = &core, .ncores = 1});
    assert_int_equal(device->ops->call(device, read_cores, &seen), ECH_OK);
    assert_int_equal(CPU_COUNT(&seen), 1);
    assert_true(CPU_ISSET((size_t)core, &seen));
    assert_int_equal(sched_getaffinity(0, sizeof seen, &seen), 0);
    assert_true(CPU_EQUAL(&seen, &usable)); /* the caller stays where it was */
    ech__device_destroy(device);
}

/* ---- memory ---- */

static void memory_is_counted(void **state)
{
    (void)state;
    ech__device *device = create_kind(ECH__DEVICE_REFERENCE);
    const int64_t sizes[] = {1, 4096, 5000000, 0};
    void *blocks[4];
    int64_t sum = 0;
    for (int k = 0; k < 4; k++) {
        assert_int_equal(device->ops->alloc(device, sizes[k], &blocks[k]), ECH_OK);
        assert_non_null(blocks[k]);
        assert_int_equal((uintptr_t)blocks[k] % 64, 0);
        for (int64_t i = 0; i < sizes[k]; i++)
            assert_int_equal(((char *)blocks[k])[i], 0);
        memset(blocks[k], 0xff, (size_t)sizes[k]);
        sum += sizes[k];
        assert_int_equal(device->memory_used, sum);
        assert_int_equal(device->memory_peak, sum);
    }
    device->ops->free(device, blocks[2], sizes[2]);
    assert_int_equal(device->memory_used, 4097);
    assert_int_equal(device->memory_peak, 5004097);
    /* Memory that was used before is zero again. */
    assert_int_equal(device->ops->alloc(device, sizes[2], &blocks[2]), ECH_OK);
    for (int64_t i = 0; i < sizes[2]; i += 997)
        assert_int_equal(((char *)blocks[2])[i], 0);
    for (int k = 0; k < 4; k++)
        device->ops->free(device, blocks[k], sizes[k]);
    device->ops->free(device, NULL, 100);
    assert_int_equal(device->memory_used, 0);
    assert_int_equal(device->memory_peak, 5004097);
    ech__device_destroy(device);
}

static void memory_over_the_limit_is_refused(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTH(KINDS); k++) {
        ech__device *device =
            create(&(ech__device_options){.kind = KINDS[k], .threads = 1, .memory_limit = 10000});
        assert_int_equal(device->memory_limit, 10000);
        void *first, *second = &first, *rest;
        assert_int_equal(device->ops->alloc(device, 6000, &first), ECH_OK);
        assert_int_equal(device->ops->alloc(device, 4001, &second), ECH_E_LIMIT);
        assert_null(second);
        assert_string_equal(ech_ctx_error(ctx),
                            "the device needs 10001 bytes; its limit is 10000 bytes");
        assert_int_equal(device->memory_used, 6000);
        assert_int_equal(device->memory_peak, 6000);
        assert_int_equal(device->ops->alloc(device, 4000, &rest), ECH_OK); /* the last byte too */
        device->ops->free(device, first, 6000);
        device->ops->free(device, rest, 4000);
        ech__device_destroy(device);
    }
}

static void memory_that_cannot_be(void **state)
{
    (void)state;
    ech__device *device = create(&(ech__device_options){
        .kind = ECH__DEVICE_REFERENCE, .threads = 1, .memory_limit = INT64_MAX});
    void *block, *refused;
    assert_int_equal(device->ops->alloc(device, -1, &refused), ECH_E_INVALID);
    assert_null(refused);
    assert_int_equal(device->ops->alloc(device, 1, &block), ECH_OK);
    assert_int_equal(device->ops->alloc(device, INT64_MAX, &refused), ECH_E_INVALID);
    assert_int_equal(device->ops->alloc(device, INT64_MAX / 2, &refused), ECH_E_NOMEM);
    assert_null(refused);
    assert_int_equal(device->memory_used, 1);
    device->ops->free(device, block, 1);
    ech__device_destroy(device);
}

static void memory_ends_with_the_machine(void **state)
{
    (void)state;
    ech__device *device = create_kind(ECH__DEVICE_REFERENCE);
    const int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    assert_int_equal(device->memory_limit, all);
    void *refused;
    assert_int_equal(device->ops->alloc(device, all + 1, &refused), ECH_E_LIMIT);
    ech__device_destroy(device);
    device = create(&(ech__device_options){.kind = ECH__DEVICE_REFERENCE, .sharers = 3});
    assert_int_equal(device->memory_limit, all / 3);
    ech__device_destroy(device);
}

/* ---- life ---- */

static void expect_no_device(const ech__device_options *options, const char *sentence)
{
    ech__device *device = (ech__device *)&ctx;
    assert_int_equal(ech__device_create(ctx, options, &device), ECH_E_INVALID);
    assert_null(device);
    assert_string_equal(ech_ctx_error(ctx), sentence);
}

static void bad_options(void **state)
{
    (void)state;
    expect_no_device(&(ech__device_options){.kind = ECH__DEVICE_REFERENCE, .threads = -1},
                     "a device of -1 threads: must be from 1 to 1024");
    expect_no_device(&(ech__device_options){.kind = ECH__DEVICE_REFERENCE, .threads = 1025},
                     "a device of 1025 threads: must be from 1 to 1024");
    expect_no_device(
        &(ech__device_options){.kind = ECH__DEVICE_REFERENCE, .memory_limit = -5},
        "a device with a memory limit of -5 bytes: it must be at least 1, or 0 for all there is");
    expect_no_device(&(ech__device_options){.kind = (ech__device_kind)17},
                     "there is no device of kind 17");
    const int far[] = {100000};
    expect_no_device(&(ech__device_options){.kind = ECH__DEVICE_CPU, .cores = far, .ncores = 1},
                     "core 100000 is none that this process may use");
    const int negative[] = {-1};
    expect_no_device(
        &(ech__device_options){.kind = ECH__DEVICE_CPU, .cores = negative, .ncores = 1},
        "core -1 is none that this process may use");
}

/* ECHELON_ISA is looked at whenever a device opens, whoever set it. */
static void a_level_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const char *before = getenv(ECH__ISA_VARIABLE);
    char kept[32] = "";
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    const ech__isa has = ech__isa_of_processor();
    for (int k = 0; k < LENGTH(KINDS); k++) {
        const ech__device_options options = {.kind = KINDS[k], .threads = 1};
        ech__device *device = NULL;
        setenv(ECH__ISA_VARIABLE, "sse9", 1);
        assert_int_equal(ech__device_create(ctx, &options, &device), ECH_E_INVALID);
        assert_null(device);
        assert_non_null(strstr(ech_ctx_error(ctx), "ECHELON_ISA 'sse9': must be one of generic|"));
        for (ech__isa more = has + 1; more < ECH__ISA_COUNT; more++) {
            setenv(ECH__ISA_VARIABLE, ech__isa_name(more), 1);
            assert_int_equal(ech__device_create(ctx, &options, &device), ECH_E_UNSUPPORTED);
            assert_non_null(strstr(ech_ctx_error(ctx), ech__isa_name(has)));
        }
    }
    if (before)
        setenv(ECH__ISA_VARIABLE, kept, 1);
    else
        unsetenv(ECH__ISA_VARIABLE);
}

static void kinds_say_who_they_are(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTH(KINDS); k++) {
        ech__device *device = create_kind(KINDS[k]);
        assert_string_equal(device->kind, NAMES[k]);
        assert_true(strlen(device->ops->fingerprint(device)) > 0);
        assert_null(strchr(device->ops->fingerprint(device), '\n'));
        ech__device_destroy(device);
    }
    ech__device_destroy(NULL);
}

static int threads_of_this_process(void)
{
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    int count = 0;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* A thread that was joined is listed for a moment longer: the fewest of some looks. */
static int threads_at_rest(void)
{
    int fewest = threads_of_this_process();
    for (int i = 0; i < 20; i++) {
        ech__clock_sleep(0.001);
        const int count = threads_of_this_process();
        fewest = count < fewest ? count : fewest;
    }
    return fewest;
}

/* teardown adds that the context got everything back. */
static void devices_come_and_go(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTH(KINDS); k++) {
        ech__device_destroy(create_kind(KINDS[k])); /* libraries may start threads once */
        const int threads = threads_at_rest();
        const int64_t blocks = live_blocks;
        for (int n = 0; n < 50; n++)
            ech__device_destroy(create_kind(KINDS[k]));
        assert_int_equal(threads_at_rest(), threads);
        assert_int_equal(live_blocks, blocks);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(jobs_run_on_one_other_thread),
        TEST(jobs_give_their_result),
        TEST(jobs_call_from_inside),
        TEST(devices_have_threads_of_their_own),
        TEST(devices_work_at_the_same_time),
        TEST(busy_time_is_the_time_of_jobs),
        TEST(thread_counts),
        TEST(a_device_stays_on_its_cores),
        TEST(memory_is_counted),
        TEST(memory_over_the_limit_is_refused),
        TEST(memory_that_cannot_be),
        TEST(memory_ends_with_the_machine),
        TEST(bad_options),
        TEST(a_level_that_cannot_be_is_refused),
        TEST(kinds_say_who_they_are),
        TEST(devices_come_and_go),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
