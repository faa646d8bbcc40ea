/* Text inside of HTML and SVG. */
#pragma once

#include <stdio.h>

/* With the five characters that mean something there replaced; good inside of attributes too. What must not stand in
 * any XML becomes U+FFFD. */
void ech__markup_text(FILE *file, const char *text);
/* Two digits behind the point at most, whatever the locale. */
void ech__markup_number(FILE *file, double value);
