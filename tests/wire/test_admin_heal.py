# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 600
"""tarn admin drives, heal and scrub against a daemon whose drives lose and change data."""
import hashlib
import json
import os
import re
import subprocess
import time

from tarnwire import BINARY, Daemon, case, eq, main, rng, true

R = rng()
SIZES = (1, 5_000, 40_000, 700_000, 1_048_577, 6_000_000)


def admin(d, *words, status=0, env=None):
    p = subprocess.run([BINARY, "admin", words[0], "--url", d.endpoint, *words[1:]], capture_output=True, text=True, timeout=120,
                       env={**d.env, **(env or {})})
    eq(p.returncode, status, f"exit status of admin {' '.join(words)}: {p.stdout[-300:]}{p.stderr[-300:]}")
    return p.stdout


def admin_json(d, *words, status=0):
    return json.loads(admin(d, words[0], "--json", *words[1:], status=status))


def fill(c, n=3):
    b, kept = c.new_bucket(), {}
    for i in range(n):
        for size in SIZES:
            data = R.randbytes(size)
            eq(c.put(b, f"k{i}/{size}", data).status, 200, "PUT")
            kept[f"k{i}/{size}"] = hashlib.md5(data).hexdigest()
    return b, kept


def check(c, b, kept):
    for key, digest in kept.items():
        eq(hashlib.md5(c.get(b, key).body).hexdigest(), digest, key)


def data_files(drive, kind):
    out = []
    for folder, _, names in os.walk(os.path.join(drive, "tarn", kind)):
        out += [os.path.join(folder, n) for n in names]
    return out


def flip(path, offset, n=8):
    with open(path, "r+b") as f:
        f.seek(offset)
        old = f.read(n)
        f.seek(offset)
        f.write(bytes(b ^ 0xFF for b in old))


@case
def who_may_ask():
    with Daemon() as d:
        eq(len(admin_json(d, "drives")["drives"]), 1, "drives")
        true("Only the root" in subprocess.run([BINARY, "admin", "drives", "--url", d.endpoint], capture_output=True, text=True, env={
            **d.env, "TARN_ROOT_USER": "somebody", "TARN_ROOT_PASSWORD": "not-the-password"}).stderr, "a stranger is refused")
        eq(d.client().request("GET", "/tarn/admin/v1/drives", sign=False).status, 403, "unsigned")
        eq(d.client().request("PUT", "/tarn/admin/v1/drives").status, 405, "another method")
        eq(d.client().request("GET", "/tarn/admin/v1/nothing").status, 501, "another path")
        admin(d, "heal", "no-such-bucket", status=1)
        admin(d, "nonsense", status=2)


@case
def damage_is_found_and_healed():
    with Daemon(drives=6) as d:
        c = d.client()
        b, kept = fill(c)
        whole = admin_json(d, "heal")
        eq((whole["state"], whole["objects"], whole["damaged"]), ("done", len(kept), 0), "nothing is wrong")
        gone, bad = data_files(d.drives[1], "parts"), data_files(d.drives[2], "parts")
        true(len(gone) >= 3 and len(bad) >= 3, "files to spoil")
        for path in gone:
            os.unlink(path)
        for path in bad:
            flip(path, os.path.getsize(path) // 2)
        dry = admin_json(d, "heal", "--dry-run")
        eq((dry["damaged"] > 0, dry["healed"], dry["shardsMissing"]), (True, 0, len(gone)), f"a dry run sees it: {dry}")
        eq(dry["shardsCorrupt"], len(bad), f"all wrong shards: {dry}")
        for path in gone:
            true(not os.path.exists(path), "a dry run changes nothing")
        only = admin_json(d, "heal", f"{b}/k0/")
        eq(only["objects"], len(SIZES), "only what is below the prefix")
        healed = admin_json(d, "heal")
        eq((healed["state"], healed["lost"], healed["waiting"]), ("done", 0, 0), f"{healed}")
        eq(only["healed"] + healed["healed"], dry["damaged"], "everything that was damaged")
        eq(admin_json(d, "heal")["damaged"], 0, "whole again")
        for path in gone:
            true(os.path.exists(path), "the file is back")
        check(c, b, kept)
        # What is healed counts: with three of the other drives gone it is read.
        eq(d.stop(), 0, "exit status")
        for i in (0, 3, 4):
            os.rename(d.drives[i], d.drives[i] + ".away")
        for i in (0, 3, 4):
            os.rename(d.drives[i] + ".away", d.drives[i])
        d.start()
        check(d.client(), b, kept)


@case
def ends_of_records_count():
    """The header is not read by a GET; an index can't be rebuilt without it."""
    with Daemon(drives=4) as d:
        b, kept = fill(d.client(), 1)
        path = max(data_files(d.drives[0], "parts"), key=os.path.getsize)
        flip(path, 130)
        eq(admin_json(d, "heal")["healed"], 1, "a wrong header")
        eq(admin_json(d, "heal")["damaged"], 0, "whole again")
        check(d.client(), b, kept)


@case
def what_cannot_be_healed_is_said():
    with Daemon(drives=4) as d:
        c = d.client()
        b, kept = fill(c, 1)
        names = sorted(os.path.basename(p) for p in data_files(d.drives[0], "parts"))
        for drive in d.drives[:3]:
            for path in data_files(drive, "parts"):
                if os.path.basename(path) == names[0]:
                    os.unlink(path)
        out = admin_json(d, "heal", status=1)
        eq((out["lost"], out["damaged"]), (1, 1), f"one is lost: {out}")
        true("can't be read" in d.log() or "damaged object" in d.log(), "the log has it")


@case
def a_heal_goes_on_after_a_restart():
    with Daemon(drives=4) as d:
        c = d.client()
        fill(c, 12)
        for path in data_files(d.drives[1], "parts"):
            os.unlink(path)
        admin(d, "heal", "--detach")
        d.kill()
        d.start()
        end = time.monotonic() + 60
        while admin_json(d, "heal", "--status")["state"] == "running" and time.monotonic() < end:
            time.sleep(0.1)
        out = admin_json(d, "heal", "--status")
        eq((out["state"], out["lost"]), ("done", 0), f"it went on: {out}")
        eq(admin_json(d, "heal")["damaged"], 0, "all is whole")


@case
def a_scrub_heals_and_reports():
    with Daemon(drives=4, env={"TARN_SCRUB_INTERVAL": "off", "TARN_SCRUB_RATE": "0"}) as d:
        c = d.client()
        b, kept = fill(c, 2)
        eq(admin_json(d, "scrub")["state"], "idle", "none has run")
        flip(max(data_files(d.drives[3], "parts"), key=os.path.getsize), 100_000)
        admin(d, "scrub", "start")
        end = time.monotonic() + 60
        while admin_json(d, "scrub", "status")["state"] == "running" and time.monotonic() < end:
            time.sleep(0.1)
        out = admin_json(d, "scrub", "status")
        eq((out["state"], out["damaged"], out["healed"]), ("done", 1, 1), f"{out}")
        metrics = c.request("GET", "/tarn/metrics").body.decode()
        true("\ntarn_scrub_damaged_total 1\n" in metrics, "the metric")
        true("scrub done" in d.log(), "the log")
        check(c, b, kept)


@case
def a_scrub_keeps_to_its_pace_and_can_be_stopped():
    with Daemon(drives=4, env={"TARN_SCRUB_INTERVAL": "off", "TARN_SCRUB_RATE": "2"}) as d:
        fill(d.client(), 3)  # some 20 MB, twice that with parity
        admin(d, "scrub", "start")
        time.sleep(3)
        out = admin_json(d, "scrub", "status")
        eq(out["state"], "running", "2 MB a second take a while")
        true(out["bytes"] < 12_000_000, f"its pace: {out['bytes']} bytes in 3 s")
        admin(d, "scrub", "stop")
        end = time.monotonic() + 20
        while admin_json(d, "scrub", "status")["state"] == "running" and time.monotonic() < end:
            time.sleep(0.1)
        eq(admin_json(d, "scrub", "status")["state"], "stopped", "it ends when told to")


@case
def a_scrub_comes_by_the_clock():
    with Daemon(drives=2, env={"TARN_SCRUB_INTERVAL": "2s", "TARN_SCRUB_RATE": "0"}) as d:
        fill(d.client(), 1)
        end = time.monotonic() + 30
        while admin_json(d, "scrub", "status")["state"] != "done" and time.monotonic() < end:
            time.sleep(0.2)
        eq(admin_json(d, "scrub", "status")["state"], "done", "by itself")


@case
def wrong_reads_of_the_metadata_are_counted_by_drive():
    """Two of three copies of the database are damaged throughout: every answer is right, and who read wrongly is shown."""
    with Daemon(drives=3) as d:
        c = d.client()
        b = c.new_bucket()
        keys = [f"key-{i:04}" for i in range(400)]
        for k in keys:
            eq(c.put(b, k, k.encode() * 100).status, 200, k)
        eq(d.stop(), 0, "exit status")
        for drive in d.drives[:2]:
            path = os.path.join(drive, "tarn/meta/tarn.db")
            for page in range(1, os.path.getsize(path) // 4096):
                flip(path, page * 4096 + 100)
        d.start()
        c = d.client()
        for k in keys:
            eq(c.get(b, k).body, k.encode() * 100, k)
        wrong = {x["path"]: x["metaReadsWrong"] for x in admin_json(d, "drives")["drives"]}
        true(sum(wrong[p] for p in d.drives[:2]) >= 16 and wrong[d.drives[2]] == 0, f"wrong reads: {wrong}")
        metrics = c.request("GET", "/tarn/metrics").body.decode()
        for path, n in wrong.items():
            true(re.search(rf'tarn_drive_meta_reads_wrong{{drive="{path}",[^}}]*}} {n}\n', metrics), f"{path} {n} is in the metrics")
        true(re.search(rf"^tarn_meta_reads_wrong_total {sum(wrong.values())}$", metrics, re.M), "and the sum")
        true("wrong reads of the metadata" in admin(d, "drives"), "and people see it")
        true("metadata copy is asked last from now on" in d.log(), "the log says so once")


@case
def a_blank_drive_is_filled_with_progress():
    with Daemon(drives=4) as d:
        b, kept = fill(d.client(), 3)
        eq(d.stop(), 0, "exit status")
        import shutil
        shutil.rmtree(d.drives[2])
        os.mkdir(d.drives[2])
        d.start()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            out = admin_json(d, "drives")
            if out["drives"][2]["state"] == "ok":
                break
            time.sleep(0.1)
        eq((out["drives"][2]["state"], out["fill"]["state"]), ("ok", "done"), f"filled: {out}")
        true(out["fill"]["objects"] >= len(kept), f"progress was counted: {out['fill']}")
        true("filling drives: done" in admin(d, "drives"), "and shown")
        eq(admin_json(d, "heal")["damaged"], 0, "all is whole")
        check(d.client(), b, kept)


main()
