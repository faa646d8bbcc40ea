/* The loops of one vector width: all tables that the kernels of a device use.
 *
 *     cpu->loops = ech__loops_for(ech__isa_level());     when a device opens
 *     cpu->loops->vec->relu(n, x, y);
 */
#pragma once

#include "device/cpu/conv/direct.h"
#include "device/cpu/conv/winograd.h"
#include "device/cpu/image/image.h"
#include "device/cpu/int8/int8.h"
#include "device/cpu/int8/winograd.h"
#include "device/cpu/linear/panel.h"
#include "device/cpu/vec/vec.h"
#include "device/isa.h"

typedef struct ech__loops {
    int channels; /* of an image that are contiguous: 8, or 16 with 512-bit vectors */
    const ech__vec *vec;
    const ech__image_loops *image;
    const ech__winograd_loops *winograd;
    const ech__direct_loops *direct;
    const ech__panel_loops *panel;
    const ech__int8_loops *int8;
    const ech__int8_products *int8_products;
    const ech__int8_winograd_loops *int8_winograd[2]; /* for strides 1 and 2, or NULL */
} ech__loops;

/* The widest that the level allows. */
const ech__loops *ech__loops_for(ech__isa level);
