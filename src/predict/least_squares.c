#include "predict/least_squares.h"

#include <math.h>
#include <string.h>

/* A pivot below this part of its column's square means: the column is a sum of others, up to rounding. */
static const double SINGULAR = 1e-9;

typedef double matrix[ECH__LEAST_MAX][ECH__LEAST_MAX];

void ech__normal_add(ech__normal *normal, const double *row, double y)
{
    for (int i = 0; i < normal->unknowns; i++) {
        for (int j = 0; j < normal->unknowns; j++)
            normal->square[i][j] += row[i] * row[j];
        normal->right[i] += row[i] * y;
    }
}

/* Cholesky's factor of the scaled square over the unknowns in use: columns are brought to length 1 first, because unknowns
 * are seconds per byte beside seconds per step. Returns false at the first unknown that depends on those before it. */
static bool factor(const ech__normal *n, const bool *use, matrix lower, double *scale)
{
    memset(lower, 0, sizeof(matrix));
    for (int i = 0; i < n->unknowns; i++) {
        scale[i] = n->square[i][i] > 0 ? 1 / sqrt(n->square[i][i]) : 0;
        if (!use[i])
            continue;
        if (!(scale[i] > 0) || !isfinite(scale[i]))
            return false;
        for (int j = 0; j <= i; j++) {
            if (!use[j])
                continue;
            double sum = n->square[i][j] * scale[i] * scale[j];
            for (int k = 0; k < j; k++)
                sum -= lower[i][k] * lower[j][k];
            if (i != j)
                lower[i][j] = sum / lower[j][j];
            else if (sum > SINGULAR)
                lower[i][i] = sqrt(sum);
            else
                return false;
        }
    }
    return true;
}

/* Solves over the unknowns in use; x is 0 elsewhere. */
static bool solve_used(const ech__normal *n, const bool *use, const double *right, double *x)
{
    matrix lower;
    double scale[ECH__LEAST_MAX];
    if (!factor(n, use, lower, scale))
        return false;
    for (int i = 0; i < n->unknowns; i++) {
        x[i] = 0;
        if (!use[i])
            continue;
        double sum = right[i] * scale[i];
        for (int k = 0; k < i; k++)
            sum -= lower[i][k] * x[k];
        x[i] = sum / lower[i][i];
    }
    for (int i = n->unknowns - 1; i >= 0; i--) {
        if (!use[i])
            continue;
        for (int k = i + 1; k < n->unknowns; k++)
            x[i] -= lower[k][i] * x[k];
        x[i] /= lower[i][i];
    }
    for (int i = 0; i < n->unknowns; i++)
        x[i] *= scale[i];
    return true;
}

bool ech__normal_inverse(const ech__normal *normal, const bool *use,
                         double out[ECH__LEAST_MAX][ECH__LEAST_MAX])
{
    memset(out, 0, sizeof(matrix));
    for (int i = 0; i < normal->unknowns; i++) {
        double unit[ECH__LEAST_MAX] = {0};
        unit[i] = 1;
        if (use[i] && !solve_used(normal, use, unit, out[i]))
            return false;
    }
    return true;
}

/* The unknown outside of the set that would lower the sum of squares most; -1: none would. */
static int steepest(const ech__normal *n, const bool *use, const bool *barred, const double *x)
{
    int best = -1;
    double best_gain = 1e-12;
    for (int i = 0; i < n->unknowns; i++) {
        if (use[i] || barred[i] || !(n->square[i][i] > 0))
            continue;
        double slope = n->right[i], size = fabs(n->right[i]);
        for (int j = 0; j < n->unknowns; j++) {
            slope -= n->square[i][j] * x[j];
            size += fabs(n->square[i][j] * x[j]);
        }
        const double gain = slope / size;
        if (gain > best_gain) {
            best_gain = gain;
            best = i;
        }
    }
    return best;
}

/* Goes from x towards target until the first unknown in use is 0, and takes it out. Returns false when it gets there. */
static bool step_back(const ech__normal *n, bool *use, const double *target, double *x)
{
    double share = 1;
    int out = -1;
    for (int i = 0; i < n->unknowns; i++) {
        if (!use[i] || target[i] > 0)
            continue;
        const double part = x[i] > 0 ? x[i] / (x[i] - target[i]) : 0;
        if (out < 0 || part < share) {
            share = part;
            out = i;
        }
    }
    for (int i = 0; i < n->unknowns; i++)
        x[i] = use[i] ? x[i] + share * (target[i] - x[i]) : 0;
    if (out < 0)
        return false;
    use[out] = false;
    x[out] = 0;
    return true;
}

void ech__normal_solve(const ech__normal *normal, double *x)
{
    bool use[ECH__LEAST_MAX] = {false}, barred[ECH__LEAST_MAX] = {false};
    for (int i = 0; i < normal->unknowns; i++)
        x[i] = 0;
    /* Each turn lowers the sum or bars an unknown; the bound only guards against rounding. */
    for (int turn = 0; turn < 8 * ECH__LEAST_MAX; turn++) {
        double target[ECH__LEAST_MAX];
        const int next = steepest(normal, use, barred, x);
        if (next < 0)
            return;
        use[next] = true;
        if (!solve_used(normal, use, normal->right, target) || !(target[next] > 0)) {
            use[next] = false;
            barred[next] = true;
            continue;
        }
        while (step_back(normal, use, target, x)) {
            if (!solve_used(normal, use, normal->right, target))
                return;
        }
    }
}
