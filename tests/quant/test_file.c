/* int8 networks as files: what was written is read back to the bit, and what is wrong is refused with a sentence. */
#include "support/quant_fixture.h"
#include "base/file/file.h"
#include "quant/file.h"
#include "support/temp_dir.h"

#include <stdlib.h>
#include <string.h>

enum { LOGITS = QUANT_SAMPLES * QUANT_CLASSES };

/* Logits of a file. */
static void run_file(quant_fixture *q, const char *path, float *y)
{
    ech__qmodel model;
    ech__scales scales;
    ech__tensors whole;
    ech__rewritten r;
    ech__tensors_init(q->ctx, &whole);
    quant_good(q, ech__qmodel_bare(&model, q->graph, q->prediction));
    quant_good(q, ech__scales_init(&scales, &model));
    quant_good(q, ech__int8_load(path, &model, &scales, &whole));
    quant_good(q, ech__quantize(&model, &scales, &whole, NULL, &r));
    quant_run(q, q->device, &r, y);
    ech__rewritten_fini(&r);
    ech__tensors_fini(&whole);
    ech__scales_fini(&scales);
    ech__qmodel_fini(&model);
}

static void round_trip(ech__model_kind kind)
{
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    float before[LOGITS], after[LOGITS];
    ech__rewritten r;
    temp_dir_path(&dir, "int8.safetensors", path);
    quant_init(&q, kind, &options);
    quant_good(&q, ech__quantize(&q.model, &q.scales, &q.whole, NULL, &r));
    quant_run(&q, q.device, &r, before);
    quant_good(&q, ech__int8_save(&q.model, &q.scales, &q.whole, path));
    run_file(&q, path, after);
    assert_memory_equal(before, after, sizeof before);
    ech__rewritten_fini(&r);
    quant_fini(&q);
    temp_dir_destroy(&dir);
}

static void lenet_comes_back(void **state)
{
    (void)state;
    round_trip(ECH__MODEL_LENET);
}

static void resnet8_comes_back(void **state)
{
    (void)state;
    round_trip(ECH__MODEL_RESNET8);
}

/* The scales of lenet with one thing replaced by another. */
static void refuse(quant_fixture *q, const char *from, const char *to, const char *sentence)
{
    char *text, edited[65536];
    quant_good(q, ech__scales_text(&q->model, &q->scales, &text));
    char *at = strstr(text, from);
    if (!at)
        fail_msg("'%s' is not in %.200s", from, text);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    ech__scales scales;
    quant_good(q, ech__scales_init(&scales, &q->model));
    assert_true(ech__scales_parse("scales", edited, &q->model, &scales) < 0);
    if (!strstr(ech_ctx_error(q->ctx), sentence))
        fail_msg("%s", ech_ctx_error(q->ctx));
    ech__scales_fini(&scales);
    free(text);
}

static void bad_scales(void **state)
{
    (void)state;
    quant_fixture q;
    const ech__scale_options options = ech__scale_defaults();
    quant_init(&q, ECH__MODEL_LENET, &options);
    q.scales.activation[q.model.input] = 0.25f;
    ech__scales_layer(&q.scales, "conv1")->scale[0] = 0.125f;
    refuse(&q, "\"scale\":0.25", "\"scale\":0",
           "the activation scale of 'x' is 0; it must be a finite number above 0");
    refuse(&q, "\"scale\":0.25", "\"scale\":-0.5", "the activation scale of 'x' is -0.5");
    refuse(&q, "\"scale\":0.25", "\"scale\":null", "the activation scale of 'x' is nan");
    refuse(&q, "\"scale\":0.25", "\"scale\":1e300", "the activation scale of 'x' is 1e+300");
    refuse(&q, "\"scale\":0.25", "\"scale\":\"a\"", "the activation scale of 'x' is not a number");
    refuse(&q, "[0.125", "[0", "the weight scale of 'conv1' is 0");
    refuse(&q, "[0.125,", "[", "layer 'conv1' has 5 weight scales; it must have 1 or 6");
    refuse(&q, "\"conv1\":[", "\"conv9\":[",
           "there are scales for the layer 'conv9', which the model does not have");
    refuse(&q, "\"x\":{", "\"z\":{", "there is a scale for 'z', which the model does not have");
    refuse(&q, "\"version\":1", "\"version\":2", "version is 2; this program reads 1");
    refuse(&q, "\"type\":\"s8\"", "\"type\":\"u8\"", "'x' is of type u8; in this model it is s8");
    quant_fini(&q);
}

/* A file in f32 is none in int8, and that of another model is not this one's. */
static void bad_files(void **state)
{
    (void)state;
    quant_fixture q, other;
    const ech__scale_options options = ech__scale_defaults();
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    ech__qmodel model;
    ech__scales scales;
    ech__tensors whole;
    temp_dir_path(&dir, "int8.safetensors", path);
    quant_init(&q, ECH__MODEL_LENET, &options);
    quant_init(&other, ECH__MODEL_RESNET8, &options);
    quant_good(&other, ech__int8_save(&other.model, &other.scales, &other.whole, path));
    quant_good(&q, ech__qmodel_bare(&model, q.graph, q.prediction));
    quant_good(&q, ech__scales_init(&scales, &model));
    ech__tensors_init(q.ctx, &whole);
    assert_int_equal(ech__int8_load(path, &model, &scales, &whole), ECH_E_FORMAT);
    assert_non_null(strstr(ech_ctx_error(q.ctx), "which the model does not have"));
    assert_int_equal(ech__file_write(q.ctx, path, "\2\0\0\0\0\0\0\0{}", 10), ECH_OK);
    assert_int_equal(ech__int8_load(path, &model, &scales, &whole), ECH_E_FORMAT);
    assert_non_null(strstr(ech_ctx_error(q.ctx), "this is not an int8 network"));
    ech__tensors_fini(&whole);
    ech__scales_fini(&scales);
    ech__qmodel_fini(&model);
    quant_fini(&other);
    quant_fini(&q);
    temp_dir_destroy(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_comes_back),
        cmocka_unit_test(resnet8_comes_back),
        cmocka_unit_test(bad_scales),
        cmocka_unit_test(bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
