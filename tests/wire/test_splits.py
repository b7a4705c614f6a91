# SPDX-License-Identifier: Apache-2.0
"""However the bytes of a request are cut into packets, the answer is the one that the whole gets in a single write."""
import re
import socket
import time

from tarnwire import STREAM_TRAILER, Failed, case, chunk_chain, checksum, client, eq, main, quote, rng, sha256_hex

C = client()
R = rng()
B = C.new_bucket()
SEEN = re.compile(rb"(?im)^(date|x-amz-request-id|x-amz-id-2|last-modified|server-timing): [^\r]*\r\n|<RequestId>[^<]*</RequestId>|<HostId>[^<]*</HostId>|"
                  rb"<LastModified>[^<]*</LastModified>|<CreationDate>[^<]*</CreationDate>|<UploadId>[^<]*</UploadId>|x-amz-version-id: [^\r]*\r\n|"
                  rb"<ServerTime>[^<]*</ServerTime>|<RequestTime>[^<]*</RequestTime>")


def wire(method, path, query=None, headers=None, body=b"", service="s3", payload=None, close=True):
    target = quote(path)
    out, seed = C.signed_headers(method, target, query, headers, body, service, payload)
    q = "&".join(f"{quote(n, '')}={quote(v, '')}" for n, v in (query or {}).items())
    lines = [f"{method} {target}{'?' + q if q else ''} HTTP/1.1", *(f"{n}: {v}" for n, v in out)]
    return lines, seed, close


def bytes_of(lines, body, close):
    if body or lines[0].startswith(("PUT", "POST")):
        lines = lines + [f"Content-Length: {len(body)}"]
    if close:
        lines = lines + ["Connection: close"]
    return "\r\n".join(lines + ["", ""]).encode() + body


def simple(method, path, query=None, headers=None, body=b"", **more):
    lines, _, close = wire(method, path, query, headers, body, **more)
    return bytes_of(lines, body, close)


def answer(pieces):
    with C.socket(20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i, p in enumerate(pieces):
            try:
                s.sendall(p)
            except (BrokenPipeError, ConnectionResetError):
                break  # it has answered already, and closed
            if i % 7 == 6 or len(pieces) < 12:
                time.sleep(0.002)
        out = []
        while True:
            try:
                data = s.recv(65536)
            except ConnectionResetError:
                break
            except socket.timeout:
                raise Failed(f"no end of the answer after {b''.join(out)[:200]!r}") from None
            if not data:
                return SEEN.sub(b"", b"".join(out))
            out.append(data)
        return SEEN.sub(b"", b"".join(out))


def cut(data, n):
    marks = sorted(R.sample(range(1, len(data)), min(n, len(data) - 1)))
    return [data[a:b] for a, b in zip([0, *marks], [*marks, len(data)])]


def same_however_cut(name, data, rounds=6):
    want = answer([data])
    eq(want[:5], b"HTTP/", f"{name}: an answer")
    for n in [1, 2, 3, 9, 40][:rounds]:
        got = answer(cut(data, n))
        if got != want:
            raise Failed(f"{name} in {n + 1} pieces: {got[:300]!r} instead of {want[:300]!r}")
    small = data[:1500]
    got = answer([small[i:i + 1] for i in range(len(small))] + ([data[1500:]] if len(data) > 1500 else []))
    eq(got == want, True, f"{name} byte by byte: {got[:300]!r} instead of {want[:300]!r}")


@case
def plain_requests():
    C.put(B, "there", b"content of it" * 100)
    for name, data in {
        "GET": simple("GET", f"/{B}/there"),
        "HEAD": simple("HEAD", f"/{B}/there"),
        "a listing": simple("GET", f"/{B}", {"list-type": "2", "prefix": "th", "max-keys": "2"}),
        "an absent key": simple("GET", f"/{B}/not there"),
        "a catalog error": simple("GET", "/_iceberg/v1/warehouses/absent-warehouse", service="s3tables"),
        "no signature": b"GET /%b/there HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (B.encode(), C.netloc.encode()),
    }.items():
        same_however_cut(name, data)


@case
def uploads():
    for size in (0, 1, 5000, 70000, 1_200_000):
        body = R.randbytes(size)
        same_however_cut(f"PUT of {size} bytes", simple("PUT", f"/{B}/put-{size}", body=body))
        eq(C.get(B, f"put-{size}").body == body, True, f"what {size} bytes became")
    wrong = simple("PUT", f"/{B}/wrong", headers={"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, body=b"x" * 3000)
    same_however_cut("a wrong digest", wrong)


@case
def chunk_chains():
    for chunks in ([b"a" * 8192, b"b" * 8192, b"c"], [b"x" * 70001], []):
        data = b"".join(chunks)
        lines, (signer, seed), close = wire("PUT", f"/{B}/chunked", headers={"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": str(len(data)),
                                                                            "x-amz-trailer": "x-amz-checksum-crc32"}, payload=STREAM_TRAILER)
        body = chunk_chain(signer, seed, chunks, [("x-amz-checksum-crc32", checksum("CRC32", data))])
        same_however_cut(f"a chain of {len(chunks)} chunks", bytes_of(lines, body, close))
        eq(C.get(B, "chunked").body == data, True, "what the chain became")
        spoilt = bytearray(body)
        spoilt[len(body) // 2] ^= 1
        same_however_cut("a spoilt chain", bytes_of(lines, bytes(spoilt), close), 3)


@case
def pipelined():
    one = simple("GET", f"/{B}/there", close=False)
    last = simple("GET", f"/{B}/there")
    want = answer([one + one + last])
    eq(want.count(b"HTTP/1.1 200"), 3, "three answers to three requests in one write")
    for n in (1, 2, 5, 30):
        eq(answer(cut(one + one + last, n)) == want, True, f"three requests in {n + 1} pieces")


@case
def catalog_post():
    w = C.new_warehouse()
    p = C.catalog_prefix(w)
    body = b'{"namespace": ["split", "\xc3\xa9t\xc3\xa9"], "properties": {"a": "b"}}'
    data = simple("POST", f"/_iceberg{p}/namespaces", headers={"Content-Type": "application/json"}, body=body, service="s3tables", payload=sha256_hex(body))
    answer([data])  # the first makes it or says why not; from then on every answer is the same
    same_however_cut("a namespace that is there", data, 3)


main()
