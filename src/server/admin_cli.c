/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tarn admin COMMAND`: one table of commands. Some ask the running daemon of this environment (its address and the root's
 * credentials are read from the same variables); the others work on drives that no daemon uses, which their locks make sure of.
 * What is found goes to standard output, for people or, with --json, as the daemon's own JSON; everything else to standard
 * error. Runs on the main thread.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin_cli.h"

#define ADMIN_ARENA_BYTES_MAX (64u << 20)
#define POLL_MS 500

typedef struct command command;
typedef struct admin_run {
    tarn_server server; /* options and arena only */
    const command *command;
    bool json, dry_run, detach, offline, force;
    const char *url;
    const char *words[TARN_DRIVES_MAX + 2];
    size_t words_n;
} admin_run;

struct command {
    const char *name, *usage, *help;
    tarn_exit (*fn)(admin_run *r);
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

/* ------------------------------------------------------------------ asking the daemon */
static tarn_exit ask_json(admin_run *r, const char *method, tarn_str target, json_t **out)
{
    admin_client c;
    admin_answer a = {0};
    json_error_t error;
    tarn_exit x = admin_client_open(&c, &r->server, r->url);
    if (x == TARN_EXIT_OK) {
        x = admin_client_ask(&c, method, target, NULL, NULL, &a);
    }
    if (x != TARN_EXIT_OK) {
        return x;
    }
    json_t *doc = json_loadb(a.body.p ? a.body.p : "", a.body.n, JSON_REJECT_DUPLICATES, &error);
    if (a.status / 100 != 2) {
        const char *message = json_string_value(json_object_get(doc, "Message"));
        x = tarn_complain(TARN_EXIT_FAILED, "%.*s answers %d: %s", TARN_STR_ARG(c.authority), a.status,
                          message != NULL ? message : "it is no tarn, or one without this command");
        json_decref(doc);
        return x;
    }
    if (!json_is_object(doc)) {
        json_decref(doc);
        return tarn_complain(TARN_EXIT_FAILED, "%.*s answers something that is no JSON", TARN_STR_ARG(c.authority));
    }
    if (r->json) {
        (void)printf("%.*s\n", TARN_STR_ARG(a.body));
    }
    *out = doc;
    return TARN_EXIT_OK;
}

static const char *get_text(const json_t *doc, const char *key)
{
    const char *s = json_string_value(json_object_get(doc, key));
    return s != NULL ? s : "";
}

static unsigned long long get_number(const json_t *doc, const char *key)
{
    return (unsigned long long)json_integer_value(json_object_get(doc, key));
}

static double mib(unsigned long long bytes)
{
    return (double)bytes / 1048576.0;
}

/* ------------------------------------------------------------------ progress of a task */
static void print_task(const char *what, const json_t *t)
{
    unsigned long long done = get_number(t, "objects"), total = get_number(t, "objectsTotal"), ms = get_number(t, "busyMs");
    double seconds = (double)(ms > 0 ? ms : 1) / 1000.0;
    (void)printf("%s: %s%s", what, get_text(t, "state"), json_is_true(json_object_get(t, "dryRun")) ? " (dry run)" : "");
    if (get_number(t, "startedMs") > 0) {
        (void)printf(", %llu of %llu versions, %.1f MiB read (%.1f MiB/s), %llu damaged, %llu healed (%.1f MiB), %llu waiting, %llu lost",
                     done, total, mib(get_number(t, "bytes")), mib(get_number(t, "bytes")) / seconds, get_number(t, "damaged"),
                     get_number(t, "healed"), mib(get_number(t, "healedBytes")), get_number(t, "waiting"), get_number(t, "lost"));
    }
    (void)printf("\n");
    if (get_text(t, "error")[0] != '\0') {
        (void)printf("  %s\n", get_text(t, "error"));
    }
    (void)fflush(stdout);
}

static bool is_running(const json_t *t)
{
    return strcmp(get_text(t, "state"), "running") == 0;
}

/* Shows progress until the task has ended, or until somebody has seen enough: the daemon goes on then. */
static tarn_exit watch(admin_run *r, const char *what, tarn_str target)
{
    tarn_exit x = TARN_EXIT_OK;
    bool running = true, json = r->json;
    unsigned long long last = 0;
    (void)signal(SIGINT, on_interrupt);
    while (x == TARN_EXIT_OK && running && !interrupted) {
        json_t *doc = NULL;
        tarn_sleep_ms(POLL_MS);
        r->json = false;
        x = ask_json(r, "GET", target, &doc);
        r->json = json;
        if (x != TARN_EXIT_OK) {
            break;
        }
        running = is_running(doc);
        unsigned long long now = get_number(doc, "objects") + get_number(doc, "bytes");
        if (json && !running) {
            (void)json_dumpf(doc, stdout, JSON_COMPACT);
            (void)printf("\n");
        } else if (!json && (now != last || !running)) {
            print_task(what, doc);
        }
        last = now;
        if (!running && (strcmp(get_text(doc, "state"), "done") != 0 || get_number(doc, "lost") > 0)) {
            x = TARN_EXIT_FAILED;
        }
        json_decref(doc);
    }
    if (interrupted) {
        (void)fprintf(stderr, "tarn: %s goes on in the daemon\n", what);
    }
    return x;
}

static tarn_exit show_task(admin_run *r, const char *what, const char *method, tarn_str target)
{
    json_t *doc = NULL;
    tarn_exit x = ask_json(r, method, target, &doc);
    if (x == TARN_EXIT_OK && !r->json) {
        print_task(what, doc);
    }
    json_decref(doc);
    return x;
}

static tarn_exit start_task(admin_run *r, const char *what, tarn_str target, tarn_str status)
{
    json_t *doc = NULL;
    bool json = r->json;
    r->json = json && r->detach;
    tarn_exit x = ask_json(r, "POST", target, &doc);
    r->json = json;
    json_decref(doc);
    return x == TARN_EXIT_OK && !r->detach ? watch(r, what, status) : x;
}

static tarn_exit too_many(const admin_run *r)
{
    return tarn_complain(TARN_EXIT_USAGE, "usage: tarn admin %s", r->command->usage);
}

static tarn_exit cmd_heal(admin_run *r)
{
    tarn_str bucket = TARN_STR(""), prefix = TARN_STR(""), status = TARN_STR("/tarn/admin/v1/heal");
    tarn_sb b;
    if (r->words_n > 1) {
        return too_many(r);
    }
    if (r->words_n == 1 && strcmp(r->words[0], "--status") == 0) {
        return show_task(r, "heal", "GET", status);
    }
    if (r->words_n == 1 && strcmp(r->words[0], "--stop") == 0) {
        return show_task(r, "heal", "DELETE", status);
    }
    if (r->words_n == 1) {
        tarn_str word = tarn_str_of(r->words[0]);
        if (!tarn_str_split(word, '/', &bucket, &prefix)) {
            bucket = word;
            prefix = TARN_STR("");
        }
    }
    tarn_sb_init(&b, 16384);
    tarn_sb_fmt(&b, "/tarn/admin/v1/heal?bucket=");
    tarn_sb_urlencode(&b, bucket, false);
    tarn_sb_fmt(&b, "&dry-run=%s&prefix=", r->dry_run ? "true" : "false");
    tarn_sb_urlencode(&b, prefix, false);
    tarn_str target = tarn_arena_str(r->server.arena, tarn_sb_view(&b));
    tarn_sb_free(&b);
    return start_task(r, "heal", target, status);
}

static tarn_exit cmd_scrub(admin_run *r)
{
    tarn_str target = TARN_STR("/tarn/admin/v1/scrub");
    const char *what = r->words_n > 0 ? r->words[0] : "status";
    if (r->words_n > 1) {
        return too_many(r);
    }
    if (strcmp(what, "start") == 0) {
        r->detach = true;
        return start_task(r, "scrub", target, target);
    }
    if (strcmp(what, "stop") == 0) {
        return show_task(r, "scrub", "DELETE", target);
    }
    return strcmp(what, "status") == 0 ? show_task(r, "scrub", "GET", target) : too_many(r);
}

/* ------------------------------------------------------------------ drives */
static tarn_exit cmd_drives(admin_run *r)
{
    json_t *doc = NULL, *d;
    size_t i;
    if (r->words_n > 0) {
        return too_many(r);
    }
    tarn_exit x = ask_json(r, "GET", TARN_STR("/tarn/admin/v1/drives"), &doc);
    if (x != TARN_EXIT_OK || r->json) {
        json_decref(doc);
        return x;
    }
    (void)printf("deployment %s: %llu sets of %llu data and %llu parity shards, %s\n", get_text(doc, "deployment"), get_number(doc, "sets"),
                 get_number(doc, "dataShards"), get_number(doc, "parityShards"),
                 json_is_true(json_object_get(doc, "writable"))   ? "writable"
                 : json_is_true(json_object_get(doc, "readable")) ? "readable, not writable"
                                                                  : "not readable");
    json_array_foreach(json_object_get(doc, "drives"), i, d)
    {
        (void)printf("  %llu/%llu  %-10s %9.1f of %9.1f GiB free  %s", get_number(d, "set") + 1, get_number(d, "position") + 1,
                     json_is_true(json_object_get(d, "slow")) ? "slow" : get_text(d, "state"), mib(get_number(d, "freeBytes")) / 1024.0,
                     mib(get_number(d, "totalBytes")) / 1024.0, get_text(d, "path"));
        (void)printf("%s%s", get_text(d, "reason")[0] != '\0' ? "  " : "", get_text(d, "reason"));
        if (get_number(d, "metaReadsWrong") > 0) {
            (void)printf("  (%llu wrong reads of the metadata)", get_number(d, "metaReadsWrong"));
        }
        (void)printf("\n");
    }
    if (get_number(doc, "repairsWaiting") > 0) {
        (void)printf("%llu versions wait for repair\n", get_number(doc, "repairsWaiting"));
    }
    const json_t *fill = json_object_get(doc, "fill");
    if (get_number(fill, "startedMs") > 0) {
        print_task("filling drives", fill);
    }
    json_decref(doc);
    return TARN_EXIT_OK;
}

/* ------------------------------------------------------------------ backup */
static bool to_file(void *ctx, tarn_str piece)
{
    return fwrite(piece.p, 1, piece.n, ctx) == piece.n;
}

/* Under another name until it is whole: nobody takes half a backup for one. */
static tarn_exit cmd_backup(admin_run *r)
{
    admin_client c;
    admin_answer a = {0};
    if (r->words_n != 1) {
        return too_many(r);
    }
    const char *path = r->words[0];
    tarn_str part = tarn_arena_fmt(r->server.arena, "%s.part", path);
    tarn_exit x = part.p == NULL ? tarn_complain(TARN_EXIT_FAILED, "out of memory") : admin_client_open(&c, &r->server, r->url);
    if (x != TARN_EXIT_OK) {
        return x;
    }
    FILE *f = fopen(part.p, "wx");
    if (f == NULL) {
        return tarn_complain(TARN_EXIT_FAILED, "%s cannot be made: %s", part.p, strerror(errno));
    }
    x = admin_client_ask(&c, "GET", TARN_STR("/tarn/admin/v1/backup"), to_file, f, &a);
    if (x == TARN_EXIT_OK && a.status != 200) {
        x = tarn_complain(TARN_EXIT_FAILED, "%.*s answers %d", TARN_STR_ARG(c.authority), a.status);
    }
    if (x == TARN_EXIT_OK && (fflush(f) != 0 || fsync(fileno(f)) != 0)) {
        x = tarn_complain(TARN_EXIT_FAILED, "%s cannot be written: %s", part.p, strerror(errno));
    }
    (void)fclose(f);
    if (x == TARN_EXIT_OK && tarn_meta_backup_check(tarn_fs_posix(), part.p) != TARN_OK) {
        x = tarn_complain(TARN_EXIT_FAILED, "%s is damaged: what was received is no whole backup", part.p);
    }
    if (x == TARN_EXIT_OK && rename(part.p, path) != 0) {
        x = tarn_complain(TARN_EXIT_FAILED, "%s cannot be made: %s", path, strerror(errno));
    }
    if (x != TARN_EXIT_OK) {
        (void)unlink(part.p);
    }
    return x;
}

/* ------------------------------------------------------------------ drives that no daemon uses */
static void print_line(void *ctx, tarn_str line)
{
    (void)ctx;
    (void)printf("%.*s\n", TARN_STR_ARG(line));
}

/* The drives of the command line, patterns written out; without any those of the environment. */
static tarn_exit take_drives(admin_run *r, size_t from, tarn_store_options *so)
{
    tarn_options *o = &r->server.opt;
    tarn_str problem;
    char *words[TARN_DRIVES_MAX + 2];
    for (size_t i = from; i < r->words_n; i++) {
        words[i - from] = (char *)(uintptr_t)r->words[i];
    }
    tarn_err e = tarn_options_parse(o, r->server.arena, (int)(r->words_n - from), words, environ, &problem);
    if (e != TARN_OK) {
        return tarn_complain(TARN_EXIT_USAGE, "%.*s", TARN_STR_ARG(problem));
    }
    if (o->drives_n == 0) {
        return too_many(r);
    }
    *so = (tarn_store_options){.fs = tarn_fs_posix(),
                               .drives = o->drives,
                               .drives_n = o->drives_n,
                               .set_drives = (size_t)tarn_option_number(o, TARN_OPT_SET_DRIVES)};
    return TARN_EXIT_OK;
}

static tarn_exit offline_failed(tarn_err e, tarn_str reason)
{
    return tarn_complain(TARN_EXIT_DRIVES, "%.*s", TARN_STR_ARG(reason.n > 0 ? reason : tarn_str_of(tarn_err_get(e)->message)));
}

static tarn_exit cmd_fsck(admin_run *r)
{
    tarn_store_options so;
    tarn_fsck_report f;
    tarn_str reason = TARN_STR("");
    if (!r->offline) {
        return tarn_complain(TARN_EXIT_USAGE, "fsck works on drives that no daemon uses: say --offline. A running daemon is checked by "
                                              "\"tarn admin heal --dry-run\".");
    }
    tarn_exit x = take_drives(r, 0, &so);
    if (x != TARN_EXIT_OK) {
        return x;
    }
    tarn_offline to = {.say = print_line, .arena = r->server.arena, .reason = &reason};
    tarn_err e = tarn_store_fsck(&so, &to, &f);
    if (e != TARN_OK) {
        return offline_failed(e, reason);
    }
    (void)printf("%llu versions, %llu uploads, %llu tables; %.1f MiB of shards read\n", (unsigned long long)f.versions,
                 (unsigned long long)f.uploads, (unsigned long long)f.tables, mib(f.parts_bytes));
    (void)printf("damaged: %llu (%llu shards missing, %llu wrong); waiting for drives: %llu; lost: %llu; tables without metadata: %llu\n",
                 (unsigned long long)f.damaged, (unsigned long long)f.missing, (unsigned long long)f.corrupt, (unsigned long long)f.waiting,
                 (unsigned long long)f.lost, (unsigned long long)f.tables_lost);
    (void)printf("database: %llu problems, %llu wrong pages in its copies\n", (unsigned long long)f.database_problems,
                 (unsigned long long)f.database_bad_pages);
    (void)printf("no damage, but to be swept: %llu records (%.1f MiB) that nothing refers to, %llu entries of garbage\n",
                 (unsigned long long)f.orphans, mib(f.orphan_bytes), (unsigned long long)f.garbage);
    bool bad = f.damaged + f.waiting + f.lost + f.tables_lost + f.database_problems + f.database_bad_pages > 0;
    (void)printf("%s\n", bad ? "DAMAGED" : "clean");
    return bad ? TARN_EXIT_DAMAGED : TARN_EXIT_OK;
}

static tarn_exit rebuild(admin_run *r, const char *backup, size_t drives_from)
{
    tarn_store_options so;
    tarn_rebuild_report out;
    tarn_str reason = TARN_STR(""), secret;
    tarn_rebuild_spec spec = {.backup = backup, .force = r->force || backup != NULL};
    tarn_exit x = take_drives(r, drives_from, &so);
    if (x == TARN_EXIT_OK) {
        x = tarn_client_credentials(&r->server, &spec.owner, &secret);
    }
    if (x != TARN_EXIT_OK) {
        return x;
    }
    tarn_offline to = {.say = print_line, .arena = r->server.arena, .reason = &reason};
    tarn_err e = tarn_store_rebuild(&so, &spec, &to, &out);
    if (e != TARN_OK) {
        return offline_failed(e, reason);
    }
    (void)printf("%llu versions of the backup kept, %llu left out; %llu versions (%.1f MiB) made from records; %llu buckets and %llu "
                 "tables made or brought up to date; %llu can't be made\n",
                 (unsigned long long)out.kept, (unsigned long long)out.dropped, (unsigned long long)out.objects, mib(out.objects_bytes),
                 (unsigned long long)out.buckets, (unsigned long long)out.tables, (unsigned long long)out.incomplete);
    return TARN_EXIT_OK;
}

static tarn_exit cmd_rebuild(admin_run *r)
{
    return rebuild(r, NULL, 0);
}

static tarn_exit cmd_restore(admin_run *r)
{
    return r->words_n < 1 ? too_many(r) : rebuild(r, r->words[0], 1);
}

/* ------------------------------------------------------------------ the table */
static const command commands[] = {
    {"drives", "drives [--json]", "The drives, their states, and how far a replaced one has been filled.", cmd_drives},
    {"heal", "heal [--dry-run] [--detach] [--json] [BUCKET[/PREFIX]] | heal --status | heal --stop",
     "Checks every shard of every version and rebuilds what is missing or damaged.", cmd_heal},
    {"scrub", "scrub [start | stop | status] [--json]", "The background check of everything: begins it, ends it, shows it.", cmd_scrub},
    {"backup", "backup FILE", "The metadata of the running daemon as one file: consistent, and checked when it has arrived.", cmd_backup},
    {"fsck", "fsck --offline DRIVE...",
     "Checks database, references, every shard, and records without a reference; changes nothing. Status 7: damage.", cmd_fsck},
    {"restore", "restore FILE DRIVE...",
     "Puts a backup of the metadata in the place of what the drives have, and adds what the drives have that is newer.", cmd_restore},
    {"rebuild-index", "rebuild-index [--force] DRIVE...",
     "All copies of the metadata are lost: makes it again from the drives and the newest backup on them; says what can't be made.",
     cmd_rebuild},
};

void tarn_admin_help_render(tarn_sb *b)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(commands); i++) {
        tarn_sb_fmt(b, "tarn admin %s\n    %s\n", commands[i].usage, commands[i].help);
    }
    tarn_sb_cstr(b,
                 "Commands that ask a running daemon take --url http://HOST:PORT; without it they find it by TARN_ADDRESS. They sign with\n"
                 "TARN_ROOT_USER and TARN_ROOT_PASSWORD.\n");
}

static tarn_exit show_help(tarn_exit x)
{
    tarn_sb b;
    tarn_sb_init(&b, 1u << 16);
    tarn_admin_help_render(&b);
    (void)fprintf(x == TARN_EXIT_OK ? stdout : stderr, "%.*s", TARN_STR_ARG(tarn_sb_view(&b)));
    tarn_sb_free(&b);
    return x;
}

static tarn_exit take_words(admin_run *r, int n, char *const *words)
{
    static const struct {
        const char *name;
        size_t offset;
    } flags[] = {{"--json", offsetof(admin_run, json)},
                 {"--dry-run", offsetof(admin_run, dry_run)},
                 {"--detach", offsetof(admin_run, detach)},
                 {"--offline", offsetof(admin_run, offline)},
                 {"--force", offsetof(admin_run, force)}};
    for (int i = 0; i < n; i++) {
        bool taken = false;
        for (size_t f = 0; f < TARN_ARRAY_LEN(flags) && !taken; f++) {
            taken = strcmp(words[i], flags[f].name) == 0;
            if (taken) {
                *((bool *)(void *)((char *)r + flags[f].offset)) = true;
            }
        }
        if (!taken && strcmp(words[i], "--url") == 0 && i + 1 < n) {
            r->url = words[++i];
        } else if (!taken && (strncmp(words[i], "--", 2) != 0 || strcmp(words[i], "--status") == 0 || strcmp(words[i], "--stop") == 0)) {
            if (r->words_n == TARN_ARRAY_LEN(r->words)) {
                return tarn_complain(TARN_EXIT_USAGE, "too many words");
            }
            r->words[r->words_n++] = words[i];
        } else if (!taken) {
            return tarn_complain(TARN_EXIT_USAGE, "unknown option %s; usage: tarn admin %s", words[i], r->command->usage);
        }
    }
    return TARN_EXIT_OK;
}

static tarn_exit run_command(admin_run *r, int n, char *const *words)
{
    tarn_str problem;
    tarn_exit x = take_words(r, n, words);
    if (x != TARN_EXIT_OK) {
        return x;
    }
    if (tarn_options_parse(&r->server.opt, r->server.arena, 0, NULL, environ, &problem) != TARN_OK) {
        return tarn_complain(TARN_EXIT_USAGE, "%.*s", TARN_STR_ARG(problem));
    }
    return r->command->fn(r);
}

tarn_exit tarn_admin_command(int words_n, char *const *words)
{
    const command *found = NULL;
    if (words_n == 0 || strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0) {
        return show_help(words_n == 0 ? TARN_EXIT_USAGE : TARN_EXIT_OK);
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(commands); i++) {
        found = strcmp(words[0], commands[i].name) == 0 ? &commands[i] : found;
    }
    if (found == NULL) {
        (void)fprintf(stderr, "tarn: unknown command \"admin %s\"\n", words[0]);
        return show_help(TARN_EXIT_USAGE);
    }
    (void)tarn_log_open(NULL, TARN_LOG_HUMAN, TARN_LOG_WARN);
    admin_run *r = tarn_calloc(1, sizeof *r);
    tarn_exit x = TARN_EXIT_FAILED;
    if (r == NULL || (r->server.arena = tarn_arena_new(ADMIN_ARENA_BYTES_MAX)) == NULL) {
        tarn_free(r);
        return tarn_complain(TARN_EXIT_FAILED, "out of memory");
    }
    r->command = found;
    x = run_command(r, words_n - 1, words + 1);
    tarn_arena_free(r->server.arena);
    tarn_free(r);
    return x;
}
