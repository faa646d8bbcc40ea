/* The small convolutional network on its way to int8: a training and quantizations of it that
 * several studies look at.
 *
 *     static const ech__lab_param params[] = {ECH__LAB_INT8_PARAMS, {0}};
 *
 *     static void runs(ech__lab_runs *lab)
 *     {
 *         ech__lab_trained(lab);
 *         ech__lab_quantized(lab, "tensor", "--weights max --per tensor --activations max");
 *     }
 *
 * A quantization is a run of echelon quantize on the weights of the run "trained": its ladder has
 * the rungs of quant/ladder.h, and its values the spread of every weight and activation.
 */
#pragma once

#include "lab/sheet.h"
#include "quant/ladder.h"

/* clang-format off */
#define ECH__LAB_INT8_PARAMS                                                         \
    {"images", 50000, 50000, 1, 50000, "training images"},                           \
    {"epochs", 3, 14, 1, 200, "epochs that the network is trained for"},             \
    {"tested", 5000, 10000, 1, 10000, "test images that accuracies are counted on"}, \
    {"samples", 500, 1000, 1, 10000, "training images that calibration looks at"}
/* clang-format on */

/* ---- running ---- */

/* "trained": lenet on so many training images. */
void ech__lab_trained(ech__lab_runs *lab);
/* A quantization of it, with options of its own. */
void ech__lab_quantized(ech__lab_runs *lab, const char *id, const char *options);
/* "best": the scales that echelon quantize takes by default, f32 and int8 timed beside each other, each layer alone. */
void ech__lab_quantized_best(ech__lab_runs *lab);

/* ---- telling ---- */

/* Layers of the network, weights first in the record; NULL past the last. */
const char *ech__int8_layer(size_t index);
/* Where the record of a run has what there is to see of a layer, such as "after ReLU"; -1: it has not. */
int ech__int8_value(ech__sheet *sheet, const char *run, const char *layer, const char *what);
/* Names PREFIXacc, its accuracy, and PREFIXdiff, points of accuracy against f32 on the same images. */
void ech__tell_rung(ech__sheet *sheet, const char *prefix, const char *run, ech__rung_kind rung);
/* Whether the difference PREFIXdiff is a loss, a gain, or none that can be claimed. */
const char *ech__tell_verdict(ech__sheet *sheet, const char *prefix);
/* Says what was trained to which accuracy and what it is tested on, in the answer that has been begun. */
void ech__tell_say_trained(ech__sheet *sheet, const char *run);
/* A panel of the histogram of value number i of a run, without its zeros, whose share the note tells. */
void ech__tell_value_panel(ech__sheet *sheet, const char *run, int value);
