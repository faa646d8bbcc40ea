/* Devices by description: operators priced by hand, the published runs on A40 GPUs, and files that are wrong. */
#include "support/cmocka_first.h"
#include "predict/pricing.h"
#include "predict/roofline.h"

#include "base/file/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const examples[] = {"a40", "a100", "v100", "t4", "h100", "rtx4090"};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static int set_up(void **state)
{
    return ech_ctx_create(NULL, (ech_ctx **)state);
}

static int tear_down(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

static ech__device_spec load(ech_ctx *ctx, const char *name)
{
    char path[4096];
    ech__device_spec spec;
    const char *source = getenv("ECH_SRC");
    snprintf(path, sizeof path, "%s/examples/devices/%s.json", source ? source : ".", name);
    if (ech__device_spec_load(ctx, path, &spec) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return spec;
}

/* ---- operators ---- */

/* Round figures: 10 multiprocessors with 1e9 flops/s each, 1e9 bytes/s. */
static ech__device_spec round_device(void)
{
    ech__device_spec d = {.peak = {1e10, 0, 0, 4e10},
                          .bytes_per_s = 1e9,
                          .multiprocessors = 10,
                          .tile_flops = 1e6,
                          .launch = {1e-6, 4e-6}};
    for (int k = 0; k < ECH__WORK_PRODUCTS; k++) {
        for (int m = 0; m < ECH__MATH_COUNT; m++)
            d.compute[k][m] = (ech__bounds){0.25, 1};
    }
    for (int k = 0; k < ECH__WORK_COUNT; k++)
        d.streaming[k] = (ech__bounds){0.5, 0.5};
    return d;
}

static void close_to(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%.12g instead of %.12g", got, wanted);
}

static void test_roofline(void **state)
{
    (void)state;
    const ech__device_spec d = round_device();
    ech__work w = {.kind = ECH__WORK_MATRIX, .flops = 1e8, .bytes = 4, .launched = true};
    /* 100 tiles on 10 multiprocessors, each 1 ms at the peak */
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.01 + 1e-6);
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_SLOW), 0.04 + 4e-6);
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_MIDDLE), 0.02 + 2e-6);
    w.flops = 1.01e8; /* one tile more takes another turn */
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.011 + 1e-6);
    w.flops = 5e6; /* half of the device is idle */
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.001 + 1e-6);
    w.flops = 5e5; /* a part of a tile has one multiprocessor */
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.0005 + 1e-6);
    w.bytes = 1e8; /* more to move than to compute */
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.2 + 1e-6);
    w = (ech__work){.kind = ECH__WORK_MATRIX, .dtype = ECH_F16, .flops = 1e8, .launched = true};
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.0025 + 1e-6);
    w.dtype = ECH_BF16; /* which it does not have: as f32 */
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0.01 + 1e-6);
    w.launched = false;
    close_to(ech__roofline_seconds(&d, &w, ECH__ROOFLINE_FAST), 0);
    close_to(ech__roofline_sum(&d, 1000, 2, ECH__ROOFLINE_FAST), 2500 / 0.5e9);
}

/* The work of a node with this operator and name. */
static ech__work work_of(const ech_graph *g, ech__op op, const char *name, int64_t batch)
{
    for (size_t n = 0; n < g->nnodes; n++) {
        if (g->nodes[n].op == op && !strcmp(g->nodes[n].name, name))
            return ech__node_work(g, &g->nodes[n], batch);
    }
    fail_msg("no %s '%s'", ech__op_name(op), name);
    return (ech__work){.launched = false};
}

static void test_work(void **state)
{
    ech_graph *g;
    ech__model model;
    assert_int_equal(ech_graph_create(*state, &g), ECH_OK);
    assert_int_equal(
        ech__model_build(g, &(ech__model_options){.kind = ECH__MODEL_RESNET18}, &model), ECH_OK);
    assert_int_equal(ech__autodiff(g, model.loss), ECH_OK);
    const double image = 32 * 32, batch = 7;
    ech__work w = work_of(g, ECH__OP_CONV2D, "conv1", 7);
    assert_int_equal(w.kind, ECH__WORK_CONV_FIRST);
    close_to(w.flops, 2 * batch * image * 64 * 27);
    w = work_of(g, ECH__OP_CONV2D, "layer1.0.conv1", 7);
    assert_int_equal(w.kind, ECH__WORK_CONV);
    close_to(w.flops, 2 * batch * image * 64 * 576);
    close_to(w.bytes, 4 * (2 * batch * image * 64 + 64 * 576));
    /* every direction of a product has the same flops */
    close_to(work_of(g, ECH__OP_CONV2D_BWD_DATA, "layer1.0.conv1", 7).flops, w.flops);
    close_to(work_of(g, ECH__OP_CONV2D_BWD_WEIGHTS, "layer1.0.conv1", 7).flops, w.flops);
    w = work_of(g, ECH__OP_CONV2D, "layer2.0.shortcut.0", 7);
    assert_int_equal(w.kind, ECH__WORK_CONV_1X1);
    close_to(w.flops, 2 * batch * image / 4 * 128 * 64);
    w = work_of(g, ECH__OP_LINEAR, "linear", 7);
    assert_int_equal(w.kind, ECH__WORK_MATRIX);
    close_to(w.flops, 2 * batch * 512 * 10);
    w = work_of(g, ECH__OP_BN_STATS, "bn1", 7);
    assert_int_equal(w.kind, ECH__WORK_BATCH_NORM);
    close_to(w.bytes, 4 * (batch * image * 64 + 128));
    close_to(work_of(g, ECH__OP_BN_RUNNING, "bn1", 7).bytes, 4 * (2 * 128 + 128));
    double flops = 0;
    for (size_t n = 0; n < g->nnodes; n++)
        flops += ech__node_work(g, &g->nodes[n], 1).flops;
    assert_true(fabs(flops / 3.336e9 - 1) <
                0.01); /* of a training step of ResNet-18, for one image */
    ech_graph_destroy(g);
}

/* ---- published runs ---- */

typedef struct priced {
    ech__run_config config;
    ech__device_spec device;
    ech__cluster cluster;
    ech__pricing *pricing;
} priced;

static void begin(ech_ctx *ctx, priced *p, const char *name, ech__model_options model)
{
    p->config = ech__run_defaults();
    p->config.model = model;
    p->config.train.optimizer.momentum = 0.9;
    p->device = load(ctx, name);
    p->cluster = (ech__cluster){.inside = p->device.link, .between = p->device.link};
    const ech__pricing_options o = {.config = &p->config,
                                    .strategy = ECH__STRATEGY_DDP,
                                    .device = &p->device,
                                    .cluster = &p->cluster,
                                    .algorithm = ECH__ALGORITHM_BEST};
    if (ech__pricing_create(ctx, &o, &p->pricing) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
}

static ech__price at(ech_ctx *ctx, priced *p, int64_t devices, int64_t batch)
{
    ech__price price;
    if (ech__pricing_at(p->pricing, devices, devices * batch, &price) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    assert_false(price.measured);
    assert_true(price.low_s <= price.step.step_s && price.step.step_s <= price.high_s);
    return price;
}

static const ech__model_options RESNET18 = {.kind = ECH__MODEL_RESNET18};

/* ResNet-18 on CIFAR-10, second epoch without data loading, seconds on 1 and 2 GPUs; 0: not
 * published. Batch 128 on one GPU is what the file was calibrated on. Batch 32 is bound by the host
 * and only shown. */
static const struct {
    int64_t batch;
    double one, two, within;
} a40[] = {{32, 22.782, 15.775, 1},
           {128, 18.051, 9.637, 0.005},
           {512, 19.448, 9.708, 0.15},
           {2048, 19.658, 0, 0.15}};

static void test_a40(void **state)
{
    const double samples = 50000;
    priced p;
    begin(*state, &p, "a40", RESNET18);
    assert_true(p.device.calibrated);
    print_message("%6s %10s %10s %8s   %8s %8s %8s\n", "batch", "published", "predicted", "error",
                  "2 by 1", "priced", "error");
    for (size_t i = 0; i < sizeof a40 / sizeof *a40; i++) {
        const double batch = (double)a40[i].batch;
        const double one = at(*state, &p, 1, a40[i].batch).step.step_s * samples / batch;
        const double two = at(*state, &p, 2, a40[i].batch).step.step_s * samples / batch / 2;
        const double error = one / a40[i].one - 1;
        print_message("%6d %10.3f %10.3f %+7.1f%%", (int)a40[i].batch, a40[i].one, one,
                      100 * error);
        assert_true(fabs(error) <= a40[i].within);
        if (a40[i].two > 0) {
            const double ratio = a40[i].two / a40[i].one, ratio_error = two / one / ratio - 1;
            print_message("   %8.4f %8.4f %+7.1f%%", ratio, two / one, 100 * ratio_error);
            assert_true(a40[i].batch == 32 || fabs(ratio_error) <= 0.05);
        }
        print_message("\n");
    }
    ech__pricing_destroy(p.pricing);
}

/* ---- other devices ---- */

/* What is not calibrated is a range; memory and links are the device's. */
static void test_examples(void **state)
{
    for (int i = 0; i < EXAMPLES; i++) {
        priced p;
        begin(*state, &p, examples[i], RESNET18);
        const ech__price price = at(*state, &p, 1, 128);
        if (p.device.calibrated)
            assert_true(price.high_s / price.low_s < 1.5);
        else
            assert_true(price.high_s / price.low_s > 1.5);
        assert_true(p.device.memory >= 16e9 && p.device.link.bytes_per_s >= 1e9);
        assert_true(p.device.peak[ECH__MATH_FP16] > p.device.peak[ECH__MATH_F32]);
        ech__pricing_destroy(p.pricing);
    }
}

/* What was calibrated on one device lies in the range of others of its generation. */
static void test_generation(void **state)
{
    const ech__device_spec a = load(*state, "a40"), b = load(*state, "a100");
    for (int k = 0; k < ECH__WORK_COUNT; k++) {
        for (int m = 0; k < ECH__WORK_PRODUCTS && m < ECH__MATH_COUNT; m++)
            assert_true(a.compute[k][m].low >= b.compute[k][m].low &&
                        a.compute[k][m].high <= b.compute[k][m].high);
        assert_true(a.streaming[k].low >= b.streaming[k].low &&
                    a.streaming[k].high <= b.streaming[k].high);
    }
}

/* Operators of a small network wait for the host, and so do those of a small batch. */
static void test_host(void **state)
{
    priced p;
    begin(*state, &p, "h100", (ech__model_options){ECH__MODEL_LINEAR, 64, 4});
    const double small = at(*state, &p, 1, 1).step.step_s;
    close_to(at(*state, &p, 1, 64).step.step_s, small);
    p.device.host = (ech__bounds){0, 0};
    assert_true(at(*state, &p, 1, 1).step.step_s < small);
    ech__pricing_destroy(p.pricing);
}

/* More samples take longer, and no longer for each. */
static void test_batches(void **state)
{
    priced p;
    begin(*state, &p, "a100", RESNET18);
    double last = 0;
    for (int64_t batch = 1; batch <= 1 << 20; batch *= 4) {
        const double step = at(*state, &p, 1, batch).step.step_s;
        assert_true(step >= last * (1 - 1e-9));
        assert_true(last == 0 || step <= 4 * last * (1 + 1e-9));
        last = step;
    }
    ech__pricing_destroy(p.pricing);
}

/* ---- wrong files ---- */

static const struct {
    const char *from, *to; /* in the file of the A40 */
    const char *says;
} wrong[] = {
    {"\"name\"", "\"nome\"", "\"nome\" is no member"},
    {"\"name\"", "\"na\\nme\"", "\"na?me\" is no member"},
    {"\"conv\": \"tf32\"", "\"conv\": \"tf\\n32\"", "\"conv\" must be on one line"},
    {"\"NVIDIA A40\"", "7", "\"name\" must be a string"},
    {"\"NVIDIA A40\"", "\"\"", "\"name\" has 0 bytes"},
    {"\"peak_flops\": {", "\"peak_flops\": {\"f8\": 1,", "\"peak_flops\": \"f8\" is no member"},
    {"{\"value\": 37.42e12", "{\"value\": -1",
     "\"peak_flops\": \"f32\" is -1: it must be from 1e+06"},
    {"{\"value\": 37.42e12", "{\"value\": [1e12, 2e12]", "must be one number"},
    {"{\"value\": 37.42e12", "{\"size\": 37.42e12", "\"f32\": \"size\" is no member"},
    {"{\"value\": 37.42e12,", "{\"value\": null,", "\"f32\" is null: it must be a number"},
    {"\"conv\": \"tf32\"", "\"conv\": \"fp64\"", "\"conv\" is 'fp64': it must be f32 or tf32"},
    {"    \"tf32\": {\"value\": 74.83e12,\n     \"source\": "
     "\"https://hmc-tech.com/gpu/nvidia-a100-vs-nvidia-a40\"},\n",
     "", "\"conv\" is tf32, which \"peak_flops\" does not have"},
    {"\"multiprocessors\"", "\"multiprocessor\"", "\"multiprocessor\" is no member"},
    {"{\"value\": 84", "{\"value\": 0", "\"multiprocessors\" is 0: it must be from 1 to 1e+06"},
    {"[4e-6, 6e-6]", "[6e-6, 4e-6]", "\"launch\" is [6e-06, 4e-06]: low must not be above high"},
    {"[4e-6, 6e-6]", "[4e-6]", "\"launch\" must have two numbers"},
    {"[4e-6, 6e-6]", "\"4us\"", "\"launch\" is a string: it must be a number"},
    {"\"tf32\": 0.1589", "\"tf32\": 1.5", "\"tf32\" is 1.5: it must be from 0.0001 to 1"},
    {"\"optimizer\": {\"memory\"", "\"optimizer\": {\"compute\"",
     "\"efficiency\": \"optimizer\": \"compute\" is no member"},
    {",\n    \"optimizer\": {\"memory\": 0.76}", "", "\"efficiency\": \"optimizer\" is missing"},
    {"\"error\": 0.15", "\"error\": -0.15",
     "\"calibration\": \"error\" is -0.15: it must be from 0"},
    {"\"calibration\": {", "\"calibration\": [", "a40"},
};

static void test_wrong(void **state)
{
    ech_ctx *ctx = *state;
    char path[4096], *text, changed[16384];
    size_t bytes;
    ech__device_spec spec;
    const char *source = getenv("ECH_SRC");
    snprintf(path, sizeof path, "%s/examples/devices/a40.json", source ? source : ".");
    assert_int_equal(ech__file_read(ctx, path, sizeof changed, &text, &bytes), ECH_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *found = strstr(text, wrong[i].from);
        if (!found)
            fail_msg("the file has no %s", wrong[i].from);
        const int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(found - text), text,
                                    wrong[i].to, found + strlen(wrong[i].from));
        assert_true(ech__device_spec_parse(ctx, "a40", changed, (size_t)length, &spec) < 0);
        const char *said = ech_ctx_error(ctx);
        if (!strstr(said, wrong[i].says) || strncmp(said, "a40", 3) || strchr(said, '\n'))
            fail_msg("'%s' does not say '%s'", said, wrong[i].says);
    }
    free(text);
    assert_true(ech__device_spec_load(ctx, "/nowhere/a40.json", &spec) < 0);
    assert_non_null(strstr(ech_ctx_error(ctx), "/nowhere/a40.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_roofline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a40, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_examples, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_generation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_host, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_batches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
