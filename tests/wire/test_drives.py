# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 600
"""Faults of drives: emptied, gone while running, corrupt bytes. As long as enough are left, no request fails."""
import hashlib
import os
import shutil

from tarnwire import Daemon, case, eq, main, rng, true

R = rng()
SIZES = (1, 5_000, 40_000, 700_000, 1_048_577, 6_000_000, 12_000_001)


def fill(c, prefix=""):
    b = c.new_bucket()
    kept = {}
    for size in SIZES:
        data = R.randbytes(size)
        eq(c.put(b, f"{prefix}{size}", data).status, 200, f"PUT {size}")
        kept[f"{prefix}{size}"] = hashlib.md5(data).hexdigest()
    return b, kept


def check(c, b, kept, what):
    eq(sorted(c.keys(b)), sorted(kept), f"keys {what}")
    for key, digest in kept.items():
        r = c.get(b, key)
        eq((r.status, hashlib.md5(r.body).hexdigest()), (200, digest), f"{key} {what}")


def data_files(drive):
    for folder, _, names in os.walk(drive):
        if "meta" not in folder.split(os.sep):
            for n in names:
                path = os.path.join(folder, n)
                if os.path.getsize(path) > 4096:
                    yield path


def empty(drive):
    for name in os.listdir(drive):
        path = os.path.join(drive, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


@case
def two_of_six_emptied_while_stopped():
    with Daemon(drives=6) as d:
        b, kept = fill(d.client())
        eq(d.stop(), 0, "exit status")
        for i in (0, 3):
            empty(d.drives[i])
        d.start()
        c = d.client()
        check(c, b, kept, "with two emptied drives")
        b2, kept2 = fill(c, "new-")
        check(c, b2, kept2, "written with two emptied drives")
        d.restart()
        check(d.client(), b, kept, "after another start")
        check(d.client(), b2, kept2, "after another start")


@case
def one_of_four_gone_while_running():
    with Daemon(drives=4) as d:
        c = d.client()
        b, kept = fill(c)
        shutil.rmtree(d.drives[2])
        check(c, b, kept, "with a drive gone")
        b2, kept2 = fill(c, "later-")
        check(c, b2, kept2, "written with a drive gone")
        eq(d.stop(), 0, "exit status")
        d.start()
        check(d.client(), b, kept, "after a restart")
        check(d.client(), b2, kept2, "after a restart")


@case
def corrupt_bytes_on_one_drive():
    with Daemon(drives=4) as d:
        c = d.client()
        b, kept = fill(c)
        spoilt = 0
        for path in data_files(d.drives[1]):
            with open(path, "r+b") as f:
                size = os.path.getsize(path)
                for _ in range(50):
                    at = R.randrange(size)
                    f.seek(at)
                    byte = f.read(1)
                    f.seek(at)
                    f.write(bytes([byte[0] ^ 0x55]))
                    spoilt += 1
        true(spoilt, "there were files to spoil")
        for _ in range(2):
            check(c, b, kept, "with a corrupt drive")
        eq(d.stop(), 0, "exit status")
        d.start()
        check(d.client(), b, kept, "after a restart")


@case
def swapped_records_are_seen():
    """Two files of one drive in each other's place: a checksum inside the block would not see it."""
    with Daemon(drives=4) as d:
        c = d.client()
        b = c.new_bucket()
        kept = {}
        for i in range(4):
            data = R.randbytes(9_000_000)
            c.put(b, f"k{i}", data)
            kept[f"k{i}"] = hashlib.md5(data).hexdigest()
        by_size = {}
        for path in data_files(d.drives[0]):
            by_size.setdefault(os.path.getsize(path), []).append(path)
        pairs = [v for v in by_size.values() if len(v) >= 2]
        true(pairs, "two files of one size")
        d.stop()
        for paths in pairs:
            a, z = paths[0], paths[1]
            os.rename(a, a + ".x")
            os.rename(z, a)
            os.rename(a + ".x", z)
        d.start()
        check(d.client(), b, kept, "with two records swapped")


@case
def too_many_gone_is_a_clear_error():
    with Daemon(drives=4) as d:
        c = d.client()
        b, kept = fill(c)
        eq(d.stop(), 0, "exit status")
        for i in (0, 1, 2):
            os.rename(d.drives[i], d.drives[i] + ".away")
        try:
            d.start(seconds=20)
            r = d.client().get(b, "6000000")
            true(r.status >= 500, f"what cannot be read is an error: {r.status}")
            eq(d.client().request("GET", "/minio/health/cluster", sign=False).status, 503, "health of the cluster")
            d.stop()
        except AssertionError as e:
            true("not ready" in str(e), f"or it refuses to start: {e}")
        for i in (0, 1, 2):
            shutil.rmtree(d.drives[i], ignore_errors=True)
            os.rename(d.drives[i] + ".away", d.drives[i])
        d.start()
        check(d.client(), b, kept, "with all drives back")


main()
