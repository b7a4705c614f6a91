# SPDX-License-Identifier: Apache-2.0
# limit: 300
"""The Iceberg REST catalog over the wire: names and paths, tables and their commits, races, views, tokens, errors."""
import gzip
import json
import re
import threading
import time
import urllib.parse

from tarnwire import ACCESS, SECRET, Failed, case, client, eq, main, refused, true, unique

C = client()
WH = C.new_warehouse()
P = C.catalog_prefix(WH)
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}, {"id": 2, "name": "v", "required": False, "type": "string"}]}


def call(method, path, document=None, query=None, **more):
    return C.catalog(method, P + path, document, query, **more)


def namespace(*levels):
    levels = list(levels) or [unique("ns")]
    eq(call("POST", "/namespaces", {"namespace": levels}).status, 200, f"namespace {levels}")
    return "/namespaces/" + "%1F".join(urllib.parse.quote(x, safe="") for x in levels)


def table(ns, name="t", **more):
    a = call("POST", ns + "/tables", {"name": name, "schema": SCHEMA, **more})
    eq(a.status, 200, f"table {name}: {a}")
    return a.json()


def commit(path, updates, requirements=(), by=None):
    return (by or C).catalog("POST", P + path, {"requirements": list(requirements), "updates": list(updates)})


def props(**kv):
    return {"action": "set-properties", "updates": kv}


def snapshot(sid, seq, parent=None, ms=None, **more):
    s = {"snapshot-id": sid, "sequence-number": seq, "timestamp-ms": ms or int(time.time() * 1000), "manifest-list": f"s3://{WH}/m/{sid}.avro", "summary": {"operation": "append"}, **more}
    if parent:
        s["parent-snapshot-id"] = parent
    return {"action": "add-snapshot", "snapshot": s}


def main_is(sid):
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": sid}


def stored(location):
    bucket, _, key = location[len("s3://"):].partition("/")
    return C.get(bucket, key)


# ---------------------------------------------------------------------------------------------- paths, errors, who
@case
def errors_are_the_catalogs_own():
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v2/config", 404), ("GET", "", 404), ("PUT", P + "/namespaces", 405), ("PATCH", "/v1/config", 405),
                                 ("GET", "/v1/config?warehouse=absent-one", 404), ("GET", "/v1/absent-one/namespaces", 404)):
        path, _, q = path.partition("?")
        a = C.catalog(method, path, query=dict([q.split("=")]) if q else None)
        eq(a.status, status, f"{method} {path}: {a}")
        e = a.json()["error"]
        true(e["code"] == status and e["message"] and e["type"], f"error model: {e}")
    eq(C.catalog("PATCH", P + "/namespaces").headers["Allow"], "GET, POST", "Allow")
    a = C.request("GET", "/_iceberg/v1/warehouses", sign=False)
    refused(a, 401, "NotAuthorizedException")
    refused(C.request("GET", "/_iceberg/v1/nothing", sign=False), 401, "NotAuthorizedException", "a stranger learns nothing about paths")
    refused(C.request("GET", "/_iceberg/v1/config", [("warehouse", WH)], {"Authorization": "Bearer made.up.token"}, sign=False), 401, "NotAuthorizedException")
    refused(client(secret="wrong-secret").catalog("GET", "/v1/warehouses"), 403)
    eq(C.request("HEAD", "/_iceberg" + P + "/namespaces/absent", service="s3tables", encoded=True).body, b"", "HEAD has no body")


@case
def paths_and_their_quirks():
    ns = namespace()
    table(ns)
    for path in (P + ns + "/tables/t", "/" + P.lstrip("/") + ns + "/tables/t/", "//" + P.lstrip("/") + ns + "/tables/t"):
        eq(C.catalog("GET", path).status, 200, path)
    refused(call("GET", "/namespaces//tables/t"), 404, "NoSuchTableException", "a table of the empty namespace")
    refused(call("GET", ns + "%1Ft/tables/snapshots"), 404, "NoSuchTableException", "a metadata table")
    refused(call("GET", "/namespaces/absent/tables/t"), 404, "NoSuchTableException")
    refused(call("GET", "/namespaces/absent/views/t"), 404, "NoSuchViewException")
    refused(call("GET", "/namespaces/absent/tables"), 404, "NoSuchNamespaceException")
    for bad in ("%zz", "%FF", "a%00b", "..", "a%2Fb", "%1F%1F", "n" * 2000):
        refused(call("GET", "/namespaces/" + bad), 400, "BadRequestException", bad[:20])


@case
def names_with_blanks_and_pluses():
    ns = namespace("a b" + unique())
    eq(call("GET", ns.replace("%20", "+")).status, 200, "'+' is a blank")
    plus = namespace("c+d" + unique())
    eq(call("GET", plus.replace("%2B", "+")).status, 200, "'+' is itself where nothing else is there")
    name = "t x+y.z ü"
    table(ns, name)
    eq(call("GET", ns + "/tables").json()["identifiers"][0]["name"], name, "listed")
    q = urllib.parse.quote(name, safe="")
    eq((call("HEAD", f"{ns}/tables/{q}").status, call("DELETE", f"{ns}/tables/{q}").status), (204, 204), "and found")


@case
def bodies_that_are_refused():
    ns = namespace()
    for body in (b"", b"[]", b"null", b'{"name":"x"', b"{'name':'x'}", b'{"name":"x","name":"y","schema":{}}', b'{"name":"x\\u0000"}', b'{"name":"x","schema":' + b"[" * 5000 + b"]" * 5000 + b"}"):
        refused(call("POST", ns + "/tables", body), 400, "BadRequestException", repr(body[:40]))
    refused(call("POST", "/namespaces", b'{"namespace":["' + b"x" * (1 << 20) + b'"]}'), 400, None, "past a megabyte")
    eq(call("GET", ns + "/tables").json()["identifiers"], [], "nothing was made")


@case
def tokens_open_the_catalog_alone():
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    def ask(**kw):
        return C.request("POST", "/_iceberg/v1/oauth/tokens", None, form, urllib.parse.urlencode(kw).encode(), sign=False)

    a = ask(grant_type="client_credentials", client_id=ACCESS, client_secret=SECRET)
    eq((a.status, a.headers["Cache-Control"]), (200, "no-store"), str(a))
    bearer = {"Authorization": "Bearer " + a.json()["access_token"]}
    eq(C.request("GET", "/_iceberg/v1/config", {"warehouse": WH}, bearer, sign=False).status, 200, "bearer")
    eq(C.request("GET", "/" + WH, None, bearer, sign=False).status in (400, 401, 403), True, "not S3")
    for kw, status, error in (({"grant_type": "client_credentials", "client_id": ACCESS, "client_secret": "x" * 8}, 401, "invalid_client"), ({"grant_type": "password"}, 400, "unsupported_grant_type"),
                              ({}, 400, "invalid_request"), ({"grant_type": "client_credentials"}, 401, "invalid_client")):
        a = ask(**kw)
        eq((a.status, a.json()["error"]), (status, error), str(kw))


# ---------------------------------------------------------------------------------------------- namespaces
@case
def namespaces_and_properties():
    top = unique("n")
    ns = namespace(top)
    refused(call("POST", "/namespaces", {"namespace": [top]}), 409, "AlreadyExistsException")
    refused(call("POST", "/namespaces", {"namespace": ["absent", "x"]}), 404, "NoSuchNamespaceException")
    sub = namespace(top, "sub")
    for parent in (top, f"{top}\x1fsub"):
        eq(call("GET", "/namespaces", query={"parent": parent}).json()["namespaces"], [[top, "sub"]] if parent == top else [], parent)
    eq(call("GET", "/namespaces", query={"parent": f"{top}%1Fsub"}).json()["namespaces"], [], "a parent that is encoded twice")
    refused(call("DELETE", ns), 409, "NamespaceNotEmptyException")
    a = call("POST", ns + "/properties", {"updates": {"a": "1", "b": "2"}, "removals": ["zz"]}).json()
    eq((sorted(a["updated"]), a["removed"], a["missing"]), (["a", "b"], [], ["zz"]), "properties")
    refused(call("POST", ns + "/properties", {"updates": {"a": "1"}, "removals": ["a"]}), 422, "UnprocessableEntityException")
    got = call("GET", ns).json()["properties"]
    eq((got["a"], got["location"]), ("1", f"s3://{WH}/{top}"), "a location is shown")
    refused(call("POST", ns + "/properties", {"updates": {"k": "v" * 65537}}), 400)
    eq((call("DELETE", sub).status, call("DELETE", ns).status), (204, 204), "drop")
    refused(call("DELETE", ns), 404, "NoSuchNamespaceException")


@case
def pages_belong_to_their_list():
    ns, other = namespace(), namespace()
    for i in range(5):
        table(ns, f"t{i}")
    first = call("GET", ns + "/tables", query={"pageSize": "2"}).json()
    eq([i["name"] for i in first["identifiers"]], ["t0", "t1"], "page size alone begins")
    token, got = first["next-page-token"], ["t0", "t1"]
    while token:
        d = call("GET", ns + "/tables", query={"pageToken": token, "pageSize": "2"}).json()
        got += [i["name"] for i in d["identifiers"]]
        token = d["next-page-token"]
    eq(got, [f"t{i}" for i in range(5)], "pages")
    refused(call("GET", other + "/tables", query={"pageToken": first["next-page-token"]}), 400, "BadRequestException", "a token of another list")
    for q in ({"pageToken": "!!"}, {"pageSize": "0"}, {"pageSize": "x"}):
        refused(call("GET", ns + "/tables", query=q), 400, "BadRequestException", str(q))
    eq(len(call("GET", ns + "/tables").json()["identifiers"]), 5, "without a token everything comes")


# ---------------------------------------------------------------------------------------------- tables
@case
def create_load_and_etags():
    ns = namespace()
    made = table(ns, properties={"format-version": "3", "k": "v"})
    md = made["metadata"]
    eq((md["format-version"], md["next-row-id"], md["current-snapshot-id"], md["location"]), (3, 0, None, f"s3://{WH}/{md['table-uuid']}"), "metadata")
    eq(stored(made["metadata-location"]).json(), md, "the file is what was answered")
    tags = [stored(made["metadata-location"]).headers["ETag"] for _ in range(2)]
    true(tags[0] == tags[1] and re.fullmatch(r'"[0-9a-f]{32}-1"', tags[0]), f"one tag, and not taken for an MD5: {tags}")
    a = call("GET", ns + "/tables/t")
    eq(a.json()["metadata"], md, "load")
    for etag, status in ((a.headers["ETag"], 304), ("W/" + a.headers["ETag"], 304), ('"x", ' + a.headers["ETag"], 304), ('"x"', 200)):
        eq(call("GET", ns + "/tables/t", headers={"If-None-Match": etag}).status, status, etag)
    true(call("GET", ns + "/tables/t", query={"snapshots": "refs"}).headers["ETag"] != a.headers["ETag"], "refs have a tag of their own")
    eq(commit(ns + "/tables/t", [props(x="1")]).headers["ETag"] != a.headers["ETag"], True, "a commit moves the tag")
    eq(call("GET", ns + "/tables/t", headers={"If-None-Match": a.headers["ETag"]}).status, 200, "changed")
    refused(call("GET", ns + "/tables/t", query={"snapshots": "some"}), 400)
    refused(call("POST", ns + "/tables", {"name": "t", "schema": SCHEMA}), 409, "AlreadyExistsException")
    refused(call("POST", ns + "/tables", {"name": "u", "schema": SCHEMA, "location": "s3://elsewhere/u"}), 400, None, "a place outside the warehouse")
    eq(table(ns, "u", location="file:/tmp/u")["metadata"]["location"].startswith(f"s3://{WH}/"), True, "a place that is not the server's is replaced")


@case
def staged_creates_leave_nothing():
    ns = namespace()
    a = call("POST", ns + "/tables", {"name": "s", "schema": SCHEMA, "stage-create": True})
    md = a.json()["metadata"]
    eq((a.status, "metadata-location" in a.json(), "created-at" in md["properties"]), (200, False, True), "staged")
    refused(call("GET", ns + "/tables/s"), 404, "NoSuchTableException")
    create = [{"action": "assign-uuid", "uuid": md["table-uuid"]}, {"action": "add-schema", "schema": md["schemas"][0]}, {"action": "set-current-schema", "schema-id": -1},
              {"action": "set-location", "location": md["location"]}, snapshot(5, 1), main_is(5)]
    refused(commit(ns + "/tables/s", create), 404, "NoSuchTableException", "without assert-create")
    refused(commit("/namespaces/absent/tables/s", create, [{"type": "assert-create"}]), 404, "NoSuchNamespaceException")
    a = commit(ns + "/tables/s", create, [{"type": "assert-create"}])
    eq((a.status, a.json()["metadata"]["table-uuid"], a.json()["metadata"]["current-snapshot-id"]), (200, md["table-uuid"], 5), str(a))
    refused(commit(ns + "/tables/s", create, [{"type": "assert-create"}]), 409, "CommitFailedException")


@case
def commits_and_what_they_leave():
    ns = namespace()
    made = table(ns)
    path, before = ns + "/tables/t", made["metadata-location"]
    a = commit(path, [snapshot(1 << 62, 1), main_is(1 << 62), props(a="1")], [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}])
    d = a.json()
    eq((a.status, d["metadata"]["current-snapshot-id"]), (200, 1 << 62), "64-bit ids are exact")
    eq(d["metadata"]["metadata-log"][0]["metadata-file"], before, "the log names the file before")
    true(d["metadata-location"].rsplit("/", 1)[1].startswith("00001-"), d["metadata-location"])
    eq(stored(d["metadata-location"]).json(), d["metadata"], "the file is what was answered")
    eq(commit(path, []).json()["metadata-location"], d["metadata-location"], "a commit of nothing makes no file")
    refused(commit(path, [snapshot(7, 1, 1 << 62)]), 409, "CommitFailedException", "a stale sequence number can be tried again")
    refused(commit(path, [snapshot(1 << 62, 2)]), 400, "ValidationException", "a snapshot twice")
    refused(commit(path, [props(b="2"), {"action": "make-coffee"}]), 400, "BadRequestException")
    refused(commit(path, [props(b="2")], [{"type": "assert-table-uuid", "uuid": "x"}]), 409, "CommitFailedException")
    eq("b" in call("GET", path).json()["metadata"]["properties"], False, "refused commits change nothing")
    refused(commit(ns + "/tables/absent", [props(a="1")]), 404, "NoSuchTableException")


@case
def refs_alone_on_request():
    ns = namespace()
    table(ns)
    commit(ns + "/tables/t", [snapshot(1, 1), main_is(1), snapshot(2, 2, 1), main_is(2), snapshot(3, 3, 2), main_is(3), {"action": "set-snapshot-ref", "ref-name": "tag", "type": "tag", "snapshot-id": 1}])
    ids = [s["snapshot-id"] for s in call("GET", ns + "/tables/t", query={"snapshots": "refs"}).json()["metadata"]["snapshots"]]
    eq(sorted(ids), [1, 3], "refs")
    eq(len(call("GET", ns + "/tables/t", query={"snapshots": "all"}).json()["metadata"]["snapshots"]), 3, "all")


@case
def old_metadata_files_go_when_asked():
    ns = namespace()
    table(ns, properties={"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"})
    for i in range(5):
        d = commit(ns + "/tables/t", [props(i=str(i))]).json()
    log = [e["metadata-file"] for e in d["metadata"]["metadata-log"]]
    eq(len(log), 2, "log")
    prefix = d["metadata-location"].split("/", 3)[3].rsplit("/", 1)[0] + "/"
    for _ in range(100):
        keys = C.keys(WH, prefix=prefix)
        if len(keys) == 3:
            break
        time.sleep(0.05)
    eq(sorted(keys), sorted(x.split("/", 3)[3] for x in [*log, d["metadata-location"]]), "files")


@case
def compressed_metadata():
    ns = namespace()
    made = table(ns, properties={"write.metadata.compression-codec": "gzip"})
    true(made["metadata-location"].endswith(".gz.metadata.json"), made["metadata-location"])
    eq(json.loads(gzip.decompress(stored(made["metadata-location"]).body)), made["metadata"], "the file is gzip")
    eq(commit(ns + "/tables/t", [props(a="1")]).status, 200, "and can be built upon")
    a = call("POST", ns + "/register", {"name": "again", "metadata-location": made["metadata-location"]})
    eq((a.status, a.json()["metadata"]), (200, made["metadata"]), "and registered")


@case
def register_and_what_it_refuses():
    ns = namespace()
    made = table(ns)
    later = commit(ns + "/tables/t", [props(a="1")]).json()
    eq(call("DELETE", ns + "/tables/t").status, 204, "drop keeps the files")
    a = call("POST", ns + "/register", {"name": "r", "metadata-location": later["metadata-location"]})
    eq((a.status, a.json()["metadata"]["properties"]["a"]), (200, "1"), "register")
    refused(call("POST", ns + "/register", {"name": "r", "metadata-location": made["metadata-location"]}), 409, "AlreadyExistsException")
    a = call("POST", ns + "/register", {"name": "r", "metadata-location": made["metadata-location"], "overwrite": True})
    eq((a.status, a.json()["metadata-location"]), (200, made["metadata-location"]), "overwrite")
    eq("a" in call("GET", ns + "/tables/r").json()["metadata"]["properties"], False, "the older state stands")
    refused(call("POST", ns + "/register", {"name": "x", "metadata-location": f"s3://{WH}/absent.metadata.json"}), 404, "NotFoundException")
    refused(call("POST", ns + "/register", {"name": "x", "metadata-location": "s3://elsewhere/x.metadata.json"}), 400)
    for body in (b"no json", b"[]", b"{}", json.dumps(dict(made["metadata"], **{"format-version": 9})).encode(), json.dumps(dict(made["metadata"], location="s3://elsewhere/x")).encode()):
        eq(C.put(WH, "bad.metadata.json", body).status, 200, "put")
        a = call("POST", ns + "/register", {"name": "x", "metadata-location": f"s3://{WH}/bad.metadata.json"})
        eq(a.status, 400, f"{body[:30]!r}: {a}")
    eq([i["name"] for i in call("GET", ns + "/tables").json()["identifiers"]], ["r"], "nothing else was registered")


@case
def rename_and_taken_names():
    ns, to = namespace(), namespace()
    name, target = urllib.parse.unquote(ns[12:]), urllib.parse.unquote(to[12:])
    table(ns, "a")
    table(ns, "b")

    def rename(kind, source, destination):
        return call("POST", f"/{kind}/rename", {"source": {"namespace": [source[0]], "name": source[1]}, "destination": {"namespace": [destination[0]], "name": destination[1]}})

    refused(rename("tables", (name, "a"), (name, "b")), 409, "AlreadyExistsException")
    refused(rename("tables", (name, "zz"), (name, "c")), 404, "NoSuchTableException")
    refused(rename("tables", (name, "a"), ("absent", "c")), 404, "NoSuchNamespaceException")
    eq(rename("tables", (name, "a"), (target, "c")).status, 204, "to another namespace")
    eq((call("HEAD", ns + "/tables/a").status, call("HEAD", to + "/tables/c").status), (404, 204), "moved")
    eq(commit(to + "/tables/c", [props(x="1")]).status, 200, "and goes on")
    view = {"name": "v", "schema": SCHEMA, "properties": {}, "view-version": {"version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": [], "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}]}}
    eq(call("POST", ns + "/views", view).status, 200, "view")
    refused(call("POST", ns + "/tables", {"name": "v", "schema": SCHEMA}), 409, "AlreadyExistsException", "a view has the name")
    refused(call("POST", ns + "/views", dict(view, name="b")), 409, "AlreadyExistsException", "a table has the name")
    refused(rename("tables", (name, "b"), (name, "v")), 409, "AlreadyExistsException")
    refused(rename("views", (name, "b"), (name, "w")), 404, "NoSuchViewException")
    refused(call("GET", ns + "/tables/v"), 404, "NoSuchTableException")
    refused(call("GET", ns + "/views/b"), 404, "NoSuchViewException")
    eq(rename("views", (name, "v"), (name, "w")).status, 204, "rename a view")
    a = call("POST", ns + "/views/w", {"requirements": [{"type": "assert-view-uuid", "uuid": "x"}], "updates": [props(a="1")]})
    refused(a, 409, "CommitFailedException")
    eq(call("POST", ns + "/views/w", {"updates": [props(a="1")]}).json()["metadata"]["properties"], {"a": "1"}, "replace")
    eq((call("DELETE", ns + "/views/w").status, call("DELETE", ns).status), (204, 409), "drop")


@case
def purge_frees_the_files_and_no_others():
    ns = namespace()
    made, kept = table(ns, "gone")["metadata"], table(ns, "kept")["metadata"]
    inner = table(ns, "inner", location=f"{kept['location']}/sub/t")["metadata"]
    for md in (made, kept, inner):
        eq(C.put(WH, md["location"].split("/", 3)[3] + "/data/f.parquet", b"x").status, 200, "data")
    under = made["location"].split("/", 3)[3] + "/"
    eq(call("DELETE", ns + "/tables/gone", query={"purgeRequested": "True"}).status, 204, "purge")
    for _ in range(200):
        if not C.keys(WH, prefix=under):
            break
        time.sleep(0.05)
    eq(C.keys(WH, prefix=under), [], "all of it has gone")
    eq(call("DELETE", ns + "/tables/kept", query={"purgeRequested": "true"}).status, 204, "purge around another table")
    time.sleep(0.5)
    true(inner["location"].split("/", 3)[3] + "/data/f.parquet" in C.keys(WH, prefix=kept["location"].split("/", 3)[3]), "the table inside keeps its files")
    eq(call("DELETE", ns + "/tables/inner").status, 204, "drop without purge")
    true(C.keys(WH, prefix=inner["location"].split("/", 3)[3]), "keeps the files")


@case
def a_purge_leaves_what_another_name_stands_for():
    """Two names for one table, by registering its metadata file: dropping one with its files leaves them to the other."""
    ns = namespace()
    made = table(ns, "one")
    under = made["metadata"]["location"].split("/", 3)[3] + "/"
    eq(commit(ns + "/tables/one", [props(x="1")]).status, 200, "a file more in the log")
    current = call("GET", ns + "/tables/one").json()["metadata-location"]
    eq(C.put(WH, under + "data/f.parquet", b"x").status, 200, "data")
    for other, where in (("same", current), ("older", made["metadata-location"])):
        eq(call("POST", ns + "/register", {"name": other, "metadata-location": where}).status, 200, "register")
        before = C.keys(WH, prefix=under)
        eq(call("DELETE", ns + "/tables/one", query={"purgeRequested": "true"}).status, 204, "purge")
        time.sleep(0.5)
        eq(C.keys(WH, prefix=under), before, f"the files of {other}")
        eq(call("GET", ns + f"/tables/{other}").status, 200, "load")
        eq(call("DELETE", ns + f"/tables/{other}").status, 204, "drop")
        eq(call("POST", ns + "/register", {"name": "one", "metadata-location": current}).status, 200, "register it again")
    eq(call("DELETE", ns + "/tables/one", query={"purgeRequested": "true"}).status, 204, "purge")
    for _ in range(200):
        if not C.keys(WH, prefix=under):
            break
        time.sleep(0.05)
    eq(C.keys(WH, prefix=under), [], "without another name all of it goes")


@case
def a_purge_goes_on_while_namespaces_are_dropped():
    """The purge looks through all namespaces for tables that lie in between: one that is gone by then holds none."""
    b = C.new_bucket()
    eq(C.catalog("POST", "/v1/warehouses", {"name": b, "upgrade-existing": True}).status, 200, "warehouse")
    root, schema = f"/v1/{b}/namespaces", {"type": "struct", "fields": []}
    many = [f"m{k}" for k in range(300)]
    for n in ["a", *many]:
        eq(C.catalog("POST", root, {"namespace": [n]}).status, 200, n)
    for i in range(10):
        eq(C.catalog("POST", root, {"namespace": ["z"]}).status, 200, "the one that is looked at last")
        t = C.catalog("POST", f"{root}/a/tables", {"name": "t", "schema": schema})
        eq(t.status, 200, "table")
        eq(C.put(b, t.json()["metadata"]["location"].split("/", 3)[3] + "/data/f", b"x").status, 200, "data")
        eq(C.catalog("DELETE", f"{root}/a/tables/t", query={"purgeRequested": "true"}).status, 204, "purge")
        eq(C.catalog("DELETE", f"{root}/z").status, 204, "drop")
    for n in ["a", *many]:
        eq(C.catalog("DELETE", f"{root}/{n}").status, 204, f"drop {n}")
    eq(C.catalog("DELETE", "/v1/warehouses/" + b).status, 204, "nothing is left")


# ---------------------------------------------------------------------------------------------- races
def in_threads(n, work):
    errors, threads = [], []

    def run(k):
        try:
            work(k, client())
        except Exception as e:  # noqa: BLE001
            errors.append(f"{k}: {e}")

    for k in range(n):
        threads.append(threading.Thread(target=run, args=(k,)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise Failed("; ".join(errors[:3]))


@case
def no_commit_is_lost():
    ns = namespace()
    uuid = table(ns)["metadata"]["table-uuid"]
    path, seen = ns + "/tables/t", set()

    def work(k, c):
        for i in range(25):
            a = commit(path, [props(**{f"k{k}": str(i)})], [{"type": "assert-table-uuid", "uuid": uuid}], c)
            eq(a.status, 200, f"commit {i}: {a}")
            d = a.json()
            eq(d["metadata"]["properties"][f"k{k}"], str(i), "the answer holds the change")
            seen.add(d["metadata-location"])

    in_threads(12, work)
    d = call("GET", path).json()
    eq({k: v for k, v in d["metadata"]["properties"].items() if k[0] == "k"}, {f"k{k}": "24" for k in range(12)}, "every last value")
    eq(len(seen), 300, "every commit has a file of its own")
    true(d["metadata-location"].rsplit("/", 1)[1].startswith("00300-"), d["metadata-location"])


@case
def appends_make_one_unbroken_line():
    ns = namespace()
    table(ns)
    path, won = ns + "/tables/t", []

    def work(k, c):
        done = 0
        while done < 8:
            md = c.catalog("GET", P + path).json()["metadata"]
            head = md["current-snapshot-id"]
            sid = (k + 1) * 1000 + done
            a = commit(path, [snapshot(sid, md["last-sequence-number"] + 1, head if head != -1 else None), main_is(sid)],
                       [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head if head != -1 else None}], c)
            if a.status == 200:
                done += 1
                won.append(sid)
            else:
                refused(a, 409, "CommitFailedException")

    in_threads(6, work)
    md = call("GET", path).json()["metadata"]
    by_id = {s["snapshot-id"]: s for s in md["snapshots"]}
    eq(sorted(by_id), sorted(won), "the snapshots that were confirmed")
    line, at = [], md["current-snapshot-id"]
    while at is not None:
        line.append(at)
        at = by_id[at].get("parent-snapshot-id")
    eq(sorted(line), sorted(won), "one line")
    eq([by_id[i]["sequence-number"] for i in reversed(line)], list(range(1, 49)), "in order")
    eq([e["snapshot-id"] for e in md["snapshot-log"]], list(reversed(line)), "and so logged")


@case
def one_creator_wins():
    ns, results = namespace(), []

    def work(k, c):
        results.append(c.catalog("POST", P + ns + "/tables", {"name": "t", "schema": SCHEMA}).status)

    in_threads(8, work)
    eq(sorted(results), [200] + [409] * 7, "creates of one name")
    results.clear()

    def drop(k, c):
        results.append(c.catalog("DELETE", P + ns + "/tables/t").status)

    in_threads(8, drop)
    eq(sorted(results), [204] + [404] * 7, "drops of one table")


@case
def transactions_are_all_or_nothing():
    ns = namespace()
    levels = [urllib.parse.unquote(ns[12:])]
    table(ns, "a")
    table(ns, "b")

    def change(name, *updates, req=()):
        return {"identifier": {"namespace": levels, "name": name}, "requirements": list(req), "updates": list(updates)}

    def tx(*changes, by=C):
        return by.catalog("POST", P + "/transactions/commit", {"table-changes": list(changes)})

    eq(tx(change("a", props(x="1")), change("b", props(x="1"))).status, 204, "two tables")
    refused(tx(change("a", props(x="2")), change("b", props(x="2"), req=[{"type": "assert-current-schema-id", "current-schema-id": 9}])), 409, "CommitFailedException")
    refused(tx(change("a", props(x="2")), change("absent", props(x="2"))), 404, "NoSuchTableException")
    refused(tx(change("a", props(x="2")), change("b", {"action": "make-coffee"})), 400, "BadRequestException")
    refused(tx(change("a", props(x="2")), change("a", props(x="3"))), 400, "BadRequestException", "a table twice")
    new = [{"action": "add-schema", "schema": SCHEMA}, {"action": "set-current-schema", "schema-id": -1}]
    refused(tx(change("c", *new, req=[{"type": "assert-create"}]), change("b", props(x="2"), req=[{"type": "assert-create"}])), 409, "CommitFailedException")
    eq([call("GET", f"{ns}/tables/{t}").json()["metadata"]["properties"]["x"] for t in "ab"], ["1", "1"], "nothing of the refused ones stands")
    eq(call("HEAD", ns + "/tables/c").status, 404, "nor the table")
    eq(tx(change("c", *new, req=[{"type": "assert-create"}]), change("a", props(x="3"))).status, 204, "a create and a change")
    eq((call("HEAD", ns + "/tables/c").status, call("GET", ns + "/tables/a").json()["metadata"]["properties"]["x"]), (204, "3"), "both stand")

    def work(k, c):
        for i in range(10):
            a = tx(change("a", props(**{f"k{k}": str(i)})), change("b", props(**{f"k{k}": str(i)})), by=c) if k % 2 else commit(f"{ns}/tables/a", [props(**{f"k{k}": str(i)})], by=c)
            true(a.status in (200, 204), f"{k}/{i}: {a}")

    in_threads(6, work)
    a, b = (call("GET", f"{ns}/tables/{t}").json()["metadata"]["properties"] for t in "ab")
    eq({k: v for k, v in a.items() if k[0] == "k"}, {f"k{k}": "9" for k in range(6)}, "all changes of a")
    eq({k: v for k, v in b.items() if k[0] == "k"}, {f"k{k}": "9" for k in (1, 3, 5)}, "all changes of b")


@case
def commits_of_a_table_that_goes():
    ns = namespace()
    results = set()
    for _ in range(5):
        table(ns)

        def work(k, c):
            for i in range(6):
                if k == 0 and i == 3:
                    c.catalog("DELETE", P + ns + "/tables/t")
                elif k:
                    a = commit(ns + "/tables/t", [props(**{f"k{k}": str(i)})], by=c)
                    results.add((a.status, a.code))

        in_threads(5, work)
        call("DELETE", ns + "/tables/t")
    true(results <= {(200, None), (404, "NoSuchTableException"), (409, "CommitFailedException")}, f"answers {results}")


@case
def limits_of_requests():
    ns = namespace()
    levels = [urllib.parse.unquote(ns[12:])]
    table(ns)

    def tx(n):
        return C.catalog("POST", P + "/transactions/commit", {"table-changes": [{"identifier": {"namespace": levels, "name": f"x{i}"}, "updates": []} for i in range(n)]})

    refused(tx(1000), 404, "NoSuchTableException", "1,000 tables are read")
    refused(tx(1001), 400, "BadRequestException", "1,001 are not")
    big = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": ""}}]}
    room = 32 * 1024 * 1024 - len(json.dumps(big))
    big["updates"][0]["updates"]["k"] = "x" * room
    eq(C.catalog("POST", P + ns + "/tables/t", big).status, 200, "a commit of 32 MiB")
    eq(commit(ns + "/tables/t", [{"action": "remove-properties", "removals": ["k"]}]).status, 200, "and away with it")
    big["updates"][0]["updates"]["k"] += "x"
    body = json.dumps(big).encode()
    head, _ = C.signed_headers("POST", "/_iceberg" + P + ns + "/tables/t", None, [("Content-Length", str(len(body)))], body, "s3tables")
    refused(C.exchange("POST", "/_iceberg" + P + ns + "/tables/t", head), 400, "BadRequestException", "a byte more is refused before it is sent")
    parts = {f"k{i}": "v" * 65000 for i in range(4)}
    eq(call("POST", ns + "/properties", {"updates": parts}).status, 200, "260,000 bytes of properties")
    refused(call("POST", ns + "/properties", {"updates": {"more": "v" * 3000}}), 400, "BadRequestException", "past 256 KiB")
    eq(sorted(k for k in call("GET", ns).json()["properties"] if k != "location"), sorted(parts), "which changed nothing")


# ---------------------------------------------------------------------------------------------- warehouses
@case
def warehouses_and_their_buckets():
    b = C.new_bucket()
    refused(C.catalog("POST", "/v1/warehouses", {"name": b}), 409, "AlreadyExistsException", "a bucket has the name")
    eq(C.catalog("POST", "/v1/warehouses", {"name": b, "upgrade-existing": True}).status, 200, "upgrade-existing")
    eq(C.put(b, "mine", b"x").status, 200, "an object of somebody's")
    refused(C.catalog("DELETE", "/v1/warehouses/" + b), 409, None, "objects are not thrown away by the way")
    eq(C.get(b, "mine").body, b"x", "it is still there")
    refused(C.delete(b), 409, "BucketNotEmpty")
    eq(C.catalog("DELETE", "/v1/warehouses/" + b, query={"preserve-bucket": "true"}).status, 204, "the bucket stays")
    refused(C.catalog("GET", "/v1/config", query={"warehouse": b}), 404, "NoSuchWarehouseException")
    refused(C.catalog("GET", "/v1//namespaces"), 404, "NoSuchWarehouseException", "an empty prefix")
    eq(C.catalog("POST", "/v1/warehouses", {"name": b, "upgrade-existing": True}).status, 200, "and again")
    eq(C.catalog("DELETE", "/v1/warehouses/" + b, query={"force": "true"}).status, 204, "force")
    refused(C.get(b, "mine"), 404, "NoSuchBucket")
    for bad in ("namespaces", "config", "ab", "-ab", "a_b", "A-b"):
        refused(C.catalog("POST", "/v1/warehouses", {"name": bad}), 400, "BadRequestException", bad)
    for form in (WH, f"s3://{WH}", f"s3://{WH}/", f"arn:aws:s3tables:us-east-1:000000000000:bucket/{WH}"):
        a = C.catalog("GET", "/v1/config", query={"warehouse": form})
        eq((a.status, a.json()["overrides"]["prefix"]), (200, WH), form)


@case
def endpoints_are_served():
    doc = C.catalog("GET", "/v1/config", query={"warehouse": WH}).json()
    ns = namespace()
    for e in doc["endpoints"]:
        method, path = e.split(" ")
        path = path.replace("{prefix}", WH).replace("{namespace}", ns[12:]).replace("{table}", "t").replace("{view}", "v")
        a = C.catalog(method, path, b"" if method == "POST" else None)
        true(a.status != 405 and not (a.status == 404 and a.body and "No route" in a.json()["error"]["message"]), f"{e}: {a}")
    d = doc["defaults"]
    true(d["client.region"] and d["s3.region"] and d["s3.endpoint"].startswith("http") and d["s3.path-style-access"] == "true", f"defaults {d}")


main()
