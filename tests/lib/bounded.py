#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bounded.py SECONDS LOG COMMAND...: runs a command in a session of its own, with a time limit and its output in LOG.

When it ends, is interrupted, or its time is up, every process of that session is ended, by its id: first with TERM, then
with KILL. Nothing else is ever signalled. Exit status: the command's; 124 when its time was up.
"""
import os
import signal
import subprocess
import sys
import time


def members(session):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(name))
    return found


def end(session):
    for sig, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        limit = time.monotonic() + seconds
        asked = set()
        while time.monotonic() < limit:
            left = members(session)
            if not left:
                return
            for pid in left:
                if pid not in asked:
                    asked.add(pid)
                    try:
                        os.kill(pid, sig)
                    except OSError:
                        pass
            time.sleep(0.05)


class Interrupted(Exception):
    pass


def interrupted(*_):
    raise Interrupted


def main():
    seconds, log, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    with open(log, "ab") as out:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        except OSError as e:
            out.write(f"{command[0]}: {e.strerror}\n".encode())
            return 127
        status = 143
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            out.write(f"\n# still running after {seconds:g} s: ended\n".encode())
            status = 124
        except Interrupted:
            pass
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end(process.pid)
        process.poll()
    return 128 - status if status < 0 else status


sys.exit(main())
