/* For processors without AVX2: the same sums, one by one. */
#include "device/cpu/int8/int8.h"
#include "graph/op_quant.h"

static void store(ech_dtype type, bool relu, float value, void *y, int64_t at)
{
    if (type == ECH_F32)
        ((float *)y)[at] = relu && value < 0 ? 0 : value; /* a NaN stays one */
    else if (type == ECH_S8)
        ((int8_t *)y)[at] = (int8_t)ech__round_within(value, relu ? 0 : -128, 127);
    else
        ((uint8_t *)y)[at] = (uint8_t)ech__round_within(value, 0, 255);
}

static void tile(const ech__int8_tile *t)
{
    enum { Q = ECH__INT8_OUTPUTS };
    for (int row = 0; row < t->rows; row++) {
        for (int panel = 0; panel < t->panels; panel++) {
            int32_t acc[Q] = {0};
            const int8_t *w = t->w + panel * t->w_panel;
            for (int64_t run = 0; run < t->runs; run++) {
                const int16_t *x = t->x[row] + run * t->x_run;
                for (int64_t k = 0; k < t->length; k++, x += 2, w += 2 * Q) {
                    for (int q = 0; q < Q; q++)
                        acc[q] += x[0] * w[2 * q] + x[1] * w[2 * q + 1];
                }
            }
            for (int q = 0; q < t->valid[panel]; q++)
                store(t->type, t->relu,
                      ((float)acc[q] + t->bias[panel * Q + q]) * t->scale[panel * Q + q], t->y[row],
                      panel * t->y_panel + q);
        }
    }
}

static void widen(const void *src, bool is_signed, int64_t count, int64_t src_step,
                  int64_t dst_step, int16_t *dst)
{
    const int8_t *s8 = src;
    const uint8_t *u8 = src;
    for (int64_t i = 0; i < count; i++) {
        for (int c = 0; c < 8; c++)
            dst[i * dst_step + c] =
                (int16_t)(is_signed ? s8[i * src_step + c] : u8[i * src_step + c]);
    }
}

static void finish(const ech__int8_sums *t)
{
    for (int64_t row = 0; row < t->rows; row++) {
        const int32_t *acc = t->acc + row * t->acc_step;
        for (int q = 0; q < (t->fills ? ECH__INT8_OUTPUTS : t->valid); q++) {
            const int32_t sum = q < t->valid ? acc[q] + t->shift[q] : 0;
            store(t->type, t->relu, ((float)sum + t->bias[q]) * t->scale[q],
                  (char *)t->y + row * t->y_step, q);
        }
    }
}

const ech__int8_products ech__int8_products_generic = {
    .rows = {8, 6}, .tile = tile, .widen = widen, .finish = finish};
