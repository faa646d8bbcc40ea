/* Data parallelism as a pass: what is in which bucket, where buckets start, and where they lie in a plan. */
#include "device/device.h"
#include "parallel/ddp/ddp.h"
#include "plan/plan.h"
#include "support/graph_fixture.h"
#include "train/step/optimizer.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* Two batch norms, a residual sum and linear layers: 13 gradients. */
static ech_value build(void)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 8, 8});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_conv conv = {.out_channels = 8, .kernel = 3, .pad = 1};
    const ech_conv biased = {.out_channels = 8, .kernel = 3, .pad = 1, .bias = true};
    ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn1", ech_conv2d(g, "conv1", x, &biased)));
    h = ech_relu(g, ech_add(g, ech_batchnorm2d(g, "bn2", ech_conv2d(g, "conv2", h, &conv)), h));
    h = ech_relu(g, ech_linear(g, "fc1", ech_flatten(g, h), 20, true));
    h = ech_relu(g, ech_linear(g, "fc2", h, 33, true));
    return ech_cross_entropy(g, ech_linear(g, "fc3", h, 5, true), labels);
}
enum { GRADIENTS = 13 };

static void differentiate(void)
{
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autodiff(g, build()), ECH_OK);
    assert_int_equal(ech__recompute(g), ECH_OK);
}

static ech__ddp_options options_of(int64_t bucket_bytes)
{
    return (ech__ddp_options){.bucket_bytes = bucket_bytes, .broadcast_buffers = true};
}

/* A copy of the backward pass in some role, with buckets. */
static ech_graph *with_buckets(const ech__accumulation *how, const ech__ddp_options *o)
{
    ech_graph *copy;
    assert_int_equal(ech__graph_clone(g, &copy), ECH_OK);
    if (how)
        assert_int_equal(ech__accumulate(copy, how), ECH_OK);
    assert_int_equal(ech__ddp(copy, o), ECH_OK);
    expect_sound(copy);
    return copy;
}

static bool touches(const ech__node *node, ech_value v)
{
    for (int i = 0; i < node->nin + node->nout; i++) {
        if ((i < node->nin ? node->in[i] : node->out[i - node->nin]) == v)
            return true;
    }
    return false;
}

static bool touches_group(const ech_graph *graph, const ech__node *node, ech_value group)
{
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].grouped && graph->values[v].group == group &&
            touches(node, (ech_value)v))
            return true;
    }
    return false;
}

static int64_t bytes_of(const ech_graph *graph, ech_value v)
{
    int64_t elems;
    assert_true(ech__shape_elems(&graph->values[v].type.shape, &elems));
    return elems * ech__dtype_bytes(graph->values[v].type.dtype);
}

/* The place of the last operator of the backward pass that touches a value. */
static size_t last_touch(const ech_graph *graph, ech_value v)
{
    size_t last = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].phase == ECH__PHASE_BACKWARD && touches(&graph->nodes[n], v))
            last = n;
    }
    return last;
}

/* Places of the exchanges of buckets, which come in the order of their numbers. */
static int find_buckets(const ech_graph *graph, size_t at[MOST])
{
    int count = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op != ECH__OP_ALLREDUCE)
            continue;
        assert_true(count < MOST);
        assert_int_equal(node->attrs.bucket, count);
        assert_int_equal(node->phase, ECH__PHASE_EXCHANGE);
        assert_int_equal(graph->values[node->in[0]].kind, ECH__VALUE_GROUP);
        at[count++] = n;
    }
    return count;
}

/* Each starts behind all that touches its members, and as soon as the last of that is done. */
static void expect_places(const ech_graph *graph, const size_t *at, int count)
{
    for (int b = 0; b < count; b++) {
        const ech_value group = graph->nodes[at[b]].in[0];
        size_t before = at[b];
        for (size_t n = at[b]; n < graph->nnodes; n++)
            assert_true(graph->nodes[n].phase != ECH__PHASE_BACKWARD ||
                        !touches_group(graph, &graph->nodes[n], group));
        while (graph->nodes[before - 1].op == ECH__OP_ALLREDUCE)
            before--;
        assert_true(touches_group(graph, &graph->nodes[before - 1], group));
    }
}

/* As many bytes as asked for, and not one gradient more than that takes; none comes before one that
 * is ready earlier. */
static void expect_sizes(const ech_graph *graph, const size_t *at, int count, int64_t bucket_bytes)
{
    size_t ready = 0;
    int members = 0;
    for (int b = 0; b < count; b++) {
        const ech_value group = graph->nodes[at[b]].in[0];
        int64_t sum = 0, last_bytes = 0;
        size_t first = graph->nnodes, last = 0;
        for (size_t v = 0; v < graph->nvalues; v++) {
            if (!graph->values[v].grouped || graph->values[v].group != group)
                continue;
            assert_int_equal(graph->values[v].kind, ECH__VALUE_GRADIENT);
            const size_t touch = last_touch(graph, (ech_value)v);
            sum += bytes_of(graph, (ech_value)v);
            if (touch >= last)
                last_bytes = bytes_of(graph, (ech_value)v);
            first = touch < first ? touch : first;
            last = touch > last ? touch : last;
            members++;
        }
        assert_true(sum >= bucket_bytes || b == count - 1);
        assert_true(sum - last_bytes < bucket_bytes);
        assert_true(first >= ready);
        ready = last;
    }
    assert_int_equal(members, GRADIENTS);
}

static void gradients_come_into_buckets_in_the_order_they_are_ready(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 32, 33, 100, 700, 3000, 1 << 20, INT64_C(1) << 40};
    size_t at[MOST];
    differentiate();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ech__ddp_options o = options_of(sizes[i]);
        ech_graph *graph = with_buckets(NULL, &o);
        const int count = find_buckets(graph, at);
        if (sizes[i] == 1)
            assert_int_equal(count, GRADIENTS);
        if (sizes[i] >= 1 << 20)
            assert_int_equal(count, 1);
        expect_places(graph, at, count);
        expect_sizes(graph, at, count, sizes[i]);
        ech_graph_destroy(graph);
    }
}

/* dgamma and dbeta are read once more after they are made. */
static void a_bucket_waits_for_the_readers_of_its_gradients(void **state)
{
    (void)state;
    differentiate();
    const ech__ddp_options o = options_of(1);
    ech_graph *graph = with_buckets(NULL, &o);
    int seen = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].op != ECH__OP_ALLREDUCE)
            continue;
        const ech_value first = graph->values[graph->nodes[n].in[0]].of;
        const char *name = graph->values[graph->values[first].of].name;
        if (strncmp(name, "bn", 2) != 0)
            continue;
        size_t before = n;
        while (graph->nodes[before - 1].op == ECH__OP_ALLREDUCE)
            before--;
        assert_int_equal(graph->nodes[before - 1].op, ECH__OP_BN_BWD_DATA);
        assert_int_equal(graph->nodes[before - 1].name[2], name[2]);
        seen++;
    }
    assert_int_equal(seen, 4);
    ech_graph_destroy(graph);
}

static void the_wait_stands_between_the_last_bucket_and_the_optimizer(void **state)
{
    (void)state;
    differentiate();
    const ech__ddp_options o = options_of(700);
    ech_graph *graph = with_buckets(NULL, &o);
    ech_train_options train = ech_train_defaults();
    assert_int_equal(ech__optimize(graph, &train), ECH_OK);
    size_t wait = 0, last_bucket = 0, first_update = graph->nnodes;
    for (size_t n = graph->nnodes; n-- > 0;) {
        const ech__node *node = &graph->nodes[n];
        if (node->op == ECH__OP_ALLREDUCE && n > last_bucket)
            last_bucket = n;
        if (node->op == ECH__OP_ALLREDUCE_WAIT)
            wait = n;
        if (node->op == ECH__OP_SGD)
            first_update = n;
    }
    assert_int_equal(count_ops(graph, ECH__OP_ALLREDUCE_WAIT), 1);
    assert_true(last_bucket < wait && wait < first_update && first_update < graph->nnodes);
    ech_graph_destroy(graph);
}

/* ---- buffers ---- */

static void buffers_are_broadcast_together_or_not_at_all(void **state)
{
    (void)state;
    differentiate();
    for (int broadcast = 0; broadcast < 2; broadcast++) {
        const ech__ddp_options o = {.bucket_bytes = 1 << 20, .broadcast_buffers = broadcast};
        ech_graph *graph = with_buckets(NULL, &o);
        int grouped = 0;
        assert_int_equal(count_ops(graph, ECH__OP_BROADCAST), broadcast);
        for (size_t v = 0; v < graph->nvalues; v++)
            grouped += graph->values[v].kind == ECH__VALUE_BUFFER && graph->values[v].grouped;
        assert_int_equal(grouped, broadcast ? 4 : 0); /* mean and variance of both */
        assert_int_equal(ech__ddp_count(graph).buffers, broadcast ? 4 * 8 * 4 : 0);
        ech_graph_destroy(graph);
    }
}

static void a_model_without_buffers_broadcasts_nothing(void **state)
{
    (void)state;
    const ech_value loss = ech_mse(g, ech_linear(g, "fc", input("x", 3), 2, true), input("y", 2));
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    const ech__ddp_options o = options_of(1 << 20);
    assert_int_equal(ech__ddp(g, &o), ECH_OK);
    assert_int_equal(count_ops(g, ECH__OP_BROADCAST), 0);
    const ech__ddp_bytes bytes = ech__ddp_count(g);
    assert_int_equal(bytes.gradients, (2 * 3 + 2) * 4);
    assert_int_equal(bytes.buffers, 0);
    assert_int_equal(bytes.statistics, 0);
}

/* ---- batch norms over all ranks ---- */

static const ech__node *find_node(const ech_graph *graph, ech__op op, const char *name, size_t *at)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].op == op && !strcmp(graph->nodes[n].name, name)) {
            *at = n;
            return &graph->nodes[n];
        }
    }
    fail_msg("there is no %s '%s'", ech__op_name(op), name);
    return NULL;
}

static void expect_synced(const ech_graph *graph, const char *name)
{
    size_t stats_at, reduce_at, at;
    const ech__node *stats = find_node(graph, ECH__OP_BN_STATS, name, &stats_at);
    const ech__node *sync = find_node(graph, ECH__OP_SYNC_STATS, name, &at);
    assert_int_equal(at, stats_at + 1);
    assert_int_equal(sync->phase, ECH__PHASE_FORWARD);
    assert_int_equal(sync->in[0], stats->out[0]);
    assert_int_equal(sync->in[1], stats->out[1]);
    assert_int_equal(sync->in[2], stats->in[0]);
    const ech__node *running = find_node(graph, ECH__OP_BN_RUNNING, name, &at);
    assert_true(at > stats_at + 1);
    assert_int_equal(running->in[2], stats->out[0]);
    assert_int_equal(running->in[3], sync->out[0]);
    const ech__node *apply = find_node(graph, ECH__OP_BN_APPLY, name, &at);
    assert_true(at > stats_at + 1);
    assert_int_equal(apply->in[2], stats->out[1]);
    const ech__node *reduce = find_node(graph, ECH__OP_BN_REDUCE, name, &reduce_at);
    assert_int_equal(reduce->in[3], stats->out[1]);
    const ech__node *sums = find_node(graph, ECH__OP_SYNC_SUMS, name, &at);
    assert_int_equal(at, reduce_at + 1);
    assert_int_equal(sums->phase, ECH__PHASE_BACKWARD);
    assert_int_equal(sums->in[0], reduce->out[0]);
    assert_int_equal(sums->in[1], reduce->out[1]);
    const ech__node *data = find_node(graph, ECH__OP_BN_BWD_DATA, name, &at);
    assert_true(at > reduce_at + 1);
    assert_int_equal(data->in[5], sums->out[0]);
    assert_int_equal(data->in[6], sums->out[1]);
}

static void statistics_become_those_of_all_ranks(void **state)
{
    (void)state;
    differentiate();
    static const ech__accumulation onto = {.onto = true};
    const ech__ddp_options o = {.bucket_bytes = 1, .sync_bn = true};
    for (int role = 0; role < 2; role++) {
        ech_graph *graph = with_buckets(role ? &onto : NULL, &o);
        assert_int_equal(count_ops(graph, ECH__OP_SYNC_STATS), 2);
        assert_int_equal(count_ops(graph, ECH__OP_SYNC_SUMS), 2);
        expect_synced(graph, "bn1");
        expect_synced(graph, "bn2");
        assert_int_equal(ech__ddp_count(graph).statistics, 2 * (2 + 2) * 8 * 4);
        ech_graph_destroy(graph);
    }
}

/* Rank-local dgamma and dbeta are not needed once the sums over the ranks are there. */
static void synced_gradients_travel_before_the_data_is_done(void **state)
{
    (void)state;
    size_t data, at[MOST];
    differentiate();
    const ech__ddp_options o = {.bucket_bytes = 1, .sync_bn = true};
    ech_graph *graph = with_buckets(NULL, &o);
    const int count = find_buckets(graph, at);
    expect_places(graph, at, count);
    find_node(graph, ECH__OP_BN_BWD_DATA, "bn2", &data);
    assert_int_equal(graph->nodes[data - 1].op, ECH__OP_ALLREDUCE);
    assert_int_equal(graph->nodes[data - 2].op, ECH__OP_ALLREDUCE);
    assert_int_equal(graph->nodes[data - 3].op, ECH__OP_SYNC_SUMS);
    ech_graph_destroy(graph);
}

/* ---- roles and plans ---- */

/* What the ranks share is the same memory in every micro-step. */
static void every_role_has_the_same_buckets(void **state)
{
    (void)state;
    static const ech__accumulation roles[] = {
        {.onto = true}, {.levels = 2}, {.levels = 2, .adds = 2, .into = 2}};
    size_t at[MOST];
    differentiate();
    for (int64_t size = 1; size < 10000; size *= 9) {
        ech__ddp_options o = options_of(size);
        ech_graph *first = with_buckets(NULL, &o);
        const int count = find_buckets(first, at);
        o = (ech__ddp_options){.bucket_bytes = 1 << 30, .broadcast_buffers = true, .like = first};
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            ech_graph *role = with_buckets(&roles[i], &o);
            assert_int_equal(find_buckets(role, at), count);
            for (int b = 0; b < count; b++) {
                for (size_t n = at[b]; n < role->nnodes; n++)
                    assert_true(role->nodes[n].phase != ECH__PHASE_BACKWARD ||
                                !touches_group(role, &role->nodes[n], role->nodes[at[b]].in[0]));
            }
            for (size_t v = 0; v < first->nvalues; v++) {
                if (first->values[v].kind != ECH__VALUE_GRADIENT)
                    continue;
                assert_string_equal(first->values[first->values[v].group].name,
                                    role->values[role->values[v].group].name);
            }
            ech_graph_destroy(role);
        }
        ech_graph_destroy(first);
    }
}

/* The member of a group at a place; nvalues where there is none. */
static size_t member_at(const ech_graph *graph, size_t group, size_t place)
{
    size_t v = 0;
    while (v < graph->nvalues &&
           (!graph->values[v].grouped || graph->values[v].group != (ech_value)group ||
            (size_t)graph->values[v].place != place))
        v++;
    return v;
}

/* Members lie one behind the other, each at a cache line, and nothing else lies between them. */
static void expect_packed(const ech__plan *plan)
{
    const ech_graph *graph = plan->graph;
    int64_t gradients = 0;
    for (size_t group = 0; group < graph->nvalues; group++) {
        const ech__place *whole = &plan->places[group];
        if (graph->values[group].kind != ECH__VALUE_GROUP)
            continue;
        int64_t end = whole->offset;
        for (size_t v, place = 0; (v = member_at(graph, group, place)) < graph->nvalues; place++) {
            assert_true(plan->places[v].used);
            assert_int_equal(plan->places[v].kind, whole->kind);
            assert_int_equal(plan->places[v].offset, end);
            end += (plan->places[v].bytes + 63) / 64 * 64;
        }
        assert_int_equal(whole->offset + whole->bytes, end);
        if (whole->kind == ECH__MEMORY_GRADIENTS)
            gradients += whole->bytes;
    }
    assert_int_equal(gradients, plan->memory[ECH__MEMORY_GRADIENTS]);
}

/* The exchange is only asked when kernels are created. */
static ech__exchange nobody = {.world = 2};

static ech__plan *plan_of(const ech_graph *graph, ech__device *device, int64_t batch,
                          const ech__plan *like)
{
    ech__plan *plan;
    const ech__plan_options o = {.batch = batch, .like = like, .exchange = &nobody};
    if (ech__plan_create(graph, device, &o, &plan) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    expect_packed(plan);
    return plan;
}

static void expect_same_places(const ech__plan *plan, const ech__plan *like)
{
    int compared = 0;
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__value *value = &plan->graph->values[v];
        const ech_value same = ech__graph_find(like->graph, value->name);
        const bool lasting = value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_BUFFER ||
                             value->kind == ECH__VALUE_GRADIENT || value->kind == ECH__VALUE_GROUP;
        if (!lasting || !plan->places[v].used)
            continue;
        assert_true(same >= 0);
        assert_int_equal(plan->places[v].offset, like->places[same].offset);
        assert_int_equal(plan->places[v].bytes, like->places[same].bytes);
        assert_true(ech__layout_equal(&plan->places[v].layout, &like->places[same].layout));
        compared++;
    }
    assert_true(compared > 2 * GRADIENTS);
}

static void buckets_have_one_place_in_every_plan(void **state)
{
    (void)state;
    static const ech__accumulation onto = {.onto = true};
    const ech__device_options d = {.kind = ECH__DEVICE_CPU, .threads = 1};
    const ech_train_options train = ech_train_defaults();
    ech__device *device;
    differentiate();
    assert_int_equal(ech__device_create(ctx, &d, &device), ECH_OK);
    for (int64_t size = 1; size < 10000; size *= 99) {
        ech__ddp_options o = options_of(size);
        ech_graph *first = with_buckets(NULL, &o);
        o.like = first;
        ech_graph *second = with_buckets(&onto, &o);
        assert_int_equal(ech__optimize(first, &train), ECH_OK);
        assert_int_equal(ech__optimize(second, &train), ECH_OK);
        ech__plan *host = plan_of(first, device, 8, NULL);
        ech__plan *shorter = plan_of(first, device, 3, host);
        ech__plan *other = plan_of(second, device, 8, host);
        expect_same_places(shorter, host);
        expect_same_places(other, host);
        ech__plan_destroy(other);
        ech__plan_destroy(shorter);
        ech__plan_destroy(host);
        ech_graph_destroy(second);
        ech_graph_destroy(first);
    }
    ech__device_destroy(device);
}

/* ---- updates by the rank that has the sum ---- */

/* Parameters, gradients and states of a bucket lie in the same order and take the same room, and the bucket starts when
 * nobody reads its parameters any more. */
static void expect_alike(const ech__plan *plan, const ech__node *bucket)
{
    const ech_graph *graph = plan->graph;
    assert_int_equal(bucket->nin, 3);
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *gradient = &graph->values[v];
        if (!gradient->grouped || gradient->group != bucket->in[0])
            continue;
        char name[64];
        snprintf(name, sizeof name, "%s.momentum", graph->values[gradient->of].name);
        const ech_value state = ech__graph_find(graph, name);
        const ech_value others[] = {gradient->of, state};
        for (int i = 0; i < 2; i++) {
            assert_true(others[i] >= 0);
            assert_int_equal(graph->values[others[i]].group, bucket->in[1 + i]);
            assert_int_equal(plan->places[others[i]].bytes, plan->places[v].bytes);
            assert_int_equal(plan->places[others[i]].offset -
                                 plan->places[bucket->in[1 + i]].offset,
                             plan->places[v].offset - plan->places[bucket->in[0]].offset);
        }
        assert_true(last_touch(graph, gradient->of) < (size_t)(bucket - graph->nodes));
    }
}

static void updates_move_into_the_exchange(void **state)
{
    (void)state;
    differentiate();
    ech__ddp_options o = options_of(700);
    o.group_params = true;
    ech_graph *graph = with_buckets(NULL, &o);
    ech_train_options train = ech_train_defaults();
    train.optimizer.momentum = 0.9;
    train.optimizer.weight_decay = 0.25;
    assert_int_equal(ech__optimize(graph, &train), ECH_OK);
    size_t at[MOST];
    const int buckets = find_buckets(graph, at);
    assert_true(buckets > 2);
    assert_int_equal(count_ops(graph, ECH__OP_SGD), buckets); /* one for all of a bucket */
    assert_int_equal(ech__ddp_update(graph), ECH_OK);
    assert_int_equal(count_ops(graph, ECH__OP_SGD), 0);
    ech__device *device;
    assert_int_equal(
        ech__device_create(ctx, &(ech__device_options){.kind = ECH__DEVICE_CPU, .threads = 1},
                           &device),
        ECH_OK);
    ech__plan *plan = plan_of(graph, device, 8, NULL);
    assert_int_equal(find_buckets(graph, at), buckets);
    for (int b = 0; b < buckets; b++) {
        const ech__node *node = &graph->nodes[at[b]];
        assert_int_equal(node->attrs.update, ECH__OP_SGD);
        assert_true(node->attrs.momentum == 0.9 && node->attrs.weight_decay == 0.25);
        expect_alike(plan, node);
    }
    ech__plan_destroy(plan);
    ech__device_destroy(device);
    ech_graph_destroy(graph);
}

/* ---- gradients in another type ---- */

static ech__ddp_options in_bf16(int64_t bucket_bytes)
{
    ech__ddp_options o = options_of(bucket_bytes);
    o.wire = ECH_BF16;
    return o;
}

static size_t find_op(const ech_graph *graph, ech__op op)
{
    size_t n = 0;
    while (n < graph->nnodes && graph->nodes[n].op != op)
        n++;
    assert_true(n < graph->nnodes);
    return n;
}

static void gradients_in_bf16_are_converted_before_they_travel_and_back_behind_the_wait(
    void **state)
{
    (void)state;
    differentiate();
    const ech__ddp_options o = in_bf16(1000), plain = options_of(1000);
    ech_graph *graph = with_buckets(NULL, &o), *f32 = with_buckets(NULL, &plain);
    const size_t wait = find_op(graph, ECH__OP_ALLREDUCE_WAIT);
    int there = 0, back = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op != ECH__OP_CONVERT)
            continue;
        const bool sends = graph->values[node->in[0]].kind == ECH__VALUE_SENT;
        const ech_value sent = node->in[sends ? 0 : 1], gradient = node->in[sends ? 1 : 0];
        assert_int_equal(graph->values[sent].type.dtype, ECH_BF16);
        assert_int_equal(graph->values[gradient].kind, ECH__VALUE_GRADIENT);
        assert_int_equal(graph->values[sent].of, graph->values[gradient].of);
        assert_int_equal(node->phase, sends ? ECH__PHASE_EXCHANGE : ECH__PHASE_CHECK);
        assert_true(sends ? n < wait && n > last_touch(graph, gradient) : n > wait);
        there += sends;
        back += !sends;
        if (sends) { /* and before the bucket that it is in */
            size_t at[MOST];
            const int count = find_buckets(graph, at);
            for (int b = 0; b < count; b++)
                assert_true(graph->nodes[at[b]].in[0] != graph->values[sent].group || n < at[b]);
            assert_true(graph->values[sent].grouped && !graph->values[gradient].grouped);
        }
    }
    assert_int_equal(there, GRADIENTS);
    assert_int_equal(back, GRADIENTS);
    assert_int_equal(2 * ech__ddp_count(graph).gradients, ech__ddp_count(f32).gradients);
    assert_int_equal(ech__ddp_count(graph).buffers, ech__ddp_count(f32).buffers);
    ech_graph_destroy(graph);
    ech_graph_destroy(f32);
}

static void every_role_sends_the_same_buckets_in_bf16(void **state)
{
    (void)state;
    differentiate();
    ech__ddp_options o = in_bf16(1000);
    ech_graph *first = with_buckets(NULL, &o);
    o.like = first;
    ech_graph *role = with_buckets(&(ech__accumulation){.onto = true}, &o);
    size_t at[MOST], other[MOST];
    const int count = find_buckets(first, at);
    assert_int_equal(find_buckets(role, other), count);
    for (size_t v = 0; v < first->nvalues; v++) {
        const ech__value *value = &first->values[v];
        if (value->kind != ECH__VALUE_SENT)
            continue;
        const ech_value same = ech__graph_find(role, value->name);
        assert_true(same >= 0);
        assert_int_equal(role->values[same].place, value->place);
        assert_string_equal(role->values[role->values[same].group].name,
                            first->values[value->group].name);
    }
    ech_graph_destroy(first);
    ech_graph_destroy(role);
}

static void checks_stand_between_the_wait_and_the_optimizer(void **state)
{
    (void)state;
    differentiate();
    const ech__ddp_options o = in_bf16(1000);
    const ech_train_options train = ech_train_defaults();
    ech_graph *graph = with_buckets(NULL, &o);
    assert_int_equal(ech__check_gradients(graph), ECH_OK);
    assert_int_equal(ech__optimize(graph, &train), ECH_OK);
    expect_sound(graph);
    const size_t wait = find_op(graph, ECH__OP_ALLREDUCE_WAIT), sgd = find_op(graph, ECH__OP_SGD);
    size_t converted = 0;
    ech_value last = -1;
    int count = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op == ECH__OP_CONVERT)
            converted = n;
        if (node->op != ECH__OP_GRAD_STATS)
            continue;
        assert_true(wait < n && converted < n && n < sgd);
        assert_int_equal(node->phase, ECH__PHASE_CHECK);
        assert_true(graph->values[node->out[0]].kept);
        /* In the order of the parameters, whatever the buckets are. */
        assert_true(graph->values[node->in[0]].of > last);
        last = graph->values[node->in[0]].of;
        count++;
    }
    assert_int_equal(count, GRADIENTS);
    ech_graph_destroy(graph);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, graph_setup, graph_teardown)
    const struct CMUnitTest tests[] = {
        TEST(gradients_come_into_buckets_in_the_order_they_are_ready),
        TEST(a_bucket_waits_for_the_readers_of_its_gradients),
        TEST(the_wait_stands_between_the_last_bucket_and_the_optimizer),
        TEST(updates_move_into_the_exchange),
        TEST(buffers_are_broadcast_together_or_not_at_all),
        TEST(a_model_without_buffers_broadcasts_nothing),
        TEST(statistics_become_those_of_all_ranks),
        TEST(synced_gradients_travel_before_the_data_is_done),
        TEST(every_role_has_the_same_buckets),
        TEST(buckets_have_one_place_in_every_plan),
        TEST(gradients_in_bf16_are_converted_before_they_travel_and_back_behind_the_wait),
        TEST(every_role_sends_the_same_buckets_in_bf16),
        TEST(checks_stand_between_the_wait_and_the_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
