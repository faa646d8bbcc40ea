/* bf16 and f16: every number there and back, and the nearest of its neighbours for every kind of f32. */
#include "base/rng.h"
#include "support/cmocka_first.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

static const ech_dtype TYPES[] = {ECH_BF16, ECH_F16};

static float widened(ech_dtype dtype, uint16_t h)
{
    float x;
    ech__widen(dtype, 1, &h, &x);
    return x;
}

static uint16_t narrowed(ech_dtype dtype, float x)
{
    uint16_t h;
    ech__narrow(dtype, 1, &x, &h);
    return h;
}

static void known_numbers(void **state)
{
    (void)state;
    const struct {
        ech_dtype dtype;
        uint16_t h;
        double x;
    } known[] = {
        {ECH_BF16, 0x0000, 0},          {ECH_BF16, 0x3f80, 1},
        {ECH_BF16, 0xc040, -3},         {ECH_BF16, 0x0080, 0x1p-126},
        {ECH_BF16, 0x0001, 0x1p-133},   {ECH_BF16, 0x7f7f, 0x1.fep127},
        {ECH_F16, 0x3c00, 1},           {ECH_F16, 0xc200, -3},
        {ECH_F16, 0x0400, 0x1p-14},     {ECH_F16, 0x0001, 0x1p-24},
        {ECH_F16, 0x03ff, 0x1.ff8p-15}, {ECH_F16, 0x7bff, 65504},
        {ECH_F16, 0x8001, -0x1p-24},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true((double)widened(known[i].dtype, known[i].h) == known[i].x);
        assert_int_equal(narrowed(known[i].dtype, (float)known[i].x), known[i].h);
    }
}

static void every_number_comes_back(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        for (uint32_t h = 0; h < 0x10000; h++) {
            const float x = widened(TYPES[t], (uint16_t)h);
            const uint16_t back = narrowed(TYPES[t], x);
            if (isnan(x))
                assert_true(isnan(widened(TYPES[t], back)));
            else
                assert_int_equal(back, h);
        }
    }
}

/* Where two neighbours are as near, the one with an even last bit. */
static void check_nearest(ech_dtype dtype, float x)
{
    const uint16_t h = narrowed(dtype, x);
    if (isnan(x)) {
        assert_true(isnan(widened(dtype, h)));
        return;
    }
    assert_int_equal(signbit(x) != 0, h >> 15);
    const double largest = dtype == ECH_BF16 ? 0x1.fep127 : 65504;
    const double beyond = dtype == ECH_BF16 ? 0x1p128 : 65536; /* stands for infinity */
    const double size = fabs((double)x), far = (largest + beyond) / 2;
    const uint16_t rest = h & 0x7fff;
    if (size >= far) { /* the tie too: infinity is even */
        assert_true(isinf(widened(dtype, h)));
        return;
    }
    const double error = fabs(size - (double)widened(dtype, rest));
    for (int step = -1; step <= 1; step += 2) {
        if (step < 0 && rest == 0)
            continue;
        const double next = (double)widened(dtype, (uint16_t)(rest + step));
        const double other = fabs(size - (isinf(next) ? beyond : next));
        assert_true(error < other || (error == other && !(rest & 1)));
    }
}

static void the_nearest_is_taken(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        for (uint32_t k = 0; k < 200000; k++) { /* f32 of all exponents */
            const uint32_t bits = (uint32_t)(ech__rng_uniform(1, 2, k) * 0x1p16f) << 16 |
                                  (uint32_t)(ech__rng_uniform(1, 3, k) * 0x1p16f);
            check_nearest(TYPES[t], ech__float_of_bits(bits));
        }
        for (uint32_t h = 0; h < 0x10000;
             h++) { /* half way to the next, and on both sides of that */
            const float x = widened(TYPES[t], (uint16_t)h);
            const float y = widened(TYPES[t], (uint16_t)(h + 1));
            if (!isfinite(x) || !isfinite(y))
                continue;
            const float middle = (float)(((double)x + (double)y) / 2);
            check_nearest(TYPES[t], middle);
            check_nearest(TYPES[t], nextafterf(middle, x));
            check_nearest(TYPES[t], nextafterf(middle, y));
        }
        const float special[] = {INFINITY, -INFINITY, NAN, -NAN, 65519.996f, 65520, 65536, 3.4e38f};
        for (size_t k = 0; k < sizeof special / sizeof *special; k++)
            check_nearest(TYPES[t], special[k]);
    }
    /* A NaN whose only bits are in the part that is cut off. */
    assert_true(isnan(widened(ECH_BF16, narrowed(ECH_BF16, ech__float_of_bits(0x7f800001)))));
    assert_true(isnan(widened(ECH_F16, narrowed(ECH_F16, ech__float_of_bits(0x7f800001)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_numbers),
        cmocka_unit_test(every_number_comes_back),
        cmocka_unit_test(the_nearest_is_taken),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
