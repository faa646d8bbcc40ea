/* Memory of a plan: parameters, gradients, optimizer state and inputs are each contiguous in a
 * separate block. Activations and workspace share one block, in which memory is reused after the
 * last use of its value. */
#include "base/size.h"
#include "plan/plan.h"

#include <assert.h>

/* Something that needs bytes from the start of instruction first to the end of instruction last. */
typedef struct item {
    int first, last;
    int64_t bytes, offset;
    bool placed;
} item;

typedef struct layout_state {
    ech__plan *plan;
    item *items;   /* [nvalues + ninstrs]: activations, then the scratch of each instruction */
    int *item_of;  /* [nvalues] */
    int *last_use; /* [nvalues] instruction, or -1 */
    size_t nitems;
} layout_state;

static ech_status too_large(const ech__plan *plan, const char *name)
{
    return ech__fail(plan->ctx, ECH_E_LIMIT, "'%s' is too large for a batch of %lld", name,
                     (long long)plan->batch);
}

static ech__memory_kind memory_of(ech__value_kind kind)
{
    static const ech__memory_kind kinds[] = {
        [ECH__VALUE_INPUT] = ECH__MEMORY_INPUTS,
        [ECH__VALUE_PARAM] = ECH__MEMORY_WEIGHTS,
        [ECH__VALUE_BUFFER] = ECH__MEMORY_WEIGHTS,
        [ECH__VALUE_ACTIVATION] = ECH__MEMORY_ACTIVATIONS,
        [ECH__VALUE_GRADIENT] = ECH__MEMORY_GRADIENTS,
        [ECH__VALUE_SENT] = ECH__MEMORY_GRADIENTS,
        [ECH__VALUE_STATE] = ECH__MEMORY_OPTIMIZER,
        [ECH__VALUE_COPY] = ECH__MEMORY_COPIES,
        [ECH__VALUE_PART] = ECH__MEMORY_ACTIVATIONS,
        [ECH__VALUE_SUM] = ECH__MEMORY_SUMS,
    };
    return kinds[kind];
}

bool ech__plan_needs_no_copy(const ech__plan *plan, ech_value v)
{
    const ech__value *value = &plan->graph->values[v];
    return value->kind == ECH__VALUE_COPY &&
           value->type.dtype == plan->graph->values[value->of].type.dtype &&
           ech__layout_equal(&plan->places[v].layout, &plan->places[value->of].layout);
}

bool ech__plan_is_idle(const ech__plan *plan, const ech__instr *instr)
{
    return instr->node->op == ECH__OP_REORDER && ech__plan_needs_no_copy(plan, instr->node->out[0]);
}

static ech__memory_kind memory_of_value(const ech_graph *graph, const ech__value *value)
{
    return memory_of(value->kind == ECH__VALUE_GROUP ? graph->values[value->of].kind : value->kind);
}

static ech_status find_bytes(ech__plan *plan, size_t v)
{
    const ech__value *value = &plan->graph->values[v];
    ech__place *place = &plan->places[v];
    int64_t extent;
    if (!ech__layout_extent(&place->layout, &extent) ||
        !ech__mul(extent, ech__dtype_bytes(value->type.dtype), &place->bytes) ||
        place->bytes > INT64_MAX / 4)
        return too_large(plan, value->name);
    return ECH_OK;
}

/* Puts a value at the end of its block, or where the plan that this one is like has it. */
static ech_status append(ech__plan *plan, size_t v)
{
    ech__place *place = &plan->places[v];
    const ech__place *like =
        place->kind == ECH__MEMORY_INPUTS ? NULL : ech__plan_like(plan, (ech_value)v);
    int64_t *block = &plan->memory[place->kind], end;
    place->offset = like && like->used ? like->offset : *block;
    if (!ech__add(place->offset, ech__round_up(place->bytes, ECH__ALIGN), &end))
        return too_large(plan, plan->graph->values[v].name);
    *block = end > *block ? end : *block;
    return ECH_OK;
}

/* The member of a group at a place, or -1. */
static ech_value member_at(const ech_graph *graph, ech_value group, int place)
{
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *value = &graph->values[v];
        if (value->grouped && value->group == group && value->place == place)
            return (ech_value)v;
    }
    return -1;
}

/* The members of a group lie in it one after the other; it is as long as they are together. */
static ech_status place_group(ech__plan *plan, size_t group)
{
    const ech_graph *graph = plan->graph;
    ech__place *place = &plan->places[group];
    ech_value v;
    place->bytes = 0;
    for (int i = 0; (v = member_at(graph, (ech_value)group, i)) >= 0; i++) {
        plan->places[v].used = true; /* also where this plan has no operator for it */
        ECH_TRY(find_bytes(plan, (size_t)v));
        plan->places[v].offset = place->bytes;
        if (!ech__add(place->bytes, ech__round_up(plan->places[v].bytes, ECH__ALIGN),
                      &place->bytes))
            return too_large(plan, graph->values[group].name);
    }
    ECH_TRY(append(plan, group));
    for (int i = 0; (v = member_at(graph, (ech_value)group, i)) >= 0; i++)
        plan->places[v].offset += place->offset;
    const int64_t elements = place->bytes / ech__dtype_bytes(graph->values[group].type.dtype);
    place->layout = ech__layout_plain(&(ech__shape){1, {elements}});
    return ECH_OK;
}

/* Operators on groups learn how long they are. */
static void describe_groups(ech__plan *plan)
{
    for (size_t n = 0; n < plan->ninstrs; n++) {
        ech__instr *instr = &plan->instrs[n];
        for (int i = 0; i < instr->node->nin; i++) {
            if (plan->graph->values[instr->node->in[i]].kind == ECH__VALUE_GROUP)
                instr->desc.operands[i].layout = plan->places[instr->node->in[i]].layout;
        }
    }
}

/* Blocks in which everything lives as long as the plan. */
static ech_status place_lasting(ech__plan *plan)
{
    const ech_graph *graph = plan->graph;
    for (size_t v = 0; v < graph->nvalues; v++)
        plan->places[v].kind = memory_of_value(graph, &graph->values[v]);
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *value = &graph->values[v];
        ech__place *place = &plan->places[v];
        if (!place->used || value->grouped)
            continue;
        if (value->kind == ECH__VALUE_GROUP) {
            ECH_TRY(place_group(plan, v));
            continue;
        }
        ECH_TRY(find_bytes(plan, v));
        if (place->kind == ECH__MEMORY_ACTIVATIONS)
            continue;
        if (ech__plan_needs_no_copy(plan,
                                    (ech_value)v)) /* it is what it copies, which has a place */
            *place = plan->places[value->of];
        else
            ECH_TRY(append(plan, v));
    }
    describe_groups(plan);
    return ECH_OK;
}

/* Transformed weights that kernels keep are placed after the copies, or where the plan that this
 * one is like has them: that is the same kernel, so they have the same bits. */
static ech_status place_kept(ech__plan *plan)
{
    int64_t *block = &plan->memory[ECH__MEMORY_COPIES];
    for (size_t n = 0; n < plan->ninstrs; n++) {
        ech__instr *instr = &plan->instrs[n];
        const int64_t bytes = instr->choice.kept_bytes;
        const ech__instr *like = bytes ? ech__plan_like_instr(plan, instr) : NULL;
        int64_t end;
        assert(!like || like->choice.kept_bytes == bytes);
        instr->kept_offset = like ? like->kept_offset : *block;
        if (bytes < 0 || !ech__add(instr->kept_offset, ech__round_up(bytes, ECH__ALIGN), &end))
            return too_large(plan, instr->node->name);
        *block = end > *block ? end : *block;
    }
    return ECH_OK;
}

static void find_last_uses(layout_state *st)
{
    const ech__plan *plan = st->plan;
    for (size_t v = 0; v < plan->graph->nvalues; v++)
        st->last_use[v] = -1;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        for (int i = 0; i < node->nin; i++)
            st->last_use[node->in[i]] = (int)n;
    }
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        if (plan->graph->values[v].kept)
            st->last_use[v] = (int)plan->ninstrs;
    }
}

/* The input whose place the node's first output may take over, or -1. */
static ech_value reused_input(const layout_state *st, const ech__node *node, int at)
{
    const ech__plan *plan = st->plan;
    const int reuses = ech__op_info(node->op)->reuses;
    if (reuses < 0 || node->nout != 1)
        return -1;
    const ech_value in = node->in[reuses], out = node->out[0];
    const ech__place *from = &plan->places[in], *to = &plan->places[out];
    if (from->kind != ECH__MEMORY_ACTIVATIONS || to->kind != ECH__MEMORY_ACTIVATIONS ||
        st->last_use[in] != at || from->bytes != to->bytes ||
        !ech__layout_equal(&from->layout, &to->layout))
        return -1;
    for (int i = 0; i < node->nin; i++) { /* an operand that comes twice stays */
        if (i != reuses && node->in[i] == in)
            return -1;
    }
    return in;
}

static void make_items(layout_state *st)
{
    const ech__plan *plan = st->plan;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        const ech_value over = reused_input(st, node, (int)n);
        for (int i = 0; i < node->nout; i++) {
            const ech_value v = node->out[i];
            if (plan->places[v].kind != ECH__MEMORY_ACTIVATIONS)
                continue;
            const int last = st->last_use[v] > (int)n ? st->last_use[v] : (int)n;
            if (i == 0 && over >= 0) {
                st->item_of[v] = st->item_of[over];
                st->items[st->item_of[v]].last = last;
                continue;
            }
            st->item_of[v] = (int)st->nitems;
            st->items[st->nitems++] =
                (item){.first = (int)n,
                       .last = last,
                       .bytes = ech__round_up(plan->places[v].bytes, ECH__ALIGN)};
        }
    }
}

/* Places the items from first on, largest first, each at the lowest offset that is free while it
 * lives. Returns the end of the highest one. */
static int64_t place_items(layout_state *st, size_t first)
{
    int64_t top = 0;
    for (size_t round = first; round < st->nitems; round++) {
        item *next = NULL;
        for (size_t i = first; i < st->nitems; i++) {
            if (!st->items[i].placed && (!next || st->items[i].bytes > next->bytes))
                next = &st->items[i];
        }
        assert(next); /* each round places one */
        /* Moves up past every placed item that overlaps in time and space, until none does. */
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t i = 0; i < st->nitems; i++) {
                const item *other = &st->items[i];
                if (other->placed && other->first <= next->last && next->first <= other->last &&
                    other->offset < next->offset + next->bytes &&
                    next->offset < other->offset + other->bytes) {
                    next->offset = other->offset + other->bytes;
                    moved = true;
                }
            }
        }
        next->placed = true;
    }
    for (size_t i = 0; i < st->nitems; i++) {
        if (st->items[i].offset + st->items[i].bytes > top)
            top = st->items[i].offset + st->items[i].bytes;
    }
    return top;
}

static ech_status place_passing(layout_state *st)
{
    ech__plan *plan = st->plan;
    find_last_uses(st);
    make_items(st);
    int64_t sum = 0; /* offsets stay below the sum of all sizes, so this bounds them */
    for (size_t i = 0; i < st->nitems; i++) {
        if (!ech__add(sum, st->items[i].bytes, &sum))
            return too_large(plan, "the activations");
    }
    const int64_t activations = place_items(st, 0);
    const size_t nactivations = st->nitems;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const int64_t bytes = plan->instrs[n].choice.scratch_bytes;
        if (bytes < 0 || !ech__add(sum, bytes, &sum))
            return too_large(plan, "the workspace");
        st->items[st->nitems++] =
            (item){.first = (int)n, .last = (int)n, .bytes = ech__round_up(bytes, ECH__ALIGN)};
    }
    const int64_t all = place_items(st, nactivations);
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        if (plan->places[v].used && plan->places[v].kind == ECH__MEMORY_ACTIVATIONS)
            plan->places[v].offset = st->items[st->item_of[v]].offset;
    }
    for (size_t n = 0; n < plan->ninstrs; n++)
        plan->instrs[n].scratch_offset = st->items[nactivations + n].offset;
    plan->memory[ECH__MEMORY_ACTIVATIONS] = activations;
    plan->memory[ECH__MEMORY_WORKSPACE] = all - activations;
    return ECH_OK;
}

ech_status ech__plan_memory(ech__plan *plan)
{
    const size_t nvalues = plan->graph->nvalues;
    layout_state st = {.plan = plan};
    st.items = ech__arena_array(&plan->arena, nvalues + plan->ninstrs, sizeof *st.items);
    st.item_of = ech__arena_array(&plan->arena, nvalues, sizeof *st.item_of);
    st.last_use = ech__arena_array(&plan->arena, nvalues, sizeof *st.last_use);
    if (!st.items || !st.item_of || !st.last_use)
        return ech__no_memory(plan->ctx, "a plan of %zu operators", plan->ninstrs);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        plan->memory[k] = 0;
    ECH_TRY(place_lasting(plan));
    ECH_TRY(place_kept(plan));
    ECH_TRY(place_passing(&st));
    plan->total_bytes = 0;
    for (int k = 0; k < ECH__MEMORY_COUNT; k++) {
        if (!ech__add(plan->total_bytes, plan->memory[k], &plan->total_bytes))
            return too_large(plan, "the plan");
    }
    return ECH_OK;
}
