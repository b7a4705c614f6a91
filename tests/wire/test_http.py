# SPDX-License-Identifier: Apache-2.0
# limit: 200
"""The HTTP edge over raw sockets: framing, limits at the maximum and one past it, pipelining, slow clients.

Most cases speak to the health route, which needs no keys; what they check is the engine below all routes.
"""
import os
import socket
import threading
import time

from tarnwire import case, client, drain, eq, main, statuses, true

HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 200
TARGET_BYTES_MAX = 16 * 1024
DRAIN_BYTES_MAX = 256 * 1024
LIVE = "/minio/health/live"


def head(method="GET", target=LIVE, *lines, version="HTTP/1.1", host=True):
    out = [f"{method} {target} {version}"] + ([f"Host: {client().netloc}"] if host else []) + list(lines)
    return ("\r\n".join(out) + "\r\n\r\n").encode("latin-1")


def ask(data, half_close=True):
    """All that comes back for these bytes on a connection of their own."""
    return client().raw(data, half_close=half_close)


def first_status(data, half_close=True):
    answer = ask(data, half_close)
    true(answer.startswith(b"HTTP/1.1 "), f"an answer: {answer[:80]!r}")
    return int(answer[9:12])


@case
def plain_answers():
    answer = ask(head())
    eq(statuses(answer), [200], "GET")
    for name in (b"\r\nServer: tarn\r\n", b"\r\nDate: ", b"\r\nx-amz-request-id: ", b"\r\nContent-Length: 0\r\n"):
        true(name in answer, f"{name!r} in {answer!r}")
    eq(statuses(ask(head("HEAD"))), [200], "HEAD")
    ids = [client().request("GET", LIVE, sign=False).headers["x-amz-request-id"] for _ in range(50)]
    eq(len(set(ids)), 50, "each request has an id of its own")
    true(all(len(i) == 16 and set(i) <= set("0123456789ABCDEF") for i in ids), f"16 hex digits: {ids[0]}")


@case
def refused_heads():
    cases = {
        "no host": head(host=False),
        "two hosts": head("GET", LIVE, "Host: other"),
        "bare LF": head().replace(b"\r\n", b"\n"),
        "bare CR in a value": head("GET", LIVE, "X: a\rb"),
        "NUL in a value": head("GET", LIVE, "X: a\0b"),
        "NUL in a name": head("GET", LIVE, "X\0: a"),
        "control byte in a value": head("GET", LIVE, "X: a\x01b"),
        "blank before the colon": head("GET", LIVE, "X : a"),
        "blank in a name": head("GET", LIVE, "X Y: a"),
        "no name": head("GET", LIVE, ": a"),
        "no colon": head("GET", LIVE, "nothing"),
        "folded": head("GET", LIVE, "X: a", " b"),
        "folded first": head().replace(b"Host", b" Host"),
        "UTF-8 in a name": head("GET", LIVE, "X\xe9: a"),
        "no slash": head("GET", "minio/health/live"),
        "blank in the target": head("GET", LIVE + " x"),
        "control byte in the target": head("GET", LIVE + "\x01"),
        "no version": b"GET " + LIVE.encode() + b"\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "star for GET": head("GET", "*"),
        "authority form": head("CONNECT", "127.0.0.1:22"),
        "two lengths": head("PUT", LIVE, "Content-Length: 1", "Content-Length: 1") + b"x",
        "list of lengths": head("PUT", LIVE, "Content-Length: 1, 1") + b"x",
        "length and chunked": head("PUT", LIVE, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        "chunked and length": head("PUT", LIVE, "Transfer-Encoding: chunked", "Content-Length: 5") + b"0\r\n\r\n",
        "chunked twice": head("PUT", LIVE, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        "another coding": head("PUT", LIVE, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
        "coding with a vertical tab": head("PUT", LIVE, "Transfer-Encoding: \vchunked") + b"0\r\n\r\n",
        "coding in HTTP/1.0": head("PUT", LIVE, "Transfer-Encoding: chunked", version="HTTP/1.0") + b"0\r\n\r\n",
    }
    for length in ("-1", "+5", "0x5", "5 5", "5.0", "", "five", "9223372036854775808", "18446744073709551616", "9" * 1000):
        cases[f"length {length[:24]}"] = head("PUT", LIVE, f"Content-Length: {length}") + b"hello"
    for what, data in cases.items():
        answer = ask(data + head())
        eq(statuses(answer), [400], f"{what}: one answer and the end ({answer[:120]!r})")
        true(b"Connection: close" in answer, f"{what}: says that it closes")


@case
def other_versions_and_expectations():
    for v in ("HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/9.9"):
        eq(first_status(head(version=v)), 505, v)
    eq(first_status(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, "the preface of HTTP/2")
    eq(first_status(head("GET", LIVE, "Expect: 200-maybe")), 417, "an unknown expectation")
    eq(first_status(head(version="HTTP/1.0", host=False)), 200, "HTTP/1.0 needs no Host")


@case
def refusals_are_in_the_form_of_their_api():
    for path, mark in (("/bucket/key", b"<Error>"), ("/_iceberg/v1/config", b'{"error"'), ("/_iceberg", b'{"error"'), ("/_icebergs", b"<Error>")):
        answer = ask(head("GET", path, "X : bad"))
        eq(statuses(answer), [400], path)
        true(mark in answer, f"{path}: {mark!r} in {answer[-300:]!r}")
        answer = ask(head("GET", path, *(f"X-{i}: y" for i in range(HEADERS_MAX + 10))))
        true(mark in answer, f"{path}, too many headers: {mark!r} in {answer[-300:]!r}")


@case
def limits_at_the_maximum_and_one_past():
    def filled(total):
        start = head("GET", LIVE, "X-Fill: ")
        return start[:-4] + b"f" * (total - len(start)) + b"\r\n\r\n"
    eq(first_status(filled(HEAD_BYTES_MAX)), 200, "a head of the largest size")
    answer = ask(filled(HEAD_BYTES_MAX + 1))
    eq(statuses(answer), [400], "one byte more")
    true(b"RequestHeaderSectionTooLarge" in answer, f"and why: {answer[-300:]!r}")
    eq(first_status(head("GET", LIVE, *(f"X-{i}: y" for i in range(HEADERS_MAX - 1)))), 200, "the most headers")
    eq(first_status(head("GET", LIVE, *(f"X-{i}: y" for i in range(HEADERS_MAX)))), 400, "one header more")
    target = LIVE + "?" + "q" * (TARGET_BYTES_MAX - len(LIVE) - 1)
    eq(first_status(head("GET", target)), 200, "the longest target")
    eq(first_status(head("GET", target + "q")), 400, "one byte more")


@case
def large_heads_are_cut_off_early():
    for what, data in (("a value of 4 MiB", head("GET", LIVE, "X: " + "a" * (4 << 20))), ("a target of 8 MiB", head("GET", "/" + "a" * (8 << 20))),
                       ("200,000 headers", head("GET", LIVE, *(f"X-{i}: yyyyyyyy" for i in range(200_000))))):
        with client().socket() as s:
            def send(s=s, data=data):
                try:
                    s.sendall(data)
                except OSError:
                    pass
            t = threading.Thread(target=send, daemon=True)
            t.start()
            answer = drain(s)
            t.join(20)
        true(answer == b"" or statuses(answer) == [400], f"{what}: {answer[:100]!r}")


@case
def empty_lines_and_absolute_targets():
    c = client()
    eq(first_status(b"\r\n\r\n" + head()), 200, "empty lines before a request")
    eq(first_status(head("GET", f"http://{c.netloc}{LIVE}")), 200, "absolute form")
    eq(first_status(head("GET", f"http://other.example{LIVE}")), 400, "absolute form for another host")
    true(first_status(head("OPTIONS", "*")) < 500, "OPTIONS *")


@case
def pipelined_in_any_pieces():
    c = client()
    b = c.new_bucket()
    requests, wanted = [], []
    for i in range(60):
        body = os.urandom(i * 37)
        headers, _ = c.signed_headers("PUT", f"/{b}/k{i}", body=body)
        requests.append("\r\n".join([f"PUT /{b}/k{i} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), f"Content-Length: {len(body)}", "", ""]).encode() + body)
        headers, _ = c.signed_headers("GET", f"/{b}/k{i}")
        requests.append("\r\n".join([f"GET /{b}/k{i} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "", ""]).encode())
        wanted.append(body)
    data = b"".join(requests)
    for piece in (len(data), 1000, 7919):
        with c.socket(60) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def send(s=s, piece=piece):
                for at in range(0, len(data), piece):
                    s.sendall(data[at:at + piece])
                s.shutdown(socket.SHUT_WR)
            t = threading.Thread(target=send, daemon=True)
            t.start()
            answer = drain(s, 30)
            t.join(30)
        heads = answer.count(b"HTTP/1.1 200 OK\r\n")
        eq(heads, 120, f"answers in pieces of {piece}")
        at = 0
        for body in wanted:
            found = answer.find(b"\r\n\r\n" + body, at)
            true(found >= 0, f"bodies in order in pieces of {piece}")
            at = found


@case
def one_byte_at_a_time():
    c = client()
    b = c.new_bucket()
    headers, _ = c.signed_headers("PUT", f"/{b}/slow", body=b"hello")
    data = "\r\n".join([f"PUT /{b}/slow HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "Content-Length: 5", "Connection: close", "", ""]).encode() + b"hello"
    with c.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
            if i % 50 == 0:
                time.sleep(0.001)
        eq(statuses(drain(s)), [200], "PUT in single bytes")
    eq(c.get(b, "slow").body, b"hello", "what was stored")


@case
def chunked_bodies():
    c = client()
    b = c.new_bucket()

    def put(key, body, close=True):
        headers, _ = c.signed_headers("PUT", f"/{b}/{key}", payload="UNSIGNED-PAYLOAD")
        extra = ["Transfer-Encoding: chunked"] + (["Connection: close"] if close else [])
        return ask("\r\n".join([f"PUT /{b}/{key} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), *extra, "", ""]).encode() + body)
    bad = {
        "negative": b"-1\r\nx\r\n0\r\n\r\n", "prefix": b"0x5\r\nhello\r\n0\r\n\r\n", "overflow": b"FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
        "2^64-1": b"FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", "empty": b"\r\nhello\r\n0\r\n\r\n", "not hex": b"xyz\r\nhello\r\n0\r\n\r\n",
        "no end of data": b"5\r\nhello0\r\n\r\n", "too long": b"3\r\nhello\r\n0\r\n\r\n", "cut": b"10\r\nhello", "no last": b"5\r\nhello\r\n",
        "large extension": b"5;" + b"a" * 2**20 + b"\r\nhello\r\n0\r\n\r\n", "bare LF": b"5\nhello\r\n0\r\n\r\n",
        "long trailer": b"5\r\nhello\r\n0\r\nX: " + b"t" * 10000 + b"\r\n\r\n", "bad trailer": b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
    }
    for what, body in bad.items():
        got = statuses(put("bad", body, close=False))
        true(len(got) <= 1 and all(400 <= s < 500 for s in got), f"{what}: {got}")
        eq(c.head(b, "bad").status, 404, f"{what}: nothing stored")
    got = statuses(put("good", b"5\r\nhello\r\n6;ext=\"1\"\r\n world\r\n0\r\nX-Trailer: dropped\r\n\r\n"))
    true(got in ([200], [411], [501]), f"a good body is stored, or plain chunks are not taken at all: {got}")
    if got == [200]:
        eq(c.get(b, "good").body, b"hello world", "what was stored")


@case
def bodies_are_never_requests():
    c = client()
    b = c.new_bucket()
    c.put(b, "canary", b"alive")
    headers, _ = c.signed_headers("DELETE", f"/{b}/canary")
    inner = "\r\n".join([f"DELETE /{b}/canary HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "", ""]).encode()
    outer = {
        "unread body of an error": head("PUT", f"/{b}/x", f"Content-Length: {len(inner)}") + inner,
        "body of a GET": head("GET", LIVE, f"Content-Length: {len(inner)}") + inner,
        "behind the largest body that is drained": head("GET", LIVE, f"Content-Length: {DRAIN_BYTES_MAX}") + b"x" * (DRAIN_BYTES_MAX - len(inner)) + inner,
        "behind a body that is too large to drain": head("GET", LIVE, f"Content-Length: {DRAIN_BYTES_MAX + len(inner)}") + b"x" * DRAIN_BYTES_MAX + inner,
        "after both framings": head("PUT", f"/{b}/x", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + inner,
        "an expectation that was refused": head("PUT", f"/{b}/x", f"Content-Length: {len(inner)}", "Expect: 100-continue") + inner,
    }
    for what, data in outer.items():
        ask(data)
        eq(c.get(b, "canary").body, b"alive", what)


@case
def unread_bodies_keep_or_end_the_connection():
    eq(statuses(ask(head("GET", LIVE, f"Content-Length: {DRAIN_BYTES_MAX}") + b"x" * DRAIN_BYTES_MAX + head())), [200, 200], "the most that is drained")
    answer = ask(head("GET", LIVE, f"Content-Length: {DRAIN_BYTES_MAX + 1}") + b"x" * (DRAIN_BYTES_MAX + 1) + head())
    eq(statuses(answer), [200], "one byte more ends the connection")
    true(b"Connection: close" in answer, "and says so")


@case
def continue_is_sent_when_the_body_is_wanted():
    c = client()
    b = c.new_bucket()
    headers, _ = c.signed_headers("PUT", f"/{b}/k", body=b"hello")
    lines = [f"PUT /{b}/k HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "Content-Length: 5", "Expect: 100-continue", "", ""]
    with c.socket() as s:
        s.sendall("\r\n".join(lines).encode())
        eq(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n", "100 first")
        s.sendall(b"hello")
        true(s.recv(1000).startswith(b"HTTP/1.1 200 "), "then 200")
    with c.socket() as s:
        s.sendall("\r\n".join(lines).replace("Signature=", "Signature=0").encode())
        answer = drain(s)
        eq(statuses(answer), [statuses(answer)[0]], "one answer, no 100, for a request that is refused by its head")
        true(400 <= statuses(answer)[0] < 500 and b"Connection: close" in answer, f"{answer[:200]!r}")
    answer = ask("\r\n".join(lines).encode() + b"hello")
    eq(statuses(answer), [200], "a client that does not wait gets no 100")


@case
def persistence():
    eq(statuses(ask(head() + head())), [200, 200], "HTTP/1.1 stays open")
    eq(statuses(ask(head("GET", LIVE, "Connection: close") + head())), [200], "close")
    eq(statuses(ask(head(version="HTTP/1.0") + head())), [200], "HTTP/1.0 closes")
    answer = ask(head("GET", LIVE, "Connection: keep-alive", version="HTTP/1.0") + head(version="HTTP/1.0"))
    eq(statuses(answer), [200, 200], "HTTP/1.0 with keep-alive")
    true(b"Connection: keep-alive" in answer, "which is confirmed")


@case
def slow_clients_hold_nobody_up():
    c = client()
    b = c.new_bucket()
    c.put(b, "big", os.urandom(4 << 20))
    held = []
    for i in range(90):
        s = c.socket()
        if i % 3 == 0:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        elif i % 3 == 1:
            headers, _ = c.signed_headers("PUT", f"/{b}/slow", payload="UNSIGNED-PAYLOAD")
            s.sendall("\r\n".join([f"PUT /{b}/slow HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "Content-Length: 100000", "", ""]).encode())
        else:
            headers, _ = c.signed_headers("GET", f"/{b}/big")
            s.sendall("\r\n".join([f"GET /{b}/big HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "", ""]).encode())
        held.append(s)
    worst = 0.0
    for _ in range(20):
        for i, s in enumerate(held):
            if i % 3 != 2:
                s.sendall(b"t")
        began = time.monotonic()
        eq(c.get(b, "", {"list-type": "2"}).status, 200, "a normal request meanwhile")
        worst = max(worst, time.monotonic() - began)
    for s in held:
        s.close()
    true(worst < 5, f"a normal request took {worst:.1f} s meanwhile")
    eq(c.head(b, "slow").status, 404, "what was never complete is not there")


@case
def resets_do_no_harm():
    for i in range(300):
        s = client().socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.sendall((b"", b"GET /", head(), head("PUT", "/b/k", "Content-Length: 100"))[i % 4])
        s.close()
    eq(first_status(head()), 200, "and it goes on")


@case
def answers_cannot_be_split():
    c = client()
    for path in ("/x%0d%0aX-Evil:%201", "/minio/admin/%0d%0aX-Evil:%201", "/_iceberg/v1/%0d%0aX-Evil:%201"):
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
            answer = ask(head(method, path, "Content-Length: 0", "Origin: http://a", "Connection: close"))
            true(b"\nX-Evil" not in answer.split(b"\r\n\r\n")[0], f"{method} {path}: {answer[:300]!r}")
    eq(c.request("GET", LIVE, sign=False).status, 200, "and it goes on")


@case
def health():
    c = client()
    for prefix in ("/minio/health/", "/tarn/health/"):
        for name in ("live", "ready", "cluster", "cluster/read"):
            for method in ("GET", "HEAD"):
                r = c.request(method, prefix + name, sign=False)
                eq((r.status, r.body), (200, b""), f"{method} {prefix}{name}")
        eq(c.request("GET", prefix + "cluster", {"maintenance": "true"}, sign=False).status, 412, "without its only node")
        eq(c.request("POST", prefix + "live", sign=False).status, 405, "POST")
        true(c.request("GET", prefix + "other", sign=False).status in (403, 404), f"{prefix}other is no health route")
    true(int(c.request("GET", "/minio/health/cluster", sign=False).headers["x-minio-write-quorum"]) >= 1, "the write quorum")


@case
def metrics_are_for_the_root():
    c = client()
    for path in ("/minio/v2/metrics/cluster", "/minio/metrics/v3", "/tarn/metrics"):
        eq(c.request("GET", path, sign=False).status, 403, f"{path}, unsigned")
        eq(client(secret="wrong-secret").request("GET", path).status, 403, f"{path}, signed wrong")
        r = c.request("GET", path)
        eq(r.status, 200, f"{path}, signed by the root")
        lines = r.body.decode().split("\n")
        values = {x.split(" ")[0]: x.split(" ")[1] for x in lines if x and not x.startswith("#")}
        true(int(values["tarn_http_requests_total"]) > 0 and int(values["tarn_http_connections"]) > 0, "counters that count")
        true(any(n.startswith('tarn_drive_online{drive="') for n in values), "drives")
        names = [x.split(" ")[2] for x in lines if x.startswith("# TYPE")]
        eq(len(names), len(set(names)), "each family once")


main()
