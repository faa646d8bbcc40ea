/* The cases of operators, in one place: a row is an operator with attributes and the types of its
 * inputs, and every check goes over the same rows, whether against the reference, repeated, with what
 * is not finite, in 16 bits or for its speed. A new operator on images or a new use of a layer's weight
 * is one more row here. Gradients of whole graphs are in device/test_gradients.c, tolerances in
 * op_harness.c.
 *
 *     op_row rows[OP_ROWS];
 *     const int count = pool_rows(ECH_F32, dims, window, rows);
 *     for (int i = 0; i < count; i++)
 *         harness_check_node(h, &rows[i].node, rows[i].in);
 */
#pragma once

#include "support/op_harness.h"

enum { OP_ROWS = 16, LAYER_ROWS = 9, LAYER_ROWS_LOW = 7, CONV_ROWS = 7, CONV_BWD_DATA = 4 };

typedef struct op_row {
    ech__node node; /* op, nin, attrs */
    unsigned free;  /* a bit for each operand whose layout is open */
    ech__type in[ECH__MAX_IN];
} op_row;

typedef struct conv_shape {
    int64_t N, I, H, W, O, kernel, stride, pad;
} conv_shape;

ech__type matrix_of(ech_dtype dtype, int64_t rows, int64_t cols);
ech__type image_of(ech_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w);
ech__type vector_of(int64_t length); /* f32 */

/* Each writes its rows to out and returns how many. Weights have the type of the data; biases are f32. */

/* Everything a layer of weights w[O,I] does with a batch of N samples; the last two add to f32
 * gradients. */
int layer_rows(ech_dtype dtype, int64_t N, int64_t I, int64_t O, op_row *out);
int conv_rows(ech_dtype dtype, const conv_shape *v, op_row *out);
/* Batch norms of an image of dims[4]. */
int norm_rows(ech_dtype dtype, const int64_t *dims, op_row *out);
/* Sums, ReLUs and flattening of an image. */
int shape_rows(ech_dtype dtype, const int64_t *dims, op_row *out);
/* A window is kernel, stride, pad; none where it is larger than the image. */
int pool_rows(ech_dtype dtype, const int64_t *dims, const int64_t *window, op_row *out);

/* The cases of rows of a layer or a convolution. plain_input: x is what a program writes, row-major. */
void row_cases(harness *h, const op_row *rows, int count, bool plain_input, op_case *out);

typedef void (*node_fn)(harness *h, const ech__node *node, const ech__type *in);
void for_each_row(harness *h, const op_row *rows, int count, node_fn visit);
