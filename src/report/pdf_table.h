/* Tables on pages: columns as wide as what is in them, heads that come again on every page. Only for pdf*.c. */
#pragma once

#include "report/pdf_writer.h"
#include "report/study/study.h"

/* Height of what should not be parted from the title: a small table, or the head and the first rows of a larger one. */
double ech__pdf_table_start(ech__press *press, const ech__study_table *table);
void ech__pdf_table(ech__press *press, const ech__study_table *table);
