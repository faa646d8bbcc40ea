/* Networks as ONNX files (opset 13), which other runtimes read: in f32, or in int8 as pairs of QuantizeLinear and
 * DequantizeLinear around every operator (QDQ), by the scales and the integers of our own int8 network. */
#pragma once

#include "quant/scales.h"

/* f32, with batch norms folded. */
ech_status ech__onnx_save(const ech__qmodel *model, const char *path);
/* int8. whole: from ech__round_parameters. */
ech_status ech__onnx_save_int8(const ech__qmodel *model, const ech__scales *scales,
                               const ech__tensors *whole, const char *path);
