/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target on files: each argument is a file or a folder of files (its corpus). So that what a fuzzer has found
 * once is a test for ever, with any compiler.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX (4u << 20)
#define PATH_BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static unsigned ran;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_BYTES_MAX);
    if (f == NULL || data == NULL) {
        (void)fprintf(stderr, "%s cannot be read\n", path);
        free(data);
        if (f != NULL) {
            (void)fclose(f);
        }
        return 1;
    }
    size_t n = fread(data, 1, INPUT_BYTES_MAX, f);
    (void)fclose(f);
    /* A copy of exactly this size: a read past the end is seen. */
    uint8_t *exact = malloc(n > 0 ? n : 1);
    if (exact != NULL) {
        memcpy(exact, data, n);
        (void)LLVMFuzzerTestOneInput(exact, n);
        ran++;
    }
    free(exact);
    free(data);
    return exact == NULL;
}

static int run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        (void)fprintf(stderr, "%s is not there\n", path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode)) {
        return run_file(path);
    }
    DIR *d = opendir(path);
    int failed = d == NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char sub[PATH_BYTES_MAX];
        int len = snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.' && len > 0 && (size_t)len < sizeof sub) {
            failed |= run_file(sub);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        failed |= run_path(argv[i]);
    }
    (void)printf("%u inputs\n", ran);
    return failed || ran == 0;
}
