#include "support/golden.h"
#include "base/rng.h"
#include "base/file/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the formula ---- */

/* Word i of a stream. */
static uint64_t word(uint64_t stream, int64_t i)
{
    uint64_t z = stream + ((uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void golden_fill(const char *name, float scale, float *out, int64_t count)
{
    const uint64_t stream = ech__rng_stream(name);
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((int32_t)(word(stream, i) >> 40) - (1 << 23)) * 0x1p-23f * scale;
}

static void fill_labels(const char *name, int64_t classes, int32_t *out, int64_t count)
{
    const uint64_t stream = ech__rng_stream(name);
    for (int64_t i = 0; i < count; i++)
        out[i] = (int32_t)((word(stream, i) >> 40) % (uint64_t)classes);
}

static void fill_constant(float value, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
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
    return ECH_OPTIMIZER_SGD;
}

ech_train_options golden_options(const ech_json *golden)
{
    ech_train_options o = ech_train_defaults();
    o.batch = (int64_t)golden_number(golden, "batch");
    o.optimizer.kind = optimizer_named(text(golden, "optimizer"));
    o.optimizer.lr = golden_number(golden, "lr");
    o.optimizer.momentum = golden_number(golden, "momentum");
    o.optimizer.weight_decay = golden_number(golden, "weight_decay");
    o.optimizer.clip_norm = golden_number(golden, "clip_norm");
    o.amp.loss_scale = golden_number(golden, "loss_scale");
    const ech_json *nesterov = ech__json_find(golden, "nesterov");
    assert_true(!nesterov || ech__json_bool(nesterov, &o.optimizer.nesterov));
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

size_t golden_tensors(const ech_json *golden)
{
    return ech__json_count(ech__json_find(golden, "tensors"));
}

golden_tensor golden_tensor_create(const ech_json *golden, size_t index)
{
    const ech_json *tensor = ech__json_at(ech__json_find(golden, "tensors"), index);
    golden_tensor t = {.name = text(tensor, "name"), .elems = elems_of(tensor)};
    t.data = malloc((size_t)t.elems * 4);
    assert_non_null(t.data);
    t.is_labels = ech__json_find(tensor, "classes") != NULL;
    if (t.is_labels)
        fill_labels(t.name, (int64_t)golden_number(tensor, "classes"), t.data, t.elems);
    else if (ech__json_find(tensor, "value"))
        fill_constant((float)golden_number(tensor, "value"), t.data, t.elems);
    else
        golden_fill(ech__json_find(tensor, "stream") ? text(tensor, "stream") : t.name,
                    (float)golden_number(tensor, "scale"), t.data, t.elems);
    ech__sha256 sha;
    ech__sha256_init(&sha);
    ech__sha256_update(&sha, t.data, (size_t)t.elems * 4);
    const ech__sha256_text hex = ech__sha256_final(&sha);
    if (strcmp(hex.s, text(tensor, "sha256")) != 0)
        fail_msg("'%s' is not the tensor that PyTorch had: its hash is %s", t.name, hex.s);
    return t;
}

void golden_tensor_destroy(golden_tensor *tensor)
{
    free(tensor->data);
}

void golden_write(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden)
{
    assert_true(golden_tensors(golden) > 0);
    for (size_t k = 0; k < golden_tensors(golden); k++) {
        golden_tensor t = golden_tensor_create(golden, k);
        if (ech_trainer_write(trainer, t.name, t.data, (size_t)t.elems * 4) < 0)
            fail_msg("%s", ech_ctx_error(ctx));
        golden_tensor_destroy(&t);
    }
}

static void read_numbers(const ech_json *object, const char *field, double *out, size_t count)
{
    const ech_json *list = ech__json_find(object, field);
    assert_int_equal(ech__json_count(list), count);
    for (size_t i = 0; i < count; i++)
        assert_true(ech__json_real(ech__json_at(list, i), &out[i]));
}

int golden_losses(const ech_json *golden, double out[GOLDEN_STEPS])
{
    const size_t count = ech__json_count(ech__json_find(golden, "losses"));
    assert_true(count > 0 && count <= GOLDEN_STEPS);
    read_numbers(golden, "losses", out, count);
    return (int)count;
}

/* ---- figures of a tensor ---- */

enum { SKETCHES = 8, SAMPLES = 8 };

static uint64_t stream_of(const char *name, const char *what, int k)
{
    char stream[160];
    snprintf(stream, sizeof stream, k < 0 ? "%s/%s" : "%s/%s%d", name, what, k);
    return ech__rng_stream(stream);
}

static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

void golden_compare(const ech_json *figures, const char *name, const double *data, int64_t elems,
                    golden_errors *errors)
{
    double sketch[SKETCHES], sample[SAMPLES], square = 0, distance = 0;
    read_numbers(figures, "sketch", sketch, SKETCHES);
    read_numbers(figures, "sample", sample, SAMPLES);
    const double norm = golden_number(figures, "norm");
    assert_true(norm > 0);
    for (int64_t i = 0; i < elems; i++)
        square += data[i] * data[i];
    for (int k = 0; k < SKETCHES; k++) {
        const uint64_t stream = stream_of(name, "sign", k);
        double sum = 0;
        for (int64_t i = 0; i < elems; i++)
            sum += word(stream, i) >> 63 ? -data[i] : data[i];
        distance += (sum - sketch[k]) * (sum - sketch[k]) / SKETCHES;
    }
    errors->difference = larger(errors->difference, sqrt(distance) / norm);
    errors->norm = larger(errors->norm, fabs(sqrt(square) - norm) / norm);
    const uint64_t places = stream_of(name, "place", -1);
    for (int k = 0; k < SAMPLES; k++) {
        const uint64_t at = word(places, k) % (uint64_t)elems;
        const double error = fabs(data[at] - sample[k]) / (norm / sqrt((double)elems));
        errors->entry = larger(errors->entry, error);
    }
}

static void compare_weight(ech_ctx *ctx, ech_trainer *trainer, const ech_json *figures,
                           const ech_json *tensor, golden_errors *errors)
{
    const char *name = text(tensor, "name");
    const int64_t elems = elems_of(tensor);
    float *read = malloc((size_t)elems * sizeof *read);
    double *weight = malloc((size_t)elems * sizeof *weight);
    assert_true(read && weight);
    if (ech_trainer_read(trainer, name, read, (size_t)elems * sizeof *read) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    for (int64_t i = 0; i < elems; i++)
        weight[i] = (double)read[i];
    golden_compare(figures, name, weight, elems, errors);
    free(weight);
    free(read);
}

golden_errors golden_compare_weights(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden)
{
    golden_errors errors = {0, 0, 0};
    const ech_json *tensors = ech__json_find(golden, "tensors");
    const ech_json *weights = ech__json_find(golden, "weights");
    size_t compared = 0;
    for (size_t k = 0; k < ech__json_count(tensors); k++) {
        const ech_json *tensor = ech__json_at(tensors, k);
        const ech_json *figures = ech__json_find(weights, text(tensor, "name"));
        if (!figures)
            continue; /* an input */
        compare_weight(ctx, trainer, figures, tensor, &errors);
        compared++;
    }
    assert_true(compared > 0);
    assert_int_equal(compared, ech__json_count(weights));
    return errors;
}

/* ---- models ---- */

static ech_value build_classifier(ech_graph *graph, const ech_json *golden)
{
    const int64_t features = (int64_t)golden_number(golden, "features");
    const int64_t hidden = (int64_t)golden_number(golden, "hidden");
    const int64_t classes = (int64_t)golden_number(golden, "classes");
    const ech_value x = ech_input(graph, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, features});
    const ech_value labels = ech_input(graph, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value h = ech_relu(graph, ech_linear(graph, "fc1", x, hidden, true));
    return ech_cross_entropy(graph, ech_linear(graph, "fc2", h, classes, true), labels);
}

static ech__model_kind kind_named(const char *name)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        ECH__MODEL_LIST(NAME)
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i], name))
            return (ech__model_kind)i;
    }
    fail_msg("golden file: no model '%s'", name);
    return ECH__MODEL_LINEAR;
}

ech_value golden_build(ech_ctx *ctx, ech_graph *graph, const ech_json *golden)
{
    const char *name = text(golden, "model");
    if (!strcmp(name, "classifier"))
        return build_classifier(graph, golden);
    ech__model model;
    const ech__model_options options = {.kind = kind_named(name),
                                        .dim = (int64_t)golden_number(golden, "dim"),
                                        .depth = (int64_t)golden_number(golden, "depth")};
    if (ech__model_build(graph, &options, &model) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return model.loss;
}
