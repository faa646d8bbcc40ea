/* Least squares with few unknowns that may not be negative. Pure functions over small arrays.
 *
 *     ech__normal n = {.unknowns = 3};
 *     ech__normal_add(&n, row, y);                 once for each equation: row . x = y
 *     ech__normal_solve(&n, x);                    the non-negative x with the least sum of squares
 */
#pragma once

#include <stdbool.h>

enum { ECH__LEAST_MAX = 20 };

/* The normal equations A^T A x = A^T y. */
typedef struct ech__normal {
    int unknowns;
    double square[ECH__LEAST_MAX][ECH__LEAST_MAX]; /* A^T A */
    double right[ECH__LEAST_MAX];                  /* A^T y */
} ech__normal;

void ech__normal_add(ech__normal *normal, const double *row, double y);
/* By Lawson and Hanson's active sets. An unknown that the equations do not determine beside the others is 0. */
void ech__normal_solve(const ech__normal *normal, double *x);
/* The inverse of A^T A over the unknowns with use[i], 0 elsewhere. False where they cannot be told apart. */
bool ech__normal_inverse(const ech__normal *normal, const bool *use,
                         double out[ECH__LEAST_MAX][ECH__LEAST_MAX]);
