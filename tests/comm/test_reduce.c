/* Reductions in every vector width that this machine has, against plain code that rounds in f64 and
 * adds in f32. */
#include "support/cmocka_first.h"

#include "comm/collective/reduce.h"
#include "price/tree.h"
#include "device/isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 9, LENGTH = 1100 };

static const ech__reduce_loops *tables[3];
static int ntables;

static int find_tables(void **state)
{
    (void)state;
    tables[ntables++] = &ech__reduce_generic;
#ifdef ECH_X86
    if (ech__isa_of_processor() >= ECH__ISA_AVX2)
        tables[ntables++] = &ech__reduce_avx2;
    if (ech__isa_of_processor() >= ECH__ISA_AVX512)
        tables[ntables++] = &ech__reduce_avx512;
#endif
    return 0;
}

/* ---- 16-bit floats by their definition ---- */

static double from_half(uint16_t h, int exponent_bits)
{
    const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (h & 0x7fff) >> mantissa_bits;
    const int mantissa = h & ((1 << mantissa_bits) - 1);
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/* The nearest of all finite values and infinity; of two, the even one. The absolute values are in
 * the order of their bits. */
static uint16_t to_half(double x, int exponent_bits)
{
    const int mantissa_bits = 15 - exponent_bits;
    const uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits);
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double a = fabs(x);
    if (isnan(x))
        return (uint16_t)(infinity | 1);
    uint16_t low = 0,
             high = infinity; /* from_half(low) <= a; high is the first above, or infinity */
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        if (from_half(middle, exponent_bits) <= a)
            low = middle;
        else
            high = middle;
    }
    /* Beyond the largest value, infinity stands where the next power of two would. */
    const double below = from_half(low, exponent_bits);
    const double above = high == infinity
                             ? 2 * below - from_half((uint16_t)(low - 1), exponent_bits)
                             : from_half(high, exponent_bits);
    const bool up = isinf(a) || a - below > above - a || (a - below == above - a && (low & 1));
    return (uint16_t)((up ? high : low) | sign);
}

static int exponent_bits(ech_dtype dtype)
{
    return dtype == ECH_BF16 ? 8 : 5;
}

/* ---- the reference ---- */

static double load(ech_dtype dtype, const void *data, int64_t i)
{
    if (dtype == ECH_F32)
        return ((const float *)data)[i];
    if (dtype == ECH_F64)
        return ((const double *)data)[i];
    if (dtype == ECH_S32)
        return ((const int32_t *)data)[i];
    return from_half(((const uint16_t *)data)[i], exponent_bits(dtype));
}

static double add(ech_dtype dtype, ech__reduction reduction, double a, double b)
{
    if (reduction == ECH__REDUCTION_MAX)
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    if (dtype == ECH_S32)
        return (int32_t)(uint32_t)(int64_t)(a + b);
    return dtype == ECH_F64 ? a + b : (double)((float)a + (float)b);
}

static double expected(const ech__reduce_task *t, int from, int n, int64_t i)
{
    if (n == 1)
        return load(t->dtype, t->src[from], i);
    const int half = ech__tree_split(n);
    return add(t->dtype, t->reduction, expected(t, from, half, i),
               expected(t, from + half, n - half, i));
}

static void compare(const ech__reduce_task *t, const void *dst, const double *sums)
{
    for (int64_t i = 0; i < t->count; i++) {
        double want = t->dtype == ECH_F64 || t->divisor == 1
                          ? sums[i] / t->divisor
                          : (double)((float)sums[i] / (float)t->divisor);
        if (t->dtype == ECH_BF16 || t->dtype == ECH_F16)
            want = from_half(to_half(want, exponent_bits(t->dtype)), exponent_bits(t->dtype));
        const double got = load(t->dtype, dst, i);
        if (isnan(want)) {
            assert_true(isnan(got));
            continue;
        }
        if (got != want || signbit(got) != signbit(want))
            fail_msg("%s %s over %d: element %d is %.17g, not %.17g", ech__dtype_name(t->dtype),
                     ech__reduction_name(t->reduction), t->nsrc, (int)i, got, want);
    }
}

/* ---- data ---- */

static uint32_t state32 = 1;

static uint32_t draw(void)
{
    state32 ^= state32 << 13;
    state32 ^= state32 >> 17;
    state32 ^= state32 << 5;
    return state32;
}

/* 16-bit types take any bits at all: NaN, infinities, numbers below the normal ones. */
static void fill(ech_dtype dtype, void *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t x = draw();
        const double f = ldexp((double)(int32_t)draw(), (int)(x % 40) - 40);
        if (dtype == ECH_F32)
            ((float *)data)[i] = x % 97 == 0 ? NAN : (float)f;
        else if (dtype == ECH_F64)
            ((double *)data)[i] = x % 97 == 0 ? NAN : f;
        else if (dtype == ECH_S32)
            ((int32_t *)data)[i] = (int32_t)x;
        else
            ((uint16_t *)data)[i] = (uint16_t)(x >> 7);
    }
}

static void one_case(ech_dtype dtype, ech__reduction reduction, int nsrc, int64_t count)
{
    static char first[MOST][LENGTH * 8], work[MOST][LENGTH * 8], other[LENGTH * 8];
    static double sums[LENGTH];
    const void *src[MOST], *kept[MOST];
    void *dst[MOST];
    for (int r = 0; r < nsrc; r++) {
        fill(dtype, first[r], count);
        kept[r] = first[r];
        src[r] = dst[r] = work[r];
    }
    const int divisor = reduction == ECH__REDUCTION_MEAN ? nsrc : 1;
    ech__reduce_task t = {reduction, dtype, count, kept, NULL, nsrc, 0, divisor};
    for (int64_t i = 0; i < count; i++)
        sums[i] = expected(&t, 0, nsrc, i);
    for (int k = 0; k < ntables; k++) {
        /* In place into all, then into one that is none of the sources. */
        memcpy(work, first, sizeof work);
        ech__reduce_task in_place = {reduction, dtype, count, src, dst, nsrc, nsrc, divisor};
        tables[k]->run(&in_place);
        for (int r = 0; r < nsrc; r++)
            compare(&t, work[r], sums);
        memset(other, 0x5a, sizeof other);
        ech__reduce_task apart = {reduction,         dtype, count, kept,
                                  (void *[]){other}, nsrc,  1,     divisor};
        tables[k]->run(&apart);
        compare(&t, other, sums);
        assert_int_equal(other[count * ech__dtype_bytes(dtype)], 0x5a);
    }
}

static void all_types_and_sizes(void **state)
{
    (void)state;
    const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16, ECH_S32};
    const int64_t counts[] = {1, 7, 16, 31, 512, 1031};
    for (int d = 0; d < 5; d++)
        for (int op = 0; op < ECH__REDUCTION_COUNT; op++)
            for (int n = 1; n <= MOST; n++)
                for (int c = 0; c < 6; c++)
                    if (dtypes[d] != ECH_S32 || op != ECH__REDUCTION_MEAN)
                        one_case(dtypes[d], (ech__reduction)op, n, counts[c]);
}

/* Every f16 and bf16 value comes through unchanged, and each sum of two neighbours is rounded to
 * even. */
static void every_half_is_right(void **state)
{
    (void)state;
    static uint16_t a[65536], b[65536], out[65536];
    static double sums[65536];
    for (int d = 0; d < 2; d++)
        for (int shift = 0; shift < 3; shift++) {
            const ech_dtype dtype = d ? ECH_F16 : ECH_BF16;
            for (int i = 0; i < 65536; i++) {
                a[i] = (uint16_t)i;
                b[i] = (uint16_t)(shift == 0 ? 0 : i + shift); /* + 0 gives every value itself */
            }
            const void *src[] = {a, b};
            ech__reduce_task t = {ECH__REDUCTION_SUM, dtype, 65536, src, (void *[]){out}, 2, 1, 1};
            for (int i = 0; i < 65536; i++)
                sums[i] = expected(&t, 0, 2, i);
            for (int k = 0; k < ntables; k++) {
                tables[k]->run(&t);
                compare(&t, out, sums);
            }
        }
}

static void many_ranks(void **state)
{
    (void)state;
    static int32_t data[ECH__MAX_RANKS_PER_NODE][3];
    const void *src[ECH__MAX_RANKS_PER_NODE];
    int32_t out[3];
    for (int r = 0; r < ECH__MAX_RANKS_PER_NODE; r++) {
        src[r] = data[r];
        for (int i = 0; i < 3; i++)
            data[r][i] = r * (i + 1);
    }
    assert_int_equal(
        ech__reduce(NULL, ECH__REDUCTION_SUM, ECH_S32, 3, src, 256, (void *[]){out}, 1, 1), ECH_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(out[i], 255 * 128 * (i + 1));
}

static void refuses_other_types(void **state)
{
    (void)state;
    ech_ctx *ctx;
    int8_t x[4] = {0};
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__reduce(ctx, ECH__REDUCTION_SUM, ECH_S8, 4, (const void *[]){x}, 1,
                                 (void *[]){x}, 1, 1),
                     ECH_E_UNSUPPORTED);
    assert_string_equal(ech_ctx_error(ctx), "there is no sum over s8");
    assert_int_equal(ech__reduce(ctx, ECH__REDUCTION_MEAN, ECH_S32, 1, (const void *[]){x}, 1,
                                 (void *[]){x}, 1, 1),
                     ECH_E_UNSUPPORTED);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_types_and_sizes),
        cmocka_unit_test(every_half_is_right),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(refuses_other_types),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
