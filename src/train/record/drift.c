#include "train/record/drift.h"
#include "base/format.h"
#include "train/step/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a batch norm adds to a variance before it divides by its root: smaller ones make no
 * difference to anybody. */
static const double EPSILON = 1e-5;

/* ---- one layer ---- */

typedef struct sums {
    double largest, squares;
} sums;

static void add(sums *s, double relative)
{
    if (!(relative <= s->largest)) /* what is no number stays */
        s->largest = relative;
    s->squares += relative * relative;
}

static double mean_over_ranks(const float *values, int world, int64_t stride)
{
    double sum = 0;
    for (int r = 0; r < world; r++)
        sum += (double)values[r * stride];
    return sum / world;
}

ech__drift ech__drift_of(const float *mean, const float *variance, int world, int64_t stride,
                         int64_t channels)
{
    sums means = {0, 0}, variances = {0, 0};
    for (int64_t c = 0; c < channels; c++) {
        const double centre = mean_over_ranks(mean + c, world, stride);
        const double spread = mean_over_ranks(variance + c, world, stride);
        for (int r = 0; r < world; r++) {
            const double off = fabs((double)mean[r * stride + c] - centre);
            const double wide = fabs((double)variance[r * stride + c] - spread);
            add(&means, off / sqrt(spread + EPSILON));
            add(&variances, wide / (spread + EPSILON));
        }
    }
    const double count = (double)channels * world;
    return (ech__drift){.ranks = world,
                        .mean_largest = ech__unsigned_nan(means.largest),
                        .mean_rms = count > 0 ? ech__unsigned_nan(sqrt(means.squares / count)) : 0,
                        .variance_largest = ech__unsigned_nan(variances.largest),
                        .variance_rms =
                            count > 0 ? ech__unsigned_nan(sqrt(variances.squares / count)) : 0};
}

/* ---- the record ---- */

static const char MEAN[] = ".running_mean", VARIANCE[] = ".running_var";

/* Length of the layer's name in that of its running mean; 0: not a running mean. */
static size_t layer_length(const ech__value *value)
{
    const size_t length = strlen(value->name), suffix = sizeof MEAN - 1;
    if (value->kind != ECH__VALUE_BUFFER || length <= suffix ||
        strcmp(value->name + length - suffix, MEAN) != 0)
        return 0;
    return length - suffix;
}

static size_t count_layers(const ech_graph *graph)
{
    size_t count = 0;
    for (size_t v = 0; v < graph->nvalues; v++)
        count += layer_length(&graph->values[v]) > 0;
    return count;
}

static ech_status find_layers(ech__drift_record *r, const ech_graph *graph, ech__arena *arena)
{
    size_t k = 0;
    for (size_t v = 0; v < graph->nvalues; v++) {
        const int length = (int)layer_length(&graph->values[v]);
        if (!length)
            continue;
        r->names[k] = ech__arena_printf(arena, "%.*s", length, graph->values[v].name);
        if (!r->names[k])
            return ech__no_memory(r->ctx, "the names of layers");
        ech__shape_elems(&graph->values[v].type.shape, &r->channels[k]);
        r->total += r->channels[k++];
    }
    return ECH_OK;
}

static ech_status allocate(ech__drift_record *r, const ech_trainer *trainer, int64_t epochs,
                           ech__arena *arena)
{
    r->names = ech__arena_array(arena, r->nlayers, sizeof *r->names);
    r->channels = ech__arena_array(arena, r->nlayers, sizeof *r->channels);
    if (!r->names || !r->channels)
        return ech__no_memory(r->ctx, "the statistics of %zu layers", r->nlayers);
    ECH_TRY(find_layers(r, trainer->model, arena));
    const size_t both = 2 * (size_t)r->total;
    r->rows = ech__arena_array(arena, (size_t)epochs, r->nlayers * sizeof *r->rows);
    r->mine = ech__arena_array(arena, both, sizeof *r->mine);
    r->all = ech__arena_array(arena, both * (size_t)r->world, sizeof *r->all);
    return r->rows && r->mine && r->all
               ? ECH_OK
               : ech__no_memory(r->ctx, "the statistics of %zu layers in %lld epochs", r->nlayers,
                                (long long)epochs);
}

ech_status ech__drift_init(ech__drift_record *r, const ech_trainer *trainer, int64_t epochs,
                           ech__arena *arena)
{
    *r = (ech__drift_record){.ctx = trainer->ctx, .epochs = epochs};
    if (!trainer->comm || epochs < 1)
        return ECH_OK;
    r->world = trainer->comm->world;
    r->nlayers = count_layers(trainer->model);
    return r->nlayers ? allocate(r, trainer, epochs, arena) : ECH_OK;
}

static ech_status read_one(ech_trainer *trainer, const char *layer, const char *which, float *out,
                           int64_t channels)
{
    char name[256];
    if (snprintf(name, sizeof name, "%s%s", layer, which) >= (int)sizeof name)
        return ech__fail(trainer->ctx, ECH_E_LIMIT, "the name of layer %s is too long", layer);
    return ech_trainer_read(trainer, name, out, (size_t)channels * sizeof *out);
}

ech_status ech__drift_measure(ech__drift_record *r, ech_trainer *trainer, int64_t epoch,
                              ech__drift *out)
{
    const int64_t stride = 2 * r->total;
    int64_t at = 0;
    *out = (ech__drift){.ranks = 0};
    if (!r->nlayers || epoch >= r->epochs)
        return ECH_OK;
    for (size_t k = 0; k < r->nlayers; at += r->channels[k++]) {
        ECH_TRY(read_one(trainer, r->names[k], MEAN, r->mine + at, r->channels[k]));
        ECH_TRY(read_one(trainer, r->names[k], VARIANCE, r->mine + r->total + at, r->channels[k]));
    }
    ECH_TRY(ech__comm_allgather(trainer->comm, r->mine, r->all, stride * (int64_t)sizeof *r->mine));
    at = 0;
    for (size_t k = 0; k < r->nlayers; at += r->channels[k++])
        r->rows[(size_t)epoch * r->nlayers + k] =
            ech__drift_of(r->all + at, r->all + r->total + at, r->world, stride, r->channels[k]);
    *out = ech__drift_of(r->all, r->all + r->total, r->world, stride, r->total);
    return ECH_OK;
}

const ech__drift *ech__drift_layers(const ech__drift_record *r, int64_t epoch)
{
    if (!r->nlayers || epoch >= r->epochs)
        return NULL;
    const ech__drift *rows = r->rows + (size_t)epoch * r->nlayers;
    return rows->ranks ? rows : NULL;
}

size_t ech__drift_worst(const ech__drift_record *r, int64_t epoch)
{
    const ech__drift *rows = ech__drift_layers(r, epoch);
    size_t worst = 0;
    for (size_t k = 1; rows && k < r->nlayers; k++) {
        if (fmax(rows[k].mean_largest, rows[k].variance_largest) >
            fmax(rows[worst].mean_largest, rows[worst].variance_largest))
            worst = k;
    }
    return worst;
}
