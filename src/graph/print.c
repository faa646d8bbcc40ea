#include "graph/print.h"
#include "base/format.h"

#include <string.h>

typedef struct op_text {
    char s[64];
} op_text;

/* "conv2d+relu k3 s2 p1" */
static op_text describe(const ech__node *node)
{
    op_text t;
    const ech__attrs *a = &node->attrs;
    int used = snprintf(t.s, sizeof t.s, "%s%s%s", ech__op_name(node->op), a->bias ? "+bias" : "",
                        a->relu ? "+relu" : "");
    if (a->kernel)
        used += snprintf(t.s + used, sizeof t.s - (size_t)used, " k%lld s%lld p%lld",
                         (long long)a->kernel, (long long)a->stride, (long long)a->pad);
    if (node->op == ECH__OP_ALLREDUCE)
        snprintf(t.s + used, sizeof t.s - (size_t)used, " bucket %lld", (long long)a->bucket);
    if (node->op == ECH__OP_TRANSFER || node->op == ECH__OP_SEND || node->op == ECH__OP_RECV)
        snprintf(t.s + used, sizeof t.s - (size_t)used, " %d to %d", a->from, a->to);
    return t;
}

static void put_value(const ech_graph *graph, ech_value v, FILE *file)
{
    const ech__value *value = &graph->values[v];
    if (value->kind == ECH__VALUE_GROUP) {
        fprintf(file, " %s:group", value->name);
        return;
    }
    fprintf(file, " %s:%s[", value->name, ech__dtype_name(value->type.dtype));
    for (int i = 0; i < value->type.shape.ndims; i++) {
        if (value->type.shape.dims[i] == ECH_BATCH)
            fprintf(file, "%sbatch", i ? "," : "");
        else
            fprintf(file, "%s%lld", i ? "," : "", (long long)value->type.shape.dims[i]);
    }
    fputc(']', file);
}

static int64_t value_bytes(const ech_graph *graph, ech_value v)
{
    const ech__type *type = &graph->values[v].type;
    const ech__shape shape = ech__shape_bind(&type->shape, 1);
    int64_t elements = 0, sum = 0;
    if (graph->values[v].kind != ECH__VALUE_GROUP)
        return ech__shape_elems(&shape, &elements) ? elements * ech__dtype_bytes(type->dtype) : 0;
    for (size_t member = 0; member < graph->nvalues; member++) {
        if (graph->values[member].grouped && graph->values[member].group == v)
            sum += value_bytes(graph, (ech_value)member);
    }
    return sum;
}

/* What it reads and writes of one sample, and all of what has no samples. */
static int64_t bytes_of(const ech_graph *graph, const ech__node *node)
{
    int64_t sum = 0;
    for (int i = 0; i < node->nin + node->nout; i++)
        sum += value_bytes(graph, ech__node_operand(node, i));
    return sum;
}

static bool is_spread(const ech_graph *graph)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].device != graph->nodes[0].device)
            return true;
    }
    return false;
}

void ech__graph_print(const ech_graph *graph, FILE *file)
{
    const bool spread = is_spread(graph);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        fprintf(file, "%-9s  %-24s  %-20s ", ech__phase_name(node->phase), describe(node).s,
                node->name ? node->name : "");
        for (int i = 0; i < node->nin; i++)
            put_value(graph, node->in[i], file);
        fprintf(file, " ->");
        for (int i = 0; i < node->nout; i++)
            put_value(graph, node->out[i], file);
        if (spread)
            fprintf(file, "  device %d", node->device);
        fprintf(file, "  %s\n", ech__format_bytes(bytes_of(graph, node)).s);
    }
}

/* ---- Graphviz ---- */

static const char *colour_of(ech__phase phase)
{
    static const char *const colours[ECH__PHASE_COUNT] = {"#cfe3f7", "#f9dcc4", "#f4c9d6"};
    return colours[phase] ? colours[phase] : "#d8ecd2";
}

void ech__graph_dot(const ech_graph *graph, const char *name, FILE *file)
{
    fprintf(file,
            "digraph \"%s\" {\n  rankdir=TB; node [shape=box, style=\"rounded,filled\", "
            "fontname=\"Helvetica\", fontsize=10]; edge [fontname=\"Helvetica\", fontsize=8];\n",
            name);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        fprintf(file, "  n%zu [label=\"%s\\n%s\", fillcolor=\"%s\"];\n", n, describe(node).s,
                node->name ? node->name : "", colour_of(node->phase));
        for (int i = 0; i < node->nin; i++) {
            const ech__node *maker = ech__graph_maker(graph, node->in[i]);
            if (maker && maker < node)
                fprintf(file, "  n%zu -> n%zu [label=\"%s\"];\n", (size_t)(maker - graph->nodes), n,
                        graph->values[node->in[i]].name);
        }
    }
    fprintf(file, "}\n");
}
