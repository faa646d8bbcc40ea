/* Figures as people read them. */
#pragma once

#include <stdint.h>

typedef struct ech__text {
    char s[32];
} ech__text;

/* "512 B", "44.7 MB", "4.29 GB": powers of 1000, three digits. */
ech__text ech__format_bytes(int64_t bytes);
/* "1.23 s", "8.71 ms", "235 us"; "0 s". */
ech__text ech__format_seconds(double seconds);
/* The number itself, but of a NaN the one without a sign: printf would show it as "-nan". */
double ech__unsigned_nan(double number);
