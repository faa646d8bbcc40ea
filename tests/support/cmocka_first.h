/* cmocka.h needs these before it, in this order. */
#ifndef ECH_TESTS_CMOCKA_FIRST_H
#define ECH_TESTS_CMOCKA_FIRST_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
