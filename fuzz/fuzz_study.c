/* Any bytes as lab.json, as a study, as steps.jsonl, run.json and trace.json: either an error message of
 * one line, or a report whose page and tables can be written. */
#include "report/study/records.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void must_be_sentence(const ech_ctx *ctx)
{
    must(ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
}

/* The records that plots ask for are the same bytes again. */
static bool fill(ech__book *book, const char *text, size_t bytes, ech__plot *plot)
{
    for (size_t s = 0; s < plot->nseries; s++) {
        ech__plot_series *series = &plot->series[s];
        if (series->from.run && ech__steps_parse(book, "steps", text, bytes, series) < 0 &&
            ech__epochs_parse(book, "epochs", text, bytes, series) < 0)
            return false;
    }
    for (size_t t = 0; t < plot->ntraces; t++) {
        if (ech__trace_parse(book, "trace", text, bytes, &plot->traces[t]) < 0)
            return false;
    }
    return true;
}

static void write_all(ech_ctx *ctx, ech__book *book)
{
    char *out;
    size_t bytes;
    must(ech__html_print(book, "", &out, &bytes) == ECH_OK);
    must(bytes > 0 && !strstr(out, "<script>alert"));
    free(out);
    for (size_t t = 0; t < book->studies[0].ntables; t++) {
        must(ech__csv_print(ctx, &book->studies[0].tables[t], &out, &bytes) == ECH_OK);
        free(out);
    }
}

static void use_study(ech_ctx *ctx, const char *text, size_t bytes)
{
    static const char lab[] = "{\"format\":1,\"title\":\"t\",\"profile\":\"quick\",\"date\":\"d\","
                              "\"command\":\"c\",\"studies\":[\"s\"]}";
    ech__book *book;
    must(ech__book_create(ctx, &book) == ECH_OK);
    must(ech__book_parse(book, "lab", lab, sizeof lab - 1) == ECH_OK);
    ech__study *study = &book->studies[0];
    bool good = ech__study_parse(book, "study", text, bytes, "s", study) == ECH_OK;
    for (size_t i = 0; good && i < study->nplots; i++)
        good = fill(book, text, bytes, &study->plots[i]);
    if (good)
        write_all(ctx, book);
    else
        must_be_sentence(ctx);
    ech__book_destroy(book);
}

static void use_lab(ech_ctx *ctx, const char *text, size_t bytes)
{
    ech__book *book;
    must(ech__book_create(ctx, &book) == ECH_OK);
    if (ech__book_parse(book, "lab", text, bytes) < 0)
        must_be_sentence(ctx);
    else
        must(book->nstudies >= 1 && book->nstudies <= ECH__BOOK_MAX_STUDIES);
    ech__book_destroy(book);
}

static void use_records(ech_ctx *ctx, const char *text, size_t bytes)
{
    ech__book *book;
    must(ech__book_create(ctx, &book) == ECH_OK);
    ech__plot_series series = {
        .name = "s", .has_line = true, .from = {.run = "r", .x = "step", .y = "y", .scale = 1}};
    if (ech__steps_parse(book, "steps", text, bytes, &series) < 0)
        must_be_sentence(ctx);
    ech__plot_trace trace = {.run = "r", .label = "l", .step = 1};
    if (ech__trace_parse(book, "trace", text, bytes, &trace) < 0) {
        must_be_sentence(ctx);
    } else {
        for (size_t i = 0; i < trace.count; i++)
            must(trace.spans[i].lane >= 0 && (size_t)trace.spans[i].lane < trace.nlanes);
        ech__plot plot = {.kind = ECH__PLOT_TIMELINE, .title = "t", .traces = &trace, .ntraces = 1};
        ech__canvas *canvas;
        char *out;
        size_t size;
        must(ech__svg_create(ctx, &(ech__svg_options){.width = 400, .height = 300}, &canvas) ==
             ECH_OK);
        ech__plot_draw(&plot, canvas, (ech__area){0, 0, 400, ech__plot_height(&plot, 400)});
        must(ech__svg_finish(canvas, &out, &size) == ECH_OK);
        free(out);
    }
    ech__book_destroy(book);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    use_study(ctx, (const char *)data, size);
    use_lab(ctx, (const char *)data, size);
    use_records(ctx, (const char *)data, size);
    ech_ctx_destroy(ctx);
    return 0;
}
