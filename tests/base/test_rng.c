/* Philox 4x32-10 against its published vectors, and the distributions made from it. */
#include "base/rng.h"

#include "support/cmocka_first.h"
#include <math.h>

/* From the known-answer file of the Random123 library: counter, key, result. */
static const struct {
    uint32_t counter[4], key[2], want[4];
} vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static uint64_t join(const uint32_t words[2])
{
    return (uint64_t)words[1] << 32 | words[0];
}

static void published_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t got[4];
        ech__rng_block(join(vectors[i].key), join(vectors[i].counter + 2), join(vectors[i].counter),
                       got);
        assert_memory_equal(got, vectors[i].want, sizeof got);
    }
}

static void streams_are_named_by_fnv(void **state)
{
    (void)state;
    /* FNV-1a of "" and "a" as its authors publish them. */
    assert_true(ech__rng_stream("") == 0xcbf29ce484222325u);
    assert_true(ech__rng_stream("a") == 0xaf63dc4c8601ec8cu);
    assert_true(ech__rng_stream("foobar") == 0x85944171f73967e8u);
}

static void a_number_depends_on_its_place_only(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    float forward[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        forward[i] = ech__rng_uniform(7, 8, i);
    for (uint64_t i = COUNT; i-- > 0;)
        assert_true(ech__rng_uniform(7, 8, i) == forward[i]);
    /* Another seed, stream or place gives another number nearly always. */
    int same = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        same += ech__rng_uniform(6, 8, i) == forward[i];
        same += ech__rng_uniform(7, 9, i) == forward[i];
        same += ech__rng_uniform(7, 8, i + 1) == forward[i];
    }
    assert_true(same <= 1);
}

/* The words of a block become the next four numbers. */
static void a_uniform_number_has_24_bits(void **state)
{
    (void)state;
    uint32_t words[4];
    ech__rng_block(1, 2, 5, words);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(ech__rng_uniform(1, 2, 20 + i) == (float)(words[i] >> 8) / 16777216.0f);
}

enum { SAMPLES = 200000 };

static void uniform_numbers_are_uniform(void **state)
{
    (void)state;
    int bins[20] = {0};
    double sum = 0, product = 0, before = 0.5;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const float u = ech__rng_uniform(42, ech__rng_stream("w"), i);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * 20)]++;
        sum += (double)u;
        product += ((double)u - 0.5) * (before - 0.5);
        before = (double)u;
    }
    /* Mean 1/2 and no correlation of neighbours, each within 5 standard errors. */
    const double root = sqrt(SAMPLES);
    assert_true(fabs(sum / SAMPLES - 0.5) < 5 * sqrt(1.0 / 12) / root);
    assert_true(fabs(product / SAMPLES) < 5 * (1.0 / 12) / root);
    double chi2 = 0;
    for (int i = 0; i < 20; i++)
        chi2 += pow(bins[i] - SAMPLES / 20.0, 2) / (SAMPLES / 20.0);
    /* 19 degrees of freedom: between the 0.01 % and 99.99 % points. */
    assert_true(chi2 > 3.0 && chi2 < 51.0);
}

static void normal_numbers_are_normal(void **state)
{
    (void)state;
    double sum[5] = {0}, pairs = 0;
    int inside = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const double x = (double)ech__rng_normal(42, 1, i);
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++)
            sum[k] += pow(x, k);
        inside += fabs(x) < 1;
        if (i % 2)
            pairs += x * (double)ech__rng_normal(42, 1, i - 1);
    }
    /* The standard errors of the moments are 1, sqrt(2), sqrt(15) and sqrt(96) over the root of the count. */
    const double root = sqrt(SAMPLES);
    assert_true(fabs(sum[1] / SAMPLES) < 5 / root);
    assert_true(fabs(sum[2] / SAMPLES - 1) < 5 * sqrt(2) / root);
    assert_true(fabs(sum[3] / SAMPLES) < 5 * sqrt(15) / root);
    assert_true(fabs(sum[4] / SAMPLES - 3) < 5 * sqrt(96) / root);
    assert_true(fabs((double)inside / SAMPLES - 0.682689492) < 5 * 0.4655 / root);
    assert_true(fabs(pairs / (SAMPLES / 2.0)) < 5 / sqrt(SAMPLES / 2.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(streams_are_named_by_fnv),
        cmocka_unit_test(a_number_depends_on_its_place_only),
        cmocka_unit_test(a_uniform_number_has_24_bits),
        cmocka_unit_test(uniform_numbers_are_uniform),
        cmocka_unit_test(normal_numbers_are_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
