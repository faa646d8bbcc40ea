#include "parallel/place.h"
#include "base/names.h"
#include "graph/flops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- borders ---- */

static bool uses(const ech__node *node, ech_value v)
{
    for (int i = 0; i < node->nin; i++) {
        if (node->in[i] == v)
            return true;
    }
    return false;
}

static bool is_used_from(const ech_graph *graph, ech_value v, size_t at)
{
    for (size_t n = at; n < graph->nnodes; n++) {
        if (uses(&graph->nodes[n], v))
            return true;
    }
    return false;
}

/* The activations that are made before the operator `at` and used there or later; *last is one of
 * them. */
static int alive_before(const ech_graph *graph, size_t at, ech_value *last)
{
    int count = 0;
    for (size_t n = 0; n < at; n++) {
        for (int i = 0; i < graph->nodes[n].nout; i++) {
            if (!is_used_from(graph, graph->nodes[n].out[i], at))
                continue;
            *last = graph->nodes[n].out[i];
            count++;
        }
    }
    return count;
}

static bool begins_layer(const ech_graph *graph, size_t at)
{
    const ech__op op = graph->nodes[at].op;
    ech_value crossing;
    return (op == ECH__OP_LINEAR || op == ECH__OP_CONV2D) &&
           alive_before(graph, at, &crossing) == 1;
}

/* ---- what a layer is ---- */

static int64_t bytes_of_one(const ech_graph *graph, ech_value v)
{
    const ech__type *type = &graph->values[v].type;
    const ech__shape one = ech__shape_bind(&type->shape, 1);
    int64_t elems = 0;
    ech__shape_elems(&one, &elems);
    return elems * ech__dtype_bytes(type->dtype);
}

static void measure_layer(const ech_graph *graph, ech__layer *layer)
{
    for (size_t n = layer->first; n < layer->first + layer->count; n++) {
        const ech__node *node = &graph->nodes[n];
        layer->flops += ech__node_flops(graph, node, 1);
        for (int i = 0; i < node->nout; i++)
            layer->outputs += bytes_of_one(graph, node->out[i]);
        for (int i = 0; i < node->nin; i++) {
            const ech__value *value = &graph->values[node->in[i]];
            int64_t elems = 0;
            if (value->kind != ECH__VALUE_PARAM)
                continue;
            ech__shape_elems(&value->type.shape, &elems);
            layer->params += elems;
            layer->bytes += elems * ech__dtype_bytes(value->type.dtype);
        }
    }
}

static bool has_param(const ech_graph *graph, const ech__node *node)
{
    for (int i = 0; i < node->nin; i++) {
        if (graph->values[node->in[i]].kind == ECH__VALUE_PARAM)
            return true;
    }
    return false;
}

/* The part in front of a dot that all its operators with parameters share, or else the name of the
 * first of them. */
static const char *name_layer(ech_graph *graph, const ech__layer *layer)
{
    const char *first = graph->nodes[layer->first].name;
    size_t same = 0;
    bool others = false;
    for (size_t n = layer->first; n < layer->first + layer->count; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!has_param(graph, node))
            continue;
        if (!same && !others) {
            first = node->name;
            same = strlen(first);
        }
        size_t k = 0;
        while (k < same && node->name[k] == first[k])
            k++;
        others |= strcmp(node->name, first) != 0;
        same = k;
    }
    if (others) {
        while (same && first[same] != '.')
            same--;
    }
    return ech__arena_printf(&graph->arena, "%.*s", same ? (int)same : 255, first);
}

ech_status ech__layers_find(ech_graph *graph, ech__layers *out)
{
    *out = (ech__layers){.at = ech__arena_array(&graph->arena, graph->nnodes + 1, sizeof *out->at)};
    if (!out->at)
        return ech__no_memory(graph->ctx, "the layers of a model");
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (!out->count || begins_layer(graph, n))
            out->at[out->count++] = (ech__layer){.first = n};
        out->at[out->count - 1].count++;
    }
    for (int i = 0; i < out->count; i++) {
        measure_layer(graph, &out->at[i]);
        out->at[i].name = name_layer(graph, &out->at[i]);
        if (!out->at[i].name)
            return ech__no_memory(graph->ctx, "the layers of a model");
    }
    return ECH_OK;
}

/* ---- placements ---- */

typedef enum placement_kind {
#define KIND(id, text) PLACEMENT_##id,
    ECH__PLACEMENT_LIST(KIND)
#undef KIND
        PLACEMENT_COUNT
} placement_kind;

static ECH__NAMES(name_of, placement_kind, ECH__PLACEMENT_LIST)

static placement_kind kind_of(const char *text)
{
    int kind = 0;
    while (text && kind < PLACEMENT_COUNT && strcmp(name_of((placement_kind)kind), text) != 0)
        kind++;
    return (placement_kind)kind;
}

bool ech__placement_wants_seconds(const char *text)
{
    return kind_of(text) == PLACEMENT_BALANCED;
}

bool ech__layers_in_order(const ech__layers *layers)
{
    for (int i = 1; i < layers->count; i++) {
        if (layers->at[i].device < layers->at[i - 1].device)
            return false;
    }
    return true;
}

static double cost_of(const ech__placement *p, const ech__layer *layer, bool memory, bool seconds)
{
    if (memory)
        return (double)layer->bytes * p->copies + (double)layer->outputs * (double)p->batch;
    return seconds ? layer->seconds : layer->flops;
}

/* Whether the layers fit into so many devices when none may take more than `most`; devices that are
 * left over take one layer each, so that none is empty. Fills in the devices. */
static bool fill(const ech__layers *layers, const double *cost, int devices, double most)
{
    int device = 0;
    double sum = 0;
    for (int i = 0; i < layers->count; i++) {
        const bool needed =
            layers->count - i == devices - 1 - device; /* one for each that is left */
        if (i && (sum + cost[i] > most || needed)) {
            device++;
            sum = 0;
        }
        if (device == devices || cost[i] > most)
            return false;
        sum += cost[i];
        layers->at[i].device = device;
    }
    return device == devices - 1;
}

/* The least maximum is the cost of some stretch of layers: the smallest stretch that will do. */
static ech_status balance(ech_ctx *ctx, const ech__placement *p, bool memory, ech__layers *layers)
{
    bool seconds = true;
    double best = HUGE_VAL;
    double *cost = ech__new(ctx, (size_t)layers->count * sizeof *cost);
    if (!cost)
        return ech__no_memory(ctx, "the placement of %d layers", layers->count);
    for (int i = 0; i < layers->count; i++)
        seconds &= layers->at[i].seconds > 0;
    for (int i = 0; i < layers->count; i++)
        cost[i] = cost_of(p, &layers->at[i], memory, seconds);
    for (int first = 0; first < layers->count; first++) {
        double sum = 0;
        for (int i = first; i < layers->count; i++) {
            sum += cost[i];
            if (sum < best && fill(layers, cost, p->devices, sum))
                best = sum;
        }
    }
    const bool found = fill(layers, cost, p->devices, best);
    ech__delete(ctx, cost, (size_t)layers->count * sizeof *cost);
    return found ? ECH_OK
                 : ech__fail(ctx, ECH_E_INTERNAL, "%d layers were not placed on %d devices",
                             layers->count, p->devices);
}

static ech_status take_list(ech_ctx *ctx, const ech__placement *p, ech__layers *layers)
{
    const char *at = p->text;
    int count = 0;
    for (;;) {
        char *end;
        const bool digit = *at >= '0' && *at <= '9';
        const long device = digit ? strtol(at, &end, 10) : 0;
        if (!digit || (*end && *end != ','))
            return ech__fail(ctx, ECH_E_INVALID,
                             "placement '%s': must be even, half, balanced, balanced-memory, or a "
                             "device for each layer, such as 0,0,1",
                             p->text);
        if (device >= p->devices)
            return ech__fail(ctx, ECH_E_INVALID,
                             "placement '%s': there is no device %ld; there are %d, from 0 on",
                             p->text, device, p->devices);
        if (count < layers->count)
            layers->at[count].device = (int)device;
        count++;
        if (!*end)
            break;
        at = end + 1;
    }
    if (count != layers->count)
        return ech__fail(ctx, ECH_E_INVALID,
                         "placement '%s': has a device for %d layers, and the model has %d",
                         p->text, count, layers->count);
    return ECH_OK;
}

static ech_status check_all_used(ech_ctx *ctx, const ech__placement *p, const ech__layers *layers)
{
    for (int device = 0; device < p->devices; device++) {
        bool used = false;
        for (int i = 0; i < layers->count; i++)
            used |= layers->at[i].device == device;
        if (!used)
            return ech__fail(ctx, ECH_E_INVALID, "placement '%s': device %d of %d gets no layer",
                             p->text, device, p->devices);
    }
    return ECH_OK;
}

ech_status ech__placement_apply(ech_ctx *ctx, const ech__placement *p, ech__layers *layers)
{
    const int L = layers->count, D = p->devices;
    const placement_kind kind = p->text ? kind_of(p->text) : PLACEMENT_EVEN;
    if (D < 1 || D > ECH__MAX_STAGES)
        return ech__fail(ctx, ECH_E_INVALID, "%d model-parallel devices: from 1 to %d are possible",
                         D, ECH__MAX_STAGES);
    if (D > L)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%d model-parallel devices for a model of %d layer%s: each needs one at "
                         "least",
                         D, L, L == 1 ? "" : "s");
    switch (kind) {
    case PLACEMENT_EVEN:
        for (int i = 0; i < L; i++)
            layers->at[i].device = (int)((int64_t)i * D / L);
        return ECH_OK;
    case PLACEMENT_HALF:
        if (D != 2)
            return ech__fail(ctx, ECH_E_INVALID, "placement 'half': is for 2 devices, not %d", D);
        for (int i = 0; i < L; i++)
            layers->at[i].device = i < L / 2 ? 0 : 1;
        return ECH_OK;
    case PLACEMENT_BALANCED:
    case PLACEMENT_BALANCED_MEMORY:
        return balance(ctx, p, kind == PLACEMENT_BALANCED_MEMORY, layers);
    default:
        ECH_TRY(take_list(ctx, p, layers));
        return check_all_used(ctx, p, layers);
    }
}

/* ---- labels and transfers ---- */

/* Moves what crosses the border before a layer; operators behind it use what arrives. */
static ech_status move_across(ech_graph *graph, const ech__layer *from, const ech__layer *to)
{
    ech_value crossing = -1;
    if (alive_before(graph, to->first, &crossing) != 1)
        return ech__fail(graph->ctx, ECH_E_INTERNAL, "more than one value enters layer '%s'",
                         to->name);
    const char *maker = graph->values[crossing].name;
    for (size_t n = 0; n < to->first; n++) {
        for (int i = 0; i < graph->nodes[n].nout; i++) {
            if (graph->nodes[n].out[i] == crossing)
                maker = graph->nodes[n].name;
        }
    }
    const ech_value arrived =
        ech__graph_add(graph, &(ech__node){.op = ECH__OP_TRANSFER,
                                           .name = maker,
                                           .device = from->device,
                                           .attrs = {.from = from->device, .to = to->device},
                                           .nin = 1,
                                           .in = {crossing}});
    if (arrived < 0)
        return (ech_status)arrived;
    ech__graph_move_last(graph, to->first);
    for (size_t n = to->first + 1; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] == crossing)
                graph->nodes[n].in[i] = arrived;
        }
    }
    return ECH_OK;
}

ech_status ech__place_layers(ech_graph *graph, ech__layers *layers)
{
    ECH_TRY(graph->status);
    for (int i = 0; i < layers->count; i++) {
        const ech__layer *layer = &layers->at[i];
        for (size_t n = layer->first; n < layer->first + layer->count; n++)
            graph->nodes[n].device = layer->device;
    }
    for (int i = layers->count - 1; i > 0; i--) { /* from behind, so that places stay right */
        if (layers->at[i].device == layers->at[i - 1].device)
            continue;
        ECH_TRY(move_across(graph, &layers->at[i - 1], &layers->at[i]));
        for (int k = i; k < layers->count; k++)
            layers->at[k].first++;
    }
    return ECH_OK;
}

int ech__layer_of(const ech_graph *graph, const ech__layers *layers, const ech__node *node)
{
    for (int i = 0; i < layers->count; i++) {
        const ech__layer *layer = &layers->at[i];
        for (size_t n = layer->first; n < layer->first + layer->count; n++) {
            const ech__node *own = &graph->nodes[n];
            if (node->phase == ECH__PHASE_OPTIMIZER ? uses(own, node->in[0])
                                                    : !strcmp(own->name, node->name))
                return i;
        }
    }
    return -1;
}

/* ---- transfers, as figures ---- */

int ech__moves_count(const ech_graph *graph)
{
    int count = 0;
    for (size_t n = 0; n < graph->nnodes; n++)
        count += graph->nodes[n].op == ECH__OP_TRANSFER;
    return count;
}

static const ech__node *maker_of(const ech_graph *graph, ech_value v)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nout; i++) {
            if (graph->nodes[n].out[i] == v)
                return &graph->nodes[n];
        }
    }
    return NULL;
}

void ech__moves_of(const ech_graph *graph, ech__move *out)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op != ECH__OP_TRANSFER)
            continue;
        const ech__node *maker = maker_of(graph, node->in[0]);
        *out++ = (ech__move){.from = node->attrs.from,
                             .to = node->attrs.to,
                             .backward = node->phase == ECH__PHASE_BACKWARD,
                             .after = maker ? maker->name : node->name,
                             .op = maker ? maker->op : node->op,
                             .bytes = bytes_of_one(graph, node->in[0])};
    }
}
