/* Golden trainings: the same numbers from the same formula as tests/golden/make_golden.py, which explains it,
 * and the comparison with what PyTorch made of them.
 *
 *     ech_json *doc = golden_open(ctx, "linear.json");
 *     const ech_json *c = golden_case(doc, 0);             its fields: model, dim, batch, optimizer, lr, ...
 *     ech_train_options o = golden_options(ctx, c);
 *     golden_write(ctx, trainer, c);                        every input and starting weight, hashes checked
 *     ... golden_losses(ctx, c, losses); golden_check_weights(ctx, trainer, c); ...
 *     ech__json_destroy(doc);
 *
 * What is missing or malformed in a file fails the test.
 */
#ifndef ECH_TESTS_GOLDEN_H
#define ECH_TESTS_GOLDEN_H

#include "base/json.h"
#include "support/cmocka_first.h"

/* ---- the formula ---- */

/* Word i of the stream with this name. */
uint64_t golden_word(const char *name, uint64_t i);
/* Uniform in [-scale, scale) with 24 random bits. */
void golden_fill(const char *name, float scale, float *out, int64_t count);
void golden_labels(const char *name, int64_t classes, int32_t *out, int64_t count);

/* ---- the files ---- */

enum { GOLDEN_STEPS = 20 };

ech_json *golden_open(ech_ctx *ctx, const char *file);
size_t golden_count(const ech_json *doc);
const ech_json *golden_case(const ech_json *doc, size_t index);
const char *golden_name(const ech_json *golden);
/* 0 where the case has no such field. */
double golden_number(const ech_json *golden, const char *field);

/* Batch and optimizer of the case; tuning off, one thread. */
ech_train_options golden_options(const ech_json *golden);
void golden_write(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden);
void golden_losses(const ech_json *golden, double out[GOLDEN_STEPS]);

/* Largest relative errors over all tensors: of the norm of the difference (estimated from the sketches), of
 * the norm itself, and of single entries against the root mean square of their tensor. */
typedef struct golden_errors {
    double difference, norm, entry;
} golden_errors;
golden_errors golden_compare_weights(ech_ctx *ctx, ech_trainer *trainer, const ech_json *golden);

#endif
