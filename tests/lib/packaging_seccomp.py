# SPDX-License-Identifier: Apache-2.0
"""Puts a container engine's seccomp profile on this process by libseccomp, then becomes another program."""
import ctypes
import ctypes.util
import errno
import json
import os
import sys

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
MASKED_EQ = 7
UNKNOWN = -1  # __NR_SCMP_ERROR


class Argument(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("datum_a", ctypes.c_uint64), ("datum_b", ctypes.c_uint64)]


def become(profile, without, program):
    lib = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = [ctypes.c_uint32]
    lib.seccomp_load.argtypes = [ctypes.c_void_p]
    lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    lib.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    with open(profile, encoding="utf-8") as f:
        doc = json.load(f)
    context = lib.seccomp_init(ERRNO | doc["defaultErrnoRet"])
    for group in doc["syscalls"]:
        action = ALLOW if group["action"] == "SCMP_ACT_ALLOW" else ERRNO | group.get("errnoRet", errno.EPERM)
        wanted = [Argument(a["index"], MASKED_EQ, a["value"], a["valueTwo"]) for a in group.get("args", [])]
        array = (Argument * len(wanted))(*wanted)
        for name in group["names"]:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            if name in without or number == UNKNOWN:
                continue  # a call that this libseccomp or this architecture does not know needs no rule
            rc = lib.seccomp_rule_add_array(context, action, number, len(wanted), array)
            if rc not in (0, -errno.EDOM):
                sys.exit(f"rule for {name}: {os.strerror(-rc)}")
    rc = lib.seccomp_load(context)
    if rc:
        sys.exit(f"loading the filter: {os.strerror(-rc)}")
    os.execv(program, [program, *sys.argv[1:]])
