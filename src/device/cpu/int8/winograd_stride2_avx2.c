/* Stride 2. */
#include "device/cpu/int8/avx2.h"

#define LOOPS ech__int8_winograd_stride2_avx2
enum { SIDE = 9, BOUND = 1 << 29 };
static const int TWOS[TILE] = {1, 1, 1, 1}; /* in 6 */

INLINE void spread(v16 a, v16 b, v16 c, v16 *out, int step)
{
    out[0] = 3 * a;
    out[step] = -3 * (a + c);
    out[2 * step] = c - a;
    out[3 * step] = a + 2 * c;
    out[4 * step] = 6 * c;
    out[5 * step] = 6 * b;
}

INLINE void gather(const v16 *d, int step, v16 *out, int out_step)
{
    const v16 d0 = d[0], d2 = d[2 * step], d4 = d[4 * step], d6 = d[6 * step], d8 = d[8 * step];
    const v16 a = d6 - d2, b = d6 - d4, c = d2 + d2;
    out[0] = 2 * (d0 - d4) + a;
    out[out_step] = b - c;
    out[2 * out_step] = b + c - 2 * d4;
    out[3 * out_step] = a;
    out[4 * out_step] = d8 - d4 - 2 * a;
    out[5 * out_step] = d[step];
    out[6 * out_step] = d[3 * step];
    out[7 * out_step] = d[5 * step];
    out[8 * out_step] = d[7 * step];
}

INLINE void collect(const v8u m[SIDE], v8u out[TILE])
{
    const v8u plus = m[1] + m[2], minus = m[1] - m[2], twice = m[3] + m[3];
    out[0] = m[0] + plus + m[3] + m[5];
    out[1] = minus + twice + m[6];
    out[2] = plus + 2 * twice + m[7];
    out[3] = minus + 4 * twice + m[4] + m[8];
}

#include "device/cpu/int8/winograd_body.h"
