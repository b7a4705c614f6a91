# SPDX-License-Identifier: Apache-2.0
"""Random keys, queries and headers, signed by botocore, verify; and what comes back is what was sent."""
import http.client
import os
import random
import urllib.parse

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from steps import ACCESS, ENDPOINT, HOST, REGION, SECRET, main, same, step, unique

SEED = int(os.environ.get("TARN_SEED") or random.randrange(1 << 32))
R = random.Random(SEED)
print(f"# seed {SEED}")
KEYS = Credentials(ACCESS, SECRET)
BUCKET = unique("prop")
ALPHABET = [*map(chr, range(0x20, 0x7F)), *"äöüßéñ漢字仮名अБ🌊🧊\u00a0\u200b", "\t", "\n", "\r", "\x01", "\x7f"]


def words(low, high):
    return "".join(R.choice(ALPHABET) for _ in range(R.randint(low, high)))


def key():
    """A key of S3: at most 1,024 bytes of UTF-8. No '.' or '..' segment: clients fold those before they sign."""
    while True:
        k = "/".join(words(1, 20) for _ in range(R.randint(1, 4)))
        if len(k.encode()) <= 1024 and not {".", "..", ""} & set(k.split("/")):
            return k


def send(method, path, query, headers, body, auth):
    encoded = urllib.parse.quote(path, safe="/-._~")
    url = ENDPOINT + encoded + ("?" + "&".join(f"{urllib.parse.quote(n, safe='-._~')}={urllib.parse.quote(v, safe='-._~')}" for n, v in query) if query else "")
    request = AWSRequest(method, url, data=body, headers=headers)
    auth.add_auth(request)
    parts = urllib.parse.urlsplit(request.url)
    c = http.client.HTTPConnection(HOST, timeout=60)
    c.request(method, parts.path + ("?" + parts.query if parts.query else ""), body, dict(request.headers.items()))
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, r.headers, data


def s3(method, path, query=(), headers=None, body=b""):
    return send(method, path, list(query), dict(headers or {}), body, S3SigV4Auth(KEYS, "s3", REGION))


@step
def bucket():
    same(s3("PUT", "/" + BUCKET)[0], 200, "create")


@step
def random_keys():
    for i in range(150):
        k, body = key(), R.randbytes(R.choice((0, 1, 100, 20000)))
        status, _, data = s3("PUT", f"/{BUCKET}/{k}", body=body)
        same(status, 200, f"PUT {k!r}: {data[:200]!r}")
        status, _, data = s3("GET", f"/{BUCKET}/{k}")
        same((status, data == body), (200, True), f"GET {k!r}")
        if i % 5 == 0:
            status, _, data = send("GET", f"/{BUCKET}/{k}", [], {}, b"", S3SigV4QueryAuth(KEYS, "s3", REGION, expires=60))
            same((status, data == body), (200, True), f"presigned GET {k!r}: {data[:200]!r}")
        same(s3("DELETE", f"/{BUCKET}/{k}")[0], 204, f"DELETE {k!r}")


@step
def random_queries():
    """Parameters in any order and with any text: those that the API does not know do not change the answer."""
    for _ in range(80):
        query = [("list-type", "2"), ("prefix", words(0, 12)), ("delimiter", R.choice(("", "/", words(1, 2)))), ("start-after", words(0, 6)), ("max-keys", str(R.randint(0, 5)))]
        query += [("x-" + urllib.parse.quote(words(1, 5), safe=""), words(0, 10)) for _ in range(R.randint(0, 3))]
        R.shuffle(query)
        query = [(n, v) for n, v in query if n != "delimiter" or v] + [("encoding-type", "url")]
        status, _, data = s3("GET", f"/{BUCKET}", query)
        same(status, 200, f"{query}: {data[:300]!r}")


@step
def random_headers():
    for _ in range(60):
        meta = {f"x-amz-meta-{R.choice('abcxyz')}{i}": R.choice(("", " lead", "tail ", "in  side", "tab\tbed", words(1, 15).encode("ascii", "ignore").decode()
                                                                .translate({n: None for n in (1, 9, 10, 13, 127)}).strip() or "x")) for i in range(R.randint(0, 6))}
        status, _, data = s3("PUT", f"/{BUCKET}/meta", headers={**meta, "Content-Type": "text/" + R.choice("abc")}, body=b"m")
        same(status, 200, f"{meta}: {data[:300]!r}")
        status, got, _ = s3("HEAD", f"/{BUCKET}/meta")
        same({n.lower(): " ".join(v.split()) for n, v in got.items() if n.lower().startswith("x-amz-meta-")}, {n: " ".join(v.split()) for n, v in meta.items()}, "metadata")


@step
def random_catalog_paths():
    """The catalog's signatures are made by a signer that normalises and encodes twice; names with any letter must verify."""
    for _ in range(60):
        name = "".join(R.choice("abcXYZ019_-. ~äé漢%+&=") for _ in range(R.randint(1, 12))).strip(".") or "n"
        path = "/_iceberg/v1/warehouses/" + urllib.parse.quote(name, safe="-._~")
        request = AWSRequest("GET", ENDPOINT + path)
        SigV4Auth(KEYS, R.choice(("s3tables", "s3", "execute-api")), R.choice((REGION, "local", "eu-west-9"))).add_auth(request)
        c = http.client.HTTPConnection(HOST, timeout=60)
        c.request("GET", path, headers=dict(request.headers.items()))
        r = c.getresponse()
        data = r.read()
        c.close()
        same(r.status in (400, 404), True, f"{name!r}: {r.status} {data[:200]!r}")


@step
def one_changed_letter_fails():
    for _ in range(60):
        request = AWSRequest("PUT", f"{ENDPOINT}/{BUCKET}/tampered", data=b"body", headers={"x-amz-meta-a": "b"})
        S3SigV4Auth(KEYS, "s3", REGION).add_auth(request)
        headers = dict(request.headers.items())
        target, body = f"/{BUCKET}/tampered", b"body"
        what = R.choice(("path", "query", "header", "body", "signature", "date"))
        if what == "path":
            target += "x"
        elif what == "query":
            target += "?tagging"
        elif what == "header":
            headers["x-amz-meta-a"] = "c"
        elif what == "body":
            body = b"bodx"
        elif what == "signature":
            at = len(headers["Authorization"]) - R.randint(1, 64)
            old = headers["Authorization"][at]
            headers["Authorization"] = headers["Authorization"][:at] + ("0" if old != "0" else "1") + headers["Authorization"][at + 1:]
        else:
            headers["X-Amz-Date"] = headers["X-Amz-Date"][:-2] + ("0Z" if headers["X-Amz-Date"][-2] != "0" else "1Z")
        c = http.client.HTTPConnection(HOST, timeout=60)
        c.request("PUT", target, body, headers)
        r = c.getresponse()
        data = r.read()
        c.close()
        same(r.status in (400, 403), True, f"{what}: {r.status} {data[:200]!r}")
    same(s3("HEAD", f"/{BUCKET}/tampered")[0], 404, "nothing was written")


main()
