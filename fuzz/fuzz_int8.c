/* Any bytes as the scales of an int8 network: either an error message of one line, or valid scales that
 * can be read back from their own text. */
#include "models/models.h"
#include "quant/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check_again(const ech__qmodel *model, const ech__scales *scales)
{
    char *text;
    ech__scales again;
    must(ech__scales_text(model, scales, &text) == ECH_OK);
    must(ech__scales_init(&again, model) == ECH_OK);
    must(ech__scales_parse("scales", text, model, &again) == ECH_OK);
    for (size_t v = 0; v < scales->nvalues; v++)
        must(scales->activation[v] == again.activation[v]);
    for (size_t l = 0; l < scales->nlayers; l++) {
        for (int64_t o = 0; o < scales->layers[l].outputs; o++) {
            const float scale = scales->layers[l].scale[o];
            must(isfinite(scale) && scale > 0 && scale == again.layers[l].scale[o]);
        }
    }
    ech__scales_fini(&again);
    free(text);
}

static void parse(const ech__qmodel *model, const char *text)
{
    ech__scales scales;
    must(ech__scales_init(&scales, model) == ECH_OK);
    if (ech__scales_parse("scales", text, model, &scales) < 0)
        must(ech_ctx_error(model->ctx)[0] && !strchr(ech_ctx_error(model->ctx), '\n'));
    else
        check_again(model, &scales);
    ech__scales_fini(&scales);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    ech_graph *graph;
    ech__model built;
    ech__qmodel model;
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    must(ech_graph_create(ctx, &graph) == ECH_OK);
    must(ech__model_build(graph, &(ech__model_options){.kind = ECH__MODEL_LENET}, &built) ==
         ECH_OK);
    must(ech__qmodel_bare(&model, graph, ech__prediction_of(graph, built.loss)) == ECH_OK);
    parse(&model, text);
    ech__qmodel_fini(&model);
    ech_graph_destroy(graph);
    ech_ctx_destroy(ctx);
    free(text);
    return 0;
}
