/* echelon plan fit: a small model fitted to a table of runs, and its predictions for other numbers of devices. */
#include "cli/cli.h"
#include "predict/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNTS = 32 };

typedef struct counts {
    size_t count;
    int64_t value[MAX_COUNTS];
} counts;

typedef struct args {
    const char *table, *predict, *batch;
    double noise, confidence;
    bool json;
    /* What follows from them. */
    counts devices, batches;
} args;

static const ech__option options[] = {
    ECH_ROW(STRING, args, table, "TABLE.csv",
            "Runs: a line that names the columns devices, batch, samples, bytes and time in any "
            "order, then a line for each run. batch: samples per device per step; samples: number "
            "in the measured interval, such as an epoch; bytes: gradient bytes exchanged per step "
            "and device, 0 for none; time: seconds for the interval.",
            .arg = "FILE", .positional = true, .required = true),
    ECH_ROW(STRING, args, predict, "predict",
            "Numbers of devices. Default: twice and four times the largest in the table.",
            .arg = "N,N,...", .group = "Predictions"),
    ECH_ROW(STRING, args, batch, "batch",
            "Batches per device. Default: those in the table. Others are interpolated.",
            .arg = "N,N,..."),
    ECH_ROW(REAL, args, confidence, "confidence", "Confidence level of the intervals.",
            .arg = "PERCENT", .initial = "95", .min = 50, .max = 99.9),
    ECH_ROW(REAL, args, noise, "noise",
            "Prior estimate of how much two equal runs differ. It counts as much as the residuals "
            "of two rows.",
            .arg = "PERCENT", .initial = "1", .min = 0.01, .max = 50),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object.", .group = "Output"),
};

static const ech__option_example examples[] = {
    {"echelon plan fit examples/a40_compute.csv --predict 4,8",
     "fit ResNet-18 on one and two GPUs, predict four and eight"},
};

/* ---- arguments ---- */

static ech_status parse_counts(ech_ctx *ctx, const char *name, const char *text, int64_t most,
                               counts *out)
{
    const ech__option_numbers option = {name, most, MAX_COUNTS};
    return ech__option_read_numbers(ctx, &option, text, out->value, &out->count);
}

static ech_status check(ech_ctx *ctx, const ech__option_result *given)
{
    args *a = given->args;
    if (a->predict)
        ECH_TRY(parse_counts(ctx, "predict", a->predict, ECH__TABLE_MAX_DEVICES, &a->devices));
    if (a->batch)
        ECH_TRY(parse_counts(ctx, "batch", a->batch, ECH__TABLE_MAX_BATCH, &a->batches));
    return ECH_OK;
}

static bool holds(const counts *c, int64_t value)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->value[i] == value)
            return true;
    }
    return false;
}

/* What was not asked for is taken from the table. */
static void take_defaults(args *a, const ech__table *table)
{
    int64_t most = 1;
    for (size_t i = 0; i < table->count; i++) {
        const ech__table_row *row = &table->row[i];
        most = row->devices > most ? row->devices : most;
        if (!a->batch && a->batches.count < MAX_COUNTS && !holds(&a->batches, row->batch))
            a->batches.value[a->batches.count++] = row->batch;
    }
    if (!a->predict)
        a->devices = (counts){2, {2 * most, 4 * most}};
}

/* ---- the fit as text ---- */

static void print_terms(const ech__fit *fit, ech__fit_form form)
{
    const ech__fit_result *r = &fit->result[form];
    for (int t = 0; t < ECH__FIT_TERMS; t++) {
        const ech__fit_value v = r->term[t];
        if (!ech__fit_form_has(form, (ech__fit_term)t))
            continue;
        printf("    %-20s ", ech__fit_term_name((ech__fit_term)t));
        if (t == ECH__FIT_TERM_LINK && v.value > 0)
            printf("%.3g GB/s [%.3g, %.3g]\n", 1e-9 / v.value, 1e-9 / v.high,
                   v.low > 0 ? 1e-9 / v.low : INFINITY);
        else if (t == ECH__FIT_TERM_LINK)
            printf("no limit seen\n");
        else if (t == ECH__FIT_TERM_OVERLAP)
            printf("%.3g of the compute time [%.3g, %.3g]\n", v.value, v.low, v.high);
        else
            printf("%.4g ms [%.4g, %.4g]\n", v.value * 1e3, v.low * 1e3, v.high * 1e3);
    }
}

static const char *verdict(const ech__fit_result *r)
{
    if (r->refusal == ECH__FIT_TOO_MANY)
        return "too many unknowns for these rows";
    if (r->refusal == ECH__FIT_ALIKE)
        return "these rows cannot separate its terms";
    return r->kept ? "kept" : "";
}

static void print_forms(const ech__fit *fit)
{
    printf("\nforms of the exposed part (error in %%: residual over all rows; leave-one-out over "
           "rows with several devices)\n");
    printf("  %-14s %9s %10s\n", "form", "residual", "left out");
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        const ech__fit_result *r = &fit->result[f];
        if (r->refusal == ECH__FIT_TRIED)
            printf("  %-14s %9.2f %10.2f  %s\n", ech__fit_form_name((ech__fit_form)f),
                   r->residual * 100, r->left_out * 100, verdict(r));
        else
            printf("  %-14s %9s %10s  %s\n", ech__fit_form_name((ech__fit_form)f), "-", "-",
                   verdict(r));
        if (r->kept)
            print_terms(fit, (ech__fit_form)f);
    }
}

static void print_alike(const ech__fit *fit)
{
    for (int a = 0; a < ECH__FIT_TERMS; a++) {
        for (int b = 0; b < a; b++) {
            if (fit->alike[a][b])
                printf("  these rows cannot separate %s and %s\n",
                       ech__fit_term_name((ech__fit_term)b), ech__fit_term_name((ech__fit_term)a));
        }
    }
    if (fit->kept > 1)
        printf("  %d forms are kept because these rows do not decide between them\n", fit->kept);
}

static void print_compute(const ech__fit *fit)
{
    printf("compute of one device (fitted)\n  %8s %14s %14s   interval\n", "batch", "step ms",
           "sample ms");
    for (int i = 0; i < fit->knots; i++) {
        const double batch = (double)fit->knot[i];
        const ech__fit_value c = ech__fit_step(fit, 1, fit->knot[i], 0, false);
        printf("  %8lld %14.4f %14.5f   [%.5f, %.5f]\n", (long long)fit->knot[i], c.value * 1e3,
               c.value * 1e3 / batch, c.low * 1e3 / batch, c.high * 1e3 / batch);
    }
    printf("  affine over all batches: %.4g ms per step and %.5g ms per sample\n",
           fit->step_s * 1e3, fit->sample_s * 1e3);
}

static double fitted_time(const ech__fit *fit, const ech__table_row *row)
{
    return ech__fit_step(fit, row->devices, row->batch, row->bytes, false).value *
           (double)row->samples / ((double)row->devices * (double)row->batch);
}

static void print_rows(const ech__fit *fit)
{
    printf("\nrows\n  %8s %8s %12s %12s %8s\n", "devices", "batch", "measured s", "fitted s",
           "error %");
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        const double time = fitted_time(fit, row);
        printf("  %8lld %8lld %12.4f %12.4f %8.2f\n", (long long)row->devices,
               (long long)row->batch, row->time, time, (time / row->time - 1) * 100);
    }
    printf("  spread of a run: %.2f %% (%d degrees of freedom, two of them for --noise %g %%); "
           "t = %.2f\n",
           fit->sigma * 100, fit->freedom, fit->options.noise * 100, fit->t);
}

/* ---- predictions as text ---- */

static void print_time(double seconds)
{
    if (isnan(seconds))
        printf(" %10s", "-");
    else
        printf(" %10.4f", seconds);
}

static void print_predictions(const ech__fit *fit, const args *a)
{
    printf("\npredictions (all predicted, except the column measured; %g %% intervals for one "
           "more run)\n  %8s %8s %10s %-20s %8s %6s %8s %10s %10s %10s\n",
           a->confidence, "devices", "batch", "time s", " interval", "speedup", "eff.", "exposed",
           "measured", "Amdahl s", "Gustafson");
    for (size_t b = 0; b < a->batches.count; b++) {
        for (size_t d = 0; d < a->devices.count; d++) {
            const ech__fit_prediction p =
                ech__fit_predict(fit, a->devices.value[d], a->batches.value[b]);
            char interval[48];
            snprintf(interval, sizeof interval, "[%.4g, %.4g]", p.time.low, p.time.high);
            printf("  %8lld %8lld %10.4f  %-19s %8.3f %6.3f %7.1f%%", (long long)p.devices,
                   (long long)p.batch, p.time.value, interval, p.speedup.value, p.efficiency.value,
                   p.exposed * 100);
            print_time(p.measured);
            print_time(p.amdahl.time);
            print_time(p.gustafson.time);
            printf("\n");
        }
    }
}

static void print_laws(const ech__fit *fit, const args *a)
{
    printf("\nscaling laws, fitted to the rows of each batch\n  %8s %-32s %-32s\n", "batch",
           "Amdahl's serial fraction", "Gustafson's serial fraction");
    for (size_t b = 0; b < a->batches.count; b++) {
        const ech__fit_prediction p = ech__fit_predict(fit, 2, a->batches.value[b]);
        char text[2][64] = {"-", "-"};
        const ech__fit_value f[2] = {p.amdahl.f, p.gustafson.f};
        for (int i = 0; i < 2; i++) {
            if (!isnan(f[i].value))
                snprintf(text[i], sizeof text[i], "%.4f [%.4f, %.4f]", f[i].value, f[i].low,
                         f[i].high);
        }
        printf("  %8lld %-32s %-32s\n", (long long)p.batch, text[0], text[1]);
    }
    printf("  An epoch of fixed data is strong scaling: the number of samples is constant. With a "
           "fixed batch per\n  device its steps are weak scaling: each does N times the work, and "
           "there are N times fewer. Amdahl keeps\n  the serial part of an epoch constant; here "
           "each step has one, so it shrinks with the number of steps.\n  Gustafson's S = N - f "
           "(N-1) assumes that a fraction f of a step's time on N devices is serial, for all N.\n");
}

/* ---- JSON ---- */

static ech_json *value_json(ech__fit_value v)
{
    return ECH__JSON(ech__real("value", v.value), ech__real("low", v.low),
                     ech__real("high", v.high));
}

static ech_json *compute_json(const ech__fit *fit)
{
    ech_json *list = ech__json_array();
    for (int i = 0; i < fit->knots; i++) {
        const ech__fit_value step = ech__fit_step(fit, 1, fit->knot[i], 0, false);
        ech__json_append(&list, ECH__JSON(ech__int("batch", fit->knot[i]),
                                          ech__member("step_s", value_json(step))));
    }
    return list;
}

static ech_json *forms_json(const ech__fit *fit)
{
    static const char *const keys[ECH__FIT_TERMS] = {"fixed_s", "link_s_per_byte", "latency_s",
                                                     "overlap"};
    ech_json *list = ech__json_array();
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        const ech__fit_result *r = &fit->result[f];
        const bool tried = r->refusal == ECH__FIT_TRIED;
        ech_json *json =
            ECH__JSON(ech__string("form", ech__fit_form_name((ech__fit_form)f)),
                      ech__bool("kept", r->kept), ech__string("why_not", tried ? NULL : verdict(r)),
                      ech__real("residual", tried ? r->residual : NAN),
                      ech__real("left_out", tried ? r->left_out : NAN));
        for (int t = 0; tried && t < ECH__FIT_TERMS; t++) {
            if (ech__fit_form_has((ech__fit_form)f, (ech__fit_term)t))
                ech__json_set(&json, keys[t], value_json(r->term[t]));
        }
        ech__json_append(&list, json);
    }
    return list;
}

static ech_json *alike_json(const ech__fit *fit)
{
    ech_json *list = ech__json_array();
    for (int a = 0; a < ECH__FIT_TERMS; a++) {
        for (int b = 0; b < a; b++) {
            if (!fit->alike[a][b])
                continue;
            ech_json *pair = ech__json_array();
            ech__json_append_string(&pair, ech__fit_term_name((ech__fit_term)b));
            ech__json_append_string(&pair, ech__fit_term_name((ech__fit_term)a));
            ech__json_append(&list, pair);
        }
    }
    return list;
}

static ech_json *rows_json(const ech__fit *fit)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        const double time = fitted_time(fit, row);
        ech_json *json = ECH__JSON(ech__int("devices", row->devices), ech__int("batch", row->batch),
                                   ech__int("samples", row->samples), ech__int("bytes", row->bytes),
                                   ech__real("measured_s", row->time), ech__real("fitted_s", time),
                                   ech__real("error", time / row->time - 1));
        ech__json_append(&list, json);
    }
    return list;
}

static ech_json *law_json(const ech__fit_law *law)
{
    return ECH__JSON(ech__member("fraction", value_json(law->f)), ech__real("time_s", law->time));
}

static ech_json *predictions_json(const ech__fit *fit, const args *a)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < a->batches.count * a->devices.count; i++) {
        const ech__fit_prediction p = ech__fit_predict(fit, a->devices.value[i % a->devices.count],
                                                       a->batches.value[i / a->devices.count]);
        ech_json *json =
            ECH__JSON(ech__string("clock", "predicted"), ech__int("devices", p.devices),
                      ech__int("batch", p.batch), ech__int("samples", p.samples),
                      ech__int("bytes", p.bytes), ech__member("time_s", value_json(p.time)),
                      ech__member("speedup", value_json(p.speedup)),
                      ech__member("efficiency", value_json(p.efficiency)),
                      ech__real("exposed_share", p.exposed), ech__real("measured_s", p.measured),
                      ech__member("amdahl", law_json(&p.amdahl)),
                      ech__member("gustafson", law_json(&p.gustafson)));
        ech__json_append(&list, json);
    }
    return list;
}

static ech_status print_json(ech_ctx *ctx, const ech__fit *fit, const args *a)
{
    ech_json *json = ECH__JSON(
        ech__string("table", a->table), ech__real("confidence", a->confidence / 100),
        ech__real("noise", a->noise / 100), ech__real("sigma", fit->sigma),
        ech__int("freedom", fit->freedom), ech__real("t", fit->t),
        ech__member("compute", compute_json(fit)), ech__real("affine_step_s", fit->step_s),
        ech__real("affine_sample_s", fit->sample_s), ech__member("forms", forms_json(fit)),
        ech__member("alike", alike_json(fit)), ech__member("rows", rows_json(fit)),
        ech__member("predictions", predictions_json(fit, a)));
    return ech__cli_json(ctx, json);
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    args *a = given->args;
    ech__table table;
    ech__fit fit;
    const ech__fit_options o = {.noise = a->noise / 100, .confidence = a->confidence / 100};
    ECH_TRY(ech__table_load(ctx, a->table, &table));
    ECH_TRY(ech__fit_table(ctx, a->table, &table, &o, &fit));
    take_defaults(a, &table);
    if (a->json)
        return print_json(ctx, &fit, a);
    print_compute(&fit);
    print_forms(&fit);
    print_alike(&fit);
    print_rows(&fit);
    print_predictions(&fit, a);
    print_laws(&fit, a);
    return ECH__EXIT_GOOD;
}

const ech__command ech__cli_plan_fit = {
    .name = "plan fit",
    .brief = "fit a model to a table of runs and predict other numbers of devices",
    .about =
        "A step on one device takes a fitted time for each batch. Several devices add an exposed "
        "part. Several forms of that part are compared by leave-one-out cross-validation over the "
        "rows with several devices. The simplest form that is as good as the best is kept. If "
        "several forms are equally good and simple, all are kept: the prediction is their mean, "
        "and its interval covers all of theirs.\n\n"
        "An interval is for one more measured run: Student's t times the spread of a run and of "
        "the fitted values. The spread comes from the residuals and from --noise.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
    .check = check,
};
