/* Optimizer kernels of every device over several steps, against PyTorch's rules written out once more, one
 * number at a time. */
#include "support/op_harness.h"
#include "support/levels.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>

enum { ELEMS = 131, STEPS = 12 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* One parameter and what its optimizer remembers. */
typedef struct weight {
    double p, buf, m, v;
} weight;

/* torch.optim.SGD, dampening 0; on the first step PyTorch sets buf = g. */
static void sgd(const ech__attrs *a, double lr, int64_t t, double g, weight *w)
{
    if (a->weight_decay != 0)
        g = g + a->weight_decay * w->p;
    if (a->momentum != 0) {
        w->buf = t == 1 ? g : a->momentum * w->buf + g;
        g = a->nesterov ? g + a->momentum * w->buf : w->buf;
    }
    w->p = w->p - lr * g;
}

/* torch.optim.Adam and AdamW, amsgrad off */
static void adam(const ech__attrs *a, double lr, int64_t t, double g, weight *w)
{
    if (a->decoupled)
        w->p = w->p * (1 - lr * a->weight_decay);
    else if (a->weight_decay != 0)
        g = g + a->weight_decay * w->p;
    w->m = w->m * a->beta1 + (1 - a->beta1) * g;
    w->v = w->v * a->beta2 + (1 - a->beta2) * g * g;
    double power1 = 1, power2 = 1;
    for (int64_t k = 0; k < t; k++) {
        power1 *= a->beta1;
        power2 *= a->beta2;
    }
    const double denominator = sqrt(w->v) / sqrt(1 - power2) + a->epsilon;
    w->p = w->p - lr / (1 - power1) * (w->m / denominator);
}

typedef struct rule {
    const char *name;
    ech__node node;
} rule;

static const ech__attrs ADAM = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

static const rule RULES[] = {
    {"sgd", {.op = ECH__OP_SGD, .nin = 2}},
    {"sgd, weight decay", {.op = ECH__OP_SGD, .nin = 2, .attrs = {.weight_decay = 0.1}}},
    {"sgd, momentum", {.op = ECH__OP_SGD, .nin = 3, .attrs = {.momentum = 0.9}}},
    {"sgd, momentum and weight decay",
     {.op = ECH__OP_SGD, .nin = 3, .attrs = {.momentum = 0.9, .weight_decay = 0.1}}},
    {"sgd, nesterov", {.op = ECH__OP_SGD, .nin = 3, .attrs = {.momentum = 0.9, .nesterov = true}}},
    {"sgd, nesterov and weight decay",
     {.op = ECH__OP_SGD,
      .nin = 3,
      .attrs = {.momentum = 0.5, .nesterov = true, .weight_decay = 0.1}}},
    {"adam", {.op = ECH__OP_ADAM, .nin = 4, .attrs = ADAM}},
    {"adam, weight decay and other betas",
     {.op = ECH__OP_ADAM,
      .nin = 4,
      .attrs = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1}}},
    {"adamw",
     {.op = ECH__OP_ADAM,
      .nin = 4,
      .attrs =
          {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .decoupled = true}}},
};

static double gradient(ech_dtype dtype, int64_t step, int64_t k)
{
    const double g = (double)ech__rng_normal(5, (uint64_t)step, (uint64_t)k);
    return dtype == ECH_F32 ? (double)(float)g : g;
}

static void compare(const rule *r, const char *what, int64_t step, double got, double want,
                    double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("%s, step %lld: %s is %.9g, not %.9g", r->name, (long long)step, what, got, want);
}

static void check_rule(harness *h, const rule *r, ech_dtype dtype)
{
    const ech__type type = harness_type(dtype, 1, (int64_t[]){ELEMS});
    op_case c = harness_case(h, &r->node, (ech__type[]){type, type, type, type}, 0);
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &c.desc, all, &count), ECH_OK);
    assert_true(count > 0);
    weight want[ELEMS] = {{0}};
    op_data data = op_data_create(&c, DATA_RANDOM, 4);
    for (int k = 0; k < ELEMS; k++) {
        want[k].p = data.at[0][k];
        for (int i = 2; i < data.count; i++)
            data.at[i][k] = 0;
    }
    const double tolerance = 10 * (dtype == ECH_F32 ? (double)FLT_EPSILON : DBL_EPSILON);
    for (int64_t step = 1; step <= STEPS; step++) {
        c.scalars.step = step;
        c.scalars.lr = 0.05 / (double)step;           /* a schedule changes it */
        c.scalars.grad_factor = step % 2 ? 1 : 0.125; /* an exact one undoes a scale exactly */
        for (int k = 0; k < ELEMS; k++)
            data.at[1][k] = gradient(dtype, step, k) / c.scalars.grad_factor;
        if (harness_run(h, h->device, &c, &all[0], false, &data) < 0)
            fail_msg("%s", ech_ctx_error(h->ctx));
        for (int k = 0; k < ELEMS; k++) {
            (r->node.op == ECH__OP_SGD ? sgd : adam)(&r->node.attrs, c.scalars.lr, step,
                                                     gradient(dtype, step, k), &want[k]);
            compare(r, "the parameter", step, data.at[0][k], want[k].p, tolerance);
            if (r->node.op == ECH__OP_ADAM) {
                compare(r, "the mean", step, data.at[2][k], want[k].m, tolerance);
                compare(r, "the mean square", step, data.at[3][k], want[k].v, tolerance);
            } else if (r->node.nin == 3) {
                compare(r, "the momentum", step, data.at[2][k], want[k].buf, tolerance);
            }
        }
    }
    op_data_destroy(&data);
}

static void check_rules(ech__device_kind kind, ech_dtype dtype)
{
    harness h;
    harness_init(&h, kind, 1);
    for (int k = 0; k < LENGTH(RULES); k++)
        check_rule(&h, &RULES[k], dtype);
    harness_fini(&h);
}

static void cpu_f32(void **state)
{
    (void)state;
    check_rules(ECH__DEVICE_CPU, ECH_F32);
}

static void reference_f32(void **state)
{
    (void)state;
    check_rules(ECH__DEVICE_REFERENCE, ECH_F32);
}

static void reference_f64(void **state)
{
    (void)state;
    check_rules(ECH__DEVICE_REFERENCE, ECH_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_f32),
        cmocka_unit_test(reference_f32),
        cmocka_unit_test(reference_f64),
    };
    return run_kernel_tests("optimizers", tests);
}
