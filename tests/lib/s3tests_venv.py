#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""s3tests_venv.py RUN.PY: makes the environment of the shared s3-tests runner, which has no option for that.

The runner is read up to its first function that speaks to a server; what stands before it knows the pins and makes the
environment.
"""
import sys

path = sys.argv[1]
with open(path, encoding="utf-8") as f:
    head = f.read().split("\ndef owner(", 1)[0]
names = {"__name__": "s3tests", "__file__": path}
exec(compile(head, path, "exec"), names)
print(names["venv"]("pypi"))
