/* A network in int8 as a safetensors file: weights in s8 and biases in s32 under the model's names, other
 * parameters as they are, and all scales in the metadata, under ECH__INT8_KEY, as one JSON object:
 *
 *     {"version": 1,
 *      "activations": {"x": {"type": "s8", "scale": 0.0078}, "conv1": {"type": "u8", "scale": 0.021}},
 *      "weights": {"conv1": [0.0031, ...one, or one for each output channel...]}}
 */
#pragma once

#include "quant/scales.h"

#define ECH__INT8_KEY "echelon.int8"

/* whole: from ech__round_parameters. */
ech_status ech__int8_save(const ech__qmodel *model, const ech__scales *scales,
                          const ech__tensors *whole, const char *path);

/* Into a bare model and scales that were just initialised; whole and the model's weights are filled. A scale that
 * is zero, negative, not finite or missing, a layer that the model does not have, and a tensor of another type or
 * shape are refused. */
ech_status ech__int8_load(const char *path, ech__qmodel *model, ech__scales *scales,
                          ech__tensors *whole);

/* The scales alone, as they are in the metadata; the caller frees the text with free(). */
ech_status ech__scales_text(const ech__qmodel *model, const ech__scales *scales, char **out);
/* And back: for a file, and for a fuzzer. what names the text in error messages. */
ech_status ech__scales_parse(const char *what, const char *text, const ech__qmodel *model,
                             ech__scales *scales);
