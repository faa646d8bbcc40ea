/* Option tables: what is parsed, the sentence of each mistake, and the pages. */
#include "base/option/option.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum colour { RED, GREEN, BLUE } colour;

typedef struct args {
    int64_t batch, ranks, memory, any;
    double lr, share;
    colour hue;
    int mode;
    bool trace, no_shuffle, secret;
    const char *dir, *out;
    ech__option_words studies;
} args;

static const ech__option rows[] = {
    {.name = "batch-size",
     ECH_OPTION(INT, args, batch),
     .initial = "64",
     .min = 1,
     .group = "Training",
     .help = "Samples per device."},
    {.name = "lr",
     ECH_OPTION(REAL, args, lr),
     .initial = "0.01",
     .max = HUGE_VAL,
     .help = "Learning rate."},
    {.name = "share", ECH_OPTION(REAL, args, share), .min = -1, .max = 1},
    {.name = "hue",
     ECH_OPTION(CHOICE, args, hue),
     .choices = "|red|green|blue",
     .initial = "green",
     .help = "A colour."},
    {.name = "ranks",
     .letter = 'n',
     ECH_OPTION(INT, args, ranks),
     .arg = "N",
     .min = 1,
     .max = 64,
     .group = "Machine",
     .help = "How many ranks there are."},
    {.name = "device-memory",
     ECH_OPTION(BYTES, args, memory),
     .min = 1024,
     .help = "Memory of each device; a plan that needs more is refused before it is run, with "
             "the number of bytes that it would need."},
    {.name = "any", ECH_OPTION(INT, args, any)},
    {.name = "trace", .letter = 't', ECH_OPTION(FLAG, args, trace), .help = "Write a trace."},
    {.name = "no-shuffle", ECH_OPTION(FLAG, args, no_shuffle)},
    {.name = "secret", ECH_OPTION(FLAG, args, secret), .hidden = true},
    {.name = "out", ECH_OPTION(STRING, args, out), .arg = "DIR", .help = "Where 'results' go."},
    {.name = "DATA",
     ECH_OPTION(STRING, args, dir),
     .positional = true,
     .required = true,
     .help = "The data."},
    {.name = "STUDY",
     ECH_OPTION(WORDS, args, studies),
     .positional = true,
     .choices = "scaling|overlap",
     .help = "Studies to run."},
};

static const ech__option_example examples[] = {
    {"prog train data -n 4", "Four ranks."},
};

typedef struct run_args {
    int64_t ranks;
    ech__option_rest program;
} run_args;

static const ech__option run_rows[] = {
    {.name = "ranks", .letter = 'n', ECH_OPTION(INT, run_args, ranks), .required = true},
    {.name = "PROG", ECH_OPTION(REST, run_args, program), .positional = true, .required = true},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const ech__command commands[] = {
    {.name = "train",
     .brief = "train a model",
     .about = "Trains a model.\n\n.Second paragraph with a leading dot, a \\ and 'quotes'.",
     .options = rows,
     .count = COUNT(rows),
     .examples = examples,
     .example_count = COUNT(examples)},
    {.name = "run", .brief = "run a program", .options = run_rows, .count = COUNT(run_rows)},
    {.name = "bench comm", .brief = "measure collectives"},
    {.name = "bench step", .brief = "measure steps"},
};
static const ech__command *const listed[] = {&commands[0], &commands[1], &commands[2],
                                             &commands[3]};
static const ech__option_section sections[] = {{"EXIT STATUS", "0 good\n\n1 failed"}};
static const ech__program program = {.name = "prog",
                                     .version = "1.2",
                                     .brief = "a program",
                                     .about = "Does things.",
                                     .commands = listed,
                                     .count = COUNT(listed),
                                     .sections = sections,
                                     .section_count = 1};

enum { MAX_ARGV = 96 };

typedef struct parsed {
    ech_ctx *ctx;
    args a;
    ech__option_result r;
    char *argv[MAX_ARGV];
} parsed;

static int setup(void **state)
{
    parsed *p = calloc(1, sizeof *p);
    assert_int_equal(ech_ctx_create(NULL, &p->ctx), ECH_OK);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    parsed *p = *state;
    ech_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

/* Splits line at blanks; the words live as long as the test. */
static char line_buffer[1024];

static char **split(char **argv, const char *line)
{
    int count = 0;
    snprintf(line_buffer, sizeof line_buffer, "%s", line);
    for (char *word = strtok(line_buffer, " "); word; word = strtok(NULL, " "))
        argv[count++] = word;
    argv[count] = NULL;
    return argv;
}

static ech_status parse(parsed *p, const char *line)
{
    p->a = (args){0};
    return ech__option_parse(p->ctx, &commands[0], split(p->argv, line), &p->a, &p->r);
}

static void refuses(parsed *p, const char *line, const char *sentence)
{
    assert_int_equal(parse(p, line), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(p->ctx), sentence);
}

static void initial_values_apply(void **state)
{
    parsed *p = *state;
    p->a.any = 5;
    assert_int_equal(parse(p, "data"), ECH_OK);
    assert_int_equal(p->a.batch, 64);
    assert_true(p->a.lr == 0.01);
    assert_int_equal(p->a.hue, GREEN);
    assert_int_equal(p->a.ranks, 0);
    assert_string_equal(p->a.dir, "data");
    assert_false(ech__option_given(&p->r, "batch-size"));
    assert_true(ech__option_given(&p->r, "DATA"));
    assert_false(p->r.help);
}

static void every_spelling_is_taken(void **state)
{
    parsed *p = *state;
    assert_int_equal(parse(p,
                           "--batch_size 8 --lr=1e-3 data --hue=blue -n 4 --no_shuffle -t --secret "
                           "--device-memory 1.5G --any -7 --out=--x"),
                     ECH_OK);
    assert_int_equal(p->a.batch, 8);
    assert_true(p->a.lr == 1e-3);
    assert_int_equal(p->a.hue, BLUE);
    assert_int_equal(p->a.ranks, 4);
    assert_true(p->a.no_shuffle && p->a.trace && p->a.secret);
    assert_int_equal(p->a.memory, 1536LL << 20);
    assert_int_equal(p->a.any, -7);
    assert_string_equal(p->a.out, "--x");
    assert_true(ech__option_given(&p->r, "batch-size"));
    assert_true(ech__option_given(&p->r, "trace"));
    assert_false(ech__option_given(&p->r, "share"));
    assert_int_equal(parse(p, "data -n4"), ECH_OK);
    assert_int_equal(p->a.ranks, 4);
    assert_int_equal(parse(p, "data -n=5 --out -"), ECH_OK);
    assert_int_equal(p->a.ranks, 5);
    assert_string_equal(p->a.out, "-");
    assert_int_equal(parse(p, "data --batch-size 1 --batch-size 2"), ECH_OK);
    assert_int_equal(p->a.batch, 2);
}

static void sizes_take_units(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"4K", 4096},          {"64M", 64 << 20},
                {"48GB", 48000000000}, {"1.5kb", 1500},
                {"2GiB", 2LL << 30},   {"1t", 1LL << 40},
                {"1024", 1024},        {"2048B", 2048},
                {"0.5M", 512 << 10},   {"8388607T", 8388607LL << 40},
                {"1.25k", 1280},       {"9223372036854775806", INT64_MAX - 1}};
    static const char *const bad[] = {"4Q",
                                      "K",
                                      "4KK",
                                      "-4K",
                                      "4 K",
                                      "0x1000",
                                      "1e6",
                                      "4i",
                                      "4Ki",
                                      "8388608T",
                                      "9223372036854775808",
                                      "1.2.3K",
                                      "nan",
                                      "4KBs"};
    parsed *p = *state;
    char line[64];
    for (size_t i = 0; i < COUNT(good); i++) {
        snprintf(line, sizeof line, "data --device-memory=%s", good[i].text);
        assert_int_equal(parse(p, line), ECH_OK);
        assert_int_equal(p->a.memory, good[i].bytes);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        char *argv[] = {(char *)"data", line, NULL};
        snprintf(line, sizeof line, "--device-memory=%s", bad[i]);
        assert_int_equal(ech__option_parse(p->ctx, &commands[0], argv, &p->a, &p->r),
                         ECH_E_INVALID);
        assert_non_null(strstr(ech_ctx_error(p->ctx), ": must be a size such as 64M or 48GB"));
    }
}

static void numbers_are_checked(void **state)
{
    parsed *p = *state;
    refuses(p, "d --batch-size 0", "--batch-size 0: must be at least 1");
    refuses(p, "d --batch-size x", "--batch-size x: must be a whole number");
    refuses(p, "d --batch-size 1.5", "--batch-size 1.5: must be a whole number");
    refuses(p, "d --batch-size 1x", "--batch-size 1x: must be a whole number");
    refuses(p, "d --batch-size=", "--batch-size : must be a whole number");
    refuses(p, "d --any 9223372036854775808", "--any 9223372036854775808: must be a whole number");
    refuses(p, "d -n 65", "--ranks 65: must be at most 64");
    refuses(p, "d --lr -1", "--lr -1: must be at least 0");
    refuses(p, "d --lr fast", "--lr fast: must be a number");
    refuses(p, "d --lr nan", "--lr nan: must be a number");
    refuses(p, "d --lr inf", "--lr inf: must be a number");
    refuses(p, "d --lr 1e999", "--lr 1e999: must be a number");
    refuses(p, "d --lr 0x10", "--lr 0x10: must be a number");
    refuses(p, "d --share 1.01", "--share 1.01: must be at most 1");
    refuses(p, "d --share -1.01", "--share -1.01: must be at least -1");
    refuses(p, "d --device-memory 1023", "--device-memory 1023: must be at least 1024");
    assert_int_equal(parse(p, "d --share -1 --lr .5 --any +3"), ECH_OK);
    assert_true(p->a.lr == 0.5 && p->a.share == -1);
    assert_int_equal(parse(p, "d --lr 1e-320"), ECH_OK);
}

static void mistakes_get_one_sentence(void **state)
{
    parsed *p = *state;
    refuses(p, "d --batchsize 4", "--batchsize: unknown option; did you mean --batch-size?");
    refuses(p, "d --bach_size=4", "--bach_size: unknown option; did you mean --batch-size?");
    refuses(p, "d --thrace", "--thrace: unknown option; did you mean --trace?");
    refuses(p, "d --secrets", "--secrets: unknown option; see --help");
    refuses(p, "d --zzzzzzzz", "--zzzzzzzz: unknown option; see --help");
    refuses(p, "d -x", "-x: unknown option; see --help");
    refuses(p, "d --batch", "--batch: unknown option; see --help");
    refuses(p, "d --lr", "--lr needs a value");
    refuses(p, "d --lr --trace", "--lr needs a value");
    refuses(p, "d --out -n 3", "--out needs a value");
    refuses(p, "d --trace=yes", "--trace takes no value, yes was given");
    refuses(p, "d --hue pink", "--hue pink: must be one of red, green, blue");
    refuses(p, "d --hue re", "--hue re: must be one of red, green, blue");
    refuses(p, "d --hue=", "--hue : must be one of red, green, blue");
    refuses(p, "", "DATA is missing; see --help");
    ech__option_result r;
    int none = 0;
    assert_int_equal(ech__option_parse(p->ctx, &commands[2], split(p->argv, "x"), &none, &r),
                     ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(p->ctx), "x: unexpected argument; see --help");
}

static void a_long_unknown_option_is_only_cut(void **state)
{
    parsed *p = *state;
    char word[600] = "--";
    char *argv[] = {word, NULL};
    memset(word + 2, 'q', 500);
    assert_int_equal(ech__option_parse(p->ctx, &commands[0], argv, &p->a, &p->r), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "qq: unknown option"));
}

static void words_are_collected(void **state)
{
    parsed *p = *state;
    assert_int_equal(parse(p, "data one --trace two -- --three"), ECH_OK);
    assert_int_equal(p->a.studies.count, 3);
    assert_string_equal(p->a.studies.word[0], "one");
    assert_string_equal(p->a.studies.word[1], "two");
    assert_string_equal(p->a.studies.word[2], "--three");
    char line[600];
    int used = snprintf(line, sizeof line, "data");
    for (int i = 0; i < ECH_OPTION_MAX_WORDS; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, " w");
    assert_int_equal(parse(p, line), ECH_OK);
    snprintf(line + used, sizeof line - (size_t)used, " last");
    refuses(p, line, "STUDY: at most 64 can be given; last is one too many");
}

static void the_rest_is_left_alone(void **state)
{
    parsed *p = *state;
    static const char *const lines[] = {"-n 2 prog -n 3 --help x", "-n 2 -- prog -n 3 --help x"};
    for (size_t i = 0; i < 2; i++) {
        run_args a = {0};
        assert_int_equal(
            ech__option_parse(p->ctx, &commands[1], split(p->argv, lines[i]), &a, &p->r), ECH_OK);
        assert_int_equal(a.ranks, 2);
        assert_int_equal(a.program.count, 5);
        assert_string_equal(a.program.word[0], "prog");
        assert_string_equal(a.program.word[4], "x");
        assert_null(a.program.word[5]);
        assert_false(p->r.help);
    }
    run_args a = {0};
    assert_int_equal(ech__option_parse(p->ctx, &commands[1], split(p->argv, "prog"), &a, &p->r),
                     ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(p->ctx), "--ranks is missing; see --help");
}

static void help_stops_the_parsing(void **state)
{
    parsed *p = *state;
    assert_int_equal(parse(p, "--trace --help --bogus"), ECH_OK);
    assert_true(p->r.help);
    assert_int_equal(parse(p, "-h"), ECH_OK);
    assert_true(p->r.help);
}

static void a_wrong_table_is_an_internal_error(void **state)
{
    parsed *p = *state;
    static const ech__option wrong[] = {
        {.name = "n", ECH_OPTION(INT, args, batch), .initial = "0", .min = 1}};
    const ech__command command = {.name = "odd", .options = wrong, .count = 1};
    assert_int_equal(ech__option_parse(p->ctx, &command, split(p->argv, ""), &p->a, &p->r),
                     ECH_E_INTERNAL);
    assert_string_equal(ech_ctx_error(p->ctx), "option table of odd: --n 0: must be at least 1");
}

/* ---- commands ---- */

static void finds(parsed *p, const char *line, const char *name, const char *next)
{
    char **argv = split(p->argv, line);
    const ech__command *command;
    assert_int_equal(ech__command_find(p->ctx, &program, &argv, &command), ECH_OK);
    if (!name) {
        assert_null(command);
        return;
    }
    assert_string_equal(command->name, name);
    if (next)
        assert_string_equal(*argv, next);
    else
        assert_null(*argv);
}

static void finds_not(parsed *p, const char *line, const char *sentence)
{
    char **argv = split(p->argv, line);
    const ech__command *command;
    assert_int_equal(ech__command_find(p->ctx, &program, &argv, &command), ECH_E_INVALID);
    assert_null(command);
    assert_string_equal(ech_ctx_error(p->ctx), sentence);
}

static void commands_are_found(void **state)
{
    parsed *p = *state;
    finds(p, "train --x", "train", "--x");
    finds(p, "bench step", "bench step", NULL);
    finds(p, "bench comm x", "bench comm", "x");
    finds(p, "", NULL, NULL);
    finds(p, "--help", NULL, NULL);
    finds(p, "help", NULL, NULL);
    finds(p, "bench --help", NULL, NULL);
    finds_not(p, "trian", "trian: unknown command; did you mean train?");
    finds_not(p, "benhc comm", "benhc: unknown command; did you mean bench?");
    finds_not(p, "bench com", "com: unknown command; did you mean comm?");
    finds_not(p, "bench", "bench needs one of these subcommands: comm, step");
    finds_not(p, "whatever", "whatever: unknown command; see prog --help");
    finds_not(p, "--json", "--json: unknown command; see prog --help");
}

/* A command whose name begins with another's is found wherever it stands in the list. */
static void the_longer_name_is_preferred(void **state)
{
    parsed *p = *state;
    static const ech__command plan = {.name = "plan"}, fit = {.name = "plan fit"};
    static const ech__command *const lists[2][2] = {{&plan, &fit}, {&fit, &plan}};
    static const char *const lines[][2] = {
        {"plan fit x", "plan fit"}, {"plan --x", "plan"}, {"plan fits", "plan"}, {"plan", "plan"}};
    for (size_t i = 0; i < 2; i++) {
        const ech__program both = {.name = "prog", .commands = lists[i], .count = 2};
        for (size_t k = 0; k < COUNT(lines); k++) {
            char **argv = split(p->argv, lines[k][0]);
            const ech__command *command;
            assert_int_equal(ech__command_find(p->ctx, &both, &argv, &command), ECH_OK);
            assert_string_equal(command->name, lines[k][1]);
        }
    }
}

/* ---- pages ---- */

typedef void (*page_fn)(FILE *file);

static char *page_text(page_fn page)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    page(file);
    fclose(file);
    return text;
}

static void train_help(FILE *file)
{
    ech__option_help(file, &program, &commands[0], 60);
}

static void help_of_a_command(void **state)
{
    (void)state;
    char *text = page_text(train_help);
    assert_string_equal(text, "Usage: prog train [OPTIONS] DATA [STUDY...]\n"
                              "\n"
                              "Trains a model.\n"
                              "\n"
                              ".Second paragraph with a leading dot, a \\ and 'quotes'.\n"
                              "\n"
                              "Arguments:\n"
                              "  DATA                       The data.\n"
                              "  STUDY...                   Studies to run.\n"
                              "\n"
                              "Training:\n"
                              "      --batch-size N         Samples per device.\n"
                              "                             [default: 64]\n"
                              "      --lr X                 Learning rate. [default: 0.01]\n"
                              "      --share X\n"
                              "      --hue red|green|blue   A colour. [default: green]\n"
                              "\n"
                              "Machine:\n"
                              "  -n, --ranks N              How many ranks there are.\n"
                              "      --device-memory BYTES  Memory of each device; a plan\n"
                              "                             that needs more is refused\n"
                              "                             before it is run, with the\n"
                              "                             number of bytes that it would\n"
                              "                             need.\n"
                              "      --any N\n"
                              "  -t, --trace                Write a trace.\n"
                              "      --no-shuffle\n"
                              "      --out DIR              Where 'results' go.\n"
                              "\n"
                              "General:\n"
                              "  -h, --help                 Show this help and exit.\n"
                              "\n"
                              "Examples:\n"
                              "  prog train data -n 4\n"
                              "      Four ranks.\n");
    free(text);
}

static void run_help(FILE *file)
{
    ech__option_help(file, &program, &commands[1], 80);
}

static void program_help(FILE *file)
{
    ech__option_help(file, &program, NULL, 80);
}

static void help_of_the_program(void **state)
{
    (void)state;
    char *text = page_text(program_help);
    assert_string_equal(text, "Usage: prog COMMAND [OPTIONS]\n\nDoes things.\n\nCommands:\n"
                              "  train       train a model\n"
                              "  run         run a program\n"
                              "  bench comm  measure collectives\n"
                              "  bench step  measure steps\n"
                              "\nprog COMMAND --help shows the options of a command.\n");
    free(text);
    text = page_text(run_help);
    assert_non_null(strstr(text, "Usage: prog run [OPTIONS] --ranks N PROG...\n"));
    free(text);
}

static void a_wide_label_gets_its_own_line(void **state)
{
    (void)state;
    static const ech__option wide[] = {{.name = "schedule",
                                        ECH_OPTION(CHOICE, args, mode),
                                        .choices = "constant|step|cosine|linear",
                                        .help = "Rule."}};
    const ech__command command = {.name = "c", .brief = "b", .options = wide, .count = 1};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    ech__option_help(file, &program, &command, 80);
    fclose(file);
    assert_string_equal(text, "Usage: prog c [OPTIONS]\n\nb\n\nOptions:\n"
                              "      --schedule constant|step|cosine|linear\n"
                              "              Rule.\n"
                              "  -h, --help  Show this help and exit.\n");
    free(text);
}

/* Gives text to a command of the shell and returns what it prints. */
static char *filter(const char *text, const char *command)
{
    char path[] = "/tmp/ech_option_XXXXXX", line[512], *out = calloc(1, 65536);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(line, sizeof line, "{ %s ; } < %s 2>&1", command, path);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t got = fread(out, 1, 65535, pipe);
    out[got] = '\0';
    pclose(pipe);
    unlink(path);
    return out;
}

static void man_page(FILE *file)
{
    ech__option_man(file, &program);
}

static void man_page_has_every_option(void **state)
{
    (void)state;
    char *text = page_text(man_page);
    assert_non_null(strstr(text, ".TH \"PROG\" 1 \"\" \"prog 1.2\" \"User Commands\"\n"));
    assert_non_null(strstr(text, "prog \\- a program\n"));
    assert_non_null(strstr(text, ".SS \"prog train [OPTIONS] DATA [STUDY...]\"\n"));
    assert_non_null(strstr(text, ".TP\n\\fB\\-n\\fR, \\fB\\-\\-ranks\\fR \\fIN\\fR\n"));
    assert_non_null(strstr(text, "Samples per device. Default: \\fB64\\fR.\n"));
    assert_non_null(
        strstr(text, "Trains a model.\n.PP\n\\&.Second paragraph with a leading dot, a \\e and "
                     "\\(aqquotes\\(aq."));
    assert_non_null(strstr(text, ".SH \"EXIT STATUS\"\n0 good\n.PP\n1 failed\n"));
    assert_null(strstr(text, "secret"));
    free(text);
}

static void man_page_has_no_warnings(void **state)
{
    (void)state;
    if (system("command -v groff >/dev/null") != 0)
        skip();
    char *text = page_text(man_page), *said = filter(text, "groff -man -Tutf8 -ww -z -rLL=80n");
    assert_string_equal(said, "");
    free(said);
    said = filter(text, "groff -man -Tutf8 -P-cbou");
    assert_non_null(strstr(said, ".Second paragraph with a leading dot, a \\ and 'quotes'."));
    assert_non_null(strstr(said, "-n, --ranks N"));
    free(said);
    free(text);
}

static void completion(FILE *file)
{
    ech__option_bash(file, &program);
}

/* What the script offers when the cursor stands behind line. */
static void completes(const char *script, const char *line, const char *want)
{
    char command[400];
    snprintf(command, sizeof command,
             "bash -c 'compopt() { :; }; source /dev/stdin; COMP_WORDS=(prog %s); "
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _prog; echo \"${COMPREPLY[*]}\"'",
             line);
    char *got = filter(script, command);
    got[strcspn(got, "\n")] = '\0';
    assert_string_equal(got, want);
    free(got);
}

static void completion_offers_what_fits(void **state)
{
    (void)state;
    char *script = page_text(completion);
    completes(script, "\"\"", "help train run bench");
    completes(script, "t", "train");
    completes(script, "bench \"\"", "comm step");
    completes(script, "bench s", "step");
    completes(script, "bench comm -", "--help");
    completes(script, "train --b", "--batch-size");
    completes(script, "train --hue \"\"", "red green blue");
    completes(script, "train --hue = g", "green");
    completes(script, "train --hue =", "red green blue");
    completes(script, "train --batch-size \"\"", "");
    completes(script, "train --se", "");
    completes(script, "train --out /et", "/etc");
    completes(script, "run /dev/nul", "/dev/null");
    completes(script, "run -n \"\"", "");
    assert_non_null(strstr(script, "complete -F _prog prog\n"));
    free(script);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(initial_values_apply),
        TEST(every_spelling_is_taken),
        TEST(sizes_take_units),
        TEST(numbers_are_checked),
        TEST(mistakes_get_one_sentence),
        TEST(a_long_unknown_option_is_only_cut),
        TEST(words_are_collected),
        TEST(the_rest_is_left_alone),
        TEST(help_stops_the_parsing),
        TEST(a_wrong_table_is_an_internal_error),
        TEST(commands_are_found),
        TEST(the_longer_name_is_preferred),
        TEST(help_of_a_command),
        TEST(help_of_the_program),
        TEST(a_wide_label_gets_its_own_line),
        TEST(man_page_has_every_option),
        TEST(man_page_has_no_warnings),
        TEST(completion_offers_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
