#include "quant/onnx.h"
#include "base/file/file.h"
#include "quant/protobuf.h"

#include <stdio.h>
#include <string.h>

/* Field numbers of onnx.proto, by message. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    OPSET_VERSION = 2,
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_TYPE_ELEMENT = 1,
    TENSOR_TYPE_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2,
};

enum { IR_VERSION = 7, OPSET = 13, KIND_INT = 2, KIND_INTS = 7 };

typedef struct exporter {
    const ech__qmodel *model;
    const ech__scales *scales; /* NULL: f32 */
    const ech__tensors *whole;
    ech__proto graph;
} exporter;

typedef struct name {
    char s[256];
} name;

/* Names of layers are short; one that is not keeps its beginning. */
static name join(const char *first, const char *second)
{
    name n;
    snprintf(n.s, sizeof n.s, "%.200s%.40s", first, second);
    return n;
}

/* ---- tensors ---- */

static int element_type(ech_dtype dtype)
{
    static const int types[] = {
        [ECH_F32] = 1, [ECH_U8] = 2, [ECH_S8] = 3, [ECH_S32] = 6, [ECH_S64] = 7};
    return types[dtype];
}

static void add_tensor(exporter *e, const char *tensor, ech_dtype dtype, const ech__shape *shape,
                       const void *data)
{
    ech__proto t = {0};
    int64_t elems = 0;
    ech__shape_elems(shape, &elems);
    for (int i = 0; i < shape->ndims; i++)
        ech__proto_int(&t, TENSOR_DIMS, shape->dims[i]);
    ech__proto_int(&t, TENSOR_TYPE, element_type(dtype));
    ech__proto_text(&t, TENSOR_NAME, tensor);
    ech__proto_bytes(&t, TENSOR_RAW, data, (size_t)(elems * ech__dtype_bytes(dtype)));
    ech__proto_nest(&e->graph, GRAPH_INITIALIZER, &t);
}

/* ---- nodes ---- */

static void begin_node(ech__proto *node, const char *op, const char *called)
{
    *node = (ech__proto){0};
    ech__proto_text(node, NODE_NAME, called);
    ech__proto_text(node, NODE_OP, op);
}

static void add_int(ech__proto *node, const char *attribute, int64_t value)
{
    ech__proto a = {0};
    ech__proto_text(&a, ATTRIBUTE_NAME, attribute);
    ech__proto_int(&a, ATTRIBUTE_INT, value);
    ech__proto_int(&a, ATTRIBUTE_TYPE, KIND_INT);
    ech__proto_nest(node, NODE_ATTRIBUTE, &a);
}

static void add_ints(ech__proto *node, const char *attribute, int count, int64_t value)
{
    ech__proto a = {0};
    ech__proto_text(&a, ATTRIBUTE_NAME, attribute);
    for (int i = 0; i < count; i++)
        ech__proto_int(&a, ATTRIBUTE_INTS, value);
    ech__proto_int(&a, ATTRIBUTE_TYPE, KIND_INTS);
    ech__proto_nest(node, NODE_ATTRIBUTE, &a);
}

static void end_node(exporter *e, ech__proto *node, const char *output)
{
    ech__proto_text(node, NODE_OUTPUT, output);
    ech__proto_nest(&e->graph, GRAPH_NODE, node);
}

/* QuantizeLinear and DequantizeLinear of a value: scale and zero point are initialisers of their own. */
static void add_qdq(exporter *e, const char *from, const char *to, float scale, ech_dtype type)
{
    static const char zero = 0;
    const ech__shape scalar = {0, {0}};
    const name scale_name = join(to, ".scale"), zero_name = join(to, ".zero"),
               whole = join(to, ".whole");
    ech__proto node;
    add_tensor(e, scale_name.s, ECH_F32, &scalar, &scale);
    add_tensor(e, zero_name.s, type, &scalar, &zero);
    for (int back = 0; back < 2; back++) {
        begin_node(&node, back ? "DequantizeLinear" : "QuantizeLinear",
                   join(to, back ? ".dequantize" : ".quantize").s);
        ech__proto_text(&node, NODE_INPUT, back ? whole.s : from);
        ech__proto_text(&node, NODE_INPUT, scale_name.s);
        ech__proto_text(&node, NODE_INPUT, zero_name.s);
        end_node(e, &node, back ? to : whole.s);
    }
}

/* An integer parameter and its DequantizeLinear, with a scale for each output. */
static ech_status add_whole(exporter *e, const ech__tensor *t, const float *scale, int64_t outputs)
{
    ech_ctx *ctx = e->model->ctx;
    const ech__shape vector = {1, {outputs}};
    const name whole = join(t->name, ".whole"), scale_name = join(t->name, ".scale"),
               zero_name = join(t->name, ".zero");
    void *zeros = ech__new(ctx, (size_t)outputs * sizeof(int32_t));
    if (!zeros)
        return ech__no_memory(ctx, "%lld zero points", (long long)outputs);
    ech__proto node;
    add_tensor(e, whole.s, t->dtype, &t->shape, t->data);
    add_tensor(e, scale_name.s, ECH_F32, &vector, scale);
    add_tensor(e, zero_name.s, t->dtype, &vector, zeros);
    ech__delete(ctx, zeros, (size_t)outputs * sizeof(int32_t));
    begin_node(&node, "DequantizeLinear", join(t->name, ".dequantize").s);
    ech__proto_text(&node, NODE_INPUT, whole.s);
    ech__proto_text(&node, NODE_INPUT, scale_name.s);
    ech__proto_text(&node, NODE_INPUT, zero_name.s);
    add_int(&node, "axis", 0);
    end_node(e, &node, t->name);
    return ECH_OK;
}

/* ---- the network ---- */

static float scale_of(const exporter *e, ech_value v)
{
    return e->scales->activation[ech__scale_owner(e->model->fused, v)];
}

/* Whether a value passes through integers: those with a scale of their own, and what moves them. */
static bool is_whole(const exporter *e, ech_value v)
{
    return e->scales && v != e->model->output &&
           ech__has_scale(e->model, ech__scale_owner(e->model->fused, v)) &&
           (ech__has_scale(e->model, v) || ech__scale_owner(e->model->fused, v) != v);
}

/* The tensor that holds a value for those that take it. The input keeps its name for the program that runs the file. */
static name value_name(const exporter *e, ech_value v)
{
    const bool rounded = v == e->model->input && is_whole(e, v);
    return join(ech__scale_name(e->model->fused, v), rounded ? ".rounded" : "");
}

/* Parameters of a layer, as they are or from integers. */
static ech_status add_params(exporter *e, const ech__node *node, ech__proto *out)
{
    const ech_graph *graph = e->model->fused;
    for (int i = 1; i < node->nin; i++) {
        const ech__value *value = &graph->values[node->in[i]];
        const ech__tensor *t = ech__tensors_find(&e->model->weights, value->name);
        const ech__tensor *whole = e->scales ? ech__tensors_find(e->whole, value->name) : NULL;
        ech__proto_text(out, NODE_INPUT, value->name);
        if (!whole) {
            if (!t)
                return ech__fail(e->model->ctx, ECH_E_INVALID, "'%s' is missing", value->name);
            add_tensor(e, value->name, t->dtype, &t->shape, t->data);
            continue;
        }
        const ech__layer_scales *layer = ech__scales_layer(e->scales, node->name);
        const size_t bytes = (size_t)layer->outputs * sizeof(float);
        float *unit = ech__new(e->model->ctx, bytes);
        if (!unit)
            return ech__no_memory(e->model->ctx, "%lld scales", (long long)layer->outputs);
        for (int64_t o = 0; o < layer->outputs; o++)
            unit[o] = (i == 2 ? scale_of(e, node->in[0]) : 1) * layer->scale[o];
        const ech_status status = add_whole(e, whole, unit, layer->outputs);
        ech__delete(e->model->ctx, unit, bytes);
        ECH_TRY(status);
    }
    return ECH_OK;
}

/* NULL: it has none. */
static const char *const op_names[ECH__OP_COUNT] = {
    [ECH__OP_LINEAR] = "Gemm",       [ECH__OP_CONV2D] = "Conv",
    [ECH__OP_MAXPOOL2D] = "MaxPool", [ECH__OP_AVGPOOL2D] = "AveragePool",
    [ECH__OP_FLATTEN] = "Flatten",   [ECH__OP_ADD] = "Add",
    [ECH__OP_RELU] = "Relu",
};

static void add_attributes(const ech__node *node, ech__proto *out)
{
    const ech__attrs *a = &node->attrs;
    if (node->op == ECH__OP_LINEAR)
        add_int(out, "transB", 1);
    if (node->op == ECH__OP_FLATTEN)
        add_int(out, "axis", 1);
    if (a->kernel) {
        add_ints(out, "kernel_shape", 2, a->kernel);
        add_ints(out, "strides", 2, a->stride);
        add_ints(out, "pads", 4, a->pad);
    }
}

static ech_status add_operator(exporter *e, const ech__node *node)
{
    const ech_value y = node->out[0];
    const char *op = op_names[node->op];
    if (!op)
        return ech__fail(e->model->ctx, ECH_E_UNSUPPORTED,
                         "%s '%s' has no counterpart in the ONNX files that are written here",
                         ech__op_name(node->op), node->name);
    const name last = value_name(e, y), real = is_whole(e, y) ? join(last.s, ".f32") : last;
    const name sum = node->attrs.relu ? join(last.s, ".sum") : real;
    ech__proto out;
    begin_node(&out, op, node->name);
    ech__proto_text(&out, NODE_INPUT, value_name(e, node->in[0]).s);
    const ech_status status =
        ech__is_layer(e->model->fused, node) ? add_params(e, node, &out) : ECH_OK;
    if (status < 0) {
        ech__proto_fini(&out);
        return status;
    }
    if (!ech__is_layer(e->model->fused, node) && node->nin == 2)
        ech__proto_text(&out, NODE_INPUT, value_name(e, node->in[1]).s);
    add_attributes(node, &out);
    end_node(e, &out, sum.s);
    if (node->attrs.relu) {
        begin_node(&out, "Relu", join(node->name, ".relu").s);
        ech__proto_text(&out, NODE_INPUT, sum.s);
        end_node(e, &out, real.s);
    }
    if (is_whole(e, y))
        add_qdq(e, real.s, last.s, scale_of(e, y), ech__scale_type(e->model->fused, y));
    return ECH_OK;
}

/* An input or output, with the batch as a named dimension. */
static void add_value_info(exporter *e, int field, const char *called, const ech__shape *shape)
{
    ech__proto dims = {0}, tensor = {0}, type = {0}, info = {0};
    for (int i = 0; i < shape->ndims; i++) {
        ech__proto dim = {0};
        if (shape->dims[i] == ECH_BATCH)
            ech__proto_text(&dim, DIM_PARAM, "N");
        else
            ech__proto_int(&dim, DIM_VALUE, shape->dims[i]);
        ech__proto_nest(&dims, SHAPE_DIM, &dim);
    }
    ech__proto_int(&tensor, TENSOR_TYPE_ELEMENT, element_type(ECH_F32));
    ech__proto_nest(&tensor, TENSOR_TYPE_SHAPE, &dims);
    ech__proto_nest(&type, TYPE_TENSOR, &tensor);
    ech__proto_text(&info, VALUE_NAME, called);
    ech__proto_nest(&info, VALUE_TYPE, &type);
    ech__proto_nest(&e->graph, field, &info);
}

static ech_status add_graph(exporter *e)
{
    const ech__qmodel *model = e->model;
    const ech_graph *graph = model->fused;
    const ech__value *input = &graph->values[model->input];
    ech__proto_text(&e->graph, GRAPH_NAME, "echelon");
    add_value_info(e, GRAPH_INPUT, input->name, &input->type.shape);
    add_value_info(e, GRAPH_OUTPUT, value_name(e, model->output).s,
                   &graph->values[model->output].type.shape);
    if (is_whole(e, model->input))
        add_qdq(e, input->name, value_name(e, model->input).s, scale_of(e, model->input),
                ech__scale_type(graph, model->input));
    for (size_t n = 0; n < graph->nnodes; n++)
        ECH_TRY(add_operator(e, &graph->nodes[n]));
    return ECH_OK;
}

static ech_status save(exporter *e, const char *path)
{
    ech_ctx *ctx = e->model->ctx;
    ech__proto file = {0}, opset = {0};
    ech_status status = add_graph(e);
    if (status == ECH_OK) {
        ech__proto_int(&file, MODEL_IR_VERSION, IR_VERSION);
        ech__proto_text(&file, MODEL_PRODUCER, "echelon");
        ech__proto_text(&file, MODEL_PRODUCER_VERSION, ech_version());
        ech__proto_nest(&file, MODEL_GRAPH, &e->graph);
        ech__proto_int(&opset, OPSET_VERSION, OPSET);
        ech__proto_nest(&file, MODEL_OPSET, &opset);
        status = file.failed ? ech__no_memory(ctx, "the ONNX file %s", path)
                             : ech__file_write(ctx, path, file.data, file.size);
    }
    ech__proto_fini(&e->graph);
    ech__proto_fini(&file);
    return status;
}

ech_status ech__onnx_save(const ech__qmodel *model, const char *path)
{
    exporter e = {.model = model};
    return save(&e, path);
}

ech_status ech__onnx_save_int8(const ech__qmodel *model, const ech__scales *scales,
                               const ech__tensors *whole, const char *path)
{
    exporter e = {.model = model, .scales = scales, .whole = whole};
    return save(&e, path);
}
