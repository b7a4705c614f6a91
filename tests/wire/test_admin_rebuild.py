# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 900
"""tarn admin fsck, backup, restore and rebuild-index: all copies of the database lost, and what comes back."""
import hashlib
import os
import subprocess
import time

from tarnwire import BINARY, Daemon, case, checksum, eq, main, rng, true

R = rng()
SIZES = (0, 1, 5_000, 16_384, 16_385, 40_000, 700_000, 1_048_577, 6_000_000)
INLINE_MAX = 16 * 1024


def run(*words, env=None, status=0):
    p = subprocess.run([BINARY, "admin", *words], capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})})
    eq(p.returncode, status, f"exit status of admin {' '.join(words[:2])}: {p.stdout[-600:]}{p.stderr[-600:]}")
    return p.stdout


def listing(c, b):
    """What a client sees of a bucket: key → size, ETag, type, metadata, tags, digest of the content."""
    out = {}
    for key in c.keys(b):
        r = c.get(b, key, headers={"x-amz-checksum-mode": "ENABLED"})
        eq(r.status, 200, f"GET {key}")
        meta = sorted((n.lower(), v) for n, v in r.headers.items() if n.lower().startswith("x-amz-meta-"))
        tags = c.get(b, key, query=["tagging"]).body
        out[key] = (len(r.body), r.headers["ETag"], r.headers["Content-Type"], tuple(meta), tags, hashlib.md5(r.body).hexdigest(),
                    r.headers.get("x-amz-checksum-sha256"))
    return out


def multipart(c, b, key, parts, headers=None):
    upload = c.post(b, key, query=["uploads"], headers=headers).xml().findtext("UploadId")
    lines = []
    for i, data in enumerate(parts, 1):
        r = c.put(b, key, data, query={"partNumber": str(i), "uploadId": upload})
        eq(r.status, 200, f"part {i}")
        lines.append(f"<Part><PartNumber>{i}</PartNumber><ETag>{r.headers['ETag']}</ETag></Part>")
    r = c.post(b, key, ("<CompleteMultipartUpload>" + "".join(lines) + "</CompleteMultipartUpload>").encode(), query={"uploadId": upload})
    eq(r.status, 200, f"complete: {r}")
    return upload


def fill(c, b, prefix=""):
    for size in SIZES:
        data = R.randbytes(size)
        headers = {"Content-Type": f"text/x-{size}", "x-amz-meta-size": str(size), "x-amz-tagging": f"size={size}&kind=test",
                   "x-amz-checksum-sha256": checksum("SHA256", data)} if size else {}
        eq(c.put(b, f"{prefix}k{size}", data, headers=headers).status, 200, "PUT")
    multipart(c, b, f"{prefix}multi", [R.randbytes(5 << 20), R.randbytes(7_000_001), R.randbytes(900)],
              {"Content-Type": "text/x-multi", "x-amz-meta-a": "b", "x-amz-tagging": "m=1"})
    # overwritten: only the newer one may come back
    for size in (50_000, 60_000):
        eq(c.put(b, f"{prefix}twice", R.randbytes(size)).status, 200, "PUT")
    multipart(c, b, f"{prefix}over", [R.randbytes(5 << 20), R.randbytes(10)])
    eq(c.put(b, f"{prefix}over", R.randbytes(70_000)).status, 200, "PUT over a multipart object")
    eq(c.put(b, f"{prefix}under", R.randbytes(70_000)).status, 200, "PUT")
    multipart(c, b, f"{prefix}under", [R.randbytes(5 << 20), R.randbytes(10)])
    # not there any more, and never there
    eq(c.put(b, f"{prefix}gone", R.randbytes(80_000)).status, 200, "PUT")
    eq(c.delete(b, f"{prefix}gone").status, 204, "DELETE")
    upload = c.post(b, f"{prefix}open", query=["uploads"]).xml().findtext("UploadId")
    eq(c.put(b, f"{prefix}open", R.randbytes(5 << 20), query={"partNumber": "1", "uploadId": upload}).status, 200, "part of an open upload")


def lose_database(d):
    for drive in d.drives:
        folder = os.path.join(drive, "tarn", "meta")
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))


def compare(got, want, what):
    for key in sorted(set(got) | set(want)):
        eq(got.get(key), want.get(key), f"{what}: {key}")


@case
def without_any_backup():
    with Daemon(drives=6, env={"TARN_META_BACKUP_INTERVAL": "off"}) as d:
        c = d.client()
        b = c.new_bucket()
        fill(c, b)
        time.sleep(14)  # what is deleted is freed ten seconds later; before that it may come back
        before = listing(c, b)
        eq(d.stop(), 0, "exit status")
        lose_database(d)
        refused = subprocess.run([BINARY, "server", "--address", "127.0.0.1:0", *d.drives], capture_output=True, text=True, timeout=60)
        true(refused.returncode == 4 and "rebuild-index" in refused.stderr, f"the daemon says what helps: {refused.stderr[-300:]}")
        out = run("rebuild-index", *d.drives)
        true("there is no backup" in out, out)
        true(" 0 can't be made" in out, out)
        true("1 parts of uploads that were not completed" in out, out)
        d.start()
        large = {k: v for k, v in before.items() if v[0] > INLINE_MAX}
        compare(listing(d.client(), b), large, "every object above the inline limit")
        # It goes on as it was: new numbers don't meet old ones, and a check finds nothing wrong.
        fill(d.client(), b, "new/")
        now = listing(d.client(), b)
        eq(d.stop(), 0, "exit status")
        true("clean" in run("fsck", "--offline", *d.drives), "fsck")
        d.start()
        compare(listing(d.client(), b), now, "after another start")


@case
def with_a_backup_on_the_drives():
    with Daemon(drives=4, env={"TARN_META_BACKUP_INTERVAL": "24h"}) as d:
        c = d.client()
        b, versioned = c.new_bucket(), c.new_bucket()
        eq(c.put(versioned, "", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", query=["versioning"]).status,
           200, "versioning")
        fill(c, b)
        for i in range(3):
            eq(c.put(versioned, "v", R.randbytes(50_000 + i)).status, 200, "PUT")
        eq(d.stop(), 0, "exit status")
        d.env["TARN_META_BACKUP_INTERVAL"] = "1s"
        d.start()
        time.sleep(13)
        eq(d.stop(), 0, "exit status")
        d.env["TARN_META_BACKUP_INTERVAL"] = "off"
        d.start()
        c = d.client()
        inline = {k: v for k, v in listing(c, b).items() if v[0] <= INLINE_MAX}
        # after the backup
        fill(c, b, "later/")
        eq(c.put(b, "k700000", R.randbytes(123_456)).status, 200, "overwritten after the backup")
        eq(c.delete(b, "k40000").status, 204, "deleted after the backup")
        eq(c.put(versioned, "v", R.randbytes(60_000)).status, 200, "another version")
        time.sleep(14)
        before = listing(c, b)
        versions = len(c.get(versioned, query=["versions"]).xml().findall("Version"))
        eq(d.stop(), 0, "exit status")
        lose_database(d)
        out = run("rebuild-index", *d.drives)
        true("beginning with the backup" in out, out)
        true("left out: " + b + "/k40000" in out, "what is gone is said: " + out)
        d.start()
        c = d.client()
        want = {k: v for k, v in before.items() if v[0] > INLINE_MAX or k in inline}
        compare(listing(c, b), want, "large objects and those of the backup")
        eq(len(c.get(versioned, query=["versions"]).xml().findall("Version")), versions, "versions")
        eq(d.stop(), 0, "exit status")
        true("clean" in run("fsck", "--offline", *d.drives), "fsck")


@case
def with_two_drives_gone_as_well():
    with Daemon(drives=6, env={"TARN_META_BACKUP_INTERVAL": "off"}) as d:
        c = d.client()
        b = c.new_bucket()
        fill(c, b)
        time.sleep(14)
        before = {k: v for k, v in listing(c, b).items() if v[0] > INLINE_MAX}
        eq(d.stop(), 0, "exit status")
        lose_database(d)
        for i in (1, 4):
            os.rename(d.drives[i], d.drives[i] + ".away")
        out = run("rebuild-index", *d.drives)
        true(" 0 can't be made" in out, out)
        for i in (1, 4):
            os.rename(d.drives[i] + ".away", d.drives[i])
        d.start()
        compare(listing(d.client(), b), before, "from four drives of six")


def big_table(c, prefix, ns, name):
    schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
    r = c.catalog("POST", f"{prefix}/namespaces/{ns}/tables", {
        "name": name, "schema": schema, "properties": {f"property-{i}": "x" * 200 for i in range(500)}})
    eq(r.status, 200, f"creating table: {r}")


@case
def tables_come_back_from_their_metadata():
    with Daemon(drives=4, env={"TARN_META_BACKUP_INTERVAL": "off"}) as d:
        c = d.client()
        wh = c.new_warehouse()
        prefix = c.catalog_prefix(wh)
        for ns in (["outer"], ["outer", "inner"]):
            eq(c.catalog("POST", f"{prefix}/namespaces", {"namespace": ns}).status, 200, "namespace")
        big_table(c, prefix, "outer", "one")
        big_table(c, prefix, "outer%1Finner", "two")
        for i in range(3):
            r = c.catalog("POST", f"{prefix}/namespaces/outer/tables/one", {
                "requirements": [], "updates": [{"action": "set-properties", "updates": {"turn": str(i)}}]})
            eq(r.status, 200, f"commit {i}: {r}")
        # A copy of a metadata file is an object like any other.
        location = c.catalog("GET", f"{prefix}/namespaces/outer/tables/one").json()["metadata-location"]
        eq(c.put(wh, "99999-copy.metadata.json", headers={"x-amz-copy-source": location[len("s3:/"):]}).status, 200, "copy")
        before = {t: c.catalog("GET", f"{prefix}/namespaces/{n}/tables/{t}").json() for n, t in (("outer", "one"), ("outer%1Finner", "two"))}
        time.sleep(14)
        eq(d.stop(), 0, "exit status")
        lose_database(d)
        out = run("rebuild-index", *d.drives)
        true("2 tables made" in out, out)
        d.start()
        c = d.client()
        for n, t in (("outer", "one"), ("outer%1Finner", "two")):
            r = c.catalog("GET", f"{prefix}/namespaces/{n}/tables/{t}")
            eq(r.status, 200, f"{t} loads: {r}")
            eq(r.json()["metadata-location"], before[t]["metadata-location"], f"pointer of {t}")
            eq(r.json()["metadata"], before[t]["metadata"], f"metadata of {t}")
        r = c.catalog("POST", f"{prefix}/namespaces/outer/tables/one", {
            "requirements": [], "updates": [{"action": "set-properties", "updates": {"turn": "again"}}]})
        eq(r.status, 200, f"it takes commits: {r}")


@case
def an_intact_database_is_left_alone():
    with Daemon(drives=2) as d:
        b = d.client().new_bucket()
        run("rebuild-index", *d.drives, status=4)
        d.kill()
        p = subprocess.run([BINARY, "admin", "rebuild-index", *d.drives], capture_output=True, text=True)
        eq(p.returncode, 4, "refused")
        true("can be opened" in p.stderr, p.stderr)
        d.start()
        eq(d.client().head(b).status, 200, "the bucket")


@case
def backup_and_restore():
    with Daemon(drives=4) as d:
        c = d.client()
        b = c.new_bucket()
        fill(c, b)
        path = os.path.join(d.folder, "backup.db")
        run("backup", "--url", d.endpoint, path)
        eq(d.client().put(b, "later-large", R.randbytes(90_000)).status, 200, "PUT after the backup")
        eq(d.client().put(b, "later-inline", b"x").status, 200, "PUT after the backup")
        before = listing(d.client(), b)
        eq(d.stop(), 0, "exit status")
        run("restore", path, *d.drives)
        d.start()
        got = listing(d.client(), b)
        del before["later-inline"]
        for key in ("gone",):
            got.pop(key, None)
        compare(got, before, "the backup, and what is newer on the drives")
        with open(path, "r+b") as f:
            f.seek(5000)
            f.write(b"spoilt")
        eq(d.stop(), 0, "exit status")
        run("restore", path, *d.drives, status=4)
        d.start()
        compare(listing(d.client(), b), got, "a damaged backup changes nothing")


@case
def fsck_sees_what_is_wrong():
    with Daemon(drives=4) as d:
        c = d.client()
        b = c.new_bucket()
        fill(c, b)
        run("fsck", "--offline", *d.drives, status=4)  # a daemon has them
        d.kill()
        true("clean" in run("fsck", "--offline", *d.drives), "after a kill")
        eq(run("fsck", *d.drives, status=2), "", "without --offline")
        files = [os.path.join(f, n) for f, _, ns in os.walk(os.path.join(d.drives[0], "tarn", "parts")) for n in ns]
        os.unlink(files[0])
        with open(os.path.join(d.drives[1], "tarn", "meta", "tarn.db"), "r+b") as f:
            f.seek(4096 + 50)
            f.write(b"spoilt")
        stamps = {p: os.stat(p).st_mtime_ns for drive in d.drives for f, _, ns in os.walk(drive) for n in ns for p in [os.path.join(f, n)]}
        out = run("fsck", "--offline", *d.drives, status=7)
        true("1 shards missing" in out and "DAMAGED" in out and "pages are wrong" in out, out)
        after = {p: os.stat(p).st_mtime_ns for drive in d.drives for f, _, ns in os.walk(drive) for n in ns for p in [os.path.join(f, n)]}
        eq(after, stamps, "nothing on the drives has changed")


main()
