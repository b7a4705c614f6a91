#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What botocore signs, in the forms that need more than a header over a plain body, verifies on a running server; and the same
with one part altered does not. Random keys (dots and double slashes too), version 2 URLs, chunk chains cut anywhere,
catalog requests as its clients sign them, POST forms.

TARN_ENDPOINT, TARN_ACCESS_KEY, TARN_SECRET_KEY, TARN_REGION (us-east-1); TARN_SEED repeats a run; TARN_ROUNDS (60).
"""
import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import random
import sys
import urllib.parse
import zlib

from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4PostAuth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ENDPOINT = os.environ["TARN_ENDPOINT"].rstrip("/")
HOST = urllib.parse.urlsplit(ENDPOINT).netloc
KEYS = Credentials(os.environ["TARN_ACCESS_KEY"], os.environ["TARN_SECRET_KEY"])
REGION = os.environ.get("TARN_REGION", "us-east-1")
SEED = int(os.environ.get("TARN_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("TARN_ROUNDS") or 60)
R = random.Random(SEED)
BUCKET = "sigv4-%08x" % R.randrange(1 << 32)
ALPHABET = [*map(chr, range(0x20, 0x7F)), *"äößéñ漢字仮名Б🌊", "\t", "\x01", "\x7f"]


class Wrong(Exception):
    pass


def raw(method, target, headers, body=b"", pieces=None):
    """The target goes out as it is; pieces cuts the body into several writes."""
    c = http.client.HTTPConnection(HOST, timeout=60)
    c.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for n, v in headers:
        c.putheader(n, v)
    c.endheaders()
    for part in pieces if pieces is not None else [body]:
        if part:
            c.send(part)
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, data


def expect(got, *statuses, what=""):
    if got[0] not in statuses:
        raise Wrong(f"{what}: {got[0]} {got[1][:300]!r}")
    return got[1]


def text(low, high):
    return "".join(R.choice(ALPHABET) for _ in range(R.randint(low, high)))


def key():
    parts = [R.choice((text(1, 12), text(1, 12), ".", "..", "")) for _ in range(R.randint(0, 4))]
    return "/".join(["k" + text(1, 8), *parts, text(1, 8) + "k"])


def quote(s):
    return urllib.parse.quote(s, safe="/-._~")


def with_host(request):
    return [("Host", HOST), *((n, v) for n, v in request.headers.items() if n.lower() != "host")]


def send(method, path, auth, query="", headers=None, body=b"", alter=None):
    """path already encoded; auth signs; alter may change (method, target, headers, body) afterwards."""
    request = AWSRequest(method, ENDPOINT + path + ("?" + query if query else ""), data=body, headers=headers or {})
    auth.add_auth(request)
    u = urllib.parse.urlsplit(request.url)
    target = u.path + ("?" + u.query if u.query else "")
    hs = with_host(request)
    if body or method in ("PUT", "POST"):
        hs = [(n, v) for n, v in hs if n.lower() != "content-length"] + [("Content-Length", str(len(body)))]
    if alter:
        method, target, hs, body = alter(method, target, hs, body)
    return raw(method, target, hs, body)


def v4():
    return S3SigV4Auth(KEYS, "s3", REGION)


def path_of(k):
    return f"/{BUCKET}/{quote(k)}"


# ---------------------------------------------------------------------------------------------------------------- keys
def random_keys():
    for _ in range(ROUNDS):
        k = key()
        body = R.randbytes(R.choice((0, 1, 900)))
        expect(send("PUT", path_of(k), v4(), body=body), 200, what=f"PUT {k!r}")
        if expect(send("GET", path_of(k), v4()), 200, what=f"GET {k!r}") != body:
            raise Wrong(f"GET {k!r}: another body")
        expect(send("DELETE", path_of(k), v4()), 204, what=f"DELETE {k!r}")


def presigned():
    for version in (lambda: S3SigV4QueryAuth(KEYS, "s3", REGION, expires=300), lambda: HmacV1QueryAuth(KEYS, expires=300)):
        for _ in range(ROUNDS // 2):
            k = key()
            query = R.choice(("", "response-content-type=" + quote(R.choice(("text/x-a", "a/b c"))), "response-cache-control=no-store"))
            body = R.randbytes(30)
            expect(send("PUT", path_of(k), v4(), body=body), 200, what=f"PUT {k!r}")
            if expect(send("GET", path_of(k), version(), query), 200, what=f"presigned GET {k!r} {query}") != body:
                raise Wrong(f"presigned GET {k!r}: another body")
            alter = R.choice((lambda m, t, h, b: ("DELETE", t, h, b), lambda m, t, h, b: (m, t + "&acl", h, b), lambda m, t, h, b: (m, t + "&retention", h, b),
                              lambda m, t, h, b: (m, t.replace("k?", "j?", 1), h, b), lambda m, t, h, b: (m, t, h + [("x-amz-acl", "public-read")], b),
                              lambda m, t, h, b: (m, t.replace("Expires=", "Expires=1", 1), h, b)))
            expect(send("GET", path_of(k), version(), query, alter=alter), 400, 403, what=f"altered presigned {k!r}")
            expect(send("GET", path_of(k), v4()), 200, what="it is still there")


# -------------------------------------------------------------------------------------------------------------- chunks
def mac(k, s):
    return hmac.new(k, s.encode(), hashlib.sha256).digest()


def chunked(mode, alter=False):
    """A PUT in a streaming form, cut into random chunks and random writes. Returns (answer, body, key)."""
    total = R.choice((0, 1, 8191, 8192, 70000, 200000))
    data = R.randbytes(total)
    k = "chunk-" + text(1, 6)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"x-amz-content-sha256": mode, "x-amz-decoded-content-length": str(total), "Content-Encoding": "aws-chunked"}
    trailing = mode.endswith("TRAILER")
    if trailing:
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    scope = f"{date[:8]}/{REGION}/s3/aws4_request"
    names = sorted(["host", "x-amz-date", *(n.lower() for n in headers)])
    values = {**{n.lower(): v for n, v in headers.items()}, "host": HOST, "x-amz-date": date}
    canonical = "\n".join(["PUT", path_of(k), "", *(f"{n}:{values[n]}" for n in names), "", ";".join(names), mode])
    signing = ("AWS4" + KEYS.secret_key).encode()
    for part in scope.split("/"):
        signing = mac(signing, part)
    previous = mac(signing, "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])).hex()
    headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={KEYS.access_key}/{scope}, SignedHeaders={';'.join(names)}, Signature={previous}"
    out = bytearray()
    at = 0
    empty = hashlib.sha256(b"").hexdigest()
    while True:
        left = total - at
        n = min(left, R.choice((8192, 10000, 65536, left)))
        part = data[at:at + n]
        at += n
        if "HMAC" in mode:
            previous = mac(signing, "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", date, scope, previous, empty, hashlib.sha256(part).hexdigest()])).hex()
            out += b"%x;chunk-signature=%s\r\n" % (n, previous.encode())
        else:
            out += b"%x\r\n" % n
        if n == 0:
            break
        out += part + b"\r\n"
    if trailing:
        line = "x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        out += line.encode() + b"\r\n"
        if "HMAC" in mode:
            sig = mac(signing, "\n".join(["AWS4-HMAC-SHA256-TRAILER", date, scope, previous, hashlib.sha256((line + "\n").encode()).hexdigest()])).hex()
            out += b"x-amz-trailer-signature:" + sig.encode() + b"\r\n"
    out += b"\r\n"
    if alter and total > 0:
        spot = out.index(data) if total <= 8192 else out.index(data[:8192])
        out[spot + R.randrange(min(total, 8192))] ^= 1 << R.randrange(8)
    cuts = sorted(R.randrange(len(out) + 1) for _ in range(R.randint(0, 5)))
    pieces = [bytes(out[a:b]) for a, b in zip([0, *cuts], [*cuts, len(out)])]
    hs = [("Host", HOST), ("x-amz-date", date), *headers.items(), ("Content-Length", str(len(out)))]
    return raw("PUT", path_of(k), hs, pieces=pieces), data, k


def chunk_chains():
    modes = ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    for i in range(ROUNDS):
        mode = modes[i % 3]
        got, data, k = chunked(mode)
        expect(got, 200, what=f"{mode} of {len(data)} bytes")
        if expect(send("GET", path_of(k), v4()), 200, what=f"GET after {mode}") != data:
            raise Wrong(f"{mode}: another body of {len(data)} bytes")
        expect(send("DELETE", path_of(k), v4()), 204, what="DELETE")
        got, data, k = chunked(mode, alter=True)
        if data:
            expect(got, 400, 403, what=f"altered {mode}")
            expect(send("GET", path_of(k), v4()), 404, what=f"nothing after an altered {mode}")


# ------------------------------------------------------------------------------------------------------------- catalog
class Base64Hash(SigV4Auth):
    """The Java client: base64 of the hash in the header, hex in the canonical request."""

    def _modify_request_before_signing(self, request):
        super()._modify_request_before_signing(request)
        request.headers["x-amz-content-sha256"] = base64.b64encode(hashlib.sha256(request.body or b"").digest()).decode()

    def payload(self, request):
        return hashlib.sha256(request.body or b"").hexdigest()

    def canonical_request(self, request):
        keep = request.headers.get("x-amz-content-sha256")
        c = super().canonical_request(request)
        return c.rsplit("\n", 1)[0] + "\n" + self.payload(request) if keep else c


def catalog():
    for i in range(ROUNDS):
        signer = R.choice((SigV4Auth, Base64Hash))(KEYS, R.choice(("s3tables", "s3", "execute-api", "glue")), R.choice((REGION, "mars-1", "x")))
        name = "".join(R.choice("abcXYZ019_-.~ äé漢%+&=\x1f") for _ in range(R.randint(1, 10))).strip(".") or "n"
        path = f"/_iceberg/v1/{BUCKET}/namespaces/" + urllib.parse.quote(name, safe="-._~")
        if i % 2:
            body = json.dumps({"removals": [], "updates": {"k": text(0, 9)}}).encode()
            path, method = path + "/properties", "POST"
        else:
            body, method = b"", "GET"
        expect(send(method, path, signer, headers={"Content-Type": "application/json"}, body=body), 404, what=f"{method} {name!r} {type(signer).__name__}")
        if body:
            changed = send(method, path, signer, headers={"Content-Type": "application/json"}, body=body, alter=lambda m, t, h, b: (m, t, h, b[:-1] + b" "))
            expect(changed, 400, 401, 403, what=f"another body for {name!r}")
            if b"NotAuthorized" not in changed[1] and b"BadRequest" not in changed[1]:
                raise Wrong(f"another body for {name!r}: {changed}")


def catalog_queries():
    """A client that signs a dict of its parameters: blank ones and repeats are on the wire only."""
    for _ in range(ROUNDS):
        query = [("pageSize", str(R.randint(1, 9))), ("pageToken", ""), ("parent", R.choice(("", "a b", "ä")))]
        R.shuffle(query)
        wire = urllib.parse.urlencode(query)
        signed = urllib.parse.urlencode(dict(urllib.parse.parse_qsl(wire)), quote_via=urllib.parse.quote)
        got = send("GET", f"/_iceberg/v1/{BUCKET}/namespaces", SigV4Auth(KEYS, "s3tables", REGION), signed,
                   alter=lambda m, t, h, b: (m, t.split("?")[0] + "?" + wire, h, b))
        expect(got, 404, what=f"signed {signed}, sent {wire}")


# --------------------------------------------------------------------------------------------------------------- forms
def forms():
    for _ in range(ROUNDS // 2):
        k, value, data = "form-" + text(1, 8).replace('"', "").replace("$", ""), text(0, 9).strip() or "v", R.randbytes(R.randint(0, 500))
        k = "".join(c for c in k if c >= " " and c != "\x7f")
        value = "".join(c for c in value if " " <= c < "\x7f") or "v"
        request = AWSRequest("POST", f"{ENDPOINT}/{BUCKET}")
        request.context["s3-presign-post-fields"] = {"key": k, "x-amz-meta-a": value}
        expires = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        request.context["s3-presign-post-policy"] = {"expiration": expires, "conditions": [{"bucket": BUCKET}, ["starts-with", "$key", "form-"], {"x-amz-meta-a": value}]}
        S3SigV4PostAuth(KEYS, "s3", REGION).add_auth(request)
        fields = dict(request.context["s3-presign-post-fields"])
        for good in (True, False):
            if not good:
                what = R.choice(("key", "x-amz-meta-a", "x-amz-signature", "policy", "x-amz-date"))
                fields[what] = "x" + fields[what][1:] if fields[what][0] != "x" else "y" + fields[what][1:]
            b = "----form%08x" % R.randrange(1 << 32)
            body = b"".join(f'--{b}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n'.encode() for n, v in fields.items())
            body += f'--{b}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'.encode() + data + f"\r\n--{b}--\r\n".encode()
            got = raw("POST", f"/{BUCKET}", [("Host", HOST), ("Content-Type", f"multipart/form-data; boundary={b}"), ("Content-Length", str(len(body)))], body)
            expect(got, *((200, 201, 204) if good else (400, 403)), what=f"form {k!r}, {'good' if good else what + ' altered'}")
            if good and expect(send("GET", path_of(k), v4()), 200, what=f"GET {k!r}") != data:
                raise Wrong(f"form {k!r}: another body")


def clean():
    for _ in range(20):
        body = expect(send("GET", f"/{BUCKET}", v4(), "encoding-type=url&list-type=2"), 200, what="list")
        found = body.split(b"<Key>")[1:]
        for part in found:
            expect(send("DELETE", f"/{BUCKET}/" + part.split(b"</Key>")[0].decode().replace("+", "%20"), v4()), 204, what="clean")
        if not found:
            break
    expect(send("DELETE", f"/{BUCKET}", v4()), 204, what="delete the bucket")


def main():
    print(f"# seed {SEED}")
    failed = 0
    expect(send("PUT", f"/{BUCKET}", v4()), 200, what="create the bucket")
    for f in (random_keys, presigned, chunk_chains, catalog, catalog_queries, forms, clean):
        try:
            f()
            print("ok", f.__name__)
        except Wrong as e:
            failed += 1
            print("FAILED", f.__name__, e)
    sys.exit(1 if failed else 0)


main()
