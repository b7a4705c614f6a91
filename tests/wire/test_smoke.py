# SPDX-License-Identifier: Apache-2.0
# drives: 1
"""The shortest way through everything: health, one object, a range, a listing, refusals, one table, one commit."""
from tarnwire import Client, STREAM, case, client, eq, main, refused, true, unique

C = client()


@case
def health():
    for path in ("/minio/health/live", "/minio/health/ready", "/minio/health/cluster", "/tarn/health/live"):
        for method in ("GET", "HEAD"):
            eq(C.request(method, path, sign=False).status, 200, f"{method} {path}")


@case
def put_get_list_delete():
    b = C.new_bucket()
    for size in (0, 5, 5000, 300_000, 2_500_000):
        data = bytes((i * 7 + size) & 0xFF for i in range(size))
        r = C.put(b, f"dir/{size}", data, {"x-amz-meta-size": str(size), "Content-Type": "text/x-test"})
        eq(r.status, 200, f"PUT {size}: {r}")
        g = C.get(b, f"dir/{size}")
        eq((g.status, g.body == data, g.headers["ETag"], g.headers["x-amz-meta-size"], g.headers["Content-Type"]),
           (200, True, r.headers["ETag"], str(size), "text/x-test"), f"GET {size}")
        eq(C.head(b, f"dir/{size}").headers["Content-Length"], str(size), "HEAD")
    eq(C.get(b, "dir/300000", headers={"Range": "bytes=299990-"}).status, 206, "a range")
    eq(C.keys(b), sorted(f"dir/{s}" for s in (0, 5, 5000, 300000, 2500000)), "keys in byte order")
    refused(C.delete(b), 409, "BucketNotEmpty")
    for k in C.keys(b):
        eq(C.delete(b, k).status, 204, "DELETE")
    refused(C.get(b, "dir/5"), 404, "NoSuchKey")
    eq(C.delete(b).status, 204, "the bucket")
    refused(C.get(b), 404, "NoSuchBucket")


@case
def signatures():
    refused(Client(secret="not-the-secret").request("GET", "/"), 403, "SignatureDoesNotMatch")
    refused(Client(access="nobody").request("GET", "/"), 403, "InvalidAccessKeyId")
    b = C.new_bucket()
    refused(C.get(b, sign=False), 403, "AccessDenied")
    eq(C.put_chunked(b, "chunked", [b"a" * 65536, b"b" * 1000]).status, 200, STREAM)
    eq(C.get(b, "chunked").body, b"a" * 65536 + b"b" * 1000, "what the chunks held")
    refused(C.put_chunked(b, "spoilt", [b"a" * 65536], alter=lambda what, i, v: v[:-1] + b"x" if what == "data" else v), 403,
            "SignatureDoesNotMatch")
    refused(C.get(b, "spoilt"), 404, "NoSuchKey")
    target = C.presign("GET", f"/{b}/chunked")
    eq(C.presigned("GET", target).status, 200, "presigned")
    refused(C.presigned("GET", target[:-1] + ("0" if target[-1] != "0" else "1")), 403, "SignatureDoesNotMatch")


@case
def table_and_commit():
    w = C.new_warehouse()
    p = C.catalog_prefix(w)
    eq(C.catalog("POST", p + "/namespaces", {"namespace": ["ns"]}).status, 200, "namespace")
    schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
    r = C.catalog("POST", p + "/namespaces/ns/tables", {"name": "t", "schema": schema})
    eq(r.status, 200, f"table: {r}")
    uuid = r.json()["metadata"]["table-uuid"]
    change = {"requirements": [{"type": "assert-table-uuid", "uuid": uuid}], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    r = C.catalog("POST", p + "/namespaces/ns/tables/t", change)
    eq((r.status, r.json()["metadata"]["properties"].get("k")), (200, "v"), f"commit: {r}")
    change["requirements"][0]["uuid"] = "00000000-0000-0000-0000-000000000000"
    r = C.catalog("POST", p + "/namespaces/ns/tables/t", change)
    refused(r, 409, "CommitFailedException")
    refused(C.catalog("GET", p + "/namespaces/ns/tables/absent"), 404, "NoSuchTableException")
    true(C.catalog("GET", p + "/namespaces/ns/tables/" + unique(), sign=False).status in (401, 403), "unsigned")


main()
