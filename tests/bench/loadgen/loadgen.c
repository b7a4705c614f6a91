/* SPDX-License-Identifier: Apache-2.0 */
/* loadgen: options, phases, report. */
#include "lg.h"
#include <getopt.h>
#include <math.h>
#include <signal.h>

struct cfg g = {
    .region = "us-east-1",
    .threads = 1,
    .conns = 16,
    .timeout = 30,
    .seed = 1,
    .max_errors = 1000,
    .bucket = "loadgen",
    .prefix = "",
    .size_text = "4k",
    .max_keys = 1000,
    .part_size = 8u << 20,
    .ratio = {45, 15, 30, 10},
    .cat_path = "/_iceberg/v1",
    .ns = "loadgen",
    .table_prefix = "t",
    .tables = 100,
    .max_retries = 100,
};
atomic_int g_stop;

static const char usage[] = "usage: loadgen --endpoint http://HOST:PORT [options] OP\n"
                            "  S3:      put get head delete mixed list multipart\n"
                            "  catalog: cat-create cat-load cat-commit cat-list cat-drop\n"
                            "  other:   --self-test [DIR with SigV4 vectors]\n"
                            "Load\n"
                            "  --access K --secret S [--region us-east-1]   SigV4; without them nothing is signed\n"
                            "  --threads N (1)  --conns N (16, over all threads)\n"
                            "  --duration S (10) | --count N    --warmup S (0; with --duration)\n"
                            "  --rate R         open loop: R operations/s, latency from the intended start\n"
                            "  --timeout S (30) --max-errors N (1000, 0: never give up)\n"
                            "  --header 'K: V'  an extra, unsigned header; may be repeated\n"
                            "  --json           one line of JSON on stdout, the table on stderr\n"
                            "S3\n"
                            "  --bucket B (loadgen, created when missing)  --prefix P\n"
                            "  --size 4k | 1k-1m (32 sizes, evenly on a log scale)  --objects N (key space)  --prepare (fill it first)\n"
                            "  --dirs N (spread the keys over N/)  --seq-keys  --seed N\n"
                            "  --verify         GET: content and length; HEAD: length; list: order and number of keys\n"
                            "  --unsigned-payload\n"
                            "  --ratio 45:15:30:10 (mixed: get:put:head:delete)\n"
                            "  --max-keys 1000 --delimiter D (list)    --part-size 8m (multipart)\n"
                            "Catalog\n"
                            "  --catalog-path /_iceberg/v1  --warehouse W [--create-warehouse]  --prefix-path P (don't ask /config)\n"
                            "  --service s3tables  --bearer TOKEN\n"
                            "  --namespace loadgen  --tables 100  --table-prefix t  --prepare (create them first)  --exist-ok\n"
                            "  --one-table      cat-commit: all connections commit to one table, reload and retry on 409\n"
                            "  --append         cat-commit: add-snapshot + set-snapshot-ref instead of set-properties\n"
                            "  --max-retries 100 --backoff-ms 0 (after a 409)\n"
                            "  --verify         cat-commit: look up every confirmed commit afterwards\n"
                            "  --if-none-match (cat-load)  --page-size N (cat-list)\n";

static void on_signal(int sig)
{
    (void)sig;
    if (atomic_exchange(&g_stop, 1))
        _exit(130);
}

static double number(const char *opt, const char *s)
{
    char *e;
    double v = strtod(s, &e);
    if (e == s || *e || !(v >= 0) || v > 1e15)
        die("--%s: not a number: %s", opt, s);
    return v;
}

static uint64_t whole(const char *opt, const char *s, uint64_t most)
{
    double v = number(opt, s);
    if (v != floor(v) || v > (double)most)
        die("--%s: must be a whole number up to %llu: %s", opt, (unsigned long long)most, s);
    return (uint64_t)v;
}

static size_t one_size(const char *s, char **e)
{
    double v = strtod(s, e);
    if (*e == s || !(v >= 0))
        die("not a size: %s", s);
    switch (**e | 32) {
    case 'k':
        v *= 1024;
        (*e)++;
        break;
    case 'm':
        v *= 1048576;
        (*e)++;
        break;
    case 'g':
        v *= 1073741824;
        (*e)++;
        break;
    default:
        break;
    }
    if (v > 5368709120.0)
        die("a size over 5 GiB: %s", s);
    return (size_t)v;
}

static void parse_sizes(const char *s)
{
    char *e;
    size_t a = one_size(s, &e), b = a;
    if (*e == '-')
        b = one_size(e + 1, &e);
    if (*e || b < a)
        die("--size: %s", s);
    g.nsizes = 0;
    if (a == b) {
        g.sizes[g.nsizes++] = a;
        return;
    }
    for (uint32_t i = 0; i < MAX_SIZES; i++) {
        double lo = log((double)(a ? a : 1)), x = exp(lo + (log((double)b) - lo) * i / (MAX_SIZES - 1));
        size_t v = i + 1 == MAX_SIZES ? b : (size_t)(x + 0.5);
        if (!g.nsizes || v > g.sizes[g.nsizes - 1])
            g.sizes[g.nsizes++] = v;
    }
}

static void parse_endpoint(void)
{
    const char *e = g.endpoint;
    if (!e)
        die("--endpoint is missing (try --help)");
    if (strncmp(e, "http://", 7) != 0)
        die("--endpoint must be http://HOST:PORT (TLS is not supported)");
    char *h = strdup(e + 7);
    h[strcspn(h, "/")] = 0;
    g.host = h;
    const char *host = h, *colon;
    size_t n;
    if (*h == '[') {
        host = h + 1;
        n = strcspn(host, "]");
        colon = host[n] && host[n + 1] == ':' ? host + n + 1 : NULL;
    } else {
        n = strcspn(h, ":");
        colon = h[n] ? h + n : NULL;
    }
    if (!n || n >= sizeof g.addr_host || (colon && strlen(colon + 1) >= sizeof g.addr_port))
        die("--endpoint: %s", e);
    memcpy(g.addr_host, host, n);
    snprintf(g.addr_port, sizeof g.addr_port, "%s", colon ? colon + 1 : "80");
}

static const struct op *find_op(const char *name)
{
    for (size_t i = 0; i < nops_s3; i++)
        if (strcmp(ops_s3[i].name, name) == 0)
            return &ops_s3[i];
    for (size_t i = 0; i < nops_cat; i++)
        if (strcmp(ops_cat[i].name, name) == 0)
            return &ops_cat[i];
    die("unknown operation %s (try --help)", name);
}

static bool is(const struct op *op, const char *name)
{
    return strcmp(op->name, name) == 0;
}

static void need_bucket(void)
{
    struct buf path = {0}, body = {0}, answer = {0};
    buf_fmt(&path, "/%s", g.bucket);
    int s = rq_once("HEAD", path.p, "", NULL, "", NULL);
    if (s == 404) {
        if (strcmp(g.region, "us-east-1") != 0)
            buf_fmt(&body,
                    "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                    "<LocationConstraint>%s</LocationConstraint></CreateBucketConfiguration>",
                    g.region);
        s = rq_once("PUT", path.p, "", NULL, buf_cstr(&body), &answer);
        if ((s < 200 || s > 299) && s != 409)
            die("cannot create bucket %s: HTTP %d: %s", g.bucket, s, answer.p);
    } else if (s < 200 || s > 299) {
        die("HEAD /%s: HTTP %d", g.bucket, s);
    }
    free(path.p);
    free(body.p);
    free(answer.p);
}

static void fill(const struct op *op, uint64_t count, const char *what)
{
    struct phase ph = {.op = op, .count = count};
    fprintf(stderr, "loadgen: preparing: %llu %s\n", (unsigned long long)count, what);
    phase_run(&ph);
    uint64_t errors = stats_errors(ph.s);
    if (atomic_load(&g_stop) || errors)
        die("preparation failed (%llu errors)", (unsigned long long)errors);
    fprintf(stderr, "loadgen: prepared in %.2f s (%.0f/s)\n", ph.seconds, (double)ph.s->requests / (ph.seconds > 0 ? ph.seconds : 1));
    free(ph.s);
}

/* ---- report ---- */

struct row {
    const char *name;
    uint64_t ok, bytes;
    const struct hist *h;
};

static double us(uint64_t ns)
{
    return (double)ns / 1000.0;
}

static void json_str(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', f);
        if ((unsigned char)*s >= 32)
            fputc(*s, f);
    }
    fputc('"', f);
}

static void json_row(FILE *f, const struct row *r, double sec)
{
    fprintf(f,
            "\"ops\":%llu,\"ops_per_s\":%.2f,\"bytes\":%llu,\"mb_per_s\":%.3f,\"latency_us\":{\"n\":%llu,\"mean\":%.1f,"
            "\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}",
            (unsigned long long)r->ok, (double)r->ok / sec, (unsigned long long)r->bytes, (double)r->bytes / 1e6 / sec,
            (unsigned long long)r->h->n, r->h->n ? us(r->h->sum) / (double)r->h->n : 0.0, us(hist_value(r->h, .5)),
            us(hist_value(r->h, .9)), us(hist_value(r->h, .99)), us(hist_value(r->h, .999)), us(r->h->max));
}

static void text_row(FILE *f, const struct row *r, double sec)
{
    fprintf(f, "%-13s %10llu %11.1f %10.2f %10.0f %10.0f %10.0f %10.0f %10.0f\n", r->name, (unsigned long long)r->ok, (double)r->ok / sec,
            (double)r->bytes / 1e6 / sec, us(hist_value(r->h, .5)), us(hist_value(r->h, .9)), us(hist_value(r->h, .99)),
            us(hist_value(r->h, .999)), us(r->h->max));
}

static void report(const struct phase *ph, bool verified, bool check_ok)
{
    const struct op *op = ph->op;
    const struct stats *s = ph->s;
    FILE *f = g.json ? stderr : stdout;
    double sec = ph->seconds > 0 ? ph->seconds : 1e-9, cpu = ph->cpu_user + ph->cpu_sys, busy = cpu / sec / g.threads,
           starved = (double)s->starved / 1e9 / sec / g.threads;
    struct hist *all = xalloc(sizeof *all);
    struct row rows[K_N], total = {op->name, 0, 0, all};
    int n = 0;
    for (int k = 0; k < K_N; k++) {
        if (op->primary & (1u << k)) {
            hist_merge(all, &s->lat[k]);
            total.ok += s->ok[k];
            total.bytes += s->bytes[k];
        }
        if (s->lat[k].n && (op->primary != 1u << k || g.json))
            rows[n++] = (struct row){kind_name[k], s->ok[k], s->bytes[k], &s->lat[k]};
    }
    uint64_t errors = stats_errors(s);
    fprintf(f, "%s", op->name);
    if (!op->catalog && !is(op, "list"))
        fprintf(f, "  size %s", g.size_text);
    fprintf(f, "  conns %u  threads %u", g.conns, g.threads);
    if (ph->rate > 0)
        fprintf(f, "  rate %.0f/s (open loop)", ph->rate);
    fprintf(f, "  seconds %.3f%s\n", ph->seconds, ph->stopped ? " (interrupted)" : "");
    fprintf(f, "%-13s %10s %11s %10s %10s %10s %10s %10s %10s\n", "", "ops", "ops/s", "MB/s", "p50 us", "p90", "p99", "p99.9", "max");
    text_row(f, &total, sec);
    for (int i = 0; i < n; i++)
        if (rows[i].h->n != all->n || op->primary & (op->primary - 1))
            text_row(f, &rows[i], sec);
    fprintf(f, "errors %llu", (unsigned long long)errors);
    for (int k = 0; k < 600; k++)
        if (s->http[k])
            fprintf(f, "  HTTP %d: %llu", k, (unsigned long long)s->http[k]);
    for (int k = 0; k < E_N; k++)
        if (s->other[k])
            fprintf(f, "  %s: %llu", err_name[k], (unsigned long long)s->other[k]);
    fprintf(f, "\nrequests %llu  reconnects %llu  resent %llu", (unsigned long long)s->requests, (unsigned long long)s->reconnects,
            (unsigned long long)s->resent);
    if (s->drained)
        fprintf(f, "  ended after the window %llu", (unsigned long long)s->drained);
    if (s->keys)
        fprintf(f, "  keys %llu (%.0f/s)", (unsigned long long)s->keys, (double)s->keys / sec);
    if (s->conflicts || is(op, "cat-commit"))
        fprintf(f, "  conflicts (409) %llu", (unsigned long long)s->conflicts);
    if (s->not_modified)
        fprintf(f, "  not modified (304) %llu", (unsigned long long)s->not_modified);
    if (ph->rate > 0)
        fprintf(f, "\nopen loop: never started %llu  client's own lateness p50 %.0f us p99 %.0f us max %.0f us",
                (unsigned long long)s->missed, us(hist_value(&s->lag, .5)), us(hist_value(&s->lag, .99)), us(s->lag.max));
    fprintf(f, "\nclient CPU %.3f s (user %.3f, system %.3f) = %.0f%% of its threads, %.2f us per request; waited for a core %.0f%%%s\n",
            cpu, ph->cpu_user, ph->cpu_sys, busy * 100, s->requests ? cpu * 1e6 / (double)s->requests : 0.0, starved * 100,
            busy > 0.85             ? "  <-- THE CLIENT IS PROBABLY THE BOTTLENECK"
            : busy + starved > 0.85 ? "  <-- THE CLIENT IS SHORT OF CPU"
                                    : "");
    if (g.verify)
        fprintf(f, "verify: %s\n", (verified && check_ok && !s->other[E_VERIFY]) || (!verified && !s->other[E_VERIFY]) ? "ok" : "FAILED");
    if (g.json) {
        FILE *o = stdout;
        fprintf(o, "{\"op\":\"%s\",\"endpoint\":", op->name);
        json_str(o, g.endpoint);
        fputs(",\"size\":", o);
        json_str(o, op->catalog ? "" : g.size_text);
        fprintf(o, ",\"conns\":%u,\"threads\":%u,\"rate\":%.2f,\"warmup\":%.2f,\"seconds\":%.4f,\"interrupted\":%s,", g.conns, g.threads,
                ph->rate, ph->warmup, ph->seconds, ph->stopped ? "true" : "false");
        json_row(o, &total, sec);
        fprintf(o,
                ",\"requests\":%llu,\"drained\":%llu,\"missed\":%llu,\"reconnects\":%llu,\"resent\":%llu,\"keys\":%llu,\"keys_per_s\":%.1f,"
                "\"conflicts\":%llu,\"not_modified\":%llu,",
                (unsigned long long)s->requests, (unsigned long long)s->drained, (unsigned long long)s->missed,
                (unsigned long long)s->reconnects, (unsigned long long)s->resent, (unsigned long long)s->keys, (double)s->keys / sec,
                (unsigned long long)s->conflicts, (unsigned long long)s->not_modified);
        fprintf(o, "\"errors\":{\"total\":%llu", (unsigned long long)errors);
        for (int k = 0; k < 600; k++)
            if (s->http[k])
                fprintf(o, ",\"%d\":%llu", k, (unsigned long long)s->http[k]);
        for (int k = 0; k < E_N; k++)
            if (s->other[k])
                fprintf(o, ",\"%s\":%llu", err_name[k], (unsigned long long)s->other[k]);
        fprintf(o,
                "},\"verify\":%s,\"client\":{\"cpu_s\":%.4f,\"user_s\":%.4f,\"system_s\":%.4f,\"busy\":%.4f,\"starved\":%.4f,\"us_per_"
                "request\":%.3f",
                !g.verify                         ? "null"
                : check_ok && !s->other[E_VERIFY] ? "true"
                                                  : "false",
                cpu, ph->cpu_user, ph->cpu_sys, busy, starved, s->requests ? cpu * 1e6 / (double)s->requests : 0.0);
        if (ph->rate > 0)
            fprintf(o, ",\"late_p99_us\":%.1f,\"late_max_us\":%.1f", us(hist_value(&s->lag, .99)), us(s->lag.max));
        fputs("},\"kinds\":{", o);
        for (int i = 0; i < n; i++) {
            fprintf(o, "%s\"%s\":{", i ? "," : "", rows[i].name);
            json_row(o, &rows[i], sec);
            fputc('}', o);
        }
        fputs("}}\n", o);
    }
    free(all);
}

enum {
    O_ENDPOINT = 256,
    O_ACCESS,
    O_SECRET,
    O_REGION,
    O_THREADS,
    O_CONNS,
    O_DURATION,
    O_COUNT,
    O_RATE,
    O_WARMUP,
    O_TIMEOUT,
    O_MAXERR,
    O_HEADER,
    O_JSON,
    O_BUCKET,
    O_PREFIX,
    O_SIZE,
    O_OBJECTS,
    O_PREPARE,
    O_DIRS,
    O_SEQ,
    O_SEED,
    O_VERIFY,
    O_UNSIGNED,
    O_RATIO,
    O_MAXKEYS,
    O_DELIM,
    O_PART,
    O_CPATH,
    O_WAREHOUSE,
    O_CREATEWH,
    O_CPREFIX,
    O_SERVICE,
    O_BEARER,
    O_NS,
    O_TABLES,
    O_TPREFIX,
    O_EXIST,
    O_ONE,
    O_APPEND,
    O_RETRIES,
    O_BACKOFF,
    O_INM,
    O_PAGE,
    O_SELF,
    O_HELP
};

int main(int argc, char **argv)
{
    static const struct option opts[] = {
        {"endpoint", 1, 0, O_ENDPOINT},
        {"access", 1, 0, O_ACCESS},
        {"secret", 1, 0, O_SECRET},
        {"region", 1, 0, O_REGION},
        {"threads", 1, 0, O_THREADS},
        {"conns", 1, 0, O_CONNS},
        {"duration", 1, 0, O_DURATION},
        {"count", 1, 0, O_COUNT},
        {"rate", 1, 0, O_RATE},
        {"warmup", 1, 0, O_WARMUP},
        {"timeout", 1, 0, O_TIMEOUT},
        {"max-errors", 1, 0, O_MAXERR},
        {"header", 1, 0, O_HEADER},
        {"json", 0, 0, O_JSON},
        {"bucket", 1, 0, O_BUCKET},
        {"prefix", 1, 0, O_PREFIX},
        {"size", 1, 0, O_SIZE},
        {"objects", 1, 0, O_OBJECTS},
        {"prepare", 0, 0, O_PREPARE},
        {"dirs", 1, 0, O_DIRS},
        {"seq-keys", 0, 0, O_SEQ},
        {"seed", 1, 0, O_SEED},
        {"verify", 0, 0, O_VERIFY},
        {"unsigned-payload", 0, 0, O_UNSIGNED},
        {"ratio", 1, 0, O_RATIO},
        {"max-keys", 1, 0, O_MAXKEYS},
        {"delimiter", 1, 0, O_DELIM},
        {"part-size", 1, 0, O_PART},
        {"catalog-path", 1, 0, O_CPATH},
        {"warehouse", 1, 0, O_WAREHOUSE},
        {"create-warehouse", 0, 0, O_CREATEWH},
        {"prefix-path", 1, 0, O_CPREFIX},
        {"service", 1, 0, O_SERVICE},
        {"bearer", 1, 0, O_BEARER},
        {"namespace", 1, 0, O_NS},
        {"tables", 1, 0, O_TABLES},
        {"table-prefix", 1, 0, O_TPREFIX},
        {"exist-ok", 0, 0, O_EXIST},
        {"one-table", 0, 0, O_ONE},
        {"append", 0, 0, O_APPEND},
        {"max-retries", 1, 0, O_RETRIES},
        {"backoff-ms", 1, 0, O_BACKOFF},
        {"if-none-match", 0, 0, O_INM},
        {"page-size", 1, 0, O_PAGE},
        {"self-test", 0, 0, O_SELF},
        {"help", 0, 0, O_HELP},
        {0, 0, 0, 0},
    };
    int o, oi = 0;
    bool self = false;
    while ((o = getopt_long(argc, argv, "", opts, &oi)) != -1) {
        const char *n = o >= 256 ? opts[oi].name : "", *a = optarg;
        switch (o) {
        case O_ENDPOINT:
            g.endpoint = a;
            break;
        case O_ACCESS:
            g.access = a;
            break;
        case O_SECRET:
            g.secret = a;
            break;
        case O_REGION:
            g.region = a;
            break;
        case O_THREADS:
            g.threads = (uint32_t)whole(n, a, 256);
            break;
        case O_CONNS:
            g.conns = (uint32_t)whole(n, a, 65536);
            break;
        case O_DURATION:
            g.duration = number(n, a);
            break;
        case O_COUNT:
            g.count = whole(n, a, UINT64_C(1) << 40);
            break;
        case O_RATE:
            g.rate = number(n, a);
            break;
        case O_WARMUP:
            g.warmup = number(n, a);
            break;
        case O_TIMEOUT:
            g.timeout = number(n, a);
            break;
        case O_MAXERR:
            g.max_errors = whole(n, a, UINT64_C(1) << 40);
            break;
        case O_HEADER:
            if (!strchr(a, ':') || strpbrk(a, "\r\n") || strncasecmp(a, "x-amz-", 6) == 0)
                die("--header: needs 'Name: value', and not x-amz-*, which would have to be signed");
            buf_fmt(&g.headers, "%s\r\n", a);
            break;
        case O_JSON:
            g.json = true;
            break;
        case O_BUCKET:
            g.bucket = a;
            break;
        case O_PREFIX:
            if (strlen(a) > 900)
                die("--prefix: too long");
            g.prefix = a;
            break;
        case O_SIZE:
            g.size_text = a;
            break;
        case O_OBJECTS:
            g.objects = whole(n, a, 1000000000);
            break;
        case O_PREPARE:
            g.prepare = true;
            break;
        case O_DIRS:
            g.dirs = (uint32_t)whole(n, a, 100000);
            break;
        case O_SEQ:
            g.seq_keys = true;
            break;
        case O_SEED:
            g.seed = whole(n, a, UINT64_C(1) << 40);
            break;
        case O_VERIFY:
            g.verify = true;
            break;
        case O_UNSIGNED:
            g.unsigned_payload = true;
            break;
        case O_RATIO: {
            char tail;
            if (sscanf(a, "%u:%u:%u:%u%c", &g.ratio[0], &g.ratio[1], &g.ratio[2], &g.ratio[3], &tail) != 4 ||
                g.ratio[0] + g.ratio[1] + g.ratio[2] + g.ratio[3] == 0)
                die("--ratio: get:put:head:delete, like 45:15:30:10");
            break;
        }
        case O_MAXKEYS:
            g.max_keys = (uint32_t)whole(n, a, 1000000);
            break;
        case O_DELIM:
            g.delimiter = a;
            break;
        case O_PART: {
            char *e;
            g.part_size = one_size(a, &e);
            if (*e || !g.part_size)
                die("--part-size: %s", a);
            break;
        }
        case O_CPATH:
            g.cat_path = a;
            break;
        case O_WAREHOUSE:
            g.warehouse = a;
            break;
        case O_CREATEWH:
            g.create_warehouse = true;
            break;
        case O_CPREFIX:
            g.cat_prefix = a;
            break;
        case O_SERVICE:
            g.service = a;
            break;
        case O_BEARER:
            g.bearer = a;
            break;
        case O_NS:
            g.ns = a;
            break;
        case O_TABLES:
            g.tables = (uint32_t)whole(n, a, 10000000);
            break;
        case O_TPREFIX:
            if (strlen(a) > 64)
                die("--table-prefix: too long");
            g.table_prefix = a;
            break;
        case O_EXIST:
            g.exist_ok = true;
            break;
        case O_ONE:
            g.one_table = true;
            break;
        case O_APPEND:
            g.append = true;
            break;
        case O_RETRIES:
            g.max_retries = (uint32_t)whole(n, a, 1000000);
            break;
        case O_BACKOFF:
            g.backoff_ms = number(n, a);
            break;
        case O_INM:
            g.if_none_match = true;
            break;
        case O_PAGE:
            g.page_size = (uint32_t)whole(n, a, 1000000);
            break;
        case O_SELF:
            self = true;
            break;
        case O_HELP:
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (self)
        return self_test(optind < argc ? argv[optind] : NULL);
    if (optind + 1 != argc)
        die("one operation is needed (try --help)");
    const struct op *op = find_op(argv[optind]);
    parse_endpoint();
    if (!g.access != !g.secret)
        die("--access and --secret go together");
    g.sign = g.access && !g.bearer;
    if (!g.service)
        g.service = op->catalog ? "s3tables" : "s3";
    if (g.threads < 1 || g.conns < 1 || g.timeout <= 0)
        die("--threads, --conns and --timeout must be at least 1");
    if (g.count && (g.duration > 0 || g.warmup > 0))
        die("--count goes with neither --duration nor --warmup");
    if (!g.count && g.duration <= 0)
        g.duration = 10;
    if (op->catalog && (g.tables < 1 || (g.create_warehouse && !g.warehouse)))
        die("--tables must be at least 1, and --create-warehouse needs --warehouse");

    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);

    parse_sizes(g.size_text);
    if (op->catalog) {
        cat_config();
        if (is(op, "cat-create") || g.prepare)
            cat_namespace();
        if (g.prepare && !is(op, "cat-create"))
            fill(&op_tcreate_fill, g.tables, "tables");
        if (is(op, "cat-commit") || (is(op, "cat-load") && g.if_none_match))
            fill(&op_resolve, g.tables, "tables to load");
        if (is(op, "cat-load") && g.if_none_match && !cat_has_etags())
            fprintf(stderr, "loadgen: the server sends no ETag with tables: --if-none-match has no effect\n");
    } else {
        bool keyed = is(op, "get") || is(op, "head") || is(op, "delete") || is(op, "mixed");
        if (is(op, "multipart") && g.nsizes != 1)
            die("multipart needs one --size");
        if (!is(op, "multipart"))
            g.part_size = 0;
        if (!g.objects && (keyed || (is(op, "list") && g.prepare))) {
            size_t fit = ((size_t)1 << 30) / (g.sizes[g.nsizes - 1] + 1);
            g.objects = fit > 1000 ? 1000 : fit < 8 ? 8 : fit;
        }
        bool puts = is(op, "put") || is(op, "multipart") || is(op, "mixed") || g.prepare;
        content_init(puts && g.sign && !g.unsigned_payload);
        need_bucket();
        if (g.prepare && (keyed || is(op, "list"))) {
            op_put_fill.setup();
            fill(&op_put_fill, g.objects, "objects");
        }
    }
    if (op->setup)
        op->setup();
    struct phase ph = {.op = op, .duration = g.duration, .warmup = g.warmup, .rate = g.rate, .count = g.count};
    phase_run(&ph);
    bool checked = false, check_ok = true;
    if (g.verify && op->check) {
        checked = true;
        check_ok = op->check();
    }
    report(&ph, checked, check_ok);
    bool bad = stats_errors(ph.s) || !check_ok;
    free(ph.s);
    return bad;
}
