/* Types and shapes. */
#include "tensor/shape.h"

#include "support/cmocka_first.h"
#include <string.h>

static void every_type_has_a_name_and_a_size(void **state)
{
    (void)state;
    static const struct {
        ech_dtype dtype;
        const char *name;
        int64_t bytes;
    } types[] = {{ECH_F32, "f32", 4}, {ECH_F64, "f64", 8}, {ECH_BF16, "bf16", 2},
                 {ECH_F16, "f16", 2}, {ECH_S8, "s8", 1},   {ECH_U8, "u8", 1},
                 {ECH_S32, "s32", 4}, {ECH_S64, "s64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_string_equal(ech__dtype_name(types[i].dtype), types[i].name);
        assert_int_equal(ech__dtype_bytes(types[i].dtype), types[i].bytes);
    }
    assert_string_equal(ech__dtype_name((ech_dtype)8), "unknown");
    assert_string_equal(ech__dtype_name((ech_dtype)-1), "unknown");
}

static void shapes_are_equal_dimension_by_dimension(void **state)
{
    (void)state;
    const ech__shape a = {2, {3, 4}};
    assert_true(ech__shape_equal(&a, &(ech__shape){2, {3, 4}}));
    /* What stands behind the last dimension does not count. */
    assert_true(ech__shape_equal(&a, &(ech__shape){2, {3, 4, 9}}));
    assert_false(ech__shape_equal(&a, &(ech__shape){2, {4, 3}}));
    assert_false(ech__shape_equal(&a, &(ech__shape){3, {3, 4, 1}}));
    assert_false(ech__shape_equal(&a, &(ech__shape){1, {3}}));
    assert_true(ech__shape_equal(&(ech__shape){0}, &(ech__shape){0}));
}

static void binding_puts_the_batch_in(void **state)
{
    (void)state;
    const ech__shape open = {3, {ECH_BATCH, 7, ECH_BATCH}}, bound = ech__shape_bind(&open, 32);
    assert_true(ech__shape_equal(&bound, &(ech__shape){3, {32, 7, 32}}));
    assert_int_equal(open.dims[0], ECH_BATCH);
}

static void elements_are_counted_with_care(void **state)
{
    (void)state;
    int64_t count = -5;
    assert_true(ech__shape_elems(&(ech__shape){0}, &count));
    assert_int_equal(count, 1);
    assert_true(ech__shape_elems(&(ech__shape){3, {2, 3, 4}}, &count));
    assert_int_equal(count, 24);
    assert_true(ech__shape_elems(&(ech__shape){2, {5, 0}}, &count));
    assert_int_equal(count, 0);
    assert_true(ech__shape_elems(&(ech__shape){2, {INT64_MAX, 1}}, &count));
    assert_true(count == INT64_MAX);
    count = 7;
    assert_false(ech__shape_elems(&(ech__shape){2, {(int64_t)1 << 32, (int64_t)1 << 31}}, &count));
    assert_false(ech__shape_elems(&(ech__shape){2, {ECH_BATCH, 4}}, &count));
    assert_false(ech__shape_elems(&(ech__shape){1, {-2}}, &count));
    assert_int_equal(count, 7);
}

static void shapes_are_shown(void **state)
{
    (void)state;
    assert_string_equal(ech__shape_format(&(ech__shape){0}).s, "[]");
    assert_string_equal(ech__shape_format(&(ech__shape){1, {5}}).s, "[5]");
    assert_string_equal(ech__shape_format(&(ech__shape){2, {ECH_BATCH, 1024}}).s, "[N, 1024]");
    const ech__shape wide = {ECH_MAX_DIMS,
                             {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    const ech__shape_text text = ech__shape_format(&wide);
    assert_true(strlen(text.s) < sizeof text.s);
    assert_memory_equal(text.s, "[9223372036854775807, 9223372036854775807", 41);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_a_name_and_a_size),
        cmocka_unit_test(shapes_are_equal_dimension_by_dimension),
        cmocka_unit_test(binding_puts_the_batch_in),
        cmocka_unit_test(elements_are_counted_with_care),
        cmocka_unit_test(shapes_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
