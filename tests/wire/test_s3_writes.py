# SPDX-License-Identifier: Apache-2.0
# drives: 1
"""Uploads: digests and checksums, aws-chunked modes, conditional writes (also in races), metadata, copies, limits."""
import base64
import hashlib
import threading

from tarnwire import UNSIGNED, case, checksum, client, eq, main, md5_base64, refused, true

C = client()
B = C.new_bucket()
KINDS = ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256")


def absent(key):
    refused(C.get(B, key), 404, "NoSuchKey", f"{key} must not be there")


@case
def etag_is_the_md5():
    for size in (0, 1, 100_000, 1 << 20, (1 << 20) + 1, 3_000_000):
        data = bytes(i & 0xFF for i in range(251)) * (size // 251 + 1)
        data = data[:size]
        want = f'"{hashlib.md5(data).hexdigest()}"'
        eq(C.put(B, "etag", data).headers["ETag"], want, f"PUT of {size}")
        r = C.get(B, "etag")
        eq((r.headers["ETag"], r.body == data, r.headers["Content-Length"]), (want, True, str(size)), f"GET of {size}")


@case
def checksums_are_kept_and_given():
    data = b"checksummed" * 1000
    for kind in KINDS:
        name = f"x-amz-checksum-{kind.lower()}"
        want = checksum(kind, data)
        r = C.put(B, kind, data, {name: want, "x-amz-sdk-checksum-algorithm": kind})
        eq((r.status, r.headers[name], r.headers["x-amz-checksum-type"]), (200, want, "FULL_OBJECT"), f"PUT {kind}: {r}")
        eq(C.get(B, kind).headers[name], None, "only where it is asked for")
        for f in (C.get, C.head):
            r = f(B, kind, headers={"x-amz-checksum-mode": "ENABLED"})
            eq((r.headers[name], r.headers["x-amz-checksum-type"]), (want, "FULL_OBJECT"), f"read {kind}")
        eq(C.get(B, kind, headers={"x-amz-checksum-mode": "ENABLED", "Range": "bytes=0-3"}).headers[name], None, "not for a range")
        bad = base64.b64encode(bytes(len(base64.b64decode(want)))).decode()
        refused(C.put(B, "spoilt", data, {name: bad}), 400, "BadDigest", kind)
        refused(C.put(B, "spoilt", data, {name: want[:-4]}), 400, "InvalidRequest", f"{kind} cut short")
        refused(C.put(B, "spoilt", data, {name: want + "-2"}), 400, "InvalidRequest", f"{kind} with a number of parts")
    absent("spoilt")
    r = C.put(B, "none", data)
    eq(r.headers["x-amz-checksum-crc64nvme"], checksum("CRC64NVME", data), "without one CRC64NVME is made")
    two = {"x-amz-checksum-crc32": checksum("CRC32", data), "x-amz-checksum-sha1": checksum("SHA1", data)}
    refused(C.put(B, "spoilt", data, two), 400, "InvalidRequest", "two of them")
    refused(C.put(B, "spoilt", data, {"x-amz-sdk-checksum-algorithm": "CRC32"}), 400, "InvalidRequest", "announced only")
    absent("spoilt")


@case
def content_md5_and_sha256():
    data = b"d" * 70000
    eq(C.put(B, "md5", data, {"Content-MD5": md5_base64(data)}).status, 200)
    refused(C.put(B, "spoilt", data, {"Content-MD5": md5_base64(b"other")}), 400, "BadDigest")
    for bad in ("", "x", md5_base64(data)[:-2], base64.b64encode(b"123").decode()):
        refused(C.put(B, "spoilt", data, {"Content-MD5": bad}), 400, "InvalidDigest", bad)
    refused(C.put(B, "spoilt", data, payload="0" * 64), 400, "XAmzContentSHA256Mismatch")
    absent("spoilt")
    eq(C.put(B, "unsigned", data, payload=UNSIGNED).status, 200, "UNSIGNED-PAYLOAD")


@case
def chunked_modes():
    chunks = [b"a" * 65536, b"b" * 65536, b"c" * 7]
    whole = b"".join(chunks)
    for kind in KINDS:
        t = [(f"x-amz-checksum-{kind.lower()}", checksum(kind, whole))]
        for signed in (True, False):
            what = f"{kind}, {'signed' if signed else 'unsigned'}"
            r = C.put_chunked(B, "trailer", chunks, t, signed)
            eq((r.status, r.headers[t[0][0]]), (200, t[0][1]), f"{what}: {r}")
            r = C.get(B, "trailer")
            eq((r.body == whole, r.headers["Content-Encoding"]), (True, None), what)
            refused(C.put_chunked(B, "spoilt", chunks, [(t[0][0], checksum(kind, b""))], signed), 400, "BadDigest", what)
    r = C.put_chunked(B, "plain", chunks, headers={"x-amz-checksum-crc32c": checksum("CRC32C", whole)})
    eq(r.status, 200, "a checksum in the header, with signed chunks")
    eq(C.put_chunked(B, "empty", []).status, 200, "nothing in chunks")
    eq(C.get(B, "empty").body, b"")

    def spoil(part):
        return lambda what, i, v: (v[:-1] + (b"x" if isinstance(v, bytes) else "0" if v[-1] != "0" else "1")) if what == part else v
    t = [("x-amz-checksum-crc32", checksum("CRC32", whole))]
    refused(C.put_chunked(B, "spoilt", chunks, t, alter=spoil("data")), 403, "SignatureDoesNotMatch")
    refused(C.put_chunked(B, "spoilt", chunks, t, alter=spoil("signature")), 403, "SignatureDoesNotMatch")
    refused(C.put_chunked(B, "spoilt", chunks, t, alter=spoil("trailer-signature")), 403, "SignatureDoesNotMatch")
    refused(C.put_chunked(B, "spoilt", chunks, t, alter=lambda what, i, v: "AAAAAA==" if what == "trailer" else v), 403, "SignatureDoesNotMatch",
            "the trailer is signed")
    refused(C.put_chunked(B, "spoilt", chunks, t, alter=spoil("trailer")), 400, "InvalidRequest", "no base64")
    eq(C.put_chunked(B, "spoilt", chunks, t, False, alter=spoil("data")).status, 400, "the sum finds it where nothing is signed")
    eq(C.put_chunked(B, "spoilt", chunks, alter=spoil("size")).status // 100, 4, "sizes")
    absent("spoilt")
    r = C.put_chunked(B, "encoded", chunks, headers={"Content-Encoding": "gzip"})
    eq(C.get(B, "encoded").headers["Content-Encoding"], "gzip", "the rest of Content-Encoding stays")


@case
def conditional_writes():
    eq(C.put(B, "cond", b"1", {"If-None-Match": "*"}).status, 200, "absent")
    refused(C.put(B, "cond", b"2", {"If-None-Match": "*"}), 412, "PreconditionFailed")
    tag = C.head(B, "cond").headers["ETag"]
    refused(C.put(B, "cond", b"2", {"If-Match": '"0"'}), 412, "PreconditionFailed")
    eq(C.put(B, "cond", b"2", {"If-Match": tag}).status, 200, "the right tag")
    refused(C.put(B, "cond", b"3", {"If-Match": tag}), 412, "PreconditionFailed", "the tag of before")
    refused(C.put(B, "cond-absent", b"3", {"If-Match": tag}), 404, "NoSuchKey")
    refused(C.put(B, "cond", b"3", {"If-Match": tag, "If-None-Match": "*"}), 501, "NotImplemented")
    eq(C.get(B, "cond").body, b"2")
    refused(C.delete(B, "cond", headers={"If-Match": '"0"'}), 412, "PreconditionFailed")
    eq(C.delete(B, "cond", headers={"If-Match": C.head(B, "cond").headers["ETag"]}).status, 204)
    refused(C.delete(B, "cond", headers={"If-Match": '"0"'}), 404, "NoSuchKey")
    eq(C.put(B, "cond", b"4", {"If-None-Match": "*"}, unsigned=("if-none-match",)).status, 200, "after the deletion; unsigned")
    refused(C.put(B, "cond", b"5", {"If-None-Match": "*"}, unsigned=("if-none-match",)), 412, "PreconditionFailed", "unsigned, and heard")


def race(n, act):
    """n threads that begin together; what each act(client, index) gives."""
    barrier, out = threading.Barrier(n), [None] * n

    def one(i):
        c = client()
        c.head(B)
        barrier.wait()
        out[i] = act(c, i)
        c.close()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    return out


@case
def one_winner_of_a_race_to_create():
    for rnd in range(10):
        key = f"create-{rnd}"
        out = race(8, lambda c, i, k=key: c.put(B, k, str(i).encode() * 1000, {"If-None-Match": "*"}).status)
        eq(sorted(set(out)) in ([200, 412], [200, 409, 412], [200, 409]), True, f"{out}")
        eq(out.count(200), 1, f"{out}")
        eq(C.get(B, key).body, str(out.index(200)).encode() * 1000, "the winner's bytes")


@case
def no_update_is_lost():
    C.put(B, "counter", b"0")

    def add(c, i):
        done = 0
        while done < 5:
            r = c.get(B, "counter")
            w = c.put(B, "counter", str(int(r.body) + 1).encode(), {"If-Match": r.headers["ETag"]})
            true(w.status in (200, 409, 412), f"{w}")
            done += w.status == 200
        return done
    eq(sum(race(6, add)), 30)
    eq(C.get(B, "counter").body, b"30", "every acknowledged addition is there")


@case
def readers_never_see_a_mixture():
    stop, bad = threading.Event(), []
    C.put(B, "torn", b"\x00" * 3_000_000)

    def read():
        c = client()
        while not stop.is_set():
            r = c.get(B, "torn")
            if r.status != 200 or len(set(r.body)) != 1 or len(r.body) != 3_000_000:
                bad.append((r.status, len(r.body)))
    readers = [threading.Thread(target=read) for _ in range(3)]
    for t in readers:
        t.start()
    for i in range(12):
        eq(C.put(B, "torn", bytes([i]) * 3_000_000).status, 200)
    stop.set()
    for t in readers:
        t.join(30)
    eq(bad, [])


@case
def metadata_comes_back():
    h = {"Content-Type": "text/x", "Content-Language": "de", "Content-Disposition": 'attachment; filename="x"', "Cache-Control": "no-cache",
         "Expires": "Fri, 02 Jan 2026 03:04:05 GMT", "Content-Encoding": "gzip", "x-amz-meta-A": "1", "x-amz-meta-b-c": "two words",
         "x-amz-website-redirect-location": "/other", "x-amz-storage-class": "STANDARD_IA", "x-amz-tagging": "a=1&b=2"}
    eq(C.put(B, "meta", b"x", h).status, 200)
    for f in (C.get, C.head):
        r = f(B, "meta")
        for n, v in h.items():
            if n != "x-amz-tagging":
                eq(r.headers[n], v, n)
        eq(r.headers["x-amz-tagging-count"], "2")
    eq(C.put(B, "meta", b"y").status, 200)
    r = C.head(B, "meta")
    eq((r.headers["x-amz-meta-A"], r.headers["x-amz-tagging-count"], r.headers["Content-Type"]), (None, None, "binary/octet-stream"),
       "an overwrite takes it all away")
    eq(C.put(B, "meta", b"", {"x-amz-meta-k": "v" * 2047}).status, 200, "2 KiB")
    refused(C.put(B, "meta", b"", {"x-amz-meta-k": "v" * 2048}), 400, "MetadataTooLarge", "a byte more")


@case
def copies():
    C.put(B, "src", b"copied" * 9999, {"Content-Type": "text/s", "x-amz-meta-m": "1", "x-amz-tagging": "t=1", "x-amz-checksum-sha1": checksum("SHA1", b"copied" * 9999)})
    tag = C.head(B, "src").headers["ETag"]
    r = C.put(B, "dst/\u00e4 b", headers={"x-amz-copy-source": f"{B}/src"})
    eq((r.status, r.xml().findtext("ETag"), r.xml().findtext("ChecksumSHA1")), (200, tag, checksum("SHA1", b"copied" * 9999)), f"{r}")
    r = C.get(B, "dst/\u00e4 b")
    eq((r.body == b"copied" * 9999, r.headers["Content-Type"], r.headers["x-amz-meta-m"], r.headers["x-amz-tagging-count"]), (True, "text/s", "1", "1"))
    eq(C.put(B, "rep", headers={"x-amz-copy-source": f"{B}/src", "x-amz-metadata-directive": "REPLACE", "x-amz-tagging-directive": "REPLACE",
                                "Content-Type": "text/r", "x-amz-meta-n": "2"}).status, 200)
    r = C.head(B, "rep")
    eq((r.headers["Content-Type"], r.headers["x-amz-meta-m"], r.headers["x-amz-meta-n"], r.headers["x-amz-tagging-count"]), ("text/r", None, "2", None))
    refused(C.put(B, "src", headers={"x-amz-copy-source": f"{B}/src"}), 400, "InvalidRequest", "onto itself, unchanged")
    eq(C.put(B, "src", headers={"x-amz-copy-source": f"{B}/src", "x-amz-metadata-directive": "REPLACE", "x-amz-meta-z": "9"}).status, 200, "onto itself, changed")
    eq((C.get(B, "src").body == b"copied" * 9999, C.head(B, "src").headers["x-amz-meta-z"]), (True, "9"))
    refused(C.put(B, "x", headers={"x-amz-copy-source": f"{B}/never-there"}), 404, "NoSuchKey")
    refused(C.put(B, "x", headers={"x-amz-copy-source": "no-such-bucket-here/k"}), 404, "NoSuchBucket")
    for bad in ("", "x", f"{B}/", f"{B}/%zz"):
        refused(C.put(B, "x", headers={"x-amz-copy-source": bad}), 400, "InvalidArgument", bad)
    for name, value, status in (("if-match", tag, 200), ("if-match", '"0"', 412), ("if-none-match", tag, 412), ("if-none-match", '"0"', 200),
                                ("if-modified-since", "Fri, 02 Jan 2015 03:04:05 GMT", 200), ("if-modified-since", "Fri, 02 Jan 2099 03:04:05 GMT", 412),
                                ("if-unmodified-since", "Fri, 02 Jan 2015 03:04:05 GMT", 412), ("if-unmodified-since", "Fri, 02 Jan 2099 03:04:05 GMT", 200)):
        eq(C.put(B, "x", headers={"x-amz-copy-source": f"{B}/rep", f"x-amz-copy-source-{name}": value}).status, status, f"{name}: {value}")
    refused(C.put(B, "x", headers={"x-amz-copy-source": f"{B}/rep", "If-None-Match": "*"}), 412, "PreconditionFailed", "the destination's condition")
    refused(C.put(B, "x", headers={"x-amz-copy-source": f"{B}/rep"}, unsigned=("x-amz-copy-source",)), 403, "AccessDenied", "an unsigned source")


@case
def what_is_not_there_is_said():
    for h in ({"x-amz-server-side-encryption": "AES256"}, {"x-amz-server-side-encryption": "aws:kms"},
              {"x-amz-write-offset-bytes": "0"}):
        refused(C.put(B, "no", b"x", h), 501, "NotImplemented", f"{h}")
    refused(C.put(B, "no", b"x", {"x-amz-server-side-encryption-customer-algorithm": "AES256"}), 400, "InvalidArgument", "half of a client's key")
    refused(C.put(B, "no", b"x", {"x-amz-acl": "public-read"}), 400, "AccessControlListNotSupported")
    refused(C.put(B, "no", b"x", {"x-amz-storage-class": "GLACIER"}), 400, "InvalidStorageClass")
    refused(C.put(B, "k" * 1025, b"x"), 400, "KeyTooLongError")
    eq(C.put(B, "k" * 1024, b"x").status, 200, "1,024 bytes of key")
    for q in ("encryption", "website", "replication", "logging", "notification", "accelerate", "requestPayment", "inventory", "metrics", "analytics"):
        refused(C.request("PUT", f"/{B}", {q: ""}, body=b"<X/>"), 501, "NotImplemented", q)
    refused(C.request("POST", f"/{B}/k", {"restore": ""}), 501, "NotImplemented")
    refused(C.request("POST", f"/{B}/k", {"select": "", "select-type": "2"}), 501, "NotImplemented")
    refused(C.request("DELETE", f"/{B}", {"versioning": ""}), 405, "MethodNotAllowed")
    refused(C.request("PATCH", f"/{B}/k"), 405, "MethodNotAllowed")
    absent("no")


@case
def a_broken_upload_leaves_nothing():
    for body, length in ((b"x" * 1000, 1001), (b"", 5), (b"x" * 2_000_000, 3_000_000)):
        out, _ = C.signed_headers("PUT", f"/{B}/cut", payload=UNSIGNED)
        head = "".join(f"{n}: {v}\r\n" for n, v in out)
        C.raw(f"PUT /{B}/cut HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n".encode() + body, half_close=True)
        absent("cut")
    C.put(B, "old", b"old")
    out, _ = C.signed_headers("PUT", f"/{B}/old", payload=UNSIGNED)
    head = "".join(f"{n}: {v}\r\n" for n, v in out)
    C.raw(f"PUT /{B}/old HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n".encode() + b"new", half_close=True)
    eq(C.get(B, "old").body, b"old", "an overwrite that breaks off")


main()
