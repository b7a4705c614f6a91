/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that refuses: a system call is made to fail in a child process, and a check runs there. This is how the
 * sandboxes of containers behave, and the only way to see what is done about it.
 */
#ifndef TARN_TEST_IO_REFUSE_H
#define TARN_TEST_IO_REFUSE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_check.h"

#define REFUSE_ANY UINT32_MAX
#define REFUSE_UNSUPPORTED 77 /* the exit status of a child that cannot set the filter */

/* System call `nr` (when its first argument is `arg0`, or always) fails with errno_value from now on. */
static inline bool refuse_call(long nr, uint32_t arg0, int errno_value)
{
    uint8_t any = arg0 == REFUSE_ANY;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* the low half: little-endian */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arg0, 0, any ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)errno_value),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {TARN_ARRAY_LEN(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

/* Runs fn in a child; its result is the child's exit status: 0 is good. */
static inline void check_in_child(int (*fn)(const void *arg), const void *arg)
{
    int status = 0;
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int rc = fn(arg);
        _exit(rc == 0 && atomic_load(&check_failures) ? 99 : rc);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == REFUSE_UNSUPPORTED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
