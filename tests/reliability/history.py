# SPDX-License-Identifier: Apache-2.0
"""Concurrent histories of the real daemon are recorded and checked for linearisability, per key and per table (linear.py).

    TARN_BIN=DAEMON python3 history.py [--seconds S] [--seed N]

Many threads put, get, head, list, delete and put under conditions on few keys, and load tables and commit to them under a
requirement. Each operation is recorded with the moments of its invocation and return. Content is told apart by its ETag,
and a GET's body must have it. Where the daemon is killed meanwhile, what was under way has no return: it may have happened
or not. The checker must also reject what was recorded once a stale read has been put into it.
"""
import argparse
import hashlib
import http.client
import itertools
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from linear import FOREVER, Op, Undecided, around, check, key_model, stale_reads, table_model  # noqa: E402
from tarnwire import Client, Daemon, Failed, case, eq, main, true  # noqa: E402

SIZES = (20, 3000, 17_000, 60_000, 1_100_000, 4_200_000)  # in the row, in segments, in files of their own
WEIGHTS = (10, 10, 6, 4, 1, 0.3)
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
GONE = (OSError, http.client.HTTPException)


def tag_of(data):
    return hashlib.md5(data).hexdigest()


class Once(Client):
    """Sends everything once: a request that was done twice would be two operations."""

    def exchange(self, method, target, headers, body=b""):
        return self._once(method, target, headers, body)


class Recorder(threading.Thread):
    def __init__(self, world, number, seed):
        super().__init__(daemon=True)
        self.world, self.number, self.random = world, number, random.Random(seed)
        self.failed, self.history = None, {}

    def run(self):
        try:
            while not self.world.over.is_set():
                client = Once(self.world.daemon.endpoint, timeout=60)
                try:
                    while not self.world.over.is_set():
                        self.step(client)
                except GONE:
                    # The daemon was killed, which the world must know of.
                    true(self.world.may_die, "a request came to nothing although the daemon lives")
                    self.world.alive.wait(60)
                    time.sleep(0.02)
                finally:
                    client.close()
        except Exception as e:  # noqa: BLE001
            self.failed = e

    def ask(self, what, kind, arg, do):
        """Records one operation; do() returns its result. When do() does not come back it stays without a return."""
        op = Op(kind, arg, None, time.monotonic_ns(), FOREVER, self.number)
        self.history.setdefault(what, []).append(op)
        op.result = do()
        op.ret = time.monotonic_ns()
        return op.result


class Keys(Recorder):
    """Operations on a few keys that all threads share."""

    def __init__(self, *a):
        super().__init__(*a)
        self.last = {}

    def step(self, c):
        bucket, key, p = self.world.bucket, f"k/{self.random.randrange(self.world.keys_n)}", self.random.random()
        if p < 0.25:
            self.last[key] = self.ask(key, "get", None, lambda: self.get(c, bucket, key))
        elif p < 0.35:
            self.last[key] = self.ask(key, "get", None, lambda: self.head(c, bucket, key))
        elif p < 0.45:
            self.list(c, bucket)
        elif p < 0.55:
            self.ask(key, "delete", None, lambda: self.word(c.delete(bucket, key), {204: "ok"}))
        else:
            data = self.random.randbytes(self.random.choices(SIZES, WEIGHTS)[0])
            tag = tag_of(data)
            known = self.last.get(key)
            if p < 0.72:
                self.ask(key, "put", tag, lambda: self.word(c.put(bucket, key, data), {200: "ok"}))
            elif p < 0.82 or known is None:
                self.ask(key, "put-if-absent", tag, lambda: self.word(c.put(bucket, key, data, {"If-None-Match": "*"}), {200: "ok", 412: "refused", 409: "conflict"}))
            else:
                words = {200: "ok", 412: "refused", 404: "missing", 409: "conflict"}
                if self.ask(key, "put-if", (known, tag), lambda: self.word(c.put(bucket, key, data, {"If-Match": f'"{known}"'}), words)) == "ok":
                    self.last[key] = tag

    @staticmethod
    def word(answer, words):
        if answer.status not in words:
            raise Failed(f"an answer that is no result: {answer}")
        return words[answer.status]

    def get(self, c, bucket, key):
        r = c.get(bucket, key)
        if self.word(r, {200: "there", 404: "absent"}) == "absent":
            return None
        tag = r.headers["ETag"].strip('"')
        eq(tag_of(r.body), tag, f"the content of {key} is that of its ETag")
        return tag

    def head(self, c, bucket, key):
        r = c.head(bucket, key)
        return r.headers["ETag"].strip('"') if self.word(r, {200: "there", 404: "absent"}) == "there" else None

    def list(self, c, bucket):
        """A listing is a read of every key."""
        call = time.monotonic_ns()
        r = c.get(bucket, query={"list-type": "2", "prefix": "k/"})
        ret = time.monotonic_ns()
        eq(r.status, 200, "LIST")
        shown = {e.findtext("Key"): e.findtext("ETag").strip('"') for e in r.xml().findall("Contents")}
        for n in range(self.world.keys_n):
            self.history.setdefault(f"k/{n}", []).append(Op("get", None, shown.get(f"k/{n}"), call, ret, self.number))


class Committer(Recorder):
    """Loads tables, and commits with the requirement that main is still what was seen."""

    def __init__(self, *a):
        super().__init__(*a)
        self.seen = {}

    def step(self, c):
        name = f"t{self.random.randrange(self.world.tables_n)}"
        if name not in self.seen or self.random.random() < 0.5:
            doc = {}
            self.ask(name, "load", None, lambda: self.load(c, name, doc))
            self.seen[name] = (doc["current"], doc["sequence"])
        else:
            parent, sequence = self.seen.pop(name)
            new = self.random.randrange(1, 1 << 62)
            self.ask(name, "commit", (parent, new), lambda: self.commit(c, name, parent, new, sequence + 1))

    def load(self, c, name, doc):
        r = c.catalog("GET", f"{self.world.prefix}/namespaces/n/tables/{name}")
        eq(r.status, 200, f"load of {name}")
        meta = r.json()["metadata"]
        doc["current"] = meta.get("refs", {}).get("main", {}).get("snapshot-id")
        doc["sequence"] = meta["last-sequence-number"]
        return doc["current"]

    def commit(self, c, name, parent, new, sequence):
        snapshot = {"snapshot-id": new, "sequence-number": sequence, "timestamp-ms": int(time.time() * 1000), "schema-id": 0,
                    "manifest-list": f"s3://{self.world.warehouse}/m/{new}.avro", "summary": {"operation": "append"}}
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        r = c.catalog("POST", f"{self.world.prefix}/namespaces/n/tables/{name}", {
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
            "updates": [{"action": "add-snapshot", "snapshot": snapshot},
                        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": new}]})
        if r.status not in (200, 409):
            raise Failed(f"a commit answered with {r}")
        return "ok" if r.status == 200 else "refused"


class World:
    def __init__(self, drives, seconds, kills, r):
        self.daemon, self.seconds, self.kills, self.random = Daemon(drives=drives, env={"TARN_SCRUB_INTERVAL": "off"}), seconds, kills, r
        self.over, self.alive, self.may_die = threading.Event(), threading.Event(), kills > 0
        self.keys_n, self.tables_n = 4, 2

    def run(self):
        self.daemon.start()
        try:
            c = self.daemon.client()
            self.bucket, self.warehouse = c.new_bucket(), c.new_warehouse()
            self.prefix = c.catalog_prefix(self.warehouse)
            eq(c.catalog("POST", self.prefix + "/namespaces", {"namespace": ["n"]}).status, 200, "namespace")
            for n in range(self.tables_n):
                eq(c.catalog("POST", self.prefix + "/namespaces/n/tables", {"name": f"t{n}", "schema": SCHEMA}).status, 200, "table")
            self.alive.set()
            threads = [(Keys if n < 8 else Committer)(self, n, self.random.randrange(1 << 60)) for n in range(12)]
            for t in threads:
                t.start()
            for n in range(self.kills + 1):
                time.sleep(self.seconds / (self.kills + 1))
                if n < self.kills:
                    self.alive.clear()
                    self.daemon.kill()
                    self.daemon.start()
                    self.alive.set()
            self.over.set()
            for t in threads:
                t.join(90)
                true(not t.is_alive(), "a thread ended")
                if t.failed:
                    raise t.failed
            eq(self.daemon.stop(), 0, "exit status")
            self.daemon.__exit__()
        finally:
            self.over.set()
            self.daemon.stop()
        out = {}
        for t in threads:
            for what, ops in t.history.items():
                out.setdefault(what, []).extend(ops)
        return out


def wrote(op):
    """The content or snapshot that a finished operation left for certain."""
    if op.result != "ok" or op.kind in ("delete", "load"):
        return None
    return op.arg[1] if isinstance(op.arg, tuple) else op.arg


SPOILT_STEPS_MAX = 2_000_000


def rejected(bad, model):
    """None: it can't be told in that time. To reject takes trying everything; of spoilt copies it is enough that some are."""
    try:
        return not check(bad, model, steps_max=SPOILT_STEPS_MAX)[0]
    except Undecided:
        return None


def judge(histories):
    ops = unknown = conflicts = conditional = canaries = 0
    for what in sorted(histories):
        h, model = histories[what], key_model if what.startswith("k/") else table_model
        began = time.monotonic()
        ok, stuck = check(h, model)
        if not ok:
            near = "; ".join(repr(o) for o in around(h, stuck)) if stuck else ""
            raise Failed(f"the history of {what} ({len(h)} operations) is not linearisable near {stuck}: {near}")
        words = [o.result for o in h if o.known() and o.kind in ("put-if-absent", "put-if", "commit")]
        true(words.count("ok") > 3, f"{what}: conditions were met {words.count('ok')} times")
        ops, unknown = ops + len(h), unknown + sum(not o.known() for o in h)
        conflicts, conditional = conflicts + words.count("conflict"), conditional + len(words)
        told = [rejected(bad, model) for bad in itertools.islice(stale_reads(h, "load" if model is table_model else "get", wrote), 0, 400, 40)]
        true(False not in told, f"a stale read put into the history of {what} is accepted")
        canaries += told.count(True)
        print(f"# {what}: {len(h)} operations, {words.count('ok')} of {len(words)} conditions met, {told.count(True)} of {len(told)} spoilt copies rejected, "
              f"{time.monotonic() - began:.1f} s", flush=True)
    true(canaries >= 5, f"{canaries} spoilt copies were there to be rejected")
    true(conflicts * 4 <= conditional, f"{conflicts} of {conditional} conditional writes were answered with a conflict")
    print(f"# {ops} operations, {unknown} without an answer, {conflicts} conflicts", flush=True)


def recorded(drives, seconds, kills):
    seed = ARGS.seed if ARGS.seed is not None else random.randrange(1 << 32)
    print(f"# seed {seed}", flush=True)
    judge(World(drives, seconds, kills, random.Random(seed)).run())


ARGS = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ARGS.add_argument("--seconds", type=float, default=8)
ARGS.add_argument("--seed", type=int, default=None)
ARGS, rest = ARGS.parse_known_args()
sys.argv[1:] = rest


@case
def one_drive():
    recorded(1, ARGS.seconds, 0)


@case
def six_drives():
    recorded(6, ARGS.seconds, 0)


@case
def with_kills():
    recorded(6, ARGS.seconds, 3)


main()
