#include "support/lab_fixture.h"
#include "base/file/dir.h"
#include "base/file/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void good(ech_ctx *ctx, ech_status status)
{
    if (status < 0)
        fail_msg("%s", ech_ctx_error(ctx));
}

double lab_fixture_time(int devices, int step)
{
    const double base = devices == 1 ? 0.100 : devices == 2 ? 0.056 : 0.034;
    const double slow = step <= LAB_WARMUP ? 3 : 1;
    return base * slow * (1 + 0.01 * ((step * 7 + devices) % 5 - 2));
}

static void write_text(ech_ctx *ctx, const char *dir, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    good(ctx, ech__file_write(ctx, path, text, strlen(text)));
}

/* wait_s of rank 1 is a tenth of the step; "scale" is there in even steps only. */
static void write_steps(ech_ctx *ctx, const char *dir, int devices)
{
    char text[8192];
    int used = 0;
    for (int step = 1; step <= LAB_STEPS; step++) {
        const double time = lab_fixture_time(devices, step);
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "{\"step\":%d,\"loss\":%.17g,\"time_s\":%.17g,\"forward_s\":%.17g,"
                         "\"wait_s\":[0.0,%.17g],\"skipped\":false%s}\n",
                         step, 1.0 / step, time, time / 4, time / 10,
                         step % 2 ? "" : ",\"scale\":1024");
    }
    snprintf(text + used, sizeof text - (size_t)used, "{\"step\":%d,\"lo", LAB_STEPS + 1);
    write_text(ctx, dir, "steps.jsonl", text);
}

static void write_train(ech_ctx *ctx, const char *dir, int devices)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "{\"seed\":0,\"config\":{\"warmup\":%d,\"delay_ms\":5.0,\"model\":\"linear\"},"
        "\"summary\":{\"clock\":\"%s\",\"devices\":%d,\"step_time_s\":{\"median\":%.17g},"
        "\"samples_per_s\":%.17g,\"comm_bytes_per_step\":%d,\"finished\":true,"
        "\"params_sha256\":\"ab%dcd\",\"epochs\":[{\"time_s\":2.0,\"accuracy\":0.25},{\"time_s\":"
        "1.5,\"accuracy\":0.5}]},\"kernels\":[{\"name\":\"layers.0\",\"phase\":\"forward\","
        "\"median_s\":0.01},{\"name\":\"layers.0\",\"phase\":\"backward\",\"median_s\":0.02}],"
        "\"histogram\":{\"counts\":[1,4,2,0]}}",
        LAB_WARMUP, devices > 2 ? "emulated" : "measured", devices, lab_fixture_time(devices, 5),
        64 / lab_fixture_time(devices, 5), devices == 1 ? 0 : 4000, devices);
    write_text(ctx, dir, "run.json", text);
    write_steps(ctx, dir, devices);
}

static const char plan_text[] =
    "{\"model\":\"linear\",\"rows\":[{\"devices\":1,\"clock\":\"measured\",\"step_time_s\":0.1},"
    "{\"devices\":2,\"batch\":32,\"clock\":\"predicted\",\"step_time_s\":0.055},"
    "{\"devices\":2,\"batch\":64,\"clock\":\"predicted\",\"step_time_s\":0.11},"
    "{\"devices\":4,\"clock\":\"predicted\",\"step_time_s\":0.03}]}";

static const char trace_text[] =
    "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"step\",\"name\":\"step 5\",\"ts\":0,\"dur\":100,"
    "\"pid\":0,\"tid\":0},{\"ph\":\"X\",\"cat\":\"forward\",\"name\":\"linear\",\"ts\":10,"
    "\"dur\":40,\"pid\":0,\"tid\":0}]}";

static const struct {
    const char *id, *command, *reason;
    ech__lab_state state;
    int devices; /* 0: no training */
} runs[LAB_RUNS] = {
    {"n1", "echelon train --devices 1", NULL, ECH__LAB_DONE, 1},
    {"n2", "echelon train --devices 2", NULL, ECH__LAB_REUSED, 2},
    {"n4", "echelon train --devices 4", NULL, ECH__LAB_DONE, 4},
    {"same", "echelon train --devices 1", NULL, ECH__LAB_DONE, 1},
    {"plan", "echelon plan --devices 1,2,4", NULL, ECH__LAB_DONE, 0},
    {"n8", "echelon train --devices 8", "out of memory: {8 GB} are needed", ECH__LAB_FAILED, 0},
    {"n16", "echelon train --devices 16", "too many devices", ECH__LAB_SKIPPED, 0},
};

static const char *const records[LAB_RUNS] = {"runs/one", "runs/two", "runs/four", "runs/one",
                                              "runs/plan"};

void lab_fixture_write(ech_ctx *ctx, lab_fixture *lab, const char *dir)
{
    char path[320];
    *lab = (lab_fixture){0};
    snprintf(lab->dir, sizeof lab->dir, "%s", dir);
    snprintf(path, sizeof path, "%s/studies", dir);
    good(ctx, ech__dir_make(ctx, "studies", path));
    for (size_t i = 0; i < LAB_RUNS; i++) {
        snprintf(lab->paths[i], sizeof lab->paths[i], "%s/%s", dir, records[i] ? records[i] : "");
        lab->results[i] = (ech__lab_result){.id = runs[i].id,
                                            .command = runs[i].command,
                                            .dir = records[i] ? lab->paths[i] : NULL,
                                            .record = records[i],
                                            .state = runs[i].state,
                                            .reason = runs[i].reason};
        if (!records[i])
            continue;
        good(ctx, ech__dir_make(ctx, "run", lab->paths[i]));
        if (runs[i].devices)
            write_train(ctx, lab->paths[i], runs[i].devices);
        else
            write_text(ctx, lab->paths[i], "result.json", plan_text);
    }
    write_text(ctx, lab->paths[1], "trace.json", trace_text);
}

void lab_fixture_remove(ech_ctx *ctx, const lab_fixture *lab)
{
    char path[320];
    for (size_t i = 0; i < LAB_RUNS; i++) {
        if (records[i])
            good(ctx, ech__dir_remove(ctx, lab->paths[i]));
    }
    snprintf(path, sizeof path, "%s/runs", lab->dir);
    good(ctx, ech__dir_remove(ctx, path));
    snprintf(path, sizeof path, "%s/studies", lab->dir);
    good(ctx, ech__dir_remove(ctx, path));
    good(ctx, ech__dir_remove(ctx, lab->dir));
}

/* ---- a study over them ---- */

static int64_t param(const void *user, const char *name)
{
    (void)user;
    return !strcmp(name, "dim") ? 64 : -1;
}

ech__sheet_options lab_fixture_options(const lab_fixture *lab, const ech__study_card *card)
{
    static const int64_t devices[] = {1, 2, 4, 8};
    return (ech__sheet_options){.card = card,
                                .command = "echelon lab run told",
                                .results = lab->results,
                                .count = LAB_RUNS,
                                .quick = true,
                                .devices = devices,
                                .device_count = 4,
                                .cores = 2,
                                .param = param};
}

static const ech__lab_param params[] = {{"dim", 64, 4096, 1, 65536, "width of a layer"}, {0}};

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "Time per step", "Medians over the steps behind the warm-up.");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "speedup", "fixed2 x");
    ech__tell_column(s, "efficiency", "percent1");
    ech__tell_column(s, "remark", "text");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_row(s);
        ech__tell_cell(s, "%" PRId64, n);
        ech__tell_cell(s, "steps[n%" PRId64 " time_s]", n);
        ech__tell_cell(s, "steps[n1 time_s] / steps[n%" PRId64 " time_s]", n);
        ech__tell_plain(s, "steps[n1 time_s] / steps[n%" PRId64 " time_s] / %" PRId64, n, n);
        if (n == 1)
            ech__tell_none(s);
        else
            ech__tell_words(s, "beside %s", "one");
        if (n == 2)
            ech__tell_note(s, "two cores");
    }
}

static void tell_plots_of_points(ech__sheet *s)
{
    ech__tell_plot(s, "speedup", "Speedup", "Beside what was predicted.");
    ech__tell_x(s, (ech__tell_axis){.label = "devices", .scale = "log2"});
    ech__tell_y(s, (ech__tell_axis){.label = "speedup", .min = 0, .max = 4});
    ech__tell_series(s, "DDP");
    for (int n = 1; n <= 8; n *= 2)
        ech__tell_point(s, n, "steps[n1 time_s] / steps[n%d time_s]", n);
    ech__tell_series(s, "plan");
    ech__tell_no_line(s);
    ech__tell_point(s, 4, "0.1 / [plan rows.devices=4.step_time_s]");
    ech__tell_series(s, "what failed");
    ech__tell_point(s, 8, "steps[n8 time_s]");
    ech__tell_mark(s, 'x', 2, "cores");

    ech__tell_plot(s, "steps", "Each step", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "step"});
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "ms"});
    ech__tell_band(s, 0.5, 3.5, "warm-up");
    ech__tell_series(s, "one device");
    ech__tell_from(s, (ech__tell_source){.run = "n1", .y = "time_s", .scale = 1000});
    ech__tell_series(s, "failed");
    ech__tell_from(s, (ech__tell_source){.run = "n8", .y = "time_s"});
    ech__tell_series(s, "not in every step");
    ech__tell_from(s, (ech__tell_source){.run = "n1", .y = "scale"});

    ech__tell_plot(s, "lines", "Accuracy", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "epoch"});
    ech__tell_y(s, (ech__tell_axis){.label = "accuracy"});
    ech__tell_series(s, "one device");
    ech__tell_from(s, (ech__tell_source){.run = "n1", .file = "epochs", .y = "accuracy"});
}

static void tell_other_plots(ech__sheet *s)
{
    ech__tell_plot(s, "stacked", "Where the time goes", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "s"});
    ech__tell_bar_format(s, "seconds");
    ech__tell_category(s, "%d device", 1);
    ech__tell_category(s, "eight");
    ech__tell_series(s, "forward");
    ech__tell_bar(s, "steps[n1 forward_s]");
    ech__tell_bar(s, "steps[n8 forward_s]");
    ech__tell_series(s, "negative");
    ech__tell_bar(s, "steps[n1 forward_s] - steps[n1 time_s]");
    ech__tell_bar(s, "0");

    ech__tell_plot(s, "timeline", "A step", NULL);
    ech__tell_trace(s, "n2", "two devices", 5);
    ech__tell_trace(s, "n2", "a step that was not traced", 6);
    ech__tell_trace(s, "n1", "no trace", 5);

    ech__tell_plot(s, "histogram", "Weights", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "value"});
    ech__tell_y(s, (ech__tell_axis){.label = "count"});
    ech__tell_histogram(s, (ech__tell_panel){.name = "fc1",
                                             .from = -1,
                                             .to = 1,
                                             .counts = ech__lab_path(ech__tell_record(s, "n1"),
                                                                     "histogram.counts")});
}

static void tell_answers(ech__sheet *s)
{
    ech__tell_let(s, "dim", "integer", "%" PRId64, ech__tell_param(s, "dim"));
    ech__tell_let(s, "t1", "seconds", "steps[n1 time_s]");
    ech__tell_let(s, "t2", "seconds", "steps[n2 time_s]");
    ech__tell_let(s, "speedup2", "fixed2", "t1 / t2");
    ech__tell_let(s, "efficiency2", "percent1", "speedup2 / 2");
    ech__tell_let(s, "speedup8", "fixed2", "t1 / steps[n8 time_s]");
    ech__tell_let(s, "serial", "percent1", "amdahl(1, t1, 2, t2, 4, steps[n4 time_s])");
    ech__tell_let_text(s, "hash", "n1", "summary.params_sha256");

    ech__tell_ask(s, "Is the speedup linear?");
    ech__tell_say(s, "Two devices are {speedup2} times as fast as one ({speedup2.low} to "
                     "{speedup2.high}), at a width of {dim}.");
    if (ech__tell_side(s, "speedup2", 2) < 0)
        ech__tell_say(s, "That is clearly less than twice: {efficiency2} of it.");
    ech__tell_paragraph(s);
    ech__tell_say(s, "Eight are {speedup8} times as fast.");
    ech__tell_say(s, "And {speedup8} is a lot.");
    ech__tell_say(s, "Amdahl's serial fraction is {serial}; in {{braces}} the weights are {hash}.");

    ech__tell_ask(s, "What else?");
}

static void tell(ech__sheet *s)
{
    tell_table(s);
    tell_plots_of_points(s);
    tell_other_plots(s);
    tell_answers(s);
}

const ech__study_card lab_fixture_card = {.id = "told",
                                          .group = 'A',
                                          .place = 1,
                                          .title = "A study that was told",
                                          .about = "Runs that were never made.",
                                          .params = params,
                                          .tell = tell};

void lab_fixture_save(ech_ctx *ctx, const lab_fixture *lab, const ech_json *study, const char *id)
{
    char path[400], text[512];
    snprintf(path, sizeof path, "%s/studies/%s.json", lab->dir, id);
    good(ctx, ech__json_save(ctx, path, study, ECH_JSON_INDENT));
    snprintf(text, sizeof text,
             "{\"format\":1,\"title\":\"T\",\"profile\":\"quick\",\"date\":\"2026-01-01\","
             "\"command\":\"echelon lab\",\"studies\":[\"%s\"]}",
             id);
    write_text(ctx, lab->dir, "lab.json", text);
}
