#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""survivor.py write|read FILE: writes objects of every storage class and a table, or checks that all of it is there.

FILE keeps what was written: bucket, warehouse, and for each key its size and hash.
"""
import hashlib
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from tarnwire import client, eq, true  # noqa: E402

# From inline in a row over segments to files of several blocks, with sizes on both sides of a block.
SIZES = [0, 1, 100, 4096, 16384, 65536, 262144, 1048575, 1048576, 1048577, 5 * 1048576 + 3, 20 * 1048576]


def write(path):
    c, source = client(), random.Random(20)
    bucket, kept = c.new_bucket("survivor"), {}
    for size in SIZES:
        data = source.randbytes(size)
        key = f"of/{size}/bytes"
        eq(c.put(bucket, key, data).status, 200, f"PUT of {size} bytes")
        kept[key] = [size, hashlib.sha256(data).hexdigest()]
    warehouse = c.new_warehouse()
    prefix = c.catalog_prefix(warehouse)
    eq(c.catalog("POST", prefix + "/namespaces", {"namespace": ["kept"]}).status, 200, "namespace")
    schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
    r = c.catalog("POST", prefix + "/namespaces/kept/tables", {"name": "t", "schema": schema, "properties": {"mark": "survivor"}})
    eq(r.status, 200, f"table: {r}")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"bucket": bucket, "kept": kept, "warehouse": warehouse, "uuid": r.json()["metadata"]["table-uuid"]}, f)


def read(path):
    with open(path, encoding="utf-8") as f:
        was = json.load(f)
    c = client()
    eq(sorted(c.keys(was["bucket"])), sorted(was["kept"]), "keys")
    for key, (size, digest) in was["kept"].items():
        r = c.get(was["bucket"], key)
        eq((r.status, len(r.body)), (200, size), f"GET of {key}")
        eq(hashlib.sha256(r.body).hexdigest(), digest, f"content of {key}")
        if size > 10:
            part = c.get(was["bucket"], key, headers={"Range": f"bytes={size // 3}-{size // 2}"})
            eq(part.body, r.body[size // 3:size // 2 + 1], f"range of {key}")
    r = c.catalog("GET", c.catalog_prefix(was["warehouse"]) + "/namespaces/kept/tables/t")
    eq(r.status, 200, f"loading the table: {r}")
    eq(r.json()["metadata"]["table-uuid"], was["uuid"], "the table's uuid")
    true(r.json()["metadata"]["properties"].get("mark") == "survivor", "the table's property")


{"write": write, "read": read}[sys.argv[1]](sys.argv[2])
