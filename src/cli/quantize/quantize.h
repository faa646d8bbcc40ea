/* echelon quantize in parts: its tables, its record, its pictures. */
#pragma once

#include "base/file/json.h"
#include "quant/quantization.h"

/* Tables for people, on stdout (quantize_show.c). */
void ech__quantize_show(const ech__quantization *study);
/* All of it as one object (quantize_record.c). */
ech_json *ech__quantize_json(const ech__quantization *study);

/* quantize.json, histograms.json and histograms.csv, and pictures, in its directory. */
ech_status ech__quantize_record(const ech__quantization *study);
/* weights-N, activations-N and ladder, as .svg and .png (quantize_plot.c). */
ech_status ech__quantize_plot(const ech__quantization *study);

/* What there is to see of a value or a weight. */
typedef struct ech__seen {
    const char *layer; /* or the input */
    const char *what;  /* "weight", "before ReLU", "after ReLU", "output", "input" */
    const ech__histogram *histogram;
    ech_value value; /* -1: a weight */
} ech__seen;

/* Item number i of the study, weights first; false past the end. */
bool ech__quantize_seen(const ech__quantization *study, size_t i, ech__seen *out);
