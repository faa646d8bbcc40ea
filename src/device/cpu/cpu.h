/* The cpu device: kernels from oneDNN and OpenBLAS, and loops of our own. Shared inside this folder
 * only.
 *
 *   cpu.c      the table: which file offers what, and in which order of preference
 *   loops.h    our own loops, compiled once for each vector width (vec/width.h)
 *   port.h     operands of 16 bits a chunk at a time, for image.c and simple.c
 *   below      the other files, and what they offer
 *
 * Every function here runs on the device's worker thread.
 */
#pragma once

#include "device/cpu/loops.h"
#include "device/device.h"

typedef struct ech__onednn ech__onednn;

typedef struct ech__cpu {
    const ech__loops *loops;
    ech__onednn *onednn; /* NULL in a build without it */
    char fingerprint[256];
} ech__cpu;

static inline const ech__cpu *ech__cpu_of(ech__device *device)
{
    return ech__device_state(device);
}

/* A list of candidates under construction. */
typedef struct ech__offer {
    ech__device *device;
    const ech__cpu *cpu; /* of the device */
    ech__candidate *items;
    int count;
} ech__offer;

/* A new candidate with the layouts that desc fixes, or NULL when the list is full. */
ech__candidate *ech__offer_add(ech__offer *offer, const ech__kernel_desc *desc, const char *name,
                               ech__create_kernel *create);

/* In any direction. */
bool ech__is_linear(ech__op op);
bool ech__is_conv(ech__op op);
/* An image in blocks of B channels. */
bool ech__is_blocked(const ech__layout *layout, int64_t B);
/* The operand of a linear operator or convolution that has the weight's shape. */
int ech__weight_operand(ech__op op);

/* A linear operator's sizes and operands; what it does not have is NULL. */
typedef struct ech__linear {
    int64_t n, i, o; /* samples, inputs, outputs */
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    bool relu;
    bool adds; /* to dw and db */
} ech__linear;

/* binding NULL: only the sizes. */
ech__linear ech__linear_of(const ech__kernel_desc *desc, const ech__binding *binding);

/* What the device offers where no operand is of 16 bits, but for the weight of a linear layer. */
void ech__cpu_offer_wide(const ech__kernel_desc *desc, ech__offer *offer);

/* The processor's name as the system gives it. */
void ech__cpu_processor(char *out, size_t bytes);

/* ---- onednn/: oneDNN; no_onednn.c replaces it in a build without it ---- */

ech_status ech__onednn_open(ech_ctx *ctx, ech__onednn **out);
void ech__onednn_close(ech_ctx *ctx, ech__onednn *onednn);
/* "oneDNN 2.6.3 avx2" */
void ech__onednn_version(char *out, size_t bytes);
/* Whether the processor adds up products of bytes in 32 bits. Others go through 16 bits, where
 * sums of two saturate. */
bool ech__onednn_has_vnni(void);
/* Layouts that oneDNN would pick itself for the weight of a linear operator or a convolution, forward
 * first; at most 3. */
int ech__onednn_layouts(ech__onednn *onednn, const ech__kernel_desc *desc, ech__layout *out);
/* Offers the operator with the weight in this layout, where oneDNN takes it: convolutions direct and
 * Winograd. */
void ech__onednn_offer_weighted(const ech__kernel_desc *desc, const ech__layout *weight,
                                ech__offer *offer);

void ech__onednn_offer_reorder(const ech__kernel_desc *desc, ech__offer *offer);

/* Offers qlinear or qconv2d as "int8 onednn", with the weight row-major. The results are those
 * of the other kernels where the processor has VNNI, or where the weights are from -64 to 64. */
void ech__onednn_offer_int8(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- linear/panel.c: tiles of our own, with the weight in panels of 16 outputs ---- */

/* The weight as w[O/16][I][16]. */
ech__layout ech__panel_layout(const ech__shape *weight);
void ech__panel_offer_linear(const ech__kernel_desc *desc, const ech__layout *weight,
                             ech__offer *offer);

/* ---- conv/direct.c: any kernel and stride; of few channels where there is oneDNN ---- */

/* How a convolution's weight can lie. */
typedef enum ech__weight_order {
    ECH__OUTPUTS_INNER,   /* [O/B][I/B][K][K][B of I][B of O] */
    ECH__INPUTS_INNER,    /* [O/B][I/B][K][K][B of O][B of I] */
    ECH__ROW_MAJOR,       /* [O][I][K][K] */
    ECH__BLOCKED_OUTPUTS, /* [O/B][K][K][I][B]: what a row-major image is used with */
} ech__weight_order;

ech__layout ech__weight_layout(const ech__shape *shape, ech__weight_order order, int64_t B);
/* False where the layout is none of these. */
bool ech__weight_order_of(const ech__layout *layout, int64_t B, ech__weight_order *out);

/* Offers a convolution of few channels, in any direction, as "direct". y, dy and dx are blocked
 * by channels; x of forward and backward weights may be row-major too. The weight is taken as
 * [O/B][K][K][I][B], as [O/B][I/B][K][K] of blocks [B][B] in either order, or row-major; when it
 * is free, in the first for a row-major x and in the blocked ones otherwise. */
void ech__direct_offer(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- conv/winograd.c: 3 x 3 kernels at stride 1 ---- */

/* Offers a convolution of blocked images, in any direction, as "winograd": with the weight as it
 * is fixed when that is [O/B][I/B][3][3] of blocks [B][B] in either order, or row-major; in both
 * blocked orders when free. */
void ech__winograd_offer(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- linear/blas.c: OpenBLAS, with the weight row- or column-major ---- */

void ech__blas_open(void);
/* "OpenBLAS 0.3.21 Haswell", and "unused" where its kernels exceed the level in force: then it
 * offers nothing. */
void ech__blas_version(char *out, size_t bytes);
void ech__blas_offer_linear(const ech__kernel_desc *desc, const ech__layout *weight,
                            ech__offer *offer);

/* ---- conv/plain.c: the last resort, on the reference's loops ---- */

/* Offers a linear operator or a convolution of f32 with operands in any layout as "plain", a
 * fallback. */
void ech__plain_offer(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- image/image.c: batch norm, pools and flattening of images ---- */

void ech__image_offer(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- int8/: operators on integers; layer.c has what linear layers and convolutions share ---- */

/* Offers qlinear and qconv2d as "int8", then what int8/winograd.c can do; images are
 * blocked by channels. */
void ech__int8_offer(const ech__kernel_desc *desc, ech__offer *offer);
/* Offers a convolution as "int8 winograd", with the weight as another candidate has it. */
void ech__int8_wino_offer(const ech__kernel_desc *desc, const ech__candidate *like,
                          ech__offer *offer);
void ech__int8_image_offer(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- cast.c: between types of 16 bits and f32, and between layouts ---- */

/* Casts and reorders of f32 and 16 bits, as "flat" or "walk". */
void ech__cast_offer(const ech__kernel_desc *desc, ech__offer *offer);

/* ---- staged.c: anything of 16 bits through f32 in scratch, by kernels of the other files ---- */

/* Offers every f32 kernel for an operator with 16-bit operands; but_weight: those that can read
 * a 16-bit weight. */
void ech__staged_offer(const ech__kernel_desc *desc, bool but_weight, ech__offer *offer);

/* ---- simple.c: elementwise operators, losses, optimizers ---- */

void ech__simple_offer(const ech__kernel_desc *desc, ech__offer *offer);
