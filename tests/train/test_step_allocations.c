/* In a step Echelon allocates nothing, creates no primitive and reorders no weight.
 *
 * This program defines the allocation functions and a few of oneDNN's itself. The linker puts these in place of
 * the libraries' own for every caller in the process, so each call is seen, with the module that made it.
 * Echelon is linked into the program: its calls are those that come from the program. */
#include "base/size.h"
#include "models/internal.h"
#include "support/cmocka_first.h"
#include "support/golden.h"
#include "support/kind.h"
#include "train/step/trainer.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef ECH_HAS_ONEDNN
#include <dnnl.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    puts("a sanitizer has the allocation functions for itself");
    return 77;
}
#else

/* ---- every call, while counting ---- */

typedef struct call {
    void *caller;
    size_t bytes;
} call;

enum { MAX_CALLS = 1 << 16 };
static call calls[MAX_CALLS];
static atomic_int ncalls, nfrees, ncreated, nreorders, nexecuted;
static atomic_bool counting;

static void count_call(void *caller, size_t bytes)
{
    if (!atomic_load(&counting))
        return;
    const int at = atomic_fetch_add(&ncalls, 1);
    if (at < MAX_CALLS)
        calls[at] = (call){caller, bytes};
}

static void start_counting(void)
{
    atomic_store(&ncalls, 0);
    atomic_store(&nfrees, 0);
    atomic_store(&ncreated, 0);
    atomic_store(&nreorders, 0);
    atomic_store(&nexecuted, 0);
    atomic_store(&counting, true);
}

static void stop_counting(void)
{
    atomic_store(&counting, false);
    assert_true(atomic_load(&ncalls) <= MAX_CALLS);
}

/* ---- the allocation functions ---- */

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

/* The C library's own, which it exports for such uses. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *ptr);

EXPORT void *malloc(size_t bytes)
{
    count_call(CALLER, bytes);
    return __libc_malloc(bytes);
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    count_call(CALLER, count * bytes);
    return __libc_calloc(count, bytes);
}

EXPORT void *realloc(void *ptr, size_t bytes)
{
    count_call(CALLER, bytes);
    if (ptr && atomic_load(&counting))
        atomic_fetch_add(&nfrees, 1);
    return __libc_realloc(ptr, bytes);
}

EXPORT int posix_memalign(void **out, size_t align, size_t bytes)
{
    count_call(CALLER, bytes);
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}

EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
    count_call(CALLER, bytes);
    return __libc_memalign(align, bytes);
}

EXPORT void *memalign(size_t align, size_t bytes);
EXPORT void *memalign(size_t align, size_t bytes)
{
    count_call(CALLER, bytes);
    return __libc_memalign(align, bytes);
}

EXPORT void free(void *ptr)
{
    if (ptr && atomic_load(&counting))
        atomic_fetch_add(&nfrees, 1);
    __libc_free(ptr);
}

EXPORT void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    count_call(CALLER, bytes);
    return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

/* ---- oneDNN ---- */

/* The function that ours stands before. Looked up once, by the first call, which no step makes. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next)                                                                                     \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

#ifdef ECH_HAS_ONEDNN
EXPORT dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *out, const_dnnl_primitive_desc_t pd)
{
    NEXT(dnnl_primitive_create);
    atomic_fetch_add(&ncreated, 1);
    return next(out, pd);
}

EXPORT dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t *out,
                                                const_dnnl_op_desc_t desc,
                                                const_dnnl_primitive_attr_t attr,
                                                dnnl_engine_t engine,
                                                const_dnnl_primitive_desc_t hint)
{
    NEXT(dnnl_primitive_desc_create);
    atomic_fetch_add(&ncreated, 1);
    return next(out, desc, attr, engine, hint);
}

EXPORT dnnl_status_t dnnl_reorder_primitive_desc_create(
    dnnl_primitive_desc_t *out, const dnnl_memory_desc_t *src, dnnl_engine_t src_engine,
    const dnnl_memory_desc_t *dst, dnnl_engine_t dst_engine, const_dnnl_primitive_attr_t attr)
{
    NEXT(dnnl_reorder_primitive_desc_create);
    atomic_fetch_add(&ncreated, 1);
    return next(out, src, src_engine, dst, dst_engine, attr);
}

EXPORT dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                            int nargs, const dnnl_exec_arg_t *args)
{
    NEXT(dnnl_primitive_execute);
    const_dnnl_primitive_desc_t pd;
    dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
    if (dnnl_primitive_get_primitive_desc(primitive, &pd) == dnnl_success)
        dnnl_primitive_desc_query(pd, dnnl_query_primitive_kind, 0, &kind);
    atomic_fetch_add(&nexecuted, 1);
    if (kind == dnnl_reorder || kind == dnnl_undefined_primitive)
        atomic_fetch_add(&nreorders, 1);
    return next(primitive, stream, nargs, args);
}
#endif

/* ---- who called ---- */

typedef struct tally {
    int own, foreign; /* calls from the program (Echelon), and from libraries */
    size_t largest;   /* of a library, bytes */
    char who[64];     /* the library that made the largest */
    int created, reorders, executed;
    int kept; /* calls without a free */
} tally;

static tally count_callers(void)
{
    tally t = {.created = ncreated, .reorders = nreorders, .executed = nexecuted};
    Dl_info me, it;
    assert_true(dladdr((void *)(uintptr_t)&count_callers, &me));
    for (int i = 0; i < ncalls; i++) {
        const bool known = dladdr(calls[i].caller, &it);
        if (known && it.dli_fbase == me.dli_fbase) {
            t.own++;
            continue;
        }
        t.foreign++;
        if (calls[i].bytes < t.largest)
            continue;
        const char *name = known && it.dli_fname ? it.dli_fname : "unknown";
        t.largest = calls[i].bytes;
        snprintf(t.who, sizeof t.who, "%s", strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
    }
    t.kept = ncalls - nfrees;
    return t;
}

/* ---- steps ---- */

enum { DIM = 256, DEPTH = 2, BATCH = 64, WARMUP = 3, STEPS = 5, ROUNDS = 10 };

static void write_batch(ech_trainer *trainer)
{
    static float data[BATCH * DIM];
    golden_fill("x", 1, data, BATCH * DIM);
    assert_int_equal(ech_trainer_write(trainer, "x", data, sizeof data), ECH_OK);
    golden_fill("y", 1, data, BATCH * DIM);
    assert_int_equal(ech_trainer_write(trainer, "y", data, sizeof data), ECH_OK);
}

static ech_trainer *create(ech_ctx *ctx, const ech_train_options *options)
{
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = ech__linear_stack(graph, DIM, DEPTH);
    ech_trainer *trainer;
    if (ech_trainer_create(ctx, graph, loss, options, &trainer) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    ech_graph_destroy(graph);
    write_batch(trainer);
    return trainer;
}

enum { LIBRARY_LIMIT = 4096 };

static tally count_steps(ech_trainer *trainer)
{
    ech_step step;
    ech_status status = ECH_OK;
    for (int s = 0; s < WARMUP; s++)
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
    start_counting();
    for (int s = 0; s < STEPS && status == ECH_OK; s++)
        status = ech_trainer_step(trainer, &step);
    stop_counting();
    assert_int_equal(status, ECH_OK);
    return count_callers();
}

static void check_steps(ech_ctx *ctx, const ech_train_options *options)
{
    start_counting();
    ech_trainer *trainer = create(ctx, options);
    stop_counting();
    /* The counters do count: planning allocates and creates primitives. */
    const tally planning = count_callers();
    assert_true(planning.own > 0 && planning.foreign > 0);
#ifdef ECH_HAS_ONEDNN
    assert_true(planning.created > 0 || !on_cpu());
#endif

    /* A library may take a buffer for good when two threads first meet in it (OpenBLAS does), which can be
     * late. So libraries have some rounds to settle; Echelon has none. */
    tally t;
    bool settled = false;
    for (int round = 0; round < ROUNDS && !settled; round++) {
        t = count_steps(trainer);
        assert_int_equal(t.own, 0);
        assert_int_equal(t.created, 0);
        assert_int_equal(t.reorders, 0);
        /* They give back what they take, so memory does not grow. */
        settled = t.kept == 0 && t.largest <= LIBRARY_LIMIT;
    }
    printf("optimizer %d, threads %d, tuning %s: Echelon %d calls; libraries %.1f a step, "
           "largest %zu bytes%s%s; %d primitives executed, %d created, %d reorders\n",
           (int)options->optimizer.kind, options->threads, options->tune ? "on" : "off", t.own,
           (double)t.foreign / STEPS, t.largest, t.largest ? " by " : "", t.who, t.executed,
           t.created, t.reorders);
    assert_true(settled);
    ech_trainer_destroy(trainer);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    for (int optimizer = ECH_OPTIMIZER_SGD; optimizer <= ECH_OPTIMIZER_ADAMW; optimizer++) {
        for (int threads = 1; threads <= 2; threads++) {
            for (int tune = 0; tune < 2; tune++) {
                ech_train_options options = ech_train_defaults();
                options.optimizer.kind = (ech_optimizer)optimizer;
                options.optimizer.momentum = 0.9;
                options.threads = threads;
                options.batch = BATCH;
                options.tune = tune;
                options.tuning_file = ""; /* in memory only */
                check_steps(ctx, &options);
            }
        }
    }
    ech_ctx_destroy(ctx);
}

/* ---- each kernel that could have been chosen ---- */

typedef struct trial {
    ech__device *device;
    const ech__kernel_desc *desc;
    const ech__candidate *candidate;
    tally result;
} trial;

static int64_t bytes_of(const ech__operand *operand)
{
    int64_t extent;
    assert_true(ech__layout_extent(&operand->layout, &extent));
    return ech__round_up(extent * ech__dtype_bytes(operand->dtype), ECH__ALIGN);
}

/* On the device's thread. */
static ech_status run_trial(void *arg)
{
    trial *t = arg;
    ech__binding binding = {.scratch = NULL};
    binding.scratch = aligned_alloc(
        ECH__ALIGN, (size_t)ech__round_up(t->candidate->scratch_bytes + 1, ECH__ALIGN));
    const int operands = t->desc->nin + t->desc->nout;
    for (int i = 0; i < operands; i++) {
        const size_t bytes = (size_t)bytes_of(&t->desc->operands[i]);
        binding.operands[i] = aligned_alloc(ECH__ALIGN, bytes);
        memset(binding.operands[i], 0, bytes);
    }
    const ech__scalars scalars = {.lr = 0.01, .loss_scale = 1, .grad_factor = 1, .step = 1};
    ech__kernel *kernel;
    ECH_TRY(t->device->ops->create(&(ech__kernel_args){t->device, t->desc, t->candidate, &binding},
                                   &kernel));
    ech_status status = ECH_OK;
    for (int i = 0; i < 3 && status == ECH_OK; i++) { /* the last run counts */
        start_counting();
        status = kernel->run(kernel, &scalars);
        stop_counting();
    }
    t->result = count_callers();
    kernel->destroy(kernel);
    for (int i = 0; i < operands; i++)
        free(binding.operands[i]);
    free(binding.scratch);
    return status;
}

static int try_candidates(ech__device *device, const ech__instr *instr)
{
    const int weight = instr->desc.op == ECH__OP_LINEAR_BWD_WEIGHTS ? 2 : 1;
    ech__kernel_desc open = instr->desc;
    open.operands[weight].free = true;
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(device->ops->candidates(device, &open, all, &count), ECH_OK);
    for (int c = 0; c < count; c++) {
        ech__kernel_desc desc = instr->desc;
        desc.operands[weight].layout = all[c].layouts[weight];
        trial t = {.device = device, .desc = &desc, .candidate = &all[c]};
        assert_int_equal(device->ops->call(device, run_trial, &t), ECH_OK);
        printf("%-18s %-22s %-10s calls %d, largest %zu bytes%s%s\n", ech__op_name(desc.op),
               all[c].name, ech__layout_tag(&desc.operands[weight].layout).s, t.result.foreign,
               t.result.largest, t.result.largest ? " by " : "", t.result.who);
        assert_int_equal(t.result.own, 0);
        assert_int_equal(t.result.created, 0);
        assert_int_equal(t.result.reorders, 0);
        if (!all[c].stands_in && !all[c].is_fallback)
            assert_in_range(t.result.largest, 0, LIBRARY_LIMIT);
    }
    return count;
}

static void no_linear_kernel_makes_echelon_allocate(void **state)
{
    (void)state;
    if (!on_cpu()) /* others have one kernel, which the steps above ran */
        skip();
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_train_options options = ech_train_defaults();
    options.batch = BATCH;
    options.threads = 1;
    options.tune = false;
    ech_trainer *trainer = create(ctx, &options);
    int tried = 0;
    for (size_t n = 0; n < trainer->plan->ninstrs; n++) {
        const ech__op op = trainer->plan->instrs[n].desc.op;
        if (op == ECH__OP_LINEAR || op == ECH__OP_LINEAR_BWD_DATA ||
            op == ECH__OP_LINEAR_BWD_WEIGHTS)
            tried += try_candidates(trainer->device, &trainer->plan->instrs[n]);
    }
    assert_true(tried > 5); /* two layers, three directions without one */
    ech_trainer_destroy(trainer);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(no_linear_kernel_makes_echelon_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
