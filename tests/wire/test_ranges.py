# SPDX-License-Identifier: Apache-2.0
# drives: 6
"""Random byte ranges equal slices of what was written, for objects of every storage class and on both sides of a block."""
import hashlib

from tarnwire import case, client, eq, main, refused, rng, true, unique

C = client()
R = rng()
SIZES = [1, 2, 4095, 16384, 16385, 131072, 262145, 1048575, 1048576, 1048577, 2097152, 4194305, 9 * 1048576 + 11]
OBJECTS = {}
B = None


@case
def written():
    global B
    B = C.new_bucket()
    for size in SIZES:
        data = OBJECTS[f"o{size}"] = R.randbytes(size)
        eq(C.put(B, f"o{size}", data).headers["ETag"], f'"{hashlib.md5(data).hexdigest()}"', f"ETag of {size} bytes")
    u = C.post(B, "parts", query={"uploads": ""})
    upload = u.xml().findtext("UploadId")
    parts, body = [R.randbytes(5 * 1048576), R.randbytes(6 * 1048576 + 13), R.randbytes(77)], ""
    for n, p in enumerate(parts, 1):
        etag = C.put(B, "parts", p, query={"partNumber": n, "uploadId": upload}).headers["ETag"]
        body += f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"
    r = C.post(B, "parts", f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(), {"uploadId": upload})
    eq(r.status, 200, f"complete: {r}")
    OBJECTS["parts"] = b"".join(parts)


@case
def whole():
    for key, data in OBJECTS.items():
        r = C.get(B, key)
        true(r.body == data, f"GET of {key} is what was written ({len(r.body)} of {len(data)} bytes)")
        eq(C.head(B, key).headers["Content-Length"], str(len(data)), f"HEAD of {key}")


@case
def slices():
    for key, data in OBJECTS.items():
        n = len(data)
        marks = sorted({0, n - 1, *(m for b in range(0, n, 1048576) for m in (b - 1, b, b + 1) if 0 <= m < n)})
        for _ in range(25):
            first = R.choice(marks) if R.random() < 0.5 else R.randrange(n)
            last = R.choice(marks) if R.random() < 0.5 else R.randrange(n)
            first, last = min(first, last), max(first, last)
            if last - first > 3_000_000 and R.random() < 0.7:
                last = first + R.randrange(3_000_000)
            form = R.choice(("closed", "open", "suffix", "past"))
            if form == "closed":
                text, want = f"bytes={first}-{last}", data[first:last + 1]
            elif form == "open":
                text, want = f"bytes={first}-", data[first:]
            elif form == "suffix":
                text, want = f"bytes=-{n - first}", data[first:]
            else:
                text, want = f"bytes={first}-{n + R.randrange(10 ** 9)}", data[first:]
            r = C.get(B, key, headers={"Range": text})
            eq((r.status, len(r.body)), (206, len(want)), f"{text} of {key}")
            true(r.body == want, f"the bytes of {text} of {key}")
            start = n - len(want) if form != "closed" else first
            eq(r.headers["Content-Range"], f"bytes {start}-{start + len(want) - 1}/{n}", f"Content-Range of {text} of {key}")


@case
def outside():
    for key, data in OBJECTS.items():
        refused(C.get(B, key, headers={"Range": f"bytes={len(data)}-"}), 416, "InvalidRange", f"behind the end of {key}")
        refused(C.get(B, key, headers={"Range": "bytes=-0"}), 416, "InvalidRange", f"an empty suffix of {key}")
    r = C.get(B, "o4095", headers={"Range": "bytes=9-3"})
    eq((r.status, len(r.body)), (200, 4095), "a range that is none is left out of account")
    C.put(B, "empty", b"")
    refused(C.get(B, "empty", headers={"Range": "bytes=0-0"}), 416, "InvalidRange", "of an empty object")
    refused(C.get(B, unique(), headers={"Range": "bytes=0-0"}), 404, "NoSuchKey")


main()
