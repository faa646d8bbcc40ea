/* What every page of the report has in it: its style, in colours from the canvas's table, and its
 * script. The live view of a lab takes the style and the switch of colours over. */
#pragma once

#include <stdio.h>

/* Inside of <style>. */
void ech__page_style(FILE *file);
/* The switch between light and dark: a button of the id theme. Inside of <script>. */
void ech__page_theme_script(FILE *file);
/* All of the report's, that switch included. */
void ech__page_script(FILE *file);
