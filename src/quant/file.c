#include "quant/file.h"
#include "base/file/json.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 };

/* ---- scales as text ---- */

/* The double with the fewest digits that becomes this float: 9 are enough for every one. */
static double short_of(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)value);
    return strtod(text, NULL);
}

static ech_json *activations_json(const ech__qmodel *model, const ech__scales *scales)
{
    ech_json *all = ech__json_object();
    for (size_t v = 0; v < scales->nvalues; v++) {
        if (!ech__has_scale(model, (ech_value)v))
            continue;
        ech_json *one = ech__json_object();
        ech__json_set_string(&one, "type",
                             ech__dtype_name(ech__scale_type(model->fused, (ech_value)v)));
        ech__json_set_real(&one, "scale", short_of(scales->activation[v]));
        ech__json_set(&all, ech__scale_name(model->fused, (ech_value)v), one);
    }
    return all;
}

static bool all_alike(const ech__layer_scales *layer)
{
    for (int64_t o = 1; o < layer->outputs; o++) {
        if (layer->scale[o] != layer->scale[0])
            return false;
    }
    return true;
}

static ech_json *weights_json(const ech__scales *scales)
{
    ech_json *all = ech__json_object();
    for (size_t l = 0; l < scales->nlayers; l++) {
        const ech__layer_scales *layer = &scales->layers[l];
        const int64_t count = all_alike(layer) ? 1 : layer->outputs;
        ech_json *list = ech__json_array();
        for (int64_t o = 0; o < count; o++)
            ech__json_append_real(&list, short_of(layer->scale[o]));
        ech__json_set(&all, layer->name, list);
    }
    return all;
}

ech_status ech__scales_text(const ech__qmodel *model, const ech__scales *scales, char **out)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "version", VERSION);
    ech__json_set(&json, "activations", activations_json(model, scales));
    ech__json_set(&json, "weights", weights_json(scales));
    const ech_status status = ech__json_dump(model->ctx, json, ECH_JSON_LINE, out, NULL);
    ech__json_destroy(json);
    return status;
}

static ech_status read_scale(ech_ctx *ctx, const char *what, const char *name, const ech_json *json,
                             float *out)
{
    double value;
    if (!ech__json_real(json, &value))
        return ech__fail(ctx, ECH_E_FORMAT, "the %s scale of '%s' is not a number", what, name);
    *out = (float)value;
    if (isfinite(*out) && *out > 0)
        return ECH_OK;
    return ech__fail(ctx, ECH_E_FORMAT,
                     "the %s scale of '%s' is %g; it must be a finite number above 0", what, name,
                     value);
}

static ech_status parse_activation(const ech__qmodel *model, ech__scales *scales, const char *name,
                                   const ech_json *json)
{
    ech_ctx *ctx = model->ctx;
    for (size_t v = 0; v < scales->nvalues; v++) {
        if (!ech__has_scale(model, (ech_value)v) ||
            strcmp(ech__scale_name(model->fused, (ech_value)v), name) != 0)
            continue;
        const char *type, *wanted = ech__dtype_name(ech__scale_type(model->fused, (ech_value)v));
        ECH_TRY(ech__json_get_string(ctx, json, "type", &type));
        if (strcmp(type, wanted) != 0)
            return ech__fail(ctx, ECH_E_FORMAT, "'%s' is of type %.16s; in this model it is %s",
                             name, type, wanted);
        return read_scale(ctx, "activation", name, ech__json_find(json, "scale"),
                          &scales->activation[v]);
    }
    return ech__fail(ctx, ECH_E_FORMAT,
                     "there is a scale for '%.64s', which the model does not have", name);
}

static ech_status parse_weights(ech__scales *scales, const char *name, const ech_json *list)
{
    const ech__layer_scales *layer = ech__scales_layer(scales, name);
    const int64_t count = (int64_t)ech__json_count(list);
    if (!layer)
        return ech__fail(scales->ctx, ECH_E_FORMAT,
                         "there are scales for the layer '%.64s', which the model does not have",
                         name);
    if (ech__json_kind_of(list) != ECH_JSON_ARRAY || (count != 1 && count != layer->outputs))
        return ech__fail(scales->ctx, ECH_E_FORMAT,
                         "layer '%s' has %lld weight scales; it must have 1 or %lld", name,
                         (long long)count, (long long)layer->outputs);
    for (int64_t o = 0; o < layer->outputs; o++)
        ECH_TRY(read_scale(scales->ctx, "weight", name,
                           ech__json_at(list, count == 1 ? 0 : (size_t)o), &layer->scale[o]));
    return ECH_OK;
}

static ech_status parse(const ech_json *json, const ech__qmodel *model, ech__scales *scales)
{
    ech_ctx *ctx = model->ctx;
    const ech_json *activations, *weights;
    int64_t version;
    ECH_TRY(ech__json_get_int(ctx, json, "version", &version));
    if (version != VERSION)
        return ech__fail(ctx, ECH_E_FORMAT, "version is %lld; this program reads %d",
                         (long long)version, VERSION);
    ECH_TRY(ech__json_get_object(ctx, json, "activations", &activations));
    ECH_TRY(ech__json_get_object(ctx, json, "weights", &weights));
    for (ech__json_iter i = ech__json_begin(activations); i.key; ech__json_next(&i))
        ECH_TRY(parse_activation(model, scales, i.key, i.value));
    for (ech__json_iter i = ech__json_begin(weights); i.key; ech__json_next(&i))
        ECH_TRY(parse_weights(scales, i.key, i.value));
    return ech__scales_check(scales, model);
}

ech_status ech__scales_parse(const char *what, const char *text, const ech__qmodel *model,
                             ech__scales *scales)
{
    ech_json *json;
    ECH_TRY(ech__json_parse(model->ctx, what, text, strlen(text), &json));
    const ech_status status = parse(json, model, scales);
    ech__json_destroy(json);
    return status < 0 ? ech__fail_in(model->ctx, status, "%s", what) : ECH_OK;
}

/* ---- files ---- */

/* What the file holds, in the order of the graph: parameters that an operator takes. */
static bool is_stored(const ech_graph *graph, size_t v)
{
    const ech__value *value = &graph->values[v];
    if (value->kind != ECH__VALUE_PARAM && value->kind != ECH__VALUE_BUFFER)
        return false;
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] == (ech_value)v)
                return true;
        }
    }
    return false;
}

static const ech__tensor *stored_tensor(const ech__qmodel *model, const ech__tensors *whole,
                                        size_t v)
{
    const char *name = model->fused->values[v].name;
    const ech__tensor *t = ech__tensors_find(whole, name);
    return t ? t : ech__tensors_find(&model->weights, name);
}

static ech_status write_file(const ech__qmodel *model, const ech__tensors *whole, const char *text,
                             ech__safetensor *list, const char *path)
{
    const ech__safetensors_pair pair = {ECH__INT8_KEY, text};
    ech__safetensors_header header = {.tensors = list, .metadata = &pair, .metadata_count = 1};
    for (size_t v = 0; v < model->fused->nvalues; v++) {
        if (!is_stored(model->fused, v))
            continue;
        const ech__tensor *t = stored_tensor(model, whole, v);
        list[header.count++] =
            (ech__safetensor){.name = t->name, .dtype = t->dtype, .shape = t->shape};
    }
    ech__safetensors_writer *writer = NULL;
    ech_status status = ech__safetensors_writer_create(model->ctx, path, &header, &writer);
    for (size_t v = 0; v < model->fused->nvalues && status == ECH_OK; v++) {
        if (!is_stored(model->fused, v))
            continue;
        const ech__tensor *t = stored_tensor(model, whole, v);
        status = ech__safetensors_writer_write(writer, t->data,
                                               (size_t)(t->elems * ech__dtype_bytes(t->dtype)));
    }
    if (status == ECH_OK)
        status = ech__safetensors_writer_commit(writer);
    ech__safetensors_writer_destroy(writer);
    return status;
}

ech_status ech__int8_save(const ech__qmodel *model, const ech__scales *scales,
                          const ech__tensors *whole, const char *path)
{
    char *text = NULL;
    ECH_TRY(ech__scales_text(model, scales, &text));
    ech__safetensor *list = calloc(model->fused->nvalues + 1, sizeof *list);
    const ech_status status = list ? write_file(model, whole, text, list, path)
                                   : ech__no_memory(model->ctx, "a list of tensors");
    free(list);
    free(text);
    return status;
}

/* The type that a stored parameter must have: weights and biases of layers are integers. */
static ech_dtype stored_type(const ech_graph *graph, size_t v)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!ech__is_layer(graph, node))
            continue;
        if (node->in[1] == (ech_value)v)
            return ECH_S8;
        if (node->nin == 3 && node->in[2] == (ech_value)v)
            return ECH_S32;
    }
    return graph->values[v].type.dtype;
}

static ech_status read_tensor(const ech__safetensors *file, ech__qmodel *model, size_t v,
                              ech__tensors *whole)
{
    const ech__value *value = &model->fused->values[v];
    const ech_dtype type = stored_type(model->fused, v);
    const ech__safetensor *from = ech__safetensors_find(file, value->name);
    if (!from)
        return ech__fail(model->ctx, ECH_E_FORMAT, "there is no tensor '%s', which the model needs",
                         value->name);
    if (from->dtype != type || !ech__shape_equal(&from->shape, &value->type.shape))
        return ech__fail(model->ctx, ECH_E_FORMAT, "tensor '%s' is %s %s; the model needs %s %s",
                         value->name, ech__dtype_name(from->dtype),
                         ech__shape_format(&from->shape).s, ech__dtype_name(type),
                         ech__shape_format(&value->type.shape).s);
    ech__tensor *t;
    ECH_TRY(ech__tensors_add(type == ECH_F32 ? &model->weights : whole, value->name, type,
                             &from->shape, &t));
    return ech__safetensors_read(file, from, 0, t->data, (size_t)from->bytes);
}

static ech_status read_all(const ech__safetensors *file, ech__qmodel *model, ech__tensors *whole)
{
    const ech_graph *graph = model->fused;
    for (size_t i = 0; i < ech__safetensors_count(file); i++) {
        const char *name = ech__safetensors_at(file, i)->name;
        const ech_value v = ech__graph_find(graph, name);
        if (v < 0 || !is_stored(graph, (size_t)v))
            return ech__fail(model->ctx, ECH_E_FORMAT, "the model has no parameter '%.64s'", name);
    }
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (is_stored(graph, v))
            ECH_TRY(read_tensor(file, model, v, whole));
    }
    return ech__tensors_check_finite(&model->weights);
}

ech_status ech__int8_load(const char *path, ech__qmodel *model, ech__scales *scales,
                          ech__tensors *whole)
{
    ech__safetensors *file;
    ECH_TRY(ech__safetensors_open(model->ctx, path, &file));
    const char *text = ech__safetensors_metadata(file, ECH__INT8_KEY);
    ech_status status =
        text ? ech__scales_parse("scales", text, model, scales)
             : ech__fail(model->ctx, ECH_E_FORMAT,
                         "its metadata has no '%s': this is not an int8 network", ECH__INT8_KEY);
    if (status == ECH_OK)
        status = read_all(file, model, whole);
    ech__safetensors_close(file);
    return status < 0 ? ech__fail_in(model->ctx, status, "%s", path) : ECH_OK;
}
