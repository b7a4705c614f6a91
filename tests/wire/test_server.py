# SPDX-License-Identifier: Apache-2.0
# daemon: own
# limit: 300
"""The command: options from all their sources, credentials, exit statuses, texts, systemd's protocol, HUP, the health command."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from tarnwire import BINARY, Client, Daemon, Skip, case, eq, free_port, main, true

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def environment(more=None):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TARN_", "MINIO_")) or k == "TARN_IO"}
    return {**base, **(more or {})}


def run(*args, env=None, seconds=30):
    if not BINARY:
        raise Skip("TARN_BIN does not name a daemon")
    return subprocess.run([BINARY, *args], capture_output=True, text=True, env=environment(env), timeout=seconds, stdin=subprocess.DEVNULL)


class Folder:
    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="tarn-wire-")
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def option_rows():
    """The table itself, read from its source."""
    with open(os.path.join(TOP, "src/server/options.def"), encoding="utf-8") as f:
        text = f.read()
    rows = []
    for m in re.finditer(r"^OPTION\((\w+),\s*(.*?)\)\n(?=OPTION|\Z)", text, re.M | re.S):
        fields = re.findall(r'"((?:[^"\\]|\\.)*)"|\b(TEXT|SECRET|LIST|WORDS|SWITCH|NUMBER|CHOICE|DURATION)\b', m.group(2))
        rows.append([a or b for a, b in fields])
    return rows


@case
def the_table_yields_every_text():
    rows = option_rows()
    true(len(rows) > 15, f"{len(rows)} rows read from the table")
    texts = {"help all": run("help", "all").stdout, "man page": run("help", "--man").stdout.replace("\\-", "-"), "configuration": run("help", "--configuration").stdout}
    for flag, env, synonyms, default, kind, argument, topic, text in rows:
        for name, whole in texts.items():
            true(env in whole and (not flag or flag in whole), f"{env} is in the {name}")
            true(all(s in whole for s in synonyms.split()), f"{synonyms} in the {name}")
        true(env in run("help", topic).stdout, f"{env} is in help {topic}")
    with open(os.path.join(TOP, "docs/configuration.md"), encoding="utf-8") as f:
        eq(f.read() == texts["configuration"], True, "docs/configuration.md is what tarn help --configuration prints")
    for line in run("help", "all").stdout.split("\n"):
        true(len(line) <= 100 or "=" in line, f"help fits a terminal: {line}")
    true(run("help", "exit").returncode == 0 and run("server", "--help").stdout == run("help", "server").stdout, "help by its other names")


@case
def wrong_command_lines():
    with Folder() as f:
        wrong = [(("server", "--no-such-option", f), "--no-such-option"), (("server", "--address"), "--address"), (("server",), "drive"),
                 (("server", "--io", "fast", f), "auto|uring|threads"), (("server", "--workers", "x", f), "0..256"), (("server", "--workers", "257", f), "0..256"),
                 (("server", f + "/{1...x}"), "pattern"), (("server", f + "/{3...1}"), "pattern"), (("server", f + "/{1...129}"), "128"),
                 (("server", "--config", f + "/absent", f), "absent")]
        for args, said in wrong:
            r = run(*args)
            eq(r.returncode, 2, f"{args}: {r.stderr[-300:]}")
            true(said in r.stderr, f"{args} names {said}: {r.stderr[-300:]}")
        for name, value in (("TARN_SIGV2", "maybe"), ("TARN_LOG_LEVEL", "loud"), ("TARN_LC_DEBUG_INTERVAL", "-1"), ("TARN_CONNECTIONS", "1000001")):
            r = run("server", f, env={name: value})
            eq(r.returncode, 2, f"{name}={value}")
            true(name in r.stderr, f"{name} is named: {r.stderr[-300:]}")
        eq(os.listdir(f), [], "nothing was written")


@case
def other_exit_statuses():
    with Folder() as f, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        r = run("server", "--address", f"127.0.0.1:{port}", f)
        eq((r.returncode, "in use" in r.stderr, str(port) in r.stderr), (3, True, True), f"a taken port: {r.stderr[-300:]}")
        eq(os.listdir(f), [], "and the drive was left alone")
        eq(run("server", "--address", "256.1.2.3:1", f).returncode, 3, "an address that is none")
        address = f"127.0.0.1:{free_port()}"
        eq(run("server", "--address", address, "/proc/no/such/drive").returncode, 4, "a drive that can't be")
        for env in ({"TARN_ROOT_USER": "only"}, {"TARN_ROOT_PASSWORD": "only-this"}, {"TARN_ROOT_USER": "ab", "TARN_ROOT_PASSWORD": "long-enough"},
                    {"TARN_ROOT_USER": "abc", "TARN_ROOT_PASSWORD": "1234567"}, {"TARN_ROOT_USER": "a" * 129, "TARN_ROOT_PASSWORD": "long-enough"},
                    {"TARN_ROOT_USER": "abc", "TARN_ROOT_PASSWORD": "p" * 129}, {"TARN_ROOT_USER": "a/b", "TARN_ROOT_PASSWORD": "long-enough"},
                    {"TARN_ROOT_USER_FILE": "/absent", "TARN_ROOT_PASSWORD": "long-enough"},
                    {"TARN_USERS": "nosecret"}, {"TARN_USERS": "ab:long-enough"}, {"TARN_USERS": "user:short"},
                    {"TARN_USERS": "one:long-enough,one:long-enough"}, {"TARN_USERS": "minioadmin:long-enough"},
                    {"TARN_USERS": ",".join(f"user{i}:long-enough" for i in range(65))}):
            r = run("server", "--address", address, f, env=env)
            eq(r.returncode, 5, f"{env}: {r.stderr[-300:]}")
            true("long-enough" not in r.stderr and "1234567" not in r.stderr, "the secret is not shown")
        r = run("server", "--address", address, f, env={"TARN_CONNECTIONS": "1000000"}) if os.sysconf("SC_OPEN_MAX") < 1_000_000 else None
        true(r is None or (r.returncode == 6 and "ulimit" in r.stderr), "more connections than open files")


@case
def credentials_at_their_limits():
    for user, password in (("abc", "12345678"), ("u" * 128, "p" * 128)):
        with Daemon(env={"TARN_ROOT_USER": user, "TARN_ROOT_PASSWORD": password}) as d:
            eq(d.client(access=user, secret=password).request("GET", "/").status, 200, f"{len(user)} and {len(password)} bytes")


@case
def credentials_from_files():
    with Folder() as f:
        for name, text in (("user", "from-a-file\n"), ("word", "secret-from-a-file\r\n")):
            with open(f"{f}/{name}", "w", encoding="utf-8", newline="") as out:
                out.write(text)
        with Daemon(env={"MINIO_ROOT_USER_FILE": f"{f}/user", "TARN_ROOT_PASSWORD_FILE": f"{f}/word"}) as d:
            eq(d.client(access="from-a-file", secret="secret-from-a-file").request("GET", "/").status, 200, "the pair of the files")


@case
def a_random_pair_is_made_once():
    with Folder() as f:
        drive, port = f"{f}/drive", free_port()
        os.mkdir(drive)

        def start(address, out):
            p = subprocess.Popen([BINARY, "server", "--address", address, drive], stdout=out, stderr=subprocess.STDOUT, env=environment(), stdin=subprocess.DEVNULL)
            c = Client(f"http://127.0.0.1:{port}", timeout=5)
            for _ in range(600):
                try:
                    if c.request("GET", "/minio/health/ready", sign=False).status == 200:
                        return p
                except OSError:
                    time.sleep(0.05)
            p.kill()
            raise AssertionError("not ready: " + open(out.name, errors="replace").read()[-500:])
        said = []
        for i, address in enumerate((f":{port}", f":{port}", f"127.0.0.1:{port}")):
            with open(f"{f}/out{i}", "w", encoding="utf-8") as out:
                p = start(address, out)
                if i == 0:
                    text = open(out.name, encoding="utf-8").read()
                    pair = re.search(r"access key  (\S+)\n  secret key  (\S+)\n", text)
                    true(pair, f"the pair is shown: {text[:300]}")
                c = Client(f"http://127.0.0.1:{port}", access=pair.group(1), secret=pair.group(2))
                eq(c.request("GET", "/").status, 200, f"start {i}: the pair that was made")
                eq(Client(f"http://127.0.0.1:{port}").request("GET", "/").status, 403, f"start {i}: not the default pair")
                p.terminate()
                eq(p.wait(40), 0, "exit status")
                said.append(open(out.name, encoding="utf-8").read().count(pair.group(2)))
        eq(said, [1, 0, 0], "how often the secret was shown at each start")
        for folder, _, files in os.walk(drive):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as data:
                    if pair.group(2).encode() in data.read():
                        eq(os.stat(path).st_mode & 0o777, 0o600, f"mode of {path}")


@case
def sources_and_their_order():
    with Folder() as f:
        with open(f"{f}/conf", "w", encoding="utf-8") as out:
            out.write("# a comment\n\nexport TARN_ROOT_USER='file-user'\nTARN_ROOT_PASSWORD=\"file-password\"\nMINIO_REGION=eu-file-1\nTARN_LOG_LEVEL=debug\n"
                      "MINIO_NO_SUCH=1\nOTHER=2\nTARN_MISSPELT=3\n")
        env = {"TARN_CONFIG": f"{f}/conf", "MINIO_REGION": "eu-minio-1", "TARN_REGION": "eu-own-1", "MINIO_OTHER_THING": "x", "TARN_ROOT_PASWORD": "x", "TARN_OPTS": "--log-level info --quiet"}
        with Daemon(env=env, args=["--workers", "1"]) as d:
            c = d.client(access="file-user", secret="file-password", region="eu-own-1")
            eq(c.request("GET", "/").status, 200, "keys of the file, region of the environment")
            log = d.log()
            for name in ("MINIO_NO_SUCH", "MINIO_OTHER_THING", "OTHER", "--quiet", "TARN_MISSPELT", "TARN_ROOT_PASWORD"):
                true(name in log, f"{name} is warned of")
            for name in ("MINIO_REGION ", "TARN_REGION "):
                true(name + "is" not in log, f"{name} is not")
            true('"level":"debug"' not in log, "TARN_OPTS wins over the file")
            true('"workers":"1"' in log, "the command line counts")
        with open(f"{f}/conf", "a", encoding="utf-8") as out:
            out.write("no assignment\n")
        r = run("server", f, env={"TARN_CONFIG": f"{f}/conf"})
        true(r.returncode == 2 and "line 10" in r.stderr, f"a broken line is named: {r.stderr[-300:]}")


@case
def volumes_and_ellipses():
    with Folder() as f:
        port = free_port()
        env = environment({"MINIO_VOLUMES": f"{f}/d{{1...2}}/{{a...b}}", "MINIO_OPTS": f"--address 127.0.0.1:{port} --console-address :9001"})
        for i in "12":
            for x in "ab":
                os.makedirs(f"{f}/d{i}/{x}")
        with open(f"{f}/log", "wb") as log:
            p = subprocess.Popen([BINARY, "server"], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            c = Client(f"http://127.0.0.1:{port}", timeout=5)
            for _ in range(600):
                try:
                    if c.request("GET", "/minio/health/ready", sign=False).status == 200:
                        break
                except OSError:
                    time.sleep(0.05)
            text = c.request("GET", "/tarn/metrics").body.decode()
            drives = re.findall(r'tarn_drive_online\{drive="([^"]*)",set="0",position="(\d)"\} 1', text)
            eq(drives, [(f"{f}/d1/a", "0"), (f"{f}/d1/b", "1"), (f"{f}/d2/a", "2"), (f"{f}/d2/b", "3")], "drives in order")
        finally:
            p.terminate()
            eq(p.wait(40), 0, "exit status")
        true("--console-address" in open(f"{f}/log", encoding="utf-8").read(), "the console address is warned of")
        true("There is no web console" in " ".join(run("help", "server").stdout.split()), "and the help says that it has no effect")


@case
def several_addresses():
    other = free_port()
    with Daemon(args=["--address", f"127.0.0.1:{other}"]) as d:
        for port in (d.port, other):
            eq(Client(f"http://127.0.0.1:{port}").request("GET", "/").status, 200, f"port {port}")


@case
def systemd_is_told():
    with Folder() as f:
        path = f"{f}/notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(path)
            s.settimeout(30)
            with Daemon(env={"NOTIFY_SOCKET": path}) as d:
                true(b"READY=1" in s.recv(4096), "READY=1")
                d.process.send_signal(signal.SIGHUP)
                true(s.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC="), "RELOADING=1")
                true(b"READY=1" in s.recv(4096), "READY=1 again")
                eq(d.stop(), 0, "exit status")
                eq(s.recv(4096), b"STOPPING=1", "STOPPING=1")


@case
def hup_opens_the_log_again():
    with Folder() as f:
        with Daemon(env={"TARN_LOG_FILE": f"{f}/log", "TARN_LOG_LEVEL": "debug"}) as d:
            os.rename(f"{f}/log", f"{f}/log.1")
            d.process.send_signal(signal.SIGHUP)
            for _ in range(200):
                if os.path.exists(f"{f}/log"):
                    break
                time.sleep(0.02)
            d.client().request("GET", "/minio/health/live?token=not-for-the-log", sign=False, encoded=True)
            eq(d.stop(), 0, "exit status")
            new = open(f"{f}/log", encoding="utf-8").read()
            true("/minio/health/live" in new and "not-for-the-log" not in new, f"requests are in the new file, without their query: {new[:500]}")
            for line in new.strip().split("\n"):
                json.loads(line)


@case
def the_health_command():
    with Daemon() as d:
        eq(run("health", d.endpoint).returncode, 0, "by URL")
        eq(run("health", d.endpoint + "/tarn/health/cluster").returncode, 0, "by URL with a path")
        eq(run("health", env={"TARN_ADDRESS": f":{d.port}"}).returncode, 0, "by the address that the server has")
        r = run("health", d.endpoint + "/minio/health/none")
        true(r.returncode == 1 and "answers 4" in r.stderr, f"another status: {r.stderr}")
        eq(run("health", "--url", d.endpoint).returncode, 0, "by URL behind --url, as the admin commands take it")
        for words in (("ftp://x",), ("--url", "ftp://x"), ("--url",), ("--uri", d.endpoint), (d.endpoint, d.endpoint), ("--url", "--url", d.endpoint)):
            r = run("health", *words)
            true(r.returncode == 2 and r.stderr.strip(), f"a wrong command line: {words}: {r.returncode} {r.stderr}")
        for words in (("help",), ("health", "--help")):
            true("tarn health [[--url] URL]" in run(*words).stdout, f"both forms are in the help: {words}")
    r = run("health", f"http://127.0.0.1:{free_port()}")
    true(r.returncode == 1 and r.stderr.strip(), "nobody there")


@case
def few_connections_use_all_workers():
    with Daemon(args=["--workers", "2"], env={"TARN_LOG_LEVEL": "debug"}) as d:
        held = [d.client().socket() for _ in range(4)]
        request = f"GET /minio/health/live HTTP/1.1\r\nHost: {d.client().netloc}\r\n\r\n".encode()
        for s in held:
            s.sendall(request)
            true(s.recv(1000).startswith(b"HTTP/1.1 200"), "an answer")
        # Each thread of a worker has taken its share: none of the two has slept through it.
        times = {}
        for task in os.listdir(f"/proc/{d.process.pid}/task"):
            with open(f"/proc/{d.process.pid}/task/{task}/comm") as f:
                name = f.read().strip()
            with open(f"/proc/{d.process.pid}/task/{task}/status") as f:
                times[name] = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", f.read(), re.M).group(1))
        before = dict(times)
        for _ in range(50):
            for s in held:
                s.sendall(request)
                s.recv(1000)
        for task in os.listdir(f"/proc/{d.process.pid}/task"):
            with open(f"/proc/{d.process.pid}/task/{task}/comm") as f:
                name = f.read().strip()
            with open(f"/proc/{d.process.pid}/task/{task}/status") as f:
                times[name] = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", f.read(), re.M).group(1))
        woken = {n: times[n] - before.get(n, 0) for n in ("tarn-0", "tarn-1")}
        true(min(woken.values()) >= 50, f"both workers had two connections each: {woken}")
        for s in held:
            s.close()


@case
def connections_past_the_maximum_wait():
    with Daemon(env={"TARN_CONNECTIONS": "8"}) as d:
        request = f"GET /minio/health/live HTTP/1.1\r\nHost: {d.client().netloc}\r\n\r\n".encode()
        d.client().close()
        time.sleep(0.2)
        held = [d.client().socket() for _ in range(8)]
        for s in held:
            s.sendall(request)
            true(s.recv(1000).startswith(b"HTTP/1.1 200"), "one of eight")
        with d.client().socket() as ninth:
            ninth.sendall(request)
            ninth.settimeout(0.5)
            try:
                ninth.recv(1000)
                waited = False
            except socket.timeout:
                waited = True
            true(waited, "the ninth waits")
            held.pop().close()
            ninth.settimeout(15)
            true(ninth.recv(1000).startswith(b"HTTP/1.1 200"), "and is served when one has gone")
        for s in held:
            s.close()


@case
def a_drain_answers_what_has_come():
    with Daemon(args=["--workers", "2"]) as d:
        c = d.client()
        b = c.new_bucket()
        body = os.urandom(3_000_000)
        results = []

        def upload(i):
            try:
                results.append(d.client().put(b, f"k{i}", body).status)
            except OSError as e:
                results.append(e)
        idle = [c.socket() for _ in range(20)]
        threads = [threading.Thread(target=upload, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        time.sleep(0.05)
        eq(d.stop(), 0, "exit status")
        for t in threads:
            t.join(30)
        for s in idle:
            s.settimeout(5)
            try:
                eq(s.recv(1), b"", "idle connections are closed")
            except ConnectionResetError:
                pass
            s.close()
        true(all(r == 200 or isinstance(r, OSError) for r in results), f"answered or never taken: {results}")
        d.start()
        kept = d.client().keys(b)
        true(len(kept) >= results.count(200), f"what was answered is there: {results} {kept}")


@case
def a_drain_has_an_end():
    with Daemon() as d:
        c = d.client()
        b = c.new_bucket()
        headers, _ = c.signed_headers("PUT", f"/{b}/never", payload="UNSIGNED-PAYLOAD")
        with c.socket(60) as s, c.socket(60) as part:
            part.sendall(b"GET / HTTP/1.1\r\nHo")
            s.sendall("\r\n".join([f"PUT /{b}/never HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "Content-Length: 1000000", "", ""]).encode() + b"x" * 1000)
            time.sleep(0.3)
            began = time.monotonic()
            eq(d.stop(60), 0, "exit status")
            took = time.monotonic() - began
            true(29 <= took <= 38, f"an upload that does not go on is cut off after 30 s: {took:.1f}")
            true("cut off" in d.log(), "and the log says so")
        d.start()
        eq(d.client().head(b, "never").status, 404, "nothing of it is there")


main()
