/* Linear layers on a layout of our own: the weight in panels of 16 outputs, w[O/16][I][16], which all three
 * directions use as it lies.
 *
 *   forward            y[N,O]  = x[N,I] w^T   panels of w are the vector side; x is packed into rows of a tile
 *   backward data      dx[N,I] = dy[N,O] w    samples are the vector side; w is read number by number
 *   backward weights   dw[O,I] = dy^T x       outputs are the vector side; dw is written in whole lines
 *
 * What is packed goes to the scratch of the plan, so nothing is allocated. Threads split outputs (forward,
 * backward weights) or inputs (backward data); the split does not change the order of any sum.
 */
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/panel.h"
#include "device/cpu/share.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    Q = ECH__PANEL,
    DEPTH = 256,    /* of the inner dimension at a time: a panel of this depth stays in L1 */
    WIDE = 8,       /* panels of the forward result that take turns over one depth */
    INPUTS = 192,   /* of the backward-data result at a time */
    MOST = 1 << 28, /* samples, inputs or outputs: so that no product of two overflows */
    STREAM_FROM = 24 << 20, /* bytes of dw that no cache holds until the optimizer reads them */
};

typedef struct panel_kernel {
    ech__kernel base;
    ech__device *device;
    const ech__vec *vec;
    const ech__panel_isa *isa;
    ech__op op;
    ech__linear l;
    float *packed_x, *packed_dy, *block;
} panel_kernel;

/* ---- packing ---- */

/* from[rows][cols] -> to[cols/group][rows][group], the last group filled up with zeros. */
static void pack_columns(const float *from, int64_t rows, int64_t cols, int64_t group, float *to)
{
    const range groups = share_of(ceil_div(cols, group));
    for (int64_t g = groups.first; g < groups.end; g++) {
        const int64_t count = least(group, cols - g * group);
        for (int64_t r = 0; r < rows; r++) {
            float *out = to + (g * rows + r) * group;
            memcpy(out, from + r * cols + g * group, (size_t)count * sizeof *out);
            for (int64_t q = count; q < group; q++)
                out[q] = 0;
        }
    }
}

/* from[rows][cols] -> to[rows/group][cols][group], the last group filled up with zeros. */
static void pack_rows(const float *from, int64_t rows, int64_t cols, int64_t group, float *to)
{
    const range groups = share_of(ceil_div(rows, group));
    for (int64_t g = groups.first; g < groups.end; g++) {
        const int64_t count = least(group, rows - g * group);
        for (int64_t c = 0; c < cols; c++) {
            float *out = to + (g * cols + c) * group;
            for (int64_t r = 0; r < count; r++)
                out[r] = from[(g * group + r) * cols + c];
            for (int64_t r = count; r < group; r++)
                out[r] = 0;
        }
    }
}

/* ---- forward ---- */

/* One tile of y; where the last panel is not full it goes through a buffer. */
static void forward_tile(const panel_kernel *k, ech__tile *t, int64_t row, int64_t panel)
{
    float *place = k->l.y + row * k->l.o + panel * Q;
    const int64_t cols = least(k->l.o - panel * Q, (int64_t)t->panels * Q);
    if (cols == (int64_t)t->panels * Q) {
        t->c = place;
        t->c_row = k->l.o;
        t->c_panel = Q;
        k->isa->tile(t);
        return;
    }
    float buffer[12 * 2 * Q];
    t->c = buffer;
    t->c_row = (int64_t)t->panels * Q;
    t->c_panel = Q;
    for (int64_t r = 0; t->add && r < t->rows; r++)
        memcpy(buffer + r * t->c_row, place + r * k->l.o, (size_t)cols * sizeof *buffer);
    k->isa->tile(t);
    for (int64_t r = 0; r < t->rows; r++)
        memcpy(place + r * k->l.o, buffer + r * t->c_row, (size_t)cols * sizeof *buffer);
}

/* While a depth of some panels is used, the panels that come next travel towards the cache: a few lines at
 * each run of Q, spread over the tiles of all samples. */
static void fetch_ahead(const panel_kernel *k, ech__tile *t, int64_t row, int64_t panel,
                        range panels, int64_t depth)
{
    const int64_t next = panel + k->isa->panels;
    const float *from = next < panels.end ? k->l.w + (next * k->l.i + depth) * Q
                        : depth + DEPTH < k->l.i
                            ? k->l.w + (panels.first * k->l.i + depth + DEPTH) * Q
                            : NULL;
    const int64_t tiles = ceil_div(k->l.n, k->isa->rows), slots = tiles * t->runs;
    const int64_t lines = ceil_div(t->run_length * t->runs, slots); /* of one panel */
    const int64_t done = row / k->isa->rows * t->runs * lines;
    if (!from || done >= DEPTH)
        return;
    t->ahead = from + done * Q;
    t->ahead_lines = lines;
    t->ahead_jump = lines * Q;
}

static void forward_block(const panel_kernel *k, range panels)
{
    const int rows = k->isa->rows;
    for (int64_t depth = 0; depth < k->l.i; depth += DEPTH) {
        const int64_t length = least(DEPTH, k->l.i - depth);
        for (int64_t p = panels.first; p < panels.end; p += k->isa->panels) {
            for (int64_t row = 0; row < k->l.n; row += rows) {
                ech__tile t = {.rows = (int)least(rows, k->l.n - row),
                               .count = 1,
                               .panels = (int)least(k->isa->panels, panels.end - p),
                               .runs = length % Q ? 1 : length / Q,
                               .run_length = length % Q ? length : Q,
                               .run_jump = Q * rows,
                               .a = k->packed_x + row * k->l.i + depth * rows,
                               .a_row = 1,
                               .a_k = rows,
                               .b = k->l.w + (p * k->l.i + depth) * Q,
                               .b_panel = k->l.i * Q,
                               .add = depth > 0};
                fetch_ahead(k, &t, row, p, panels, depth);
                forward_tile(k, &t, row, p);
            }
        }
    }
    if (!k->l.b && !k->l.relu)
        return;
    const int64_t first = panels.first * Q, end = least(panels.end * Q, k->l.o);
    for (int64_t row = 0; row < k->l.n; row++)
        k->vec->bias_act(end - first, k->l.b ? k->l.b + first : NULL, k->l.relu,
                         k->l.y + row * k->l.o + first);
}

static void forward(const panel_kernel *k)
{
    pack_rows(k->l.x, k->l.n, k->l.i, k->isa->rows, k->packed_x);
#pragma omp barrier
    const range mine = share_of(ceil_div(k->l.o, Q));
    for (int64_t p = mine.first; p < mine.end; p += WIDE)
        forward_block(k, (range){p, least(p + WIDE, mine.end)});
}

/* ---- backward data ---- */

/* block[i][n] -> dx[n][first + i] */
static void store_transposed(const panel_kernel *k, const float *block, int64_t first,
                             int64_t count)
{
    const int64_t width = ech__round_up(k->l.n, Q);
    for (int64_t n = 0; n < k->l.n; n++) {
        float *row = k->l.dx + n * k->l.i + first;
        for (int64_t i = 0; i < count; i++)
            row[i] = block[i * width + n];
    }
}

static void backward_data_block(const panel_kernel *k, float *block, int64_t first, int64_t count)
{
    const int64_t width = ech__round_up(k->l.n, Q), outputs = ech__round_up(k->l.o, Q);
    for (int64_t depth = 0; depth < outputs; depth += DEPTH) {
        const int64_t length = least(DEPTH, outputs - depth);
        for (int64_t i = 0; i < count; i += k->isa->rows) {
            for (int64_t p = 0; p < width / Q; p += k->isa->panels) {
                ech__tile t = {.rows = (int)least(k->isa->rows, count - i),
                               .count = 1,
                               .panels = (int)least(k->isa->panels, width / Q - p),
                               .runs = length / Q,
                               .run_length = Q,
                               .run_jump = k->l.i * Q,
                               .a = k->l.w + depth * k->l.i + (first + i) * Q,
                               .a_row = Q,
                               .a_k = 1,
                               .b = k->packed_dy + (p * outputs + depth) * Q,
                               .b_panel = outputs * Q,
                               .c = block + i * width + p * Q,
                               .c_row = width,
                               .c_panel = Q,
                               .add = depth > 0};
                if (p == 0) { /* the same rows of w for the inputs that come next */
                    t.ahead = t.a + k->isa->rows * Q;
                    t.ahead_lines = k->isa->rows;
                    t.ahead_jump = t.run_jump;
                }
                k->isa->tile(&t);
            }
        }
    }
    store_transposed(k, block, first, count);
}

/* dy[N][O] -> packed[N/16][O filled up][16] */
static void pack_samples(const panel_kernel *k)
{
    const int64_t outputs = ech__round_up(k->l.o, Q);
    const range groups = share_of(ceil_div(k->l.n, Q));
    for (int64_t g = groups.first; g < groups.end; g++) {
        const int64_t count = least(Q, k->l.n - g * Q);
        float *to = k->packed_dy + g * outputs * Q;
        memset(to, 0, (size_t)(outputs * Q) * sizeof *to);
        for (int64_t o = 0; o < k->l.o; o++) {
            for (int64_t n = 0; n < count; n++)
                to[o * Q + n] = k->l.dy[(g * Q + n) * k->l.o + o];
        }
    }
}

static void backward_data(const panel_kernel *k)
{
    pack_samples(k);
#pragma omp barrier
    float *block = k->block + omp_get_thread_num() * INPUTS * ech__round_up(k->l.n, Q);
    const range mine = share_of(ceil_div(k->l.i, INPUTS));
    for (int64_t b = mine.first; b < mine.end; b++)
        backward_data_block(k, block, b * INPUTS, least(INPUTS, k->l.i - b * INPUTS));
}

/* ---- backward weights ---- */

static void bias_gradient(const panel_kernel *k, int64_t panel)
{
    float sums[Q] = {0};
    for (int64_t n = 0; n < k->l.n; n++) {
        for (int q = 0; q < Q; q++)
            sums[q] += k->packed_dy[(panel * k->l.n + n) * Q + q];
    }
    float *db = k->l.db + panel * Q;
    for (int64_t q = 0; q < least(Q, k->l.o - panel * Q); q++)
        db[q] = k->l.adds ? db[q] + sums[q] : sums[q];
}

static void backward_weights(const panel_kernel *k)
{
    const int rows = k->isa->rows;
    pack_columns(k->l.x, k->l.n, k->l.i, rows, k->packed_x);
    pack_columns(k->l.dy, k->l.n, k->l.o, Q, k->packed_dy);
#pragma omp barrier
    const bool stream =
        ech__round_up(k->l.o, Q) * k->l.i * 4 >= STREAM_FROM && k->l.n <= DEPTH && !k->l.adds;
    const range mine = share_of(ceil_div(k->l.o, Q));
    for (int64_t p = mine.first; p < mine.end; p += k->isa->panels) {
        const int panels = (int)least(k->isa->panels, mine.end - p);
        for (int64_t depth = 0; depth < k->l.n; depth += DEPTH) {
            ech__tile t = {.rows = rows,
                           .panels = panels,
                           .count = k->l.i / rows,
                           .a_next = rows * k->l.n,
                           .c_next = rows * Q,
                           .runs = 1,
                           .run_length = least(DEPTH, k->l.n - depth),
                           .a = k->packed_x + depth * rows,
                           .a_row = 1,
                           .a_k = rows,
                           .b = k->packed_dy + (p * k->l.n + depth) * Q,
                           .b_panel = k->l.n * Q,
                           .c = k->l.dw + p * k->l.i * Q,
                           .c_row = Q,
                           .c_panel = k->l.i * Q,
                           .add = depth > 0 || k->l.adds,
                           .stream = stream};
            k->isa->tile(&t);
            if (k->l.i % rows) {
                t.a += t.count * t.a_next;
                t.c += t.count * t.c_next;
                t.count = 1;
                t.rows = (int)(k->l.i % rows);
                k->isa->tile(&t);
            }
        }
        for (int64_t b = p; k->l.db && b < p + panels; b++)
            bias_gradient(k, b);
    }
}

/* ---- kernel ---- */

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const panel_kernel *k = (const panel_kernel *)base;
#pragma omp parallel num_threads(k->device->threads)
    {
        if (k->op == ECH__OP_LINEAR)
            forward(k);
        else if (k->op == ECH__OP_LINEAR_BWD_DATA)
            backward_data(k);
        else
            backward_weights(k);
    }
    return ECH_OK;
}

static void destroy(ech__kernel *base)
{
    panel_kernel *k = (panel_kernel *)base;
    ech__delete(k->device->ctx, k, sizeof *k);
}

/* NULL where this processor has no vectors that we wrote tiles for. */
static const ech__panel_isa *best_isa(const ech__vec *vec)
{
#ifdef ECH_X86
    if (vec == &ech__vec_avx512)
        return &ech__panel_avx512;
    if (vec == &ech__vec_avx2)
        return &ech__panel_avx2;
#endif
    (void)vec;
    return NULL;
}

ech__layout ech__panel_layout(const ech__shape *weight)
{
    const int64_t inputs = weight->dims[1];
    return (ech__layout){.shape = *weight,
                         .padded = {ech__round_up(weight->dims[0], Q), inputs},
                         .strides = {inputs * Q, Q},
                         .nblocks = 1,
                         .block_axis = {0},
                         .block_size = {Q}};
}

/* Floats of scratch: the packed first side, the packed second side, blocks of the threads. */
static void scratch_of(const panel_kernel *k, int threads, int64_t sizes[3])
{
    assert(k->isa); /* else it was not offered */
    const int64_t n = ech__round_up(k->l.n, Q), o = ech__round_up(k->l.o, Q), rows = k->isa->rows;
    memset(sizes, 0, 3 * sizeof *sizes);
    if (k->op == ECH__OP_LINEAR) {
        sizes[0] = ceil_div(k->l.n, rows) * rows * k->l.i;
    } else if (k->op == ECH__OP_LINEAR_BWD_DATA) {
        sizes[1] = n * o;
        sizes[2] = threads * INPUTS * n;
    } else {
        sizes[0] = ceil_div(k->l.i, rows) * rows * k->l.n;
        sizes[1] = o * k->l.n;
    }
    for (int s = 0; s < 3; s++)
        sizes[s] = ech__round_up(sizes[s], Q);
}

static panel_kernel kernel_of(const ech__cpu *cpu, const ech__kernel_desc *desc,
                              const ech__binding *binding)
{
    return (panel_kernel){.op = desc->op,
                          .isa = best_isa(cpu->vec),
                          .vec = cpu->vec,
                          .l = ech__linear_of(desc, binding)};
}

void ech__panel_offer_linear(const ech__cpu *cpu, int threads, const ech__kernel_desc *desc,
                             const ech__layout *weight, ech__offer *offer)
{
    const ech__layout ours = ech__panel_layout(&weight->shape);
    const panel_kernel k = kernel_of(cpu, desc, NULL);
    if (!k.isa || !ech__layout_equal(weight, &ours) || k.l.n > MOST || k.l.i > MOST || k.l.o > MOST)
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "panels");
    if (!candidate)
        return;
    int64_t sizes[3];
    scratch_of(&k, threads, sizes);
    candidate->layouts[ech__weight_operand(desc->op)] = *weight;
    candidate->scratch_bytes = (sizes[0] + sizes[1] + sizes[2]) * (int64_t)sizeof(float);
}

ech_status ech__panel_create_linear(ech__device *device, const ech__kernel_desc *desc,
                                    const ech__binding *binding, ech__kernel **out)
{
    panel_kernel *k = ech__new(device->ctx, sizeof *k);
    if (!k)
        return ech__fail(device->ctx, ECH_E_NOMEM, "no memory for a kernel");
    *k = kernel_of(ech__device_state(device), desc, binding);
    k->base = (ech__kernel){.run = run, .destroy = destroy};
    k->device = device;
    int64_t sizes[3];
    scratch_of(k, device->threads, sizes);
    k->packed_x = binding->scratch;
    k->packed_dy = k->packed_x + sizes[0];
    k->block = k->packed_dy + sizes[1];
    *out = &k->base;
    return ECH_OK;
}
