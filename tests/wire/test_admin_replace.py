# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 600
"""Drives that go and come while the daemon runs and requests go on: no request fails, no byte is wrong, all is whole again."""
import hashlib
import json
import os
import shutil
import subprocess
import threading
import time

from tarnwire import BINARY, Daemon, case, eq, main, rng, true

R = rng()
SIZES = (1, 5_000, 40_000, 700_000, 1_048_577, 6_000_000)


def admin(d, *words):
    p = subprocess.run([BINARY, "admin", words[0], "--url", d.endpoint, "--json", *words[1:]], capture_output=True, text=True, timeout=120,
                       env=d.env)
    return json.loads(p.stdout)


class Load:
    """Writes, overwrites, reads, deletes and lists under a prefix of its own until it is stopped; remembers what must be there."""

    def __init__(self, d, b, n, seed):
        import random
        self.c, self.b, self.prefix, self.r = d.client(), b, f"load{n}/", random.Random(seed)
        self.kept, self.failed, self.requests, self.slowest = {}, [], 0, 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def check(self, answer, status, what):
        self.requests += 1
        if answer.status != status:
            self.failed.append(f"{what}: {answer.status} {answer.body[:200]!r}")
            return False
        return True

    def one(self):
        key = self.prefix + str(self.r.randrange(40))
        kind = self.r.random()
        if kind < 0.4:
            data = self.r.randbytes(self.r.choice((100, 20_000, 300_000, 2_500_000)))
            if self.check(self.c.put(self.b, key, data), 200, "PUT " + key):
                self.kept[key] = hashlib.md5(data).hexdigest()
        elif kind < 0.9:
            if key in self.kept:
                answer = self.c.get(self.b, key)
                if self.check(answer, 200, "GET " + key) and hashlib.md5(answer.body).hexdigest() != self.kept[key]:
                    self.failed.append(f"wrong bytes: {key}")
        elif kind < 0.95:
            if self.check(self.c.delete(self.b, key), 204, "DELETE " + key):
                self.kept.pop(key, None)
        else:
            got = self.c.keys(self.b, prefix=self.prefix)
            if sorted(got) != sorted(self.kept):
                self.failed.append(f"LIST: {sorted(set(got) ^ set(self.kept))[:3]}")

    def run(self):
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                self.one()
            except Exception as e:  # noqa: BLE001
                self.failed.append(repr(e))
            self.slowest = max(self.slowest, time.monotonic() - began)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def empty(drive):
    for name in os.listdir(drive):
        path = os.path.join(drive, name)
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)


def wait_ok(d, seconds=90, drives=None):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        out = admin(d, "drives")
        if all(x["state"] == "ok" for x in out["drives"]) and out["repairsWaiting"] == 0:
            return out
        time.sleep(0.2)
    raise AssertionError(f"not whole after {seconds} s: {out}")


def seen_out(d, i, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if admin(d, "drives")["drives"][i]["state"] != "ok":
            return
        time.sleep(0.05)
    raise AssertionError("the loss was not noticed")


@case
def two_of_six_replaced_under_load():
    with Daemon(drives=6) as d:
        c = d.client()
        b = c.new_bucket()
        kept = {}
        for i in range(6):
            for size in SIZES:
                data = R.randbytes(size)
                eq(c.put(b, f"still{i}/{size}", data).status, 200, "PUT")
                kept[f"still{i}/{size}"] = hashlib.md5(data).hexdigest()
        with Load(d, b, 1, R.random()) as one, Load(d, b, 2, R.random()) as two:
            time.sleep(1)
            for i in (1, 4):
                empty(d.drives[i])
                seen_out(d, i)
            out = wait_ok(d)
            time.sleep(1)
        for load in (one, two):
            eq(load.failed, [], "failed requests")
            true(load.requests > 50, f"requests went on: {load.requests}")
        fill = out["fill"]
        print(f"# filled: {fill['objects']} versions, {fill['healedBytes'] / 1e6:.1f} MB in {fill['busyMs']} ms; "
              f"slowest request {max(one.slowest, two.slowest) * 1000:.0f} ms", flush=True)
        end = time.monotonic() + 60
        damaged = admin(d, "heal")
        eq((damaged["lost"], damaged["waiting"]), (0, 0), f"{damaged}")
        eq(admin(d, "heal")["damaged"], 0, "all is whole")
        # What is on the two new drives counts, the database too: with three of the others gone everything is read.
        eq(d.stop(), 0, "exit status")
        for i in (0, 2, 3):
            os.rename(d.drives[i], d.drives[i] + ".away")
        true(time.monotonic() < end, "in time")
        daemon = Daemon(drives=6, folder=d.folder)
        daemon.process = subprocess.Popen([BINARY, "server", "--address", f"127.0.0.1:{d.port}", *d.drives], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=d.env)
        daemon.endpoint = d.endpoint
        try:
            true(daemon.ready(20), "it starts with three of six")
            c = daemon.client()
            for key, digest in {**kept, **one.kept, **two.kept}.items():
                eq(hashlib.md5(c.get(b, key).body).hexdigest(), digest, key)
        finally:
            daemon.process.terminate()
            daemon.process.communicate()


@case
def a_drive_that_was_moved_away_comes_back():
    with Daemon(drives=4) as d:
        c = d.client()
        b = c.new_bucket()
        eq(c.put(b, "before", R.randbytes(700_000)).status, 200, "PUT")
        with Load(d, b, 1, R.random()) as load:
            time.sleep(0.5)
            os.rename(d.drives[2], d.drives[2] + ".away")
            seen_out(d, 2)
            time.sleep(2)
            os.rename(d.drives[2] + ".away", d.drives[2])
            wait_ok(d)
        eq(load.failed, [], "failed requests")
        true("was away" in d.log(), "it is not trusted as it is")
        admin(d, "heal")
        eq(admin(d, "heal")["damaged"], 0, "all is whole")
        d.restart()
        for key, digest in load.kept.items():
            eq(hashlib.md5(d.client().get(b, key).body).hexdigest(), digest, key)


@case
def a_stale_drive_is_caught_up_at_the_start():
    with Daemon(drives=4) as d:
        c = d.client()
        b = c.new_bucket()
        eq(d.stop(), 0, "exit status")
        os.rename(d.drives[3], d.drives[3] + ".away")
        d.start()
        shutil.rmtree(d.drives[3], ignore_errors=True)
        c = d.client()
        kept = {}
        for i in range(5):
            data = R.randbytes(300_000)
            eq(c.put(b, f"k{i}", data).status, 200, "PUT")
            kept[f"k{i}"] = hashlib.md5(data).hexdigest()
        eq(d.stop(), 0, "exit status")
        shutil.rmtree(d.drives[3], ignore_errors=True)
        os.rename(d.drives[3] + ".away", d.drives[3])
        d.start()
        true("drive had been away" in d.log(), "it is seen")
        wait_ok(d)
        eq(admin(d, "heal")["damaged"], 0, "all is whole")
        for key, digest in kept.items():
            eq(hashlib.md5(d.client().get(b, key).body).hexdigest(), digest, key)


main()
