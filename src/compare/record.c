/* A comparison as JSON, and the copies of many comparisons together. */
#include "base/stats.h"
#include "compare/compare.h"

#include <math.h>
#include <string.h>

static ech_json *numbers(const double *values, int count)
{
    ech_json *array = ech__json_array();
    for (int i = 0; i < count; i++)
        ech__json_append_real(&array, values[i]);
    return array;
}

static void set_ratio(ech_json **object, const ech__ratio *r)
{
    ech__json_set_real(object, "ratio", r->ratio);
    ech__json_set_real(object, "low", r->low);
    ech__json_set_real(object, "high", r->high);
    ech__json_set_real(object, "spread", r->spread);
}

static ech_json *arm_json(const ech__compare *c, int number)
{
    const ech__arm *arm = &c->arms[number];
    const ech__rounds *r = &c->rounds;
    double sorted[ECH__COMPARE_STARTS];
    ech_json *json = ech__json_object(), *words = ech__json_array();
    for (char *const *word = arm->spec.argv; *word; word++)
        ech__json_append_string(&words, *word);
    ech__json_set_string(&json, "name", arm->spec.name);
    ech__json_set_string(&json, "what", arm->what);
    ech__json_set_string(&json, "clock", ech__arm_is_emulated(arm) ? "emulated" : "measured");
    ech__json_set(&json, "command", words);
    ech__json_set_int(&json, "memory_bytes", c->memory[number]);
    memcpy(sorted, r->times[number], sizeof sorted);
    const ech__stats stats = ech__stats_of(sorted, (size_t)r->starts);
    ech_json *time = ech__json_object();
    ech__json_set_real(&time, "median", r->starts ? stats.median : (double)NAN);
    ech__json_set_real(&time, "min", r->starts ? stats.min : (double)NAN);
    ech__json_set_real(&time, "max", r->starts ? stats.max : (double)NAN);
    ech__json_set(&time, "starts", numbers(r->times[number], r->starts));
    ech__json_set(&json, "step_time_s", time);
    if (number == 0)
        return json;
    const ech__ratio ratio = ech__rounds_ratio(r, number);
    set_ratio(&json, &ratio);
    ech__json_set_real(&json, "threshold", ech__compare_threshold(c, number));
    ech__json_set_string(
        &json, "verdict",
        ech__decision_name(ech__rounds_decide(r, number, ech__compare_threshold(c, number))));
    ech__json_set(&json, "log_ratios", numbers(r->logs[number], r->starts));
    return json;
}

static ech_json *noise_json(const ech__compare *c)
{
    const ech__ratio noise = ech__compare_noise(c);
    ech_json *json = ech__json_object();
    set_ratio(&json, &noise);
    ech__json_set_bool(&json, "biased", noise.low > 1 || noise.high < 1);
    ech__json_set(&json, "log_ratios", numbers(c->rounds.logs[c->narms - 1], c->rounds.starts));
    return json;
}

static ech_json *disturbance_json(const ech__disturbance *d)
{
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "foreign_cores", d->foreign);
    ech__json_set_real(&json, "stolen", d->stolen);
    ech__json_set_real(&json, "slow", d->slow);
    ech__json_set_real(&json, "crowded", d->crowded);
    ech__json_set_real(&json, "far", d->far);
    return json;
}

ech_json *ech__compare_json(const ech__compare *c)
{
    const ech__rounds *r = &c->rounds;
    ech_json *json = ech__json_object(), *arms = ech__json_array();
    ech__json_set_real(&json, "threshold", c->options.threshold);
    ech__json_set_real(&json, "budget_s", c->options.budget_s);
    ech__json_set_real(&json, "elapsed_s", ech__compare_elapsed(c));
    ech__json_set_real(&json, "interval", ECH__COMPARE_SHARE);
    ech__json_set_int(&json, "starts", r->starts);
    ech__json_set_int(&json, "rounds", r->kept);
    ech__json_set_int(&json, "dropped_rounds", r->dropped);
    ech__json_set_int(&json, "disturbed_starts", r->disturbed);
    ech__json_set_bool(&json, "disturbed", ech__rounds_disturbed(r));
    ech__json_set_bool(&json, "stopped", r->was_stopped);
    ech__json_set_bool(&json, "apart", c->apart);
    ech__json_set(&json, "before", disturbance_json(&c->before));
    ech__json_set(&json, "during", disturbance_json(&r->average));
    for (int i = 0; i + 1 < c->narms; i++)
        ech__json_append(&arms, arm_json(c, i));
    ech__json_set(&json, "arms", arms);
    ech__json_set(&json, "noise", noise_json(c));
    return json;
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
