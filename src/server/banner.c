/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said at the start: for a person the facts and three lines to paste, for machines one line of the log.
 * The lines name the variables of the AWS tools, never a secret.
 */
#include <stdio.h>

#include "server.h"

#define BANNER_BYTES_MAX 32768

/* ":9000" is reached at 127.0.0.1, "[::]:9000" too. */
void tarn_server_url(const tarn_server *s, tarn_sb *b)
{
    const tarn_addr *a = &s->addresses[0];
    char mem[128];
    tarn_sb text;
    if (s->opt.values[TARN_OPT_SERVER_URL].n > 0) {
        tarn_sb_str(b, s->opt.values[TARN_OPT_SERVER_URL]);
        return;
    }
    tarn_sb_init_fixed(&text, mem, sizeof mem);
    tarn_addr_format(a, &text);
    tarn_str shown = tarn_sb_view(&text);
    ptrdiff_t colon = tarn_str_rchr(shown, ':');
    tarn_str host = colon < 0 ? shown : tarn_str_sub(shown, 0, (size_t)colon);
    bool any = host.n == 0 || tarn_str_eqc(host, "0.0.0.0") || tarn_str_eqc(host, "[::]") || tarn_str_eqc(host, "*");
    tarn_sb_cstr(b, "http://");
    tarn_sb_str(b, any ? TARN_STR("127.0.0.1") : host);
    tarn_sb_str(b, colon < 0 ? TARN_STR_NULL : tarn_str_sub(shown, (size_t)colon, shown.n));
}

static const char *state_name(tarn_drive_state state)
{
    static const char *const names[] = {
        [TARN_DRIVE_OK] = "ok",
        [TARN_DRIVE_NEW] = "new",
        [TARN_DRIVE_MISSING] = "missing",
        [TARN_DRIVE_FOREIGN] = "of another deployment",
        [TARN_DRIVE_MISPLACED] = "in the wrong place",
        [TARN_DRIVE_READ_ONLY] = "read-only",
        [TARN_DRIVE_FAILED] = "failed",
    };
    return (size_t)state < TARN_ARRAY_LEN(names) && names[state] != NULL ? names[state] : "unknown";
}

static size_t count_online(const tarn_drive_info *d, size_t n)
{
    size_t online = 0;
    for (size_t i = 0; i < n; i++) {
        online += d[i].state == TARN_DRIVE_OK || d[i].state == TARN_DRIVE_NEW;
    }
    return online;
}

static const char *backend_name(const tarn_server *s)
{
    return tarn_loop_backend(s->workers[0].loop) == TARN_IO_URING ? "io_uring" : "threads";
}

static void say_facts(const tarn_server *s, const tarn_drive_info *d, size_t n, tarn_str url, tarn_sb *b)
{
    unsigned data = 0, parity = 0, sets = 0;
    tarn_store_code(s->store, &data, &parity, &sets);
    tarn_sb_fmt(b, "\ntarn %s   deployment %s\n", TARN_VERSION, tarn_store_deployment_id(s->store));
    tarn_sb_fmt(b, "  drives     %zu of %zu in use, code %u+%u", count_online(d, n), n, data, parity);
    tarn_sb_fmt(b, sets > 1 ? " in each of %u sets\n" : "\n", sets);
    for (size_t i = 0; i < n; i++) {
        tarn_sb_fmt(b, "             %s  %s%s%s\n", d[i].path, state_name(d[i].state), d[i].reason[0] != '\0' ? ": " : "", d[i].reason);
    }
    tarn_sb_fmt(b, "  disk I/O   %s, %u worker%s\n", backend_name(s), s->workers_n, s->workers_n == 1 ? "" : "s");
    if (tarn_io_uring_refusal()[0] != '\0') {
        tarn_sb_fmt(b, "             no io_uring here: %s\n", tarn_io_uring_refusal());
    }
    tarn_sb_fmt(b, "  S3         %.*s   region %.*s\n", TARN_STR_ARG(url), TARN_STR_ARG(s->opt.values[TARN_OPT_REGION]));
    tarn_sb_fmt(b, "  catalog    %.*s/_iceberg\n", TARN_STR_ARG(url));
    tarn_sb_fmt(b, "  access key %.*s%s\n", TARN_STR_ARG(s->root_user),
                s->default_credentials ? " (the default pair: change it before others can reach this)" : "");
}

static void say_lines(const tarn_server *s, tarn_str url, tarn_sb *b)
{
    int un = (int)url.n;
    int rn = (int)s->opt.values[TARN_OPT_REGION].n;
    const char *u = url.p, *r = s->opt.values[TARN_OPT_REGION].p;
    tarn_sb_cstr(b, "\nTo paste, with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the warehouse \"lakehouse\":\n");
    tarn_sb_fmt(b,
                "  Spark      --conf spark.sql.catalog.tarn=org.apache.iceberg.spark.SparkCatalog --conf spark.sql.catalog.tarn.type=rest "
                "--conf spark.sql.catalog.tarn.uri=%.*s/_iceberg --conf spark.sql.catalog.tarn.warehouse=lakehouse "
                "--conf spark.sql.catalog.tarn.rest.sigv4-enabled=true --conf spark.sql.catalog.tarn.rest.signing-name=s3tables "
                "--conf spark.sql.catalog.tarn.rest.signing-region=%.*s --conf spark.sql.catalog.tarn.s3.endpoint=%.*s "
                "--conf spark.sql.catalog.tarn.s3.path-style-access=true\n",
                un, u, rn, r, un, u);
    tarn_sb_fmt(
        b,
        "  Trino      CREATE CATALOG tarn USING iceberg WITH (\"iceberg.catalog.type\"='rest', "
        "\"iceberg.rest-catalog.uri\"='%.*s/_iceberg', "
        "\"iceberg.rest-catalog.warehouse\"='lakehouse', \"iceberg.rest-catalog.security\"='SIGV4', "
        "\"iceberg.rest-catalog.signing-name\"='s3tables', \"fs.native-s3.enabled\"='true', \"s3.endpoint\"='%.*s', \"s3.region\"='%.*s', "
        "\"s3.path-style-access\"='true')\n",
        un, u, un, u, rn, r);
    tarn_sb_fmt(b,
                "  PyIceberg  load_catalog(\"tarn\", **{\"type\": \"rest\", \"uri\": \"%.*s/_iceberg\", \"warehouse\": \"lakehouse\", "
                "\"rest.sigv4-enabled\": \"true\", \"rest.signing-name\": \"s3tables\", \"rest.signing-region\": \"%.*s\", "
                "\"s3.endpoint\": \"%.*s\"})\n\n",
                un, u, rn, r, un, u);
}

static void log_line(const tarn_server *s, size_t online, size_t n, tarn_str url)
{
    char counts[64], code[32], workers[16], where[256];
    unsigned data = 0, parity = 0, sets = 0;
    tarn_sb b;
    tarn_store_code(s->store, &data, &parity, &sets);
    tarn_sb_init_fixed(&b, counts, sizeof counts);
    tarn_sb_fmt(&b, "%zu of %zu", online, n);
    tarn_sb_init_fixed(&b, code, sizeof code);
    tarn_sb_fmt(&b, "%u+%u", data, parity);
    tarn_sb_init_fixed(&b, workers, sizeof workers);
    tarn_sb_u64(&b, s->workers_n);
    tarn_sb_init_fixed(&b, where, sizeof where);
    tarn_sb_str(&b, tarn_str_sub(url, 0, sizeof where - 1));
    tarn_log(TARN_LOG_INFO, "started", "version", TARN_VERSION, "deployment", tarn_store_deployment_id(s->store), "drives", counts, "code",
             code, "io", backend_name(s), "io_uring", tarn_io_uring_refusal(), "workers", workers, "endpoint", where, NULL);
}

void tarn_banner(const tarn_server *s)
{
    tarn_drive_info *d = TARN_ARENA_ARRAY(s->arena, tarn_drive_info, TARN_DRIVES_MAX);
    size_t n = d == NULL ? 0 : tarn_store_drives(s->store, d, TARN_DRIVES_MAX);
    tarn_sb url, b;
    tarn_sb_init(&url, 4096);
    tarn_server_url(s, &url);
    if (s->human) {
        tarn_sb_init(&b, BANNER_BYTES_MAX);
        say_facts(s, d, n, tarn_sb_view(&url), &b);
        say_lines(s, tarn_sb_view(&url), &b);
        (void)fwrite(tarn_sb_view(&b).p, 1, tarn_sb_view(&b).n, stderr);
        tarn_sb_free(&b);
    } else {
        log_line(s, count_online(d, n), n, tarn_sb_view(&url));
    }
    tarn_sb_free(&url);
}
