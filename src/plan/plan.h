/* A plan: a graph made concrete for a batch size and a device. It knows the kernel and the layout
 * chosen for each operator, the place of every value, and so the memory that a step needs, before
 * any of it is allocated.
 *
 *     ech__plan *plan;
 *     ECH_TRY(ech__plan_create(graph, device, &(ech__plan_options){.batch = 64}, &plan));
 *     plan->total_bytes                                what the device will allocate, to the byte
 *     ech__exec *exec;
 *     ECH_TRY(ech__exec_create(plan, NULL, &exec));    allocates, prepares the kernels
 *     ECH_TRY(ech__exec_run(exec, phases, &scalars, &times));  runs them; allocates nothing
 *     ech__exec_destroy(exec);  ech__plan_destroy(plan);
 *
 * Graph, device and tuning store are borrowed and must outlive the plan, and the plan the exec.
 */
#pragma once

#include "graph/graph.h"
#include "plan/choices.h"
#include "plan/exchange.h"
#include "plan/kernel.h"
#include "plan/tuning.h"

enum { ECH__ALIGN = 64 };

typedef struct ech__plan_options {
    int64_t batch;
    /* Timings of candidates, looked up and added to. NULL: the device's preferred kernels,
     * untimed. */
    ech__tuning *tuning;
    /* A plan of the same model whose parameters this one will use: it takes over their layouts, and
     * kernels where they are possible. NULL: none. */
    const struct ech__plan *like;
    /* Kernels and layouts of an earlier plan of this graph, to be taken again; nothing is timed
     * then. NULL: none. */
    const ech__choices *choices;
    /* The other ranks; NULL where the graph has no operators of theirs. */
    ech__exchange *exchange;
    ech__virtual_clock *clock; /* to run by, borrowed; NULL: the monotonic clock */
    /* The same training in other roles, whose execs will have this plan's as their owner, at the
     * same batch: its memory is enough for each of them. */
    ech_graph *const *variants;
    int nvariants;
} ech__plan_options;

/* Where a value lives: its kind's block, and the offset in it. */
typedef struct ech__place {
    ech__memory_kind kind;
    int64_t offset, bytes;
    ech__layout layout;
    bool used; /* by any operator */
} ech__place;

typedef struct ech__instr {
    const ech__node *node;
    ech__kernel_desc desc; /* with the layouts as chosen */
    ech__candidate choice;
    double seconds;         /* its time when it was tuned; 0: not timed */
    int64_t scratch_offset; /* in the block of the activations */
    int64_t kept_offset;    /* in the block of the copies */
} ech__instr;

struct ech__plan {
    ech_ctx *ctx;
    const ech_graph *graph;
    ech__device *device;
    const struct ech__plan *like; /* may be NULL */
    ech__exchange *exchange;      /* may be NULL */
    ech__virtual_clock *clock;    /* may be NULL */
    int64_t batch;
    ech__arena arena;
    ech__place *places; /* [graph->nvalues] */
    ech__instr *instrs; /* [graph->nnodes], in order of execution */
    size_t ninstrs;
    /* Activations and workspace share one block, allocated by lifetime: the activations' share is
     * what they would need alone, the rest is workspace. */
    int64_t memory[ECH__MEMORY_COUNT];
    int64_t total_bytes;
};

/* Fails with need and limit by kind, and the largest batch that fits, where the device has too
 * little memory; and with ECH_E_UNSUPPORTED where the device cannot do what options->choices ask
 * for. */
ech_status ech__plan_create(const ech_graph *graph, ech__device *device,
                            const ech__plan_options *options, ech__plan **out);
void ech__plan_destroy(ech__plan *plan);

/* The largest batch whose plan takes at most limit bytes; 0 when not even one sample fits. */
ech_status ech__plan_largest_batch(const ech_graph *graph, ech__device *device, int64_t limit,
                                   int64_t *out);

/* Bytes of the block that really is allocated for a kind (none for the workspace). */
int64_t ech__plan_block_bytes(const ech__plan *plan, ech__memory_kind kind);

/* Whether an exec of this plan has its inputs where its owner has them: they have the same layout,
 * or the batch size differs, so that the program writes them anyway. */
bool ech__plan_shares_inputs(const ech__plan *plan, const ech__plan *owner);

/* Bytes of its owner's block of activations that an exec of this plan uses. */
int64_t ech__plan_variant_bytes(const ech__plan *plan, const ech__plan *owner);

/* The place in the plan that this one is like of the value with the same name, or NULL. */
const ech__place *ech__plan_like(const ech__plan *plan, ech_value v);

/* Whether v is a copy that has the type and layout of what it copies: then it shares the memory of
 * the original and is not refreshed. */
bool ech__plan_needs_no_copy(const ech__plan *plan, ech_value v);

/* Whether an instruction would refresh such a copy: it has no kernel and takes no time. */
bool ech__plan_is_idle(const ech__plan *plan, const ech__instr *instr);

/* The instruction of the plan that this one is like for the same operator, or NULL. */
const ech__instr *ech__plan_like_instr(const ech__plan *plan, const ech__instr *instr);

/* ---- parts, one file each ---- */

/* Fills in instrs: kernels and layouts (choose.c). allowed: most scratch bytes of a kernel. */
ech_status ech__plan_choose(ech__plan *plan, ech__tuning *tuning, int64_t allowed);
/* The same by choices that were made before. */
ech_status ech__plan_choose_again(ech__plan *plan, const ech__choices *choices);
/* Fills in places and memory from the chosen layouts (memory.c). */
ech_status ech__plan_memory(ech__plan *plan);

/* ---- execution (exec.c) ---- */

typedef struct ech__exec ech__exec;

/* With an owner, which must outlive it, the exec uses the owner's parameters, gradients and
 * optimizer state, and the owner's activations' memory while the owner is not running, where that
 * is enough; then its inputs are the owner's too where they have the same layout. owner may be
 * NULL. */
ech_status ech__exec_create(ech__plan *plan, ech__exec *owner, ech__exec **out);

/* The same with memory that the caller has: for several execs that are alive at the same time, such
 * as those of micro-batches. Parameters, gradients and optimizer state are the owner's where there
 * is one, and nothing else is. */
typedef struct ech__exec_memory {
    ech__exec *owner;  /* NULL: none */
    void *inputs;      /* at least the plan's block of them; NULL: an own block */
    void *activations; /* likewise */
} ech__exec_memory;
ech_status ech__exec_create_in(ech__plan *plan, const ech__exec_memory *memory, ech__exec **out);
void ech__exec_destroy(ech__exec *exec);

/* Lets kernels compute what they keep of the weights. To be called when weights have been written,
 * before the next run, where the graph has operators for weights that nothing changes. */
ech_status ech__exec_prepare(ech__exec *exec);

/* Where the time of a run went (plan/account.h); what is none of these is other time. */
typedef struct ech__phase_times {
    int64_t ns[ECH__PHASE_COUNT]; /* computing, by the phase of the operator; EXCHANGE: none */
    int64_t exposed_ns, wait_ns;
    int64_t hidden_ns; /* under computing */
} ech__phase_times;

#define ECH__PHASE_BIT(id) (1u << ECH__PHASE_##id)

/* Runs the operators whose phase has its bit in phases. times, which may be NULL, is added to. */
ech_status ech__exec_run(ech__exec *exec, unsigned phases, const ech__scalars *scalars,
                         ech__phase_times *times);
/* What first was not finite in a forward pass that gave a loss which is not. */
typedef struct ech__nonfinite {
    const ech_graph *graph;
    const ech__node *node; /* in the order of the plan; NULL: nothing was found */
    ech_value value;       /* that it read or made */
    bool read; /* a parameter, an input or what another device sent, as the operator found it */
} ech__nonfinite;

/* Runs the operators of the forward pass once more, one by one, and looks at what each reads and
 * makes. A run does so by itself before anything is updated, when the graph's loss comes out not
 * finite; the step goes on as if nothing had happened. For other execs it may be called on their
 * device's worker between the forward and the backward pass. Where ranks exchange in the forward
 * pass (synchronised batch norms) only parameters and inputs are looked at. */
ech_status ech__exec_find_nonfinite(ech__exec *exec);
/* Of the last forward pass. */
ech__nonfinite ech__exec_nonfinite(const ech__exec *exec);

/* Whether a value is finite, as it is in memory now. */
ech_status ech__exec_is_finite(const ech__exec *exec, ech_value value, bool *out);

/* How often this exec has begun to change parameters, over all its runs: by an optimizer or by an
 * exchange that ends in one. */
int64_t ech__exec_updates(const ech__exec *exec);

/* Elements of a value, from canonical position first on, in row-major order without padding. */
ech_status ech__exec_write(const ech__exec *exec, ech_value value, int64_t first, int64_t count,
                           const void *canonical);
ech_status ech__exec_read(const ech__exec *exec, ech_value value, int64_t first, int64_t count,
                          void *canonical);
/* A value of one element, of type f32 or f64. */
ech_status ech__exec_scalar(const ech__exec *exec, ech_value value, double *out);

/* The memory of a value, on its device: see ech__memory_ops. For activations it holds the value
 * only until another value reuses the memory. */
void *ech__exec_address(const ech__exec *exec, ech_value value);
/* A block, as a whole; NULL where there is none. */
void *ech__exec_block(const ech__exec *exec, ech__memory_kind kind, int64_t *bytes);
/* [plan->ninstrs] */
const ech__span *ech__exec_spans(const ech__exec *exec);
