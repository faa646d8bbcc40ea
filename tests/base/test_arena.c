/* The bump arena: zeroed, aligned, disjoint pieces that go all at once. */
#include "base/arena.h"

#include "support/cmocka_first.h"
#include <stdlib.h>
#include <string.h>

/* Fills what it gives out with rubbish, counts bytes, and stops at a limit. */
typedef struct meter {
    size_t alive, limit;
    int pieces;
} meter;

static void *meter_alloc(void *user, size_t bytes, size_t align)
{
    meter *m = user;
    if (bytes > m->limit - m->alive)
        return NULL;
    m->alive += bytes;
    m->pieces++;
    void *ptr = aligned_alloc(align, (bytes + align - 1) / align * align);
    return ptr ? memset(ptr, 0xee, bytes) : NULL;
}

static void meter_free(void *user, void *ptr, size_t bytes)
{
    meter *m = user;
    m->alive -= bytes;
    m->pieces--;
    free(ptr);
}

typedef struct fixture {
    meter meter;
    ech__arena arena;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->meter.limit = 1 << 22;
    ech__arena_init(&f->arena, (ech_allocator){meter_alloc, meter_free, &f->meter});
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ech__arena_fini(&f->arena);
    const bool clean = f->meter.alive == 0 && f->meter.pieces == 0 && f->arena.total == 0;
    free(f);
    return clean ? 0 : -1;
}

static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    fixture *f = *state;
    enum { COUNT = 500 };
    uint8_t *piece[COUNT];
    for (int i = 0; i < COUNT; i++) {
        const size_t bytes = (size_t)(i * 7 % 300);
        piece[i] = ech__arena_alloc(&f->arena, bytes);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(piece[i][k], 0);
        memset(piece[i], i & 0xff, bytes);
    }
    for (int i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < (size_t)(i * 7 % 300); k++)
            assert_int_equal(piece[i][k], i & 0xff);
    }
    assert_int_equal(f->arena.total, f->meter.alive);
    /* Chunks double, so that there are few. */
    assert_true(f->meter.pieces < 10);
}

static void a_piece_may_be_larger_than_a_chunk(void **state)
{
    fixture *f = *state;
    uint8_t *big = ech__arena_alloc(&f->arena, 1 << 20);
    assert_non_null(big);
    big[(1 << 20) - 1] = 1;
    assert_non_null(ech__arena_alloc(&f->arena, 8));
}

static void memory_that_runs_out_gives_null(void **state)
{
    fixture *f = *state;
    f->meter.limit = 5000;
    assert_non_null(ech__arena_alloc(&f->arena, 100));
    assert_null(ech__arena_alloc(&f->arena, 8192));
    /* What is there stays usable. */
    assert_non_null(ech__arena_alloc(&f->arena, 100));
    assert_null(ech__arena_alloc(&f->arena, SIZE_MAX));
    assert_null(ech__arena_alloc(&f->arena, SIZE_MAX / 2));
}

static void arrays_check_their_size(void **state)
{
    fixture *f = *state;
    int64_t *numbers = ech__arena_array(&f->arena, 10, sizeof *numbers);
    assert_non_null(numbers);
    numbers[9] = 1;
    assert_null(ech__arena_array(&f->arena, SIZE_MAX / 2, 4));
    /* 2^63 * 2 wraps to 0. */
    assert_null(ech__arena_array(&f->arena, (size_t)1 << 63, 2));
}

static void text_is_formatted(void **state)
{
    fixture *f = *state;
    assert_string_equal(ech__arena_printf(&f->arena, "%s.%d", "layer", 12), "layer.12");
    assert_string_equal(ech__arena_printf(&f->arena, "%s", ""), "");
    char *wide = ech__arena_printf(&f->arena, "%5000d", 7);
    assert_int_equal(strlen(wide), 5000);
    f->meter.limit = f->meter.alive;
    assert_null(ech__arena_printf(&f->arena, "%90000d", 7));
}

static void growing_keeps_what_is_there(void **state)
{
    fixture *f = *state;
    int *numbers = NULL;
    size_t cap = 0;
    for (size_t used = 0; used < 1000; used++) {
        assert_true(ech__arena_grow(&f->arena, (void **)&numbers, used, &cap, sizeof *numbers));
        assert_true(cap > used);
        numbers[used] = (int)used;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    const size_t cap_before = cap;
    f->meter.limit = f->meter.alive;
    int *const place = numbers;
    bool grew = true;
    for (size_t used = cap; grew && used < 1 << 20; used = cap)
        grew = ech__arena_grow(&f->arena, (void **)&numbers, used, &cap, sizeof *numbers);
    assert_false(grew);
    assert_true(cap >= cap_before);
    assert_int_equal(place[999], 999);
}

static void an_arena_may_be_used_again(void **state)
{
    fixture *f = *state;
    assert_non_null(ech__arena_alloc(&f->arena, 100));
    ech__arena_fini(&f->arena);
    assert_int_equal(f->meter.alive, 0);
    assert_non_null(ech__arena_alloc(&f->arena, 100));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pieces_are_zeroed_aligned_and_apart),
        TEST(a_piece_may_be_larger_than_a_chunk),
        TEST(memory_that_runs_out_gives_null),
        TEST(arrays_check_their_size),
        TEST(text_is_formatted),
        TEST(growing_keeps_what_is_there),
        TEST(an_arena_may_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
