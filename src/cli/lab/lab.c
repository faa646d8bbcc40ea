/* echelon lab: studies run one after the other, and the report of what came out. */
#include "lab/lab.h"
#include "cli/cli.h"
#include "cli/lab/report.h"
#include "cli/lab/show.h"
#include "lab/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct args {
    ech__option_words studies, sets;
    const char *out, *devices, *data_dir, *isa;
    bool quick, force, csv;
    int64_t seed;
    double run_limit;
    int64_t serve; /* port; -1: none */
    int format;
} args;

#define RUN_ROWS                                                                                   \
    ECH_ROW(FLAG, args, quick, "quick", "Small sizes: all studies take minutes instead of hours.", \
            .group = "What is run"),                                                               \
        ECH_ROW(STRING, args, devices, "devices",                                                  \
                "Numbers of devices that studies compare, ascending from 1. Devices beyond the "   \
                "cores of this machine are emulated.",                                             \
                .arg = "LIST", .initial = "1,2,4"),                                                \
        ECH_ROW(WORDS, args, sets, "set",                                                          \
                "A size of one study, or of every study that has it; echelon lab list STUDY "      \
                "shows them and their ranges. May be given several times.",                        \
                .arg = "[STUDY.]NAME=VALUE"),                                                      \
        ECH_ROW(INT, args, seed, "seed",                                                           \
                "Of weights, data order and augmentation, where a study does not choose one.",     \
                .arg = "N", .initial = "0", .min = 0, .max = 9007199254740992),                    \
        ECH_ROW(STRING, args, data_dir, "data-dir",                                                \
                "Where CIFAR-10 is. Default: $ECH_CIFAR, or cifar10 in the directory of the "      \
                "lab, where it is fetched to when a study wants it; where it cannot be had, "      \
                "images are synthetic, and the report says so.",                                   \
                .arg = "DIR"),                                                                     \
        ECH__ROW_ISA(args, isa),                                                                   \
        ECH_ROW(FLAG, args, force, "force", "Run everything again, also what is finished."),       \
        ECH_ROW(REAL, args, run_limit, "run-limit",                                                \
                "A run that takes longer is stopped, and failed. Default: 600, or 14400 without "  \
                "--quick.",                                                                        \
                .arg = "SECONDS", .min = 0.001, .max = 1e6),                                       \
        ECH_ROW(INT, args, serve, "serve",                                                         \
                "Show the lab while it runs on http://127.0.0.1:PORT/, which only this machine "   \
                "can reach; 0 takes any port that is free. A browser that looks on takes time "    \
                "of a core from what is measured.",                                                \
                .arg = "PORT", .min = 0, .max = 65535),                                            \
        ECH_ROW(STRING, args, out, "out",                                                          \
                "Directory of records and report. It is made where it is not there.",              \
                .arg = "DIR", .initial = "lab", .group = "What is written"),                       \
        ECH_ROW(CHOICE, args, format, "format", "The report: a page, a PDF, or both.",             \
                .choices = ECH__REPORT_FORMATS, .initial = "both"),                                \
        ECH_ROW(FLAG, args, csv, "csv", "Write every table to csv/STUDY-NUMBER.csv too.")

static const ech__option all_options[] = {RUN_ROWS};

static const ech__option run_options[] = {
    ECH_ROW(WORDS, args, studies, "STUDY", "Ids of studies, as echelon lab list shows them.",
            .positional = true, .required = true),
    RUN_ROWS,
};

#define ABOUT                                                                                      \
    "Runs are processes of their own, started with the arguments of echelon train and its "        \
    "sisters, and their records stay in runs/ of the output directory. A run that is finished "    \
    "is reused, also by another study and by the next lab; one that fails becomes a row of the "   \
    "report that says why. Before the first study the noise of the machine is measured: a fixed "  \
    "loop, and a short training several times. Kernel timings and costs are kept in the "          \
    "output directory, unless ECHELON_TUNING and ECHELON_COSTS name other places."

static const ech__option_example all_examples[] = {
    {"echelon lab all --quick", "runs every study in small sizes: lab/report.html, lab/report.pdf"},
    {"echelon lab all --out full --devices 1,2", "full sizes, on one and two devices"},
    {"echelon lab all --quick --serve 8080", "progress and curves on http://127.0.0.1:8080/"},
};

static const ech__option_example run_examples[] = {
    {"echelon lab run strong-scaling --quick", "one study, in small sizes"},
    {"echelon lab run strong-scaling --set dim=2048 --devices 1,2,4,8", "with other sizes"},
};

/* ---- arguments ---- */

static ech_status options_of(ech_ctx *ctx, const args *a, ech__lab_options *out)
{
    static const ech__option_numbers devices = {"devices", 1000000, ECH__LAB_MAX_DEVICES};
    *out = ech__lab_options_default();
    ECH_TRY(ech__option_read_numbers(ctx, &devices, a->devices, out->devices, &out->device_count));
    out->out = a->out;
    out->command = ech__cli_command_line();
    out->studies = a->studies.count ? a->studies.word : NULL;
    out->study_count = (size_t)a->studies.count;
    out->quick = a->quick;
    out->force = a->force;
    for (int i = 0; i < a->sets.count; i++)
        out->sets[out->set_count++] = a->sets.word[i];
    out->seed = a->seed;
    out->data_dir = a->data_dir;
    out->run_limit_s = a->run_limit;
    return ECH_OK;
}

/* ---- signals ---- */

/* What a handler can reach. */
static ech__lab *volatile running;
static volatile sig_atomic_t caught;

/* A lab that is stopped ends within a moment. One that does not is stuck, and ends here: its runs die with it. */
enum { PATIENCE_S = 5 };

static void on_alarm(int number)
{
    static const char line[] = "echelon lab: it did not stop by itself, and is ended\n";
    (void)number;
    const ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
    _exit(128 + caught);
}

static void on_signal(int number)
{
    caught = number;
    if (running)
        ech__lab_stop(running);
    alarm(PATIENCE_S);
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signals / sizeof *signals };

static void catch_signals(ech__lab *lab, struct sigaction old[SIGNALS])
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const struct sigaction end = {.sa_handler = on_alarm};
    running = lab;
    sigaction(SIGALRM, &end, NULL);
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &old[i]);
        if (old[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

static void release_signals(const struct sigaction old[SIGNALS])
{
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &old[i], NULL);
    alarm(0);
    running = NULL;
}

/* ---- run and all ---- */

static int stopped(const args *a, const ech__lab_shown *shown)
{
    const size_t told = ech__lab_shown_told(shown);
    fflush(stdout);
    fprintf(stderr, "echelon lab: stopped by signal %d; %zu of %zu studies are told", (int)caught,
            told, shown->count);
    if (told)
        fprintf(stderr, ", echelon report %s makes a report of them", a->out);
    fputc('\n', stderr);
    return 128 + caught;
}

/* Studies of which no run succeeded, and that so have no answer: a line for each. */
static bool lacks_results(ech_ctx *ctx, const ech__command *command, const ech__lab_shown *shown)
{
    bool lacks = false;
    for (size_t i = 0; i < shown->count; i++) {
        const ech__lab_tally *t = &shown->studies[i];
        if (!t->told || t->done + t->reused > 0 || t->failed == 0)
            continue;
        ech__fail(ctx, ECH_E_INVALID, "study %s has no result: all of its %zu runs failed", t->id,
                  t->failed + t->skipped);
        ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
        lacks = true;
    }
    return lacks;
}

/* Writes the report; status is the result of the lab. */
static int conclude(ech_ctx *ctx, const ech__command *command, const args *a,
                    const ech__lab_shown *shown, ech_status status)
{
    if (caught || ech__lab_shown_told(shown))
        ech__lab_show_table(shown);
    if (caught)
        return stopped(a, shown);
    int code = status < 0 ? ech__cli_fail(ctx, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    if (!ech__lab_shown_told(shown))
        return code;
    const ech__report_request request = {.dir = a->out, .format = a->format, .csv = a->csv};
    ech__report_files files;
    ECH_TRY(ech__cli_report_write(ctx, command, &request, &files));
    ech__cli_report_print(&request, &files);
    if (lacks_results(ctx, command, shown) || files.problems)
        code = ECH__EXIT_FAILED;
    return code;
}

/* Where the lab can be looked at, if that was asked for. */
static ech_status serve(ech_ctx *ctx, const args *a, ech__lab *lab, ech__lab_server **out)
{
    *out = NULL;
    if (a->serve < 0)
        return ECH_OK;
    ECH_TRY(ech__lab_serve_start(ctx, lab, a->out, (int)a->serve, out));
    fprintf(stderr, "live view: http://127.0.0.1:%d/\n", ech__lab_serve_port(*out));
    return ECH_OK;
}

/* Runs what was asked for, writes the report, and shows both meanwhile. */
static int perform(ech_ctx *ctx, const ech__command *command, const args *a, ech__lab *lab,
                   ech__lab_shown *shown)
{
    ech__lab_server *server;
    struct sigaction old[SIGNALS];
    ECH_TRY(ech__lab_shown_init(ctx, shown, ech__lab_studies(lab)));
    ECH_TRY(serve(ctx, a, lab, &server));
    catch_signals(lab, old);
    const ech_status status = ech__lab_execute(lab);
    release_signals(old);
    ech__lab_show_end(shown);
    const int code = conclude(ctx, command, a, shown, status);
    fflush(stdout);
    ech__lab_serve_stop(server);
    return code;
}

static int run_studies(ech_ctx *ctx, const ech__option_result *given)
{
    const ech__command *command = given->command;
    args *a = given->args;
    ech__lab_options options;
    ech__lab_shown shown = {0};
    ech__lab *lab;
    if (!ech__option_given(given, "serve"))
        a->serve = -1;
    if (options_of(ctx, a, &options) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    options.show = ech__lab_show_event;
    options.user = &shown;
    const ech_status status = ech__lab_create(ctx, &options, &lab);
    if (status < 0)
        return ech__cli_fail(ctx, command,
                             status == ECH_E_INVALID ? ECH__EXIT_USAGE : ECH__EXIT_FAILED);
    const int code = perform(ctx, command, a, lab, &shown);
    ech__lab_destroy(lab);
    ech__lab_shown_fini(ctx, &shown);
    return code;
}

static int run_lab(ech_ctx *ctx, const ech__option_result *given)
{
    if (*given->argv)
        return run_studies(ctx, given);
    /* Hours of work should be asked for by name. */
    ech__fail(ctx, ECH_E_INVALID, "needs list, run STUDY or all, or options of lab all");
    return ech__cli_fail(ctx, given->command, ECH__EXIT_USAGE);
}

const ech__command ech__cli_lab = {
    .name = "lab",
    .brief = "run every study and write the report: as lab all",
    .about = ABOUT,
    ECH_OPTION_ROWS(all_options),
    ECH__CLI_RUN(args, run_lab),
};

const ech__command ech__cli_lab_all = {
    .name = "lab all",
    .brief = "run every study and write the report",
    .about = ABOUT,
    ECH_OPTION_ROWS(all_options),
    ECH_OPTION_EXAMPLES(all_examples),
    ECH__CLI_RUN(args, run_studies),
};

const ech__command ech__cli_lab_run = {
    .name = "lab run",
    .brief = "run single studies and write the report",
    .about = ABOUT "\n\nThe report has the studies that the directory holds already too, if they "
                   "were run in the same profile, quick or full.",
    ECH_OPTION_ROWS(run_options),
    ECH_OPTION_EXAMPLES(run_examples),
    ECH__CLI_RUN(args, run_studies),
};
