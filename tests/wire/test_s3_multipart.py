# SPDX-License-Identifier: Apache-2.0
# drives: 1
"""Multipart uploads: parts, copies, checksums of both types, conditions, limits, listings, and what is left when one ends."""
import base64
import hashlib
import threading
import zlib

from tarnwire import case, checksum, client, eq, main, refused, true

C = client()
B = C.new_bucket()
MIB = 1 << 20
PART = 5 * MIB


def create(key, headers=None, bucket=None):
    r = C.post(bucket or B, key, query={"uploads": ""}, headers=headers)
    eq(r.status, 200, f"creating an upload: {r}")
    return r.xml().findtext("UploadId")


def upload(key, uid, number, data, headers=None):
    return C.put(B, key, data, headers, {"partNumber": str(number), "uploadId": uid})


def complete(key, uid, parts, headers=None, sums=None):
    """parts: [(number, etag)]; sums: {number: (element, value)}"""
    body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{t}</ETag>" + (f"<{sums[n][0]}>{sums[n][1]}</{sums[n][0]}>" if sums and n in sums else "") + "</Part>"
                   for n, t in parts)
    return C.post(B, key, f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(), {"uploadId": uid}, headers)


def block(n, size=PART):
    return bytes([n]) * size


def crc32(data):
    """The same as checksum("CRC32", data), fast."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def sha256(data):
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


@case
def whole_way():
    uid = create("k", {"Content-Type": "text/m", "x-amz-meta-a": "1", "x-amz-tagging": "t=1", "Cache-Control": "no-store"})
    refused(C.get(B, "k"), 404, "NoSuchKey", "nothing is visible before")
    datas = {1: block(1), 2: block(2, PART + 1), 7: b"tail"}
    tags = {n: upload("k", uid, n, d).headers["ETag"] for n, d in datas.items()}
    for n, d in datas.items():
        eq(tags[n], f'"{hashlib.md5(d).hexdigest()}"', f"part {n}")
    r = complete("k", uid, sorted(tags.items()))
    eq(r.status, 200, f"{r}")
    want = hashlib.md5(b"".join(hashlib.md5(d).digest() for d in datas.values())).hexdigest() + "-3"
    eq(r.xml().findtext("ETag"), f'"{want}"')
    whole = b"".join(datas.values())
    r = C.get(B, "k")
    eq((r.body == whole, r.headers["ETag"], r.headers["Content-Type"], r.headers["x-amz-meta-a"], r.headers["x-amz-tagging-count"], r.headers["Cache-Control"]),
       (True, f'"{want}"', "text/m", "1", "1", "no-store"))
    for a, b in ((0, 0), (PART - 1, PART), (PART, PART), (2 * PART, len(whole) - 1), (2 * PART + 1, 2 * PART + 3)):
        r = C.get(B, "k", headers={"Range": f"bytes={a}-{b}"})
        eq((r.status, r.body == whole[a:b + 1]), (206, True), f"range {a}-{b}")
    for i, n in enumerate(datas, 1):
        r = C.get(B, "k", {"partNumber": str(i)})
        eq((r.status, r.body == datas[n], r.headers["x-amz-mp-parts-count"]), (206, True, "3"), f"part {i} of the object")
        eq(C.head(B, "k", {"partNumber": str(i)}).headers["Content-Length"], str(len(datas[n])), f"HEAD of part {i}")
    refused(C.get(B, "k", {"partNumber": "4"}), 416, "InvalidPartNumber")
    for bad in ("0", "10001", "-1", "x", ""):
        refused(C.get(B, "k", {"partNumber": bad}), 400, "InvalidArgument", bad)
    refused(C.get(B, "k", {"partNumber": "1"}, {"Range": "bytes=0-1"}), 400, "InvalidRequest")
    eq(complete("k", uid, sorted(tags.items())).status, 200, "completed again with the same parts")
    refused(complete("k", uid, [(1, tags[1])]), 404, "NoSuchUpload", "with others")
    refused(upload("k", uid, 1, b"x"), 404, "NoSuchUpload", "a part of what is complete")
    eq(C.put(B, "single", b"x").status, 200)
    r = C.get(B, "single", {"partNumber": "1"})
    eq((r.status, r.body, r.headers["x-amz-mp-parts-count"]), (206, b"x", None), "an object of one piece has a part 1")
    refused(C.get(B, "single", {"partNumber": "2"}), 416, "InvalidPartNumber")


@case
def what_complete_refuses():
    uid = create("bad")
    t1 = upload("bad", uid, 1, block(1)).headers["ETag"]
    t2 = upload("bad", uid, 2, b"small").headers["ETag"]
    t3 = upload("bad", uid, 3, b"small").headers["ETag"]
    refused(complete("bad", uid, []), 400, "MalformedXML")
    refused(complete("bad", uid, [(1, t1), (2, t2), (3, t3)]), 400, "EntityTooSmall", "a small part that isn't the last")
    refused(complete("bad", uid, [(2, t2), (1, t1)]), 400, "InvalidPartOrder")
    refused(complete("bad", uid, [(1, t2)]), 400, "InvalidPart", "another tag")
    refused(complete("bad", uid, [(1, t1), (4, t2)]), 400, "InvalidPart", "a part that isn't there")
    refused(complete("bad", uid, [(0, t1)]), 400, "InvalidArgument")
    refused(complete("bad", uid, [(10001, t1)]), 400, "InvalidArgument")
    refused(complete("bad", uid, [(1, "")]), 400, "MalformedXML")
    refused(complete("bad", uid, [(1, t1)], {"x-amz-mp-object-size": str(PART + 1)}), 400, "InvalidRequest", "another size")
    refused(complete("bad", uid, [(1, t1)], {"x-amz-mp-object-size": "x"}), 400, "InvalidRequest")
    refused(complete("bad", "0" * 32, [(1, t1)]), 404, "NoSuchUpload")
    refused(complete("bad", "x", [(1, t1)]), 404, "NoSuchUpload")
    refused(complete("other", uid, [(1, t1)]), 404, "NoSuchUpload", "the upload of another key")
    refused(C.get(B, "bad"), 404, "NoSuchKey")
    eq(complete("bad", uid, [(1, t1.strip('"'))], {"x-amz-mp-object-size": str(PART)}).status, 200, "and still it can be completed, with a part left out")
    eq(C.head(B, "bad").headers["Content-Length"], str(PART))


@case
def part_numbers_and_ids():
    uid = create("n")
    eq(upload("n", uid, 10000, b"x").status, 200)
    for bad in ("0", "10001", "-1", "x", ""):
        refused(upload("n", uid, bad, b"x"), 400, "InvalidArgument", bad)
    refused(upload("n", "0" * 32, 1, b"x"), 404, "NoSuchUpload")
    refused(upload("other", uid, 1, b"x"), 404, "NoSuchUpload")
    refused(C.put(B, "n", b"x", {"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, {"partNumber": "1", "uploadId": uid}), 400, "BadDigest")
    eq(C.get(B, "n", {"uploadId": uid}).texts("Part/PartNumber"), ["10000"], "a spoilt part isn't there")
    eq(C.delete(B, "n", {"uploadId": uid}).status, 204, "abort")
    refused(C.delete(B, "n", {"uploadId": uid}), 404, "NoSuchUpload", "abort again")
    refused(C.get(B, "n", {"uploadId": uid}), 404, "NoSuchUpload")


@case
def a_part_can_be_sent_again():
    uid = create("again")
    old = upload("again", uid, 1, b"old").headers["ETag"]
    new = upload("again", uid, 1, b"new").headers["ETag"]
    refused(complete("again", uid, [(1, old)]), 400, "InvalidPart")
    eq(complete("again", uid, [(1, new)]).status, 200)
    eq(C.get(B, "again").body, b"new")


@case
def composite_checksums():
    a, b = block(1), b"tail"
    for kind, element, f in (("CRC32", "ChecksumCRC32", crc32), ("SHA256", "ChecksumSHA256", sha256)):
        name = f"x-amz-checksum-{kind.lower()}"
        uid = create(kind, {"x-amz-checksum-algorithm": kind})
        tags, sums = [], {}
        for n, d in ((1, a), (2, b)):
            r = upload(kind, uid, n, d, {name: f(d)})
            eq((r.status, r.headers[name]), (200, f(d)), f"part {n}: {r}")
            tags.append((n, r.headers["ETag"]))
            sums[n] = (element, f(d))
        wrong = "x-amz-checksum-crc32c" if kind == "CRC32" else "x-amz-checksum-crc32"
        refused(upload(kind, uid, 3, b, {wrong: checksum(wrong[15:].upper(), b)}), 400, "InvalidRequest", "another algorithm")
        r = upload(kind, uid, 3, b)
        refused(r, 400, "InvalidRequest", "no checksum")
        eq(r.xml().findtext("Message"), f"Checksum Type mismatch occurred, expected checksum Type: {kind}, actual checksum Type: null")
        r = C.get(B, kind, {"uploadId": uid})
        eq((r.texts("Part/" + element), r.xml().findtext("ChecksumAlgorithm"), r.xml().findtext("ChecksumType")), ([f(a), f(b)], kind, "COMPOSITE"), "ListParts")
        refused(complete(kind, uid, tags, sums={1: (element, f(b)), 2: (element, f(b))}), 400, "InvalidPart", "a part's checksum that is wrong")
        inner = checksum(kind, base64.b64decode(f(a)) + base64.b64decode(f(b)))
        refused(complete(kind, uid, tags, {name: checksum(kind, b"no") + "-2"}, sums), 400, "BadDigest", "the whole's checksum that is wrong")
        for some, missing in (({}, 1), ({1: sums[1]}, 2)):
            r = complete(kind, uid, tags, sums=some)
            refused(r, 400, "InvalidRequest", "a part without its checksum")
            true(f"created using a {kind.lower()} checksum" in r.xml().findtext("Message") and f"missing for part {missing} " in r.xml().findtext("Message"), str(r))
        r = complete(kind, uid, tags, {name: inner + "-2"}, sums)
        eq((r.status, r.xml().findtext(element), r.xml().findtext("ChecksumType")), (200, inner + "-2", "COMPOSITE"), f"{r}")
        r = C.head(B, kind, headers={"x-amz-checksum-mode": "ENABLED"})
        eq((r.headers[name], r.headers["x-amz-checksum-type"]), (inner + "-2", "COMPOSITE"))
        root = C.get(B, kind, {"attributes": ""}, {"x-amz-object-attributes": "ETag,Checksum,ObjectParts,StorageClass,ObjectSize"}).xml()
        eq((root.findtext("Checksum/" + element), root.findtext("ObjectParts/PartsCount"), root.findtext("ObjectSize"), root.findtext("StorageClass")),
           (inner + "-2", "2", str(PART + 4), "STANDARD"))
        eq([(p.findtext("PartNumber"), p.findtext("Size"), p.findtext(element)) for p in root.findall("ObjectParts/Part")],
           [("1", str(PART), f(a)), ("2", "4", f(b))], "each part")
        root = C.get(B, kind, {"attributes": ""}, {"x-amz-object-attributes": "ObjectParts", "x-amz-max-parts": "1"}).xml()
        eq((root.findtext("ObjectParts/IsTruncated"), root.findtext("ObjectParts/NextPartNumberMarker"), len(root.findall("ObjectParts/Part"))), ("true", "1", 1))


@case
def composite_checksums_of_copied_parts():
    """The server computes the checksum of a part that it copies, and names it in the answer: the completion repeats it."""
    C.put(B, "composite-source", b"source")
    uid = create("composite-copy", {"x-amz-checksum-algorithm": "SHA256"})
    r = C.put(B, "composite-copy", query={"partNumber": 1, "uploadId": uid}, headers={"x-amz-copy-source": f"/{B}/composite-source"})
    eq((r.status, r.xml().findtext("ChecksumSHA256")), (200, sha256(b"source")), str(r))
    parts = [(1, r.xml().findtext("ETag"))]
    refused(complete("composite-copy", uid, parts), 400, "InvalidRequest", "without")
    eq(complete("composite-copy", uid, parts, sums={1: ("ChecksumSHA256", sha256(b"source"))}).status, 200, "with it")


@case
def full_object_checksums():
    a, b = block(1), block(2, 1000)
    for kind, element in (("CRC32", "ChecksumCRC32"), ("CRC32C", "ChecksumCRC32C"), ("CRC64NVME", "ChecksumCRC64NVME")):
        small = PART if kind == "CRC32" else 0  # the others are slow to compute here: one part is enough to see them
        datas = [(1, a), (2, b)] if small else [(1, b)]
        name, key = f"x-amz-checksum-{kind.lower()}", "full-" + kind
        uid = create(key, {"x-amz-checksum-algorithm": kind, "x-amz-checksum-type": "FULL_OBJECT"})
        tags = [(n, upload(key, uid, n, d).headers["ETag"]) for n, d in datas]
        whole = b"".join(d for _, d in datas)
        want = crc32(whole) if kind == "CRC32" else checksum(kind, whole)
        refused(complete(key, uid, tags, {name: checksum(kind, b"no")}), 400, "BadDigest")
        r = complete(key, uid, tags, {name: want, "x-amz-checksum-type": "FULL_OBJECT"})
        eq((r.status, r.xml().findtext(element), r.xml().findtext("ChecksumType")), (200, want, "FULL_OBJECT"), f"{r}")
        eq(C.head(B, key, headers={"x-amz-checksum-mode": "ENABLED"}).headers[name], want)
    for alg, typ in (("SHA1", "FULL_OBJECT"), ("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE")):
        refused(C.post(B, "x", query={"uploads": ""}, headers={"x-amz-checksum-algorithm": alg, "x-amz-checksum-type": typ}), 400, "InvalidRequest", f"{alg} {typ}")
    refused(C.post(B, "x", query={"uploads": ""}, headers={"x-amz-checksum-type": "COMPOSITE"}), 400, "InvalidRequest", "a type alone")
    refused(C.post(B, "x", query={"uploads": ""}, headers={"x-amz-checksum-algorithm": "ADLER"}), 400, "InvalidRequest")


@case
def conditions_on_complete():
    def ready(key):
        uid = create(key)
        return uid, [(1, upload(key, uid, 1, b"mpu").headers["ETag"])]
    C.put(B, "cc", b"old")
    uid, parts = ready("cc")
    refused(complete("cc", uid, parts, {"If-None-Match": "*"}), 412, "PreconditionFailed")
    refused(complete("cc", uid, parts, {"If-Match": '"0"'}), 412, "PreconditionFailed")
    eq(C.get(B, "cc").body, b"old")
    eq(complete("cc", uid, parts, {"If-Match": C.head(B, "cc").headers["ETag"]}).status, 200, "the upload outlived the refusals")
    eq(C.get(B, "cc").body, b"mpu")
    uid, parts = ready("cc-new")
    refused(complete("cc-new", uid, parts, {"If-Match": '"0"'}), 404, "NoSuchKey")
    eq(complete("cc-new", uid, parts, {"If-None-Match": "*"}).status, 200)
    for rnd in range(5):
        key = f"race-{rnd}"
        todo = [ready(key) for _ in range(6)]
        out, barrier = [], threading.Barrier(6)

        def one(uid, parts):
            c = client()
            body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{t}</ETag></Part>" for n, t in parts)
            barrier.wait()
            out.append(c.post(B, key, f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(), {"uploadId": uid}, {"If-None-Match": "*"}).status)
        threads = [threading.Thread(target=one, args=t) for t in todo]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
        eq((out.count(200), set(out) <= {200, 409, 412}), (1, True), f"{out}")


@case
def parts_by_copy():
    src = bytes(range(256)) * (PART // 256 + 100)
    C.put(B, "src", src)
    uid = create("pc")

    def part(n, **h):
        return C.put(B, "pc", headers={"x-amz-copy-source": f"{B}/src", **{"x-amz-copy-source-" + k: v for k, v in h.items()}}, query={"partNumber": str(n), "uploadId": uid})
    r = part(1, range=f"bytes=0-{PART - 1}")
    eq((r.status, r.xml().findtext("ETag")), (200, f'"{hashlib.md5(src[:PART]).hexdigest()}"'), f"{r}")
    t1 = r.xml().findtext("ETag")
    t2 = part(2, range=f"bytes={PART}-{PART + 9}").xml().findtext("ETag")
    for bad in ("bytes=0-", "bytes=-5", "0-5", "bytes=5-0", "bytes=0-5,7-9", f"bytes=0-{len(src)}"):
        refused(part(3, range=bad), 400, "InvalidArgument", bad)
    refused(part(3, **{"if-match": '"0"'}), 412, "PreconditionFailed")
    refused(C.put(B, "pc", headers={"x-amz-copy-source": f"{B}/none"}, query={"partNumber": "3", "uploadId": uid}), 404, "NoSuchKey")
    eq(complete("pc", uid, [(1, t1), (2, t2)]).status, 200)
    eq(C.get(B, "pc").body == src[:PART + 10], True)


@case
def listings():
    b = C.new_bucket()
    keys = ["a", "a", "b/1", "b/2", "c d\u00e4"]
    ids = [(k, create(k, bucket=b)) for k in keys]
    r = C.get(b, query={"uploads": ""})
    eq(sorted(zip(r.texts("Upload/Key"), r.texts("Upload/UploadId"))), sorted(ids), "all")
    eq(r.texts("Upload/Key"), keys, "by key")
    for size in (1, 2, 3):
        seen, marks = [], {}
        while True:
            root = C.get(b, query={"uploads": "", "max-uploads": str(size), **marks}).xml()
            seen += [(u.findtext("Key"), u.findtext("UploadId")) for u in root.findall("Upload")]
            if root.findtext("IsTruncated") != "true":
                break
            marks = {"key-marker": root.findtext("NextKeyMarker"), "upload-id-marker": root.findtext("NextUploadIdMarker") or ""}
        eq(sorted(seen), sorted(ids), f"pages of {size}")
    seen, marks = [], {}
    while True:
        root = C.get(b, query={"uploads": "", "max-uploads": "1", "delimiter": "/", **marks}).xml()
        seen += root.findtext("Upload/Key") and [root.findtext("Upload/Key")] or [p.findtext("Prefix") for p in root.findall("CommonPrefixes")]
        if root.findtext("IsTruncated") != "true":
            break
        marks = {"key-marker": root.findtext("NextKeyMarker"), "upload-id-marker": root.findtext("NextUploadIdMarker") or ""}
    eq(seen, ["a", "a", "b/", "c d\u00e4"], "with a delimiter")
    eq(C.get(b, query={"uploads": "", "prefix": "b/"}).texts("Upload/Key"), ["b/1", "b/2"])
    eq(C.get(b, query={"uploads": "", "encoding-type": "url", "prefix": "c"}).texts("Upload/Key"), ["c%20d%C3%A4"])
    eq(C.get(b, query={"uploads": "", "key-marker": "a"}).texts("Upload/Key"), keys[2:], "a key marker alone: behind all of that key")
    refused(C.get(b, query={"uploads": "", "max-uploads": "-1"}), 400, "InvalidArgument")
    uid = create("p")
    for n in (1, 2, 5, 9):
        upload("p", uid, n, b"x" * n)
    root = C.get(B, "p", {"uploadId": uid, "max-parts": "2"}).xml()
    eq(([p.findtext("PartNumber") for p in root.findall("Part")], root.findtext("IsTruncated"), root.findtext("NextPartNumberMarker")), (["1", "2"], "true", "2"))
    root = C.get(B, "p", {"uploadId": uid, "max-parts": "2", "part-number-marker": "2"}).xml()
    eq(([(p.findtext("PartNumber"), p.findtext("Size")) for p in root.findall("Part")], root.findtext("IsTruncated")), ([("5", "5"), ("9", "9")], "false"))
    eq(C.delete(b).status, 204, "uploads that were never completed don't keep a bucket")
    true(C.get(b).status == 404, "it is gone")


main()
