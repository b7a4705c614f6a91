# SPDX-License-Identifier: Apache-2.0
"""Random tables and random commits: the daemon's metadata engine and PyIceberg's own must come to the same result.

The engine is the unit test's pipe (test_iceberg_apply_tool --stdin). Each round makes a random table, compares its first
metadata, and then applies random lists of updates to it, each time starting from the engine's own last result.
Where the two are known to differ by intent (what PyIceberg leaves to its server), the comparison says so below.

usage: iceberg_updates.py --tool PATH [--rounds N] [--seed N]"""
import argparse
import copy
import json
import random
import subprocess
import sys
import uuid

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties  # noqa: F401  (makes sure that the table package is complete)
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyiceberg.typedef import IcebergBaseModel
from pydantic import TypeAdapter

UPDATES = TypeAdapter(TableUpdate)
NOW = 1_800_000_000_000
PRIMITIVES = ["boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "binary", "fixed[16]", "decimal(9, 2)"]
PARTITIONABLE = {"identity": PRIMITIVES, "bucket[16]": ["int", "long", "date", "string", "uuid", "binary", "decimal(9, 2)", "timestamp"], "truncate[4]": ["int", "long", "string", "binary"],
                 "day": ["date", "timestamp", "timestamptz"], "hour": ["timestamp", "timestamptz"], "month": ["date", "timestamp"], "year": ["date"], "void": PRIMITIVES}


class Engine:
    def __init__(self, tool):
        self.p = subprocess.Popen([tool, "--stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **what):
        self.p.stdin.write(json.dumps(what) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit(f"the engine ended (status {self.p.wait()}) on {json.dumps(what)[:2000]}")
        return json.loads(line)

    def close(self):
        self.p.stdin.close()
        return self.p.wait(timeout=30)


# --------------------------------------------------------------------------- random schemas
def rand_type(r, depth, ids):
    k = r.random()
    if depth < 3 and k < 0.08:
        return {"type": "struct", "fields": [rand_field(r, depth + 1, ids, f"s{i}") for i in range(r.randint(1, 3))]}
    if depth < 3 and k < 0.14:
        return {"type": "list", "element-id": next(ids), "element": rand_type(r, depth + 1, ids), "element-required": r.random() < 0.5}
    if depth < 3 and k < 0.2:
        return {"type": "map", "key-id": next(ids), "key": "string", "value-id": next(ids), "value": rand_type(r, depth + 1, ids), "value-required": r.random() < 0.5}
    return r.choice(PRIMITIVES)


def rand_field(r, depth, ids, name):
    f = {"id": next(ids), "name": name, "required": r.random() < 0.4, "type": rand_type(r, depth, ids)}
    if r.random() < 0.2:
        f["doc"] = "about " + name
    return f


def counter(start, step):
    n = start
    while True:
        yield n
        n += step


def rand_schema(r):
    ids = counter(r.randint(1, 50), r.randint(1, 3))
    fields = [rand_field(r, 0, ids, f"c{i}") for i in range(r.randint(1, 8))]
    r.shuffle(fields)
    s = {"type": "struct", "fields": fields}
    keys = [f["id"] for f in fields if f["required"] and f["type"] in ("int", "long", "string", "uuid")]
    if keys and r.random() < 0.4:
        s["identifier-field-ids"] = keys[:1]
    return s


def top_level(schema):
    return [f for f in schema["fields"] if isinstance(f["type"], str)]


def rand_spec_fields(r, schema, tag=""):
    out = []
    for f in top_level(schema):
        if r.random() < 0.3:
            options = [t for t, types in PARTITIONABLE.items() if f["type"] in types]
            t = r.choice(options)
            name = f["name"] if t == "identity" and r.random() < 0.5 else f"{f['name']}_{t.split('[')[0]}{tag}"
            out.append({"source-id": f["id"], "transform": t, "name": name})
    return out[:3]


def rand_order_fields(r, schema):
    return [{"source-id": f["id"], "transform": "identity", "direction": r.choice(["asc", "desc"]), "null-order": r.choice(["nulls-first", "nulls-last"])}
            for f in top_level(schema) if r.random() < 0.2][:3]


# --------------------------------------------------------------------------- comparing
IGNORED = ("last-updated-ms", "metadata-log")


def normal(md, v):
    """Metadata as PyIceberg reads it, without what the two are allowed to do in their own way."""
    d = json.loads(IcebergBaseModel.model_dump_json(md, by_alias=True, exclude_none=True))  # the model's own method refuses version 3
    for k in IGNORED:
        d.pop(k, None)
    if d.get("current-snapshot-id") in (None, -1):
        d.pop("current-snapshot-id", None)
    if v == 1:
        d.pop("schema", None)
        d.pop("partition-spec", None)
    for s in d.get("snapshots", []):
        if s.get("sequence-number") in (None, 0):
            s.pop("sequence-number", None)
    for s in d["schemas"]:
        if not s.get("identifier-field-ids"):
            s.pop("identifier-field-ids", None)
    for k in ("snapshots", "statistics", "partition-statistics"):
        d[k] = sorted(d.get(k, []), key=lambda x: x["snapshot-id"])
    d["snapshot-log"] = [e["snapshot-id"] for e in d.get("snapshot-log", [])]
    return d


def differ(a, b, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for k in sorted(set(a) | set(b)):
            if k not in a or k not in b:
                return f"{path}/{k}: {'absent' if k not in a else json.dumps(a[k])[:200]} != {'absent' if k not in b else json.dumps(b[k])[:200]}"
            d = differ(a[k], b[k], f"{path}/{k}")
            if d:
                return d
        return None
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            d = differ(x, y, f"{path}[{i}]")
            if d:
                return d
        return None
    return None if a == b and type(a) is type(b) else f"{path}: {json.dumps(a)[:300]} != {json.dumps(b)[:300]}"


# --------------------------------------------------------------------------- random updates
class Maker:
    """Random updates that fit the metadata as it is after the ones made so far."""

    def __init__(self, r, md):
        self.r, self.md, self.removed = r, copy.deepcopy(md), False
        self.next_ms = max([s["timestamp-ms"] for s in md["snapshots"]] + [md["last-updated-ms"] - 1000]) + 1

    def schema(self):
        return next(s for s in self.md["schemas"] if s["schema-id"] == self.md["current-schema-id"])

    def one(self):
        r = self.r
        kind = r.choice(["props", "unprops", "location", "schema", "spec", "order", "snapshot", "snapshot", "ref", "unref", "unsnap", "stats", "unstats", "pstats", "upgrade", "switch-schema"])
        return getattr(self, "u_" + kind.replace("-", "_"))()

    def u_props(self):
        new = {f"p{self.r.randint(0, 5)}": str(self.r.randint(0, 99)) for _ in range(self.r.randint(1, 3))}
        self.md["properties"].update(new)
        return [{"action": "set-properties", "updates": new}]

    def u_unprops(self):
        key = f"p{self.r.randint(0, 5)}"
        if self.md["properties"].pop(key, None) is None:
            return []
        return [{"action": "remove-properties", "removals": [key]}]

    def u_location(self):
        return [{"action": "set-location", "location": f"s3://w/{uuid.UUID(int=self.r.getrandbits(128))}"}]

    def u_upgrade(self):
        if self.md["format-version"] != 1:  # PyIceberg does not upgrade to version 3
            return []
        self.md["format-version"] = 2
        self.md.setdefault("last-sequence-number", 0)
        return [{"action": "upgrade-format-version", "format-version": 2}]

    def u_schema(self):
        s = copy.deepcopy(self.schema())
        ids = counter(self.md["last-column-id"] + 1, 1)
        for i in range(self.r.randint(1, 2)):
            s["fields"].append(dict(rand_field(self.r, 0, ids, f"n{self.md['last-column-id']}_{i}"), required=False))
        s["schema-id"] = max(x["schema-id"] for x in self.md["schemas"]) + 1
        self.md["last-column-id"] = next(ids) - 1
        self.md["schemas"].append(s)
        self.md["current-schema-id"] = s["schema-id"]
        return [{"action": "add-schema", "schema": s, "last-column-id": self.md["last-column-id"]}, {"action": "set-current-schema", "schema-id": -1}]

    def u_switch_schema(self):
        used = {f["source-id"] for p in self.md["partition-specs"] + self.md["sort-orders"] for f in p["fields"]}
        ok = [s["schema-id"] for s in self.md["schemas"] if used <= {f["id"] for f in s["fields"]}]
        if not ok:
            return []
        self.md["current-schema-id"] = self.r.choice(ok)
        return [{"action": "set-current-schema", "schema-id": self.md["current-schema-id"]}]

    def u_spec(self):
        n = len(self.md["partition-specs"])
        fields = rand_spec_fields(self.r, self.schema(), f"_{n}")
        names = {f["name"] for s in self.md["schemas"] for f in s["fields"]}
        fields = [dict(f, name=f["name"] if f["name"] not in names else f["name"] + f"_id{n}") for f in fields]
        first = 1000 if self.md["format-version"] == 1 else self.md["last-partition-id"] + 1
        fields = [dict(f, **{"field-id": first + i}) for i, f in enumerate(fields)]
        if any([(f["source-id"], f["transform"], f["name"]) for f in s["fields"]] == [(f["source-id"], f["transform"], f["name"]) for f in fields] for s in self.md["partition-specs"]):
            return []
        spec = {"spec-id": max(s["spec-id"] for s in self.md["partition-specs"]) + 1, "fields": fields}
        self.md["partition-specs"].append(spec)
        self.md["last-partition-id"] = max([self.md["last-partition-id"]] + [f["field-id"] for f in fields])
        out = [{"action": "add-spec", "spec": spec}]
        if self.r.random() < 0.7:
            out.append({"action": "set-default-spec", "spec-id": self.r.choice([-1, spec["spec-id"]])})
        return out

    def u_order(self):
        fields = rand_order_fields(self.r, self.schema())
        if not fields or any(o["fields"] == fields for o in self.md["sort-orders"]):
            return []
        order = {"order-id": max(max(o["order-id"] for o in self.md["sort-orders"]) + 1, 1), "fields": fields}
        self.md["sort-orders"].append(order)
        return [{"action": "add-sort-order", "sort-order": order}, {"action": "set-default-sort-order", "sort-order-id": self.r.choice([-1, order["order-id"]])}]

    def u_snapshot(self):
        md, r = self.md, self.r
        s = {"snapshot-id": r.getrandbits(62) | 1, "timestamp-ms": self.next_ms, "manifest-list": f"s3://w/m/{r.getrandbits(32)}.avro", "schema-id": md["current-schema-id"],
             "summary": {"operation": r.choice(["append", "overwrite", "delete", "replace"]), "added-records": str(r.randint(0, 9))}}
        self.next_ms += r.randint(1, 50)
        if md.get("current-snapshot-id") not in (None, -1):
            s["parent-snapshot-id"] = md["current-snapshot-id"]
        if md["format-version"] >= 2:
            md["last-sequence-number"] += r.randint(1, 2)
            s["sequence-number"] = md["last-sequence-number"]
        if md["format-version"] >= 3:
            s["first-row-id"], s["added-rows"] = md["next-row-id"], r.randint(0, 1000)
            md["next-row-id"] += s["added-rows"]
        md["snapshots"].append(s)
        out = [{"action": "add-snapshot", "snapshot": s}]
        if r.random() < 0.85:
            name = r.choice(["main", "main", "main", "b1"])
            md["refs"][name] = {"snapshot-id": s["snapshot-id"], "type": "branch"}
            out.append({"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": s["snapshot-id"]})
            if name == "main":
                md["current-snapshot-id"] = s["snapshot-id"]
        return out

    def u_ref(self):
        if not self.md["snapshots"]:
            return []
        sid = self.r.choice(self.md["snapshots"])["snapshot-id"]
        name = self.r.choice(["b1", "b2", "t1"])
        u = {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": sid, "type": "tag" if name[0] == "t" else "branch"}
        if self.r.random() < 0.5:
            u["max-ref-age-ms"] = self.r.randint(1, 10**9)
        if name[0] == "b" and self.r.random() < 0.5:
            u["min-snapshots-to-keep"], u["max-snapshot-age-ms"] = self.r.randint(1, 9), self.r.randint(1, 10**9)
        self.md["refs"][name] = {"snapshot-id": sid, "type": u["type"]}
        return [u]

    def u_unref(self):
        if not self.md["refs"]:
            return []
        name = self.r.choice(sorted(self.md["refs"]))
        if name == "main":
            self.md["current-snapshot-id"] = -1
        del self.md["refs"][name]
        return [{"action": "remove-snapshot-ref", "ref-name": name}]

    def u_unsnap(self):
        kept = {x["snapshot-id"] for x in self.md["refs"].values()}
        gone = [s["snapshot-id"] for s in self.md["snapshots"] if s["snapshot-id"] not in kept and self.r.random() < 0.5]
        if not gone:
            return []
        self.removed = True
        self.md["snapshots"] = [s for s in self.md["snapshots"] if s["snapshot-id"] not in gone]
        return [{"action": "remove-snapshots", "snapshot-ids": gone}]

    def stats(self, sid):
        return {"snapshot-id": sid, "statistics-path": f"s3://w/s/{self.r.getrandbits(20)}.puffin", "file-size-in-bytes": self.r.randint(1, 999)}

    def u_stats(self):
        if not self.md["snapshots"]:
            return []
        sid = self.r.choice(self.md["snapshots"])["snapshot-id"]
        f = dict(self.stats(sid), **{"file-footer-size-in-bytes": 7, "blob-metadata": [{"type": "apache-datasketches-theta-v1", "snapshot-id": sid, "sequence-number": 1, "fields": [1], "properties": {"ndv": "3"}}]})
        return [{"action": "set-statistics", "snapshot-id": sid, "statistics": f}]

    def u_unstats(self):
        have = [s["snapshot-id"] for s in self.md.get("statistics", []) if s["snapshot-id"] in {x["snapshot-id"] for x in self.md["snapshots"]}]
        if not have:
            return []
        sid = self.r.choice(have)
        self.md["statistics"] = [s for s in self.md["statistics"] if s["snapshot-id"] != sid]
        return [{"action": "remove-statistics", "snapshot-id": sid}]

    def u_pstats(self):
        if not self.md["snapshots"]:
            return []
        sid = self.r.choice(self.md["snapshots"])["snapshot-id"]
        return [{"action": "set-partition-statistics", "partition-statistics": self.stats(sid)}]


# --------------------------------------------------------------------------- the rounds
def compare_create(r, engine, v):
    schema, tid = rand_schema(r), str(uuid.UUID(int=r.getrandbits(128)))
    spec, order, props = rand_spec_fields(r, schema), rand_order_fields(r, schema), {"p0": "x"}
    request = {"name": "t", "schema": schema, "properties": dict(props, **{"format-version": str(v)}), "partition-spec": {"fields": spec}, "write-order": {"fields": order}, "location": "s3://w/t/"}
    got = engine.ask(op="create", request=request, uuid=tid, now=NOW, root="s3://w/")
    if "error" in got:
        return f"create: {got['error']}: {json.dumps(request)}", None
    md = got["metadata"]
    theirs = new_table_metadata(Schema.model_validate(schema), PartitionSpec(*[PartitionField(field_id=1000 + i, **f) for i, f in enumerate(spec)]),
                                SortOrder.model_validate({"order-id": 1 if order else 0, "fields": order}), "s3://w/t", dict(props, **{"format-version": str(v)}), uuid.UUID(tid))
    want = normal(theirs, v)
    want["properties"]["write.parquet.compression-codec"] = "zstd"  # the reference server adds it
    if v >= 3:
        want.setdefault("next-row-id", 0)  # readers need it; PyIceberg starts without
    d = differ(want, normal(TableMetadataUtil.parse_obj(md), v))
    return (f"create: PyIceberg != engine: {d}\n{json.dumps(request)}" if d else None), md


def compare_commit(r, engine, md, n):
    maker = Maker(r, md)
    updates = [u for _ in range(r.randint(1, 5)) for u in maker.one()]
    if not updates:
        return None, md
    location = f"s3://w/t/metadata/{n:05d}-x.metadata.json"
    got = engine.ask(op="apply", base=md, updates=updates, requirements=[{"type": "assert-table-uuid", "uuid": md["table-uuid"]}], now=md["last-updated-ms"] + 1000, location=location)
    if "error" in got:
        return f"commit: {got['error']}\n{json.dumps(updates)}\n{json.dumps(md)}", None
    ours = got["metadata"]
    theirs = update_table_metadata(TableMetadataUtil.parse_obj(md), tuple(UPDATES.validate_python(u) for u in updates), True, location)
    v = ours["format-version"]
    a, b = normal(theirs, v), normal(TableMetadataUtil.parse_obj(ours), v)
    seen = {s["snapshot-id"] for s in ours["snapshots"]}
    added = {u["snapshot"]["snapshot-id"] for u in updates if u["action"] == "add-snapshot"}
    if maker.removed:  # PyIceberg forgets parents that are gone, keeps gaps in the log and partition statistics; the reference server does none of it
        for d in (a, b):
            d.pop("snapshot-log")
            d["partition-statistics"] = [f for f in d["partition-statistics"] if f["snapshot-id"] in seen]
            for s in d["snapshots"]:
                if s.get("parent-snapshot-id") not in seen:
                    s.pop("parent-snapshot-id", None)
    elif added:  # the reference drops from the log what was current only within this commit
        current = a.get("current-snapshot-id")
        a["snapshot-log"] = [i for i in a["snapshot-log"] if i not in added or i == current]
    if v == 1 or a.get("last-sequence-number") is None:
        a.pop("last-sequence-number", None)
        b.pop("last-sequence-number", None)
    d = differ(a, b)
    if d:
        return f"commit: PyIceberg != engine: {d}\nupdates {json.dumps(updates)}\nbase {json.dumps(md)}", None
    again = engine.ask(op="load", base=ours)
    if "error" in again:
        return f"the result does not load: {again['error']}", None
    if len(ours["metadata-log"]) != min(len(md["metadata-log"]) + (1 if got["changed"] else 0), 100):
        return f"metadata-log has {len(ours['metadata-log'])} entries", None
    return None, ours


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tool", required=True)
    ap.add_argument("--rounds", type=int, default=150)
    ap.add_argument("--seed", type=int, default=None)
    args = ap.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().getrandbits(32)
    engine, failed, commits = Engine(args.tool), 0, 0
    for i in range(args.rounds):
        r = random.Random(seed + i)
        err, md = compare_create(r, engine, r.choice([1, 2, 2, 3]))
        for n in range(12):
            if err:
                break
            err, md = compare_commit(r, engine, md, n)
            commits += 1
        if err:
            failed += 1
            print(f"FAILED round with --seed {seed + i}: {err}")
            if failed > 4:
                break
    if engine.close() != 0:
        print("FAILED: the engine ended with an error")
        failed += 1
    print(f"{args.rounds} tables, {commits} commits, seed {seed}: {'ok' if not failed else 'FAILED'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
