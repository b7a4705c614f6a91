# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed with SIGKILL at random moments under load; then everything that it acknowledged must be there.

    TARN_BIN=DAEMON python3 crash.py [--rounds N] [--seed N]

Two stores live through all rounds, one of one drive and one of six, and are killed in turn. Before each request a writer
notes what it is about to do, after the answer that it was done. After the restart:
  - what was acknowledged is there with its content, what was deleted is gone;
  - what was asked and not answered is whole or absent;
  - listings, versions and uploads show what can be read, and nothing else;
  - every table loads, holds every acknowledged commit, and its metadata files exist and parse.
What is found becomes the state that the next round begins with. In some rounds the restart itself is killed too.
"""
import argparse
import hashlib
import http.client
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from tarnwire import Client, Daemon, Failed, case, eq, main, true, unique  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
# In the row, at its edges, in segment files, at the edge to files of their own, in files.
SIZES = (0, 1, 100, 4 * KIB, 16 * KIB, 16 * KIB + 1, 60_000, 300_000, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1, 6_000_000)
WEIGHTS = (2, 4, 8, 10, 4, 4, 8, 6, 3, 3, 1, 1, 1)
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
GONE = (OSError, http.client.HTTPException)
KEYS = 24


def md5(data):
    return hashlib.md5(data).hexdigest()


class Once(Client):
    """Never sends anything twice: a second attempt could do what the first already did."""

    def exchange(self, method, target, headers, body=b""):
        return self._once(method, target, headers, body)


class Writer(threading.Thread):
    """One step after the other until the daemon is gone. A step that is under way when that happens stays in `pending`."""

    def __init__(self, store, number, seed):
        super().__init__(daemon=True)
        self.store, self.number, self.random = store, number, random.Random(seed)
        self.pending, self.done, self.failed = None, 0, None

    def attach(self):
        self.client = Once(self.store.daemon.endpoint, timeout=30)

    def data(self):
        return self.random.randbytes(self.random.choices(SIZES, WEIGHTS)[0])

    def run(self):
        self.attach()
        try:
            while True:
                self.step()
                self.done += 1
        except GONE:
            pass
        except Exception as e:  # noqa: BLE001
            self.failed = e
        finally:
            self.client.close()

    def good(self, answer, *statuses):
        if answer.status not in statuses:
            raise Failed(f"{type(self).__name__} {self.number}, {self.pending}: {answer}")
        return answer


class Objects(Writer):
    """Puts, deletes and deletes of several, on keys of its own. kept: key → (md5, size)."""

    def __init__(self, *a):
        super().__init__(*a)
        self.kept, self.touched = {}, set()

    def key(self):
        return f"o{self.number}/{self.random.randrange(KEYS):02d}"

    def step(self):
        p = self.random.random()
        if p < 0.75:
            key, data = self.key(), self.data()
            self.pending = {key: (md5(data), len(data))}
            self.touched |= set(self.pending)
            self.good(self.client.put(self.store.plain, key, data), 200)
        elif p < 0.9:
            self.pending = {self.key(): None}
            self.touched |= set(self.pending)
            self.good(self.client.delete(self.store.plain, next(iter(self.pending))), 204)
        else:
            self.pending = {self.key(): None for _ in range(3)}
            self.touched |= set(self.pending)
            body = "<Delete>" + "".join(f"<Object><Key>{k}</Key></Object>" for k in self.pending) + "</Delete>"
            r = self.good(self.client.post(self.store.plain, "", body.encode(), {"delete": ""}), 200)
            true("<Error>" not in r.body.decode(), f"delete of several: {r}")
        for key, what in self.pending.items():
            self.kept.pop(key, None)
            if what:
                self.kept[key] = what
        self.pending = None

    def verify(self, c, listed, every):
        mine = {k: v for k, v in listed.items() if k.startswith(f"o{self.number}/")}
        pending = self.pending or {}
        had = set(pending) & set(self.kept)
        for key in sorted(set(mine) | set(self.kept) | set(pending)):
            allowed = {self.kept.get(key), pending.get(key, self.kept.get(key))}
            found = mine.get(key)
            true(found in allowed, f"LIST shows {key} as {found}; acknowledged {self.kept.get(key)}, pending {pending.get(key, 'nothing')}")
            if found != self.kept.get(key):
                self.kept.pop(key, None)
                if found:
                    self.kept[key] = found
        if len(pending) > 1:  # a delete of several is one transaction
            true(had <= set(mine) or not had & set(mine), f"a delete of several is whole or absent: {sorted(had)}, there {sorted(had & set(mine))}")
        for key in sorted(self.touched if not every else self.touched | set(self.kept)):
            r = c.get(self.store.plain, key)
            got = (md5(r.body), len(r.body)) if r.status == 200 else None
            true(r.status in (200, 404), f"GET {key}: {r}")
            eq(got, self.kept.get(key), f"content of {key}")
        self.pending, self.touched = None, set()


class Versions(Writer):
    """Versions, delete markers and deletes by version. kept: key → [(version id, md5 or MARK)], oldest first."""
    MARK = "delete marker"

    def __init__(self, *a):
        super().__init__(*a)
        self.kept = {}

    def step(self):
        key = f"v{self.number}/{self.random.randrange(8)}"
        have, p = self.kept.setdefault(key, []), self.random.random()
        if len(have) > 6 or (have and p < 0.15):
            one = self.random.choice(have)
            self.pending = (key, "without", one)
            self.good(self.client.delete(self.store.versioned, key, {"versionId": one[0]}), 204)
            have.remove(one)
        elif p < 0.3:
            self.pending = (key, "with", self.MARK)
            r = self.good(self.client.delete(self.store.versioned, key), 204)
            eq(r.headers["x-amz-delete-marker"], "true", "a delete marker is made")
            have.append((r.headers["x-amz-version-id"], self.MARK))
        else:
            data = self.data()
            self.pending = (key, "with", md5(data))
            r = self.good(self.client.put(self.store.versioned, key, data), 200)
            have.append((r.headers["x-amz-version-id"], md5(data)))
        self.pending = None

    def verify(self, c, listed, every):
        mine = {k: v for k, v in listed.items() if k.startswith(f"v{self.number}/")}
        for key in sorted(set(mine) | {k for k, v in self.kept.items() if v} | ({self.pending[0]} if self.pending else set())):
            found, want = mine.get(key, []), self.kept.get(key, [])
            if found != want and self.pending and self.pending[0] == key:
                _, how, what = self.pending
                if how == "without":
                    want = [x for x in want if x != what]
                elif len(found) == len(want) + 1:
                    want = [*want, (found[-1][0], what)]
            eq(found, want, f"versions of {key} (pending {self.pending})")
            self.kept[key] = list(found)
            for vid, what in found[-3:] if not every else found:
                if what != self.MARK:
                    r = c.get(self.store.versioned, key, {"versionId": vid})
                    eq((r.status, md5(r.body)), (200, what), f"{key} version {vid}")
            r = c.head(self.store.versioned, key)
            now = found[-1][1] if found else self.MARK
            eq(r.status, 404 if now == self.MARK else 200, f"the current version of {key}")
            if r.status == 200:
                eq(r.headers["x-amz-version-id"], found[-1][0], f"which version of {key} is the current one")
        self.pending = None


class Multipart(Writer):
    """Uploads in parts, mostly of one small part, sometimes with a part of 5 MiB first."""

    def __init__(self, *a):
        super().__init__(*a)
        self.kept, self.upload, self.finished, self.touched = {}, None, set(), set()

    def step(self):
        key = f"m{self.number}/{self.random.randrange(8)}"
        self.touched.add(key)
        self.pending = "create"
        r = self.good(self.client.post(self.store.plain, key, query={"uploads": ""}), 200)
        self.upload = {"key": key, "id": r.xml().findtext("UploadId"), "parts": [], "asked": None}
        sizes = [self.random.choice((10, 3000, 20_000, 200_000))]
        if self.random.random() < 0.15:
            sizes.insert(0, 5 * MIB + self.random.randrange(1000))
        for number, size in enumerate(sizes, 1):
            data = self.random.randbytes(size)
            self.pending = f"part {number}"
            r = self.good(self.client.put(self.store.plain, key, data, query={"partNumber": str(number), "uploadId": self.upload["id"]}), 200)
            self.upload["parts"].append((number, md5(data), data))
        self.pending = "complete"
        self.complete(self.client)
        self.pending = None

    def complete(self, c):
        u = self.upload
        whole = b"".join(d for _, _, d in u["parts"])
        tag = md5(b"".join(bytes.fromhex(t) for _, t, _ in u["parts"])) + f"-{len(u['parts'])}"
        u["asked"] = (tag, md5(whole), len(whole))
        body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{t}</ETag></Part>" for n, t, _ in u["parts"])
        r = c.post(self.store.plain, u["key"], f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(), {"uploadId": u["id"]})
        self.good(r, 200)
        if b"</CompleteMultipartUploadResult>" not in r.body:
            raise Failed(f"a complete answered with {r}") if b"<Error>" in r.body else http.client.IncompleteRead(r.body)
        self.kept[u["key"]] = u["asked"]
        self.finished.add(u["id"])
        self.upload = None

    def verify(self, c, listed, every):
        open_ids = self.store.uploads(c)
        true(not open_ids & self.finished, "an upload that was completed is not listed as open")
        if self.upload and self.upload["parts"]:
            # All parts that were acknowledged are there. A complete may have happened: asked again it answers as the first time.
            u = self.upload
            now = listed.get(u["key"])
            allowed = [self.kept.get(u["key"]), u["asked"]]
            true(now in [a and (a[0], a[2]) for a in allowed], f"{u['key']} is {now}, allowed {allowed}")
            if u["asked"] is None:
                true(u["id"] in open_ids, f"the upload {u['id']} is listed")
            self.complete(c)
            self.touched.add(u["key"])
        for key in self.touched if not every else self.touched | set(self.kept):
            r = c.get(self.store.plain, key)
            want = self.kept.get(key)
            eq(r.status, 200 if want else 404, f"GET {key}")
            if want:
                eq((r.headers["ETag"].strip('"'), md5(r.body), len(r.body)), want, f"content of {key}")
        self.pending, self.upload, self.touched = None, None, set()


class Contest:
    """Keys that several writers want: a chain of replacements under If-Match, and names that only one may take."""

    def __init__(self):
        self.lock = threading.Lock()
        self.links, self.names = {}, {}  # number or name → {md5: acknowledged}
        self.next_name = self.highest = 0


class Contender(Writer):
    def step(self):
        contest = self.store.contest
        if self.random.random() < 0.5:
            r = self.good(self.client.get(self.store.plain, "c/chain"), 200, 404)
            number = int(r.body.split()[0]) + 1 if r.status == 200 else 1
            text = f"{number} {unique()}".encode() + b" " * self.random.choice((0, 20_000))
            with contest.lock:
                contest.links.setdefault(number, {})[md5(text)] = False
            self.pending = f"link {number}"
            condition = {"If-Match": r.headers["ETag"]} if r.status == 200 else {"If-None-Match": "*"}
            w = self.good(self.client.put(self.store.plain, "c/chain", text, condition), 200, 412, 409)
            with contest.lock:
                if w.status == 200:
                    contest.links[number][md5(text)] = True
                    contest.highest = max(contest.highest, number)
                else:
                    del contest.links[number][md5(text)]
        else:
            with contest.lock:
                name = f"c/name{contest.next_name:05d}"
                contest.next_name += self.random.random() < 0.5
                text = self.data()[:100_000] + unique().encode()
                contest.names.setdefault(name, {})[md5(text)] = False
            self.pending = name
            w = self.good(self.client.put(self.store.plain, name, text, {"If-None-Match": "*"}), 200, 412, 409)
            with contest.lock:
                if w.status == 200:
                    contest.names[name][md5(text)] = True
                else:
                    del contest.names[name][md5(text)]
        self.pending = None

    def verify(self, c, listed, every):
        if self.number != 0:
            return
        contest = self.store.contest
        for number, tried in contest.links.items():
            true(sum(tried.values()) <= 1, f"link {number} of the chain was given to one writer")
        r = c.get(self.store.plain, "c/chain")
        if r.status == 200:
            number = int(r.body.split()[0])
            true(number >= contest.highest, f"the chain is at {number}, {contest.highest} was acknowledged")
            true(md5(r.body) in contest.links[number], f"link {number} is one that was written")
            won = [t for t, acked in contest.links[number].items() if acked]
            true(not won or won == [md5(r.body)], f"link {number} is the acknowledged one")
            true(number <= contest.highest + 2, f"no more than the two writers' last links were not acknowledged: {number}")
            contest.links = {number: {md5(r.body): True}}
            contest.highest = number
        else:
            eq(contest.highest, 0, "the chain is gone")
        shown = {k: v[0] for k, v in listed.items() if k.startswith("c/name")}
        for name, tried in contest.names.items():
            won = [t for t, acked in tried.items() if acked]
            true(len(won) <= 1, f"{name} was given to one writer")
            true(shown.get(name) in won if won else shown.get(name) in [*tried, None], f"{name} is {shown.get(name)}, tried {tried}")
        eq(set(shown) - set(contest.names), set(), "names that nobody asked for")
        for name, tag in shown.items():
            if every or self.random.random() < 0.1 or len(contest.names[name]) > 1:
                eq(md5(c.get(self.store.plain, name).body), tag, f"content of {name}")
            contest.names[name] = {tag: True}
        for name in [n for n in contest.names if n not in shown]:
            del contest.names[name]


class Tables(Writer):
    """Commits to a table of its own that grows and is replaced by a new one, to a shared table, and to two tables at once."""

    def __init__(self, *a):
        super().__init__(*a)
        self.table, self.generation, self.appended, self.count = None, 0, [], 0
        self.shared, self.both = 0, 0
        self.ended = []

    def call(self, method, path, document=None, query=None, by=None):
        return (by or self.client).catalog(method, self.store.prefix + path, document, query)

    def step(self):
        if self.table is None or len(self.appended) >= 40:
            if self.table:
                self.pending = ("drop", self.table)
                self.good(self.call("DELETE", f"/namespaces/n/tables/{self.table}"), 204)
                self.ended.append(self.table)
                self.table, self.appended = None, []
            self.generation += 1
            name = f"own{self.number}-{self.generation}"
            self.pending = ("create", name)
            self.good(self.call("POST", "/namespaces/n/tables", {"name": name, "schema": SCHEMA}), 200)
            self.table, self.appended, self.pending = name, [], None
            return
        p = self.random.random()
        if p < 0.5:
            self.append()
        elif p < 0.8:
            self.pending = ("shared", self.shared + 1)
            self.change([("shared", {f"w{self.number}": str(self.shared + 1)})])
            self.shared += 1
        else:
            self.pending = ("both", self.both + 1)
            self.change([(t, {f"b{self.number}": str(self.both + 1)}) for t in ("shared", "second")])
            self.both += 1
        self.pending = None

    def append(self):
        parent, new = self.appended[-1] if self.appended else None, self.random.randrange(1, 1 << 62)
        snapshot = {"snapshot-id": new, "sequence-number": len(self.appended) + 1, "timestamp-ms": int(time.time() * 1000),
                    "manifest-list": f"s3://{self.store.warehouse}/m/{new}.avro", "summary": {"operation": "append"}, "schema-id": 0}
        if parent:
            snapshot["parent-snapshot-id"] = parent
        self.pending = ("append", new)
        self.good(self.call("POST", f"/namespaces/n/tables/{self.table}", {
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
            "updates": [{"action": "add-snapshot", "snapshot": snapshot},
                        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": new}]}), 200)
        self.appended.append(new)

    def change(self, tables):
        """set-properties; one table by a commit, two by a transaction. Refused commits were not done and are asked again."""
        for _ in range(50):
            changes = [{"requirements": [{"type": "assert-table-uuid", "uuid": self.store.uuids[t]}],
                        "updates": [{"action": "set-properties", "updates": kv}]} for t, kv in tables]
            if len(tables) == 1:
                r = self.call("POST", f"/namespaces/n/tables/{tables[0][0]}", changes[0])
            else:
                r = self.call("POST", "/transactions/commit", {"table-changes": [
                    {**ch, "identifier": {"namespace": ["n"], "name": t}} for ch, (t, _) in zip(changes, tables)]})
            if self.good(r, 200, 204, 409).status != 409:
                return
        raise Failed("50 conflicts in a row")

    def verify(self, c, listed, every):
        names = self.store.table_names(c)
        pending = self.pending or ("", None)
        if pending[0] == "create" and pending[1] in names:
            self.table, self.appended = pending[1], []
        if pending[0] == "drop" and pending[1] not in names:
            self.ended.append(self.table)
            self.table, self.appended = None, []
        mine = {n for n in names if n.startswith(f"own{self.number}-")}
        eq(mine, {self.table} if self.table else set(), f"tables of writer {self.number} (pending {pending})")
        for name in self.ended[-2:]:
            eq(self.call("GET", f"/namespaces/n/tables/{name}", by=c).status, 404, f"the dropped table {name}")
        if self.table:
            meta = self.store.load(c, self.table)
            ids = [s["snapshot-id"] for s in meta.get("snapshots", [])]
            allowed = [self.appended] + ([[*self.appended, pending[1]]] if pending[0] == "append" else [])
            true(ids in allowed, f"{self.table} has {len(ids)} snapshots, {len(self.appended)} were acknowledged (pending {pending})")
            eq([s.get("parent-snapshot-id") for s in meta.get("snapshots", [])], [None, *ids][:len(ids)], "each snapshot follows the one before")
            eq(meta.get("refs", {}).get("main", {}).get("snapshot-id"), ids[-1] if ids else None, "main")
            self.appended = ids
        one, two = self.store.load(c, "shared")["properties"], self.store.load(c, "second")["properties"]
        got = int(one.get(f"w{self.number}", 0))
        true(got in {self.shared, pending[1] if pending[0] == "shared" else self.shared}, f"w{self.number} is {got}, acknowledged {self.shared} (pending {pending})")
        self.shared = got
        got = int(one.get(f"b{self.number}", 0))
        true(got in {self.both, pending[1] if pending[0] == "both" else self.both}, f"b{self.number} is {got}, acknowledged {self.both} (pending {pending})")
        eq(int(two.get(f"b{self.number}", 0)), got, "a transaction over two tables is whole or absent")
        self.both, self.pending = got, None


class Store:
    """A daemon with its drives and its writers, through all its deaths."""

    def __init__(self, drives, r):
        self.drives, self.random = drives, r
        self.daemon = Daemon(drives=drives, env={"TARN_SCRUB_INTERVAL": "off"})
        self.contest, self.rounds, self.acknowledged, self.restart_s = Contest(), 0, 0, []

    def begin(self):
        self.daemon.start()
        c = self.daemon.client()
        self.plain, self.versioned, self.warehouse = c.new_bucket("plain"), c.new_bucket("versioned"), c.new_warehouse("lake")
        on = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        eq(c.request("PUT", f"/{self.versioned}", {"versioning": ""}, body=on).status, 200, "versioning")
        self.prefix = c.catalog_prefix(self.warehouse)
        eq(c.catalog("POST", self.prefix + "/namespaces", {"namespace": ["n"]}).status, 200, "namespace")
        self.uuids = {}
        for t in ("shared", "second"):
            r = c.catalog("POST", self.prefix + "/namespaces/n/tables", {"name": t, "schema": SCHEMA})
            eq(r.status, 200, f"table {t}")
            self.uuids[t] = r.json()["metadata"]["table-uuid"]
        kinds = [(Objects, 0), (Objects, 1), (Versions, 0), (Multipart, 0), (Contender, 0), (Contender, 1), (Tables, 0), (Tables, 1)]
        self.writers = [kind(self, number, self.random.randrange(1 << 60)) for kind, number in kinds]

    # -- what the verification looks at
    def listing(self, c):
        """key → (etag, size) from ListObjectsV2, in pages."""
        out, token = {}, None
        while True:
            r = c.get(self.plain, query={"list-type": "2", "max-keys": "300", **({"continuation-token": token} if token else {})})
            eq(r.status, 200, "LIST")
            root = r.xml()
            for e in root.findall("Contents"):
                true(e.findtext("Key") not in out, f"{e.findtext('Key')} is listed once")
                out[e.findtext("Key")] = (e.findtext("ETag").strip('"'), int(e.findtext("Size")))
            token = root.findtext("NextContinuationToken")
            if not token:
                return out

    def versions(self, c):
        r = c.get(self.versioned, query={"versions": ""})
        eq(r.status, 200, "versions")
        root, out = r.xml(), {}
        eq(root.findtext("IsTruncated"), "false", "the listing of versions fits")
        for e in root:
            if e.tag in ("Version", "DeleteMarker"):
                tag = Versions.MARK if e.tag == "DeleteMarker" else e.findtext("ETag").strip('"')
                out.setdefault(e.findtext("Key"), []).insert(0, (e.findtext("VersionId"), tag))
        return out

    def uploads(self, c):
        r = c.get(self.plain, query={"uploads": ""})
        eq(r.status, 200, "uploads")
        return set(r.texts("Upload/UploadId"))

    def table_names(self, c):
        r = c.catalog("GET", self.prefix + "/namespaces/n/tables")
        eq(r.status, 200, "tables")
        return {i["name"] for i in r.json()["identifiers"]}

    def load(self, c, name):
        """The metadata of a table; its file exists and says the same, and so do the files of the last versions before."""
        r = c.catalog("GET", f"{self.prefix}/namespaces/n/tables/{name}")
        eq(r.status, 200, f"table {name}: {r}")
        doc = r.json()
        bucket, key = doc["metadata-location"][len("s3://"):].split("/", 1)
        f = c.get(bucket, key)
        eq(f.status, 200, f"the metadata file of {name}")
        eq(f.json(), doc["metadata"], f"{name}: the file says what the catalog says")
        for entry in doc["metadata"].get("metadata-log", [])[-2:]:
            old = c.get(bucket, entry["metadata-file"][len("s3://") + len(bucket) + 1:])
            eq(old.status, 200, f"an earlier metadata file of {name}")
            old.json()
        return doc["metadata"]

    # -- a round
    def round(self):
        self.rounds += 1
        last = self.writers
        self.writers = []
        for w in last:  # a thread runs once; its memory goes on
            new = type(w)(self, w.number, self.random.randrange(1 << 60))
            for name in ("kept", "touched", "upload", "finished", "table", "generation", "appended", "shared", "both", "ended"):
                if hasattr(w, name):
                    setattr(new, name, getattr(w, name))
            self.writers.append(new)
        for w in self.writers:
            w.start()
        time.sleep(self.random.uniform(0.05, 1.2))
        true(self.daemon.process.poll() is None, "the daemon had not ended by itself")
        self.daemon.kill()
        for w in self.writers:
            w.join(60)
            true(not w.is_alive(), "a writer ended with the daemon")
            if w.failed:
                raise w.failed
        self.acknowledged += sum(w.done for w in self.writers)
        # Either back end may find what the other left.
        self.daemon.env["TARN_IO"] = os.environ.get("TARN_IO") or self.random.choice(("auto", "threads"))
        while self.random.random() < 0.25:
            self.daemon.start(wait=False)
            time.sleep(self.random.uniform(0, 0.2))
            self.daemon.kill()
        began = time.monotonic()
        self.daemon.start()
        self.restart_s.append(time.monotonic() - began)
        self.verify(self.rounds % 10 == 0)

    def verify(self, every):
        c = self.daemon.client()
        plain, versions = self.listing(c), self.versions(c)
        for w in self.writers:
            w.verify(c, versions if isinstance(w, Versions) else plain, every)
        known = ("o0/", "o1/", "m0/", "c/")
        eq([k for k in plain if not k.startswith(known)], [], "keys that nobody wrote")
        # What is listed can be read: by its head, all of it; after a verification nothing changes by itself.
        for key in sorted(self.listing(c)) if every else ():
            eq(c.head(self.plain, key).status, 200, f"HEAD of the listed {key}")
        c.close()

    def canaries(self):
        """What the rounds look for is done behind the writers' backs: each verification must notice."""
        c = self.daemon.client()
        plain = next(k for w in self.writers if isinstance(w, Objects) for k in sorted(w.kept))
        versioned, kept = next((k, v) for w in self.writers if isinstance(w, Versions) for k, v in sorted(w.kept.items()) if v)
        finished = next((k for w in self.writers if isinstance(w, Multipart) for k in sorted(w.kept)), None)
        size = next(w.kept[plain][1] for w in self.writers if isinstance(w, Objects) and plain in w.kept)
        spoil = {
            "a key that is gone": (Objects, lambda: c.delete(self.plain, plain)),
            "other content of the same size": (Objects, lambda: c.put(self.plain, plain, b"?" * (size or 1))),
            "a key that nobody wrote": (Objects, lambda: c.put(self.plain, "o0/ghost", b"x")),
            "a version that is gone": (Versions, lambda: c.delete(self.versioned, versioned, {"versionId": kept[0][0]})),
            "a completed upload that is gone": (Multipart, lambda: finished and c.delete(self.plain, finished)),
            "a chain that went back": (Contender, lambda: c.put(self.plain, "c/chain", b"0 x")),
            "a property that went back": (Tables, lambda: c.catalog("POST", self.prefix + "/namespaces/n/tables/shared", {
                "requirements": [], "updates": [{"action": "set-properties", "updates": {"w0": "999999999"}}]})),
        }
        for name, (kind, do) in spoil.items():
            if do() is None:
                continue
            plain_now, versions = self.listing(c), self.versions(c)
            try:
                for w in [w for w in self.writers if isinstance(w, kind)]:
                    w.verify(c, versions if kind is Versions else plain_now, True)
            except Failed:
                continue
            raise AssertionError(f"the verification does not see {name}")

    def end(self):
        self.verify(True)
        self.canaries()
        eq(self.daemon.stop(), 0, "exit status after TERM")


ARGS = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ARGS.add_argument("--rounds", type=int, default=50)
ARGS.add_argument("--seed", type=int, default=None)
ARGS, rest = ARGS.parse_known_args()
sys.argv[1:] = rest


@case
def killed_again_and_again():
    seed = ARGS.seed if ARGS.seed is not None else random.randrange(1 << 32)
    print(f"# seed {seed}", flush=True)
    r = random.Random(seed)
    stores = [Store(1, r), Store(6, r)]
    try:
        for s in stores:
            s.begin()
        for n in range(ARGS.rounds):
            s, began = stores[n % 2], time.monotonic()
            try:
                s.round()
            except Exception as e:
                raise Failed(f"round {n}, {s.drives} drives, seed {seed}, drives kept in {s.daemon.folder}: {e}") from e
            print(f"# round {n}, {s.drives} drive(s): {sum(w.done for w in s.writers)} acknowledged, {time.monotonic() - began:.1f} s", flush=True)
        for s in stores:
            s.end()
            print(f"# {s.drives} drive(s): {s.rounds} kills, {s.acknowledged} acknowledged, restart at most {max(s.restart_s, default=0):.2f} s", flush=True)
            true(s.acknowledged > 10 * s.rounds, f"there was something to lose: {s.acknowledged}")
            s.daemon.__exit__()
    finally:
        for s in stores:
            s.daemon.stop()


main()
