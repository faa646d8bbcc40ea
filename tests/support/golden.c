#include "support/golden.h"
#include "base/rng.h"
#include "base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the formula ---- */

uint64_t golden_word(const char *name, uint64_t i)
{
    uint64_t z = ech__rng_stream(name) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void golden_fill(const char *name, float scale, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int32_t bits = (int32_t)(golden_word(name, (uint64_t)i) >> 40) - (1 << 23);
        out[i] = (float)bits * 0x1p-23f * scale;
    }
}

void golden_labels(const char *name, int64_t classes, int32_t *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (int32_t)((golden_word(name, (uint64_t)i) >> 40) % (uint64_t)classes);
}

/* ---- the files ---- */

ech_json *golden_open(ech_ctx *ctx, const char *file)
{
    const char *root = getenv("ECH_SRC");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", file);
    ech_json *doc;
    if (ech__json_load(ctx, path, 16 << 20, &doc) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    assert_true(golden_count(doc) > 0);
    return doc;
}

size_t golden_count(const ech_json *doc)
{
    return ech__json_count(ech__json_find(doc, "cases"));
}

const ech_json *golden_case(const ech_json *doc, size_t index)
{
    const ech_json *golden = ech__json_at(ech__json_find(doc, "cases"), index);
    assert_non_null(golden);
    return golden;
}

static const char *text(const ech_json *object, const char *field)
{
    const char *found = NULL;
    if (!ech__json_string(ech__json_find(object, field), &found))
        fail_msg("golden file: no text '%s'", field);
    return found;
}

const char *golden_name(const ech_json *golden)
{
    return text(golden, "name");
}

double golden_number(const ech_json *golden, const char *field)
{
    const ech_json *found = ech__json_find(golden, field);
    double value = 0;
    if (found && !ech__json_real(found, &value))
        fail_msg("golden file: '%s' is no number", field);
    return value;
}

static ech_optimizer optimizer_named(const char *name)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        ECH_OPTIMIZER_LIST(NAME)
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i], name))
            return (ech_optimizer)i;
    }
    fail_msg("golden file: no optimizer '%s'", name);
    return ECH_SGD;
}

ech_train_options golden_options(const ech_json *golden)
{
    ech_train_options o = ech_train_defaults();
    o.batch = (int64_t)golden_number(golden, "batch");
    o.optimizer = optimizer_named(text(golden, "optimizer"));
    o.lr = golden_number(golden, "lr");
    o.momentum = golden_number(golden, "momentum");
    o.weight_decay = golden_number(golden, "weight_decay");
    const ech_json *nesterov = ech__json_find(golden, "nesterov");
    assert_true(!nesterov || ech__json_bool(nesterov, &o.nesterov));
    o.threads = 1;
    o.tune = false;
    return o;
}

static int64_t elems_of(const ech_json *tensor)
{
    const ech_json *shape = ech__json_find(tensor, "shape");
    int64_t elems = 1, dim = 0;
    for (size_t k = 0; k < ech__json_count(shape); k++) {
        assert_true(ech__json_int(ech__json_at(shape, k), &dim) && dim > 0 && dim < 100000);
        elems *= dim;
    }
    return elems;
}

/* Both types of a golden tensor, f32 and s32, have four bytes. */
static void *make_tensor(const ech_json *tensor, int64_t elems)
{
    const char *name = text(tensor, "name");
    void *data = malloc((size_t)elems * 4);
    assert_non_null(data);
    if (ech__json_find(tensor, "classes"))
        golden_labels(name, (int64_t)golden_number(tensor, "classes"), data, elems);
    else
        golden_fill(name, (float)golden_number(tensor, "scale"), data, elems);
    ech__sha256 sha;
    ech__sha256_init(&sha);
    ech__sha256_update(&sha, data, (size_t)elems * 4);
    const ech__sha256_text hex = ech__sha256_final(&sha);
    if (strcmp(hex.s, text(tensor, "sha256")) != 0)
        fail_msg("'%s' is not the tensor that PyTorch had: its hash is %s", name, hex.s);
    return data;
}

void golden_write(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden)
{
    const ech_json *tensors = ech__json_find(golden, "tensors");
    assert_true(ech__json_count(tensors) > 0);
    for (size_t t = 0; t < ech__json_count(tensors); t++) {
        const ech_json *tensor = ech__json_at(tensors, t);
        const int64_t elems = elems_of(tensor);
        void *data = make_tensor(tensor, elems);
        if (ech_trainer_write(trainer, text(tensor, "name"), data, (size_t)elems * 4) < 0)
            fail_msg("%s", ech_ctx_error(ctx));
        free(data);
    }
}

static void read_numbers(const ech_json *object, const char *field, double *out, size_t count)
{
    const ech_json *list = ech__json_find(object, field);
    assert_int_equal(ech__json_count(list), count);
    for (size_t i = 0; i < count; i++)
        assert_true(ech__json_real(ech__json_at(list, i), &out[i]));
}

void golden_losses(const ech_json *golden, double out[GOLDEN_STEPS])
{
    read_numbers(golden, "losses", out, GOLDEN_STEPS);
}

/* ---- final weights ---- */

enum { SKETCHES = 8, SAMPLES = 8 };

static double sign(const char *name, int k, int64_t i)
{
    char stream[128];
    snprintf(stream, sizeof stream, "%s/sign%d", name, k);
    return golden_word(stream, (uint64_t)i) >> 63 ? -1 : 1;
}

static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

static void compare(const char *name, const float *weight, int64_t elems, const ech_json *figures,
                    golden_errors *errors)
{
    double sketch[SKETCHES], sample[SAMPLES], square = 0, distance = 0;
    read_numbers(figures, "sketch", sketch, SKETCHES);
    read_numbers(figures, "sample", sample, SAMPLES);
    const double norm = golden_number(figures, "norm");
    assert_true(norm > 0);
    for (int64_t i = 0; i < elems; i++)
        square += (double)weight[i] * weight[i];
    for (int k = 0; k < SKETCHES; k++) {
        double sum = 0;
        for (int64_t i = 0; i < elems; i++)
            sum += sign(name, k, i) * weight[i];
        distance += (sum - sketch[k]) * (sum - sketch[k]) / SKETCHES;
    }
    errors->difference = larger(errors->difference, sqrt(distance) / norm);
    errors->norm = larger(errors->norm, fabs(sqrt(square) - norm) / norm);
    char stream[128];
    snprintf(stream, sizeof stream, "%s/place", name);
    for (uint64_t k = 0; k < SAMPLES; k++) {
        const uint64_t at = golden_word(stream, k) % (uint64_t)elems;
        const double error = fabs(weight[at] - sample[k]) / (norm / sqrt((double)elems));
        errors->entry = larger(errors->entry, error);
    }
}

golden_errors golden_compare_weights(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden)
{
    golden_errors errors = {0, 0, 0};
    const ech_json *tensors = ech__json_find(golden, "tensors");
    const ech_json *weights = ech__json_find(golden, "weights");
    size_t compared = 0;
    for (size_t t = 0; t < ech__json_count(tensors); t++) {
        const ech_json *tensor = ech__json_at(tensors, t);
        const char *name = text(tensor, "name");
        const ech_json *figures = ech__json_find(weights, name);
        if (!figures)
            continue; /* an input */
        const int64_t elems = elems_of(tensor);
        float *weight = malloc((size_t)elems * sizeof *weight);
        assert_non_null(weight);
        if (ech_trainer_read(trainer, name, weight, (size_t)elems * sizeof *weight) < 0)
            fail_msg("%s", ech_ctx_error(ctx));
        compare(name, weight, elems, figures, &errors);
        free(weight);
        compared++;
    }
    assert_true(compared > 0);
    assert_int_equal(compared, ech__json_count(weights));
    return errors;
}
