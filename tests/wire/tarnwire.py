# SPDX-License-Identifier: Apache-2.0
"""What the wire tests share: an HTTP client that signs, raw sockets, a daemon of one's own, and cases with results.

Standard library only, so that a wire test runs wherever Python does. Nothing here retries or corrects: what a test
asks for is what goes over the wire.

A wire test is a program tests/wire/test_NAME.py:

    from tarnwire import case, client, eq, main

    @case
    def put_then_get():
        c = client()
        b = c.new_bucket()
        eq(c.put(b, "k", b"v").status, 200)
        eq(c.get(b, "k").body, b"v")

    main()

The runner gives it a daemon (TARN_ENDPOINT); comments among its first 20 lines may say `# drives: 4`, `# env: A=B C=D`,
or `# daemon: own` for a test that starts its daemons itself with Daemon(). Each case prints one line, `ok NAME secs`,
`FAILED NAME: reason` or `skipped NAME: why`; exit status 1 after a failure, 77 when everything was skipped.
"""
import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse
import xml.etree.ElementTree as ElementTree

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
STREAM = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAM_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAM_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

ENDPOINT = os.environ.get("TARN_ENDPOINT", "http://127.0.0.1:9000").rstrip("/")
ACCESS = os.environ.get("TARN_ACCESS_KEY", "minioadmin")
SECRET = os.environ.get("TARN_SECRET_KEY", "minioadmin")
REGION = os.environ.get("TARN_REGION", "us-east-1")
BINARY = os.environ.get("TARN_BIN", "")


# ---------------------------------------------------------------------------------------------- signing
def quote(text, safe="/"):
    """Percent-encodes as S3 does: everything but letters, digits, '-._~' and what is in safe."""
    return urllib.parse.quote(text, safe=safe + "-._~")


def pairs(query):
    """A query as a list of (name, value) of text, from a dict, a list of pairs or names, or None."""
    if query is None:
        return []
    items = query.items() if isinstance(query, dict) else query
    return [(i, "") if isinstance(i, str) else (str(i[0]), "" if i[1] is None else str(i[1])) for i in items]


def wire_query(query):
    return "&".join(f"{quote(n, '')}={quote(v, '')}" for n, v in pairs(query))


def utc(at=None):
    return (at or datetime.datetime.now(datetime.timezone.utc)).strftime("%Y%m%dT%H%M%SZ")


def hmac_sha256(key, text):
    return hmac.new(key, text.encode() if isinstance(text, str) else text, hashlib.sha256)


class Signer:
    """The signatures of one secret for one day, region and service."""

    def __init__(self, access, secret, region="us-east-1", service="s3", at=None):
        self.access, self.time = access, utc(at)
        self.scope = "/".join((self.time[:8], region, service, "aws4_request"))
        key = ("AWS4" + secret).encode()
        for part in self.scope.split("/"):
            key = hmac_sha256(key, part).digest()
        self.key = key

    def of_string(self, text):
        return hmac_sha256(self.key, text).hexdigest()

    def of_request(self, method, canonical_path, query, headers, names, payload_hash):
        """headers: pairs as they are sent; names: the lower-case names that are signed, sorted."""
        values = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(" ".join(str(value).split()))
        canonical_query = "&".join(f"{n}={v}" for n, v in sorted((quote(n, ""), quote(v, "")) for n, v in pairs(query)))
        lines = "".join(f"{n}:{','.join(values.get(n, ['']))}\n" for n in names)
        request = "\n".join((method, canonical_path, canonical_query, lines, ";".join(names), payload_hash))
        return self.of_string("\n".join(("AWS4-HMAC-SHA256", self.time, self.scope, sha256_hex(request))))

    def of_chunk(self, previous, data):
        return self.of_string("\n".join(
            ("AWS4-HMAC-SHA256-PAYLOAD", self.time, self.scope, previous, EMPTY_SHA256, sha256_hex(data))))

    def of_trailer(self, previous, text):
        return self.of_string("\n".join(("AWS4-HMAC-SHA256-TRAILER", self.time, self.scope, previous, sha256_hex(text))))


def sha256_hex(data):
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def md5_base64(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def _crc_table(polynomial, width):
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        table.append(value & ((1 << width) - 1))
    return table


_CRCS = {"CRC32": (0xEDB88320, 32), "CRC32C": (0x82F63B78, 32), "CRC64NVME": (0x9A6C9329AC4BC9B5, 64)}


def checksum(kind, data):
    """The value of x-amz-checksum-KIND for data: CRC32, CRC32C, CRC64NVME, SHA1 or SHA256."""
    kind = kind.upper()
    if kind in ("SHA1", "SHA256"):
        return base64.b64encode(hashlib.new(kind.lower(), data).digest()).decode()
    polynomial, width = _CRCS[kind]
    table, mask = _crc_table(polynomial, width), (1 << width) - 1
    value = mask
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return base64.b64encode((value ^ mask).to_bytes(width // 8, "big")).decode()


# ---------------------------------------------------------------------------------------------- answers
class Answer:
    """An answer as it came: status, headers (http.client.HTTPMessage: case does not count), body."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def xml(self):
        """The root element with namespaces taken off, for find(), findall() and findtext()."""
        root = ElementTree.fromstring(self.body)
        for element in root.iter():
            element.tag = element.tag.rsplit("}", 1)[-1]
        return root

    def texts(self, path):
        return [e.text or "" for e in self.xml().findall(path)]

    @property
    def code(self):
        """The error's code (S3 XML) or type (Iceberg JSON); None where the answer is no error document."""
        try:
            if self.body[:1] == b"{":
                return self.json()["error"]["type"]
            root = self.xml()
            return root.findtext("Code") if root.tag == "Error" else None
        except (ValueError, KeyError, TypeError, ElementTree.ParseError):
            return None

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


# ---------------------------------------------------------------------------------------------- client
class Client:
    """Speaks to one endpoint with one pair of keys over one kept-alive connection. Not for several threads at once."""

    def __init__(self, endpoint=None, access=ACCESS, secret=SECRET, region=REGION, timeout=60):
        url = urllib.parse.urlsplit(endpoint or ENDPOINT)
        self.host, self.port, self.netloc = url.hostname, url.port or 80, url.netloc
        self.access, self.secret, self.region, self.timeout = access, secret, region, timeout
        self._connection = None

    def close(self):
        if self._connection:
            self._connection.close()
            self._connection = None

    def signed_headers(self, method, path, query=None, headers=None, body=b"", service="s3", payload=None, unsigned=(),
                       at=None):
        """The headers of a signed request as pairs, and (signer, signature) for what follows it. path is encoded."""
        signer = Signer(self.access, self.secret, self.region, service, at)
        out = [(n, v) for n, v in pairs(headers)]
        have = {n.lower() for n, _ in out}
        payload = payload or sha256_hex(body)
        for name, value in (("Host", self.netloc), ("x-amz-date", signer.time), ("x-amz-content-sha256", payload)):
            if name.lower() not in have:
                out.append((name, value))
        names = sorted({n.lower() for n, _ in out if n.lower() in ("host", "content-type", "content-md5")
                        or n.lower().startswith("x-amz-")} - {n.lower() for n in unsigned})
        # Only S3 signs the path as it is sent; every other service encodes it a second time.
        canonical = path if service == "s3" else quote(path)
        signature = signer.of_request(method, canonical, query, out, names, payload)
        out.append(("Authorization", f"AWS4-HMAC-SHA256 Credential={self.access}/{signer.scope}, "
                                     f"SignedHeaders={';'.join(names)}, Signature={signature}"))
        return out, (signer, signature)

    def request(self, method, path, query=None, headers=None, body=b"", sign=True, service="s3", payload=None,
                encoded=False, unsigned=(), at=None):
        """One exchange. path: '/bucket/key', unencoded unless encoded=True. payload: the value of x-amz-content-sha256
        instead of the body's hash. unsigned: header names left out of the signature. sign=False: an anonymous request."""
        target = path if encoded else quote(path)
        if sign:
            out, _ = self.signed_headers(method, target, query, headers, body, service, payload, unsigned, at)
        else:
            out = pairs(headers)
            if "host" not in {n.lower() for n, _ in out}:
                out.append(("Host", self.netloc))
        return self.exchange(method, target + ("?" + wire_query(query) if pairs(query) else ""), out, body)

    def exchange(self, method, target, headers, body=b""):
        """Sends exactly these headers (and a Content-Length where there is a body) and reads the answer."""
        fresh = self._connection is None
        try:
            return self._once(method, target, headers, body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if fresh:
                raise
            # The server closed the idle connection, which it may at any time: a new one, once.
            return self._once(method, target, headers, body)

    def _once(self, method, target, headers, body):
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        c = self._connection
        try:
            c.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            have = set()
            for name, value in headers:
                have.add(name.lower())
                c.putheader(name, value)
            if not have & {"content-length", "transfer-encoding"} and (body or method in ("PUT", "POST")):
                c.putheader("Content-Length", str(len(body)))
            c.endheaders(body or None)
            r = c.getresponse()
            data = r.read()
        except Exception:
            self.close()
            raise
        if r.will_close:
            self.close()
        return Answer(r.status, r.headers, data)

    # -- S3, the calls that most tests need
    def put(self, bucket, key, body=b"", headers=None, query=None, **more):
        return self.request("PUT", f"/{bucket}/{key}", query, headers, body, **more)

    def get(self, bucket, key="", query=None, headers=None, **more):
        return self.request("GET", f"/{bucket}/{key}" if key else f"/{bucket}", query, headers, **more)

    def head(self, bucket, key="", query=None, headers=None, **more):
        return self.request("HEAD", f"/{bucket}/{key}" if key else f"/{bucket}", query, headers, **more)

    def delete(self, bucket, key="", query=None, headers=None, **more):
        return self.request("DELETE", f"/{bucket}/{key}" if key else f"/{bucket}", query, headers, **more)

    def post(self, bucket, key="", body=b"", query=None, headers=None, **more):
        return self.request("POST", f"/{bucket}/{key}" if key else f"/{bucket}", query, headers, body, **more)

    def new_bucket(self, prefix="wire", headers=None):
        name = unique(prefix)
        answer = self.request("PUT", "/" + name, headers=headers)
        eq(answer.status, 200, f"creating bucket {name}: {answer}")
        return name

    def keys(self, bucket, **query):
        """All keys of a bucket by ListObjectsV2, page by page."""
        out, token = [], None
        for _ in range(100000):
            q = {"list-type": "2", **{k.replace("_", "-"): v for k, v in query.items()}}
            if token:
                q["continuation-token"] = token
            answer = self.get(bucket, query=q)
            eq(answer.status, 200, f"listing {bucket}: {answer}")
            root = answer.xml()
            out += [e.text for e in root.findall("Contents/Key")]
            token = root.findtext("NextContinuationToken")
            if root.findtext("IsTruncated") != "true":
                break
        return out

    # -- the catalog
    def catalog(self, method, path, document=None, query=None, headers=None, service="s3tables", **more):
        """path below /_iceberg, encoded as it is sent ('/v1/…'); document: what becomes the JSON body, or bytes."""
        body = b"" if document is None else document if isinstance(document, bytes) else json.dumps(document).encode()
        out = pairs(headers)
        if document is not None and "content-type" not in {n.lower() for n, _ in out}:
            out.append(("Content-Type", "application/json"))
        return self.request(method, "/_iceberg" + path, query, out, body, service=service, encoded=True, **more)

    def new_warehouse(self, prefix="wirewh"):
        name = unique(prefix)
        answer = self.catalog("POST", "/v1/warehouses", {"name": name})
        eq(answer.status, 200, f"creating warehouse {name}: {answer}")
        return name

    def catalog_prefix(self, warehouse):
        answer = self.catalog("GET", "/v1/config", query={"warehouse": warehouse})
        eq(answer.status, 200, f"config of {warehouse}: {answer}")
        doc = answer.json()
        prefix = doc["overrides"].get("prefix") or doc["defaults"].get("prefix")
        return "/v1/" + prefix if prefix else "/v1"

    # -- presigned URLs, forms, chunk chains
    def presign(self, method, path, query=None, expires=900, headers=None, service="s3", at=None, encoded=False):
        """The request target ('/path?query') of a presigned request. headers are those that are signed besides Host."""
        signer = Signer(self.access, self.secret, self.region, service, at)
        target = path if encoded else quote(path)
        all_headers = [("Host", self.netloc), *pairs(headers)]
        names = sorted({n.lower() for n, _ in all_headers})
        q = pairs(query) + [("X-Amz-Algorithm", "AWS4-HMAC-SHA256"), ("X-Amz-Credential", f"{self.access}/{signer.scope}"),
                            ("X-Amz-Date", signer.time), ("X-Amz-Expires", str(expires)),
                            ("X-Amz-SignedHeaders", ";".join(names))]
        q.append(("X-Amz-Signature", signer.of_request(method, target, q, all_headers, names, UNSIGNED)))
        return target + "?" + wire_query(q)

    def presigned(self, method, target, headers=None, body=b""):
        """Sends a target that presign() made."""
        return self.exchange(method, target, [("Host", self.netloc), *pairs(headers)], body)

    def put_chunked(self, bucket, key, chunks, trailer=None, signed=True, headers=None, alter=None, path=None, query=None):
        """PUT with aws-chunked framing. trailer: pairs or None. alter(what, index, text) may spoil what is sent: what is
        'size', 'signature', 'data', 'trailer' or 'trailer-signature'."""
        alter = alter or (lambda what, index, text: text)
        mode = (STREAM if trailer is None else STREAM_TRAILER) if signed else STREAM_UNSIGNED_TRAILER
        out = pairs(headers) + [("Content-Encoding", "aws-chunked"),
                                ("x-amz-decoded-content-length", str(sum(map(len, chunks))))]
        if trailer:
            out.append(("x-amz-trailer", ",".join(n for n, _ in pairs(trailer))))
        target = quote(path or f"/{bucket}/{key}")
        sent, (signer, signature) = self.signed_headers("PUT", target, query, out, payload=mode)
        body = chunk_chain(signer, signature, chunks, trailer, signed, alter)
        return self.exchange("PUT", target + ("?" + wire_query(query) if pairs(query) else ""), sent, body)

    def post_form(self, bucket, fields, data, conditions=(), filename="file", expires_s=600, at=None, alter=None):
        """A browser's form upload with a signed policy. alter(fields) may change the fields after signing."""
        now = at or datetime.datetime.now(datetime.timezone.utc)
        signer = Signer(self.access, self.secret, self.region, "s3", now)
        own = {"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": f"{self.access}/{signer.scope}", "x-amz-date": signer.time}
        until = (now + datetime.timedelta(seconds=expires_s)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        wanted = [{"bucket": bucket}, *({n: v} for n, v in own.items()), *conditions]
        policy = base64.b64encode(json.dumps({"expiration": until, "conditions": wanted}).encode()).decode()
        sent = {**fields, **own, "policy": policy, "x-amz-signature": signer.of_string(policy)}
        if alter:
            sent = alter(sent)
        boundary = "tarnwire" + os.urandom(8).hex()
        body = b"".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n'.encode() for n, v in sent.items())
        body += (f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
                 "Content-Type: application/octet-stream\r\n\r\n").encode() + data + f"\r\n--{boundary}--\r\n".encode()
        head = [("Host", self.netloc), ("Content-Type", f"multipart/form-data; boundary={boundary}")]
        return self.exchange("POST", f"/{bucket}", head, body)

    # -- raw sockets
    def raw(self, data, timeout=15, half_close=False):
        """Sends bytes on a connection of its own and returns all that comes back until the server closes or falls silent."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            return drain(s, timeout)

    def socket(self, timeout=15):
        return socket.create_connection((self.host, self.port), timeout=timeout)


def client(**more):
    return Client(**more)


def chunk_chain(signer, seed_signature, chunks, trailer=None, signed=True, alter=lambda what, index, text: text):
    """The body of an aws-chunked upload; chunks are without the closing empty one."""
    out, previous = [], seed_signature
    for index, data in enumerate([*chunks, b""]):
        line = alter("size", index, f"{len(data):x}")
        if signed:
            previous = signer.of_chunk(previous, data)
            line += ";chunk-signature=" + alter("signature", index, previous)
        out.append(line.encode() + b"\r\n")
        if data:
            out.append(alter("data", index, data) + b"\r\n")
    if trailer is not None:
        text = "".join(f"{n}:{v}\n" for n, v in pairs(trailer))
        out += [f"{n}:{alter('trailer', i, v)}\r\n".encode() for i, (n, v) in enumerate(pairs(trailer))]
        if signed:
            out.append(f"x-amz-trailer-signature:{alter('trailer-signature', 0, signer.of_trailer(previous, text))}\r\n".encode())
    out.append(b"\r\n")
    return b"".join(out)


def drain(s, timeout=15):
    """All that a socket gives until it is closed; what came so far where it falls silent for timeout seconds."""
    s.settimeout(timeout)
    out = []
    while True:
        try:
            data = s.recv(65536)
        except (socket.timeout, ConnectionResetError):
            break
        if not data:
            break
        out.append(data)
    return b"".join(out)


def statuses(raw):
    """The status codes of all answers in a raw byte stream, in order (bodies that look like a status line would fool it)."""
    return [int(part[9:12]) for part in raw.split(b"HTTP/1.1 ")[1:] for part in [b"HTTP/1.1 " + part] if part[9:12].isdigit()]


def unique(prefix="wire"):
    return f"{prefix}-{os.urandom(5).hex()}"


# ---------------------------------------------------------------------------------------------- daemon
def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    """A daemon of one's own: Daemon(drives=4, env={...}). Use it with `with`; it is stopped with TERM, then by force."""

    def __init__(self, drives=1, folder=None, env=None, args=(), binary=None):
        self.binary = binary or BINARY
        if not self.binary:
            raise Skip("TARN_BIN does not name a daemon")
        self.own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="tarn-wire-")
        self.drives = [os.path.join(self.folder, f"drive{i + 1}") for i in range(drives)]
        # What the tests tell each other by TARN_… is no setting of the daemon; the back end that the run chose is.
        base = {k: v for k, v in os.environ.items() if not k.startswith("TARN_") or k == "TARN_IO"}
        self.env, self.args, self.process = {**base, **(env or {})}, list(args), None
        self.log_path = os.path.join(self.folder, "daemon.log")

    def start(self, wait=True, seconds=30):
        for d in self.drives:  # the folder too, with them
            os.makedirs(d, exist_ok=True)
        for _ in range(3):
            self.port = free_port()
            self.endpoint = f"http://127.0.0.1:{self.port}"
            with open(self.log_path, "ab") as log:
                self.process = subprocess.Popen([self.binary, "server", "--address", f"127.0.0.1:{self.port}", *self.args, *self.drives],
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
            if not wait or self.ready(seconds):
                return self
            if self.process.poll() is None or "in use" not in self.log():
                break
        self.stop()
        raise Failed(f"the daemon is not ready after {seconds} s: {self.log()[-600:]}")

    def ready(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if Client(self.endpoint, timeout=5).request("GET", "/minio/health/ready", sign=False).status == 200:
                    return True
            except OSError:
                pass
            time.sleep(0.05)
        return False

    def client(self, **more):
        return Client(self.endpoint, **more)

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def kill(self):
        """Ends it as a power cut would end the process: no clean-up, no last write."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=40):
        """TERM and wait; returns the exit status, or None where it had to be killed."""
        if self.process is None or self.process.poll() is not None:
            return self.process.returncode if self.process else None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def restart(self):
        status = self.stop()
        eq(status, 0, "exit status after TERM")
        return self.start()

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        text = self.log()
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        for mark in ("ERROR: AddressSanitizer", "runtime error:", "ERROR: LeakSanitizer"):
            if mark in text:
                raise Failed(f"a sanitizer found something: {text[text.index(mark) - 80 if text.index(mark) > 80 else 0:][:600]}")


# ---------------------------------------------------------------------------------------------- cases
class Failed(AssertionError):
    pass


class Skip(Exception):
    pass


_cases = []


def case(function):
    """Registers a function as a case; cases run in the order they are written."""
    _cases.append(function)
    return function


def eq(got, want, what=""):
    if got != want:
        raise Failed(f"{what or 'value'}: got {repr(got)[:300]}, wanted {repr(want)[:300]}")


def true(condition, what):
    if not condition:
        raise Failed(what)


def refused(answer, status, code=None, what=""):
    """The answer must be an error document with this status, and this code where one is given."""
    eq(answer.status, status, f"{what or 'status'} ({answer})")
    if code is not None:
        eq(answer.code, code, f"{what or 'code'} ({answer})")


def rng(seed=None):
    """A random source whose seed is printed, so that a failure can be run again (TARN_SEED)."""
    seed = int(os.environ.get("TARN_SEED") or (seed if seed is not None else random.randrange(1 << 32)))
    print(f"# seed {seed}", flush=True)
    return random.Random(seed)


def main():
    only = sys.argv[1:]
    passed = failed = skipped = 0
    for function in _cases:
        name = function.__name__
        if only and name not in only:
            continue
        began = time.monotonic()
        try:
            function()
        except Skip as e:
            skipped += 1
            print(f"skipped {name}: {e}", flush=True)
        except Exception as e:  # noqa: BLE001
            failed += 1
            traceback.print_exc(file=sys.stderr)
            text = " ".join(str(e).split())[:600]
            print(f"FAILED {name}: {text if isinstance(e, Failed) else type(e).__name__ + ': ' + text}", flush=True)
        else:
            passed += 1
            print(f"ok {name} {time.monotonic() - began:.1f}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 77 if skipped and not passed else 0)
