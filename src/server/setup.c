/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing the parts up in order, each with a message that tells what to do when it fails: limits, addresses, drives,
 * then the APIs on top. tarn_setup_undo() takes everything down again, from any point.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server.h"

/* ------------------------------------------------------------------ limits of the process */

static unsigned cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > TARN_WORKERS_MAX ? TARN_WORKERS_MAX : (unsigned)n;
}

tarn_exit tarn_setup_limits(tarn_server *s)
{
    struct rlimit files;
    uint64_t wanted = tarn_option_number(&s->opt, TARN_OPT_CONNECTIONS);
    s->workers_n = (unsigned)tarn_option_number(&s->opt, TARN_OPT_WORKERS);
    if (s->workers_n == 0) {
        s->workers_n = cores();
    }
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return tarn_complain(TARN_EXIT_LIMITS, "the limit of open files cannot be read: %s", strerror(errno));
    }
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    uint64_t have = files.rlim_cur == RLIM_INFINITY ? UINT32_MAX : files.rlim_cur;
    uint64_t reserved = TARN_FILES_RESERVED + 16u * s->opt.drives_n;
    if (have < TARN_FILES_MIN + 16u * s->opt.drives_n || wanted + reserved > have) {
        return tarn_complain(
            TARN_EXIT_LIMITS,
            "%llu open files are allowed, %llu are needed: raise the limit (ulimit -n, LimitNOFILE= in the unit, --ulimit nofile= for "
            "a container)%s",
            (unsigned long long)have, (unsigned long long)(wanted > 0 ? wanted + reserved : TARN_FILES_MIN + 16u * s->opt.drives_n),
            wanted > 0 ? " or lower TARN_CONNECTIONS" : "");
    }
    uint64_t most = have - reserved < TARN_CONNECTIONS_DEFAULT_MAX ? have - reserved : TARN_CONNECTIONS_DEFAULT_MAX;
    s->connections_max = (unsigned)(wanted > 0 ? wanted : most);
    return TARN_EXIT_OK;
}

/* ------------------------------------------------------------------ addresses */

static tarn_exit bind_one(tarn_server *s, tarn_str text)
{
    int saved = 0;
    size_t i = s->addresses_n;
    if (tarn_addr_parse(text, &s->addresses[i]) != TARN_OK) {
        return tarn_complain(TARN_EXIT_ADDRESS, "\"%.*s\" is no address of this machine: write HOST:PORT, :PORT or [v6]:PORT",
                             TARN_STR_ARG(text));
    }
    if (tarn_listen(&s->addresses[i], false, TARN_LISTEN_BACKLOG, &s->listeners[i], &saved) == TARN_OK) {
        s->addresses_n++;
        return TARN_EXIT_OK;
    }
    if (saved == EADDRINUSE) {
        return tarn_complain(TARN_EXIT_ADDRESS, "address %.*s is in use: another server runs there; stop it or choose another --address",
                             TARN_STR_ARG(text));
    }
    if (saved == EACCES) {
        return tarn_complain(TARN_EXIT_ADDRESS,
                             "address %.*s is not allowed: ports below 1024 want CAP_NET_BIND_SERVICE; choose a higher one",
                             TARN_STR_ARG(text));
    }
    return tarn_complain(TARN_EXIT_ADDRESS, "cannot listen on %.*s: %s", TARN_STR_ARG(text), strerror(saved));
}

tarn_exit tarn_setup_addresses(tarn_server *s)
{
    tarn_str list[TARN_ADDRESSES_MAX];
    size_t n = tarn_option_list(s->opt.values[TARN_OPT_ADDRESS], list, TARN_ADDRESSES_MAX);
    if (n == 0 || n > TARN_ADDRESSES_MAX) {
        return tarn_complain(TARN_EXIT_USAGE, "--address wants one to %d addresses", TARN_ADDRESSES_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        tarn_exit x = bind_one(s, list[i]);
        if (x != TARN_EXIT_OK) {
            return x;
        }
    }
    return TARN_EXIT_OK;
}

/* ------------------------------------------------------------------ drives */

static bool drive_in_use(tarn_drive_state state)
{
    return state == TARN_DRIVE_OK || state == TARN_DRIVE_NEW;
}

static void log_drives(tarn_server *s)
{
    tarn_drive_info *d = TARN_ARENA_ARRAY(s->arena, tarn_drive_info, TARN_DRIVES_MAX);
    size_t n = d == NULL ? 0 : tarn_store_drives(s->store, d, TARN_DRIVES_MAX);
    for (size_t i = 0; i < n && i < TARN_DRIVES_MAX; i++) {
        if (!drive_in_use(d[i].state)) {
            tarn_log(TARN_LOG_WARN, "drive not in use", "drive", d[i].path, "reason", d[i].reason, NULL);
        }
    }
}

tarn_exit tarn_setup_store(tarn_server *s)
{
    tarn_str reason = TARN_STR_NULL;
    tarn_store_options so = {
        .fs = tarn_fs_posix(),
        .drives = s->opt.drives,
        .drives_n = s->opt.drives_n,
        .set_drives = (size_t)tarn_option_number(&s->opt, TARN_OPT_SET_DRIVES),
        .scrub_interval_s = tarn_option_seconds(&s->opt, TARN_OPT_SCRUB_INTERVAL),
        .backup_interval_s = tarn_option_seconds(&s->opt, TARN_OPT_META_BACKUP_INTERVAL),
        .scrub_bytes_per_s = tarn_option_number(&s->opt, TARN_OPT_SCRUB_RATE) * 1000000u,
    };
    tarn_err e = tarn_store_open(&so, &s->store, s->arena, &reason);
    if (e != TARN_OK) {
        s->store = NULL;
        if (reason.n == 0) {
            reason = tarn_str_of(tarn_err_get(e)->message);
        }
        return tarn_complain(TARN_EXIT_DRIVES, "%.*s", TARN_STR_ARG(reason));
    }
    log_drives(s);
    return TARN_EXIT_OK;
}

/* ------------------------------------------------------------------ APIs */

static tarn_exit out_of(tarn_err e, const char *part)
{
    return tarn_complain(TARN_EXIT_FAILED, "%s does not start: %s", part, tarn_err_get(e)->message);
}

tarn_exit tarn_setup_apis(tarn_server *s)
{
    uint64_t day_s = tarn_option_number(&s->opt, TARN_OPT_LC_DEBUG_INTERVAL);
    tarn_str region = tarn_auth_region(s->auth);
    tarn_s3_options s3 = {
        .store = s->store,
        .auth = s->auth,
        .region = region,
        .lifecycle_day_s = day_s > 0 ? day_s : 86400,
    };
    tarn_iceberg_options ice = {
        .store = s->store,
        .auth = s->auth,
        .region = region.n > 0 ? region : TARN_STR("us-east-1"),
        .server_url = s->opt.values[TARN_OPT_SERVER_URL],
    };
    tarn_admin_options admin = {
        .store = s->store,
        .auth = s->auth,
        .metrics_public = tarn_option_is(&s->opt, TARN_OPT_PROMETHEUS_AUTH, "public"),
    };
    tarn_err e = tarn_s3_new(&s3, &s->s3);
    if (e != TARN_OK) {
        return out_of(e, "the S3 API");
    }
    e = tarn_iceberg_new(&ice, &s->iceberg);
    if (e != TARN_OK) {
        return out_of(e, "the catalog");
    }
    e = tarn_admin_new(&admin, &s->admin);
    return e == TARN_OK ? TARN_EXIT_OK : out_of(e, "the admin API");
}

void tarn_setup_undo(tarn_server *s)
{
    for (size_t i = 0; i < s->addresses_n; i++) {
        if (s->listeners[i] >= 0) {
            (void)close(s->listeners[i]);
        }
    }
    if (s->admin != NULL) {
        tarn_admin_free(s->admin);
    }
    if (s->iceberg != NULL) {
        tarn_iceberg_free(s->iceberg);
    }
    if (s->s3 != NULL) {
        tarn_s3_free(s->s3);
    }
    if (s->auth != NULL) {
        tarn_auth_free(s->auth);
    }
    if (s->store != NULL) {
        tarn_store_close(s->store);
    }
}
