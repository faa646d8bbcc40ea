/* A comparison as JSON, and the copies of many comparisons together. */
#include "base/stats.h"
#include "compare/compare.h"

#include <math.h>
#include <string.h>

static void set_ratio(ech_json **object, const ech__ratio *r)
{
    ECH__JSON_SET(object, ech__real("ratio", r->ratio), ech__real("low", r->low),
                  ech__real("high", r->high), ech__real("spread", r->spread));
}

static ech_json *arm_json(const ech__compare *c, int number)
{
    const ech__arm *arm = &c->arms[number];
    const ech__rounds *r = &c->rounds;
    double sorted[ECH__COMPARE_STARTS];
    ech_json *words = ech__json_array();
    for (char *const *word = arm->spec.argv; *word; word++)
        ech__json_append_string(&words, *word);
    ech_json *json =
        ECH__JSON(ech__string("name", arm->spec.name), ech__string("what", arm->what),
                  ech__string("clock", ech__arm_is_emulated(arm) ? "emulated" : "measured"),
                  ech__member("command", words), ech__int("memory_bytes", c->memory[number]));
    memcpy(sorted, r->times[number], sizeof sorted);
    const ech__stats stats = ech__stats_of(sorted, (size_t)r->starts);
    ech_json *time = ECH__JSON(ech__real("median", r->starts ? stats.median : (double)NAN),
                               ech__real("min", r->starts ? stats.min : (double)NAN),
                               ech__real("max", r->starts ? stats.max : (double)NAN),
                               ech__reals("starts", r->times[number], (size_t)r->starts));
    ech__json_set(&json, "step_time_s", time);
    if (number == 0)
        return json;
    const ech__ratio ratio = ech__rounds_ratio(r, number);
    set_ratio(&json, &ratio);
    const double threshold = ech__compare_threshold(c, number);
    ECH__JSON_SET(
        &json, ech__real("threshold", threshold),
        ech__string("verdict", ech__decision_name(ech__rounds_decide(r, number, threshold))),
        ech__reals("log_ratios", r->logs[number], (size_t)r->starts));
    return json;
}

static ech_json *noise_json(const ech__compare *c)
{
    const ech__ratio noise = ech__compare_noise(c);
    const ech__rounds *r = &c->rounds;
    ech_json *json = ech__json_object();
    set_ratio(&json, &noise);
    ECH__JSON_SET(&json, ech__bool("biased", noise.low > 1 || noise.high < 1),
                  ech__reals("log_ratios", r->logs[c->narms - 1], (size_t)r->starts));
    return json;
}

static ech_json *disturbance_json(const ech__disturbance *d)
{
    return ECH__JSON(ech__real("foreign_cores", d->foreign), ech__real("stolen", d->stolen),
                     ech__real("slow", d->slow), ech__real("crowded", d->crowded),
                     ech__real("far", d->far));
}

ech_json *ech__compare_json(const ech__compare *c)
{
    const ech__rounds *r = &c->rounds;
    ech_json *arms = ech__json_array();
    for (int i = 0; i + 1 < c->narms; i++)
        ech__json_append(&arms, arm_json(c, i));
    return ECH__JSON(
        ech__real("threshold", c->options.threshold), ech__real("budget_s", c->options.budget_s),
        ech__real("elapsed_s", ech__compare_elapsed(c)), ech__real("interval", ECH__COMPARE_SHARE),
        ech__int("starts", r->starts), ech__int("rounds", r->kept),
        ech__int("dropped_rounds", r->dropped), ech__int("disturbed_starts", r->disturbed),
        ech__bool("disturbed", r->counts_disturbed), ech__bool("stopped", r->was_stopped),
        ech__bool("apart", c->apart), ech__member("before", disturbance_json(&c->before)),
        ech__member("during", disturbance_json(&r->average)), ech__member("arms", arms),
        ech__member("noise", noise_json(c)));
}

ech_status ech__compare_pool(ech_ctx *ctx, const char *path, double logs[ECH__COMPARE_POOL],
                             int *count)
{
    ech_json *doc;
    const ech_json *noise, *array = NULL;
    ECH_TRY(ech__json_load(ctx, path, 1 << 20, &doc));
    ech_status status = ech__json_get_object(ctx, doc, "noise", &noise);
    if (status == ECH_OK)
        status = ech__json_get_array(ctx, noise, "log_ratios", &array);
    for (size_t i = 0; array && i < ech__json_count(array) && *count < ECH__COMPARE_POOL; i++) {
        double value;
        if (ech__json_real(ech__json_at(array, i), &value) && isfinite(value))
            logs[(*count)++] = value;
    }
    ech__json_destroy(doc);
    return status < 0 ? ech__fail_in(ctx, status, "%s", path) : ECH_OK;
}
