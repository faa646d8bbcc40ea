/* The operator harness: runs one operator's kernels straight through the kernel interface, in five modes.
 *
 *     against the reference   harness_check: every candidate, every layout, guards, padding, in place
 *     gradient check          support/interpreter.h, over whole graphs
 *     bitwise repeat          harness_repeat: again, and from a kernel created anew
 *     not finite              harness_nonfinite: NaN and +-inf in each input come out where the reference has them
 *     performance             harness_measure: with ECH_PERF=1; prints, asserts nothing
 *
 *     harness h;
 *     harness_init(&h, ECH__DEVICE_CPU, 1);
 *     op_case c = harness_case(&h, &(ech__node){.op = ECH__OP_RELU, .nin = 1}, (ech__type[]){x}, 0);
 *     harness_check(&h, &c);
 *     harness_fini(&h);
 *
 * A new operator needs a row for its tolerance in op_harness.c and its cases in device/test_ops.c.
 */
#pragma once

#include "device/device.h"
#include "support/op_run.h"

enum { HARNESS_MAX_LAYOUTS = 32, HARNESS_MAX_BROKEN = 3 * ECH__MAX_IN };

typedef struct harness {
    ech_ctx *ctx;
    ech__device_kind kind;
    ech__device *device;                      /* under test */
    ech__device *reference;                   /* in f64, what is expected */
    ech__layout layouts[HARNESS_MAX_LAYOUTS]; /* that the device chose for parameters so far */
    int nlayouts;
    int runs;                     /* kernels that were run and compared */
    op_data expected[DATA_KINDS]; /* while harness_check goes over the kernels of one case */
    op_data broken[2][HARNESS_MAX_BROKEN]; /* while harness_nonfinite does: given, expected */
    int nbroken;
} harness;

void harness_init(harness *h, ech__device_kind kind, int threads);
void harness_fini(harness *h);

/* For cmocka: a test is given a target, and from setup on the harness that it describes. Teardown fails where
 * no kernel ran. */
typedef struct harness_target {
    ech__device_kind kind;
    int threads;
} harness_target;

int harness_setup(void **state);
int harness_teardown(void **state);

/* The node needs op, attrs and nin; the output types come from its shape rule. free has a bit for each
 * operand. Images that are not free have the layout that the device wants for activations. */
op_case harness_case(harness *h, const ech__node *node, const ech__type *in, unsigned free);

ech__type harness_type(ech_dtype dtype, int ndims, const int64_t *dims);

/* Puts data in, runs, checks guards, padding and untouched inputs, and reads every operand back into data.
 * in_place: the first output takes the memory of the input that its operator may reuse. Returns what
 * run gave; operands are read back only when that is ECH_OK. */
ech_status harness_run(harness *h, ech__device *device, const op_case *c,
                       const ech__candidate *candidate, bool in_place, op_data *data);

/* The case in f64 on the reference device, data in place. */
void harness_expect(harness *h, const op_case *c, op_data *data);

/* ---- modes ---- */

/* Remembers the layouts, besides row-major, that the device would choose for the free operands; a plan then
 * asks every operator that shares them for kernels with exactly these. Call it for all such operators,
 * then harness_check. */
void harness_collect(harness *h, const op_case *c);
/* One more layout. */
void harness_remember(harness *h, const ech__layout *layout);
void harness_forget(harness *h);

/* Each mode goes over the case with its free operands row-major, and in each collected layout (any operand of
 * an operator that changes its inputs). A library's own reference code is left out but for tiny cases. */
void harness_check(harness *h, const op_case *c);
void harness_repeat(harness *h, const op_case *c);
void harness_nonfinite(harness *h, const op_case *c);
void harness_measure(harness *h, const op_case *c);

/* A case without free operands, checked, repeated or broken at once. */
void harness_check_node(harness *h, const ech__node *node, const ech__type *in);
void harness_repeat_node(harness *h, const ech__node *node, const ech__type *in);
void harness_nonfinite_node(harness *h, const ech__node *node, const ech__type *in);

/* Whether row-major or some collected layout has kernels for all of these cases. */
bool harness_shares_layout(harness *h, const op_case *cases, int count);
