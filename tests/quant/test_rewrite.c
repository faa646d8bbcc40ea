/* Networks in int8: folded batch norms, integers bit for bit as the reference has them, near f32,
 * and the fakes beside them. */
#include "support/quant_fixture.h"
#include "base/size.h"
#include "graph/op_quant.h"
#include "models/internal.h"
#include "support/kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOGITS = QUANT_SAMPLES * QUANT_CLASSES };

static double largest_of(const float *y)
{
    double most = 0;
    for (int i = 0; i < LOGITS; i++)
        most = fmax(most, fabs((double)y[i]));
    return most;
}

static double difference(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < LOGITS; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void folded_norms_change_nothing(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    quant_init(&q, ECH__MODEL_RESNET8, &options);
    /* The same network without a loss, with its norms as they are. */
    ech_graph *plain;
    quant_good(&q, ech_graph_create(q.ctx, &plain));
    const ech_value x = ech_input(plain, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech__resnet shape = {.width = 16, .stages = 3, .blocks = 1};
    const ech_value logits = ech__resnet_of(plain, x, &shape);
    ech__graph_keep(plain, logits);
    quant_good(&q, ech__infer_only(plain));
    float before[LOGITS], after[LOGITS];
    quant_run_graph(&q, q.reference, plain, logits, &q.tensors, before);
    quant_run_graph(&q, q.reference, q.model.fused, q.model.output, &q.model.weights, after);
    assert_true(largest_of(before) > 0.1);
    assert_true(difference(before, after) < 1e-4 * largest_of(before));
    for (size_t n = 0; n < q.model.fused->nnodes; n++)
        assert_true(q.model.fused->nodes[n].op != ECH__OP_BN_APPLY);
    ech_graph_destroy(plain);
    quant_fini(&q);
}

/* Every operator but those at the ends is one of integers. */
static void check_operators(const ech_graph *graph)
{
    int quantized = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__op op = graph->nodes[n].op;
        quantized += op == ECH__OP_QUANTIZE;
        assert_true(op == ECH__OP_QUANTIZE || op == ECH__OP_QLINEAR || op == ECH__OP_QCONV2D ||
                    op == ECH__OP_QADD || op == ECH__OP_QMAXPOOL2D || op == ECH__OP_QAVGPOOL2D ||
                    op == ECH__OP_QFLATTEN);
    }
    assert_int_equal(quantized, 1);
}

static void check_model(ech__model_kind kind, const ech__scale_options *options, double near)
{
    quant_fixture q;
    ech__rewritten whole, fake, rounded;
    float f32[LOGITS], cpu[LOGITS], reference[LOGITS], other[LOGITS];
    quant_init(&q, kind, options);
    quant_run_graph(&q, q.reference, q.model.fused, q.model.output, &q.model.weights, f32);
    quant_good(&q, ech__quantize(&q.model, &q.scales, &q.whole, NULL, &whole));
    check_operators(whole.graph);
    quant_run(&q, q.device, &whole, cpu);
    quant_run(&q, q.reference, &whole, reference);
    assert_memory_equal(cpu, reference, sizeof cpu); /* every bit, through all layers */
    if (!(difference(f32, cpu) < near * largest_of(f32)))
        fail_msg("int8 is %g off, of %g", difference(f32, cpu), largest_of(f32));
    assert_true(difference(f32, cpu) > 0);
    /* Float arithmetic on the same whole numbers; only the last layer's unit rounds otherwise. */
    quant_good(&q, ech__fake_quantize(&q.model, &q.scales,
                                      &(ech__fake_options){.bias = ECH__FAKE_WHOLE}, &fake));
    quant_run(&q, q.reference, &fake, other);
    if (!(difference(cpu, other) < 0.02 * largest_of(f32)))
        fail_msg("the fake is %g off, of %g", difference(cpu, other), largest_of(f32));
    quant_good(&q, ech__round_weights(&q.model, &q.scales, &rounded));
    quant_run(&q, q.device, &rounded, other);
    assert_true(difference(f32, other) > 0);
    assert_true(difference(f32, other) < near * largest_of(f32));
    ech__rewritten_fini(&rounded);
    ech__rewritten_fini(&fake);
    ech__rewritten_fini(&whole);
    quant_fini(&q);
}

static void lenet(void **state)
{
    (void)state;
    ech__scale_options options = ech__scale_defaults();
    check_model(ECH__MODEL_LENET, &options, 0.08);
    options.per_channel = false;
    options.weights = ECH_CLIP_MAX;
    options.activations = ECH_OBSERVE_MAX;
    check_model(ECH__MODEL_LENET, &options, 0.08);
}

static void resnet8(void **state)
{
    (void)state;
    const ech__scale_options options = ech__scale_defaults();
    check_model(ECH__MODEL_RESNET8, &options, 0.15);
}

/* With the fastest kernels, which keep what they make of the weights: in memory that the plan counts, for every run. */
static void tuned(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    ech__rewritten whole;
    ech__network *network;
    float reference[LOGITS], cpu[LOGITS];
    quant_init(&q, ECH__MODEL_RESNET8, &options);
    quant_good(&q, ech__quantize(&q.model, &q.scales, &q.whole, NULL, &whole));
    quant_run(&q, q.reference, &whole, reference);
    ech__tuning *tuning;
    quant_good(&q, ech__tuning_open(q.ctx, NULL, &tuning));
    const int64_t before = q.device->memory_used;
    const ech__network_options o = {.device = q.device, .batch = QUANT_SAMPLES, .tuning = tuning};
    quant_good(&q, ech__network_create(whole.graph, whole.output, &whole.weights, &o, &network));
    for (int run = 0; run < 2; run++) {
        memset(cpu, 0, sizeof cpu);
        quant_good(&q, ech__network_run(network, q.x, QUANT_SAMPLES, cpu));
        assert_memory_equal(cpu, reference, sizeof cpu);
    }
    const ech__plan *plan = network->plan;
    int64_t kept = 0;
    for (size_t n = 0; n < plan->ninstrs; n++)
        kept += ech__round_up(plan->instrs[n].choice.kept_bytes, ECH__ALIGN);
    assert_true(kept > 0 || !on_cpu());
    assert_int_equal(plan->memory[ECH__MEMORY_COPIES], kept);
    assert_int_equal(q.device->memory_used - before, plan->total_bytes);
    ech__network_destroy(network);
    ech__tuning_close(tuning);
    ech__rewritten_fini(&whole);
    quant_fini(&q);
}

/* In lenet sums stay below 2^24, and before the last layer fake and real are the same numbers. */
static void fake_is_exact_where_sums_are_small(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    ech__rewritten whole, fake;
    float cpu[LOGITS], other[LOGITS];
    quant_init(&q, ECH__MODEL_LENET, &options);
    quant_good(&q, ech__quantize(&q.model, &q.scales, &q.whole, NULL, &whole));
    quant_good(&q, ech__fake_quantize(&q.model, &q.scales,
                                      &(ech__fake_options){.bias = ECH__FAKE_WHOLE}, &fake));
    quant_run(&q, q.device, &whole, cpu);
    quant_run(&q, q.device, &fake, other);
    assert_true(difference(cpu, other) < 2e-3 * largest_of(cpu));
    ech__rewritten_fini(&fake);
    ech__rewritten_fini(&whole);
    quant_fini(&q);
}

static void slips_are_worse(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    ech__rewritten r;
    float f32[LOGITS], good[LOGITS], bad[LOGITS];
    quant_init(&q, ECH__MODEL_LENET, &options);
    quant_run_graph(&q, q.device, q.model.fused, q.model.output, &q.model.weights, f32);
    const ech__fake_options kinds[] = {{.bias = ECH__FAKE_REAL},
                                       {.bias = ECH__FAKE_UNSCALED},
                                       {.bias = ECH__FAKE_WHOLE, .clamp_at_127 = true}};
    for (int i = 0; i < 3; i++) {
        quant_good(&q, ech__fake_quantize(&q.model, &q.scales, &kinds[i], &r));
        quant_run(&q, q.device, &r, i ? bad : good);
        ech__rewritten_fini(&r);
        if (i)
            assert_true(difference(f32, bad) > 2 * difference(f32, good));
    }
    quant_fini(&q);
}

static void one_layer_alone(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    float f32[LOGITS], y[LOGITS];
    quant_init(&q, ECH__MODEL_RESNET8, &options);
    quant_run_graph(&q, q.device, q.model.fused, q.model.output, &q.model.weights, f32);
    for (size_t l = 0; l < q.scales.nlayers; l++) {
        bool chosen[64] = {false};
        ech__rewritten r;
        int layers = 0;
        assert_true(q.scales.nlayers <= 64);
        chosen[l] = true;
        quant_good(&q, ech__quantize(&q.model, &q.scales, &q.whole, chosen, &r));
        for (size_t n = 0; n < r.graph->nnodes; n++)
            layers +=
                r.graph->nodes[n].op == ECH__OP_QCONV2D || r.graph->nodes[n].op == ECH__OP_QLINEAR;
        assert_int_equal(layers, 1);
        quant_run(&q, q.device, &r, y);
        assert_true(difference(f32, y) > 0);
        assert_true(difference(f32, y) < 0.1 * largest_of(f32));
        ech__rewritten_fini(&r);
    }
    quant_fini(&q);
}

/* ---- bad input ---- */

static void refuses(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    ech__qmodel model;
    quant_init(&q, ECH__MODEL_LENET, &options);
    float *w = ech__tensors_find(&q.tensors, "conv2.weight")->data;
    w[7] = NAN;
    assert_int_equal(ech__qmodel_from(&model, q.graph, q.prediction, &q.tensors), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(q.ctx), "element 7 of 'conv2.weight' is"));
    ech__tensor *zero = ech__tensors_find(&q.tensors, "conv2.weight");
    memset(zero->data, 0, (size_t)zero->elems * sizeof(float));
    quant_good(&q, ech__qmodel_from(&model, q.graph, q.prediction, &q.tensors));
    assert_int_equal(ech__scales_weights(&q.scales, &model, &options), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(q.ctx), "layer 'conv2' has a weight range of zero"));
    ech__qmodel_fini(&model);
    /* Nothing was observed, and only zeros were. */
    ech__histogram **seen = calloc(q.scales.nvalues, sizeof *seen);
    assert_non_null(seen);
    assert_int_equal(ech__scales_activations(&q.scales, &q.model, seen, &options), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(q.ctx), "the calibration set is empty"));
    static ech__histogram zeros;
    ech__histogram_add(&zeros, (float[]){0, 0}, 2);
    for (size_t v = 0; v < q.scales.nvalues; v++)
        seen[v] = &zeros;
    assert_int_equal(ech__scales_activations(&q.scales, &q.model, seen, &options), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(q.ctx), "'x' has an activation range of zero"));
    free(seen);
    quant_fini(&q);
}

/* A bias that 32 bits would not hold at its channel's own scale. */
static void tiny_weights_leave_room_for_the_bias(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    quant_init(&q, ECH__MODEL_LENET, &options);
    ech__qmodel_fini(&q.model);
    ech__scales_fini(&q.scales);
    ech__tensors_fini(&q.whole);
    float *w = ech__tensors_find(&q.tensors, "fc2.weight")->data;
    for (int i = 0; i < 120; i++)
        w[i] = 1e-20f;
    ((float *)ech__tensors_find(&q.tensors, "fc2.bias")->data)[0] = 3;
    quant_good(&q, ech__qmodel_from(&q.model, q.graph, q.prediction, &q.tensors));
    quant_good(&q, ech__scales_init(&q.scales, &q.model));
    quant_good(&q, ech__scales_weights(&q.scales, &q.model, &options));
    ech__calibration c;
    quant_good(&q, ech__calibration_init(&c, &q.model, q.device, QUANT_SAMPLES));
    quant_good(&q, ech__calibration_add(&c, q.x, QUANT_SAMPLES));
    quant_good(&q, ech__scales_activations(&q.scales, &q.model, c.seen, &options));
    ech__calibration_fini(&c);
    ech__tensors_init(q.ctx, &q.whole);
    quant_good(&q, ech__round_parameters(&q.model, &q.scales, &q.whole));
    const int32_t *b = ech__tensors_find(&q.whole, "fc2.bias")->data;
    assert_true(b[0] > 1 << 29 && b[0] <= 1 << 30);
    quant_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folded_norms_change_nothing),
        cmocka_unit_test(lenet),
        cmocka_unit_test(resnet8),
        cmocka_unit_test(tuned),
        cmocka_unit_test(fake_is_exact_where_sums_are_small),
        cmocka_unit_test(slips_are_worse),
        cmocka_unit_test(one_layer_alone),
        cmocka_unit_test(refuses),
        cmocka_unit_test(tiny_weights_leave_room_for_the_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
