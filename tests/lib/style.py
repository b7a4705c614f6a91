#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Form of the sources: clang-format, syntax of scripts, and that nothing of one machine is named in the tree."""
import ast
import os
import re
import subprocess
import sys
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MACHINE = re.compile(r"(?<![\w.])/(work|root)/\w|https?://(localhost|127\.0\.0\.1):(3128|4873|8081)|https?://[\w.-]+\.(internal|corp|lan)\b")


def tracked(*suffixes):
    out = subprocess.run(["git", "-C", TOP, "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True)
    return sorted({p for p in out.stdout.split("\n") if p and os.path.isfile(os.path.join(TOP, p)) and (not suffixes or p.endswith(suffixes))})


def shebang(path, word):
    with open(os.path.join(TOP, path), "rb") as f:
        first = f.readline()
    return first.startswith(b"#!") and word in first


def run(*command):
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True)


def format_of_c():
    files = tracked(".c", ".h")
    r = run("clang-format-14", "--dry-run", "-Werror", *files)
    if r.returncode:
        seen = sorted({line.split(":")[0] for line in r.stderr.split("\n") if "error:" in line})
        yield from (f"{f} is not as clang-format-14 puts it" for f in seen)


def shell_syntax():
    for f in tracked():
        if f.endswith(".sh") or ("." not in os.path.basename(f) and shebang(f, b"bash")):
            r = run("bash", "-n", f)
            if r.returncode:
                yield r.stderr.strip().split("\n")[0]


def python_syntax():
    for f in tracked():
        if f.endswith(".py") or ("." not in os.path.basename(f) and shebang(f, b"python3")):
            try:
                with open(os.path.join(TOP, f), encoding="utf-8") as s:
                    ast.parse(s.read(), f)
            except SyntaxError as e:
                yield f"{f}:{e.lineno} {e.msg}"


def nothing_of_one_machine():
    for f in tracked():
        if f == "tests/lib/style.py":
            continue
        try:
            with open(os.path.join(TOP, f), encoding="utf-8") as s:
                for n, line in enumerate(s, 1):
                    m = MACHINE.search(line)
                    if m:
                        yield f"{f}:{n} names {m.group(0)}"
        except UnicodeDecodeError:
            pass


bad = 0
for rule in (format_of_c, shell_syntax, python_syntax, nothing_of_one_machine):
    began, name = time.monotonic(), rule.__name__.replace("_", "-")
    found = list(rule())
    bad += bool(found)
    if found:
        print(f"FAILED {name}: {found[0]}{f' (and {len(found) - 1} more)' if len(found) > 1 else ''}")
        print("\n".join("    " + x for x in found[:40]))
    else:
        print(f"ok {name} {time.monotonic() - began:.1f}")
sys.exit(1 if bad else 0)
