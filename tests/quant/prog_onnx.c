/* Writes a small network as ONNX, in f32 and in int8, with samples and what we answer to them: for
 * scripts that ask others.
 *
 *     quant_prog_onnx lenet|resnet8 DIR
 */
#include "support/quant_fixture.h"
#include "base/file/file.h"
#include "quant/onnx.h"

#include <stdio.h>
#include <string.h>

enum { LOGITS = QUANT_SAMPLES * QUANT_CLASSES };

static void write(quant_fixture *q, const char *dir, const char *name, const void *data,
                  size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    quant_good(q, ech__file_write(q->ctx, path, data, bytes));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *dir = argv[2];
    const ech__scale_options options = ech__scale_defaults();
    quant_fixture q;
    float y[LOGITS];
    ech__rewritten r;
    char path[512];
    quant_init(&q, strcmp(argv[1], "lenet") ? ECH__MODEL_RESNET8 : ECH__MODEL_LENET, &options);
    snprintf(path, sizeof path, "%s/f32.onnx", dir);
    quant_good(&q, ech__onnx_save(&q.model, path));
    snprintf(path, sizeof path, "%s/int8.onnx", dir);
    quant_good(&q, ech__onnx_save_int8(&q.model, &q.scales, &q.whole, path));
    write(&q, dir, "x.bin", q.x, (size_t)QUANT_SAMPLES * QUANT_PIXELS * sizeof *q.x);
    quant_run_graph(&q, q.device, q.model.fused, q.model.output, &q.model.weights, y);
    write(&q, dir, "f32.bin", y, sizeof y);
    quant_good(&q, ech__quantize(&q.model, &q.scales, &q.whole, NULL, &r));
    quant_run(&q, q.device, &r, y);
    write(&q, dir, "int8.bin", y, sizeof y);
    ech__rewritten_fini(&r);
    quant_fini(&q);
    return 0;
}
