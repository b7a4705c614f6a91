/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts made from the option table: help, man page, docs/configuration.md. Nothing is written twice.
 */
#include <string.h>

#include "server.h"

#define WIDTH 78

static const struct {
    const char *name, *title;
} topics[] = {
    {"server", "Server"}, {"credentials", "Credentials"}, {"storage", "Storage"}, {"performance", "Performance"}, {"log", "Log"},
};

static const struct {
    tarn_exit status;
    const char *meaning;
} exits[] = {
    {TARN_EXIT_OK, "done, or ended by TERM or INT after a drain"},
    {TARN_EXIT_FAILED, "failed for a reason that the message gives; also: not healthy, or ended by a second TERM"},
    {TARN_EXIT_USAGE, "the command line, a variable or the configuration file is wrong"},
    {TARN_EXIT_ADDRESS, "an address cannot be listened on (in use, not allowed, not of this machine)"},
    {TARN_EXIT_DRIVES, "the drives cannot be used (missing, of another deployment, in another order, read-only, too few)"},
    {TARN_EXIT_CREDENTIALS, "the root's credentials are not acceptable or cannot be read"},
    {TARN_EXIT_LIMITS, "the system allows too little (open files, threads, io_uring that was asked for by name)"},
    {TARN_EXIT_DAMAGED, "tarn admin fsck found damage"},
};

static const char usage[] = "tarn server [--address HOST:PORT] [--config FILE] [OPTIONS] DRIVE...\n"
                            "tarn admin COMMAND [OPTIONS] [DRIVE...]\n" TARN_HEALTH_USAGE "\n"
                            "tarn version\n"
                            "tarn help [TOPIC | --man | --configuration]\n";

static const char precedence[] =
    "The command line wins over the environment, the environment over the configuration file. Every variable may stand "
    "in the file too. MinIO's names are accepted as synonyms; its other variables and options are named in a warning "
    "and ignored, and so is a `TARN_` variable that there is not.";

/* ------------------------------------------------------------------ help on a terminal */

/* Words of `text`, folded at WIDTH, each line indented. */
static void fold(tarn_sb *b, const char *text, size_t indent)
{
    tarn_str rest = tarn_str_of(text);
    size_t column = 0;
    while (rest.n > 0) {
        tarn_str word, next;
        if (!tarn_str_split(rest, ' ', &word, &next)) {
            word = rest;
            next = TARN_STR_NULL;
        }
        if (column > 0 && column + 1 + word.n > WIDTH) {
            tarn_sb_char(b, '\n');
            column = 0;
        }
        if (column == 0) {
            tarn_sb_fmt(b, "%*s", (int)indent, "");
            column = indent;
        } else {
            tarn_sb_char(b, ' ');
            column++;
        }
        tarn_sb_str(b, word);
        column += word.n;
        rest = next;
    }
    tarn_sb_char(b, '\n');
}

static void help_option(tarn_sb *b, const tarn_option_row *row)
{
    tarn_sb_cstr(b, "  ");
    if (row->flag[0] != '\0') {
        tarn_sb_fmt(b, "%s %s, ", row->flag, row->arg);
    }
    tarn_sb_fmt(b, "%s=%s\n", row->env, row->arg);
    fold(b, row->help, 6);
    if (row->def[0] != '\0') {
        tarn_sb_fmt(b, "      Default: %s\n", row->def);
    }
    if (row->synonyms[0] != '\0') {
        tarn_sb_fmt(b, "      MinIO: %s\n", row->synonyms);
    }
}

static void help_topic(tarn_sb *b, size_t topic)
{
    tarn_sb_fmt(b, "%s\n", topics[topic].title);
    for (size_t i = 0; i < TARN_OPTION_COUNT; i++) {
        if (strcmp(tarn_option_rows[i].topic, topics[topic].name) == 0) {
            help_option(b, &tarn_option_rows[i]);
        }
    }
    tarn_sb_char(b, '\n');
}

static void help_exits(tarn_sb *b)
{
    tarn_sb_cstr(b, "Exit status\n");
    for (size_t i = 0; i < TARN_ARRAY_LEN(exits); i++) {
        tarn_sb_fmt(b, "  %d   %s\n", (int)exits[i].status, exits[i].meaning);
    }
}

static void help_overview(tarn_sb *b)
{
    tarn_sb_fmt(b, "tarn %s: S3 and an Iceberg REST catalog on local drives, in one daemon\n\n%s\n", TARN_VERSION, usage);
    tarn_sb_cstr(
        b,
        "Drives are folders, best one a disk; \"/mnt/drive{1...6}\" stands for six of them.\n\nTopics of \"tarn help\": all, admin, exit");
    for (size_t i = 0; i < TARN_ARRAY_LEN(topics); i++) {
        tarn_sb_fmt(b, ", %s", topics[i].name);
    }
    tarn_sb_cstr(b, "\n");
}

bool tarn_help_render(tarn_sb *b, const char *topic)
{
    if (topic == NULL) {
        help_overview(b);
        return true;
    }
    if (strcmp(topic, "exit") == 0) {
        help_exits(b);
        return true;
    }
    if (strcmp(topic, "admin") == 0) {
        tarn_admin_help_render(b);
        return true;
    }
    bool all = strcmp(topic, "all") == 0, found = all;
    if (all || strcmp(topic, "server") == 0) {
        tarn_sb_fmt(b, "%s\n", usage);
        fold(b, precedence, 0);
        tarn_sb_char(b, '\n');
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(topics); i++) {
        /* The help of the command "server" is the help on all its options. */
        if (all || strcmp(topic, "server") == 0 || strcmp(topic, topics[i].name) == 0) {
            help_topic(b, i);
            found = true;
        }
    }
    return found;
}

/* ------------------------------------------------------------------ man page */

/* Text for roff: a backslash, a dash, and a dot or quote at the start of a line have meanings there. */
static void roff(tarn_sb *b, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        bool start = p == text || p[-1] == '\n';
        if (start && (*p == '.' || *p == '\'')) {
            tarn_sb_cstr(b, "\\&");
        }
        if (*p == '\\' || *p == '-') {
            tarn_sb_char(b, '\\');
        }
        tarn_sb_char(b, *p);
    }
}

static void man_option(tarn_sb *b, const tarn_option_row *row)
{
    tarn_sb_cstr(b, ".TP\n\\fB");
    if (row->flag[0] != '\0') {
        roff(b, row->flag);
        tarn_sb_cstr(b, "\\fR \\fI");
        roff(b, row->arg);
        tarn_sb_cstr(b, "\\fR, \\fB");
    }
    roff(b, row->env);
    tarn_sb_cstr(b, "\\fR=\\fI");
    roff(b, row->arg);
    tarn_sb_cstr(b, "\\fR\n");
    roff(b, row->help);
    if (row->def[0] != '\0') {
        tarn_sb_cstr(b, " Default: ");
        roff(b, row->def);
        tarn_sb_char(b, '.');
    }
    if (row->synonyms[0] != '\0') {
        tarn_sb_cstr(b, " MinIO: ");
        roff(b, row->synonyms);
        tarn_sb_char(b, '.');
    }
    tarn_sb_char(b, '\n');
}

void tarn_man_render(tarn_sb *b)
{
    tarn_sb_fmt(b, ".TH TARN 1 \"\" \"tarn %s\"\n.SH NAME\ntarn \\- S3 and an Iceberg REST catalog on local drives\n.SH SYNOPSIS\n.nf\n",
                TARN_VERSION);
    roff(b, usage);
    tarn_sb_cstr(b, ".fi\n.SH OPTIONS\n");
    roff(b, precedence);
    tarn_sb_char(b, '\n');
    for (size_t t = 0; t < TARN_ARRAY_LEN(topics); t++) {
        tarn_sb_fmt(b, ".SS %s\n", topics[t].title);
        for (size_t i = 0; i < TARN_OPTION_COUNT; i++) {
            if (strcmp(tarn_option_rows[i].topic, topics[t].name) == 0) {
                man_option(b, &tarn_option_rows[i]);
            }
        }
    }
    tarn_sb_cstr(
        b, ".SH SIGNALS\n.TP\n\\fBTERM\\fR, \\fBINT\\fR\nNo new connections; requests in flight have 30 seconds; then the database is "
           "checkpointed and the status is 0. A second one ends the process at once.\n.TP\n\\fBHUP\\fR\nThe log file is opened again.\n"
           ".SH EXIT STATUS\n");
    for (size_t i = 0; i < TARN_ARRAY_LEN(exits); i++) {
        tarn_sb_fmt(b, ".TP\n%d\n", (int)exits[i].status);
        roff(b, exits[i].meaning);
        tarn_sb_char(b, '\n');
    }
}

/* ------------------------------------------------------------------ docs/configuration.md */

static void cell(tarn_sb *b, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            tarn_sb_char(b, '\\');
        }
        tarn_sb_char(b, *text);
    }
}

static void code_cell(tarn_sb *b, const char *text)
{
    if (text[0] != '\0') {
        tarn_sb_char(b, '`');
        cell(b, text);
        tarn_sb_char(b, '`');
    }
}

static void md_row(tarn_sb *b, const tarn_option_row *row)
{
    tarn_sb_cstr(b, "| ");
    code_cell(b, row->env);
    tarn_sb_cstr(b, " | ");
    code_cell(b, row->flag);
    tarn_sb_cstr(b, " | ");
    code_cell(b, row->arg);
    tarn_sb_cstr(b, " | ");
    code_cell(b, row->def);
    tarn_sb_cstr(b, " | ");
    cell(b, row->help);
    tarn_sb_cstr(b, " | ");
    code_cell(b, row->synonyms);
    tarn_sb_cstr(b, " |\n");
}

void tarn_configuration_render(tarn_sb *b)
{
    tarn_sb_cstr(b, "# Configuration\n\nThis page is made by `tarn help --configuration` from the one table of options; a test holds it to "
                    "that.\n\n```\n");
    tarn_sb_cstr(b, usage);
    tarn_sb_fmt(b, "```\n\n%s\n", precedence);
    for (size_t t = 0; t < TARN_ARRAY_LEN(topics); t++) {
        tarn_sb_fmt(b, "\n## %s\n\n| variable | option | value | default | meaning | MinIO |\n|---|---|---|---|---|---|\n",
                    topics[t].title);
        for (size_t i = 0; i < TARN_OPTION_COUNT; i++) {
            if (strcmp(tarn_option_rows[i].topic, topics[t].name) == 0) {
                md_row(b, &tarn_option_rows[i]);
            }
        }
    }
    tarn_sb_cstr(b, "\n## Exit status\n\n| status | meaning |\n|---|---|\n");
    for (size_t i = 0; i < TARN_ARRAY_LEN(exits); i++) {
        tarn_sb_fmt(b, "| %d | %s |\n", (int)exits[i].status, exits[i].meaning);
    }
}
