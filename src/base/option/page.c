/* The pages that option tables make: --help, the man page and the bash completion. */
#include "base/option/option.h"

#include <ctype.h>
#include <string.h>

static const ech__option help_row = {
    .name = "help", .letter = 'h', .kind = ECH_OPTION_FLAG, .help = "Show this help and exit."};

/* The rows of a command that pages show, and then --help. */
static const ech__option *next_row(const ech__command *command, size_t *index)
{
    while (*index < command->count) {
        const ech__option *row = &command->options[(*index)++];
        if (!row->hidden)
            return row;
    }
    return (*index)++ == command->count ? &help_row : NULL;
}

/* The placeholder of a row's value; NULL for a flag. */
static const char *placeholder(const ech__option *row)
{
#define ARG(id, type, other, arg, words) arg,
    static const char *const args[] = {ECH_OPTION_KIND_LIST(ARG)};
#undef ARG
    if (row->arg)
        return row->arg;
    return row->kind == ECH_OPTION_CHOICE || row->kind == ECH_OPTION_SWITCH
               ? row->choices + (*row->choices == '|')
               : args[row->kind];
}

static bool is_many(const ech__option *row)
{
    return row->kind == ECH_OPTION_WORDS || row->kind == ECH_OPTION_REST;
}

/* ---- help ---- */

/* Columns of UTF-8 text, one a character. */
static int columns(const char *text, size_t bytes)
{
    int count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Lines of at most width columns that begin at column indent. */
typedef struct wrapper {
    FILE *file;
    int width, indent;
    int column; /* where the next character goes */
} wrapper;

static void wrap_start(wrapper *w, int indent)
{
    w->indent = indent;
    if (w->column > indent) {
        fputc('\n', w->file);
        w->column = 0;
    }
    fprintf(w->file, "%*s", indent - w->column, "");
    w->column = indent;
}

/* A piece of text that stays on one line. */
static void wrap_piece(wrapper *w, const char *text, size_t len)
{
    const int wide = columns(text, len);
    const bool first = w->column <= w->indent;
    if (!first && w->column + 1 + wide > w->width) {
        fprintf(w->file, "\n%*s", w->indent, "");
        w->column = w->indent;
    } else if (!first) {
        fputc(' ', w->file);
        w->column++;
    }
    fprintf(w->file, "%.*s", (int)len, text);
    w->column += wide;
}

static void wrap_words(wrapper *w, const char *text)
{
    while (*text) {
        const size_t len = strcspn(text, " \n");
        if (len > 0)
            wrap_piece(w, text, len);
        text += len;
        if (!strncmp(text, "\n\n", 2)) {
            fprintf(w->file, "\n\n%*s", w->indent, "");
            w->column = w->indent;
        }
        text += strspn(text, " \n");
    }
}

static void wrap_end(wrapper *w)
{
    fputc('\n', w->file);
    w->column = 0;
}

static void wrap_text(wrapper *w, int indent, const char *text)
{
    wrap_start(w, indent);
    wrap_words(w, text);
    wrap_end(w);
}

/* "-n, --ranks N", "    --seed N" or "STUDY...". Returns the length. */
static int format_label(char *text, size_t size, const ech__option *row)
{
    if (row->positional) {
        snprintf(text, size, "%s%s", row->name, is_many(row) ? "..." : "");
        return (int)strlen(text);
    }
    const char *value = placeholder(row);
    char letter[8] = "    ";
    if (row->letter)
        snprintf(letter, sizeof letter, "-%c, ", row->letter);
    snprintf(text, size, "%s--%s%s%s", letter, row->name, value ? " " : "", value ? value : "");
    return (int)strlen(text);
}

static void print_usage(wrapper *w, const ech__program *program, const ech__command *command)
{
    fprintf(w->file, "Usage: %s %s", program->name, command->name);
    w->column = (int)(8 + strlen(program->name) + strlen(command->name));
    w->indent = 8;
    wrap_piece(w, "[OPTIONS]", 9);
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        char text[96];
        const char *many = is_many(row) ? "..." : "";
        if (row->hidden || (!row->positional && !row->required))
            continue;
        if (!row->positional)
            snprintf(text, sizeof text, "--%s %s", row->name, placeholder(row));
        else
            snprintf(text, sizeof text, row->required ? "%s%s" : "[%s%s]", row->name, many);
        wrap_piece(w, text, strlen(text));
    }
    wrap_end(w);
}

static void print_row(wrapper *w, const ech__option *row, int column)
{
    char label[256];
    const int len = format_label(label, sizeof label, row);
    fprintf(w->file, "  %s", label);
    w->column = 2 + len;
    if (!row->help && !row->initial) {
        wrap_end(w);
        return;
    }
    if (w->column + 2 > column)
        w->column = column + 1; /* the text does not fit after the label: a new line */
    wrap_start(w, column);
    wrap_words(w, row->help ? row->help : "");
    if (row->initial) {
        snprintf(label, sizeof label, "[default: %s]", row->initial);
        wrap_piece(w, label, strlen(label));
    }
    wrap_end(w);
}

enum { WIDEST_LABEL = 26 };

/* The column where help texts start: after the widest label that is not very wide. */
static int text_column(const ech__command *command)
{
    int widest = 0;
    const ech__option *row;
    for (size_t i = 0; (row = next_row(command, &i));) {
        char label[256];
        const int len = format_label(label, sizeof label, row);
        if (len > widest && len <= WIDEST_LABEL)
            widest = len;
    }
    return 2 + widest + 2;
}

static void print_arguments(wrapper *w, const ech__command *command, int column)
{
    bool first = true;
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (!row->positional || row->hidden)
            continue;
        if (first)
            fputs("\nArguments:\n", w->file);
        first = false;
        print_row(w, row, column);
    }
}

static void print_options(wrapper *w, const ech__command *command, int column)
{
    const char *group = NULL, *heading = "Options";
    const ech__option *row;
    for (size_t i = 0; (row = next_row(command, &i));) {
        if (row->positional)
            continue;
        if (row->group)
            heading = row->group;
        else if (row == &help_row && strcmp(heading, "Options") != 0)
            heading = "General";
        if (!group || strcmp(group, heading) != 0)
            fprintf(w->file, "\n%s:\n", heading);
        group = heading;
        print_row(w, row, column);
    }
}

static void print_examples(wrapper *w, const ech__command *command)
{
    for (size_t i = 0; i < command->example_count; i++) {
        const ech__option_example *example = &command->examples[i];
        fprintf(w->file, "%s  %s\n", i ? "" : "\nExamples:\n", example->line);
        if (example->text)
            wrap_text(w, 6, example->text);
    }
}

static void print_program_help(wrapper *w, const ech__program *program)
{
    int widest = 0;
    fprintf(w->file, "Usage: %s COMMAND [OPTIONS]\n\n", program->name);
    wrap_text(w, 0, program->about ? program->about : program->brief);
    for (size_t i = 0; i < program->count; i++) {
        const int len = (int)strlen(program->commands[i]->name);
        widest = len > widest ? len : widest;
    }
    fputs("\nCommands:\n", w->file);
    for (size_t i = 0; i < program->count; i++) {
        const ech__command *command = program->commands[i];
        fprintf(w->file, "  %s", command->name);
        w->column = 2 + (int)strlen(command->name);
        wrap_text(w, widest + 4, command->brief);
    }
    fprintf(w->file, "\n%s COMMAND --help shows the options of a command.\n", program->name);
}

void ech__option_help(FILE *file, const ech__program *program, const ech__command *command,
                      int width)
{
    wrapper w = {.file = file, .width = width < 40 ? 40 : width};
    if (!command) {
        print_program_help(&w, program);
        return;
    }
    print_usage(&w, program, command);
    fputc('\n', file);
    wrap_text(&w, 0, command->about ? command->about : command->brief);
    print_arguments(&w, command, text_column(command));
    print_options(&w, command, text_column(command));
    print_examples(&w, command);
}

/* ---- man page ---- */

/* Text that roff prints as it stands. */
static void roff_text(FILE *file, const char *text)
{
    static const char marks[] = "\\-'`\"^~";
    static const char *const names[] = {"e", "-", "(aq", "(ga", "(dq", "(ha", "(ti"};
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", file);
        line_start = *text == '\n';
        const char *mark = strchr(marks, *text);
        if (mark)
            fprintf(file, "\\%s", names[mark - marks]);
        else if (line_start)
            fputs(text[1] == '\n' ? "\n.PP" : "\n", file);
        else
            fputc(*text, file);
    }
}

/* A macro with one argument: .SH "TITLE" */
static void roff_macro(FILE *file, const char *macro, const char *text)
{
    fprintf(file, ".%s \"", macro);
    roff_text(file, text);
    fputs("\"\n", file);
}

static void roff_styled(FILE *file, char font, const char *text)
{
    fprintf(file, "\\f%c", font);
    roff_text(file, text);
    fputs("\\fR", file);
}

static void roff_row(FILE *file, const ech__option *row)
{
    fputs(".TP\n", file);
    if (row->positional) {
        roff_styled(file, 'I', row->name);
        fputs(is_many(row) ? "...\n" : "\n", file);
    } else {
        const char *value = placeholder(row);
        char name[80];
        if (row->letter) {
            snprintf(name, sizeof name, "-%c", row->letter);
            roff_styled(file, 'B', name);
            fputs(", ", file);
        }
        snprintf(name, sizeof name, "--%s", row->name);
        roff_styled(file, 'B', name);
        if (value) {
            fputc(' ', file);
            roff_styled(file, 'I', value);
        }
        fputc('\n', file);
    }
    roff_text(file, row->help ? row->help : "");
    if (row->initial) {
        fputs(row->help ? " Default: " : "Default: ", file);
        roff_styled(file, 'B', row->initial);
        fputc('.', file);
    }
    fputc('\n', file);
}

static void roff_rows(FILE *file, const ech__command *command)
{
    const char *group = NULL;
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (row->hidden)
            continue;
        if (row->group && (!group || strcmp(group, row->group) != 0)) {
            group = row->group;
            fputs(".PP\n", file);
            roff_styled(file, 'I', group);
            fputs(":\n", file);
        }
        roff_row(file, row);
    }
}

static void roff_command(FILE *file, const ech__program *program, const ech__command *command)
{
    fputs(".SS \"", file);
    roff_text(file, program->name);
    fputc(' ', file);
    roff_text(file, command->name);
    fputs(" [OPTIONS]", file);
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (row->positional && !row->hidden) {
            fputs(row->required ? " " : " [", file);
            roff_text(file, row->name);
            fprintf(file, "%s%s", is_many(row) ? "..." : "", row->required ? "" : "]");
        }
    }
    fputs("\"\n", file);
    if (command->about) {
        roff_text(file, command->about);
        fputc('\n', file);
    } else {
        fputc(toupper((unsigned char)command->brief[0]), file);
        roff_text(file, command->brief + 1);
        fputs(".\n", file);
    }
    roff_rows(file, command);
    for (size_t i = 0; i < command->example_count; i++) {
        fputs(".PP\n", file);
        roff_text(file, command->examples[i].text ? command->examples[i].text : "Example:");
        fputs("\n.PP\n.RS 4\n.nf\n", file);
        roff_styled(file, 'B', command->examples[i].line);
        fputs("\n.fi\n.RE\n", file);
    }
}

void ech__option_man(FILE *file, const ech__program *program)
{
    fputs(".\\\" Made from the option tables of the program.\n.TH \"", file);
    for (const char *c = program->name; *c; c++)
        fputc(toupper((unsigned char)*c), file);
    fprintf(file, "\" 1 \"\" \"%s %s\" \"User Commands\"\n.nh\n.SH NAME\n", program->name,
            program->version);
    roff_text(file, program->name);
    fputs(" \\- ", file);
    roff_text(file, program->brief);
    fputs("\n.SH SYNOPSIS\n", file);
    roff_styled(file, 'B', program->name);
    fputs(" \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n", file);
    if (program->about) {
        fputs(".SH DESCRIPTION\n", file);
        roff_text(file, program->about);
        fputc('\n', file);
    }
    fputs(".SH COMMANDS\nEvery command takes \\fB\\-h\\fR and \\fB\\-\\-help\\fR. In a name of an "
          "option an "
          "underscore\nmay stand for a dash, and a value follows it as the next word or after an "
          "equals "
          "sign.\nSizes take K, M, G and T, which are powers of 1024.\n",
          file);
    for (size_t i = 0; i < program->count; i++)
        roff_command(file, program, program->commands[i]);
    for (size_t i = 0; i < program->section_count; i++) {
        roff_macro(file, "SH", program->sections[i].title);
        roff_text(file, program->sections[i].text);
        fputc('\n', file);
    }
}

/* ---- bash completion ---- */

/* "|a|b|c" as "a b c". */
static void bash_choices(FILE *file, const char *choices)
{
    for (choices += *choices == '|'; *choices; choices++)
        fputc(*choices == '|' ? ' ' : *choices, file);
}

/* How the shell completes a value: a directory, a file, one of some words, or not at all. */
static void bash_value(FILE *file, const ech__option *row)
{
    const char *arg = row->positional ? row->name : placeholder(row);
    if (row->choices) {
        fputs("words=\"", file);
        bash_choices(file, row->choices);
        fputs("\"", file);
    } else if (row->kind == ECH_OPTION_REST || (arg && strstr(arg, "FILE"))) {
        fputs("kind=\"file\"", file);
    } else if (arg && strstr(arg, "DIR")) {
        fputs("kind=\"directory\"", file);
    } else {
        fputs("kind=\"none\"", file);
    }
    fputs(" ;;\n", file);
}

static void bash_option_values(FILE *file, const ech__command *command)
{
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (row->hidden || row->positional || ech__option_is_flag(row))
            continue;
        fprintf(file, "        \"%s --%s\"", command->name, row->name);
        if (row->letter)
            fprintf(file, " | \"%s -%c\"", command->name, row->letter);
        fputs(") ", file);
        bash_value(file, row);
    }
}

static void bash_command_words(FILE *file, const ech__command *command)
{
    const ech__option *row, *positional = NULL;
    fprintf(file, "            \"%s\")\n                options=\"", command->name);
    for (size_t i = 0; (row = next_row(command, &i));) {
        if (!row->positional)
            fprintf(file, "--%s%s", row->name, row == &help_row ? "" : " ");
        else if (!positional)
            positional = row;
    }
    fputs("\"\n                ", file);
    if (positional)
        bash_value(file, positional);
    else
        fputs(";;\n", file);
}

static bool same_first_word(const ech__command *a, const ech__command *b)
{
    const size_t len = strcspn(a->name, " ");
    return strcspn(b->name, " ") == len && !strncmp(a->name, b->name, len);
}

/* Whether no command before this one has the same first word. */
static bool is_first_of_family(const ech__program *program, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (same_first_word(program->commands[i], program->commands[index]))
            return false;
    }
    return true;
}

/* The possible first words, and the possible second words after each. */
static void bash_command_names(FILE *file, const ech__program *program)
{
    fputs("            \"\") words=\"help", file);
    for (size_t i = 0; i < program->count; i++) {
        const char *name = program->commands[i]->name;
        if (is_first_of_family(program, i))
            fprintf(file, " %.*s", (int)strcspn(name, " "), name);
    }
    fputs("\" ;;\n", file);
    for (size_t i = 0; i < program->count; i++) {
        const char *name = program->commands[i]->name;
        if (!strchr(name, ' ') || !is_first_of_family(program, i))
            continue;
        fprintf(file, "            \"%.*s\") words=\"", (int)strcspn(name, " "), name);
        for (size_t k = i; k < program->count; k++) {
            const char *second = strchr(program->commands[k]->name, ' ');
            if (second && same_first_word(program->commands[i], program->commands[k]))
                fprintf(file, "%s%s", k == i ? "" : " ", second + 1);
        }
        fputs("\" ;;\n", file);
    }
}

static const char bash_head[] =
    "()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]} words=\"\" options=\"\" kind=\"\"\n"
    "    COMPREPLY=()\n"
    "    # The shell hands --name=value over as three words.\n"
    "    if [[ $cur == \"=\" ]]; then\n"
    "        cur=\"\"\n"
    "    elif [[ $prev == \"=\" ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    prev=${prev//_/-}\n"
    "    [[ $COMP_CWORD -eq 1 ]] && command=\"\"\n";

static const char bash_tail[] =
    "    if [[ -n $options && ( $cur == -* || -z $words$kind ) ]]; then\n"
    "        words=$options kind=\"\"\n"
    "    fi\n"
    "    case \"$kind\" in\n"
    "        file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
    "        directory) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
    "        none) ;;\n"
    "        *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
    "    esac\n"
    "}\n";

void ech__option_bash(FILE *file, const ech__program *program)
{
    fprintf(file, "# bash completion for %s; made from its option tables.\n_%s", program->name,
            program->name);
    fputs(bash_head, file);
    fputs("    case \"$command ${COMP_WORDS[2]}\" in\n", file);
    for (size_t i = 0; i < program->count; i++) {
        const char *name = program->commands[i]->name;
        if (strchr(name, ' '))
            fprintf(file, "        \"%s\") [[ $COMP_CWORD -gt 2 ]] && command=\"%s\" ;;\n", name,
                    name);
    }
    fputs("    esac\n    case \"$command $prev\" in\n", file);
    for (size_t i = 0; i < program->count; i++)
        bash_option_values(file, program->commands[i]);
    fputs("    esac\n    if [[ -z $words$kind ]]; then\n        case \"$command\" in\n", file);
    bash_command_names(file, program);
    for (size_t i = 0; i < program->count; i++)
        bash_command_words(file, program->commands[i]);
    fputs("        esac\n    fi\n", file);
    fputs(bash_tail, file);
    fprintf(file, "complete -F _%s %s\n", program->name, program->name);
}
