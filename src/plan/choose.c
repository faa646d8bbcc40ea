/* The choice of kernels and layouts, by measurement.
 *
 * A parameter has one layout, used by every operator that touches it or its gradient. For each
 * layout that all of them can take, the times of their fastest kernels are added up; the layout
 * with the least sum wins. Then each operator takes its fastest kernel for the layouts it got.
 * Without a tuning store the device's order of preference decides instead of times. A plan that is
 * like another takes over its layouts and kernels. */
#include "base/system/clock.h"
#include "base/size.h"
#include "plan/plan.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kernels that a plan wants, down to those that it should never need. Without timing, a slow kernel
 * that rounds as usual comes before a fast one that does not. */
typedef enum rank { WANTED, STANDS_IN, WANTS_TIMING, FALLBACK } rank;

typedef struct chooser {
    ech__plan *plan;
    ech__tuning *tuning;         /* may be NULL */
    const ech__choices *choices; /* to be made again; NULL: choose */
    size_t taken;                /* of the choices' kernels */
    int64_t allowed;             /* most bytes that timing one kernel may take */
    bool unknown;                /* a time was missing in a store that is not added to */
    rank worst;                  /* that is taken; more than WANTED where there is no better one */
    bool too_large; /* the last operator without a kernel is more than libraries take */
    /* [ninstrs] least and greatest of the parameters whose layouts its operands follow: few
     * operators have to be looked at for a parameter. */
    struct followed {
        ech_value least, greatest;
    } * followed;
} chooser;

/* ---- timing one candidate ---- */

typedef struct trial {
    ech__device *device;
    const ech__kernel_desc *desc;
    const ech__candidate *candidate;
    double cutoff_s; /* seconds: no need to be exact above this */
    double seconds;  /* result */
} trial;

enum { MAX_RUNS = 9, MIN_RUNS = 3 };
static const double ENOUGH_SECONDS = 0.1;
static const double CLOCK_STEP = 1e-9; /* no kernel takes less, whatever the clock says */

/* More than any machine has, and still small enough that a sum over the operands does not
 * overflow. */
static const int64_t TOO_MANY = INT64_MAX / 64;

static int64_t operand_bytes(const ech__kernel_desc *desc, int i)
{
    int64_t extent = 0, bytes = 0;
    if (!ech__layout_extent(&desc->operands[i].layout, &extent) ||
        !ech__mul(extent, ech__dtype_bytes(desc->operands[i].dtype), &bytes) || bytes > TOO_MANY)
        return TOO_MANY;
    return ech__round_up(bytes, ECH__ALIGN);
}

static int64_t trial_bytes(const ech__kernel_desc *desc, const ech__candidate *candidate)
{
    int64_t bytes = candidate->scratch_bytes > TOO_MANY
                        ? TOO_MANY
                        : ech__round_up(candidate->scratch_bytes, ECH__ALIGN);
    bytes += ech__round_up(candidate->kept_bytes, ECH__ALIGN);
    for (int i = 0; i < desc->nin + desc->nout; i++)
        bytes += operand_bytes(desc, i);
    return bytes;
}

/* Small numbers that are neither zero nor denormal, so that arithmetic takes its usual time. */
static ech_status fill(ech__device *device, const ech__operand *operand, char *memory)
{
    enum { SLICE = 1024 };
    float x[SLICE];
    uint16_t narrow[SLICE];
    int64_t extent = 0;
    ech__layout_extent(&operand->layout, &extent);
    const bool low = ech__dtype_is_low(operand->dtype);
    if (operand->dtype != ECH_F32 && !low)
        return ECH_OK; /* zeros are valid labels, and no other type is timed yet */
    const int64_t each = ech__dtype_bytes(operand->dtype);
    for (int64_t at = 0; at < extent; at += SLICE) {
        const int64_t count = extent - at < SLICE ? extent - at : SLICE;
        for (int64_t i = 0; i < count; i++)
            x[i] = (float)((uint32_t)((at + i) * 2654435761u) >> 16) * 0x1p-16f - 0.5f;
        if (low)
            ech__narrow(operand->dtype, count, x, narrow);
        ECH_TRY(device->memory->write(device, memory + at * each,
                                      low ? (const void *)narrow : (const void *)x, count * each));
    }
    return ECH_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ech_status time_runs(trial *t, ech__kernel *kernel)
{
    const ech__scalars scalars = {.lr = 1e-6, .loss_scale = 1, .grad_factor = 1, .step = 1};
    double runs[MAX_RUNS], sum = 0;
    int count = 0;
    for (int i = -1; i < MAX_RUNS && (i < MIN_RUNS || sum < ENOUGH_SECONDS); i++) {
        const int64_t start = ech__clock_wall();
        ECH_TRY(kernel->run(kernel, &scalars));
        ECH_TRY(t->device->memory->sync(t->device));
        const double seconds = ech__seconds(ech__clock_wall() - start);
        if (i >= 0) { /* the first run warms up */
            runs[count++] = seconds;
            sum += seconds;
        } else if (seconds > t->cutoff_s) {
            t->seconds = seconds;
            return ECH_OK;
        }
    }
    qsort(runs, (size_t)count, sizeof *runs, by_value);
    t->seconds = runs[count / 2];
    return ECH_OK;
}

static ech_status run_trial(void *arg)
{
    trial *t = arg;
    ech__device *device = t->device;
    const int64_t bytes = trial_bytes(t->desc, t->candidate);
    void *memory;
    ECH_TRY(device->ops->alloc(device, bytes, &memory));
    ech__binding binding = {.copy = NULL};
    ech_status status = ECH_OK;
    char *at = memory;
    for (int i = 0; i < t->desc->nin + t->desc->nout && status == ECH_OK; i++) {
        binding.operands[i] = at;
        status = fill(device, &t->desc->operands[i], at);
        at += operand_bytes(t->desc, i);
    }
    binding.kept = at;
    binding.scratch = at + ech__round_up(t->candidate->kept_bytes, ECH__ALIGN);
    ech__kernel *kernel;
    if (status == ECH_OK)
        status = device->ops->create(&(ech__kernel_args){device, t->desc, t->candidate, &binding},
                                     &kernel);
    if (status == ECH_OK) {
        status = kernel->prepare ? kernel->prepare(kernel) : ECH_OK;
        if (status == ECH_OK)
            status = time_runs(t, kernel);
        kernel->destroy(kernel);
    }
    device->ops->free(device, memory, bytes);
    return status;
}

/* The key of the work in the tuning store: "linear+relu f32 64x1024.ab 1024x1024.ba ... t1". */
static void describe(const ech__kernel_desc *desc, int threads, char *out, size_t bytes)
{
    size_t used =
        (size_t)snprintf(out, bytes, "%s%s%s", ech__op_name(desc->op),
                         desc->attrs.relu ? "+relu" : "", desc->attrs.bias ? "+bias" : "");
    if (desc->attrs.kernel && used < bytes)
        used += (size_t)snprintf(out + used, bytes - used, " k%lld s%lld p%lld",
                                 (long long)desc->attrs.kernel, (long long)desc->attrs.stride,
                                 (long long)desc->attrs.pad);
    for (int i = 0; i < desc->nin + desc->nout && used < bytes; i++) {
        const ech__operand *operand = &desc->operands[i];
        used += (size_t)snprintf(
            out + used, bytes - used, " %s%s%s", i == desc->nin ? "-> " : "",
            i && operand->dtype == desc->operands[0].dtype ? "" : ech__dtype_name(operand->dtype),
            i && operand->dtype == desc->operands[0].dtype ? "" : " ");
        for (int k = 0; k < operand->layout.shape.ndims && used < bytes; k++)
            used += (size_t)snprintf(out + used, bytes - used, "%s%lld", k ? "x" : "",
                                     (long long)operand->layout.shape.dims[k]);
        if (used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, ".%s",
                                     ech__layout_tag(&operand->layout).s);
    }
    if (used < bytes)
        snprintf(out + used, bytes - used, " t%d", threads);
}

/* only_known: nothing depends on the time, and it is 0 where the store has none. */
static ech_status time_candidate(chooser *ch, const ech__kernel_desc *desc,
                                 const ech__candidate *candidate, bool only_known, double best,
                                 double *seconds)
{
    ech__device *device = ch->plan->device;
    char work[512];
    describe(desc, device->threads, work, sizeof work);
    const char *machine = device->ops->fingerprint(device);
    *seconds = 0;
    if (ech__tuning_find(ch->tuning, machine, work, candidate->name, seconds) || only_known)
        return ECH_OK;
    ch->unknown |= ech__tuning_frozen(ch->tuning);
    if (ch->unknown)
        return ECH_OK;
    trial t = {.device = device, .desc = desc, .candidate = candidate, .cutoff_s = 2 * best};
    ECH_TRY(device->ops->call(device, run_trial, &t));
    *seconds = t.seconds > CLOCK_STEP ? t.seconds : CLOCK_STEP;
    ech__tuning_put(ch->tuning, machine, work, candidate->name, *seconds);
    return ECH_OK;
}

/* ---- choosing ---- */

/* Whether it would keep something, and the plan lives in the blocks of another one, which has what
 * its own kernels keep. */
static bool is_out(const chooser *ch, const ech__candidate *candidate)
{
    return ch->plan->like && candidate->kept_bytes;
}

/* A kernel that does not fit in memory in a trial may fit in a plan, where an output often reuses
 * the memory of an input. */
static bool can_be_timed(const chooser *ch, const ech__kernel_desc *desc,
                         const ech__candidate *candidate)
{
    return trial_bytes(desc, candidate) <= ch->allowed;
}

static rank rank_of(const chooser *ch, const ech__candidate *candidate)
{
    return candidate->is_fallback                 ? FALLBACK
           : candidate->only_timed && !ch->tuning ? WANTS_TIMING
           : candidate->stands_in                 ? STANDS_IN
                                                  : WANTED;
}

/* Moves the candidates of the best rank that there are to the front, and of these only those that
 * can be timed unless untimed is set; returns how many. */
static int select_usable(const chooser *ch, const ech__kernel_desc *desc, bool untimed,
                         ech__candidate *all, int count)
{
    int usable = 0;
    for (rank r = WANTED; r <= ch->worst && !usable; r++) {
        for (int i = 0; i < count; i++) {
            if (rank_of(ch, &all[i]) == r && !is_out(ch, &all[i]) &&
                (untimed || can_be_timed(ch, desc, &all[i])))
                all[usable++] = all[i];
        }
    }
    return usable;
}

static ech_status no_kernel(chooser *ch, const ech__kernel_desc *desc)
{
    const ech__operand *first = &desc->operands[0];
    char limit[80] = "";
    ch->too_large = false;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        int64_t elements;
        ch->too_large |= !ech__layout_extent(&desc->operands[i].layout, &elements) ||
                         elements > ECH__LIBRARY_ELEMENTS;
    }
    if (ch->too_large)
        snprintf(limit, sizeof limit, "; libraries take tensors of at most %lld elements",
                 (long long)ECH__LIBRARY_ELEMENTS);
    return ech__fail(ch->plan->ctx, ECH_E_UNSUPPORTED,
                     "the %s device has no kernel for %s of %s %s in the layout %s%s",
                     ch->plan->device->kind, ech__op_name(desc->op), ech__dtype_name(first->dtype),
                     ech__shape_format(&first->layout.shape).s, ech__layout_tag(&first->layout).s,
                     limit);
}

/* What a plan fails with after no_kernel: one that is too large for any kernel is over a limit. */
static ech_status without_kernel(const chooser *ch)
{
    return ch->too_large ? ECH_E_LIMIT : ECH_E_UNSUPPORTED;
}

/* The best kernel for an operator whose layouts are all fixed. *seconds is 0 if nothing was timed.
 * must_time: the choice depends on the time, so a kernel that cannot be timed is used only if there
 * is no other. */
static ech_status best_kernel(chooser *ch, const ech__kernel_desc *desc, bool must_time,
                              ech__candidate *best, double *seconds)
{
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    ECH_TRY(ch->plan->device->ops->candidates(ch->plan->device, desc, all, &count));
    int usable = select_usable(ch, desc, !ch->tuning, all, count);
    const bool timed = ch->tuning && usable;
    if (!usable && (!must_time || ch->worst > WANTED))
        usable = select_usable(ch, desc, true, all, count);
    *seconds = 0;
    if (!usable)
        return no_kernel(ch, desc);
    *best = all[0];
    if (!timed)
        return ECH_OK;
    if (usable == 1 && !must_time)
        return time_candidate(ch, desc, &all[0], true, 0, seconds);
    *seconds = INFINITY;
    for (int i = 0; i < usable; i++) {
        double time;
        ECH_TRY(time_candidate(ch, desc, &all[i], false, *seconds, &time));
        if (time < *seconds) {
            *seconds = time;
            *best = all[i];
        }
    }
    return ECH_OK;
}

/* The parameter whose layout a value follows, or the value itself. A copy has a layout of its
 * own. */
static ech_value leader_of(const ech_graph *graph, ech_value v)
{
    const ech__value *value = &graph->values[v];
    return value->of >= 0 && value->kind != ECH__VALUE_COPY && value->kind != ECH__VALUE_GROUP
               ? value->of
               : v;
}

static ech_value followed_by(const ech__plan *plan, const ech__instr *instr, int i)
{
    return leader_of(plan->graph, ech__node_operand(instr->node, i));
}

static ech_status find_followed(chooser *ch)
{
    ech__plan *plan = ch->plan;
    ch->followed = ech__arena_array(&plan->arena, plan->ninstrs, sizeof *ch->followed);
    if (!ch->followed)
        return ech__no_memory(plan->ctx, "a plan of %zu operators", plan->ninstrs);
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        struct followed *f = &ch->followed[n];
        *f = (struct followed){INT32_MAX, -1};
        for (int i = 0; i < instr->desc.nin + instr->desc.nout; i++) {
            const ech_value v = followed_by(plan, instr, i);
            if (!instr->desc.operands[i].free)
                continue;
            f->least = v < f->least ? v : f->least;
            f->greatest = v > f->greatest ? v : f->greatest;
        }
    }
    return ECH_OK;
}

/* The operand of instruction n whose layout follows a parameter's, or -1. */
static int operand_of(const chooser *ch, size_t n, ech_value param)
{
    const ech__instr *instr = &ch->plan->instrs[n];
    if (param < ch->followed[n].least || param > ch->followed[n].greatest)
        return -1;
    for (int i = 0; i < instr->desc.nin + instr->desc.nout; i++) {
        if (instr->desc.operands[i].free && followed_by(ch->plan, instr, i) == param)
            return i;
    }
    return -1;
}

/* A whole number, so that sums do not depend on the order of the operators: a device that has some
 * of the layers runs their operators in another order and must choose as one that has all. */
static double picoseconds(double seconds)
{
    return round(seconds * 1e12);
}

/* Sum of the users' best times with this layout; false where one of them cannot take it. */
static ech_status layout_cost(chooser *ch, ech_value param, const ech__layout *layout,
                              bool *possible, double *cost)
{
    *possible = true;
    *cost = 0;
    for (size_t n = 0; n < ch->plan->ninstrs && *possible; n++) {
        const ech__instr *instr = &ch->plan->instrs[n];
        const int i = operand_of(ch, n, param);
        if (i < 0)
            continue;
        ech__kernel_desc desc = instr->desc;
        desc.operands[i].layout = *layout;
        desc.operands[i].free = false;
        ech__candidate best;
        double seconds = 0;
        const ech_status status = best_kernel(ch, &desc, true, &best, &seconds);
        if (status == ECH_E_UNSUPPORTED)
            *possible = false;
        else if (status < 0)
            return status;
        *cost += picoseconds(seconds);
    }
    return ECH_OK;
}

/* Layouts for a parameter that its first user offers, in the device's order. */
static ech_status offered_layouts(chooser *ch, ech_value param, ech__layout *out, int *count)
{
    *count = 0;
    for (size_t n = 0; n < ch->plan->ninstrs; n++) {
        const ech__instr *instr = &ch->plan->instrs[n];
        const int i = operand_of(ch, n, param);
        if (i < 0)
            continue;
        ech__candidate all[ECH__MAX_CANDIDATES];
        int found;
        ECH_TRY(ch->plan->device->ops->candidates(ch->plan->device, &instr->desc, all, &found));
        for (int c = 0; c < found; c++) {
            bool known = false;
            for (int k = 0; k < *count; k++)
                known |= ech__layout_equal(&out[k], &all[c].layouts[i]);
            if (!known)
                out[(*count)++] = all[c].layouts[i];
        }
        return ECH_OK;
    }
    return ECH_OK;
}

/* What it costs to bring a copy into another type or layout than that of what it copies. */
static ech_status copy_cost(chooser *ch, ech_value copy, const ech__layout *layout, bool *possible,
                            double *cost)
{
    const ech__value *value = &ch->plan->graph->values[copy];
    const ech__layout *from = &ch->plan->places[value->of].layout;
    const ech_dtype from_type = ch->plan->graph->values[value->of].type.dtype;
    const bool casts = from_type != value->type.dtype;
    *cost = 0;
    if (!casts && ech__layout_equal(layout, from))
        return ECH_OK;
    const ech__kernel_desc desc = {
        .op = casts ? ECH__OP_CAST : ECH__OP_REORDER,
        .attrs = {.dtype = value->type.dtype},
        .nin = 1,
        .nout = 1,
        .operands = {{from_type, *from, false}, {value->type.dtype, *layout, false}}};
    ech__candidate best;
    double seconds = 0;
    const ech_status status = best_kernel(ch, &desc, true, &best, &seconds);
    *cost = picoseconds(seconds);
    *possible = status == ECH_OK;
    return status == ECH_E_UNSUPPORTED ? ECH_OK : status;
}

static ech_status try_layouts(chooser *ch, ech_value v, const ech__layout *layouts, int count,
                              int *chosen)
{
    double least = INFINITY;
    *chosen = -1;
    for (int k = 0; k < count && (*chosen < 0 || ch->tuning); k++) {
        bool possible;
        double cost, extra = 0;
        ECH_TRY(layout_cost(ch, v, &layouts[k], &possible, &cost));
        if (possible && ch->plan->graph->values[v].kind == ECH__VALUE_COPY)
            ECH_TRY(copy_cost(ch, v, &layouts[k], &possible, &extra));
        if (possible && (*chosen < 0 || cost + extra < least)) {
            *chosen = k;
            least = cost + extra;
        }
    }
    return ECH_OK;
}

/* Which of the layouts was chosen for the value before. */
static ech_status find_layout(chooser *ch, const ech__value *value, const ech__layout *layouts,
                              int count, int *chosen)
{
    const char *tag = ech__choices_layout(ch->choices, value->name);
    for (*chosen = 0; tag && *chosen < count; (*chosen)++) {
        if (!strcmp(ech__layout_tag(&layouts[*chosen]).s, tag))
            return ECH_OK;
    }
    return ech__fail(ch->plan->ctx, ECH_E_UNSUPPORTED,
                     "the %s device has no kernel here that takes '%s' in the layout %s",
                     ch->plan->device->kind, value->name, tag ? tag : "that was chosen");
}

static ech_status choose_layout(chooser *ch, ech_value v)
{
    ech__plan *plan = ch->plan;
    ech__layout layouts[ECH__MAX_CANDIDATES + 1];
    int count = 0, offered, chosen;
    const ech__value *value = &plan->graph->values[v];
    if (value->kind == ECH__VALUE_COPY) /* best of all, no copy, or one that is not reordered */
        layouts[count++] = plan->places[value->of].layout;
    ECH_TRY(offered_layouts(ch, v, layouts + count, &offered));
    count += offered;
    if (!offered)
        return ECH_OK; /* no operator prefers a layout: it stays row-major */
    if (ch->choices) {
        ECH_TRY(find_layout(ch, value, layouts, count, &chosen));
        plan->places[v].layout = layouts[chosen];
        return ECH_OK;
    }
    chosen = -1;
    for (ch->worst = WANTED; chosen < 0 && ch->worst <= FALLBACK; ch->worst++)
        ECH_TRY(try_layouts(ch, v, layouts, count, &chosen));
    ch->worst = WANTED;
    if (chosen < 0)
        return ech__fail_in(plan->ctx, without_kernel(ch),
                            "no layout of '%s' suits all operators that use it", value->name);
    plan->places[v].layout = layouts[chosen];
    return ECH_OK;
}

/* Writes the chosen layouts into the descriptions. */
static void set_layouts(ech__plan *plan, ech__instr *instr)
{
    for (int i = 0; i < instr->desc.nin + instr->desc.nout; i++) {
        const ech_value v = ech__node_operand(instr->node, i);
        plan->places[v].layout = plan->places[leader_of(plan->graph, v)].layout;
        instr->desc.operands[i].layout = plan->places[v].layout;
        instr->desc.operands[i].free = false;
    }
}

static void describe_operands(ech__plan *plan, ech__instr *instr)
{
    const ech__node *node = instr->node;
    instr->desc = (ech__kernel_desc){
        .op = node->op, .attrs = node->attrs, .nin = node->nin, .nout = node->nout};
    for (int i = 0; i < node->nin + node->nout; i++) {
        const ech_value v = ech__node_operand(node, i);
        const ech__value *value = &plan->graph->values[v];
        const bool weight = value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_GRADIENT ||
                            value->kind == ECH__VALUE_COPY || value->kind == ECH__VALUE_PART;
        plan->places[v].used = true;
        instr->desc.operands[i] = (ech__operand){
            .dtype = value->type.dtype,
            .layout = plan->places[v].layout,
            .free = weight && value->type.shape.ndims >= 2 && !ech__op_info(node->op)->flat &&
                    node->op != ECH__OP_REORDER && node->op != ECH__OP_CAST};
    }
}

/* Takes the kernel of this name, where it is offered. */
static ech_status take_named(chooser *ch, ech__instr *instr, const char *name, bool *found)
{
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    *found = false;
    ECH_TRY(ch->plan->device->ops->candidates(ch->plan->device, &instr->desc, all, &count));
    for (int i = 0; i < count && !*found; i++) {
        *found = !strcmp(all[i].name, name);
        if (*found)
            instr->choice = all[i];
    }
    return ECH_OK;
}

/* The kernel that the instruction had before. */
static ech_status find_kernel(chooser *ch, ech__instr *instr)
{
    const size_t n = ch->taken++;
    const ech__kernel_choice *choice = n < ch->choices->nkernels ? &ch->choices->kernels[n] : NULL;
    const char *op = ech__op_name(instr->node->op);
    const char *name = instr->node->name ? instr->node->name : "";
    if (!choice || strcmp(choice->op, op) || strcmp(choice->name, name))
        return ech__fail(ch->plan->ctx, ECH_E_UNSUPPORTED,
                         "operator %zu is %s '%s', for which nothing was chosen", n, op, name);
    if (ech__plan_is_idle(ch->plan, instr))
        return ECH_OK;
    bool found;
    ECH_TRY(take_named(ch, instr, choice->kernel, &found));
    instr->seconds = choice->seconds;
    if (found)
        return ECH_OK;
    return ech__fail(ch->plan->ctx, ECH_E_UNSUPPORTED,
                     "the %s device has no kernel '%s' here for %s '%s'", ch->plan->device->kind,
                     choice->kernel, op, name);
}

/* The kernel of the same operator in the plan that this one is like, if it is offered here too. So
 * the result of a step depends only on the first plan, and not on timings that one rank takes
 * later. */
static ech_status take_choice(chooser *ch, ech__instr *instr, bool *found)
{
    const ech__instr *other = ech__plan_like_instr(ch->plan, instr);
    *found = false;
    if (!other)
        return ECH_OK;
    instr->seconds = 0;
    return take_named(ch, instr, other->choice.name, found);
}

/* An image that is an input, or the cast of one. */
static bool is_given(const ech__plan *plan, ech_value v)
{
    if (plan->graph->values[v].type.shape.ndims != 4)
        return false;
    if (plan->graph->values[v].kind == ECH__VALUE_INPUT)
        return true;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        if (node->op == ECH__OP_CAST && node->out[0] == v)
            return plan->graph->values[node->in[0]].kind == ECH__VALUE_INPUT;
    }
    return false;
}

/* Input images, and their casts, are row-major where all their users can take that, as first
 * convolutions can; else they are laid out like activations when they are written. */
static ech_status choose_inputs(chooser *ch)
{
    ech__plan *plan = ch->plan;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        for (int i = 0; i < instr->desc.nin; i++) {
            const ech_value v = instr->node->in[i];
            ech__place *place = &plan->places[v];
            ech__candidate all[ECH__MAX_CANDIDATES];
            int count;
            if (!ech__layout_is_plain(&place->layout) || !is_given(plan, v))
                continue;
            ECH_TRY(plan->device->ops->candidates(plan->device, &instr->desc, all, &count));
            if (!count)
                place->layout =
                    plan->device->ops->activation_layout(plan->device, &place->layout.shape);
        }
    }
    return ECH_OK;
}

static ech_status choose_all(void *arg)
{
    chooser *ch = arg;
    ech__plan *plan = ch->plan;
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__shape shape = ech__shape_bind(&plan->graph->values[v].type.shape, plan->batch);
        int64_t elems;
        if (!ech__shape_elems(&shape, &elems))
            return ech__fail(plan->ctx, ECH_E_LIMIT, "'%s' of shape %s has too many elements",
                             plan->graph->values[v].name, ech__shape_format(&shape).s);
        if (plan->graph->values[v].kind == ECH__VALUE_INPUT && plan->graph->values[v].kept)
            plan->places[v].used = true;
        plan->places[v].layout =
            plan->graph->values[v].kind == ECH__VALUE_ACTIVATION && !is_given(plan, (ech_value)v)
                ? plan->device->ops->activation_layout(plan->device, &shape)
                : ech__layout_plain(&shape);
    }
    for (size_t n = 0; n < plan->ninstrs; n++)
        describe_operands(plan, &plan->instrs[n]);
    ECH_TRY(choose_inputs(ch));
    for (size_t n = 0; n < plan->ninstrs; n++) /* again, with the layouts of the inputs */
        describe_operands(plan, &plan->instrs[n]);
    ECH_TRY(find_followed(ch));
    for (int copies = 0; copies < 2; copies++) { /* a copy looks at the layout of its parameter */
        const ech__value_kind kind = copies ? ECH__VALUE_COPY : ECH__VALUE_PARAM;
        for (size_t v = 0; v < plan->graph->nvalues; v++) {
            if (plan->graph->values[v].kind != kind || !plan->places[v].used)
                continue;
            const ech__place *like = ech__plan_like(plan, (ech_value)v);
            if (like)
                plan->places[v].layout = like->layout;
            else
                ECH_TRY(choose_layout(ch, (ech_value)v));
        }
    }
    /* What follows a parameter does so also where only its group is an operand. */
    for (size_t v = 0; v < plan->graph->nvalues; v++)
        plan->places[v].layout = plan->places[leader_of(plan->graph, (ech_value)v)].layout;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        ech__instr *instr = &plan->instrs[n];
        set_layouts(plan, instr);
        if (ech__op_info(instr->node->op)->exchange) {
            snprintf(instr->choice.name, sizeof instr->choice.name, "exchange");
            continue;
        }
        if (ch->choices && instr->node->op != ECH__OP_DELAY) {
            ECH_TRY(find_kernel(ch, instr));
            continue;
        }
        bool found;
        if (ech__plan_is_idle(plan, instr))
            continue;
        ECH_TRY(take_choice(ch, instr, &found));
        if (found)
            continue;
        ech_status status = ECH_E_UNSUPPORTED;
        for (ch->worst = WANTED; status == ECH_E_UNSUPPORTED && ch->worst <= FALLBACK; ch->worst++)
            status = best_kernel(ch, &instr->desc, false, &instr->choice, &instr->seconds);
        ch->worst = WANTED;
        ECH_TRY(status == ECH_E_UNSUPPORTED ? without_kernel(ch) : status);
    }
    return ECH_OK;
}

ech_status ech__plan_choose(ech__plan *plan, ech__tuning *tuning, int64_t allowed)
{
    chooser ch = {.plan = plan, .tuning = tuning, .allowed = allowed};
    /* All of it on the worker: the many questions to the device then need no hand-over each. */
    const ech_status status = plan->device->ops->call(plan->device, choose_all, &ch);
    return status == ECH_OK && ch.unknown ? ech__plan_choose(plan, NULL, INT64_MAX) : status;
}

ech_status ech__plan_choose_again(ech__plan *plan, const ech__choices *choices)
{
    chooser ch = {.plan = plan, .choices = choices};
    return plan->device->ops->call(plan->device, choose_all, &ch);
}
