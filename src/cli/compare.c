/* echelon compare: runs in turns, ratios with intervals, and a verdict. */
#include "compare/compare.h"
#include "base/format.h"
#include "base/stats.h"
#include "cli/cli.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST_WORDS = 128 };

typedef struct arm_words {
    char name[96];
    char *argv[MOST_WORDS + 4];
} arm_words;

typedef struct args {
    ech__compare_options
        compare; /* half_width in percent and block_s in ms until they are checked */
    const char *budget;
    bool json;
    ech__option_words pool;
    ech__option_rest arms;
    /* What follows from them. */
    arm_words words[ECH__COMPARE_ARMS];
    ech__arm_spec specs[ECH__COMPARE_ARMS];
} args;

static const ech__option options[] = {
    ECH_ROW(STRING, args, budget, "budget",
            "Total time, such as 60s, 5min or 1h. The comparison ends earlier when all arms are "
            "decided.",
            .arg = "TIME", .initial = "60s", .group = "Comparison"),
    ECH_ROW(REAL, args, compare.threshold, "threshold",
            "Decide whether an arm is more than X times as fast as the first arm.", .arg = "X",
            .initial = "1", .min = 1e-6, .max = 1e6),
    ECH_ROW(REAL, args, compare.half_width, "half-width",
            "Continue, within the budget, until the half-width of every interval is at most this "
            "percentage of its ratio.",
            .arg = "PERCENT", .initial = "5", .min = 0.1, .max = 100),
    ECH_ROW(REAL, args, compare.block_s, "block-ms",
            "How long an arm runs in a round. It runs at least 2 steps; the first one is "
            "dropped.",
            .arg = "MS", .initial = "150", .min = 1, .max = 60000),
    ECH_ROW(REAL, args, compare.limit_s, "arm-timeout",
            "End the comparison if an arm does not respond for this long.", .arg = "SECONDS",
            .initial = "120", .min = 0.1, .max = 86400),
    ECH_ROW(FLAG, args, compare.apart, "apart",
            "Restart each arm for every block. This is the default if the arms do not fit into "
            "memory together."),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object.", .group = "Output"),
    ECH_ROW(WORDS, args, pool, "pool",
            "Run nothing; test the noise of several comparisons together, from their --json "
            "files. May be given several times.",
            .arg = "FILE"),
    ECH_ROW(REST, args, arms, "-- ARM -- ARM",
            "Two to eight arms. An arm is [--name NAME] [--threshold X] [--program PATH] and an "
            "echelon command (train, bench step, bench comm, quantize or run), or --peer and a "
            "program that speaks the line protocol on its standard input and output.",
            .positional = true),
};

static const ech__option_example examples[] = {
    {"echelon compare -- train --dim 1024 --global-batch 64 --threads 1 -- train --dim 1024 "
     "--global-batch 64 --devices 2",
     "how many times as fast two devices are"},
    {"echelon compare --threshold 1.9 --budget 3min -- train --model resnet18 --threads 1 -- train "
     "--model resnet18 --devices 2 --threads 1",
     "whether two devices are more than 1.9 times as fast"},
    {"echelon compare -- --name old --program old/build/echelon train --model lenet -- --name new "
     "train --model lenet",
     "two builds; make compare BASE=REV does this for some models"},
    {"echelon compare -- train --dim 1024 --threads 1 -- --peer python3 peer.py",
     "a program of another framework"},
};

/* ---- arms ---- */

static const char own_program[] = "/proc/self/exe";

static bool is_command(char *const *words, int count)
{
    static const char *const alone[] = {"train", "run", "quantize"};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        if (!strcmp(words[0], alone[i]))
            return true;
    }
    return count > 1 && !strcmp(words[0], "bench") &&
           (!strcmp(words[1], "step") || !strcmp(words[1], "comm"));
}

static bool parse_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end > text && !*end && *out >= 1e-6 && *out <= 1e6;
}

static ech_status add_arm(ech_ctx *ctx, args *a, char **words, int count)
{
    const int index = a->compare.count, number = index + 1;
    const char *name = NULL, *program = NULL, *threshold = NULL;
    double limit = 0;
    bool is_peer = false;
    int used = 0;
    if (index == ECH__COMPARE_ARMS - 1)
        return ech__fail(ctx, ECH_E_INVALID, "more than %d arms", ECH__COMPARE_ARMS - 1);
    for (; used < count && !is_peer; used++) {
        const char **value = !strcmp(words[used], "--name")        ? &name
                             : !strcmp(words[used], "--program")   ? &program
                             : !strcmp(words[used], "--threshold") ? &threshold
                                                                   : NULL;
        if (!strcmp(words[used], "--peer"))
            is_peer = true;
        else if (!value)
            break;
        else if (++used == count)
            return ech__fail(ctx, ECH_E_INVALID, "arm %d: %s needs a value", number,
                             words[used - 1]);
        else
            *value = words[used];
    }
    words += used;
    count -= used;
    if (threshold && !parse_number(threshold, &limit))
        return ech__fail(ctx, ECH_E_INVALID, "arm %d: --threshold %.40s: must be from 1e-6 to 1e6",
                         number, threshold);
    if (count == 0 || !*words[0])
        return ech__fail(ctx, ECH_E_INVALID,
                         "arm %d is empty: an arm is a command, such as -- train --model lenet",
                         number);
    if (count > MOST_WORDS)
        return ech__fail(ctx, ECH_E_INVALID, "arm %d has %d words; the limit is %d", number, count,
                         MOST_WORDS);
    if (is_peer && program)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "arm %d: --program is for arms of echelon; a peer's program follows --peer", number);
    if (!is_peer && !program && !is_command(words, count))
        return ech__fail(ctx, ECH_E_INVALID,
                         "arm %d: '%.40s' cannot be compared; use train, bench step, bench comm, "
                         "quantize, run, or --peer PROGRAM",
                         number, words[0]);
    arm_words *arm = &a->words[index];
    int n = 0;
    if (!is_peer)
        arm->argv[n++] = program ? (char *)program : (char *)own_program;
    for (int i = 0; i < count; i++)
        arm->argv[n++] = words[i];
    if (!is_peer && (!strcmp(words[0], "train") || (count > 1 && !strcmp(words[1], "step")))) {
        arm->argv[n++] = (char *)"--steps";
        arm->argv[n++] = (char *)"100000000";
    }
    arm->argv[n] = NULL;
    if (name)
        snprintf(arm->name, sizeof arm->name, "%s", name);
    else
        snprintf(arm->name, sizeof arm->name, "arm %d", number);
    a->specs[index] = (ech__arm_spec){
        .name = arm->name, .argv = arm->argv, .is_peer = is_peer, .threshold = limit};
    a->compare.count++;
    return ECH_OK;
}

static ech_status parse_arms(ech_ctx *ctx, args *a)
{
    const ech__option_rest *rest = &a->arms;
    for (int i = 0; i < rest->count;) {
        int end = i;
        while (end < rest->count && strcmp(rest->word[end], "--") != 0)
            end++;
        ECH_TRY(add_arm(ctx, a, rest->word + i, end - i));
        i = end + 1;
    }
    const int count = a->compare.count;
    return count >= 2 ? ECH_OK
                      : ech__fail(ctx, ECH_E_INVALID,
                                  "%d arm%s: a comparison needs at least 2, each after --", count,
                                  count == 1 ? "" : "s");
}

static ech_status parse_time(ech_ctx *ctx, const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"s", 1}, {"", 1}, {"min", 60}, {"m", 60}, {"h", 3600}};
    char *end;
    const double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (end > text && !strcmp(end, units[i].name) && number * units[i].factor >= 1 &&
            number * units[i].factor <= 86400) {
            *seconds = number * units[i].factor;
            return ECH_OK;
        }
    }
    return ech__fail(ctx, ECH_E_INVALID,
                     "--budget %.40s: must be a time from 1s to 24h, such as 90s or 5min", text);
}

/* ---- signals ---- */

static volatile sig_atomic_t caught;
static int stop_fd = -1;

static void on_signal(int number)
{
    const uint64_t one = 1;
    caught = number;
    const ssize_t written = write(stop_fd, &one, sizeof one);
    (void)written;
}

static ech_status catch_signals(ech_ctx *ctx)
{
    const struct sigaction action = {.sa_handler = on_signal};
    stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_fd < 0)
        return ech__fail(ctx, ECH_E_IO, "cannot create an eventfd for signals");
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return ECH_OK;
}

/* ---- progress ---- */

typedef struct shown {
    bool terminal, open;
    int start; /* that the last line was of */
} shown;

enum { WIDTH = 79 };

static void wipe(shown *s)
{
    if (s->open)
        fprintf(stderr, "\r%*s\r", WIDTH, "");
    s->open = false;
}

static void on_warning(void *user, const char *line)
{
    wipe(user);
    fprintf(stderr, "echelon compare: %s\n", line);
}

/* "arm 2: 1.43x (1.38 .. 1.48)" of the arm that is known least. */
static void put_worst(const ech__compare *c, char *text, size_t bytes)
{
    int worst = 1;
    for (int arm = 1; arm + 1 < c->narms; arm++) {
        const ech__ratio a = ech__rounds_ratio(&c->rounds, arm),
                         b = ech__rounds_ratio(&c->rounds, worst);
        if (ech__ratio_half_width(&a) > ech__ratio_half_width(&b))
            worst = arm;
    }
    const ech__ratio r = ech__rounds_ratio(&c->rounds, worst);
    if (c->rounds.starts >= 2)
        snprintf(text, bytes, ", arm %d %.3gx (%.3g .. %.3g)", worst + 1, r.ratio, r.low, r.high);
}

static void on_progress(void *user, const ech__compare *c)
{
    shown *s = user;
    const ech__rounds *r = &c->rounds;
    char line[256], known[96] = "";
    put_worst(c, known, sizeof known);
    if (c->phase == ECH__COMPARE_QUIET)
        snprintf(line, sizeof line, "probing the machine");
    else if (c->phase == ECH__COMPARE_TRIAL)
        snprintf(line, sizeof line, "starting arm %d of %d to time its kernels", c->trial + 1,
                 c->narms - 1);
    else if (r->round)
        snprintf(line, sizeof line, "start %d, round %d of %d%s; %.0f s, at most %.0f s left",
                 r->start, r->round, r->planned, known, ech__compare_elapsed(c), r->left_s);
    else
        snprintf(line, sizeof line, "start %d%s", r->start, known);
    wipe(s);
    if (s->terminal) {
        fprintf(stderr, "%.*s", WIDTH, line);
        fflush(stderr);
        s->open = true;
    } else if (c->phase == ECH__COMPARE_TURNS && r->round == 1) {
        fprintf(stderr, "%s\n", line);
    }
}

/* ---- result ---- */

static bool is_emulated(const ech__compare *c)
{
    for (int i = 0; i + 1 < c->narms; i++) {
        if (ech__arm_is_emulated(&c->arms[i]))
            return true;
    }
    return false;
}

static void print_verdict(const ech__compare *c, int arm)
{
    const double threshold = ech__compare_threshold(c, arm);
    const ech__ratio r = ech__rounds_ratio(&c->rounds, arm);
    const char *name = c->arms[arm].spec.name, *first = c->arms[0].spec.name;
    char interval[64] = "";
    if (r.starts >= 2)
        snprintf(interval, sizeof interval, " (95 %% interval %.3f to %.3f)", r.low, r.high);
    switch (ech__rounds_decide(&c->rounds, arm, threshold)) {
    case ECH__DECISION_ABOVE:
    case ECH__DECISION_BELOW:
        printf("%s is %.3fx as fast as %s%s: %s %gx.\n", name, r.ratio, first, interval,
               r.ratio > threshold ? "above" : "below", threshold);
        return;
    case ECH__DECISION_EQUAL:
        printf("%s is %.3fx as fast as %s%s: equal to %gx within 2 %%.\n", name, r.ratio, first,
               interval, threshold);
        return;
    default:
        printf("Undecided: %s measured %.3fx as fast as %s%s", name, r.ratio, first, interval);
        if (c->rounds.counts_disturbed)
            printf(", but other programs used the cores, which biases a ratio.\n");
        else if (r.starts < ECH__COMPARE_FEWEST_STARTS)
            printf(", but %d starts are too few: 6 are needed.\n", r.starts);
        else
            printf(", and the interval includes %gx.\n", threshold);
    }
}

/* "arm 2: train --dim 1024 --devices 2" */
static void print_words(const ech__compare *c, int arm, int width)
{
    const ech__arm_spec *spec = &c->arms[arm].spec;
    printf("%-*.*s ", width, width, spec->name);
    for (char *const *word = spec->argv; *word; word++) {
        if (strcmp(*word, own_program) != 0)
            printf(" %s", *word);
    }
    printf("\n");
}

static void print_row(const ech__compare *c, int arm, int width)
{
    const ech__rounds *r = &c->rounds;
    const bool is_copy = arm + 1 == c->narms;
    double sorted[ECH__COMPARE_STARTS];
    memcpy(sorted, r->times[arm], sizeof sorted);
    const ech__ratio ratio = is_copy ? ech__compare_noise(c) : ech__rounds_ratio(r, arm);
    printf("%-*.*s  %10s", width, width, c->arms[arm].spec.name,
           ech__format_seconds(ech__stats_of(sorted, (size_t)r->starts).median).s);
    if (arm == 0)
        printf("  %8s  %16s  %-10s", "1x", "", "baseline");
    else if (ratio.starts < 2)
        printf("  %7.3fx  %16s  %-10s", ratio.ratio, "", is_copy ? "noise" : "undecided");
    else
        printf("  %7.3fx  %7.3f .. %5.3f  %-10s", ratio.ratio, ratio.low, ratio.high,
               is_copy ? "noise"
                       : ech__decision_name(
                             ech__rounds_decide(r, arm, ech__compare_threshold(c, arm))));
    printf("  %s\n", is_copy ? "" : c->arms[arm].what);
}

static void print_notes(const ech__compare *c)
{
    const ech__rounds *r = &c->rounds;
    const ech__ratio noise = ech__compare_noise(c);
    printf("\n%d start%s of all arms, %d rounds, %d dropped as disturbed", r->starts,
           r->starts == 1 ? "" : "s", r->kept, r->dropped);
    if (r->starts >= 2)
        printf("; noise %.1f %% between starts", 100 * noise.spread);
    printf("; %s in %.0f s\n", is_emulated(c) ? "some times are emulated, measured" : "measured",
           ech__compare_elapsed(c));
    if (c->apart)
        printf("each arm was restarted for every block\n");
    if (r->starts >= ECH__COMPARE_FEWEST_STARTS && (noise.low > 1 || noise.high < 1))
        printf("biased: the first arm differs from its own copy (99 %% interval %.3f to %.3f), so "
               "a ratio this close to 1 means nothing\n",
               noise.low, noise.high);
    if (r->counts_disturbed)
        printf("load stayed high in %d of %d starts: other programs used %.2f cores, the "
               "hypervisor took up to %.0f %% of a core%s\n",
               r->disturbed, r->starts, r->average.foreign, 100 * r->average.stolen,
               r->average.crowded > ECH__DISTURBED_CROWDED
                   ? " and ran several of them on one physical core"
                   : "");
    else if (r->disturbed)
        printf("%d more start%s disturbed most of the time and do not count\n", r->disturbed,
               r->disturbed == 1 ? " was" : "s were");
    if (r->was_stopped)
        printf("stopped by signal %d before the end\n", (int)caught);
    else if (r->starts < ECH__COMPARE_FEWEST_STARTS) {
        const double each = r->start_s + 4 * r->round_s;
        printf("the budget of %.0f s was used up: six starts need about %.0f s (--budget)\n",
               c->options.budget_s,
               ceil(1.2 * (6 * each + ech__compare_elapsed(c) - r->starts * each) / 10) * 10);
    }
}

static void print_table(const ech__compare *c)
{
    int width = 3;
    for (int i = 0; i < c->narms; i++) {
        const int length = (int)strlen(c->arms[i].spec.name);
        width = length > width ? length : width;
    }
    width = width > 32 ? 32 : width;
    for (int arm = 1; arm + 1 < c->narms; arm++)
        print_verdict(c, arm);
    printf("\n");
    for (int arm = 0; arm + 1 < c->narms; arm++)
        print_words(c, arm, width);
    printf("\n%-*s  %10s  %8s  %16s  %-10s  %s\n", width, "arm", "step time", "ratio",
           "95 % interval", "verdict", "description");
    for (int arm = 0; arm < c->narms; arm++)
        print_row(c, arm, width);
    print_notes(c);
}

/* ---- copies of many comparisons ---- */

static ech_status judge_pool(ech_ctx *ctx, const args *a)
{
    double logs[ECH__COMPARE_POOL];
    int count = 0;
    for (int i = 0; i < a->pool.count; i++)
        ECH_TRY(ech__compare_pool(ctx, a->pool.word[i], logs, &count));
    const ech__ratio r = ech__compare_ratio(logs, count, ECH__COMPARE_NOISE_SHARE);
    const bool biased = r.low > 1 || r.high < 1;
    if (count < 2)
        return ech__fail(ctx, ECH_E_INVALID, "%d starts: a pool needs at least 2", count);
    if (a->json) {
        ech_json *json = ECH__JSON(ech__int("comparisons", a->pool.count),
                                   ech__int("starts", count), ech__real("ratio", r.ratio),
                                   ech__real("low", r.low), ech__real("high", r.high),
                                   ech__real("spread", r.spread), ech__bool("biased", biased));
        return ech__cli_json(ctx, json);
    }
    printf("%s in %d comparisons of an arm with itself (%d starts): ratio %.4f (99 %% interval "
           "%.4f to %.4f); noise %.1f %% between starts\n",
           biased ? "Bias, a ratio this close to 1 means nothing," : "No bias", a->pool.count,
           count, r.ratio, r.low, r.high, 100 * r.spread);
    return ECH_OK;
}

/* ---- the command ---- */

static ech_status print_result(ech_ctx *ctx, const args *a, const ech__compare *c)
{
    if (!a->json) {
        print_table(c);
        return ECH_OK;
    }
    return ech__cli_json(ctx, ech__compare_json(c));
}

static void defaults(void *user)
{
    ((args *)user)->compare = ech__compare_defaults();
}

static ech_status check(ech_ctx *ctx, const ech__option_result *given)
{
    args *a = given->args;
    ech__compare_options *o = &a->compare;
    if (a->pool.count)
        return ECH_OK;
    ECH_TRY(parse_arms(ctx, a));
    o->arms = a->specs;
    o->half_width /= 100;
    o->block_s /= 1e3;
    return parse_time(ctx, a->budget, &o->budget_s);
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const ech__command *command = given->command;
    args *a = given->args;
    shown s = {.terminal = isatty(STDERR_FILENO) == 1};
    ech__compare_options *o = &a->compare;
    ech__compare *c;
    if (a->pool.count)
        return judge_pool(ctx, a);
    ECH_TRY(catch_signals(ctx));
    o->on_progress = on_progress;
    o->on_warning = on_warning;
    o->user = &s;
    o->stop_fd = stop_fd;
    ECH_TRY(ech__compare_create(ctx, o, &c));
    const ech_status status = ech__compare_run(c);
    wipe(&s);
    int code = status < 0 ? ech__cli_fail(ctx, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    if (c->rounds.starts && print_result(ctx, a, c) < 0)
        code = ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    if (status == ECH_OK && !c->rounds.starts) {
        ech__fail(ctx, ECH_E_INVALID,
                  caught ? "stopped by signal %d before the first result"
                         : "the budget is too small for a single start",
                  (int)caught);
        code = ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    }
    ech__compare_destroy(c);
    return caught ? 128 + caught : code;
}

const ech__command ech__cli_compare = {
    .name = "compare",
    .brief = "compare runs in turns: ratios with intervals, and a verdict",
    .about = "Starts all arms and keeps them running. In each round every arm runs one block of "
             "steps, in shuffled order, while the others are stopped, so that a change in the "
             "machine's speed affects all arms alike. A ratio is the time of the first arm divided "
             "by that of another: above 1, the other is faster. All arms are restarted at least "
             "six times. The interval is over starts; it is tested after 6, 9, 13 and 20 starts "
             "and has 95 % coverage for all tests together.\n\n"
             "The verdict is above or below the threshold, equal to it (within 2 %), or undecided "
             "if the budget is used up or other programs used the cores. A copy of the first arm "
             "runs too: the spread of its ratio is the machine's noise. Rounds in which another "
             "program or stolen time was detected are dropped and repeated.\n\n"
             "The number of steps is not limited: --steps 100000000 is added to each arm. Ctrl-C "
             "ends the comparison and prints the results so far.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
    .defaults = defaults,
    .check = check,
};
