/* Golden trainings and gradients: the same numbers from the same formula as tests/golden/make_golden.py, which
 * explains it, and the comparison with what PyTorch made of them.
 *
 *     ech_json *doc = golden_open(ctx, "linear.json");
 *     const ech_json *c = golden_case(doc, 0);             its fields: model, dim, batch, optimizer, lr, ...
 *     ech_value loss = golden_build(ctx, graph, c);
 *     ech_train_options o = golden_options(c);
 *     golden_write(ctx, trainer, c);                        every input and starting weight, hashes checked
 *     ... golden_losses(c, losses); golden_compare_weights(ctx, trainer, c); ...
 *     ech__json_destroy(doc);
 *
 * What is missing or malformed in a file fails the test.
 */
#pragma once

#include "base/file/json.h"
#include "models/models.h"
#include "support/cmocka_first.h"

enum { GOLDEN_STEPS = 20 };

/* out[i] is uniform in [-scale, scale), a function of the name and i alone. */
void golden_fill(const char *name, float scale, float *out, int64_t count);

ech_json *golden_open(ech_ctx *ctx, const char *file);
size_t golden_count(const ech_json *doc);
const ech_json *golden_case(const ech_json *doc, size_t index);
const char *golden_name(const ech_json *golden);
/* 0 where the case has no such field. */
double golden_number(const ech_json *golden, const char *field);

/* Batch and optimizer of the case; tuning off, one thread. */
ech_train_options golden_options(const ech_json *golden);
/* Writes the case's model into a graph; gives its loss. */
ech_value golden_build(ech_ctx *ctx, ech_graph *graph, const ech_json *golden);

/* An input, a starting weight or a buffer, made by the formula, its hash checked. */
typedef struct golden_tensor {
    const char *name; /* the file's */
    int64_t elems;
    bool is_labels; /* s32 instead of f32 */
    void *data;
} golden_tensor;

size_t golden_tensors(const ech_json *golden);
golden_tensor golden_tensor_create(const ech_json *golden, size_t index);
void golden_tensor_destroy(golden_tensor *tensor);

/* All tensors into a trainer. */
void golden_write(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden);
/* Returns how many there are. */
int golden_losses(const ech_json *golden, double out[GOLDEN_STEPS]);

/* Largest relative errors over all tensors: of the norm of the difference (estimated from the sketches), of
 * the norm itself, and of single entries against the root mean square of their tensor. */
typedef struct golden_errors {
    double difference, norm, entry;
} golden_errors;
/* Makes the errors larger where a tensor's are. */
void golden_compare(const ech_json *figures, const char *name, const double *data, int64_t elems,
                    golden_errors *errors);
/* All weights and buffers of a trainer after its steps. */
golden_errors golden_compare_weights(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden);
