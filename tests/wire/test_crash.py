# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 600
"""The process is killed in the middle of the load, again and again: nothing that was acknowledged is lost or half there."""
import hashlib
import random
import threading
import time

from tarnwire import Daemon, Failed, case, eq, main, rng, true

R = rng()
SIZES = (0, 10, 3000, 20_000, 300_000, 1_500_000, 5_000_000)


class Writer(threading.Thread):
    """Writes and deletes keys of its own until the daemon is gone; remembers what was acknowledged, and what was asked last."""

    def __init__(self, daemon, bucket, number, seed):
        super().__init__()
        self.client, self.bucket, self.number, self.random = daemon.client(timeout=30), bucket, number, random.Random(seed)
        self.kept, self.pending, self.done = {}, None, 0

    def run(self):
        try:
            while True:
                key = f"w{self.number}/{self.random.randrange(20)}"
                data = self.random.randbytes(self.random.choice(SIZES))
                gone = self.random.random() < 0.2
                self.pending = (key, None if gone else hashlib.md5(data).hexdigest())
                r = self.client.delete(self.bucket, key) if gone else self.client.put(self.bucket, key, data)
                if r.status not in (200, 204):
                    raise Failed(f"{key}: {r}")
                self.kept[key], self.pending = self.pending[1], None
                self.done += 1
        except OSError:
            pass
        except Exception as e:  # noqa: BLE001 - a connection that broke in the middle of an answer
            if isinstance(e, Failed):
                self.failed = e


def compare(c, bucket, writers):
    listed = set(c.keys(bucket))
    for w in writers:
        if getattr(w, "failed", None):
            raise w.failed
        for key, digest in w.kept.items():
            allowed = {digest} | ({w.pending[1]} if w.pending and w.pending[0] == key else set())
            r = c.get(bucket, key)
            got = hashlib.md5(r.body).hexdigest() if r.status == 200 else None if r.status == 404 else f"status {r.status}"
            true(got in allowed, f"{key} is {got}, acknowledged was {digest} (pending {w.pending})")
            eq(key in listed, got is not None, f"{key} in the listing")
            w.kept[key] = got
        if w.pending and w.pending[0] not in w.kept:
            r = c.get(bucket, w.pending[0])
            true(r.status == 404 or hashlib.md5(r.body).hexdigest() == w.pending[1], f"what was not acknowledged is whole or absent: {w.pending[0]} {r.status}")


def killed(drives, rounds):
    d = Daemon(drives=drives)
    try:
        d.start()
        bucket = d.client().new_bucket()
        kept = [{} for _ in range(4)]
        for n in range(rounds):
            writers = [Writer(d, bucket, i, R.randrange(1 << 30)) for i in range(4)]
            for w, k in zip(writers, kept):
                w.kept = k
                w.start()
            time.sleep(R.uniform(0.2, 1.5))
            d.kill()
            for w in writers:
                w.join(60)
            d.start()
            compare(d.client(), bucket, writers)
            kept = [w.kept for w in writers]
            print(f"# round {n}: {sum(w.done for w in writers)} acknowledged", flush=True)
        eq(d.stop(), 0, "exit status")
    finally:
        d.stop()
        d.__exit__()


@case
def one_drive():
    killed(1, 4)


@case
def four_drives():
    killed(4, 3)


@case
def tables():
    """Commits that were acknowledged are there after the kill, each a line of its own in the table's properties."""
    d = Daemon(drives=1)
    try:
        d.start()
        c = d.client()
        p = c.catalog_prefix(c.new_warehouse())
        eq(c.catalog("POST", p + "/namespaces", {"namespace": ["n"]}).status, 200, "namespace")
        schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
        for t in range(4):
            eq(c.catalog("POST", p + "/namespaces/n/tables", {"name": f"t{t}", "schema": schema}).status, 200, "table")
        confirmed = [0] * 4

        def commit(t):
            mine = d.client(timeout=30)
            try:
                while True:
                    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {f"k{confirmed[t]}": "x"}}]}
                    if mine.catalog("POST", f"{p}/namespaces/n/tables/t{t}", change).status != 200:
                        return
                    confirmed[t] += 1
            except Exception:  # noqa: BLE001 - the daemon is gone
                return
        for _ in range(3):
            threads = [threading.Thread(target=commit, args=(t,)) for t in range(4)]
            for t in threads:
                t.start()
            time.sleep(R.uniform(0.3, 1))
            d.kill()
            for t in threads:
                t.join(60)
            d.start()
            c = d.client()
            for t in range(4):
                r = c.catalog("GET", f"{p}/namespaces/n/tables/t{t}")
                eq(r.status, 200, f"t{t}: {r}")
                doc = r.json()
                have = [k for k in doc["metadata"]["properties"] if k.startswith("k")]
                true(len(have) in (confirmed[t], confirmed[t] + 1), f"t{t}: {len(have)} properties, {confirmed[t]} commits were acknowledged")
                bucket, key = doc["metadata-location"][5:].split("/", 1)
                true(c.get(bucket, key).json()["properties"] == doc["metadata"]["properties"], f"t{t}: the file and the pointer agree")
                confirmed[t] = len(have)
        true(sum(confirmed) > 0, "something was committed")
    finally:
        d.stop()
        d.__exit__()


main()
