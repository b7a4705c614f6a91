#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/layers must see what it is there for: one small tree for each rule, with one fault in it."""
import os
import subprocess
import sys
import tempfile
import time

LAYERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "layers")
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
GOOD = {"include/tarn/base.h": SPDX, "include/tarn/io.h": SPDX + '#include "tarn/base.h"\n', "include/tarn/meta.h": SPDX, "include/tarn/s3.h": SPDX,
        "src/io/ring.h": SPDX, "src/io/ring.c": SPDX + '#include <liburing.h>\n#include "ring.h"\n#include "tarn/io.h"\n',
        "src/meta/rows.c": SPDX + 'static const char sql[] = "SELECT 1";\n',
        "src/base/mem.c": SPDX + "void *f(void)\n{\n    return malloc(1); /* strcpy( in a comment is no call */\n}\n"}
FAULTS = {  # rule: (file, text)
    "includes": [("src/base/up.c", '#include "tarn/io.h"\n'), ("src/iceberg/side.c", '#include "tarn/s3.h"\n'), ("src/meta/far.c", '#include "../io/ring.h"\n'),
                 ("src/meta/other.c", '#include "ring.h"\n'), ("src/object/db.c", "#include <sqlite3.h>\n"), ("include/tarn/base.h", '#include "ring.h"\n')],
    "sql-in-meta": [("src/s3/q.c", 'static const char q[] = "SELECT key FROM objects";\n'), ("src/iceberg/q.c", 'const char *q = "UPDATE tables SET a = 1";\n')],
    "banned-functions": [("src/io/c.c", "void f(char *d, const char *s)\n{\n    strcpy(d, s);\n}\n"), ("src/io/m.c", "void *f(void)\n{\n    return malloc(3);\n}\n")],
    "files-below-object": [("src/s3/f.c", "int f(void)\n{\n    return open(\"x\", 0);\n}\n")],
    "nothing-left-open": [("src/io/t.c", "/* TO" + "DO: later */\n")],
    "lengths": [("src/io/long.c", "void f(void)\n{\n" + "    ;\n" * 101 + "}\n"), ("src/io/big.c", "\n" * 1000)],
}


def layers(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        out = subprocess.run([sys.executable, LAYERS, root], capture_output=True, text=True).stdout
    return {line.split()[1].rstrip(":") for line in out.split("\n") if line.startswith("FAILED")}


bad = 0
began = time.monotonic()
got = layers(GOOD)
wrong = [f"a good tree fails {sorted(got)}"] if got else []
for rule, cases in FAULTS.items():
    for path, text in cases:
        got = layers({**GOOD, path: SPDX + text})
        if got != {rule}:
            wrong.append(f"{path} ({rule}) fails {sorted(got)}")
if layers({**GOOD, "src/io/bare.c": "int x;\n"}) != {"licence-lines"}:
    wrong.append("a file without its SPDX line is not seen")
if wrong:
    print("FAILED faults-are-seen: " + "; ".join(wrong))
else:
    print(f"ok faults-are-seen {time.monotonic() - began:.1f}")
sys.exit(1 if wrong else 0)
