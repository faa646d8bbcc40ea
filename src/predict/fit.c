#include "predict/fit.h"
#include "base/names.h"
#include "base/stats.h"

#include <math.h>
#include <string.h>

typedef struct form_rule {
    const char *name;
    int unknowns;
    bool has[ECH__FIT_TERMS];
} form_rule;

static const form_rule forms[ECH__FIT_FORMS] = {
#define FORM_RULE(id, name, unknowns, fixed, link, latency, overlap)                               \
    {name, unknowns, {fixed, link, latency, overlap}},
    ECH__FIT_FORM_LIST(FORM_RULE)
#undef FORM_RULE
};

/* How much worse a simpler form may foresee rows and still count as good: a part of the best error, and an absolute error
 * that no clock resolves. */
static const double AS_GOOD = 1.02, AS_GOOD_AT_LEAST = 1e-4;
/* Rows that the assumed noise counts for. */
enum { NOISE_ROWS = 2 };

const char *ech__fit_form_name(ech__fit_form form)
{
    return forms[form].name;
}

bool ech__fit_form_has(ech__fit_form form, ech__fit_term term)
{
    return forms[form].has[term];
}

ECH__NAMES(ech__fit_term_name, ech__fit_term, ECH__FIT_TERM_LIST)

ech__fit_options ech__fit_defaults(void)
{
    return (ech__fit_options){.noise = 0.01, .confidence = 0.95};
}

/* ---- the model ---- */

/* What a step is asked about. */
typedef struct point {
    int64_t devices, batch, bytes;
} point;

static point point_of(const ech__table_row *row)
{
    return (point){row->devices, row->batch, row->bytes};
}

static bool exchanges(point p)
{
    return p.devices > 1 && p.bytes > 0;
}

static double steps_of(const ech__table_row *row)
{
    return (double)row->samples / ((double)row->devices * (double)row->batch);
}

static double step_time_of(const ech__table_row *row)
{
    return row->time / steps_of(row);
}

static double affine(const ech__fit *fit, int64_t batch)
{
    return fit->step_s + fit->sample_s * (double)batch;
}

/* C(batch) = sum of part[i] x[i]: which part each unknown of C has in it. */
static void compute_parts(const ech__fit *fit, int64_t batch, double *part)
{
    for (int i = 0; i < ECH__LEAST_MAX; i++)
        part[i] = 0;
    if (!fit->knots) {
        part[0] = (double)batch;
        part[1] = 1;
        return;
    }
    int above = 0;
    while (above < fit->knots && fit->knot[above] < batch)
        above++;
    if (above < fit->knots && fit->knot[above] == batch) {
        part[above] = 1;
    } else if (above == 0 || above == fit->knots) {
        const int edge = above ? fit->knots - 1 : 0;
        part[edge] = affine(fit, batch) / affine(fit, fit->knot[edge]);
    } else {
        const double low = (double)fit->knot[above - 1], high = (double)fit->knot[above];
        part[above] = ((double)batch - low) / (high - low);
        part[above - 1] = 1 - part[above];
    }
}

static double term_size(ech__fit_term term, point p, double compute)
{
    const double n = (double)p.devices;
    switch (term) {
    case ECH__FIT_TERM_FIXED:
        return 1;
    case ECH__FIT_TERM_LINK:
        return (double)p.bytes * 2 * (n - 1) / n;
    case ECH__FIT_TERM_LATENCY:
        return 2 * (n - 1);
    case ECH__FIT_TERM_OVERLAP:
    case ECH__FIT_TERMS:
        break;
    }
    return -compute;
}

/* The term that overlap hides; ECH__FIT_TERMS: none. */
static ech__fit_term hidden_term(ech__fit_form form)
{
    if (!forms[form].has[ECH__FIT_TERM_OVERLAP])
        return ECH__FIT_TERMS;
    return forms[form].has[ECH__FIT_TERM_LINK] ? ECH__FIT_TERM_LINK : ECH__FIT_TERM_FIXED;
}

/* Time of a step, and its slope along each unknown. always: what can be hidden is not, whatever its sign. */
static double step_at(const ech__fit *fit, ech__fit_form form, const double *x, point p,
                      bool always, double *slope)
{
    double *term_slope = slope + fit->unknowns_of_c;
    const double *term_x = x + fit->unknowns_of_c;
    double compute = 0;
    compute_parts(fit, p.batch, slope);
    for (int i = 0; i < fit->unknowns_of_c; i++)
        compute += slope[i] * x[i];
    if (!exchanges(p))
        return compute;
    const ech__fit_term hidden = hidden_term(form);
    double time = compute;
    for (int t = 0; t < ECH__FIT_TERM_OVERLAP; t++) {
        if (!forms[form].has[t] || (ech__fit_term)t == hidden)
            continue;
        term_slope[t] = term_size((ech__fit_term)t, p, compute);
        time += term_slope[t] * term_x[t];
    }
    if (hidden == ECH__FIT_TERMS)
        return time;
    const double size = term_size(hidden, p, compute), share = term_x[ECH__FIT_TERM_OVERLAP];
    const double seen = size * term_x[hidden] - share * compute;
    if (seen <= 0 && !always)
        return time;
    for (int i = 0; i < fit->unknowns_of_c; i++)
        slope[i] *= 1 - share;
    term_slope[hidden] = size;
    term_slope[ECH__FIT_TERM_OVERLAP] = -compute;
    return time + seen;
}

/* ---- least squares ---- */

static bool same_run(point a, point b)
{
    return a.devices == b.devices && a.batch == b.batch && a.bytes == b.bytes;
}

static int unknowns(const ech__fit *fit)
{
    return fit->unknowns_of_c + ECH__FIT_TERMS;
}

/* Sum of squared relative errors over all rows but those of the run that is left out (NULL: over all). */
static double squares(const ech__fit *fit, ech__fit_form form, const double *x, const point *out)
{
    double sum = 0, slope[ECH__LEAST_MAX];
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        if (out && same_run(point_of(row), *out))
            continue;
        const double error =
            step_at(fit, form, x, point_of(row), false, slope) / step_time_of(row) - 1;
        sum += error * error;
    }
    return sum;
}

/* The equations of the model made straight at x, weighed for relative errors. With hold the overlap keeps its value and
 * nothing counts as hidden. */
static ech__normal straightened(const ech__fit *fit, ech__fit_form form, const double *x,
                                const point *out, bool hold)
{
    ech__normal normal = {.unknowns = unknowns(fit)};
    const int overlap = fit->unknowns_of_c + ECH__FIT_TERM_OVERLAP;
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        if (out && same_run(point_of(row), *out))
            continue;
        double slope[ECH__LEAST_MAX];
        const double measured = step_time_of(row);
        double y = measured - step_at(fit, form, x, point_of(row), hold, slope);
        if (hold)
            slope[overlap] = 0;
        for (int u = 0; u < normal.unknowns; u++) {
            y += slope[u] * x[u];
            slope[u] /= measured;
        }
        ech__normal_add(&normal, slope, y / measured);
    }
    return normal;
}

/* Gauss and Newton's steps from x, halved while they lead upwards. Returns the sum of squares. */
static double descend(const ech__fit *fit, ech__fit_form form, double *x, const point *out)
{
    const int count = unknowns(fit), overlap = fit->unknowns_of_c + ECH__FIT_TERM_OVERLAP;
    double best = squares(fit, form, x, out);
    for (int turn = 0; turn < 50; turn++) {
        double target[ECH__LEAST_MAX], tried[ECH__LEAST_MAX];
        const ech__normal normal = straightened(fit, form, x, out, false);
        ech__normal_solve(&normal, target);
        target[overlap] = fmin(target[overlap], 1);
        bool better = false;
        for (int halved = 0; halved < 14 && !better; halved++) {
            const double part = ldexp(1, -halved);
            for (int u = 0; u < count; u++)
                tried[u] = x[u] + part * (target[u] - x[u]);
            const double sum = squares(fit, form, tried, out);
            better = sum < best * (1 - 1e-9) - 1e-24;
            if (better) {
                best = sum;
                memcpy(x, tried, sizeof tried);
            }
        }
        if (!better)
            break;
    }
    return best;
}

/* From several shares of overlap, because what is hidden has no slope. */
static double solve(const ech__fit *fit, ech__fit_form form, double *x, const point *out)
{
    static const double shares[] = {0, 0.03, 0.1, 0.3, 0.6};
    const int tries = forms[form].has[ECH__FIT_TERM_OVERLAP] ? 5 : 1;
    double best = INFINITY;
    for (int i = 0; i < tries; i++) {
        double start[ECH__LEAST_MAX] = {0}, hold[ECH__LEAST_MAX] = {0};
        hold[fit->unknowns_of_c + ECH__FIT_TERM_OVERLAP] = shares[i];
        const ech__normal normal = straightened(fit, form, hold, out, true);
        ech__normal_solve(&normal, start);
        start[fit->unknowns_of_c + ECH__FIT_TERM_OVERLAP] = shares[i];
        const double sum = descend(fit, form, start, out);
        if (sum < best * (1 - 1e-6)) {
            best = sum;
            memcpy(x, start, sizeof start);
        }
    }
    return best;
}

/* ---- what the table can tell ---- */

static void add_knot(ech__fit *fit, int64_t batch)
{
    int at = 0;
    while (at < fit->knots && fit->knot[at] < batch)
        at++;
    if (at < fit->knots && fit->knot[at] == batch)
        return;
    memmove(fit->knot + at + 1, fit->knot + at, (size_t)(fit->knots - at) * sizeof *fit->knot);
    fit->knot[at] = batch;
    fit->knots++;
}

static ech_status find_knots(ech_ctx *ctx, const char *what, ech__fit *fit)
{
    for (size_t i = 0; i < fit->table.count; i++) {
        if (fit->table.row[i].devices != 1)
            continue;
        if (fit->knots == ECH__FIT_MAX_BATCHES - 1)
            return ech__fail(ctx, ECH_E_LIMIT, "%s, line %d, column batch: more than %d sizes",
                             what, fit->table.row[i].line, ECH__FIT_MAX_BATCHES - 1);
        add_knot(fit, fit->table.row[i].batch);
    }
    fit->unknowns_of_c = fit->knots ? fit->knots : 2;
    return ECH_OK;
}

/* The affine fit through the rows of one device; step_s is 0 where there is only one batch. */
static void fit_affine(ech__fit *fit)
{
    ech__normal normal = {.unknowns = 2};
    double x[ECH__LEAST_MAX], sum = 0;
    int rows = 0;
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        if (row->devices != 1)
            continue;
        const double time = step_time_of(row);
        ech__normal_add(&normal, (double[]){(double)row->batch / time, 1 / time}, 1);
    }
    if (fit->knots < 2)
        normal.square[1][1] = normal.square[0][1] = normal.square[1][0] = 0;
    ech__normal_solve(&normal, x);
    fit->sample_s = x[0];
    fit->step_s = x[1];
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        if (row->devices != 1)
            continue;
        const double error = affine(fit, row->batch) / step_time_of(row) - 1;
        sum += error * error;
        rows++;
    }
    /* Fewer than three batches always lie on a line, which says nothing of a fourth. */
    fit->bend = fit->knots > 2 ? sqrt(sum / rows) : 0.05;
}

/* Terms whose sizes go together over all rows that exchange. */
static void find_alike(ech__fit *fit)
{
    for (int a = 0; a < ECH__FIT_TERMS; a++) {
        for (int b = 0; b < a; b++) {
            double aa = 0, bb = 0, ab = 0;
            for (size_t i = 0; i < fit->table.count; i++) {
                const ech__table_row *row = &fit->table.row[i];
                if (!exchanges(point_of(row)))
                    continue;
                const double compute = fit->knots ? affine(fit, row->batch) : (double)row->batch;
                const double x = term_size((ech__fit_term)a, point_of(row), compute);
                const double y = term_size((ech__fit_term)b, point_of(row), compute);
                aa += x * x;
                bb += y * y;
                ab += x * y;
            }
            fit->alike[a][b] = fit->alike[b][a] = ab * ab >= aa * bb * (1 - 1e-9);
        }
    }
}

/* Runs of N > 1 that exchange something, each counted once. */
static int count_runs(const ech__fit *fit)
{
    int runs = 0;
    for (size_t i = 0; i < fit->table.count; i++) {
        const point p = point_of(&fit->table.row[i]);
        bool first = exchanges(p);
        for (size_t j = 0; j < i; j++)
            first = first && !same_run(p, point_of(&fit->table.row[j]));
        runs += first;
    }
    return runs;
}

static ech_status check_rows(ech_ctx *ctx, const char *what, const ech__table *table)
{
    bool several = false, counts = false;
    for (size_t i = 0; i < table->count; i++) {
        several = several || exchanges(point_of(&table->row[i]));
        counts = counts || table->row[i].devices != table->row[0].devices;
    }
    if (table->count < 3)
        return ech__fail(ctx, ECH_E_INVALID, "%s: %zu row%s; a fit needs at least 3", what,
                         table->count, table->count == 1 ? "" : "s");
    if (!counts)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s, column devices: is %lld in every row; a fit needs two numbers of "
                         "devices at least",
                         what, (long long)table->row[0].devices);
    if (!several)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s, column bytes: is 0 in every row of several devices; nothing says "
                         "what an exchange costs",
                         what);
    return ECH_OK;
}

/* Whether the rows determine a form's unknowns at all. */
static ech__fit_refusal refusal_of(const ech__fit *fit, ech__fit_form form, int runs)
{
    const form_rule *rule = &forms[form];
    bool use[ECH__LEAST_MAX] = {false};
    double x[ECH__LEAST_MAX] = {0}, inverse[ECH__LEAST_MAX][ECH__LEAST_MAX];
    if (rule->unknowns > 1 && rule->unknowns > runs - 1)
        return ECH__FIT_TOO_MANY;
    /* Where N does not vary a latency looks like a fixed cost, which is the likelier by far inside of a step: messages take
     * microseconds. */
    if (rule->has[ECH__FIT_TERM_LATENCY] && fit->alike[ECH__FIT_TERM_FIXED][ECH__FIT_TERM_LATENCY])
        return ECH__FIT_ALIKE;
    const ech__normal none = straightened(fit, ECH__FIT_NONE, x, NULL, false);
    ech__normal_solve(&none, x);
    ech__normal normal = {.unknowns = unknowns(fit)};
    for (size_t i = 0; i < fit->table.count; i++) {
        double slope[ECH__LEAST_MAX];
        step_at(fit, form, x, point_of(&fit->table.row[i]), true, slope);
        for (int u = 0; u < normal.unknowns; u++)
            slope[u] /= step_time_of(&fit->table.row[i]);
        ech__normal_add(&normal, slope, 1);
    }
    for (int u = 0; u < normal.unknowns; u++)
        use[u] = u < fit->unknowns_of_c || rule->has[u - fit->unknowns_of_c];
    return ech__normal_inverse(&normal, use, inverse) ? ECH__FIT_TRIED : ECH__FIT_ALIKE;
}

/* ---- choice of forms ---- */

/* Root mean square error of rows of N > 1, each foreseen without any row of its run. */
static double left_out_error(const ech__fit *fit, ech__fit_form form, int runs)
{
    double sum = 0, slope[ECH__LEAST_MAX];
    int rows = 0;
    if (runs < 2)
        return NAN;
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        const point p = point_of(row);
        double x[ECH__LEAST_MAX] = {0};
        if (!exchanges(p))
            continue;
        solve(fit, form, x, &p);
        const double error = step_at(fit, form, x, p, false, slope) / step_time_of(row) - 1;
        sum += error * error;
        rows++;
    }
    return sqrt(sum / rows);
}

/* With one run of N > 1 there is nothing to compare: what has one unknown explains it. */
static void keep_forms(ech__fit *fit, int runs)
{
    double best = INFINITY;
    int least = runs < 2 ? 1 : ECH__LEAST_MAX;
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        if (fit->result[f].refusal == ECH__FIT_TRIED && runs > 1)
            best = fmin(best, fit->result[f].left_out);
    }
    const double bound = best * AS_GOOD + AS_GOOD_AT_LEAST;
    for (int f = 0; f < ECH__FIT_FORMS && runs > 1; f++) {
        const ech__fit_result *r = &fit->result[f];
        if (r->refusal == ECH__FIT_TRIED && r->left_out <= bound && forms[f].unknowns < least)
            least = forms[f].unknowns;
    }
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        ech__fit_result *r = &fit->result[f];
        r->kept = r->refusal == ECH__FIT_TRIED && forms[f].unknowns == least &&
                  (runs < 2 || r->left_out <= bound);
        fit->kept += r->kept;
    }
}

/* ---- intervals ---- */

static void find_spread(const ech__fit *fit, ech__fit_form form, ech__fit_result *r)
{
    bool use[ECH__LEAST_MAX] = {false};
    const ech__normal normal = straightened(fit, form, r->x, NULL, false);
    for (int u = 0; u < normal.unknowns; u++)
        use[u] = r->x[u] > 0;
    if (ech__normal_inverse(&normal, use, r->spread))
        return;
    /* What is hidden in every row leaves its terms open; C is still known. */
    for (int u = fit->unknowns_of_c; u < normal.unknowns; u++)
        use[u] = false;
    ech__normal_inverse(&normal, use, r->spread);
}

static void find_sigma(ech__fit *fit)
{
    double sum = 0;
    int used = 0;
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        const ech__fit_result *r = &fit->result[f];
        int own = 0;
        if (!r->kept)
            continue;
        sum += r->residual * r->residual * (double)fit->table.count / fit->kept;
        for (int u = 0; u < unknowns(fit); u++)
            own += r->x[u] > 0;
        used = own > used ? own : used;
    }
    const int left = (int)fit->table.count - used;
    const double noise = fit->options.noise;
    fit->freedom = (left > 0 ? left : 0) + NOISE_ROWS;
    fit->sigma = sqrt((sum + NOISE_ROWS * noise * noise) / fit->freedom);
    fit->t = ech__student(fit->options.confidence, fit->freedom);
}

/* A term at 0 has the interval that it would have if it were let in. */
static void find_terms(const ech__fit *fit, ech__fit_form form, ech__fit_result *r)
{
    const ech__normal normal = straightened(fit, form, r->x, NULL, true);
    for (int t = 0; t < ECH__FIT_TERMS; t++) {
        const int at = fit->unknowns_of_c + t;
        double variance = r->spread[at][at];
        if (!forms[form].has[t])
            continue;
        if (!(r->x[at] > 0)) {
            bool use[ECH__LEAST_MAX] = {false};
            double inverse[ECH__LEAST_MAX][ECH__LEAST_MAX];
            for (int u = 0; u < normal.unknowns; u++)
                use[u] = u == at || r->x[u] > 0;
            variance = ech__normal_inverse(&normal, use, inverse) ? inverse[at][at] : INFINITY;
        } else if (!(variance > 0)) {
            variance = INFINITY;
        }
        const double half = fit->t * fit->sigma * sqrt(variance);
        r->term[t] = (ech__fit_value){r->x[at], fmax(0, r->x[at] - half), r->x[at] + half};
        if (t == ECH__FIT_TERM_OVERLAP)
            r->term[t].high = fmin(1, r->term[t].high);
    }
}

ech_status ech__fit_table(ech_ctx *ctx, const char *what, const ech__table *table,
                          const ech__fit_options *options, ech__fit *out)
{
    memset(out, 0, sizeof *out);
    out->table = *table;
    out->options = *options;
    ECH_TRY(check_rows(ctx, what, table));
    ECH_TRY(find_knots(ctx, what, out));
    fit_affine(out);
    find_alike(out);
    const int runs = count_runs(out);
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        ech__fit_result *r = &out->result[f];
        r->refusal = refusal_of(out, (ech__fit_form)f, runs);
        if (r->refusal != ECH__FIT_TRIED)
            continue;
        const double sum = solve(out, (ech__fit_form)f, r->x, NULL);
        r->residual = sqrt(sum / (double)table->count);
        r->left_out = left_out_error(out, (ech__fit_form)f, runs);
        find_spread(out, (ech__fit_form)f, r);
    }
    keep_forms(out, runs);
    if (!out->kept)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s: its rows do not tell compute from exchange; rows of one device, or "
                         "of another batch, are needed",
                         what);
    find_sigma(out);
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        if (out->result[f].refusal == ECH__FIT_TRIED)
            find_terms(out, (ech__fit_form)f, &out->result[f]);
    }
    if (!out->knots) {
        for (int f = 0; f < ECH__FIT_FORMS; f++) {
            out->sample_s += out->result[f].kept ? out->result[f].x[0] / out->kept : 0;
            out->step_s += out->result[f].kept ? out->result[f].x[1] / out->kept : 0;
        }
    }
    return ECH_OK;
}

/* ---- what the fit says ---- */

/* Whether C of this batch stands on a row of its own. */
static bool is_knot(const ech__fit *fit, int64_t batch)
{
    for (int i = 0; i < fit->knots; i++) {
        if (fit->knot[i] == batch)
            return true;
    }
    return false;
}

ech__fit_value ech__fit_step(const ech__fit *fit, int64_t devices, int64_t batch, int64_t bytes,
                             bool run)
{
    const point p = {devices, batch, bytes};
    ech__fit_value all = {0, INFINITY, 0};
    const double bend = is_knot(fit, batch) ? 0 : fit->bend;
    for (int f = 0; f < ECH__FIT_FORMS; f++) {
        const ech__fit_result *r = &fit->result[f];
        double slope[ECH__LEAST_MAX], variance = run ? 1 : 0;
        if (!r->kept)
            continue;
        const double time = step_at(fit, (ech__fit_form)f, r->x, p, false, slope);
        for (int u = 0; u < unknowns(fit) && time > 0; u++) {
            for (int v = 0; v < unknowns(fit); v++)
                variance += slope[u] * r->spread[u][v] * slope[v] / (time * time);
        }
        const double half =
            fit->t * sqrt(fit->sigma * fit->sigma * fmax(variance, 0) + bend * bend);
        all.value += time / fit->kept;
        all.low = fmin(all.low, time * exp(-half));
        all.high = fmax(all.high, time * exp(fmin(half, 100)));
    }
    return all;
}
