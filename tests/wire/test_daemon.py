# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 300
"""The daemon as a process: draining, a second TERM, exit statuses and what it says, credentials, restarts, its log."""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from tarnwire import BINARY, Client, Daemon, Skip, case, eq, free_port, main, refused, true


def run(*args, env=None, seconds=30):
    if not BINARY:
        raise Skip("TARN_BIN does not name a daemon")
    base = {k: v for k, v in os.environ.items() if not k.startswith("TARN_") or k == "TARN_IO"}
    return subprocess.run([BINARY, *args], capture_output=True, text=True, env={**base, **(env or {})}, timeout=seconds, stdin=subprocess.DEVNULL)


@case
def texts():
    r = run("version")
    eq(r.returncode, 0, "tarn version")
    true("tarn" in r.stdout, r.stdout)
    r = run("help")
    true(r.returncode == 0 and "server" in r.stdout and "TARN_IO" in run("help", "performance").stdout, "tarn help names what there is")
    for wrong in (("serve",), ("server", "--no-such-option", "/tmp"), ("help", "no-such-topic")):
        r = run(*wrong)
        true(r.returncode not in (0, -6, -11) and r.stderr.strip() != "", f"{wrong}: {r.returncode} {r.stderr}")


@case
def term_drains():
    with Daemon() as d:
        c = d.client()
        b = c.new_bucket()
        # An upload that is half-way when TERM comes is finished and answered.
        body = os.urandom(600_000)
        headers, _ = c.signed_headers("PUT", f"/{b}/slow", body=body)
        with c.socket(40) as s:
            head = "\r\n".join([f"PUT /{b}/slow HTTP/1.1", *(f"{n}: {v}" for n, v in headers), f"Content-Length: {len(body)}", "", ""])
            s.sendall(head.encode() + body[:300_000])
            time.sleep(0.3)
            d.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            true(d.process.poll() is None, "it waits for the request in flight")
            try:
                socket.create_connection(("127.0.0.1", d.port), 2).close()
                open_still = True
            except OSError:
                open_still = False
            s.sendall(body[300_000:])
            data = s.recv(4096)
            true(data.startswith(b"HTTP/1.1 200"), f"the upload is answered: {data[:200]!r}")
        eq(d.process.wait(40), 0, "exit status")
        true(not open_still, "no new connection once TERM has come")
        d.start()
        eq(d.client().get(b, "slow").body == body, True, "the upload is there")


@case
def second_term_ends_at_once():
    with Daemon() as d:
        c = d.client()
        b = c.new_bucket()
        headers, _ = c.signed_headers("PUT", f"/{b}/never", body=b"", payload="UNSIGNED-PAYLOAD")
        with c.socket(40) as s:
            s.sendall("\r\n".join([f"PUT /{b}/never HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "Content-Length: 1000000", "", ""]).encode() + b"x" * 1000)
            time.sleep(0.3)
            d.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            true(d.process.poll() is None, "the first TERM drains")
            began = time.monotonic()
            d.process.send_signal(signal.SIGTERM)
            d.process.wait(10)
            true(time.monotonic() - began < 5, "the second ends at once")
        d.start()
        refused(d.client().get(b, "never"), 404, "NoSuchKey", "the upload that was cut off")


@case
def refusals_say_what_to_do():
    with Daemon() as d:
        r = run("server", "--address", f"127.0.0.1:{d.port}", tempfile.mkdtemp(prefix="tarn-wire-"))
        true(r.returncode > 0 and str(d.port) in r.stderr + r.stdout, f"a taken port: {r.returncode} {r.stderr[-300:]}")
        r = run("server", "--address", f"127.0.0.1:{free_port()}", d.drives[0])
        true(r.returncode > 0 and "drive1" in r.stderr + r.stdout, f"a drive in use: {r.returncode} {r.stderr[-300:]}")
    r = run("server", "--address", f"127.0.0.1:{free_port()}", "/proc/no/such/drive")
    true(r.returncode > 0 and "/proc/no/such/drive" in r.stderr + r.stdout, f"a drive that can't be: {r.returncode} {r.stderr[-300:]}")
    r = run("server", "--address", "127.0.0.1:99999", "/tmp")
    true(r.returncode > 0 and "99999" in r.stderr + r.stdout, f"a port that is none: {r.returncode} {r.stderr[-300:]}")
    r = run("server")
    true(r.returncode > 0 and "rive" in r.stderr + r.stdout, f"no drive: {r.returncode} {r.stderr[-300:]}")


@case
def drives_of_another_deployment():
    with Daemon(drives=4) as a, Daemon(drives=4) as b:
        c = a.client()
        bucket = c.new_bucket()
        c.put(bucket, "k", b"of a")
        eq((a.stop(), b.stop()), (0, 0), "exit statuses")
        kept = a.drives[1] + ".kept"
        os.rename(a.drives[1], kept)
        shutil.copytree(b.drives[1], a.drives[1])
        a.start()
        eq(a.client().get(bucket, "k").body, b"of a", "one foreign drive among four: the others serve")
        true("drive2" in a.log(), "the log names the foreign drive")
        a.stop()
        shutil.rmtree(a.drives[1])
        os.rename(kept, a.drives[1])
        # Two drives in each other's place are recognised.
        os.rename(a.drives[0], a.drives[0] + ".x")
        os.rename(a.drives[2], a.drives[0])
        os.rename(a.drives[0] + ".x", a.drives[2])
        try:
            a.start()
            eq(a.client().get(bucket, "k").body, b"of a", "drives in each other's place lose nothing")
            a.stop()
        except AssertionError:
            true("drive1" in a.log() and a.process.poll() is not None, "or it refuses to start and names them")


@case
def credentials():
    with Daemon(env={"MINIO_ROOT_USER": "somebody", "MINIO_ROOT_PASSWORD": "something-long"}) as d:
        refused(d.client().request("GET", "/"), 403, "InvalidAccessKeyId")
        eq(d.client(access="somebody", secret="something-long").request("GET", "/").status, 200, "the given pair")
        true("something-long" not in d.log(), "no secret in the log")
    r = run("server", "--address", f"127.0.0.1:{free_port()}", tempfile.mkdtemp(prefix="tarn-wire-"), env={"TARN_ROOT_USER": "somebody", "TARN_ROOT_PASSWORD": "short"})
    true(r.returncode > 0 and "short" not in r.stderr.replace("too short", "").replace("shorter", ""), f"a short secret is refused: {r.returncode} {r.stderr[-300:]}")


@case
def log_is_json_and_says_who():
    with Daemon(env={"TARN_LOG_FORMAT": "json"}) as d:
        c = d.client()
        b = c.new_bucket()
        target = c.presign("GET", f"/{b}/absent")
        r = c.presigned("GET", target)
        refused(r, 404, "NoSuchKey")
        true(r.headers["x-amz-request-id"], "a request id")
        eq(d.stop(), 0, "exit status")
        lines = [line for line in d.log().split("\n") if line.startswith("{")]
        true(lines, f"one JSON object a line: {d.log()[:300]}")
        for line in lines:
            json.loads(line)
        signature = target.rsplit("=", 1)[1]
        true(signature not in d.log() and "minioadmin" not in "".join(x for x in lines if "secret" in x.lower()), "no signature and no secret in the log")


@case
def restarts_keep_everything():
    with Daemon(drives=2) as d:
        c = d.client()
        b = c.new_bucket()
        for i in range(30):
            eq(c.put(b, f"k{i:02}", bytes([i]) * (i * 9001)).status, 200, "PUT")
        for _ in range(3):
            d.restart()
            c = d.client()
            eq(c.keys(b), [f"k{i:02}" for i in range(30)], "keys")
            for i in range(30):
                eq(c.get(b, f"k{i:02}").body == bytes([i]) * (i * 9001), True, f"k{i:02}")


@case
def many_connections():
    with Daemon() as d:
        c = d.client()
        b = c.new_bucket()
        c.put(b, "k", b"v" * 100)
        idle = [c.socket(20) for _ in range(500)]
        results = []

        def busy():
            mine = d.client()
            for _ in range(20):
                results.append(mine.get(b, "k").status)
        threads = [threading.Thread(target=busy) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        eq(results, [200] * 320, "answers while 500 connections stand idle")
        for s in idle:
            s.close()


@case
def gone_clients_free_everything():
    with Daemon() as d:
        c = d.client()
        b = c.new_bucket()
        c.put(b, "big", os.urandom(8_000_000))
        before = d.rss_bytes()
        for i in range(120):
            with c.socket(10) as s:
                if i % 2:
                    s.sendall(f"GET {c.presign('GET', f'/{b}/big')} HTTP/1.1\r\nHost: {c.netloc}\r\n\r\n".encode())
                    s.recv(1000)
                else:
                    headers, _ = c.signed_headers("PUT", f"/{b}/cut{i}", payload="UNSIGNED-PAYLOAD")
                    s.sendall("\r\n".join([f"PUT /{b}/cut{i} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "Content-Length: 50000000", "", ""]).encode() + b"z" * 2_000_000)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        time.sleep(1)
        eq(c.keys(b), ["big"], "nothing of the uploads that were cut off is visible")
        grown = d.rss_bytes() - before
        true(grown < 100_000_000 or "asan" in BINARY, f"memory after 120 clients that went away: {grown / 1e6:.0f} MB more")
        eq(Client(d.endpoint).get(b, "big").status, 200, "and it goes on")


main()
