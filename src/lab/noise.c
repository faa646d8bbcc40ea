#include "lab/noise.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "lab/internal.h"

#include <math.h>

enum { QUICK_REPEATS = 5, FULL_REPEATS = 9 };

static const double IDLE_SECONDS = 1, LOOP_SECONDS = 1e-3;

/* ---- the loop ---- */

/* Work that stays in registers and that no compiler can shorten: each round needs the one before. */
static uint64_t work(uint64_t x, int64_t rounds)
{
    for (int64_t i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static double time_of(uint64_t *x, int64_t rounds)
{
    const int64_t begin = ech__clock_wall();
    *x = work(*x, rounds);
    return ech__seconds(ech__clock_wall() - begin);
}

ech_status ech__noise_idle(ech_ctx *ctx, double seconds, ech__lab_noise *out)
{
    const size_t samples = (size_t)(seconds / LOOP_SECONDS) + 1;
    double *times = ech__new(ctx, samples * sizeof *times), fastest = 1;
    volatile uint64_t keep;
    uint64_t x = 88172645463325252u;
    int64_t rounds = 1 << 16;
    if (!times)
        return ech__no_memory(ctx, "%zu times", samples);
    for (int i = 0; i < 16; i++) /* the fastest of some is what the machine can do */
        fastest = fmin(fastest, time_of(&x, rounds));
    rounds = (int64_t)fmax(1, (double)rounds * LOOP_SECONDS / fmax(fastest, 1e-9));
    for (size_t i = 0; i < samples; i++)
        times[i] = time_of(&x, rounds);
    keep = x;
    (void)keep;
    const ech__stats stats = ech__stats_of(times, samples);
    ech__delete(ctx, times, samples * sizeof *times);
    out->idle_s = stats.median;
    out->idle_spread = stats.p95 / stats.median;
    return ECH_OK;
}

/* ---- equal runs ---- */

double ech__noise_spread(const double *times, size_t count)
{
    double mean = 0, squares = 0;
    if (count < 2)
        return 0;
    for (size_t i = 0; i < count; i++)
        mean += log(times[i]) / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += (log(times[i]) - mean) * (log(times[i]) - mean);
    return sqrt(squares / (double)(count - 1));
}

/* The median step time in a run's record; 0 where there is none. */
static double median_of(ech__lab *lab, const ech__lab_task *task)
{
    ech_json *record;
    double median = 0;
    const char *path =
        ech__arena_printf(&lab->arena, "%s/runs/%s/run.json", lab->options.out, task->name);
    if (!path || ech__json_load(lab->ctx, path, ECH_JSON_MAX_BYTES, &record) < 0)
        return 0;
    const ech_json *times = ech__json_find(ech__json_find(record, "summary"), "step_time_s");
    const ech_json *value = ech__json_find(times, "median");
    if (!value || !ech__json_real(value, &median) || !(median > 0))
        median = 0;
    ech__json_destroy(record);
    return median;
}

static ech_status add_equal(ech__lab *lab)
{
    const size_t number = lab->noise.count + 1;
    const char *words = ech__arena_printf(
        &lab->arena,
        "train --model linear --dim 512 --depth 2 --global-batch 64 --devices 1 --steps 45 "
        "--warmup 5 @repeat:%zu",
        number);
    return words && ech__lab_add_task(&lab->noise, ech__lab_name("equal%zu", number).s, words)
               ? ECH_OK
               : ech__no_memory(lab->ctx, "the runs that measure noise");
}

static ech_status run_equal(ech__lab *lab, ech__lab_task *task)
{
    ech__lab_noise *noise = &lab->figures;
    ECH_TRY(ech__lab_perform(&lab->noise, task));
    const bool good = task->stage == ECH__LAB_OVER &&
                      (task->state == ECH__LAB_DONE || task->state == ECH__LAB_REUSED);
    const double median = good ? median_of(lab, task) : 0;
    if (median > 0 && noise->runs < ECH__NOISE_MOST)
        noise->medians[noise->runs++] = median;
    noise->spread = ech__noise_spread(noise->medians, noise->runs);
    return ECH_OK;
}

ech_status ech__lab_measure_again(ech__lab *lab)
{
    ECH_TRY(add_equal(lab));
    return run_equal(lab, &lab->noise.tasks[lab->noise.count - 1]);
}

ech_status ech__lab_measure_noise(ech__lab *lab)
{
    const int repeats = lab->options.quick ? QUICK_REPEATS : FULL_REPEATS;
    ech__lab_show(lab, ECH__LAB_EVENT_NOISE, NULL, NULL, NULL);
    ECH_TRY(ech__noise_idle(lab->ctx, IDLE_SECONDS, &lab->figures));
    for (int i = 0; i < repeats; i++)
        ECH_TRY(add_equal(lab));
    for (size_t i = 0; i < lab->noise.count && !ech__lab_is_stopped(lab); i++)
        ECH_TRY(run_equal(lab, &lab->noise.tasks[i]));
    return ECH_OK;
}

/* ---- record ---- */

typedef struct figure {
    const char *name, *format, *unit, *source;
    double value;
} figure;

static void add_figure(ech_json **list, const figure *f)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "name", f->name);
    ech__json_set_real(&json, "value", f->value);
    ech__json_set_string(&json, "clock", "measured");
    if (f->unit)
        ech__json_set_string(&json, "unit", f->unit);
    ech__json_set_string(&json, "format", f->format);
    ech__json_set_string(&json, "source", f->source);
    ech__json_append(list, json);
}

ech_json *ech__lab_noise_json(const ech__lab_noise *noise)
{
    const figure figures[] = {
        {"idle loop", "seconds", NULL,
         "median time of a fixed loop on one thread, repeated for a second", noise->idle_s},
        {"idle loop, p95 by median", "fixed3", NULL,
         "the same loop, while nothing else of the lab ran", noise->idle_spread},
        {"equal runs", "integer", NULL,
         "runs of the same short training: some first, and one before each further study",
         (double)noise->runs},
        {"equal runs differ by", "percent2", "%",
         "standard deviation of the logarithm of their median step times",
         noise->runs > 1 ? noise->spread : NAN},
    };
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        add_figure(&list, &figures[i]);
    return list;
}
