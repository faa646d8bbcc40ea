/* Data for collectives whose results are known for each rank and position, to the bit.
 *
 * Elements are small whole numbers, a(i) + (h(i) + rank) mod world, with a and h scattered over the
 * positions. Sums are exact in f32, means are multiples of a half, and the rank that has the
 * largest differs from position to position; so a missing, doubled or misplaced part is seen,
 * whatever the type and the reduction. */
#pragma once

#include "comm/comm.h"

/* The element of a rank at a position, and what a reduction over all ranks makes of that position. */
float ech__bench_value(int rank, int world, int64_t position);
float ech__bench_reduced(ech__reduction reduction, int world, int64_t position);

/* Element i of data, in one of the types that can be reduced; rounds to nearest even. */
void ech__bench_store(ech_dtype dtype, void *data, int64_t i, float value);
/* Whether it is that value, rounded like that. */
bool ech__bench_holds(ech_dtype dtype, const void *data, int64_t i, float value);
