#include "support/levels.h"
#include "device/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, SKIPPED = 77 };

static bool is_the_same_at_every_level(const char *name)
{
    static const char *const ends[] = {" on cpu_2", " on reference", " threads", "any processor"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t length = strlen(name), end = strlen(ends[i]);
        if (length >= end && !strcmp(name + length - end, ends[i]))
            return true;
    }
    return false;
}

/* Whether the level can be tested here, and is not what the tests without one run at. */
static bool is_lower_level(const char *level)
{
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    const bool possible = ech__isa_check(ctx) == ECH_OK;
    if (!possible)
        printf("%s\n", ech_ctx_error(ctx));
    ech_ctx_destroy(ctx);
    if (possible && ech__isa_level() == ech__isa_of_processor())
        printf("%s is the processor's own level, which the test without a level runs at\n", level);
    return possible && ech__isa_level() < ech__isa_of_processor();
}

int run_kernel_tests_of(const char *name, const struct CMUnitTest *tests, size_t count)
{
    const char *level = getenv("ECH_LEVEL_TEST");
    if (!level)
        return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    if (!is_lower_level(level))
        return SKIPPED;
    struct CMUnitTest chosen[MOST];
    size_t kept = 0;
    assert_true(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        if (!is_the_same_at_every_level(tests[i].name))
            chosen[kept++] = tests[i];
    }
    return _cmocka_run_group_tests(name, chosen, kept, NULL, NULL);
}
