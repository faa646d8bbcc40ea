#include "support/cmocka_first.h"
#include "tensor/layout.h"

#include <stdlib.h>
#include <string.h>

static const ech__shape MATRIX = {2, {70, 19}};

/* As oneDNN lays out the weight of an inner product: columns in blocks of 16, of rows in blocks of 64. */
static ech__layout blocked(void)
{
    return (ech__layout){.shape = MATRIX,
                         .padded = {128, 32},
                         .strides = {64 * 32, 64 * 16},
                         .nblocks = 2,
                         .block_axis = {1, 0},
                         .block_size = {16, 64}};
}

/* Two blocks of one axis, as bf16 kernels pair neighbours: AB16b64a2b. */
static ech__layout blocked_in_pairs(void)
{
    return (ech__layout){.shape = MATRIX,
                         .padded = {128, 32},
                         .strides = {64 * 32, 64 * 32},
                         .nblocks = 3,
                         .block_axis = {1, 0, 1},
                         .block_size = {16, 64, 2}};
}

static int64_t extent(const ech__layout *layout)
{
    int64_t count = -1;
    assert_true(ech__layout_extent(layout, &count));
    return count;
}

static void tags(void **state)
{
    (void)state;
    const ech__shape scalar = {0, {0}}, vector = {1, {5}}, cube = {3, {2, 3, 4}};
    const ech__layout layouts[] = {
        ech__layout_plain(&scalar), ech__layout_plain(&vector),      ech__layout_plain(&MATRIX),
        ech__layout_plain(&cube),   ech__layout_transposed(&MATRIX), blocked(),
        blocked_in_pairs()};
    const char *const want[] = {"", "a", "ab", "abc", "ba", "AB16b64a", "AB16b64a2b"};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++)
        assert_string_equal(ech__layout_tag(&layouts[k]).s, want[k]);
}

/* An axis of one element has no place of its own: layouts that differ only there are the same. */
static void tags_of_equal_layouts(void **state)
{
    (void)state;
    const ech__shape shapes[] = {{2, {1, 5}}, {2, {5, 1}}, {2, {1, 1}}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const ech__layout rows = ech__layout_plain(&shapes[k]);
        const ech__layout columns = ech__layout_transposed(&shapes[k]);
        assert_true(ech__layout_equal(&rows, &columns));
        assert_string_equal(ech__layout_tag(&columns).s, "ab");
        assert_string_equal(ech__layout_tag(&rows).s, "ab");
    }
    ech__layout one = {.shape = {3, {1, 4, 3}}, .padded = {1, 4, 3}, .strides = {12, 1, 4}};
    ech__layout other = one;
    other.strides[0] = 1;
    assert_true(ech__layout_equal(&one, &other));
    assert_string_equal(ech__layout_tag(&one).s, ech__layout_tag(&other).s);
}

static void extents(void **state)
{
    (void)state;
    const ech__shape scalar = {0, {0}}, huge = {2, {INT64_C(1) << 40, INT64_C(1) << 40}};
    const ech__layout one = ech__layout_plain(&scalar), rows = ech__layout_plain(&MATRIX);
    const ech__layout blocks = blocked();
    assert_int_equal(extent(&one), 1);
    assert_int_equal(extent(&rows), 70 * 19);
    assert_int_equal(extent(&blocks), 128 * 32);
    const ech__layout over = {.shape = huge, .padded = {huge.dims[0], huge.dims[1]}};
    int64_t count;
    assert_false(ech__layout_extent(&over, &count));
}

static void equality(void **state)
{
    (void)state;
    const ech__layout rows = ech__layout_plain(&MATRIX), columns = ech__layout_transposed(&MATRIX);
    const ech__layout blocks = blocked(), pairs = blocked_in_pairs();
    const ech__layout *all[] = {&rows, &columns, &blocks, &pairs};
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++)
            assert_int_equal(ech__layout_equal(all[a], all[b]), a == b);
        assert_int_equal(ech__layout_is_plain(all[a]), a == 0);
    }
    ech__layout changed = blocks;
    changed.block_size[0] = 8;
    assert_false(ech__layout_equal(&blocks, &changed));
    changed = blocks;
    changed.block_axis[0] = 0;
    assert_false(ech__layout_equal(&blocks, &changed));
    changed = blocks;
    changed.padded[0] = 192;
    assert_false(ech__layout_equal(&blocks, &changed));
    changed = rows;
    changed.shape.dims[0]--;
    assert_false(ech__layout_equal(&rows, &changed));
}

/* Where elements lie, by the definition of the two layouts and not by the code under test. */
static void places(void **state)
{
    (void)state;
    const ech__layout columns = ech__layout_transposed(&MATRIX), blocks = blocked();
    const ech__layout pairs = blocked_in_pairs();
    static int32_t canonical[70 * 19], memory[128 * 32];
    for (int32_t k = 0; k < 70 * 19; k++)
        canonical[k] = k + 1;
    ech__layout_scatter(&columns, 4, 0, 70 * 19, canonical, memory);
    assert_int_equal(memory[3 * 70 + 65], canonical[65 * 19 + 3]);
    memset(memory, 0, sizeof memory);
    ech__layout_scatter(&blocks, 4, 0, 70 * 19, canonical, memory);
    /* Row 65 = 64 + 1, column 18 = 16 + 2: outer block (1, 1), then [2 of 16][1 of 64]. */
    assert_int_equal(memory[64 * 32 + 64 * 16 + 2 * 64 + 1], canonical[65 * 19 + 18]);
    memset(memory, 0, sizeof memory);
    ech__layout_scatter(&pairs, 4, 0, 70 * 19, canonical, memory);
    /* Column 18 = 9 * 2 + 0: outer block (1, 0), then [9 of 16][1 of 64][0 of 2]. */
    assert_int_equal(memory[64 * 32 + 9 * 128 + 1 * 2 + 0], canonical[65 * 19 + 18]);
}

static void check_round_trip(const ech__layout *layout, int64_t elem, int64_t chunk)
{
    int64_t elems;
    assert_true(ech__shape_elems(&layout->shape, &elems));
    const size_t data = (size_t)(elems * elem), whole = (size_t)(extent(layout) * elem);
    unsigned char *from = malloc(data), *to = malloc(data), *memory = malloc(whole);
    assert_true(from && to && memory);
    for (size_t k = 0; k < data; k++)
        from[k] = (unsigned char)(k * 7 % 255);
    memset(to, 0xff, data);
    memset(memory, 0xff, whole); /* no byte of the data is 0xff */
    for (int64_t k = 0; k < elems; k += chunk) {
        const int64_t count = elems - k < chunk ? elems - k : chunk;
        ech__layout_scatter(layout, elem, k, count, from + k * elem, memory);
    }
    int64_t padding = 0;
    for (size_t k = 0; k < whole; k++)
        padding += memory[k] == 0xff;
    assert_int_equal(padding,
                     whole - data); /* each element has its own place; no padding is written */
    for (int64_t k = 0; k < elems; k += chunk) {
        const int64_t count = elems - k < chunk ? elems - k : chunk;
        ech__layout_gather(layout, elem, k, count, memory, to + k * elem);
    }
    assert_memory_equal(from, to, data);
    free(from);
    free(to);
    free(memory);
}

static void round_trips(void **state)
{
    (void)state;
    const ech__shape cube = {3, {3, 5, 4}}, scalar = {0, {0}};
    const ech__layout layouts[] = {
        ech__layout_plain(&MATRIX), ech__layout_transposed(&MATRIX), blocked(),
        blocked_in_pairs(),         ech__layout_plain(&cube),        ech__layout_plain(&scalar)};
    const int64_t chunks[] = {1, 17, 19, 1000, 100000}, sizes[] = {1, 2, 4, 8};
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                check_round_trip(&layouts[k], sizes[s], chunks[c]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags),    cmocka_unit_test(tags_of_equal_layouts),
        cmocka_unit_test(extents), cmocka_unit_test(equality),
        cmocka_unit_test(places),  cmocka_unit_test(round_trips),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
