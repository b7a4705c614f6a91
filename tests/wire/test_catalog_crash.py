# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 300
"""The daemon is killed in the middle of commits, several times over: what was confirmed stands, and catalog and files agree. And in
the middle of a purge, which goes on at the next start."""
import json
import threading
import time
import uuid

from tarnwire import Client, Daemon, case, eq, main, true

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
TABLES, WRITERS, KILLS = 3, 6, 4


def writer(d, k, confirmed, tried, stop):
    """Sets property k of its table to 1, 2, 3, …; notes what was confirmed and what was at least sent."""
    c = Client(d.endpoint, timeout=20)
    path = f"/v1/crash/namespaces/n/tables/t{k % TABLES}"
    n = confirmed.get(k, 0)
    while not stop.is_set():
        n += 1
        tried[k] = n
        try:
            a = c.catalog("POST", path, {"requirements": [], "updates": [{"action": "set-properties", "updates": {f"k{k}": str(n)}}]})
        except OSError:
            return
        if a.status == 200:
            confirmed[k] = n
        else:
            true(a.status in (500, 503), f"commit: {a}")


def check(d, confirmed, tried):
    c = d.client()
    for i in range(TABLES):
        a = c.catalog("GET", f"/v1/crash/namespaces/n/tables/t{i}")
        eq(a.status, 200, f"load of t{i}: {a}")
        md, location = a.json()["metadata"], a.json()["metadata-location"]
        bucket, _, key = location[len("s3://"):].partition("/")
        eq(json.loads(c.get(bucket, key).body), md, "the file that the catalog names is there and is the table")
        for e in md["metadata-log"]:
            bucket, _, key = e["metadata-file"][len("s3://"):].partition("/")
            eq(c.head(bucket, key).status, 200, "and so are the files before it")
        for k in range(i, WRITERS, TABLES):
            got = int(md["properties"].get(f"k{k}", "0"))
            true(confirmed.get(k, 0) <= got <= tried.get(k, 0), f"k{k} is {got}, confirmed was {confirmed.get(k, 0)}, sent {tried.get(k, 0)}")
            confirmed[k] = got


@case
def confirmed_commits_survive_a_kill():
    with Daemon() as d:
        c = d.client()
        eq(c.catalog("POST", "/v1/warehouses", {"name": "crash"}).status, 200, "warehouse")
        eq(c.catalog("POST", "/v1/crash/namespaces", {"namespace": ["n"]}).status, 200, "namespace")
        for i in range(TABLES):
            eq(c.catalog("POST", "/v1/crash/namespaces/n/tables", {"name": f"t{i}", "schema": SCHEMA}).status, 200, "table")
        confirmed, tried = {}, {}
        for _ in range(KILLS):
            stop = threading.Event()
            threads = [threading.Thread(target=writer, args=(d, k, confirmed, tried, stop)) for k in range(WRITERS)]
            for t in threads:
                t.start()
            time.sleep(0.7)
            d.kill()
            stop.set()
            for t in threads:
                t.join()
            d.start()
            check(d, confirmed, tried)
        true(all(confirmed.get(k, 0) > 0 for k in range(WRITERS)), f"every writer got through: {confirmed}")


@case
def a_restart_changes_nothing():
    with Daemon() as d:
        c = d.client()
        c.catalog("POST", "/v1/warehouses", {"name": "again"})
        c.catalog("POST", "/v1/again/namespaces", {"namespace": ["n", ]})
        made = c.catalog("POST", "/v1/again/namespaces/n/tables", {"name": "t", "schema": SCHEMA})
        eq(made.status, 200, str(made))
        before = c.catalog("GET", "/v1/again/namespaces/n/tables/t")
        d.restart()
        after = d.client().catalog("GET", "/v1/again/namespaces/n/tables/t")
        eq((after.json(), after.headers["ETag"]), (before.json(), before.headers["ETag"]), "load")
        eq(after.json()["metadata"], made.json()["metadata"], "metadata")


def fill(d, location, n):
    """n small files below the table's location."""
    bucket, _, key = location[len("s3://"):].partition("/")

    def put(k):
        c = Client(d.endpoint, timeout=60)
        for i in range(k, n, 8):
            eq(c.put(bucket, f"{key}/data/{i}", b"x").status, 200, "data")
        c.close()
    threads = [threading.Thread(target=put, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def gone(c, location, seconds=30):
    """How many files are left below the location when all are gone, or the time is up."""
    bucket, _, key = location[len("s3://"):].partition("/")
    end = time.monotonic() + seconds
    while c.keys(bucket, prefix=key + "/") and time.monotonic() < end:
        time.sleep(0.05)
    return len(c.keys(bucket, prefix=key + "/"))


def purged_over_a_restart(stop):
    """A table is dropped with its files, and stop(daemon) ends the process at once: they go all the same, and those of a table that lies
    in between do not."""
    with Daemon() as d:
        c = d.client()
        eq(c.catalog("POST", "/v1/warehouses", {"name": "purged"}).status, 200, "warehouse")
        eq(c.catalog("POST", "/v1/purged/namespaces", {"namespace": ["n"]}).status, 200, "namespace")
        at = {}
        for name, where in (("t", None), ("around", None), ("inner", "sub")):
            body = {"name": name, "schema": SCHEMA, **({"location": at["around"] + "/sub/t"} if where else {})}
            a = c.catalog("POST", "/v1/purged/namespaces/n/tables", body)
            eq(a.status, 200, str(a))
            at[name] = a.json()["metadata"]["location"]
        elsewhere = "s3://purged/elsewhere/1.metadata.json"
        md = dict(a.json()["metadata"], **{"table-uuid": str(uuid.uuid4()), "location": "s3://purged/elsewhere/t"})
        eq(c.put("purged", "elsewhere/1.metadata.json", json.dumps(md).encode()).status, 200, "a metadata file outside of its table")
        eq(c.catalog("POST", "/v1/purged/namespaces/n/register", {"name": "far", "metadata-location": elsewhere}).status, 200, "register")
        a = c.catalog("POST", "/v1/purged/namespaces/n/tables/far", {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]})
        eq(a.status, 200, str(a))
        at["far"] = a.json()["metadata"]["location"]
        for name, n in (("t", 2400), ("around", 30), ("inner", 30), ("far", 30)):
            fill(d, at[name], n)
        for name in ("t", "far", "around"):
            eq(c.catalog("DELETE", f"/v1/purged/namespaces/n/tables/{name}", query={"purgeRequested": "true"}).status, 204, "drop")
        stop(d)
        for start in range(2):
            d.start()
            c = d.client()
            for name in ("t", "far"):
                eq(gone(c, at[name]), 0, f"files of {name} after start {start}")
            eq(c.keys("purged", prefix="elsewhere/"), [], "the metadata file outside, too")
            eq(c.catalog("GET", "/v1/purged/namespaces/n/tables/inner").status, 200, "the table inside of a dropped one")
            eq(len(c.keys("purged", prefix=at["inner"].split("/", 3)[3] + "/data/")), 30, "has its files")
            eq(d.stop(), 0, "exit status")
        true(d.log().count("purges of dropped tables go on") <= 1, "the second start had nothing left to do")


@case
def a_purge_goes_on_after_a_kill():
    purged_over_a_restart(lambda d: d.kill())


@case
def a_purge_goes_on_after_a_stop():
    purged_over_a_restart(lambda d: d.stop())


main()
