/* One kernel of one operator over guarded memory: put data in, run, look at every byte it may not touch. The
 * part of the operator harness that knows memory. */
#pragma once

#include "support/cmocka_first.h"
#include "plan/kernel.h"

/* An operator with the types of its operands. desc.operands[k].free marks parameters and their gradients. */
typedef struct op_case {
    ech__kernel_desc desc;
    ech__scalars scalars;
} op_case;

/* Inputs and outputs together. */
int op_operands(const ech__kernel_desc *desc);
/* Memory of an operand, padding included. */
int64_t op_bytes(const ech__operand *operand);

enum { OP_TEXT = 512 };
/* Writes at most OP_TEXT bytes to out and returns it. candidate may be NULL. */
const char *op_describe(const ech__kernel_desc *desc, const ech__candidate *candidate, char *out);

/* Whether its types are its own: integers, and f32 that must be f32 to give the same bits. */
bool op_is_integer(ech__op op);

/* ---- data ---- */

/* Every operand's data in canonical order. Doubles hold each type used here exactly. */
typedef struct op_data {
    int count;
    int64_t elems[ECH__MAX_OPERANDS];
    double *at[ECH__MAX_OPERANDS];
} op_data;

typedef enum data_kind {
    DATA_RANDOM, /* uniform in [-1, 1) */
    DATA_EXACT,  /* eighths in [-1, 1], so that sums of products are exact in every order */
    DATA_KINDS
} data_kind;

/* Inputs by kind and seed; outputs NaN. */
op_data op_data_create(const op_case *c, data_kind kind, uint64_t seed);
op_data op_data_copy(const op_data *from);
void op_data_destroy(op_data *data);

/* ---- kernel ---- */

/* Memory with a pattern before and behind it. */
typedef struct guarded {
    char *block, *data;
    int64_t bytes;
} guarded;

typedef struct op_kernel {
    ech__device *device;
    const op_case *c;
    ech__candidate candidate;
    int reused; /* operand whose memory the first output shares, or -1 */
    guarded operand[ECH__MAX_OPERANDS], scratch, kept;
    ech__kernel *kernel;
} op_kernel;

/* No operand of the case may be free. in_place: the first output takes the memory of the input that its
 * operator may reuse. The case must outlive it. */
op_kernel op_kernel_create(ech__device *device, const op_case *c, const ech__candidate *candidate,
                           bool in_place);
void op_kernel_destroy(op_kernel *p);

/* Writes every operand, the outputs too, and spoils the scratch. */
void op_kernel_load(op_kernel *p, const op_data *data);
/* A job for the device's worker: prepares and runs the op_kernel. */
ech_status op_kernel_run(void *kernel);
/* Fails the test where guards, padding or inputs that nothing may change are not as loaded. Padding
 * counts where all inputs are finite. */
void op_kernel_check(const op_kernel *p, const op_data *loaded);
/* Reads every operand. */
void op_kernel_read(const op_kernel *p, op_data *data);
