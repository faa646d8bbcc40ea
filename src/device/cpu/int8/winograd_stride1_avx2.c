/* Stride 1. */
#include "device/cpu/int8/avx2.h"

#define LOOPS ech__int8_winograd_stride1_avx2
enum { SIDE = 6, BOUND = 1 << 25 };
static const int TWOS[TILE] = {3, 2, 1, 1}; /* in 24, 12, 6, 6 */

INLINE void spread(v16 a, v16 b, v16 c, v16 *out, int step)
{
    const v16 even = a + 4 * c, odd = 2 * b;
    out[0] = 6 * a;
    out[step] = -(a + b + c);
    out[2 * step] = b - a - c;
    out[3 * step] = even + odd;
    out[4 * step] = even - odd;
    out[5 * step] = 6 * c;
}

INLINE void gather(const v16 *d, int step, v16 *out, int out_step)
{
    const v16 d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
              d5 = d[5 * step];
    const v16 a = d4 - 4 * d2, b = d3 - 4 * d1, c = d4 - d2, e = 2 * (d3 - d1);
    out[0] = 4 * d0 + a - d2;
    out[out_step] = a + b;
    out[2 * out_step] = a - b;
    out[3 * out_step] = c + e;
    out[4 * out_step] = c - e;
    out[5 * out_step] = d5 - d3 - (e + e);
}

INLINE void collect(const v8u m[SIDE], v8u out[TILE])
{
    const v8u plus = m[1] + m[2], minus = m[1] - m[2], more = m[3] + m[4], less = m[3] - m[4];
    out[0] = m[0] + 4 * plus + more;
    out[1] = minus + minus + less;
    out[2] = plus + more;
    out[3] = minus + less + less + m[5];
}

#include "device/cpu/int8/winograd_body.h"
