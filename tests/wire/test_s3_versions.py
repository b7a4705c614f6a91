# SPDX-License-Identifier: Apache-2.0
# drives: 1
"""Versions: enabled, suspended, null versions, delete markers, reads and deletes by version, listings page by page."""
from tarnwire import case, client, eq, main, refused, true

C = client()


def versioning(bucket, status):
    body = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>".encode()
    eq(C.request("PUT", f"/{bucket}", {"versioning": ""}, body=body).status, 200, f"versioning {status}")


def new(status="Enabled"):
    b = C.new_bucket()
    if status:
        versioning(b, status)
    return b


def listed(bucket, **query):
    """[(kind, key, version id, latest)] in the order of the answer, page by page."""
    out, marks = [], {}
    for _ in range(1000):
        q = {"versions": "", **{k.replace("_", "-"): v for k, v in query.items()}, **marks}
        r = C.get(bucket, query=q)
        eq(r.status, 200, f"versions of {bucket}: {r}")
        root = r.xml()
        out += [(e.tag, e.findtext("Key"), e.findtext("VersionId"), e.findtext("IsLatest") == "true")
                for e in root if e.tag in ("Version", "DeleteMarker")]
        if root.findtext("IsTruncated") != "true":
            return out
        marks = {"key-marker": root.findtext("NextKeyMarker"), "version-id-marker": root.findtext("NextVersionIdMarker") or ""}
    raise AssertionError("the listing does not end")


@case
def states_of_a_bucket():
    b = C.new_bucket()
    eq(C.get(b, query={"versioning": ""}).xml().findtext("Status"), None, "never set")
    versioning(b, "Enabled")
    eq(C.get(b, query={"versioning": ""}).xml().findtext("Status"), "Enabled")
    versioning(b, "Suspended")
    eq(C.get(b, query={"versioning": ""}).xml().findtext("Status"), "Suspended")
    for body in (b"<VersioningConfiguration/>", b"<VersioningConfiguration><Status>On</Status></VersioningConfiguration>", b"<X/>", b""):
        eq(C.request("PUT", f"/{b}", {"versioning": ""}, body=body).status, 400, f"{body}")
    refused(C.request("PUT", f"/{b}", {"versioning": ""}, body=b"<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>"),
            501, "NotImplemented")


@case
def without_versioning_there_is_no_version():
    b = C.new_bucket()
    r = C.put(b, "k", b"1")
    eq(r.headers["x-amz-version-id"], None, "PUT")
    eq(C.get(b, "k").headers["x-amz-version-id"], None, "GET")
    eq(listed(b), [("Version", "k", "null", True)])
    eq(C.get(b, "k", {"versionId": "null"}).body, b"1", "as the null version")
    r = C.delete(b, "k")
    eq((r.status, r.headers["x-amz-delete-marker"], r.headers["x-amz-version-id"]), (204, None, None), "DELETE")
    eq(listed(b), [], "nothing is left")


@case
def every_put_makes_a_version():
    b = new()
    ids = [C.put(b, "k", str(i).encode()).headers["x-amz-version-id"] for i in range(3)]
    eq(len(set(ids)), 3, "three ids")
    r = C.get(b, "k")
    eq((r.body, r.headers["x-amz-version-id"]), (b"2", ids[2]), "the newest is current")
    for i, v in enumerate(ids):
        eq(C.get(b, "k", {"versionId": v}).body, str(i).encode(), f"version {i}")
        eq(C.head(b, "k", {"versionId": v}).headers["Content-Length"], "1", f"HEAD of version {i}")
    eq(listed(b), [("Version", "k", v, i == 0) for i, v in enumerate(reversed(ids))], "newest first")
    eq(C.keys(b), ["k"], "one key")


@case
def delete_markers():
    b = new()
    v1 = C.put(b, "k", b"1").headers["x-amz-version-id"]
    r = C.delete(b, "k")
    eq((r.status, r.headers["x-amz-delete-marker"]), (204, "true"), "DELETE")
    m = r.headers["x-amz-version-id"]
    r = C.get(b, "k")
    refused(r, 404, "NoSuchKey")
    eq((r.headers["x-amz-delete-marker"], r.headers["x-amz-version-id"]), ("true", m), "GET of a deleted key")
    eq(C.head(b, "k").status, 404)
    r = C.get(b, "k", {"versionId": m})
    refused(r, 405, "MethodNotAllowed")
    eq((r.headers["x-amz-delete-marker"], r.headers["Allow"]), ("true", "DELETE"), "GET of the marker")
    eq(C.get(b, "k", {"versionId": v1}).body, b"1", "the version under it")
    eq(C.keys(b), [], "not listed")
    eq(listed(b), [("DeleteMarker", "k", m, True), ("Version", "k", v1, False)])
    m2 = C.delete(b, "k").headers["x-amz-version-id"]
    true(m2 != m, "a second DELETE makes a second marker")
    for marker in (m2, m):
        r = C.delete(b, "k", {"versionId": marker})
        eq((r.status, r.headers["x-amz-delete-marker"], r.headers["x-amz-version-id"]), (204, "true", marker), "the marker itself is deleted")
    eq(C.get(b, "k").body, b"1", "and the object is back")
    eq(C.delete(b, "absent").headers["x-amz-delete-marker"], "true", "a marker for a key that never was")


@case
def deleting_versions():
    b = new()
    ids = [C.put(b, "k", str(i).encode()).headers["x-amz-version-id"] for i in range(3)]
    eq(C.delete(b, "k", {"versionId": ids[2]}).headers["x-amz-version-id"], ids[2], "the current one")
    eq(C.get(b, "k").body, b"1", "the one before it is current now")
    eq(C.delete(b, "k", {"versionId": ids[0]}).status, 204, "a noncurrent one")
    eq(C.get(b, "k").body, b"1")
    eq(C.delete(b, "k", {"versionId": ids[0]}).status, 204, "again: nothing to do")
    eq(C.delete(b, "k", {"versionId": ids[1]}).status, 204)
    eq(listed(b), [])
    refused(C.get(b, "k", {"versionId": ids[1]}), 404, "NoSuchVersion")
    for bad in ("", "x", "0" * 31, "0" * 33, "g" * 32):
        eq(C.get(b, "k", {"versionId": bad}).status, 400, f"versionId={bad}")
        eq(C.delete(b, "k", {"versionId": bad}).status, 400, f"versionId={bad}")
    refused(C.put(b, "k", b"x", query={"versionId": ids[1]}), 400, "InvalidArgument")


@case
def null_versions():
    b = C.new_bucket()
    C.put(b, "k", b"before")
    versioning(b, "Enabled")
    v1 = C.put(b, "k", b"versioned").headers["x-amz-version-id"]
    eq(listed(b), [("Version", "k", v1, True), ("Version", "k", "null", False)], "what was there is the null version")
    versioning(b, "Suspended")
    C.put(b, "k", b"suspended")
    eq(listed(b), [("Version", "k", "null", True), ("Version", "k", v1, False)], "a write to a suspended bucket replaces the null version")
    eq(C.get(b, "k", {"versionId": "null"}).body, b"suspended")
    r = C.delete(b, "k")
    eq((r.headers["x-amz-delete-marker"], r.headers["x-amz-version-id"]), ("true", "null"), "DELETE puts a null marker in its place")
    eq(listed(b), [("DeleteMarker", "k", "null", True), ("Version", "k", v1, False)])
    eq(C.delete(b, "k", {"versionId": "null"}).status, 204)
    eq(C.get(b, "k").body, b"versioned", "the version that stayed is current")
    versioning(b, "Enabled")
    v2 = C.put(b, "k", b"again").headers["x-amz-version-id"]
    eq(listed(b), [("Version", "k", v2, True), ("Version", "k", v1, False)])


@case
def many_deletes_at_once():
    b = new()
    v = {k: C.put(b, k, k.encode()).headers["x-amz-version-id"] for k in "abc"}
    body = (f"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key><VersionId>{v['b']}</VersionId></Object>"
            f"<Object><Key>c</Key><VersionId>bad</VersionId></Object></Delete>").encode()
    root = C.post(b, body=body, query={"delete": ""}).xml()
    done = {e.findtext("Key"): e for e in root.findall("Deleted")}
    eq((done["a"].findtext("DeleteMarker"), done["a"].findtext("VersionId")), ("true", None), "a marker was made")
    true(done["a"].findtext("DeleteMarkerVersionId"), "and named")
    eq((done["b"].findtext("VersionId"), done["b"].findtext("DeleteMarker")), (v["b"], None), "a version was deleted")
    eq(root.findtext("Error/Code"), "NoSuchVersion", "a version id that is none")
    eq(sorted((k, key) for k, key, _, _ in listed(b)), [("DeleteMarker", "a"), ("Version", "a"), ("Version", "c")])


@case
def pages_of_versions():
    b = new()
    want = []
    for k in ("a", "b/1", "b/2", "c", "d\u00e4"):
        ids = [C.put(b, k, str(i).encode()).headers["x-amz-version-id"] for i in range(3)]
        want += [("Version", k, v, i == 0) for i, v in enumerate(reversed(ids))]
    want.insert(0, ("DeleteMarker", "a", C.delete(b, "a").headers["x-amz-version-id"], True))
    want[1] = (*want[1][:3], False)
    for size in (1, 2, 3, 7, 1000):
        eq(listed(b, max_keys=size), want, f"pages of {size}")
    eq(listed(b, prefix="b/", max_keys=2), [w for w in want if w[1].startswith("b/")], "a prefix")
    seen = []
    marks = {}
    while True:
        root = C.get(b, query={"versions": "", "delimiter": "/", "max-keys": "2", **marks}).xml()
        seen += [e.findtext("Prefix") or e.findtext("Key") for e in root if e.tag in ("Version", "DeleteMarker", "CommonPrefixes")]
        if root.findtext("IsTruncated") != "true":
            break
        marks = {"key-marker": root.findtext("NextKeyMarker"), "version-id-marker": root.findtext("NextVersionIdMarker") or ""}
    eq(sorted(seen), sorted(["a"] * 4 + ["b/"] + ["c"] * 3 + ["d\u00e4"] * 3), "with a delimiter, in pages of two")
    refused(C.get(b, query={"versions": "", "version-id-marker": want[0][2]}), 400, "InvalidArgument", "a version marker without a key marker")
    eq(C.get(b, query={"versions": "", "max-keys": "0"}).xml().findtext("IsTruncated"), "false", "max-keys=0")


@case
def copies_of_versions():
    b = new()
    v1 = C.put(b, "k", b"one").headers["x-amz-version-id"]
    C.put(b, "k", b"two")
    r = C.put(b, "copy", headers={"x-amz-copy-source": f"/{b}/k?versionId={v1}"})
    eq((r.status, r.headers["x-amz-copy-source-version-id"]), (200, v1), f"{r}")
    eq(C.get(b, "copy").body, b"one")
    r = C.put(b, "k", headers={"x-amz-copy-source": f"{b}/k?versionId={v1}"})
    eq(r.status, 200, "an old version made current again")
    eq(C.get(b, "k").body, b"one")
    m = C.delete(b, "k").headers["x-amz-version-id"]
    refused(C.put(b, "x", headers={"x-amz-copy-source": f"{b}/k"}), 404, "NoSuchKey")
    refused(C.put(b, "x", headers={"x-amz-copy-source": f"{b}/k?versionId={m}"}), 400, "InvalidRequest")


main()
