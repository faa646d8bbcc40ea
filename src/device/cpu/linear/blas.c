/* Linear layers on OpenBLAS, for a weight stored by rows or by columns.
 *
 *   forward            y[N,O]  = x[N,I] w[O,I]^T        threads split O
 *   backward data      dx[N,I] = dy[N,O] w[O,I]         threads split I
 *   backward weights   dw[O,I] = dy[N,O]^T x[N,I]       threads split O
 *
 * The library itself is kept at one thread: our split is fixed, so the bits are the same in every
 * run with the same number of threads.
 */
#include "device/cpu/cpu.h"
#include "base/system/available.h"

#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void ech__blas_open(void)
{
    openblas_set_num_threads(1);
}

/* The level that a core type of OpenBLAS needs. The others are for processors without AVX, which
 * a level cannot leave out. */
static const struct {
    const char *core;
    ech__isa isa;
} cores[] = {
    {"Sandybridge", ECH__ISA_AVX2},
    {"Bulldozer", ECH__ISA_AVX2},
    {"Piledriver", ECH__ISA_AVX2},
    {"Steamroller", ECH__ISA_AVX2},
    {"Excavator", ECH__ISA_AVX2},
    {"Haswell", ECH__ISA_AVX2},
    {"Zen", ECH__ISA_AVX2},
    {"SkylakeX", ECH__ISA_AVX512},
    {"Cooperlake", ECH__ISA_AVX512_BF16},
    {"SapphireRapids", ECH__ISA_AVX512_BF16},
};

/* OpenBLAS picks its kernels while the program is loaded and cannot be told afterwards. Where it
 * gets no memory for a buffer, of which each thread needs one, it tries for ever, so it is not
 * used where memory can be refused. */
static bool is_usable(void)
{
    if (ech__process_limited())
        return false;
    if (!ech__isa_is_set())
        return true;
    const char *core = openblas_get_corename();
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++) {
        if (!strcasecmp(cores[i].core, core))
            return cores[i].isa <= ech__isa_level();
    }
    return true;
}

void ech__blas_version(char *out, size_t bytes)
{
    /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ... Zen MAX_THREADS=64": name, version and core. */
    char version[16] = "";
    sscanf(openblas_get_config(), "OpenBLAS %15s", version);
    snprintf(out, bytes, "OpenBLAS %s %.16s%s", version, openblas_get_corename(),
             is_usable() ? "" : " unused");
}

typedef struct blas_kernel {
    ech__kernel base;
    const ech__vec *vec;
    ech__op op;
    bool by_columns; /* w is stored as [I,O] */
    ech__linear l;
} blas_kernel;

typedef struct range {
    blasint first, count;
} range;

/* The thread's share of total, in multiples of 16 so that threads do not share cache lines. */
static range share_of(blasint total)
{
    const blasint threads = omp_get_num_threads(), me = omp_get_thread_num();
    const blasint groups = (total + 15) / 16;
    const blasint from = groups * me / threads * 16, to = groups * (me + 1) / threads * 16;
    return (range){from, (to < total ? to : total) - from};
}

static void forward(const blas_kernel *k, range o)
{
    if (k->by_columns)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, k->l.n, o.count, k->l.i, 1, k->l.x,
                    k->l.i, k->l.w + o.first, k->l.o, 0, k->l.y + o.first, k->l.o);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k->l.n, o.count, k->l.i, 1, k->l.x,
                    k->l.i, k->l.w + (int64_t)o.first * k->l.i, k->l.i, 0, k->l.y + o.first,
                    k->l.o);
    if (!k->l.b && !k->l.relu)
        return;
    for (int64_t row = 0; row < k->l.n; row++)
        k->vec->bias_act(o.count, k->l.b ? k->l.b + o.first : NULL, k->l.relu,
                         k->l.y + row * k->l.o + o.first);
}

static void backward_data(const blas_kernel *k, range i)
{
    if (k->by_columns)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k->l.n, i.count, k->l.o, 1, k->l.dy,
                    k->l.o, k->l.w + (int64_t)i.first * k->l.o, k->l.o, 0, k->l.dx + i.first,
                    k->l.i);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, k->l.n, i.count, k->l.o, 1, k->l.dy,
                    k->l.o, k->l.w + i.first, k->l.i, 0, k->l.dx + i.first, k->l.i);
}

static void backward_weights(const blas_kernel *k, range o)
{
    const float kept = k->l.adds ? 1 : 0; /* of what is there */
    if (k->by_columns)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k->l.i, o.count, k->l.n, 1, k->l.x,
                    k->l.i, k->l.dy + o.first, k->l.o, kept, k->l.dw + o.first, k->l.o);
    else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, o.count, k->l.i, k->l.n, 1,
                    k->l.dy + o.first, k->l.o, k->l.x, k->l.i, kept,
                    k->l.dw + (int64_t)o.first * k->l.i, k->l.i);
    if (!k->l.db)
        return;
    if (!k->l.adds)
        memset(k->l.db + o.first, 0, (size_t)o.count * sizeof(float));
    for (int64_t row = 0; row < k->l.n; row++)
        k->vec->add(o.count, k->l.db + o.first, k->l.dy + row * k->l.o + o.first,
                    k->l.db + o.first);
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const blas_kernel *k = (const blas_kernel *)base;
#pragma omp parallel num_threads(k->base.device->threads)
    {
        const range part = share_of(k->op == ECH__OP_LINEAR_BWD_DATA ? k->l.i : k->l.o);
        if (part.count > 0) {
            if (k->op == ECH__OP_LINEAR)
                forward(k, part);
            else if (k->op == ECH__OP_LINEAR_BWD_DATA)
                backward_data(k, part);
            else
                backward_weights(k, part);
        }
    }
    return ECH_OK;
}

/* Row-major gives false, column-major true; any other layout is none for BLAS. */
static bool blas_layout(const ech__layout *weight, bool *by_columns)
{
    const ech__layout columns = ech__layout_transposed(&weight->shape);
    *by_columns = false;
    if (ech__layout_is_plain(weight))
        return true;
    *by_columns = ech__layout_equal(weight, &columns);
    return *by_columns;
}

/* OpenBLAS takes each size as an int, and multiplies them as 64-bit integers. */
static bool fits_int(int64_t value)
{
    return value <= INT32_MAX;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const ech__loops *loops = ech__cpu_of(args->device)->loops;
    blas_kernel k = {.base = {.run = run},
                     .vec = loops->vec,
                     .op = args->desc->op,
                     .l = ech__linear_of(args->desc, args->binding)};
    blas_layout(&args->candidate->layouts[ech__weight_operand(args->desc->op)], &k.by_columns);
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__blas_offer_linear(const ech__kernel_desc *desc, const ech__layout *weight,
                            ech__offer *offer)
{
    bool by_columns;
    if (!is_usable() || !blas_layout(weight, &by_columns) ||
        !fits_int(desc->operands[0].layout.shape.dims[0]) || !fits_int(weight->shape.dims[0]) ||
        !fits_int(weight->shape.dims[1]))
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "openblas", create_kernel);
    if (candidate)
        candidate->layouts[ech__weight_operand(desc->op)] = *weight;
}
