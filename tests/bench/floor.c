/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor: what this machine gives without any server, in the units of tests/bench/run. One JSON object on stdout.
 *
 *     floor FOLDER SECONDS
 *
 * Each figure is measured for SECONDS: 4 KiB appends with fdatasync after each; SQLite (WAL, synchronous=FULL) with one
 * row a transaction and with 64; sequential writes of 1 MiB and 64 MiB files, synced; memcpy, MD5, SHA-256 and the
 * erasure code on one core. FOLDER is on the file system that the daemon uses; what is made there is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <isa-l/erasure_code.h>
#include <openssl/evp.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROW_BYTES 4096
#define GROUP_ROWS 64
#define BLOCK_BYTES (1024 * 1024)
#define LARGE_BYTES (64 * 1024 * 1024)
#define DATA_SHARDS 4
#define PARITY_SHARDS 2

static double seconds;
static unsigned char *buffer, *other;

static void fail(const char *what)
{
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(2);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print(const char *name, double value, bool last)
{
    printf("\"%s\": %.1f%s", name, value, last ? "}\n" : ", ");
}

static double appends(void)
{
    int fd = open("append", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, LARGE_BYTES))
        fail("append");
    double began = now(), n = 0;
    off_t at = 0;
    while (now() - began < seconds) {
        if (pwrite(fd, buffer, ROW_BYTES, at) != ROW_BYTES || fdatasync(fd))
            fail("append");
        at = (at + ROW_BYTES) % LARGE_BYTES;
        n++;
    }
    double rate = n / (now() - began);
    close(fd);
    unlink("append");
    return rate;
}

static double files(size_t bytes)
{
    double began = now(), written = 0;
    while (now() - began < seconds) {
        int fd = open("file", O_CREAT | O_TRUNC | O_WRONLY, 0600);
        if (fd < 0)
            fail("file");
        for (size_t done = 0; done < bytes; done += BLOCK_BYTES)
            if (write(fd, buffer, BLOCK_BYTES) != BLOCK_BYTES)
                fail("file");
        if (fdatasync(fd))
            fail("file");
        close(fd);
        unlink("file");
        written += (double)bytes;
    }
    return written / (now() - began) / 1e6;
}

static void sql(sqlite3 *db, const char *text)
{
    char *message = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK) {
        fprintf(stderr, "floor: %s: %s\n", text, message);
        exit(2);
    }
}

static double rows(int group, int bytes)
{
    sqlite3 *db;
    sqlite3_stmt *insert;
    if (sqlite3_open("floor.db", &db) != SQLITE_OK)
        fail("floor.db");
    sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536");
    sql(db, "CREATE TABLE IF NOT EXISTS o(bucket INTEGER, key TEXT, data BLOB, PRIMARY KEY(bucket, key)) WITHOUT ROWID");
    if (sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO o VALUES(1, ?, ?)", -1, &insert, NULL) != SQLITE_OK)
        fail("insert");
    double began = now(), n = 0;
    uint64_t mix = 88172645463325252u;
    while (now() - began < seconds) {
        sql(db, "BEGIN IMMEDIATE");
        for (int i = 0; i < group; i++, n++) {
            char key[32];
            mix ^= mix << 13, mix ^= mix >> 7, mix ^= mix << 17;
            int len = snprintf(key, sizeof key, "key-%016llx", (unsigned long long)mix);
            sqlite3_bind_text(insert, 1, key, len, SQLITE_STATIC);
            sqlite3_bind_blob(insert, 2, buffer, bytes, SQLITE_STATIC);
            if (sqlite3_step(insert) != SQLITE_DONE)
                fail(sqlite3_errmsg(db));
            sqlite3_reset(insert);
        }
        sql(db, "COMMIT");
    }
    double rate = n / (now() - began);
    sqlite3_finalize(insert);
    sqlite3_close(db);
    unlink("floor.db");
    unlink("floor.db-wal");
    unlink("floor.db-shm");
    return rate;
}

static double copies(void)
{
    double began = now(), bytes = 0;
    while (now() - began < seconds) {
        for (size_t at = 0; at < LARGE_BYTES; at += BLOCK_BYTES)
            memcpy(other + at, buffer + at, BLOCK_BYTES);
        bytes += LARGE_BYTES;
    }
    return bytes / (now() - began) / 1e6;
}

static double digests(const EVP_MD *md)
{
    unsigned char out[EVP_MAX_MD_SIZE];
    double began = now(), bytes = 0;
    while (now() - began < seconds) {
        if (!EVP_Digest(buffer, BLOCK_BYTES, out, NULL, md, NULL))
            fail("digest");
        bytes += BLOCK_BYTES;
    }
    return bytes / (now() - began) / 1e6;
}

static double codes(void)
{
    unsigned char matrix[(DATA_SHARDS + PARITY_SHARDS) * DATA_SHARDS], tables[32 * DATA_SHARDS * PARITY_SHARDS];
    unsigned char *data[DATA_SHARDS], *parity[PARITY_SHARDS];
    int shard = BLOCK_BYTES / DATA_SHARDS;
    gf_gen_cauchy1_matrix(matrix, DATA_SHARDS + PARITY_SHARDS, DATA_SHARDS);
    ec_init_tables(DATA_SHARDS, PARITY_SHARDS, matrix + DATA_SHARDS * DATA_SHARDS, tables);
    for (int i = 0; i < DATA_SHARDS; i++)
        data[i] = buffer + i * shard;
    for (int i = 0; i < PARITY_SHARDS; i++)
        parity[i] = other + i * shard;
    double began = now(), bytes = 0;
    while (now() - began < seconds) {
        ec_encode_data(shard, DATA_SHARDS, PARITY_SHARDS, tables, data, parity);
        bytes += BLOCK_BYTES;
    }
    return bytes / (now() - began) / 1e6;
}

int main(int argc, char **argv)
{
    if (argc != 3 || (seconds = strtod(argv[2], NULL)) <= 0 || chdir(argv[1])) {
        fprintf(stderr, "usage: floor FOLDER SECONDS\n");
        return 2;
    }
    if (posix_memalign((void **)&buffer, 4096, LARGE_BYTES) || posix_memalign((void **)&other, 4096, LARGE_BYTES))
        fail("memory");
    for (size_t i = 0; i < LARGE_BYTES; i++)
        buffer[i] = (unsigned char)(i * 2654435761u >> 13);
    memset(other, 1, LARGE_BYTES);
    printf("{");
    print("fdatasync_4k_per_s", appends(), false);
    print("sqlite_1_row_per_s", rows(1, 200), false);
    print("sqlite_64_rows_4k_per_s", rows(GROUP_ROWS, ROW_BYTES), false);
    print("write_1m_mb_per_s", files(BLOCK_BYTES), false);
    print("write_64m_mb_per_s", files(LARGE_BYTES), false);
    print("memcpy_mb_per_s", copies(), false);
    print("md5_mb_per_s", digests(EVP_md5()), false);
    print("sha256_mb_per_s", digests(EVP_sha256()), false);
    print("isal_4_2_mb_per_s", codes(), true);
    return 0;
}
