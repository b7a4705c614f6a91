# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 300
"""The daemon is killed in the middle of commits, several times over: what was confirmed stands, and catalog and files agree."""
import json
import threading
import time

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


main()
