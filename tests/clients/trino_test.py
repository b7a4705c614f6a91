# SPDX-License-Identifier: Apache-2.0
"""Trino: a single node put together from its Maven artefacts, with the README's catalog file as it stands; SQL over its own protocol."""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
import zipfile

from steps import absent, main, paste, same, step, warehouse

VERSION = "483"
HERE = os.path.join(os.environ["TARN_CLIENTS"], "trino")
HOME = os.path.join(os.getcwd(), "trino")


def java_25():
    for d in sorted(glob.glob("/usr/lib/jvm/*")):
        java = os.path.join(d, "bin", "java")
        if os.access(java, os.X_OK) and 'version "25' in subprocess.run([java, "-version"], capture_output=True, text=True).stderr:
            return java
    return absent("Java 25 is not here")


def jars(name):
    folder = os.path.join(os.environ["T_CACHE"], f"trino-{name}-{VERSION}")
    if not os.path.exists(folder + "/.complete"):
        os.makedirs(folder, exist_ok=True)
        r = subprocess.run(["mvn", "-B", "-q", "-f", f"{HERE}/{name}.xml", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
                           capture_output=True, text=True)
        if r.returncode:
            absent(f"Maven cannot resolve trino-{name}: {r.stdout[-300:]}")
        open(folder + "/.complete", "w").close()
    return folder


if not shutil.which("mvn"):
    absent("Maven is not here")
JAVA = java_25()
MAIN, ICEBERG = jars("main"), jars("iceberg")
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    PORT = s.getsockname()[1]
URL = f"http://127.0.0.1:{PORT}"


def write(path, text):
    os.makedirs(os.path.dirname(f"{HOME}/{path}"), exist_ok=True)
    with open(f"{HOME}/{path}", "w", encoding="utf-8") as f:
        f.write(text)


def start():
    write("etc/config.properties", f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={PORT}\ndiscovery.uri={URL}\n"
                                   f"plugin.dir={HOME}/plugin\nquery.max-memory=500MB\nquery.max-memory-per-node=500MB\ntask.concurrency=2\ntask.max-worker-threads=4\n")
    write("etc/log.properties", "io.trino=WARN\n")
    write("etc/catalog/tarn.properties", paste("trino.properties"))
    os.makedirs(f"{HOME}/data", exist_ok=True)
    os.makedirs(f"{HOME}/plugin/iceberg")
    for j in glob.glob(ICEBERG + "/*.jar"):
        os.symlink(j, f"{HOME}/plugin/iceberg/{os.path.basename(j)}")
    # The release adds this line to the plugin; the artefact on Maven lacks it.
    with zipfile.ZipFile(f"{HOME}/plugin/iceberg/services.jar", "w") as z:
        z.writestr("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n")
    log = open(f"{HOME}/server.log", "w")
    return subprocess.Popen([JAVA, "-Xmx1500m", "-Djdk.attach.allowAttachSelf=true", "-Duser.timezone=UTC", "--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED",
                             "--sun-misc-unsafe-memory-access=allow", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dnode.environment=test", "-Dnode.id=tarn",
                             f"-Dnode.data-dir={HOME}/data", "-Dnode.internal-address=127.0.0.1", "-Dnode.bind-ip=127.0.0.1", f"-Dconfig={HOME}/etc/config.properties",
                             f"-Dcatalog.config-dir={HOME}/etc/catalog", f"-Dlog.levels-file={HOME}/etc/log.properties", "-cp", f"{MAIN}/*", f"{HERE}/Start.java", VERSION],
                            stdout=log, stderr=log, cwd=HOME)


def get(url, body=None):
    request = urllib.request.Request(url, body.encode() if body else None, {"X-Trino-User": "tests", "X-Trino-Catalog": "tarn"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return json.load(r)


def sql(text):
    doc, rows = get(URL + "/v1/statement", text), []
    for _ in range(100000):
        rows += [tuple(r) for r in doc.get("data", [])]
        if "error" in doc:
            raise AssertionError(f"{text[:80]}: {doc['error']['message'][:400]}")
        if "nextUri" not in doc:
            return rows
        doc = get(doc["nextUri"])
    raise AssertionError("no end of the answer")


@step
def starts_with_the_pasted_file():
    global SERVER
    warehouse()
    SERVER = start()
    for _ in range(400):
        if SERVER.poll() is not None:
            break
        try:
            if not get(URL + "/v1/info")["starting"]:
                return
        except OSError:
            pass
        time.sleep(1)
    with open(f"{HOME}/server.log", encoding="utf-8") as f:
        log = f.read()
    raise AssertionError("Trino does not start: " + " | ".join(re.findall(r".*(?:ERROR|rror:).*", log)[:3])[:500])


@step
def tables():
    sql("CREATE SCHEMA IF NOT EXISTS tarn.bay")
    sql("CREATE TABLE tarn.bay.boats (id bigint, name varchar, length double) WITH (partitioning = ARRAY['bucket(id, 4)'])")
    sql("INSERT INTO tarn.bay.boats VALUES (1, 'gull', 6.5), (2, 'tern', 8.0), (3, 'auk', 4.2)")
    first = sql('SELECT snapshot_id FROM tarn.bay."boats$snapshots" ORDER BY committed_at DESC LIMIT 1')[0][0]
    sql("ALTER TABLE tarn.bay.boats ADD COLUMN port varchar")
    sql("UPDATE tarn.bay.boats SET port = 'north' WHERE length > 5")
    sql("DELETE FROM tarn.bay.boats WHERE id = 3")
    same(sql("SELECT id, name, port FROM tarn.bay.boats ORDER BY id"), [(1, "gull", "north"), (2, "tern", "north")], "rows")
    same(sql(f"SELECT count(*) FROM tarn.bay.boats FOR VERSION AS OF {first}"), [(3,)], "the first snapshot")
    sql("DROP TABLE tarn.bay.boats")
    sql("DROP SCHEMA tarn.bay")


@step
def ends():
    SERVER.terminate()
    SERVER.wait(60)


main()
