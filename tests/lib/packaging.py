#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/ and docker-compose.yml, as far as they can be checked without a container engine or a booted systemd.

Needs PyYAML, a release build (TARN_BIN), and where libseccomp is there it runs the daemon under the profile.
"""
import ctypes
import ctypes.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "wire"))
from tarnwire import BINARY, Client, Daemon, Skip, case, eq, free_port, main, true  # noqa: E402


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def tracked():
    return set(subprocess.run(["git", "-C", TOP, "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True).stdout.split("\n"))


def stages(path):
    """A Dockerfile as a list of stages, each a list of (instruction, rest)."""
    out = []
    for line in re.sub(r"\\\n", " ", read(path)).split("\n"):
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.strip().partition(" ")
            if word == "FROM":
                out.append([])
            out[-1].append((word, rest.strip()))
    return out


def packages(stage):
    for word, rest in stage:
        m = word == "RUN" and re.search(r"apt-get install -y --no-install-recommends ([\w. +-]+?) &&", rest)
        if m:
            return set(m.group(1).split())
    return set()


@case
def compose_file():
    try:
        import yaml
    except ImportError as e:
        raise Skip("PyYAML is not here") from e
    doc = yaml.safe_load(read("docker-compose.yml"))
    eq(set(doc), {"services", "volumes"}, "top level")
    eq(set(doc["services"]), {"tarn", "notebook"}, "services")
    for name, s in doc["services"].items():
        known = {"build", "image", "command", "environment", "ports", "volumes", "security_opt", "healthcheck", "stop_grace_period", "restart", "depends_on"}
        eq(set(s) - known, set(), f"keys of {name}")
        build = s["build"] if isinstance(s["build"], dict) else {"context": s["build"]}
        dockerfile = os.path.join(build["context"], build["dockerfile"] if "dockerfile" in build else "Dockerfile")
        true(os.path.isfile(os.path.join(TOP, dockerfile)), f"{dockerfile} is there")
        for p in s["ports"]:
            true(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", p), f"the port {p} is published on the loopback only")
        for v in s["volumes"]:
            true(v.split(":")[0] in doc["volumes"], f"the volume {v} is declared")
        for v in s["environment"].values():
            eq(re.sub(r"\$\{[A-Z_]+:-[\w-]+\}", "", v).count("$"), 0, f"substitution in {v}")
    t = doc["services"]["tarn"]
    eq(t["healthcheck"]["test"], ["CMD", "tarn", "health"], "the health check is the binary's own")
    profile = [o.split("=", 1)[1] for o in t["security_opt"] if o.startswith("seccomp=")]
    true(profile and os.path.isfile(os.path.join(TOP, profile[0])), "the seccomp profile is there")
    eq(doc["services"]["notebook"]["depends_on"], {"tarn": {"condition": "service_healthy"}}, "the notebook waits")
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0 if shutil.which("docker") else False:
        r = subprocess.run(["docker", "compose", "-f", os.path.join(TOP, "docker-compose.yml"), "config", "-q"], capture_output=True, text=True)
        eq(r.returncode, 0, f"docker compose config: {r.stderr[-300:]}")


@case
def image_lists():
    build, run = stages("deploy/Dockerfile")
    wanted = re.search(r"T_BUILD_PACKAGES=\(([^)]*)\)", read("deploy/machine.sh")).group(1).split()
    eq(packages(build), set(wanted), "packages of the build stage and of deploy/machine.sh")
    files = tracked()
    for stage, context in ((build, ""), (run, ""), *((s, "deploy/notebook/") for s in stages("deploy/notebook/Dockerfile"))):
        for word, rest in stage:
            if word == "COPY" and "--from=" not in rest:
                for source in [w for w in rest.split() if not w.startswith("--")][:-1]:
                    path = os.path.normpath(context + source)
                    true(path in files or any(f.startswith(path + "/") for f in files), f"COPY {source}: in the tree")
    libraries = subprocess.run(["ldd", BINARY], check=True, capture_output=True, text=True).stdout
    for lib in re.findall(r"=> (/\S+)", libraries):
        owners = set()
        for path in {lib, os.path.realpath(lib), lib.replace("/lib/", "/usr/lib/", 1)}:
            r = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True)
            owners |= {line.split(":")[0] for line in r.stdout.split("\n") if line}
        true(owners & (packages(run) | {"libc6", "libgcc-s1", "zlib1g"}), f"{lib} ({owners}) comes with the image")


@case
def image_steps():
    """The build stage in a plain folder: its COPY and RUN lines, without those of apt."""
    build, _ = stages("deploy/Dockerfile")
    with tempfile.TemporaryDirectory(prefix="tarn-image-") as folder:
        for word, rest in build:
            if word == "COPY":
                *sources, target = rest.split()
                for s in sources:
                    to = os.path.normpath(os.path.join(folder, target, "" if target != "./" or os.path.isfile(os.path.join(TOP, s)) else s))
                    if os.path.isdir(os.path.join(TOP, s)):
                        shutil.copytree(os.path.join(TOP, s), to, dirs_exist_ok=True)
                    else:
                        shutil.copy(os.path.join(TOP, s), to)
            elif word == "RUN" and "apt-get" not in rest:
                env = {**os.environ, **({"CMAKE_C_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {})}
                r = subprocess.run(["bash", "-euc", rest], cwd=folder, capture_output=True, text=True, env=env)
                eq(r.returncode, 0, f"RUN {rest}: {r.stdout[-400:]} {r.stderr[-400:]}")
        r = subprocess.run([os.path.join(folder, "build/release/tarn"), "version"], capture_output=True, text=True)
        true(r.returncode == 0 and "tarn" in r.stdout, f"tarn version: {r.stdout} {r.stderr}")


@case
def health_command():
    with Daemon() as d:
        r = subprocess.run([BINARY, "health", d.endpoint], capture_output=True, text=True)
        eq(r.returncode, 0, f"tarn health: {r.stdout} {r.stderr}")
        # As in the image, where the address comes from the same environment as the daemon's.
        env = {k: v for k, v in os.environ.items() if not k.startswith("TARN_")}
        r = subprocess.run([BINARY, "health"], capture_output=True, text=True, env={**env, "TARN_ADDRESS": f"127.0.0.1:{d.port}"})
        eq(r.returncode, 0, f"tarn health by TARN_ADDRESS: {r.stdout} {r.stderr}")
    r = subprocess.run([BINARY, "health", f"http://127.0.0.1:{free_port()}"], capture_output=True, text=True)
    true(r.returncode != 0, "tarn health where nothing listens fails")


# ---------------------------------------------------------------------------------------------- seccomp
def launcher(folder, without):
    """A program that puts the profile's filter on itself, without the calls named, and becomes the daemon."""
    path = os.path.join(folder, "launch")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
                f"import packaging_seccomp\npackaging_seccomp.become({os.path.join(TOP, 'deploy/seccomp-io_uring.json')!r}, {without!r}, {BINARY!r})\n")
    os.chmod(path, 0o755)
    return path


def under_profile(without):
    if not ctypes.util.find_library("seccomp") and not os.path.exists("/usr/lib/x86_64-linux-gnu/libseccomp.so.2"):
        raise Skip("libseccomp is not here")
    with tempfile.TemporaryDirectory(prefix="tarn-seccomp-") as folder:
        with Daemon(binary=launcher(folder, without), env={"TARN_IO": "auto"}) as d:
            c = Client(d.endpoint)
            b = c.new_bucket()
            data = os.urandom(3_000_000)
            eq(c.put(b, "k", data).status, 200, "PUT")
            eq(c.get(b, "k").body == data, True, "GET")
            return d.log()


@case
def seccomp_profile_allows_the_ring():
    doc = json.loads(read("deploy/seccomp-io_uring.json"))
    names = [n for g in doc["syscalls"] for n in g["names"]]
    eq(len(names), len(set(names)), "every call stands once")
    for never in ("mount", "ptrace", "bpf", "kexec_load", "init_module", "unshare", "setns", "perf_event_open", "add_key", "keyctl", "userfaultfd"):
        true(never not in names, f"{never} is not allowed")
    log = under_profile([])
    true("uring" in log and "refused" not in log, f"the ring is used: {log[-500:]}")


@case
def without_the_ring_it_falls_back_and_says_so():
    log = under_profile(["io_uring_setup", "io_uring_enter", "io_uring_register"])
    true("io_uring" in log and "threads" in log, f"one line says it: {log[-500:]}")


@case
def systemd_unit():
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not here")
    with tempfile.TemporaryDirectory(prefix="tarn-unit-") as folder:
        path = os.path.join(folder, "tarn.service")
        with open(path, "w", encoding="utf-8") as f:
            f.write(read("deploy/tarn.service").replace("/usr/local/bin/tarn", BINARY))
        r = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
        ours = [line for line in r.stderr.split("\n") if "tarn" in line]
        eq(ours, [], "what systemd-analyze verify says")
        r = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=35", path], capture_output=True, text=True)
        eq(r.returncode, 0, f"exposure: {r.stdout.strip().split(chr(10))[-1]} {r.stderr[-200:]}")


@case
def notify():
    """What Type=notify relies on: READY=1 once it answers, STOPPING=1 when TERM came."""
    import socket
    with tempfile.TemporaryDirectory(prefix="tarn-notify-") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        path = os.path.join(folder, "notify")
        s.bind(path)
        s.settimeout(20)
        d = Daemon(env={"NOTIFY_SOCKET": path})
        try:
            d.start()
            true("READY=1" in s.recv(4096).decode().split("\n"), "READY=1")
            eq(d.stop(), 0, "exit status")
            seen = []
            for _ in range(10):
                seen += s.recv(4096).decode().split("\n")
                if "STOPPING=1" in seen:
                    break
            true("STOPPING=1" in seen, f"STOPPING=1 in {seen}")
        finally:
            d.stop()
            shutil.rmtree(d.folder, ignore_errors=True)


@case
def no_compose_variable_is_unknown():
    """The daemon must know every TARN_ variable that the compose file and the unit set."""
    text = read("docker-compose.yml") + read("deploy/tarn.service")
    known = set(re.findall(r'"(TARN_[A-Z0-9_]+)"', read("src/server/options.def")))
    eq(set(re.findall(r"(TARN_[A-Z0-9_]+)[=:]", text)) - known, set(), "unknown variables")


main()
