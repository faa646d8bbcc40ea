/* Plans: no two values in one place at one time, memory to the byte, kernels that are never a fallback. */
#include "base/size.h"
#include "device/device.h"
#include "models/internal.h"
#include "plan/plan.h"
#include "support/cmocka_first.h"
#include "train/step/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_ctx(void **state)
{
    return ech_ctx_create(NULL, (ech_ctx **)state);
}

static int close_ctx(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

/* ---- graphs ---- */

static ech_value linear_stack(ech_graph *g)
{
    return ech__linear_stack(g, 40, 4);
}

static ech_value odd_stack(ech_graph *g)
{
    return ech__linear_stack(g, 37, 2);
}

static ech_value one_layer(ech_graph *g)
{
    return ech__linear_stack(g, 1, 1);
}

/* Values with several users that stay alive across others. */
static ech_value residual(ech_graph *g)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, 24});
    const ech_value y = ech_input(g, "y", ECH_F32, 2, (int64_t[]){ECH_BATCH, 24});
    const ech_value a = ech_relu(g, ech_linear(g, "a", x, 24, true));
    const ech_value b =
        ech_linear(g, "b", ech_relu(g, ech_linear(g, "a2", a, 50, false)), 24, true);
    const ech_value c = ech_add(g, a, b);
    const ech_value d = ech_relu(g, ech_add(g, c, a));
    return ech_mse(g, ech_add(g, ech_add(g, d, d), x), y);
}

static ech_value classifier(ech_graph *g)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, 30});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", x, 100, true));
    return ech_cross_entropy(g, ech_linear(g, "fc2", h, 7, true), labels);
}

typedef ech_value (*builder)(ech_graph *graph);
static const builder BUILDERS[] = {linear_stack, odd_stack, one_layer, residual, classifier};
enum { NBUILDERS = sizeof BUILDERS / sizeof *BUILDERS };

static ech_graph *training_graph(ech_ctx *ctx, builder build, ech_optimizer optimizer)
{
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = build(graph);
    ech_train_options options = ech_train_defaults();
    options.optimizer.kind = optimizer;
    options.optimizer.momentum = 0.9;
    if (ech__fuse(graph) < 0 || ech__autodiff(graph, loss) < 0 ||
        ech__optimize(graph, &options) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return graph;
}

static ech__device *open_device(ech_ctx *ctx, ech__device_kind kind)
{
    ech__device *device;
    assert_int_equal(
        ech__device_create(ctx, &(ech__device_options){.kind = kind, .threads = 1}, &device),
        ECH_OK);
    return device;
}

static ech__plan *make_plan(const ech_graph *graph, ech__device *device, int64_t batch,
                            ech__tuning *tuning)
{
    ech__plan *plan;
    const ech__plan_options options = {.batch = batch, .tuning = tuning};
    if (ech__plan_create(graph, device, &options, &plan) < 0)
        fail_msg("%s", ech_ctx_error(graph->ctx));
    return plan;
}

/* ---- memory ---- */

/* An activation from the operator that makes it to the last that reads it. */
typedef struct life {
    int first, last;
} life;

static life life_of(const ech__plan *plan, ech_value v)
{
    life l = {-1, -1};
    for (int n = 0; n < (int)plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        for (int i = 0; i < node->nout; i++) {
            if (node->out[i] == v) {
                assert_int_equal(l.first, -1);
                l.first = l.last = n;
            }
        }
        for (int i = 0; i < node->nin; i++) {
            if (node->in[i] == v)
                l.last = n;
        }
    }
    if (v == plan->graph->loss)
        l.last = (int)plan->ninstrs;
    return l;
}

static bool is_activation(const ech__plan *plan, size_t v)
{
    return plan->places[v].used && plan->graph->values[v].kind == ECH__VALUE_ACTIVATION;
}

static bool ranges_meet(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

/* Whether the operator that reads a for the last time may write its result b over it. */
static bool may_take_over(const ech__plan *plan, ech_value a, life la, ech_value b, life lb)
{
    if (la.last != lb.first)
        return false;
    const ech__node *node = plan->instrs[lb.first].node;
    const int reuses = ech__op_info(node->op)->reuses;
    int reads = 0;
    for (int i = 0; i < node->nin; i++)
        reads += node->in[i] == a;
    return reuses >= 0 && node->in[reuses] == a && reads == 1 && node->out[0] == b &&
           plan->places[a].offset == plan->places[b].offset &&
           plan->places[a].bytes == plan->places[b].bytes;
}

static int check_activations(const ech__plan *plan)
{
    int pairs = 0;
    for (size_t a = 0; a < plan->graph->nvalues; a++) {
        for (size_t b = 0; b < a && is_activation(plan, a); b++) {
            const ech__place *pa = &plan->places[a], *pb = &plan->places[b];
            if (!is_activation(plan, b) ||
                !ranges_meet(pa->offset, pa->bytes, pb->offset, pb->bytes))
                continue;
            pairs++;
            const ech_value va = (ech_value)a, vb = (ech_value)b;
            const life la = life_of(plan, va), lb = life_of(plan, vb);
            if (la.first <= lb.last && lb.first <= la.last &&
                !may_take_over(plan, va, la, vb, lb) && !may_take_over(plan, vb, lb, va, la))
                fail_msg("'%s' and '%s' are alive in one place", plan->graph->values[a].name,
                         plan->graph->values[b].name);
        }
    }
    return pairs;
}

static void check_scratch(const ech__plan *plan)
{
    for (int n = 0; n < (int)plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        const int64_t bytes = instr->choice.scratch_bytes;
        assert_true(bytes >= 0 && instr->scratch_offset >= 0);
        assert_int_equal(instr->scratch_offset % ECH__ALIGN, 0);
        assert_true(instr->scratch_offset + bytes <=
                    ech__plan_block_bytes(plan, ECH__MEMORY_ACTIVATIONS));
        for (size_t v = 0; v < plan->graph->nvalues; v++) {
            const ech__place *place = &plan->places[v];
            if (!is_activation(plan, v))
                continue;
            const life l = life_of(plan, (ech_value)v);
            if (l.first <= n && n <= l.last &&
                ranges_meet(place->offset, place->bytes, instr->scratch_offset, bytes))
                fail_msg("the scratch of operator %d lies in '%s'", n, plan->graph->values[v].name);
        }
    }
}

/* Kinds that live as long as the plan: every value has a place of its own, and there is nothing else. */
static void check_lasting(const ech__plan *plan, ech__memory_kind kind)
{
    int64_t sum = 0;
    for (size_t a = 0; a < plan->graph->nvalues; a++) {
        const ech__place *pa = &plan->places[a];
        if (!pa->used || pa->kind != kind)
            continue;
        sum += ech__round_up(pa->bytes, ECH__ALIGN);
        for (size_t b = 0; b < a; b++) {
            const ech__place *pb = &plan->places[b];
            assert_false(pb->used && pb->kind == kind &&
                         ranges_meet(pa->offset, pa->bytes, pb->offset, pb->bytes));
        }
    }
    assert_int_equal(plan->memory[kind], sum);
}

static void check_places(const ech__plan *plan)
{
    static const ech__memory_kind kinds[] = {
        [ECH__VALUE_INPUT] = ECH__MEMORY_INPUTS,
        [ECH__VALUE_PARAM] = ECH__MEMORY_WEIGHTS,
        [ECH__VALUE_ACTIVATION] = ECH__MEMORY_ACTIVATIONS,
        [ECH__VALUE_GRADIENT] = ECH__MEMORY_GRADIENTS,
        [ECH__VALUE_STATE] = ECH__MEMORY_OPTIMIZER,
    };
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__place *place = &plan->places[v];
        if (!place->used)
            continue;
        int64_t extent;
        assert_int_equal(place->kind, kinds[plan->graph->values[v].kind]);
        assert_true(ech__layout_extent(&place->layout, &extent));
        assert_int_equal(place->bytes,
                         extent * ech__dtype_bytes(plan->graph->values[v].type.dtype));
        assert_true(place->bytes > 0 && place->offset >= 0);
        assert_int_equal(place->offset % ECH__ALIGN, 0);
        assert_true(place->offset + place->bytes <= ech__plan_block_bytes(plan, place->kind));
    }
}

/* A gradient and the optimizer's state are worked on together with their parameter, as flat arrays. */
static void check_layouts(const ech__plan *plan)
{
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech_value of = plan->graph->values[v].of;
        if (plan->places[v].used && of >= 0)
            assert_true(ech__layout_equal(&plan->places[v].layout, &plan->places[of].layout));
    }
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        for (int i = 0; i < instr->desc.nin + instr->desc.nout; i++) {
            const ech_value v =
                i < instr->desc.nin ? instr->node->in[i] : instr->node->out[i - instr->desc.nin];
            assert_true(
                ech__layout_equal(&instr->desc.operands[i].layout, &plan->places[v].layout));
            assert_false(instr->desc.operands[i].free);
        }
    }
}

static int check_plan(const ech__plan *plan)
{
    int64_t total = 0;
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        total += plan->memory[k];
    assert_int_equal(plan->total_bytes, total);
    check_places(plan);
    check_layouts(plan);
    check_lasting(plan, ECH__MEMORY_WEIGHTS);
    check_lasting(plan, ECH__MEMORY_GRADIENTS);
    check_lasting(plan, ECH__MEMORY_OPTIMIZER);
    check_lasting(plan, ECH__MEMORY_INPUTS);
    check_scratch(plan);
    return check_activations(plan);
}

static void places_do_not_collide(void **state)
{
    ech_ctx *ctx = *state;
    static const int64_t batches[] = {1, 5, 64};
    int shared = 0;
    for (int kind = ECH__DEVICE_CPU; kind <= ECH__DEVICE_REFERENCE; kind++) {
        ech__device *device = open_device(ctx, (ech__device_kind)kind);
        for (int g = 0; g < NBUILDERS * 2; g++) {
            ech_graph *graph = training_graph(ctx, BUILDERS[g / 2],
                                              g % 2 ? ECH_OPTIMIZER_ADAM : ECH_OPTIMIZER_SGD);
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                ech__plan *plan = make_plan(graph, device, batches[b], NULL);
                shared += check_plan(plan);
                ech__exec *exec;
                assert_int_equal(ech__exec_create(plan, NULL, &exec), ECH_OK);
                assert_int_equal(device->memory_used, plan->total_bytes);
                ech__exec_destroy(exec);
                assert_int_equal(device->memory_used, 0);
                ech__plan_destroy(plan);
            }
            ech_graph_destroy(graph);
        }
        ech__device_destroy(device);
    }
    assert_true(shared > 0); /* else no place was ever used again and nothing was checked */
}

static void timed_plans_hold_the_same(void **state)
{
    ech_ctx *ctx = *state;
    ech__device *device = open_device(ctx, ECH__DEVICE_CPU);
    ech__tuning *tuning;
    assert_int_equal(ech__tuning_open(ctx, NULL, &tuning), ECH_OK);
    for (int g = 0; g < NBUILDERS; g++) {
        ech_graph *graph = training_graph(ctx, BUILDERS[g], ECH_OPTIMIZER_SGD);
        ech__plan *plan = make_plan(graph, device, 16, tuning);
        check_plan(plan);
        assert_int_equal(device->memory_used, 0);
        ech__plan_destroy(plan);
        ech_graph_destroy(graph);
    }
    assert_true(ech__tuning_added(tuning) > 0);
    ech__tuning_close(tuning);
    ech__device_destroy(device);
}

/* Only the forward pass, as for inference: no loss that anybody keeps, no gradients. */
static void a_graph_without_training_is_planned(void **state)
{
    ech_ctx *ctx = *state;
    ech__device *device = open_device(ctx, ECH__DEVICE_CPU);
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    linear_stack(graph);
    ech__plan *plan = make_plan(graph, device, 8, NULL);
    check_plan(plan);
    assert_int_equal(plan->memory[ECH__MEMORY_GRADIENTS], 0);
    assert_int_equal(plan->memory[ECH__MEMORY_OPTIMIZER], 0);
    ech__plan_destroy(plan);
    ech_graph_destroy(graph);
    ech__device_destroy(device);
}

static int64_t bytes_of(const ech_graph *graph, ech__device *device, int64_t batch)
{
    ech__plan *plan = make_plan(graph, device, batch, NULL);
    const int64_t bytes = plan->total_bytes;
    ech__plan_destroy(plan);
    return bytes;
}

static void the_largest_batch_is_the_largest(void **state)
{
    ech_ctx *ctx = *state;
    ech__device *device = open_device(ctx, ECH__DEVICE_CPU);
    for (int g = 0; g < NBUILDERS; g++) {
        ech_graph *graph = training_graph(ctx, BUILDERS[g], ECH_OPTIMIZER_SGD);
        int64_t before = 0, largest;
        const int64_t least = bytes_of(graph, device, 1);
        assert_int_equal(ech__plan_largest_batch(graph, device, least - 1, &largest), ECH_OK);
        assert_int_equal(largest, 0);
        for (int64_t limit = least; limit < least * 40; limit += limit / 3 + 1) {
            assert_int_equal(ech__plan_largest_batch(graph, device, limit, &largest), ECH_OK);
            assert_true(largest >= 1 && largest >= before);
            assert_true(bytes_of(graph, device, largest) <= limit);
            assert_true(bytes_of(graph, device, largest + 1) > limit);
            before = largest;
        }
        assert_true(before > 1);
        ech_graph_destroy(graph);
    }
    ech__device_destroy(device);
}

static void a_batch_that_no_size_can_hold_is_refused(void **state)
{
    ech_ctx *ctx = *state;
    ech__device *device = open_device(ctx, ECH__DEVICE_CPU);
    ech_graph *graph = training_graph(ctx, linear_stack, ECH_OPTIMIZER_SGD);
    static const int64_t batches[] = {INT64_MAX, INT64_MAX / 40, INT64_MAX / 200};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        ech__plan *plan;
        const ech__plan_options options = {.batch = batches[i]};
        assert_int_equal(ech__plan_create(graph, device, &options, &plan), ECH_E_LIMIT);
        assert_null(plan);
    }
    ech__plan *plan;
    assert_int_equal(ech__plan_create(graph, device, &(ech__plan_options){.batch = 0}, &plan),
                     ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(ctx), "a batch of 0"));
    ech_graph_destroy(graph);
    ech__device_destroy(device);
}

/* ---- kernels ---- */

static void check_kernels(ech_ctx *ctx, ech__device *device, int64_t dim, int64_t batch, bool tune)
{
    ech_graph *graph;
    ech__tuning *tuning = NULL;
    const ech_train_options options = ech_train_defaults();
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = ech__linear_stack(graph, dim, 3);
    assert_true(ech__fuse(graph) == ECH_OK && ech__autodiff(graph, loss) == ECH_OK &&
                ech__optimize(graph, &options) == ECH_OK);
    if (tune)
        assert_int_equal(ech__tuning_open(ctx, NULL, &tuning), ECH_OK);
    ech__plan *plan = make_plan(graph, device, batch, tuning);
    int linear = 0;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__candidate *choice = &plan->instrs[n].choice;
        if (choice->is_fallback || strstr(choice->name, "ref"))
            fail_msg("%s at %lld, batch %lld: '%s' is a fallback",
                     ech__op_name(plan->instrs[n].desc.op), (long long)dim, (long long)batch,
                     choice->name);
        linear += plan->instrs[n].desc.op == ECH__OP_LINEAR;
    }
    assert_int_equal(linear, 3);
    ech__plan_destroy(plan);
    ech__tuning_close(tuning);
    ech_graph_destroy(graph);
}

static void no_planned_kernel_is_a_fallback(void **state)
{
    ech_ctx *ctx = *state;
    static const int64_t dims[] = {1, 37, 64, 100, 512}, batches[] = {1, 5, 64};
    ech__device *device = open_device(ctx, ECH__DEVICE_CPU);
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            check_kernels(ctx, device, dims[d], batches[b], false);
            if (dims[d] <= 100)
                check_kernels(ctx, device, dims[d], batches[b], true);
        }
    }
    ech__device_destroy(device);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_ctx, close_ctx)
    const struct CMUnitTest tests[] = {
        TEST(places_do_not_collide),
        TEST(timed_plans_hold_the_same),
        TEST(a_graph_without_training_is_planned),
        TEST(the_largest_batch_is_the_largest),
        TEST(a_batch_that_no_size_can_hold_is_refused),
        TEST(no_planned_kernel_is_a_fallback),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
