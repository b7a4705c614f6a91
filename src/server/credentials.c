/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root's credentials, by the first of these that there is:
 *   1. the configuration (variables or files);
 *   2. a pair kept with the deployment, which an earlier start has made;
 *   3. minioadmin/minioadmin, where every address is loopback;
 *   4. a random pair, made now, kept with mode 0600 on the drives, printed once.
 * Further users come from the configuration alone.
 * Secrets pass through one buffer that is wiped; they are never logged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin_cli.h"

#define KEPT_NAME "root-credentials"
#define TOKEN_KEY_NAME "token-key"
#define TOKEN_KEY_BYTES 32
#define RANDOM_USER_BYTES 20
#define RANDOM_PASSWORD_BYTES 40

typedef struct credentials {
    char mem[2][TARN_CREDENTIAL_FILE_BYTES_MAX + 1]; /* what came out of files or out of the random source */
    tarn_str user, password;
} credentials;

/* ------------------------------------------------------------------ configuration */

static int open_secret(const tarn_server *s, tarn_str name)
{
    const char *path = tarn_arena_cstr(s->arena, name);
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && tarn_str_chr(name, '/') < 0) {
        tarn_str inside = tarn_arena_fmt(s->arena, "/run/secrets/%.*s", TARN_STR_ARG(name));
        fd = inside.p == NULL ? -1 : open(inside.p, O_RDONLY | O_CLOEXEC);
    }
    return fd;
}

static tarn_exit read_secret(const tarn_server *s, tarn_option_id id, char *mem, tarn_str *out)
{
    tarn_str name = s->opt.values[id];
    int fd = open_secret(s, name);
    if (fd < 0) {
        return tarn_complain(TARN_EXIT_CREDENTIALS, "%s: \"%.*s\" cannot be read: %s", tarn_option_rows[id].env, TARN_STR_ARG(name),
                             strerror(errno));
    }
    size_t n = 0;
    ssize_t got = 0;
    while (n <= TARN_CREDENTIAL_FILE_BYTES_MAX && (got = read(fd, mem + n, TARN_CREDENTIAL_FILE_BYTES_MAX + 1 - n)) > 0) {
        n += (size_t)got;
    }
    (void)close(fd);
    if (got < 0 || n > TARN_CREDENTIAL_FILE_BYTES_MAX) {
        return tarn_complain(TARN_EXIT_CREDENTIALS, "%s: \"%.*s\" cannot be read or is too large", tarn_option_rows[id].env,
                             TARN_STR_ARG(name));
    }
    while (n > 0 && (mem[n - 1] == '\n' || mem[n - 1] == '\r')) {
        n--;
    }
    *out = (tarn_str){mem, n};
    return TARN_EXIT_OK;
}

static tarn_exit from_configuration(const tarn_server *s, credentials *c)
{
    tarn_exit x = TARN_EXIT_OK;
    c->user = s->opt.values[TARN_OPT_ROOT_USER];
    c->password = s->opt.values[TARN_OPT_ROOT_PASSWORD];
    if (c->user.n == 0 && s->opt.values[TARN_OPT_ROOT_USER_FILE].n > 0) {
        x = read_secret(s, TARN_OPT_ROOT_USER_FILE, c->mem[0], &c->user);
    }
    if (x == TARN_EXIT_OK && c->password.n == 0 && s->opt.values[TARN_OPT_ROOT_PASSWORD_FILE].n > 0) {
        x = read_secret(s, TARN_OPT_ROOT_PASSWORD_FILE, c->mem[1], &c->password);
    }
    if (x == TARN_EXIT_OK && (c->user.n > 0) != (c->password.n > 0)) {
        x = tarn_complain(TARN_EXIT_CREDENTIALS, "TARN_ROOT_USER and TARN_ROOT_PASSWORD belong together: set both or none");
    }
    return x;
}

/* whose: "the root's" or "a user's", for the message. */
static tarn_exit check(const char *whose, tarn_str access_key, tarn_str secret_key)
{
    bool user = access_key.n >= TARN_ACCESS_KEY_BYTES_MIN && access_key.n <= TARN_ACCESS_KEY_BYTES_MAX;
    bool password = secret_key.n >= TARN_SECRET_KEY_BYTES_MIN && secret_key.n <= TARN_SECRET_KEY_BYTES_MAX;
    bool plain = true;
    for (size_t i = 0; i < access_key.n; i++) {
        unsigned char b = (unsigned char)access_key.p[i];
        /* What cannot stand in a credential scope or a header would lock its owner out. */
        plain = plain && b > 0x20 && b < 0x7f && b != '/' && b != ',' && b != '=' && b != ':';
    }
    if (!user || !plain) {
        return tarn_complain(TARN_EXIT_CREDENTIALS, "%s access key must be %d to %d printable bytes without blank, '/', ',', '=' and ':'",
                             whose, TARN_ACCESS_KEY_BYTES_MIN, TARN_ACCESS_KEY_BYTES_MAX);
    }
    if (!password) {
        return tarn_complain(TARN_EXIT_CREDENTIALS, "%s secret key must be %d to %d bytes", whose, TARN_SECRET_KEY_BYTES_MIN,
                             TARN_SECRET_KEY_BYTES_MAX);
    }
    return TARN_EXIT_OK;
}

/* TARN_USERS: "key:secret,key:secret". */
static tarn_exit read_users(const tarn_server *s, tarn_str root_key, tarn_pair *users, size_t *n)
{
    tarn_str rest = s->opt.values[TARN_OPT_USERS];
    *n = 0;
    while (rest.n > 0) {
        tarn_str one, key, secret;
        (void)tarn_str_split(rest, ',', &one, &rest);
        one = tarn_str_trim(one);
        if (one.n == 0) {
            continue;
        }
        if (!tarn_str_split(one, ':', &key, &secret)) {
            return tarn_complain(TARN_EXIT_CREDENTIALS, "TARN_USERS must be a list of KEY:SECRET, separated by commas");
        }
        tarn_exit x = check("a user's", key, secret);
        if (x != TARN_EXIT_OK) {
            return x;
        }
        bool again = tarn_str_eq(key, root_key);
        for (size_t i = 0; i < *n; i++) {
            again = again || tarn_str_eq(users[i].name, key);
        }
        if (again) {
            return tarn_complain(TARN_EXIT_CREDENTIALS, "TARN_USERS: the access key %.*s is there twice", TARN_STR_ARG(key));
        }
        if (*n == TARN_AUTH_USERS_MAX) {
            return tarn_complain(TARN_EXIT_CREDENTIALS, "TARN_USERS has more than %d users", TARN_AUTH_USERS_MAX);
        }
        users[(*n)++] = (tarn_pair){key, secret};
    }
    return TARN_EXIT_OK;
}

/* ------------------------------------------------------------------ kept with the deployment */

static void random_text(char *out, size_t n, const char *alphabet, size_t letters)
{
    for (size_t i = 0; i < n;) {
        uint8_t b;
        tarn_random(&b, 1);
        if (b < 256 / letters * letters) { /* no letter likelier than another */
            out[i++] = alphabet[b % letters];
        }
    }
}

static bool take_kept(tarn_server *s, credentials *c)
{
    tarn_str kept;
    return tarn_store_secret_get(s->store, KEPT_NAME, s->arena, &kept) == TARN_OK && tarn_str_split(kept, '\n', &c->user, &c->password) &&
           c->user.n > 0 && c->password.n > 0;
}

static tarn_exit make_kept(tarn_server *s, credentials *c)
{
    static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    static const char mixed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    char mem[RANDOM_USER_BYTES + RANDOM_PASSWORD_BYTES + 2];
    tarn_sb b;
    random_text(c->mem[0], RANDOM_USER_BYTES, upper, sizeof upper - 1);
    random_text(c->mem[1], RANDOM_PASSWORD_BYTES, mixed, sizeof mixed - 1);
    c->user = (tarn_str){c->mem[0], RANDOM_USER_BYTES};
    c->password = (tarn_str){c->mem[1], RANDOM_PASSWORD_BYTES};
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_str(&b, c->user);
    tarn_sb_char(&b, '\n');
    tarn_sb_str(&b, c->password);
    tarn_err e = b.failed ? TARN_E_INTERNAL : tarn_store_secret_put(s->store, KEPT_NAME, tarn_sb_view(&b));
    tarn_wipe(mem, sizeof mem);
    if (e != TARN_OK) {
        return tarn_complain(TARN_EXIT_CREDENTIALS,
                             "random credentials cannot be kept on the drives (%s): set TARN_ROOT_USER and TARN_ROOT_PASSWORD",
                             tarn_err_get(e)->message);
    }
    /* Once, and not through the log: whoever starts the deployment must get to know them. */
    (void)printf("Root credentials, made at this first start and shown only now:\n  access key  %.*s\n  secret key  %.*s\n",
                 TARN_STR_ARG(c->user), TARN_STR_ARG(c->password));
    (void)fflush(stdout);
    return TARN_EXIT_OK;
}

static bool all_loopback(const tarn_server *s)
{
    bool all = true;
    for (size_t i = 0; i < s->addresses_n; i++) {
        all = all && tarn_addr_is_loopback(&s->addresses[i]);
    }
    return all;
}

/* ------------------------------------------------------------------ for commands that talk to the daemon */

tarn_exit tarn_client_credentials(tarn_server *s, tarn_str *access_key, tarn_str *secret_key)
{
    credentials *c = TARN_ARENA_NEW(s->arena, credentials);
    if (c == NULL) {
        return tarn_complain(TARN_EXIT_FAILED, "out of memory");
    }
    tarn_exit x = from_configuration(s, c);
    if (x == TARN_EXIT_OK && c->user.n == 0) {
        c->user = c->password = TARN_STR("minioadmin");
    }
    if (x == TARN_EXIT_OK) {
        x = check("the root's", c->user, c->password);
    }
    *access_key = c->user;
    *secret_key = c->password;
    return x;
}

/* ------------------------------------------------------------------ tokens */

static tarn_err token_key(tarn_server *s, uint8_t key[TOKEN_KEY_BYTES])
{
    tarn_str kept;
    char mem[2 * TOKEN_KEY_BYTES + 1];
    tarn_sb b;
    if (tarn_store_secret_get(s->store, TOKEN_KEY_NAME, s->arena, &kept) == TARN_OK && tarn_hex_decode(kept, key, TOKEN_KEY_BYTES)) {
        return TARN_OK;
    }
    tarn_random(key, TOKEN_KEY_BYTES);
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_hex(&b, key, TOKEN_KEY_BYTES);
    tarn_err e = tarn_store_secret_put(s->store, TOKEN_KEY_NAME, tarn_sb_view(&b));
    tarn_wipe(mem, sizeof mem);
    if (e != TARN_OK) {
        tarn_log(TARN_LOG_WARN, "token key not kept", "error", tarn_err_get(e)->message, "effect", "bearer tokens end with this process",
                 NULL);
    }
    return TARN_OK;
}

static tarn_exit make_auth(tarn_server *s, const credentials *c)
{
    uint8_t key[TOKEN_KEY_BYTES];
    tarn_pair users[TARN_AUTH_USERS_MAX];
    size_t users_n;
    tarn_exit x = read_users(s, c->user, users, &users_n);
    if (x != TARN_EXIT_OK) {
        return x;
    }
    tarn_str domains[TARN_AUTH_DOMAINS_MAX];
    size_t domains_n = tarn_option_list(s->opt.values[TARN_OPT_DOMAIN], domains, TARN_AUTH_DOMAINS_MAX);
    if (domains_n > TARN_AUTH_DOMAINS_MAX) {
        return tarn_complain(TARN_EXIT_USAGE, "TARN_DOMAIN names more than %d domains", TARN_AUTH_DOMAINS_MAX);
    }
    tarn_auth_options ao = {
        .root_access_key = c->user,
        .root_secret_key = c->password,
        .region = s->opt.values[TARN_OPT_REGION],
        .sigv2_query = tarn_option_is(&s->opt, TARN_OPT_SIGV2, "on"),
        .token_key = key,
        .users = users,
        .users_n = users_n,
        .domains = domains,
        .domains_n = domains_n,
    };
    tarn_err e = token_key(s, key);
    if (e == TARN_OK) {
        e = tarn_auth_new(&ao, &s->auth);
    }
    tarn_wipe(key, sizeof key);
    s->root_user = tarn_arena_str(s->arena, c->user);
    return e == TARN_OK ? TARN_EXIT_OK
                        : tarn_complain(TARN_EXIT_CREDENTIALS, "the credentials cannot be used: %s", tarn_err_get(e)->message);
}

tarn_exit tarn_setup_credentials(tarn_server *s)
{
    credentials c;
    tarn_exit x = from_configuration(s, &c);
    if (x == TARN_EXIT_OK && c.user.n == 0 && !take_kept(s, &c)) {
        if (all_loopback(s)) {
            c.user = c.password = TARN_STR("minioadmin");
        } else {
            x = make_kept(s, &c);
        }
    }
    if (x == TARN_EXIT_OK) {
        x = check("the root's", c.user, c.password);
    }
    if (x == TARN_EXIT_OK) {
        s->default_credentials = tarn_str_eqc(c.user, "minioadmin") && tarn_str_eqc(c.password, "minioadmin");
        x = make_auth(s, &c);
    }
    if (s->default_credentials) {
        tarn_log(TARN_LOG_WARN, "default credentials", "advice",
                 "set TARN_ROOT_USER and TARN_ROOT_PASSWORD before anybody else can reach this server", NULL);
    }
    tarn_wipe(&c, sizeof c);
    return x;
}
