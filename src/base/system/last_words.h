/* Why a process failed, as it said itself: the last line of its errors that says something.
 *
 *     char why[256];
 *     if (!ech__last_words("run/errors.txt", why, sizeof why)) ... it said nothing ...
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Without "echelon COMMAND: " before it and without control characters; what a rank said comes
 * before what its launcher says of the rank's end. False where the file has no such line. */
bool ech__last_words(const char *path, char *out, size_t bytes);
