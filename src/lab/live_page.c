/* The page of the live view: the report's style and colours, and what it has of its own. */
#include "lab/live.h"
#include "lab/live_texts.h"
#include "report/style.h"

#include <stdio.h>
#include <stdlib.h>

static void print_html(FILE *file)
{
    fputs(ech__live_html, file);
}

static void print_style(FILE *file)
{
    ech__page_style(file);
    fputs(ech__live_css, file);
}

static void print_script(FILE *file)
{
    ech__page_theme_script(file);
    fputs(ech__live_js, file);
}

static ech_status make(ech_ctx *ctx, void (*print)(FILE *file), ech__live_text *out)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, &out->bytes);
    if (file)
        print(file);
    const bool failed = !file || ferror(file) != 0;
    if ((file && fclose(file) != 0) || failed) {
        free(text);
        return ech__no_memory(ctx, "the page of the live view");
    }
    out->text = text;
    return ECH_OK;
}

ech_status ech__live_page_create(ech_ctx *ctx, ech__live_page *out)
{
    *out = (ech__live_page){0};
    ech_status status = make(ctx, print_html, &out->html);
    if (status == ECH_OK)
        status = make(ctx, print_style, &out->style);
    if (status == ECH_OK)
        status = make(ctx, print_script, &out->script);
    if (status < 0)
        ech__live_page_destroy(out);
    return status;
}

void ech__live_page_destroy(ech__live_page *page)
{
    free((char *)page->html.text);
    free((char *)page->style.text);
    free((char *)page->script.text);
    *page = (ech__live_page){0};
}
