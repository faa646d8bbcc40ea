/* What the live view shows: the snapshot of a lab, the curve of the run that goes on, and how busy its devices are.
 *
 *     ech__live *live;
 *     ECH_TRY(ech__live_create(ctx, lab, "lab", &live));
 *     ech__live_text state;
 *     ech_status s = ech__live_state(live, false, &state);         one JSON object, good until the next call
 *     ech__live_destroy(live);
 *
 * For one thread at a time. However often it is asked for, the state is made four times a second at
 * most, so that those who look cost what they look at little.
 */
#pragma once

#include "lab/lab.h"

typedef struct ech__live ech__live;

typedef struct ech__live_text {
    const char *text;
    size_t bytes;
} ech__live_text;

/* lab is borrowed and must live longer; out_dir is where its report will be. */
ech_status ech__live_create(ech_ctx *ctx, ech__lab *lab, const char *out_dir, ech__live **out);
void ech__live_destroy(ech__live *live);

/* The object of ech__lab_snapshot and in it
 *   "series": {"study", "run", ...}          that of ech__follow_json, of the newest run that has steps, if there is one
 *   "devices": [...]                         that of ech__busy_json
 *   "report": {"path", "ready"}              report.html
 *   "groups": {"A": title, ...}              of studies
 *   "over": is_over                          whether the view is about to close */
ech_status ech__live_state(ech__live *live, bool is_over, ech__live_text *out);

/* The page, its style and its script. The caller destroys them. */
typedef struct ech__live_page {
    ech__live_text html, style, script;
} ech__live_page;

ech_status ech__live_page_create(ech_ctx *ctx, ech__live_page *out);
void ech__live_page_destroy(ech__live_page *page);
