/* Linear layers on a layout of our own: the weight in panels of 16 outputs, w[O/16][I][16], which
 * all three directions use without packing it.
 *
 *   forward            y[N,O]  = x[N,I] w^T   vectors of w's panels; x is packed into tiles
 *   backward data      dx[N,I] = dy[N,O] w    vectors of samples; w is read number by number
 *   backward weights   dw[O,I] = dy^T x       vectors of outputs; dw is written in whole lines
 *
 * The weight may be of 16 bits, all else being f32: then the part of it that a tile needs is
 * widened just before, into a buffer that stays in the nearest cache while all samples use it.
 *
 * What is packed goes to the scratch of the plan, so nothing is allocated. Threads split outputs
 * (forward, backward weights) or inputs (backward data); the split does not change the order of any
 * sum.
 */
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/linear/panel.h"
#include "device/cpu/share.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    Q = ECH__PANEL,
    DEPTH = 256,    /* of the inner dimension at a time: a panel of this depth stays in L1 */
    WIDE = 8,       /* panels of the forward result that take turns over one depth */
    INPUTS = 192,   /* of the backward-data result at a time */
    MOST = 1 << 28, /* samples, inputs or outputs: so that no product of two overflows */
    PARTS = 4,      /* of the scratch */
    STREAM_FROM = 24 << 20, /* bytes of dw that no cache holds until the optimizer reads them */
};

typedef struct panel_kernel {
    ech__kernel base;
    const ech__vec *vec;
    const ech__panel_loops *loops;
    ech__op op;
    ech__linear l;
    ech_dtype dtype; /* of the weight */
    float *packed_x, *packed_dy, *block;
    float *widened; /* [threads] parts of a 16-bit weight */
} panel_kernel;

/* ---- weights of 16 bits ---- */

static bool is_low(const panel_kernel *k)
{
    return k->dtype != ECH_F32;
}

/* The weight's number `at`, for address arithmetic; of f32, a pointer to it. */
static const float *weight_at(const panel_kernel *k, int64_t at)
{
    return is_low(k) ? (const float *)(const void *)((const uint16_t *)(const void *)k->l.w + at)
                     : k->l.w + at;
}

/* Numbers of a part: a depth of the forward panels, or of the inputs of a backward tile. */
static int64_t widened_size(const panel_kernel *k)
{
    return DEPTH * (k->op == ECH__OP_LINEAR ? Q * k->loops->panels : k->loops->rows);
}

static float *widened_of(const panel_kernel *k)
{
    return k->widened + omp_get_thread_num() * widened_size(k);
}

/* Lines of memory that numbers of the weight take. */
static int64_t lines_of(const panel_kernel *k, int64_t numbers)
{
    return ceil_div(numbers, is_low(k) ? 2 * Q : Q);
}

static void widen(const panel_kernel *k, int64_t n, int64_t at, float *to)
{
    k->vec->widen(k->dtype, n, weight_at(k, at), to);
}

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

/* from[rows][cols] -> to[rows/group][length][group], the last group and what is beyond the columns
 * filled up with zeros. */
static void pack_rows(const float *from, int64_t rows, int64_t cols, int64_t group, int64_t length,
                      float *to)
{
    const range groups = share_of(ceil_div(rows, group));
    for (int64_t g = groups.first; g < groups.end; g++) {
        const int64_t count = least(group, rows - g * group);
        for (int64_t c = 0; c < cols; c++) {
            float *out = to + (g * length + c) * group;
            for (int64_t r = 0; r < count; r++)
                out[r] = from[(g * group + r) * cols + c];
            for (int64_t r = count; r < group; r++)
                out[r] = 0;
        }
        memset(to + (g * length + cols) * group, 0, (size_t)((length - cols) * group) * sizeof *to);
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
        k->loops->tile(t);
        return;
    }
    float buffer[12 * 2 * Q];
    t->c = buffer;
    t->c_row = (int64_t)t->panels * Q;
    t->c_panel = Q;
    for (int64_t r = 0; t->add && r < t->rows; r++)
        memcpy(buffer + r * t->c_row, place + r * k->l.o, (size_t)cols * sizeof *buffer);
    k->loops->tile(t);
    for (int64_t r = 0; r < t->rows; r++)
        memcpy(place + r * k->l.o, buffer + r * t->c_row, (size_t)cols * sizeof *buffer);
}

/* While a depth of some panels is used, the panels that come next travel towards the cache: a
 * few lines at each run of Q, spread over the tiles of all samples. */
static void fetch_ahead(const panel_kernel *k, ech__tile *t, int64_t row, int64_t panel,
                        range panels, int64_t depth)
{
    const int64_t next = panel + k->loops->panels;
    const float *from = next < panels.end ? weight_at(k, (next * k->l.i + depth) * Q)
                        : depth + DEPTH < k->l.i
                            ? weight_at(k, (panels.first * k->l.i + depth + DEPTH) * Q)
                            : NULL;
    const int64_t tiles = ceil_div(k->l.n, k->loops->rows), slots = tiles * t->runs;
    const int64_t all = lines_of(k, t->run_length * t->runs * Q); /* of one panel */
    const int64_t lines = ceil_div(all, slots), done = row / k->loops->rows * t->runs * lines;
    if (!from || done >= all)
        return;
    t->ahead = from + done * Q;
    t->ahead_lines = lines;
    t->ahead_jump = lines * Q;
}

/* Some panels over a depth, where tiles can read them. */
typedef struct panel_part {
    const float *b;
    int64_t b_panel; /* from one to the next */
} panel_part;

static panel_part take_panels(const panel_kernel *k, int64_t panel, int64_t count, int64_t depth,
                              int64_t length)
{
    const int64_t step = k->l.i * Q, at = panel * step + depth * Q;
    if (!is_low(k))
        return (panel_part){k->l.w + at, step};
    float *to = widened_of(k);
    for (int64_t p = 0; p < count; p++)
        widen(k, length * Q, at + p * step, to + p * DEPTH * Q);
    return (panel_part){to, DEPTH * Q};
}

static void forward_block(const panel_kernel *k, range panels)
{
    const int rows = k->loops->rows;
    for (int64_t depth = 0; depth < k->l.i; depth += DEPTH) {
        const int64_t length = least(DEPTH, k->l.i - depth);
        for (int64_t p = panels.first; p < panels.end; p += k->loops->panels) {
            const int count = (int)least(k->loops->panels, panels.end - p);
            const panel_part part = take_panels(k, p, count, depth, length);
            for (int64_t row = 0; row < k->l.n; row += rows) {
                ech__tile t = {.rows = (int)least(rows, k->l.n - row),
                               .count = 1,
                               .panels = count,
                               .runs = length % Q ? 1 : length / Q,
                               .run_length = length % Q ? length : Q,
                               .run_jump = Q * rows,
                               .a = k->packed_x + row * k->l.i + depth * rows,
                               .a_row = 1,
                               .a_k = rows,
                               .b = part.b,
                               .b_panel = part.b_panel,
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
    pack_rows(k->l.x, k->l.n, k->l.i, k->loops->rows, k->l.i, k->packed_x);
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

/* Inputs first to first + count of the weight over some outputs, [outputs/16][count][16]: where
 * tiles can read them, and how far 16 outputs are from the next. */
static const float *take_inputs(const panel_kernel *k, int64_t first, int64_t count, int64_t depth,
                                int64_t length, int64_t *jump)
{
    const int64_t step = k->l.i * Q, at = depth * k->l.i + first * Q;
    *jump = step;
    if (!is_low(k))
        return k->l.w + at;
    float *to = widened_of(k);
    *jump = count * Q;
    for (int64_t r = 0; r < length / Q; r++)
        widen(k, count * Q, at + r * step, to + r * *jump);
    return to;
}

/* The same part of the weight for the inputs that come next. */
static void fetch_inputs_ahead(const panel_kernel *k, ech__tile *t, int64_t first, int64_t depth)
{
    const int64_t step = k->l.i * Q;
    t->ahead = weight_at(k, depth * k->l.i + (first + k->loops->rows) * Q);
    t->ahead_lines = lines_of(k, k->loops->rows * Q);
    t->ahead_jump = is_low(k) ? step / 2 : step;
}

static void backward_data_block(const panel_kernel *k, float *block, int64_t first, int64_t count)
{
    const int64_t width = ech__round_up(k->l.n, Q), outputs = ech__round_up(k->l.o, Q);
    for (int64_t depth = 0; depth < outputs; depth += DEPTH) {
        const int64_t length = least(DEPTH, outputs - depth);
        for (int64_t i = 0; i < count; i += k->loops->rows) {
            const int64_t rows = least(k->loops->rows, count - i);
            int64_t jump;
            const float *a = take_inputs(k, first + i, rows, depth, length, &jump);
            for (int64_t p = 0; p < width / Q; p += k->loops->panels) {
                ech__tile t = {.rows = (int)rows,
                               .count = 1,
                               .panels = (int)least(k->loops->panels, width / Q - p),
                               .runs = length / Q,
                               .run_length = Q,
                               .run_jump = jump,
                               .a = a,
                               .a_row = Q,
                               .a_k = 1,
                               .b = k->packed_dy + (p * outputs + depth) * Q,
                               .b_panel = outputs * Q,
                               .c = block + i * width + p * Q,
                               .c_row = width,
                               .c_panel = Q,
                               .add = depth > 0};
                if (p == 0)
                    fetch_inputs_ahead(k, &t, first + i, depth);
                k->loops->tile(&t);
            }
        }
    }
    store_transposed(k, block, first, count);
}

static void backward_data(const panel_kernel *k)
{
    /* dy[N][O] -> packed[N/16][O filled up][16] */
    pack_rows(k->l.dy, k->l.n, k->l.o, Q, ech__round_up(k->l.o, Q), k->packed_dy);
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
    const int rows = k->loops->rows;
    pack_columns(k->l.x, k->l.n, k->l.i, rows, k->packed_x);
    pack_columns(k->l.dy, k->l.n, k->l.o, Q, k->packed_dy);
#pragma omp barrier
    const bool stream =
        ech__round_up(k->l.o, Q) * k->l.i * 4 >= STREAM_FROM && k->l.n <= DEPTH && !k->l.adds;
    const range mine = share_of(ceil_div(k->l.o, Q));
    for (int64_t p = mine.first; p < mine.end; p += k->loops->panels) {
        const int panels = (int)least(k->loops->panels, mine.end - p);
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
            k->loops->tile(&t);
            if (k->l.i % rows) {
                t.a += t.count * t.a_next;
                t.c += t.count * t.c_next;
                t.count = 1;
                t.rows = (int)(k->l.i % rows);
                k->loops->tile(&t);
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
#pragma omp parallel num_threads(k->base.device->threads)
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

/* Floats of scratch: the packed first side, the packed second side, blocks of the threads, their
 * widened weights. */
static void scratch_of(const panel_kernel *k, int threads, int64_t sizes[PARTS])
{
    const int64_t n = ech__round_up(k->l.n, Q), o = ech__round_up(k->l.o, Q), rows = k->loops->rows;
    memset(sizes, 0, PARTS * sizeof *sizes);
    if (k->op == ECH__OP_LINEAR) {
        sizes[0] = ceil_div(k->l.n, rows) * rows * k->l.i;
    } else if (k->op == ECH__OP_LINEAR_BWD_DATA) {
        sizes[1] = n * o;
        sizes[2] = threads * INPUTS * n;
    } else {
        sizes[0] = ceil_div(k->l.i, rows) * rows * k->l.n;
        sizes[1] = o * k->l.n;
    }
    if (is_low(k))
        sizes[3] = threads * widened_size(k);
    for (int s = 0; s < PARTS; s++)
        sizes[s] = ech__round_up(sizes[s], Q);
}

static panel_kernel kernel_of(const ech__cpu *cpu, const ech__kernel_desc *desc,
                              const ech__binding *binding)
{
    return (panel_kernel){.op = desc->op,
                          .loops = cpu->loops->panel,
                          .vec = cpu->loops->vec,
                          .dtype = desc->operands[ech__weight_operand(desc->op)].dtype,
                          .l = ech__linear_of(desc, binding)};
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    panel_kernel k = kernel_of(ech__cpu_of(args->device), args->desc, args->binding);
    k.base = (ech__kernel){.run = run};
    int64_t sizes[PARTS];
    scratch_of(&k, args->device->threads, sizes);
    k.packed_x = args->binding->scratch;
    k.packed_dy = k.packed_x + sizes[0];
    k.block = k.packed_dy + sizes[1];
    k.widened = k.block + sizes[2];
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__panel_offer_linear(const ech__kernel_desc *desc, const ech__layout *weight,
                             ech__offer *offer)
{
    const ech__layout ours = ech__panel_layout(&weight->shape);
    const panel_kernel k = kernel_of(offer->cpu, desc, NULL);
    if (!ech__layout_equal(weight, &ours) || k.l.n > MOST || k.l.i > MOST || k.l.o > MOST)
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "panels", create_kernel);
    if (!candidate)
        return;
    int64_t sizes[PARTS];
    scratch_of(&k, offer->device->threads, sizes);
    candidate->layouts[ech__weight_operand(desc->op)] = *weight;
    for (int s = 0; s < PARTS; s++)
        candidate->scratch_bytes += sizes[s] * (int64_t)sizeof(float);
}
