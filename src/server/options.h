/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: the command line, the environment and the configuration file, by one table (options.def), and the texts that
 * are made from it. Values live in the arena that was given, until the process ends.
 */
#ifndef TARN_OPTIONS_H
#define TARN_OPTIONS_H

#include "tarn/base.h"

#define TARN_DRIVES_MAX 128
#define TARN_OPTION_BYTES_MAX 65536
#define TARN_OPTION_WARNINGS_MAX 32
#define TARN_OPTION_DAYS_MAX 36500u
#define TARN_CONFIG_FILE_BYTES_MAX (256 * 1024)

typedef enum tarn_option_id {
#define OPTION(id, flag, env, synonyms, def, kind, arg, topic, help) TARN_OPT_##id,
#include "options.def"
#undef OPTION
    TARN_OPTION_COUNT
} tarn_option_id;

typedef enum tarn_option_kind {
    TARN_OPTION_TEXT,
    TARN_OPTION_SECRET,
    TARN_OPTION_LIST,
    TARN_OPTION_WORDS,
    TARN_OPTION_SWITCH,
    TARN_OPTION_NUMBER,
    TARN_OPTION_CHOICE,
    TARN_OPTION_DURATION /* a number and s, m, h or d; off */
} tarn_option_kind;

typedef enum tarn_option_source { TARN_FROM_DEFAULT, TARN_FROM_FILE, TARN_FROM_ENVIRONMENT, TARN_FROM_COMMAND_LINE } tarn_option_source;

typedef struct tarn_option_row {
    const char *flag;
    const char *env;
    const char *synonyms;
    const char *def;
    tarn_option_kind kind;
    const char *arg;
    const char *topic;
    const char *help;
} tarn_option_row;
extern const tarn_option_row tarn_option_rows[TARN_OPTION_COUNT];

typedef struct tarn_options {
    tarn_arena *arena;
    tarn_str values[TARN_OPTION_COUNT];
    tarn_option_source sources[TARN_OPTION_COUNT];
    const char *drives[TARN_DRIVES_MAX];
    size_t drives_n;
    const char *warnings[TARN_OPTION_WARNINGS_MAX]; /* for the log, once it is open */
    size_t warnings_n;
} tarn_options;

/*
 * words: behind "server". environment: as environ. INVALID or LIMIT with *problem, a sentence that says what to do.
 */
tarn_err tarn_options_parse(tarn_options *o, tarn_arena *arena, int words_n, char *const *words, char *const *environment,
                            tarn_str *problem);
uint64_t tarn_option_number(const tarn_options *o, tarn_option_id id);
uint64_t tarn_option_seconds(const tarn_options *o, tarn_option_id id); /* 0: off */
bool tarn_option_is(const tarn_options *o, tarn_option_id id, const char *value);
/* Splits a LIST; empty items are left out. Returns how many there are (at most max are written). */
size_t tarn_option_list(tarn_str value, tarn_str *out, size_t max);

/* "/data{1...4}/x{a...c}" → 12 paths, the first pattern slowest. INVALID for a broken pattern, LIMIT past max. */
tarn_err tarn_ellipses(tarn_str pattern, tarn_arena *arena, const char **out, size_t max, size_t *n);

/* Texts. topic NULL: the overview. False for an unknown topic. */
bool tarn_help_render(tarn_sb *b, const char *topic);
void tarn_man_render(tarn_sb *b);
void tarn_configuration_render(tarn_sb *b); /* docs/configuration.md */

/* What the process ends with, and what that means. */
typedef enum tarn_exit {
    TARN_EXIT_OK = 0,
    TARN_EXIT_FAILED = 1,
    TARN_EXIT_USAGE = 2,
    TARN_EXIT_ADDRESS = 3,
    TARN_EXIT_DRIVES = 4,
    TARN_EXIT_CREDENTIALS = 5,
    TARN_EXIT_LIMITS = 6,
    TARN_EXIT_DAMAGED = 7
} tarn_exit;

#endif
