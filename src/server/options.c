/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading options. Precedence: command line, environment, configuration file, default; TARN_ name before MinIO's.
 * A MINIO_ variable or option that means nothing here is warned of by name: whoever moves over must not believe in it. So is
 * a TARN_ variable that there is not: it is a misspelt one.
 * Runs on the main thread before anything else; owns nothing (all in the arena).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

const tarn_option_row tarn_option_rows[TARN_OPTION_COUNT] = {
#define OPTION(id, flag, env, synonyms, def, kind, arg, topic, help) {flag, env, synonyms, def, TARN_OPTION_##kind, arg, topic, help},
#include "options.def"
#undef OPTION
};

/* Options of MinIO's command line that are understood to mean nothing here; with true one word more belongs to them. */
static const struct {
    const char *flag;
    bool has_value;
} minio_flags[] = {
    {"--anonymous", false},
    {"--quiet", false},
    {"--json", false},
    {"--no-compat", false},
    {"--certs-dir", true},
    {"-S", true},
    {"--interface", true},
    {"--ftp", true},
    {"--sftp", true},
    {"--crossdomain-xml", true},
    {"--idle-timeout", true},
    {"--read-header-timeout", true},
    {"--conn-read-deadline", true},
    {"--conn-write-deadline", true},
    {"--shutdown-timeout", true},
    {"--memlimit", true},
};

static tarn_err fail(tarn_options *o, tarn_str *problem, const char *fmt, ...) TARN_PRINTF(3, 4);
static tarn_err fail(tarn_options *o, tarn_str *problem, const char *fmt, ...)
{
    char mem[512];
    va_list ap;
    va_start(ap, fmt);
    tarn_str text = tarn_str_vfmt(mem, sizeof mem, "an option is not valid and too long to be shown", fmt, ap);
    va_end(ap);
    *problem = tarn_arena_str(o->arena, text);
    return TARN_E_INVALID;
}

static void warn(tarn_options *o, const char *fmt, tarn_str what)
{
    char mem[512];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_str(&b, what);
    tarn_sb_cstr(&b, fmt);
    const char *text = b.failed ? NULL : tarn_arena_cstr(o->arena, tarn_sb_view(&b));
    if (text != NULL && o->warnings_n < TARN_OPTION_WARNINGS_MAX) {
        o->warnings[o->warnings_n++] = text;
    }
}

/* ------------------------------------------------------------------ values */

static bool choice_has(const char *choices, tarn_str value)
{
    tarn_str rest = tarn_str_of(choices);
    while (rest.n > 0) {
        tarn_str item, next;
        if (!tarn_str_split(rest, '|', &item, &next)) {
            item = rest;
            next = TARN_STR_NULL;
        }
        if (tarn_str_eq(item, value)) {
            return true;
        }
        rest = next;
    }
    return false;
}

static bool number_fits(const char *range, tarn_str value)
{
    tarn_str r = tarn_str_of(range);
    ptrdiff_t dots = tarn_str_find(r, TARN_STR(".."));
    uint64_t min = 0, max = 0, v = 0;
    TARN_ASSERT(dots > 0 && tarn_str_to_u64(tarn_str_sub(r, 0, (size_t)dots), &min) &&
                tarn_str_to_u64(tarn_str_sub(r, (size_t)dots + 2, r.n), &max));
    return tarn_str_to_u64(value, &v) && v >= min && v <= max;
}

/* "90s", "15m", "24h", "30d"; "off" and 0 are none at all. */
static bool duration_seconds(tarn_str v, uint64_t *out)
{
    static const struct {
        char unit;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    uint64_t n = 0;
    *out = 0;
    if (tarn_str_ieqc(v, "off") || tarn_str_eqc(v, "0")) {
        return true;
    }
    for (size_t i = 0; v.n > 1 && i < TARN_ARRAY_LEN(units); i++) {
        if (v.p[v.n - 1] == units[i].unit && tarn_str_to_u64(tarn_str_sub(v, 0, v.n - 1), &n) && n <= TARN_OPTION_DAYS_MAX * 86400u) {
            *out = n * units[i].seconds;
            return *out <= TARN_OPTION_DAYS_MAX * 86400u;
        }
    }
    return false;
}

static tarn_str normal_switch(tarn_str v)
{
    bool on = tarn_str_ieqc(v, "on") || tarn_str_ieqc(v, "true") || tarn_str_ieqc(v, "yes") || tarn_str_eqc(v, "1");
    bool off = tarn_str_ieqc(v, "off") || tarn_str_ieqc(v, "false") || tarn_str_ieqc(v, "no") || tarn_str_eqc(v, "0");
    return on ? TARN_STR("on") : off ? TARN_STR("off") : v;
}

/* name: how the user called it, for the message. */
static tarn_err set_value(tarn_options *o, tarn_option_id id, tarn_str name, tarn_str value, tarn_option_source source, tarn_str *problem)
{
    const tarn_option_row *row = &tarn_option_rows[id];
    uint64_t seconds = 0;
    if (source < o->sources[id]) {
        return TARN_OK;
    }
    if (value.n > TARN_OPTION_BYTES_MAX) {
        return fail(o, problem, "%.*s is too long", TARN_STR_ARG(name));
    }
    if (row->kind == TARN_OPTION_SWITCH) {
        value = normal_switch(value);
    }
    if ((row->kind == TARN_OPTION_SWITCH || row->kind == TARN_OPTION_CHOICE) && !choice_has(row->arg, value)) {
        return fail(o, problem, "%.*s must be one of %s", TARN_STR_ARG(name), row->arg);
    }
    if (row->kind == TARN_OPTION_NUMBER && !number_fits(row->arg, value)) {
        return fail(o, problem, "%.*s must be a number in %s", TARN_STR_ARG(name), row->arg);
    }
    if (row->kind == TARN_OPTION_DURATION && !duration_seconds(value, &seconds)) {
        return fail(o, problem, "%.*s must be a number and s, m, h or d (\"30d\"), at most %u days, or off", TARN_STR_ARG(name),
                    TARN_OPTION_DAYS_MAX);
    }
    bool again = row->kind == TARN_OPTION_LIST && source == TARN_FROM_COMMAND_LINE && o->sources[id] == source;
    tarn_str copy =
        again ? tarn_arena_fmt(o->arena, "%.*s,%.*s", TARN_STR_ARG(o->values[id]), TARN_STR_ARG(value)) : tarn_arena_str(o->arena, value);
    if (copy.p == NULL) {
        return TARN_E_NO_MEMORY;
    }
    o->values[id] = copy;
    o->sources[id] = source;
    return TARN_OK;
}

uint64_t tarn_option_number(const tarn_options *o, tarn_option_id id)
{
    uint64_t v = 0;
    TARN_ASSERT(tarn_option_rows[id].kind == TARN_OPTION_NUMBER);
    TARN_ASSERT(tarn_str_to_u64(o->values[id], &v));
    return v;
}

uint64_t tarn_option_seconds(const tarn_options *o, tarn_option_id id)
{
    uint64_t v = 0;
    TARN_ASSERT(tarn_option_rows[id].kind == TARN_OPTION_DURATION);
    TARN_ASSERT(duration_seconds(o->values[id], &v));
    return v;
}

bool tarn_option_is(const tarn_options *o, tarn_option_id id, const char *value)
{
    return tarn_str_eqc(o->values[id], value);
}

static size_t split_list(tarn_str value, const char *separators, tarn_str *out, size_t max)
{
    size_t n = 0, from = 0;
    for (size_t i = 0; i <= value.n; i++) {
        if (i < value.n && strchr(separators, value.p[i]) == NULL) {
            continue;
        }
        tarn_str item = tarn_str_trim(tarn_str_sub(value, from, i - from));
        from = i + 1;
        if (item.n > 0) {
            if (n < max) {
                out[n] = item;
            }
            n++;
        }
    }
    return n;
}

size_t tarn_option_list(tarn_str value, tarn_str *out, size_t max)
{
    return split_list(value, ",", out, max);
}

/* ------------------------------------------------------------------ names in the environment and in the file */

static bool words_have(const char *words, tarn_str name)
{
    tarn_str items[8];
    size_t n = split_list(tarn_str_of(words), " ", items, TARN_ARRAY_LEN(items));
    for (size_t i = 0; i < n && i < TARN_ARRAY_LEN(items); i++) {
        if (tarn_str_eq(items[i], name)) {
            return true;
        }
    }
    return false;
}

/* TARN_OPTION_COUNT: nobody's. *own tells tarn's name from MinIO's. */
static tarn_option_id find_name(tarn_str name, bool *own)
{
    for (size_t i = 0; i < TARN_OPTION_COUNT; i++) {
        *own = tarn_str_eqc(name, tarn_option_rows[i].env);
        if (*own || words_have(tarn_option_rows[i].synonyms, name)) {
            return (tarn_option_id)i;
        }
    }
    return TARN_OPTION_COUNT;
}

/* Own names go over MinIO's of the same source: `own_pass` false first, then true. */
static tarn_err take_pair(tarn_options *o, tarn_str name, tarn_str value, bool own_pass, tarn_option_source source, tarn_str *problem)
{
    bool own = false;
    tarn_option_id id = find_name(name, &own);
    if (id == TARN_OPTION_COUNT) {
        if (!own_pass && tarn_str_starts(name, "TARN_")) {
            warn(o, " is no variable of tarn (\"tarn help all\" lists them); it is ignored", name);
        } else if (!own_pass && (tarn_str_starts(name, "MINIO_") || source == TARN_FROM_FILE)) {
            warn(o, " is set and has no meaning here; it is ignored", name);
        }
        return TARN_OK;
    }
    /* An empty variable is as good as none: compose files set them that way. */
    return own == own_pass && value.n > 0 ? set_value(o, id, name, value, source, problem) : TARN_OK;
}

static tarn_err take_environment(tarn_options *o, char *const *environment, tarn_str *problem)
{
    tarn_err e = TARN_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; environment[i] != NULL && e == TARN_OK; i++) {
            tarn_str name, value;
            if (tarn_str_split(tarn_str_of(environment[i]), '=', &name, &value)) {
                e = take_pair(o, name, value, pass == 1, TARN_FROM_ENVIRONMENT, problem);
            }
        }
    }
    return e;
}

/* ------------------------------------------------------------------ configuration file */

static tarn_str unquote(tarn_str v)
{
    if (v.n >= 2 && (v.p[0] == '"' || v.p[0] == '\'') && v.p[v.n - 1] == v.p[0]) {
        return tarn_str_sub(v, 1, v.n - 2);
    }
    return v;
}

static tarn_err take_file_lines(tarn_options *o, tarn_str text, bool own_pass, tarn_str *problem)
{
    size_t line_no = 0;
    tarn_err e = TARN_OK;
    while (text.n > 0 && e == TARN_OK) {
        tarn_str line, rest, name, value;
        if (!tarn_str_split(text, '\n', &line, &rest)) {
            line = text;
            rest = TARN_STR_NULL;
        }
        text = rest;
        line_no++;
        if (line.n > 0 && line.p[line.n - 1] == '\r') {
            line.n--;
        }
        line = tarn_str_trim(line);
        if (tarn_str_starts(line, "export ")) {
            line = tarn_str_trim(tarn_str_sub(line, 7, line.n));
        }
        if (line.n == 0 || line.p[0] == '#') {
            continue;
        }
        if (!tarn_str_split(line, '=', &name, &value)) {
            return fail(o, problem, "line %zu of the configuration file is not NAME=value", line_no);
        }
        e = take_pair(o, tarn_str_trim(name), unquote(tarn_str_trim(value)), own_pass, TARN_FROM_FILE, problem);
    }
    return e;
}

static tarn_err take_file(tarn_options *o, tarn_str *problem)
{
    tarn_str path = o->values[TARN_OPT_CONFIG];
    if (path.n == 0) {
        return TARN_OK;
    }
    char *mem = tarn_arena_alloc(o->arena, TARN_CONFIG_FILE_BYTES_MAX);
    const char *cpath = tarn_arena_cstr(o->arena, path);
    if (mem == NULL || cpath == NULL) {
        return TARN_E_NO_MEMORY;
    }
    int fd = open(cpath, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(o, problem, "the configuration file %s cannot be read: %s", cpath, strerror(errno));
    }
    size_t n = 0;
    ssize_t got = 0;
    while (n < TARN_CONFIG_FILE_BYTES_MAX && (got = read(fd, mem + n, TARN_CONFIG_FILE_BYTES_MAX - n)) > 0) {
        n += (size_t)got;
    }
    int saved = got < 0 ? errno : 0;
    (void)close(fd);
    if (got < 0 || n == TARN_CONFIG_FILE_BYTES_MAX) {
        return fail(o, problem, "the configuration file %s cannot be read: %s", cpath, got < 0 ? strerror(saved) : "it is too large");
    }
    tarn_err e = take_file_lines(o, (tarn_str){mem, n}, false, problem);
    return e == TARN_OK ? take_file_lines(o, (tarn_str){mem, n}, true, problem) : e;
}

/* ------------------------------------------------------------------ command line */

static tarn_err take_drive(tarn_options *o, tarn_str word, tarn_str *problem)
{
    size_t n = 0;
    tarn_err e = tarn_ellipses(word, o->arena, o->drives + o->drives_n, TARN_DRIVES_MAX - o->drives_n, &n);
    if (e == TARN_E_LIMIT) {
        return fail(o, problem, "more than %d drives", TARN_DRIVES_MAX);
    }
    if (e == TARN_E_INVALID) {
        return fail(o, problem, "\"%.*s\" is not a valid pattern: write {1...6} or {a...f}", TARN_STR_ARG(word));
    }
    o->drives_n += e == TARN_OK ? n : 0;
    return e;
}

static size_t find_flag(tarn_str name)
{
    for (size_t i = 0; i < TARN_OPTION_COUNT; i++) {
        if (tarn_option_rows[i].flag[0] != '\0' && tarn_str_eqc(name, tarn_option_rows[i].flag)) {
            return i;
        }
    }
    return TARN_OPTION_COUNT;
}

static size_t find_minio_flag(tarn_str name)
{
    size_t i = 0;
    while (i < TARN_ARRAY_LEN(minio_flags) && !tarn_str_eqc(name, minio_flags[i].flag)) {
        i++;
    }
    return i;
}

/* Takes the option at words[i]; *used is set to the number of words it had. */
static tarn_err take_flag(tarn_options *o, const tarn_str *words, size_t n, size_t i, size_t *used, tarn_str *problem)
{
    tarn_str name, value;
    bool joined = tarn_str_split(words[i], '=', &name, &value);
    if (!joined) {
        name = words[i];
    }
    size_t id = find_flag(name), minio = find_minio_flag(name);
    bool wants = id < TARN_OPTION_COUNT || (minio < TARN_ARRAY_LEN(minio_flags) && minio_flags[minio].has_value);
    *used = 1;
    if (id == TARN_OPTION_COUNT && minio == TARN_ARRAY_LEN(minio_flags)) {
        return fail(o, problem, "unknown option %.*s; \"tarn help server\" lists them", TARN_STR_ARG(name));
    }
    if (wants && !joined) {
        if (i + 1 == n) {
            return fail(o, problem, "%.*s wants a value", TARN_STR_ARG(name));
        }
        value = words[i + 1];
        *used = 2;
    }
    if (id < TARN_OPTION_COUNT) {
        return set_value(o, (tarn_option_id)id, name, value, TARN_FROM_COMMAND_LINE, problem);
    }
    warn(o, " is an option of MinIO that has no meaning here; it is ignored", name);
    return TARN_OK;
}

static tarn_err take_words(tarn_options *o, const tarn_str *words, size_t n, tarn_str *problem)
{
    bool only_drives = false;
    for (size_t i = 0; i < n;) {
        size_t used = 1;
        tarn_err e = TARN_OK;
        if (!only_drives && tarn_str_eqc(words[i], "--")) {
            only_drives = true;
        } else if (!only_drives && words[i].n > 1 && words[i].p[0] == '-') {
            e = take_flag(o, words, n, i, &used, problem);
        } else if (words[i].n > 0) {
            e = take_drive(o, words[i], problem);
        }
        if (e != TARN_OK) {
            return e;
        }
        i += used;
    }
    return TARN_OK;
}

/* Words out of a variable: TARN_OPTS, TARN_VOLUMES. */
static tarn_err take_variable_words(tarn_options *o, tarn_option_id id, tarn_str *problem)
{
    tarn_str words[TARN_DRIVES_MAX];
    size_t n = split_list(o->values[id], " \t\n", words, TARN_ARRAY_LEN(words));
    if (n > TARN_ARRAY_LEN(words)) {
        return fail(o, problem, "%s has too many words", tarn_option_rows[id].env);
    }
    return take_words(o, words, n, problem);
}

tarn_err tarn_options_parse(tarn_options *o, tarn_arena *arena, int words_n, char *const *words, char *const *environment,
                            tarn_str *problem)
{
    *o = (tarn_options){.arena = arena};
    *problem = TARN_STR("out of memory");
    for (size_t i = 0; i < TARN_OPTION_COUNT; i++) {
        o->values[i] = tarn_str_of(tarn_option_rows[i].def);
    }
    tarn_str *list = TARN_ARENA_ARRAY(arena, tarn_str, (size_t)words_n + 1);
    if (list == NULL) {
        return TARN_E_NO_MEMORY;
    }
    for (int i = 0; i < words_n; i++) {
        list[i] = tarn_str_of(words[i]);
    }
    tarn_err e = take_environment(o, environment, problem);
    if (e == TARN_OK) {
        e = take_words(o, list, (size_t)words_n, problem);
    }
    if (e == TARN_OK) {
        e = take_file(o, problem);
    }
    /* What the command line says must win over TARN_OPTS: its words are taken only where they are the first to speak. */
    if (e == TARN_OK && o->values[TARN_OPT_OPTS].n > 0) {
        tarn_options extra = *o;
        e = take_variable_words(&extra, TARN_OPT_OPTS, problem);
        for (size_t i = 0; i < TARN_OPTION_COUNT && e == TARN_OK; i++) {
            if (o->sources[i] != TARN_FROM_COMMAND_LINE) {
                o->values[i] = extra.values[i];
                o->sources[i] = extra.sources[i];
            }
        }
        if (o->drives_n == 0) {
            memcpy(o->drives, extra.drives, sizeof extra.drives);
            o->drives_n = extra.drives_n;
        }
        memcpy(o->warnings, extra.warnings, sizeof extra.warnings);
        o->warnings_n = extra.warnings_n;
    }
    if (e == TARN_OK && o->drives_n == 0) {
        e = take_variable_words(o, TARN_OPT_VOLUMES, problem);
    }
    return e;
}
