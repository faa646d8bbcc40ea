#include "report/markup.h"

#include <math.h>
#include <stdlib.h>

void ech__markup_text(FILE *file, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        switch (*c) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        case '\'':
            fputs("&#39;", file);
            break;
        default:
            if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f)
                fputs("\xef\xbf\xbd", file);
            else
                fputc(*c, file);
        }
    }
}

void ech__markup_number(FILE *file, double value)
{
    /* Nothing that is drawn lies farther out. */
    const double limited = isnan(value) ? 0 : fmin(fmax(value, -1e6), 1e6);
    const long hundredths = lround(limited * 100);
    const long size = labs(hundredths);
    fprintf(file, "%s%ld", hundredths < 0 ? "-" : "", size / 100);
    if (size % 100)
        fprintf(file, size % 10 ? ".%02ld" : ".%ld", size % 10 ? size % 100 : size % 100 / 10);
}
