/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands: server, admin, version, help, health.
 */
#include <stdio.h>
#include <string.h>

#include "server.h"

static tarn_exit show(void (*render)(tarn_sb *b))
{
    tarn_sb b;
    tarn_sb_init(&b, 1u << 20);
    render(&b);
    bool ok = !b.failed && fwrite(b.p, 1, b.n, stdout) == b.n && fflush(stdout) == 0;
    tarn_sb_free(&b);
    return ok ? TARN_EXIT_OK : TARN_EXIT_FAILED;
}

static tarn_exit help(const char *topic)
{
    tarn_sb b;
    if (topic != NULL && strcmp(topic, "--man") == 0) {
        return show(tarn_man_render);
    }
    if (topic != NULL && strcmp(topic, "--configuration") == 0) {
        return show(tarn_configuration_render);
    }
    tarn_sb_init(&b, 1u << 20);
    bool known = tarn_help_render(&b, topic);
    bool ok = known && !b.failed && fwrite(b.p, 1, b.n, stdout) == b.n && fflush(stdout) == 0;
    tarn_sb_free(&b);
    if (!known) {
        (void)fprintf(stderr, "tarn: no help on \"%s\"; \"tarn help\" lists the topics\n", topic);
        return TARN_EXIT_USAGE;
    }
    return ok ? TARN_EXIT_OK : TARN_EXIT_FAILED;
}

static bool is(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "help";
    if (strcmp(command, "server") == 0) {
        for (int i = 2; i < argc; i++) {
            if (is(argv[i], "--help", "-h")) {
                return (int)help("server");
            }
        }
        return (int)tarn_server_command(argc - 2, argv + 2);
    }
    if (is(command, "version", "--version")) {
        (void)printf("tarn %s\n", TARN_VERSION);
        return TARN_EXIT_OK;
    }
    if (is(command, "help", "--help") || strcmp(command, "-h") == 0) {
        return (int)help(argc > 2 ? argv[2] : NULL);
    }
    if (strcmp(command, "admin") == 0) {
        return (int)tarn_admin_command(argc - 2, argv + 2);
    }
    if (strcmp(command, "health") == 0) {
        for (int i = 2; i < argc; i++) {
            if (is(argv[i], "--help", "-h")) {
                return (int)help(NULL);
            }
        }
        return (int)tarn_health_command(argc - 2, argv + 2);
    }
    (void)fprintf(stderr, "tarn: unknown command \"%s\"; \"tarn help\" lists them\n", command);
    return TARN_EXIT_USAGE;
}
