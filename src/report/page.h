/* What every page of the report has in it: its style, in colours from the canvas's table, and its script. */
#ifndef ECH_REPORT_PAGE_H
#define ECH_REPORT_PAGE_H

#include <stdio.h>

/* Inside of <style>. */
void ech__page_style(FILE *file);
/* Inside of <script>. */
void ech__page_script(FILE *file);

#endif
