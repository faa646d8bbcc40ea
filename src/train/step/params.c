#include "train/step/params.h"
#include "base/file/sha256.h"
#include "base/format.h"
#include "base/rng.h"
#include "plan/transfer.h"
#include "tensor/safetensors.h"
#include "train/strategy/strategy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Large parameters pass through a buffer of this size, so that no second copy of them is ever
 * made. */
enum { CHUNK = 1 << 20 };

/* One parameter or input in memory. */
typedef struct tensor {
    const ech__value *value;
    const ech__layout *layout;
    ech__device *device;
    void *memory; /* of the device; NULL: in another process, on the device `owner` */
    int64_t elems, elem_bytes;
    int owner;
} tensor;

static tensor tensor_in(const ech__plan *plan, const ech__exec *exec, ech_value v)
{
    const ech__value *value = &plan->graph->values[v];
    tensor t = {.value = value,
                .layout = &plan->places[v].layout,
                .device = plan->device,
                .memory = ech__exec_address(exec, v),
                .elem_bytes = ech__dtype_bytes(value->type.dtype)};
    ech__shape_elems(&t.layout->shape, &t.elems);
    return t;
}

/* The device that a parameter or buffer of a placed graph is on. */
static int device_of(const ech_graph *graph, ech_value v)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] == v)
                return graph->nodes[n].device;
        }
    }
    return 0;
}

/* A parameter, buffer or state of the trainer's graph, wherever it is. */
static tensor tensor_of(const ech_trainer *trainer, ech_value v)
{
    const ech__plan *plan;
    const ech__exec *exec;
    ech_value there;
    const ech__value *value = &trainer->graph->values[v];
    if (ech__trainer_home(trainer, v, &plan, &exec, &there)) {
        tensor t = tensor_in(plan, exec, there);
        t.owner = ech__trainer_rank(trainer);
        return t;
    }
    tensor t = {.value = value, .elem_bytes = ech__dtype_bytes(value->type.dtype)};
    ech__shape_elems(&value->type.shape, &t.elems);
    t.owner = device_of(trainer->graph, value->of >= 0 ? value->of : v);
    return t;
}

static ech_status get(const tensor *t, int64_t first, int64_t count, void *data)
{
    return ech__device_gather(t->device, t->layout, t->elem_bytes, first, count, t->memory, data);
}

static ech_status put(const tensor *t, int64_t first, int64_t count, const void *data)
{
    return ech__device_scatter(t->device, t->layout, t->elem_bytes, first, count, data, t->memory);
}

/* The same from the first element on. The padding becomes zero: a step that was not finite may have
 * left NaN there. */
static ech_status put_anew(const tensor *t, int64_t first, int64_t count, const void *data)
{
    int64_t extent = 0;
    if (first == 0 && ech__layout_extent(t->layout, &extent) && extent > t->elems)
        ECH_TRY(t->device->memory->fill(t->device, t->memory, 0, extent * t->elem_bytes));
    return put(t, first, count, data);
}

/* What one file holds: PyTorch's state_dict of the model, or of the optimizer. */
typedef bool (*part_fn)(const ech_graph *graph, size_t v);

static bool is_state(const ech_graph *graph, size_t v)
{
    return graph->values[v].kind == ECH__VALUE_STATE;
}

static bool is_param(const ech_graph *graph, size_t v)
{
    return graph->values[v].kind == ECH__VALUE_PARAM;
}

static bool is_saved(const ech_graph *graph, size_t v)
{
    return is_param(graph, v) || graph->values[v].kind == ECH__VALUE_BUFFER;
}

/* Calls each with chunks of a tensor one behind the other; first counts elements from its start. */
typedef ech_status (*chunk_fn)(void *user, const tensor *t, int64_t first, int64_t count,
                               void *chunk);

static ech_status by_chunks(ech_trainer *trainer, const tensor *t, chunk_fn each, void *user)
{
    void *chunk = ech__new(trainer->ctx, CHUNK);
    if (!chunk)
        return ech__no_memory(trainer->ctx, "a buffer of %d bytes", CHUNK);
    const int64_t most = CHUNK / t->elem_bytes;
    ech_status status = ECH_OK;
    for (int64_t first = 0; first < t->elems && status == ECH_OK; first += most) {
        const int64_t count = t->elems - first < most ? t->elems - first : most;
        status = each(user, t, first, count, chunk);
    }
    ech__delete(trainer->ctx, chunk, CHUNK);
    return status;
}

/* All tensors of a part, in the order of their definition. */
static ech_status for_part(ech_trainer *trainer, part_fn part, chunk_fn each, void *user)
{
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        if (!part(trainer->graph, v))
            continue;
        const tensor t = tensor_of(trainer, (ech_value)v);
        ECH_TRY(by_chunks(trainer, &t, each, user));
    }
    return ECH_OK;
}

ech_status ech__trainer_nonfinite(const ech_trainer *trainer, const ech__value **out)
{
    *out = NULL;
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        const ech__value *value = &trainer->graph->values[v];
        const ech__plan *plan;
        const ech__exec *exec;
        ech_value there;
        bool finite;
        if ((!is_saved(trainer->graph, v) && !is_state(trainer->graph, v)) ||
            !ech__trainer_home(trainer, (ech_value)v, &plan, &exec, &there))
            continue;
        ECH_TRY(ech__exec_is_finite(exec, there, &finite));
        if (finite)
            continue;
        *out = value;
        break;
    }
    return ECH_OK;
}

int64_t ech__trainer_param_count(const ech_trainer *trainer)
{
    int64_t sum = 0;
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        int64_t elems = 0;
        if (is_param(trainer->graph, v))
            ech__shape_elems(&trainer->graph->values[v].type.shape, &elems);
        sum += elems;
    }
    return sum;
}

/* ---- initial values ---- */

static ech_status fill_chunk(void *user, const tensor *t, int64_t first, int64_t count, void *chunk)
{
    const ech_trainer *trainer = user;
    const ech__rng_range range = {.seed = trainer->seed,
                                  .stream = ech__rng_stream(t->value->name),
                                  .first = (uint64_t)first,
                                  .low = (float)t->value->init.low,
                                  .high = (float)t->value->init.high};
    if (!t->memory || (range.low == 0 && range.high == 0)) /* the memory came zeroed */
        return ECH_OK;
    ech__rng_fill(&range, chunk, count);
    return put(t, first, count, chunk);
}

ech_status ech__params_init(ech_trainer *trainer)
{
    return for_part(trainer, is_saved, fill_chunk, trainer);
}

/* ---- the program's own data ---- */

/* Of several devices, which cut their inputs themselves. */
static bool is_cut_input(const ech_trainer *trainer, const char *name)
{
    const ech_value v = trainer->ops->write ? ech__graph_find(trainer->graph, name) : -1;
    return v >= 0 && trainer->graph->values[v].kind == ECH__VALUE_INPUT;
}

static ech_status find(ech_trainer *trainer, const ech__variant *variant, const char *name,
                       size_t bytes, tensor *out)
{
    const ech_graph *graph = trainer->ops->write ? trainer->graph : variant->plan->graph;
    ech_value v = ech__graph_find(graph, name);
    bool known =
        v >= 0 && (graph->values[v].kind == ECH__VALUE_INPUT || is_saved(graph, (size_t)v));
    /* Parameters are the trainer's own: a variant may know none of them. */
    const bool input = known && graph->values[v].kind == ECH__VALUE_INPUT;
    const ech__plan *plan = variant->plan;
    const ech__exec *exec = variant->exec;
    if (known)
        known = input ? plan->places[v].used : ech__trainer_home(trainer, v, &plan, &exec, &v);
    if (!known)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "'%s' is not an input or parameter that the loss depends on", name);
    *out = tensor_in(plan, exec, v);
    if (bytes != (size_t)(out->elems * out->elem_bytes))
        return ech__fail(trainer->ctx, ECH_E_INVALID, "'%s' of shape %s takes %lld bytes, not %zu",
                         name, ech__shape_format(&out->layout->shape).s,
                         (long long)(out->elems * out->elem_bytes), bytes);
    if (out->value->kind == ECH__VALUE_INPUT)
        return ECH_OK;
    trainer->stale = true; /* right for a read too, only slower */
    return ech__trainer_check(trainer);
}

ech_status ech__variant_write(ech_trainer *trainer, const ech__variant *variant, const char *name,
                              const void *data, size_t bytes)
{
    tensor t;
    if (is_cut_input(trainer, name))
        return trainer->ops->write(trainer, variant, &(ech__input){name, (void *)data, bytes});
    ECH_TRY(find(trainer, variant, name, bytes, &t));
    return put_anew(&t, 0, t.elems, data);
}

ech_status ech_trainer_write(ech_trainer *trainer, const char *name, const void *data, size_t bytes)
{
    return ech__variant_write(trainer, &trainer->variants[0], name, data, bytes);
}

ech_status ech_trainer_read(ech_trainer *trainer, const char *name, void *data, size_t bytes)
{
    tensor t;
    if (is_cut_input(trainer, name))
        return trainer->ops->read(trainer, &trainer->variants[0], &(ech__input){name, data, bytes});
    ECH_TRY(find(trainer, &trainer->variants[0], name, bytes, &t));
    return get(&t, 0, t.elems, data);
}

static ech_status move_chunk(void *user, const tensor *t, int64_t first, int64_t count, void *chunk)
{
    ECH_TRY(get(t, first, count, chunk));
    return put(user, first, count, chunk);
}

ech_status ech__variant_take_inputs(ech_trainer *trainer, const ech__variant *from,
                                    const ech__variant *to)
{
    if (trainer->ops->take_inputs)
        return trainer->ops->take_inputs(trainer, from, to);
    for (size_t v = 0; v < to->plan->graph->nvalues; v++) {
        if (to->plan->graph->values[v].kind != ECH__VALUE_INPUT || !to->plan->places[v].used)
            continue;
        const tensor src = tensor_in(from->plan, from->exec, (ech_value)v);
        tensor dst = tensor_in(to->plan, to->exec, (ech_value)v);
        if (dst.memory != src.memory) /* else they share it */
            ECH_TRY(by_chunks(trainer, &src, move_chunk, &dst));
    }
    return ECH_OK;
}

/* ---- hash ---- */

/* Canonical data on its way out. Where devices are in several processes all of them take part, and
 * all get it. */
typedef struct outlet {
    ech_trainer *trainer;
    ech__sha256 *sha;                /* NULL: none */
    ech__safetensors_writer *writer; /* NULL: none */
} outlet;

static ech_status put_chunk(void *user, const tensor *t, int64_t first, int64_t count, void *chunk)
{
    const outlet *out = user;
    ech__comm *group = ech__trainer_model_group(out->trainer);
    const int64_t bytes = count * t->elem_bytes;
    if (t->memory)
        ECH_TRY(get(t, first, count, chunk));
    if (group)
        ECH_TRY(ech__comm_broadcast(group, chunk, bytes, t->owner));
    if (out->sha)
        ech__sha256_update(out->sha, chunk, (size_t)bytes);
    return out->writer ? ech__safetensors_writer_write(out->writer, chunk, (size_t)bytes) : ECH_OK;
}

ech_status ech__trainer_hash(ech_trainer *trainer, char out[65])
{
    ech__sha256 sha;
    ECH_TRY(ech__trainer_check(trainer));
    ech__sha256_init(&sha);
    ECH_TRY(for_part(trainer, is_param, put_chunk, &(outlet){.trainer = trainer, .sha = &sha}));
    const ech__sha256_text text = ech__sha256_final(&sha);
    memcpy(out, text.s, sizeof text.s);
    return ECH_OK;
}

/* ---- files ---- */

typedef struct tensor_name {
    char s[256];
} tensor_name;

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* The model's name for a tensor of a file: without DistributedDataParallel's "module.", and with
 * torchvision's "downsample" and "fc" as ours. */
static tensor_name model_name(const ech_graph *graph, const char *name)
{
    tensor_name out;
    if (!strncmp(name, "module.", 7))
        name += 7;
    snprintf(out.s, sizeof out.s, "%s", name);
    const char *down = strstr(name, ".downsample.");
    if (ech__graph_find(graph, out.s) >= 0)
        return out;
    if (down)
        snprintf(out.s, sizeof out.s, "%.*s.shortcut.%s", (int)(down - name), name, down + 12);
    else if (!strncmp(name, "fc.", 3))
        snprintf(out.s, sizeof out.s, "linear.%s", name + 3);
    return out;
}

static const ech__safetensor *find_tensor(const ech_graph *graph, const ech__safetensors *file,
                                          const char *name)
{
    for (size_t i = 0; i < ech__safetensors_count(file); i++) {
        const ech__safetensor *t = ech__safetensors_at(file, i);
        if (!strcmp(model_name(graph, t->name).s, name))
            return t;
    }
    return NULL;
}

static ech_status check_file(const ech_graph *graph, part_fn part, const char *path,
                             const ech__safetensors *file)
{
    const char *whose = part == is_state ? "optimizer" : "model";
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *value = &graph->values[v];
        if (!part(graph, v))
            continue;
        const ech__safetensor *t = find_tensor(graph, file, value->name);
        if (!t)
            return ech__fail(graph->ctx, ECH_E_INVALID,
                             "%s: there is no tensor '%s', which the %s needs", path, value->name,
                             whose);
        if (t->dtype != value->type.dtype || !ech__shape_equal(&t->shape, &value->type.shape))
            return ech__fail(
                graph->ctx, ECH_E_INVALID, "%s: tensor '%s' is %s %s; the %s needs %s %s", path,
                t->name, ech__dtype_name(t->dtype), ech__shape_format(&t->shape).s, whose,
                ech__dtype_name(value->type.dtype), ech__shape_format(&value->type.shape).s);
    }
    for (size_t i = 0; i < ech__safetensors_count(file); i++) {
        const char *name = ech__safetensors_at(file, i)->name;
        const ech_value v = ech__graph_find(graph, model_name(graph, name).s);
        if (ends_with(name, ".num_batches_tracked"))
            continue; /* PyTorch's count, which a fixed momentum does not need */
        if (v < 0 || !part(graph, (size_t)v))
            return ech__fail(graph->ctx, ECH_E_INVALID, "%s: the %s has no %s '%s'", path, whose,
                             part == is_state ? "state" : "parameter", name);
    }
    return ECH_OK;
}

ech_status ech__params_check(const ech_graph *graph, const char *path)
{
    ech__safetensors *file;
    ECH_TRY(ech__safetensors_open(graph->ctx, path, &file));
    const ech_status status = check_file(graph, is_saved, path, file);
    ech__safetensors_close(file);
    return status;
}

typedef struct reading {
    const ech_graph *graph;
    const ech__safetensors *file;
} reading;

static ech_status read_chunk(const reading *r, const tensor *t, int64_t first, int64_t count,
                             void *chunk)
{
    return ech__safetensors_read(r->file, find_tensor(r->graph, r->file, t->value->name),
                                 first * t->elem_bytes, chunk, (size_t)(count * t->elem_bytes));
}

static ech_status load_chunk(void *user, const tensor *t, int64_t first, int64_t count, void *chunk)
{
    if (!t->memory)
        return ECH_OK;
    ECH_TRY(read_chunk(user, t, first, count, chunk));
    return put_anew(t, first, count, chunk);
}

static ech_status load_part(ech_trainer *trainer, part_fn part, const char *path)
{
    ech__safetensors *file;
    ECH_TRY(ech__safetensors_open(trainer->ctx, path, &file));
    ech_status status = check_file(trainer->graph, part, path, file);
    if (status == ECH_OK)
        status = for_part(trainer, part, load_chunk, &(reading){trainer->graph, file});
    ech__safetensors_close(file);
    return status;
}

ech_status ech_trainer_load(ech_trainer *trainer, const char *path)
{
    trainer->stale = true;
    return load_part(trainer, is_saved, path);
}

ech_status ech__optimizer_load(ech_trainer *trainer, const char *path)
{
    return load_part(trainer, is_state, path);
}

static ech_status save_part(ech_trainer *trainer, part_fn part, const char *path)
{
    ECH_TRY(ech__trainer_check(trainer));
    const size_t nvalues = trainer->graph->nvalues, bytes = nvalues * sizeof(ech__safetensor);
    ech__safetensor *tensors = ech__new(trainer->ctx, bytes);
    if (!tensors)
        return ech__no_memory(trainer->ctx, "a list of %zu tensors", nvalues);
    ech__safetensors_header header = {.tensors = tensors};
    for (size_t v = 0; v < nvalues; v++) {
        const ech__value *value = &trainer->graph->values[v];
        if (part(trainer->graph, v))
            tensors[header.count++] = (ech__safetensor){
                .name = value->name, .dtype = value->type.dtype, .shape = value->type.shape};
    }
    ech__safetensors_writer *writer = NULL;
    ech_status status = ECH_OK;
    const ech__comm *group = ech__trainer_model_group(trainer);
    if (!group || group->rank == 0) /* the others only send what they have */
        status = ech__safetensors_writer_create(trainer->ctx, path, &header, &writer);
    ech__delete(trainer->ctx, tensors, bytes);
    if (status == ECH_OK)
        status =
            for_part(trainer, part, put_chunk, &(outlet){.trainer = trainer, .writer = writer});
    if (status == ECH_OK && writer)
        status = ech__safetensors_writer_commit(writer);
    if (writer)
        ech__safetensors_writer_destroy(writer);
    return status;
}

ech_status ech_trainer_save(ech_trainer *trainer, const char *path)
{
    return save_part(trainer, is_saved, path);
}

ech_status ech__optimizer_save(ech_trainer *trainer, const char *path)
{
    return save_part(trainer, is_state, path);
}

/* ---- distance ---- */

typedef struct comparison {
    ech_trainer *trainer;
    reading file;
    float *theirs; /* a chunk of the file's */
    double square, theirs_square;
} comparison;

static ech_status compare_chunk(void *user, const tensor *t, int64_t first, int64_t count,
                                void *chunk)
{
    comparison *c = user;
    const float *ours = chunk;
    ECH_TRY(put_chunk(&(outlet){.trainer = c->trainer}, t, first, count, chunk));
    ECH_TRY(read_chunk(&c->file, t, first, count, c->theirs));
    for (int64_t i = 0; i < count; i++) {
        const double theirs = (double)c->theirs[i], gap = (double)ours[i] - theirs;
        c->square += gap * gap;
        c->theirs_square += theirs * theirs;
    }
    return ECH_OK;
}

ech_status ech__params_distance(ech_trainer *trainer, const char *path, ech__params_gap *out)
{
    ech__safetensors *file;
    float *chunk = ech__new(trainer->ctx, CHUNK);
    if (!chunk)
        return ech__no_memory(trainer->ctx, "a buffer of %d bytes", CHUNK);
    ech_status status = ech__safetensors_open(trainer->ctx, path, &file);
    if (status == ECH_OK) {
        comparison c = {.trainer = trainer, .file = {trainer->graph, file}, .theirs = chunk};
        status = check_file(trainer->graph, is_saved, path, file);
        if (status == ECH_OK)
            status = for_part(trainer, is_param, compare_chunk, &c);
        *out = (ech__params_gap){.distance = ech__unsigned_nan(sqrt(c.square)),
                                 .norm = ech__unsigned_nan(sqrt(c.theirs_square))};
        ech__safetensors_close(file);
    }
    ech__delete(trainer->ctx, chunk, CHUNK);
    return status;
}
