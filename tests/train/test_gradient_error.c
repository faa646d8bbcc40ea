/* How exact gradients are: the cpu device in f32 against the reference device in f64, for whole networks, with the
 * preferred kernels and with Winograd's wherever they are offered. PyTorch's own error, f32 against its f64, is in
 * tests/golden/gradients.json and is the measure; so is its f64 gradient, for the reference.
 *
 * Errors are norms of differences by norms of gradients: of all parameters as one vector, and of the worst tensor. */
#include "device/device.h"
#include "support/golden.h"
#include "support/interpreter.h"
#include "support/temp_dir.h"
#include "train/step/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of PyTorch's error that ours may have. */
static const double PREFERRED_FACTOR = 2;
/* F(4x4,3x3) multiplies rounding errors by some tens in each of the convolutions that use it. */
static const double WINOGRAD_WHOLE = 1e-4, WINOGRAD_WORST = 2e-4;

/* Gradients of all parameters in canonical order, by the number of the parameter. */
typedef struct gradients {
    size_t count; /* values of the graph */
    double **at;  /* [count]; NULL where a value is no parameter */
    int64_t *elems;
    const char **names;
} gradients;

static gradients gradients_create(const ech_graph *graph)
{
    gradients g = {.count = graph->nvalues};
    g.at = calloc(g.count, sizeof *g.at);
    g.elems = calloc(g.count, sizeof *g.elems);
    g.names = calloc(g.count, sizeof *g.names);
    assert_true(g.at && g.elems && g.names);
    for (size_t v = 0; v < g.count; v++) {
        if (graph->values[v].kind != ECH__VALUE_PARAM)
            continue;
        assert_true(ech__shape_elems(&graph->values[v].type.shape, &g.elems[v]));
        g.at[v] = malloc((size_t)g.elems[v] * sizeof **g.at);
        assert_non_null(g.at[v]);
        g.names[v] = strdup(graph->values[v].name);
    }
    return g;
}

static void gradients_destroy(gradients *g)
{
    for (size_t v = 0; v < g->count; v++) {
        free(g->at[v]);
        free((char *)g->names[v]);
    }
    free(g->at);
    free(g->elems);
    free(g->names);
}

/* ---- f64, on the reference device ---- */

static void fill(interpreter *it, const ech_json *golden)
{
    for (size_t k = 0; k < golden_tensors(golden); k++) {
        golden_tensor t = golden_tensor_create(golden, k);
        const ech_value v = ech__graph_find(it->graph, t.name);
        assert_true(v >= 0 && it->elems[v] == t.elems);
        for (int64_t i = 0; i < t.elems; i++)
            interpreter_set(it, v, i,
                            t.is_labels ? (double)((int32_t *)t.data)[i]
                                        : (double)((float *)t.data)[i]);
        golden_tensor_destroy(&t);
    }
}

static gradients exact_gradients(ech_ctx *ctx, const ech_json *golden)
{
    ech_graph *graph;
    ech__device *device;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = golden_build(ctx, graph, golden);
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].type.dtype == ECH_F32)
            graph->values[v].type.dtype = ECH_F64;
    }
    assert_int_equal(ech__fuse(graph), ECH_OK);
    assert_int_equal(ech__autodiff(graph, loss), ECH_OK);
    const ech__device_options options = {.kind = ECH__DEVICE_REFERENCE, .threads = 1};
    assert_int_equal(ech__device_create(ctx, &options, &device), ECH_OK);
    interpreter it;
    interpreter_init(&it, graph, (int64_t)golden_number(golden, "batch"), device);
    fill(&it, golden);
    interpreter_run(&it, ECH__PHASE_BACKWARD);
    gradients g = gradients_create(graph);
    for (size_t v = 0; v < g.count; v++) {
        const ech_value grad = g.at[v] ? ech__graph_gradient(graph, (ech_value)v) : -1;
        for (int64_t i = 0; g.at[v] && i < g.elems[v]; i++)
            g.at[v][i] = interpreter_get(&it, grad, i);
    }
    interpreter_fini(&it);
    ech__device_destroy(device);
    ech_graph_destroy(graph);
    return g;
}

/* The reference itself, against PyTorch's f64. */
static void check_reference(const gradients *g, const ech_json *golden)
{
    const ech_json *figures = ech__json_find(golden, "gradients");
    golden_errors e = {0, 0, 0};
    size_t compared = 0;
    for (size_t v = 0; v < g->count; v++) {
        if (!g->at[v])
            continue;
        const ech_json *of = ech__json_find(figures, g->names[v]);
        if (!of)
            fail_msg("PyTorch has no gradient of '%s'", g->names[v]);
        golden_compare(of, g->names[v], g->at[v], g->elems[v], &e);
        compared++;
    }
    assert_int_equal(compared, ech__json_count(figures));
    printf("%-9s reference, f64              worst tensor %.1e\n", golden_name(golden),
           e.difference);
    if (!(e.difference <= 1e-10 && e.entry <= 1e-9))
        fail_msg("%s: the reference's gradient is off by %.2g, entries by %.2g",
                 golden_name(golden), e.difference, e.entry);
}

/* ---- f32, on the cpu device ---- */

static bool has_winograd(const char *kernel)
{
    return strstr(kernel, "wino") != NULL;
}

static bool is_convolution(ech__op op)
{
    return op == ECH__OP_CONV2D || op == ECH__OP_CONV2D_BWD_DATA ||
           op == ECH__OP_CONV2D_BWD_WEIGHTS;
}

static void count_kernels(const ech__plan *plan, int *winograd, int *all)
{
    *winograd = *all = 0;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        if (!is_convolution(plan->instrs[n].node->op))
            continue;
        ++*all;
        *winograd += has_winograd(plan->instrs[n].choice.name);
    }
}

static void read_gradients(const ech_trainer *trainer, gradients *g)
{
    for (size_t v = 0; v < g->count; v++) {
        if (!g->at[v])
            continue;
        const ech_value grad = ech__graph_gradient(trainer->graph, (ech_value)v);
        assert_true(grad >= 0);
        float *row_major = malloc((size_t)g->elems[v] * sizeof *row_major);
        assert_non_null(row_major);
        assert_int_equal(ech__exec_read(trainer->exec, grad, 0, g->elems[v], row_major), ECH_OK);
        for (int64_t i = 0; i < g->elems[v]; i++)
            g->at[v][i] = (double)row_major[i];
        free(row_major);
    }
}

/* tuning_file NULL: the device's preferred kernels. Gives the kernels' share of Winograd too. */
static gradients cpu_gradients(ech_ctx *ctx, const ech_json *golden, const char *tuning_file,
                               int *winograd, int *all)
{
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = golden_build(ctx, graph, golden);
    ech_train_options options = ech_train_defaults();
    options.batch = (int64_t)golden_number(golden, "batch");
    options.threads = 1;
    options.tune = tuning_file != NULL;
    options.tuning_file = tuning_file;
    ech_trainer *trainer;
    if (ech_trainer_create(ctx, graph, loss, &options, &trainer) < 0)
        fail_msg("%s: %s", golden_name(golden), ech_ctx_error(ctx));
    golden_write(ctx, trainer, golden);
    assert_int_equal(ech_trainer_step(trainer, NULL), ECH_OK);
    gradients g = gradients_create(trainer->model);
    read_gradients(trainer, &g);
    count_kernels(trainer->plan, winograd, all);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
    return g;
}

/* ---- errors ---- */

typedef struct errors {
    double whole, worst;
    const char *worst_name;
} errors;

static errors compare(const gradients *near, const gradients *exact)
{
    errors e = {0, 0, ""};
    double differences = 0, squares = 0;
    assert_int_equal(near->count <= exact->count, true);
    for (size_t v = 0; v < near->count; v++) {
        if (!near->at[v])
            continue;
        assert_string_equal(near->names[v], exact->names[v]);
        double difference = 0, square = 0;
        for (int64_t i = 0; i < near->elems[v]; i++) {
            const double d = near->at[v][i] - exact->at[v][i];
            difference += d * d;
            square += exact->at[v][i] * exact->at[v][i];
        }
        const double error = sqrt(difference / square);
        if (!(error <= e.worst)) {
            e.worst = error;
            e.worst_name = exact->names[v];
        }
        differences += difference;
        squares += square;
    }
    e.whole = sqrt(differences / squares);
    return e;
}

typedef struct kernels_text {
    char s[64];
} kernels_text;

static kernels_text describe_kernels(const char *what, int winograd, int all)
{
    kernels_text text;
    snprintf(text.s, sizeof text.s, "%s (%d of %d)", what, winograd, all);
    return text;
}

static void show(const char *name, const char *how, const errors *e)
{
    printf("%-9s %-27s whole %.1e, worst tensor %.1e (%s)\n", name, how, e->whole, e->worst,
           e->worst_name);
}

/* how: what the kernels are, for the table. */
static void check_preferred(const ech_json *golden, const char *how, const errors *e)
{
    const ech_json *torch = ech__json_find(golden, "f32");
    const errors peer = {golden_number(torch, "whole"), golden_number(torch, "worst"),
                         "against its f64"};
    assert_true(peer.whole > 0 && peer.worst > 0);
    show(golden_name(golden), "PyTorch, f32", &peer);
    show(golden_name(golden), how, e);
    if (!(e->whole <= PREFERRED_FACTOR * peer.whole && e->worst <= PREFERRED_FACTOR * peer.worst))
        fail_msg("%s: the gradient is off by %.2g, worst tensor by %.2g; PyTorch's f32 is by %.2g "
                 "and %.2g",
                 golden_name(golden), e->whole, e->worst, peer.whole, peer.worst);
}

/* Rewrites a tuning file so that Winograd's kernels are the fastest wherever there are any. */
static void prefer_winograd(ech_ctx *ctx, const char *path)
{
    ech_json *doc;
    if (ech__json_load(ctx, path, 16 << 20, &doc) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    ech_json *machines = ech__json_object(), *out = ech__json_object();
    const ech_json *from = ech__json_find(doc, "machines");
    for (ech__json_iter m = ech__json_begin(from); m.key; ech__json_next(&m)) {
        ech_json *works = ech__json_object();
        for (ech__json_iter w = ech__json_begin(m.value); w.key; ech__json_next(&w)) {
            ech_json *kernels = ech__json_object();
            for (ech__json_iter k = ech__json_begin(w.value); k.key; ech__json_next(&k)) {
                double seconds;
                assert_true(ech__json_real(k.value, &seconds));
                ech__json_set_real(&kernels, k.key, has_winograd(k.key) ? 1e-12 : 1 + seconds);
            }
            ech__json_set(&works, w.key, kernels);
        }
        ech__json_set(&machines, m.key, works);
    }
    ech__json_set_int(&out, "version", 1);
    ech__json_set(&out, "machines", machines);
    assert_int_equal(ech__json_save(ctx, path, out, ECH_JSON_INDENT), ECH_OK);
    ech__json_destroy(out);
    ech__json_destroy(doc);
}

static void check_winograd(ech_ctx *ctx, const ech_json *golden, const gradients *exact,
                           const char *path)
{
    int winograd, all;
    gradients g = cpu_gradients(ctx, golden, path, &winograd, &all); /* times the kernels */
    gradients_destroy(&g);
    prefer_winograd(ctx, path);
    g = cpu_gradients(ctx, golden, path, &winograd, &all);
    const errors e = compare(&g, exact);
    show(golden_name(golden), describe_kernels("Winograd", winograd, all).s, &e);
    gradients_destroy(&g);
    if (winograd > 0 && !(e.whole <= WINOGRAD_WHOLE && e.worst <= WINOGRAD_WORST))
        fail_msg("%s: with Winograd the gradient is off by %.2g, worst tensor by %.2g",
                 golden_name(golden), e.whole, e.worst);
}

static void check_case(size_t index, bool has_3x3)
{
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "tuning.json", path);
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_json *doc = golden_open(ctx, "gradients.json");
    const ech_json *golden = golden_case(doc, index);
    gradients exact = exact_gradients(ctx, golden);
    check_reference(&exact, golden);
    int winograd, all;
    gradients direct = cpu_gradients(ctx, golden, NULL, &winograd, &all);
    assert_int_equal(winograd, 0); /* without timing, direct everywhere */
    const errors e = compare(&direct, &exact);
    check_preferred(golden, describe_kernels("cpu, Winograd in", winograd, all).s, &e);
    if (has_3x3)
        check_winograd(ctx, golden, &exact, path);
    gradients_destroy(&direct);
    gradients_destroy(&exact);
    ech__json_destroy(doc);
    ech_ctx_destroy(ctx);
    temp_dir_destroy(&dir);
}

static void lenet_is_exact(void **state)
{
    (void)state;
    check_case(0, false);
}

static void resnet8_is_exact(void **state)
{
    (void)state;
    check_case(1, true);
}

static void resnet18_is_exact(void **state)
{
    (void)state;
    check_case(2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_is_exact),
        cmocka_unit_test(resnet8_is_exact),
        cmocka_unit_test(resnet18_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
