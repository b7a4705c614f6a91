# SPDX-License-Identifier: Apache-2.0
"""What the client tests share: settings, steps with a result line each, and the lines that the README gives to paste."""
import os
import subprocess
import sys
import time
import traceback
import urllib.parse

ENDPOINT = os.environ["TARN_ENDPOINT"].rstrip("/")
HOST = urllib.parse.urlsplit(ENDPOINT).netloc
CATALOG = ENDPOINT + "/_iceberg"
ACCESS, SECRET, REGION = os.environ["TARN_ACCESS_KEY"], os.environ["TARN_SECRET_KEY"], os.environ["TARN_REGION"]
TOP = os.path.normpath(os.path.join(os.environ["TARN_CLIENTS"], "..", ".."))

_steps = []


def absent(why):
    """The client cannot be had here: the whole test counts as skipped."""
    print(why, flush=True)
    os._exit(77)


def step(function):
    _steps.append(function)
    return function


def same(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what}: got {repr(got)[:300]}, wanted {repr(want)[:300]}")


def unique(prefix, sep="-"):
    return prefix + sep + os.urandom(4).hex()


def paste(name):
    """A file of deploy/paste with the endpoint of this run in the place of the one that people see."""
    with open(os.path.join(TOP, "deploy", "paste", name), encoding="utf-8") as f:
        return f.read().replace("http://127.0.0.1:9000", ENDPOINT).replace("127.0.0.1:9000", HOST)


def shell(script, **more):
    """Runs a bash script that stops at the first failure; returns what it printed."""
    r = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, **more)
    print(r.stdout, r.stderr, sep="", flush=True)
    if r.returncode and "UNRESOLVED DEPENDENCIES" in r.stdout + r.stderr:
        absent("Spark cannot fetch its packages here")
    if r.returncode:
        raise AssertionError(f"exit {r.returncode}: {' '.join((r.stderr or r.stdout).split())[-400:]}")
    return r.stdout


def warehouse():
    """The warehouse of the pasted lines, made by the pasted line; it may be there already."""
    out = shell(paste("warehouse.sh").replace("curl ", "curl -sS -w ' %{http_code}' ", 1))
    status = out.split()[-1]
    if status not in ("200", "409"):
        raise AssertionError(f"creating the warehouse: {out}")


def main():
    failed = 0
    for function in _steps:
        began = time.monotonic()
        try:
            function()
        except Exception as e:  # noqa: BLE001
            failed += 1
            traceback.print_exc()
            text = " ".join(str(e).split())[:500]
            print(f"FAILED {function.__name__}: {text if isinstance(e, AssertionError) else type(e).__name__ + ': ' + text}", flush=True)
        else:
            print(f"ok {function.__name__} {time.monotonic() - began:.1f}", flush=True)
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # some native clients hang while the interpreter shuts down
