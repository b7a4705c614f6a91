#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README shows exactly the lines of deploy/paste, which the client tests run: each file stands whole in a code block."""
import os
import re
import sys
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
with open(os.path.join(TOP, "README.md"), encoding="utf-8") as f:
    blocks = [b.strip() for b in re.findall(r"^```\w*\n(.*?)^```", f.read(), re.S | re.M)]
bad = 0
for name in sorted(os.listdir(os.path.join(TOP, "deploy", "paste"))):
    began = time.monotonic()
    with open(os.path.join(TOP, "deploy", "paste", name), encoding="utf-8") as f:
        if f.read().strip() not in blocks:
            bad += 1
            print(f"FAILED {name}: the README has no block with exactly these lines")
            continue
    print(f"ok {name} {time.monotonic() - began:.1f}")
sys.exit(1 if bad else 0)
