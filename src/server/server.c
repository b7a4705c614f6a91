/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tarn server`: options, log, limits, addresses, drives, credentials, APIs, workers; then it serves until it is told to
 * end; then everything is taken down in the other order, the database checkpointed last.
 */
#include <stdio.h>
#include <unistd.h>

#include "server.h"

#define START_ARENA_BYTES_MAX (16u << 20)

tarn_exit tarn_complain(tarn_exit status, const char *fmt, ...)
{
    char mem[2048];
    va_list ap;
    va_start(ap, fmt);
    tarn_str text = tarn_str_vfmt(mem, sizeof mem, "(too long to be shown)", fmt, ap);
    va_end(ap);
    tarn_log(TARN_LOG_ERROR, "cannot go on", "reason", text.p, NULL);
    return status;
}

static tarn_log_level log_level(const tarn_options *o)
{
    static const char *const names[] = {
        [TARN_LOG_DEBUG] = "debug", [TARN_LOG_INFO] = "info", [TARN_LOG_WARN] = "warn", [TARN_LOG_ERROR] = "error"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
        if (tarn_option_is(o, TARN_OPT_LOG_LEVEL, names[i])) {
            return (tarn_log_level)i;
        }
    }
    return TARN_LOG_INFO;
}

static tarn_exit open_log(tarn_server *s)
{
    tarn_str file = s->opt.values[TARN_OPT_LOG_FILE];
    tarn_log_format format = tarn_option_is(&s->opt, TARN_OPT_LOG_FORMAT, "human")  ? TARN_LOG_HUMAN
                             : tarn_option_is(&s->opt, TARN_OPT_LOG_FORMAT, "json") ? TARN_LOG_JSON
                                                                                    : TARN_LOG_AUTO;
    const char *path = file.n > 0 ? tarn_arena_cstr(s->arena, file) : NULL;
    s->human = format == TARN_LOG_HUMAN || (format == TARN_LOG_AUTO && file.n == 0 && isatty(STDERR_FILENO) == 1);
    tarn_err e = tarn_log_open(path, format, log_level(&s->opt));
    if (e != TARN_OK) {
        return tarn_complain(TARN_EXIT_USAGE, "the log file %s cannot be opened: %s", path != NULL ? path : "", tarn_err_get(e)->message);
    }
    for (size_t i = 0; i < s->opt.warnings_n; i++) {
        tarn_log(TARN_LOG_WARN, "configuration", "warning", s->opt.warnings[i], NULL);
    }
    if (s->opt.values[TARN_OPT_CONSOLE_ADDRESS].n > 0) {
        tarn_log(TARN_LOG_WARN, "configuration", "warning", "--console-address is ignored: there is no web console", NULL);
    }
    return TARN_EXIT_OK;
}

static tarn_exit start(tarn_server *s)
{
    static tarn_exit (*const steps[])(tarn_server *) = {
        open_log, tarn_setup_limits, tarn_setup_addresses, tarn_setup_store, tarn_setup_credentials, tarn_setup_apis, tarn_workers_start,
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(steps); i++) {
        tarn_exit x = steps[i](s);
        if (x != TARN_EXIT_OK) {
            return x;
        }
    }
    return TARN_EXIT_OK;
}

static tarn_exit run(tarn_server *s, int words_n, char *const *words)
{
    tarn_str problem;
    int signals_fd = tarn_signals_open();
    if (signals_fd < 0) {
        return tarn_complain(TARN_EXIT_FAILED, "signals cannot be set up");
    }
    if (tarn_options_parse(&s->opt, s->arena, words_n, words, environ, &problem) != TARN_OK) {
        return tarn_complain(TARN_EXIT_USAGE, "%.*s", TARN_STR_ARG(problem));
    }
    if (s->opt.drives_n == 0) {
        return tarn_complain(TARN_EXIT_USAGE, "no drives: name at least one folder (tarn server ./data), or set TARN_VOLUMES");
    }
    tarn_exit x = start(s);
    if (x == TARN_EXIT_OK) {
        tarn_banner(s);
        tarn_notify("READY=1\nSTATUS=serving");
        tarn_serve(s, signals_fd);
    }
    tarn_workers_stop(s);
    tarn_setup_undo(s);
    tarn_workers_free(s);
    (void)close(signals_fd);
    if (x == TARN_EXIT_OK) {
        tarn_log(TARN_LOG_INFO, "stopped", NULL);
    }
    return x;
}

tarn_exit tarn_server_command(int words_n, char *const *words)
{
    tarn_server *s = tarn_calloc(1, sizeof *s);
    tarn_exit x = TARN_EXIT_FAILED;
    if (s != NULL) {
        s->arena = tarn_arena_new(START_ARENA_BYTES_MAX);
    }
    if (s == NULL || s->arena == NULL) {
        tarn_free(s);
        return tarn_complain(x, "out of memory");
    }
    x = run(s, words_n, words);
    tarn_arena_free(s->arena);
    tarn_free(s);
    return x;
}
