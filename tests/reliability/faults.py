# SPDX-License-Identifier: Apache-2.0
"""Drives fail under load: six of them, never more at a time than the promise allows, and not one request may fail.

    TARN_BIN=DAEMON [TARN_LOADGEN=PROGRAM] python3 faults.py [--seed N] [CASE...]

While verified traffic runs (own writers and readers, a catalog client, and loadgen mixed --verify where TARN_LOADGEN names
it), the drives' folders are damaged: files deleted, bytes changed, files cut, everything removed, made unwritable, filled.
Each fault is followed by what the operator would do, healing in place or an empty drive and a restart, while the traffic
goes on (it pauses for the restart itself); then everything must be whole on all drives. A line of figures is printed for each.
"""
import argparse
import hashlib
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from tarnwire import ACCESS, BINARY, SECRET, Client, Daemon, Failed, Skip, case, eq, main, true  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SIZES = (1, 3000, 16 * KIB + 1, 70_000, 900_000, MIB + 1, 4 * MIB + 1)
WEIGHTS = (4, 6, 6, 6, 3, 2, 1)
PRELOAD = [(20_000, 120), (300_000, 60), (2_000_000, 15), (6_000_000, 12)]  # size, how many: some 120 MB
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
LOADGEN = os.environ.get("TARN_LOADGEN", "")
DRIVES = 6


def md5(data):
    return hashlib.md5(data).hexdigest()


# ---------------------------------------------------------------------------------------------- traffic
class Worker(threading.Thread):
    """Steps until told to end; holds still while the daemon is restarted. Any unexpected answer is a failure."""

    def __init__(self, traffic, number, seed):
        super().__init__(daemon=True)
        self.traffic, self.number, self.random = traffic, number, random.Random(seed)
        self.idle, self.steps = threading.Event(), 0

    def run(self):
        t = self.traffic
        while not t.over.is_set():
            self.idle.set()
            t.go.wait()
            if t.over.is_set():
                break
            self.idle.clear()
            if not t.go.is_set():
                continue
            c = Client(t.daemon.endpoint, timeout=60)
            try:
                while t.go.is_set() and not t.over.is_set():
                    self.step(c)
                    self.steps += 1
            except (Failed, OSError, http.client.HTTPException) as e:
                t.fail(f"{type(self).__name__} {self.number}: {type(e).__name__}: {e}")
            except Exception as e:  # noqa: BLE001
                t.fail(f"{type(self).__name__} {self.number}: {e!r}")
            finally:
                c.close()
        self.idle.set()


class Keys(Worker):
    """Puts, gets (whole and ranges), deletes, listings and uploads in parts, on keys of its own whose content it knows."""

    def __init__(self, *a):
        super().__init__(*a)
        self.kept = {}

    def step(self, c):
        b, key, p = self.traffic.bucket, f"w{self.number}/{self.random.randrange(30):02d}", self.random.random()
        if p < 0.35:
            data = self.random.randbytes(self.random.choices(SIZES, WEIGHTS)[0])
            eq(c.put(b, key, data).status, 200, f"PUT {key} of {len(data)} bytes")
            self.kept[key] = data
        elif p < 0.75:
            want = self.kept.get(key)
            first = self.random.randrange(len(want)) if want else 0
            ranged = want and self.random.random() < 0.3
            r = c.get(b, key, headers={"Range": f"bytes={first}-"} if ranged else None)
            eq(r.status, 404 if want is None else 206 if ranged else 200, f"GET {key}")
            if want is not None:
                eq(md5(r.body), md5(want[first:] if ranged else want), f"bytes of {key}")
        elif p < 0.85:
            eq(c.delete(b, key).status, 204, f"DELETE {key}")
            self.kept.pop(key, None)
        elif p < 0.93:
            eq(sorted(c.keys(b, prefix=f"w{self.number}/")), sorted(self.kept), "LIST")
        else:
            self.multipart(c, b, key)

    def multipart(self, c, b, key):
        r = c.post(b, key, query={"uploads": ""})
        eq(r.status, 200, "creating an upload")
        uid, parts = r.xml().findtext("UploadId"), []
        sizes = [5 * MIB, 30_000] if self.random.random() < 0.3 else [50_000]
        for n, size in enumerate(sizes, 1):
            parts.append(self.random.randbytes(size))
            eq(c.put(b, key, parts[-1], query={"partNumber": str(n), "uploadId": uid}).status, 200, f"part {n}")
        body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{md5(d)}</ETag></Part>" for n, d in enumerate(parts, 1))
        r = c.post(b, key, f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(), {"uploadId": uid})
        eq((r.status, b"<Error>" in r.body), (200, False), f"completing an upload: {r}")
        self.kept[key] = b"".join(parts)


class Reader(Worker):
    """Reads what was there before, every object again and again, and measures."""

    def step(self, c):
        key = self.random.choice(self.traffic.order)
        began = time.monotonic()
        r = c.get(self.traffic.bucket, key)
        eq((r.status, md5(r.body)), (200, self.traffic.preload[key]), f"GET {key}")
        if len(r.body) < 100_000:
            self.traffic.measure("get", began)


class Prober(Worker):
    """A small put and a small get, some dozens of times a second: what somebody in the foreground would feel."""

    def step(self, c):
        data = self.random.randbytes(4 * KIB)
        began = time.monotonic()
        eq(c.put(self.traffic.bucket, f"probe/{self.random.randrange(50)}", data).status, 200, "PUT of the probe")
        self.traffic.measure("put", began)
        time.sleep(0.02)


class Tables(Worker):
    def __init__(self, *a):
        super().__init__(*a)
        self.count = 0

    def step(self, c):
        path = f"{self.traffic.prefix}/namespaces/n/tables/t"
        r = c.catalog("POST", path, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"n": str(self.count + 1)}}]})
        eq(r.status, 200, f"commit: {r}")
        self.count += 1
        r = c.catalog("GET", path)
        eq((r.status, r.json()["metadata"]["properties"].get("n")), (200, str(self.count)), "load")
        bucket, key = r.json()["metadata-location"][len("s3://"):].split("/", 1)
        eq(c.get(bucket, key).json()["properties"].get("n"), str(self.count), "the metadata file")
        time.sleep(0.03)


class Loadgen(Worker):
    """loadgen mixed --verify in short runs, each with a key space of its own."""

    def step(self, c):
        p = subprocess.run([LOADGEN, "--endpoint", self.traffic.daemon.endpoint, "--access", ACCESS, "--secret", SECRET, "--json", "--verify", "--bucket", "loadgen",
                            "--prefix", f"r{self.steps}-", "--size", "1k-1m", "--objects", "60", "--prepare", "--conns", "4", "--rate", "60", "--duration", "2",
                            "mixed"], capture_output=True, text=True, timeout=120)
        if p.returncode:
            raise Failed(f"loadgen ended with {p.returncode}: {' '.join(p.stderr.split())[:1500]}")
        self.traffic.loadgen_ops += json.loads(p.stdout.strip().split("\n")[-1]).get("ops", 0)


class Traffic:
    def __init__(self, daemon, seed, preload=PRELOAD):
        self.daemon, self.random, self.failures = daemon, random.Random(seed), []
        self.over, self.go, self.lock = threading.Event(), threading.Event(), threading.Lock()
        self.times, self.loadgen_ops, self.phase = [], 0, "start"
        c = daemon.client()
        self.bucket, warehouse = c.new_bucket(), c.new_warehouse()
        self.prefix = c.catalog_prefix(warehouse)
        eq(c.catalog("POST", self.prefix + "/namespaces", {"namespace": ["n"]}).status, 200, "namespace")
        eq(c.catalog("POST", self.prefix + "/namespaces/n/tables", {"name": "t", "schema": SCHEMA}).status, 200, "table")
        self.preload = {}
        for size, n in preload:
            for i in range(n):
                data = self.random.randbytes(size)
                eq(c.put(self.bucket, f"pre/{size}-{i}", data).status, 200, "PUT")
                self.preload[f"pre/{size}-{i}"] = md5(data)
        self.order = sorted(self.preload)
        kinds = [Keys, Keys, Reader, Prober, Tables] + ([Loadgen] if LOADGEN else [])
        self.workers = [kind(self, n, self.random.randrange(1 << 60)) for n, kind in enumerate(kinds)]
        for w in self.workers:
            w.start()
        self.go.set()

    def fail(self, text):
        with self.lock:
            self.failures.append(f"during {self.phase}: {text}")
        self.over.set()
        self.go.set()

    def measure(self, what, began):
        now = time.monotonic()
        self.times.append((now, what, now - began))

    def check(self):
        if self.failures:
            raise Failed("; ".join(self.failures[:3]))

    def wait(self, seconds):
        self.over.wait(seconds)
        self.check()

    def latency(self, since, until):
        out = []
        for what in ("get", "put"):
            t = sorted(x for at, w, x in self.times if w == what and since <= at <= until)
            out.append(f"{what} {t[len(t) // 2] * 1e3:.1f}/{t[len(t) * 99 // 100] * 1e3:.0f}" if t else f"{what} -")
        return " ".join(out)

    def pause(self):
        self.go.clear()
        for w in self.workers:
            true(w.idle.wait(150), f"{type(w).__name__} holds still")
        self.check()

    def end(self):
        self.over.set()
        self.go.set()
        for w in self.workers:
            w.join(150)
        self.check()
        c = self.daemon.client()
        for key, digest in self.preload.items():
            eq(md5(c.get(self.bucket, key).body), digest, f"{key} at the end")
        for w in self.workers:
            for key, data in getattr(w, "kept", {}).items():
                eq(md5(c.get(self.bucket, key).body), md5(data), f"{key} at the end")
        return sum(w.steps for w in self.workers) + self.loadgen_ops


# ---------------------------------------------------------------------------------------------- the operator
def admin_json(d, *words, status=(0,)):
    p = subprocess.run([BINARY, "admin", words[0], "--url", d.endpoint, "--json", *words[1:]], capture_output=True, text=True, timeout=240, env=d.env)
    true(p.returncode in status, f"admin {' '.join(words)} ended with {p.returncode}: {p.stdout[-300:]}{p.stderr[-300:]}")
    return json.loads(p.stdout)


def files(drive, kinds=("parts", "segments")):
    for kind in kinds:
        for folder, _, names in os.walk(os.path.join(drive, "tarn", kind)):
            for n in sorted(names):
                yield os.path.join(folder, n)


def empty(drive):
    for name in os.listdir(drive):
        path = os.path.join(drive, name)
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    for _ in range(20):  # the daemon may have made something meanwhile
        if not os.listdir(drive):
            return
        for name in os.listdir(drive):
            shutil.rmtree(os.path.join(drive, name), ignore_errors=True)


class Site:
    """The daemon with its traffic; what is done to its drives, and how it is mended."""

    def __init__(self, seed, preload=PRELOAD, folder=None):
        self.random = random.Random(seed)
        self.daemon = Daemon(drives=DRIVES, folder=folder, env={"TARN_SCRUB_INTERVAL": "off", "TARN_META_BACKUP_INTERVAL": "off"})
        self.seed, self.preload, self.ok = seed, preload, False

    def __enter__(self):
        self.daemon.start()
        try:
            self.traffic = Traffic(self.daemon, self.seed, self.preload)
        except BaseException:
            self.daemon.stop()
            raise
        return self

    def __exit__(self, kind, *_):
        t = self.traffic
        try:
            if kind is None:
                done = t.end()
                print(f"# {done} operations, none failed", flush=True)
                eq(self.daemon.stop(), 0, "exit status")
        finally:
            t.over.set()
            t.go.set()
            self.daemon.stop()
            if kind is None:
                self.daemon.__exit__()
            else:
                print(f"# seed {self.seed}, the log: {self.daemon.log()[-1500:]}", flush=True)
                shutil.rmtree(self.daemon.folder, ignore_errors=True)

    def drives(self, n):
        """So many different drives."""
        return self.random.sample(range(DRIVES), n)

    def phase(self, name, seconds):
        """Lets the traffic run, and returns what it felt."""
        self.traffic.phase, began = name, time.monotonic()
        self.traffic.wait(seconds)
        return self.traffic.latency(began, time.monotonic())

    def heal(self, name):
        """
        Healed in place, under traffic: until a pass finds all whole. What is being written meanwhile may count as damaged
        once, and a drive that is slow on a busy machine makes a pass wait with its part; neither may stay so.
        """
        self.traffic.phase, began, healed = f"healing {name}", time.monotonic(), 0
        for _ in range(12):
            out = admin_json(self.daemon, "heal")
            eq((out["state"], out["lost"]), ("done", 0), f"healing {name}: {out}")
            healed += out["healedBytes"]
            self.traffic.check()
            if out["damaged"] == 0 and out["waiting"] == 0:
                break
            time.sleep(0.5 if out["waiting"] else 0)
        eq((out["damaged"], out["waiting"]), (0, 0), f"all is whole after {name}")
        took = time.monotonic() - began
        return healed, took, self.traffic.latency(began, began + took)

    def restart(self, emptied=()):
        self.traffic.phase = "restart"
        self.traffic.pause()
        eq(self.daemon.stop(), 0, "exit status after TERM")
        for i in emptied:
            empty(self.daemon.drives[i])
        self.daemon.start()
        self.traffic.go.set()

    def replace(self, name, drives):
        """Emptied drives in the place of the faulty ones, then filled under traffic."""
        self.restart(drives)
        self.traffic.phase, began = f"filling after {name}", time.monotonic()
        end = began + 180
        while True:
            out = admin_json(self.daemon, "drives")
            self.traffic.check()
            if all(d["state"] == "ok" for d in out["drives"]):
                break
            true(time.monotonic() < end, f"drives are filled within 180 s: {out}")
            time.sleep(0.1)
        took = time.monotonic() - began
        felt = self.traffic.latency(began, began + took)
        eq(out["fill"]["lost"], 0, f"nothing is lost: {out['fill']}")
        return out["fill"]["healedBytes"], took, felt

    def report(self, name, drives, before, during, healed):
        print(f"# {name}, {drives} drive(s): p50/p99 in ms before: {before}; with the fault: {during}; while healing: {healed[2]}; "
              f"{healed[0] / 1e6:.0f} MB healed in {healed[1]:.1f} s: {healed[0] / 1e6 / max(healed[1], 0.001):.0f} MB/s", flush=True)


# ---------------------------------------------------------------------------------------------- faults on files
def delete_files(site, drive):
    for path in files(drive):
        if site.random.random() < 0.6:
            os.unlink(path)


def corrupt_bytes(site, drive):
    for path in files(drive):
        size = os.path.getsize(path)
        with open(path, "r+b") as f:
            for _ in range(20 if size else 0):
                at = site.random.randrange(size)
                f.seek(at)
                old = f.read(1)
                f.seek(at)
                f.write(bytes([old[0] ^ site.random.randrange(1, 256)]))


def cut_files(site, drive):
    for path in files(drive):
        if site.random.random() < 0.6:
            os.truncate(path, site.random.randrange(os.path.getsize(path) + 1))


def gone_quietly(do):
    """Files come and go while the daemon works: one that left meanwhile is no matter."""
    def inner(site, drive):
        for _ in range(50):
            try:
                return do(site, drive)
            except FileNotFoundError:
                pass
        return None
    return inner


FILE_FAULTS = {"files deleted": gone_quietly(delete_files), "bytes changed": gone_quietly(corrupt_bytes), "files cut": gone_quietly(cut_files)}


@case
def files_deleted_changed_and_cut():
    """On two drives at a time, the daemon running; healed in place."""
    with Site(SEED) as site:
        for name, do in FILE_FAULTS.items():
            before = site.phase("before " + name, 1.5)
            hit = site.drives(2)
            site.traffic.phase = name
            for i in hit:
                do(site, site.daemon.drives[i])
            during = site.phase(name, 2)
            site.report(name, 2, before, during, site.heal(name))


@case
def two_drives_lost_and_replaced():
    """Emptied while the daemon runs, at one moment; then empty drives in their place."""
    with Site(SEED + 1) as site:
        for n in range(2):
            before = site.phase("before the loss", 1.5)
            hit = site.drives(2)
            site.traffic.phase = f"losing drives {hit}"
            for i in hit:
                empty(site.daemon.drives[i])
            during = site.phase(f"drives {hit} lost", 2.5)
            site.report("two drives lost", 2, before, during, site.replace("the loss", hit))
            out = site.heal("the replacement")
            true(n > 0 or out[1] >= 0, "whole")


@case
def read_only_drives():
    """Immutable files and folders: what a file system that was remounted read-only refuses, this refuses too."""
    with tempfile.TemporaryDirectory(prefix="tarn-wire-") as probe:
        on = subprocess.run(["chattr", "+i", probe], capture_output=True, text=True)
        works = on.returncode == 0 and subprocess.run(["touch", f"{probe}/x"], capture_output=True).returncode != 0
        subprocess.run(["chattr", "-i", probe], capture_output=True)
    if not works:
        raise Skip(f"chattr +i has no effect here: {on.stderr.strip()[:120]}")
    with Site(SEED + 2) as site:
        before = site.phase("before", 1.5)
        hit = site.drives(2)
        paths = [os.path.join(site.daemon.drives[i], "tarn") for i in hit]
        try:
            for p in paths:
                site.traffic.phase = f"making drives {hit} read-only"
                subprocess.run(["chattr", "-R", "-f", "+i", p], capture_output=True, timeout=60)
            during = site.phase("read-only", 2.5)
            states = [d["state"] for d in admin_json(site.daemon, "drives")["drives"]]
            true(all(states[i] in ("failed", "read-only") for i in hit), f"the operator sees them: {states}")
            site.traffic.phase = "a restart with read-only drives"
            site.restart()
            site.phase("after a restart with read-only drives", 1.5)
        finally:
            for p in paths:
                subprocess.run(["chattr", "-R", "-f", "-i", p], capture_output=True, timeout=60)
        # Writable again: nothing is emptied, what was missed is caught up.
        site.restart()
        site.report("read-only", 2, before, during, site.heal("read-only drives"))


@case
def a_full_drive():
    """One drive is a small file system of its own, which is filled up to the last byte."""
    folder = tempfile.mkdtemp(prefix="tarn-wire-")
    point = os.path.join(folder, "drive3")
    os.mkdir(point)
    m = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", point], capture_output=True, text=True)
    if m.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise Skip(f"tmpfs cannot be mounted here: {m.stderr.strip()[:120]}")
    try:
        with Site(SEED + 3, [(20_000, 60), (300_000, 20), (6_000_000, 4)], folder) as site:
            before = site.phase("before", 1.5)
            site.traffic.phase = "filling a drive up"
            with open(os.path.join(point, "filler"), "wb", buffering=0) as f:
                for piece in (MIB, 4 * KIB, 1):
                    try:
                        while True:
                            f.write(bytes(piece))
                    except OSError:
                        pass
            during = site.phase("with a full drive", 3)
            site.traffic.phase = "a restart with a full drive"
            site.restart()
            site.phase("after a restart with a full drive", 1.5)
            os.unlink(os.path.join(point, "filler"))
            site.traffic.phase = "after space was made"
            site.restart()
            site.report("a full drive", 1, before, during, site.heal("a full drive"))
    finally:
        subprocess.run(["umount", point], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@case
def damaged_copies_of_the_database():
    """Bytes changed in, and then no trace left of, two copies of the database; the rest goes on, and they are made again."""
    with Site(SEED + 4) as site:
        for how in ("changed", "cut", "deleted"):
            before = site.phase("before", 1)
            hit = site.drives(2)
            site.traffic.phase = f"databases {how} on {hit}"
            for i in hit:
                for path in files(site.daemon.drives[i], ("meta",)):
                    size = os.path.getsize(path)
                    if how == "changed" and size:
                        with open(path, "r+b") as f:
                            for at in range(site.random.randrange(4096), size, 64 * KIB):
                                f.seek(at)
                                f.write(site.random.randbytes(64))
                    elif how == "cut":
                        os.truncate(path, size // 2)
                    elif how == "deleted":
                        os.unlink(path)
            during = site.phase(f"databases {how}", 2)
            site.restart()
            during2 = site.phase(f"after a restart with databases {how}", 1.5)
            site.report(f"databases {how}", 2, before, f"{during}; after a restart: {during2}", site.heal(f"databases {how}"))
            states = [d["state"] for d in admin_json(site.daemon, "drives")["drives"]]
            eq(states, ["ok"] * DRIVES, "all drives")


@case
def a_stale_drive():
    """A drive as it was some time ago comes back in the place of the present one: caught up, not believed."""
    with Site(SEED + 5, [(20_000, 60), (300_000, 20), (6_000_000, 4)]) as site:
        hit = site.drives(2)
        before = site.phase("before", 1)
        site.traffic.pause()
        eq(site.daemon.stop(), 0, "exit status")
        for i in hit:
            shutil.copytree(site.daemon.drives[i], site.daemon.drives[i] + ".old")
        site.daemon.start()
        site.traffic.go.set()
        site.phase("newer data", 3)
        site.traffic.pause()
        eq(site.daemon.stop(), 0, "exit status")
        for i in hit:
            shutil.rmtree(site.daemon.drives[i])
            os.rename(site.daemon.drives[i] + ".old", site.daemon.drives[i])
        site.daemon.start()
        site.traffic.go.set()
        during = site.phase("with stale drives", 2)
        site.report("stale drives", 2, before, during, site.heal("stale drives"))


ARGS = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ARGS.add_argument("--seed", type=int, default=None)
ARGS, rest = ARGS.parse_known_args()
sys.argv[1:] = rest
SEED = ARGS.seed if ARGS.seed is not None else random.randrange(1 << 32)
print(f"# seed {SEED}" + ("" if LOADGEN else "; TARN_LOADGEN names no load generator: own traffic alone"), flush=True)
main()
