#include "plan/choices.h"
#include "plan/plan.h"

#include <string.h>

/* ---- out ---- */

static void add_kernels(const ech__plan *plan, ech_json **array)
{
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        if (instr->node->op == ECH__OP_DELAY || ech__op_info(instr->node->op)->exchange)
            continue;
        ech_json *json = ech__json_object();
        ech__json_set_string(&json, "op", ech__op_name(instr->node->op));
        ech__json_set_string(&json, "name", instr->node->name ? instr->node->name : "");
        ech__json_set_string(&json, "kernel", instr->choice.name);
        ech__json_set_real(&json, "time_s", instr->seconds);
        ech__json_append(array, json);
    }
}

static void add_layouts(const ech__plan *plan, ech_json **object)
{
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__value *value = &plan->graph->values[v];
        if (plan->places[v].used &&
            (value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_COPY))
            ech__json_set_string(object, value->name, ech__layout_tag(&plan->places[v].layout).s);
    }
}

ech_json *ech__choices_json_of(const ech__plan *const *plans, int count)
{
    ech_json *json = ech__json_object(), *kernels = ech__json_array();
    ech_json *layouts = ech__json_object();
    for (int i = 0; i < count; i++) {
        add_kernels(plans[i], &kernels);
        add_layouts(plans[i], &layouts);
    }
    ech__json_set(&json, "kernels", kernels);
    ech__json_set(&json, "layouts", layouts);
    return json;
}

ech_json *ech__choices_json(const ech__plan *plan)
{
    return ech__choices_json_of(&plan, 1);
}

/* ---- in ---- */

static ech_status parse_kernel(ech_ctx *ctx, const ech_json *json, ech__arena *arena,
                               ech__kernel_choice *out)
{
    const char *op, *name, *kernel;
    ECH_TRY(ech__json_get_string(ctx, json, "op", &op));
    ECH_TRY(ech__json_get_string(ctx, json, "name", &name));
    ECH_TRY(ech__json_get_string(ctx, json, "kernel", &kernel));
    ECH_TRY(ech__json_get_real(ctx, json, "time_s", &out->seconds));
    out->op = ech__arena_printf(arena, "%s", op);
    out->name = ech__arena_printf(arena, "%s", name);
    out->kernel = ech__arena_printf(arena, "%s", kernel);
    return out->op && out->name && out->kernel ? ECH_OK
                                               : ech__no_memory(ctx, "the choices of a plan");
}

ech_status ech__choices_parse(ech_ctx *ctx, const ech_json *json, ech__arena *arena,
                              ech__choices *out)
{
    const ech_json *kernels, *layouts;
    *out = (ech__choices){.nkernels = 0};
    ECH_TRY(ech__json_get_array(ctx, json, "kernels", &kernels));
    ECH_TRY(ech__json_get_object(ctx, json, "layouts", &layouts));
    out->kernels = ech__arena_array(arena, ech__json_count(kernels) + 1, sizeof *out->kernels);
    out->layouts = ech__arena_array(arena, ech__json_count(layouts) + 1, sizeof *out->layouts);
    if (!out->kernels || !out->layouts)
        return ech__no_memory(ctx, "the choices of a plan");
    for (const ech_json *kernel; (kernel = ech__json_at(kernels, out->nkernels)) != NULL;)
        ECH_TRY(parse_kernel(ctx, kernel, arena, &out->kernels[out->nkernels++]));
    for (ech__json_iter it = ech__json_begin(layouts); it.key; ech__json_next(&it)) {
        const char *tag;
        ECH_TRY(ech__json_get_string(ctx, layouts, it.key, &tag));
        ech__layout_choice *layout = &out->layouts[out->nlayouts++];
        layout->value = ech__arena_printf(arena, "%s", it.key);
        layout->tag = ech__arena_printf(arena, "%s", tag);
        if (!layout->value || !layout->tag)
            return ech__no_memory(ctx, "the choices of a plan");
    }
    return ECH_OK;
}

const char *ech__choices_layout(const ech__choices *choices, const char *value)
{
    for (size_t i = 0; i < choices->nlayouts; i++) {
        if (!strcmp(choices->layouts[i].value, value))
            return choices->layouts[i].tag;
    }
    return NULL;
}
