/* Kernel tests at a level of vector instructions: with ECHELON_ISA set, only what depends on it.
 *
 * The build registers tests/device/test_NAME.c as device/NAME, which runs everything at the
 * processor's own level, and again as device/NAME@LEVEL for lower ones, with ECH_LEVEL_TEST set.
 * There the cases for several threads, for the reference device and for generic loops beside others
 * are left out, because they are the same at every level: their names end as below.
 */
#pragma once

#include "support/cmocka_first.h"

/* As cmocka_run_group_tests_name. Returns 77, which skips the test, where the level is not below
 * the processor's own. */
int run_kernel_tests_of(const char *name, const struct CMUnitTest *tests, size_t count);

#define run_kernel_tests(name, tests)                                                              \
    run_kernel_tests_of(name, tests, sizeof(tests) / sizeof *(tests))
