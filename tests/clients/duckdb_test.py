# SPDX-License-Identifier: Apache-2.0
"""DuckDB: the README's lines, Parquet over s3://, tables of the catalog by SigV4 and by OAuth2."""
import importlib.util
import os
import re

import boto3
import duckdb

from steps import ACCESS, CATALOG, ENDPOINT, HOST, REGION, SECRET, main, paste, same, step, unique, warehouse

NS = unique("duck", "_")
SSL = "true" if ENDPOINT.startswith("https") else "false"


def extension(name):
    """The file of an extension as its PyPI package carries it: DuckDB itself would fetch it from a server of its own."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for folder in spec.submodule_search_locations if spec else ():
        for root, _, files in os.walk(folder):
            if f"{name}.duckdb_extension" in files:
                return os.path.join(root, f"{name}.duckdb_extension")
    raise AssertionError(f"the package of the extension {name} has no file")


def local(sql):
    return re.sub(r"INSTALL (\w+); LOAD \1;", lambda m: f"LOAD '{extension(m.group(1))}';", sql)


def connect():
    return duckdb.connect(config={"allow_unsigned_extensions": "true", "autoinstall_known_extensions": "false"})


def attached(auth="sigv4"):
    c = connect()
    c.execute(local("".join(f"INSTALL {e}; LOAD {e};" for e in ("httpfs", "aws", "avro", "iceberg"))))
    c.execute(f"CREATE SECRET s3 (TYPE s3, KEY_ID '{ACCESS}', SECRET '{SECRET}', REGION '{REGION}', ENDPOINT '{HOST}', URL_STYLE 'path', USE_SSL {SSL})")
    how = f"AUTHORIZATION_TYPE 'sigv4', SIGV4_SERVICE 's3tables', SIGV4_REGION '{REGION}', SECRET s3"
    if auth == "oauth2":
        c.execute(f"CREATE SECRET ice (TYPE iceberg, CLIENT_ID '{ACCESS}', CLIENT_SECRET '{SECRET}', OAUTH2_SERVER_URI '{CATALOG}/v1/oauth/tokens')")
        how = "SECRET ice"
    c.execute(f"ATTACH 'lakehouse' AS lake (TYPE iceberg, ENDPOINT '{CATALOG}', ACCESS_DELEGATION_MODE 'none', {how})")
    return c


@step
def pasted_lines():
    warehouse()
    c = connect()
    got = c.execute(local(paste("duckdb.sql"))).fetchall()
    same(got, [(1, "otter"), (2, "heron")], "what it shows")
    c.execute("DROP TABLE lake.zoo.animals")
    c.execute("DROP SCHEMA lake.zoo")


@step
def parquet_over_s3():
    s3 = boto3.client("s3", endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET)
    b = unique("duck")
    s3.create_bucket(Bucket=b)
    c = attached()
    c.execute(f"COPY (SELECT i AS id, i % 7 AS g FROM range(100000) r(i)) TO 's3://{b}/one.parquet' (FORMAT parquet)")
    same(c.execute(f"SELECT count(*), sum(id), count(DISTINCT g) FROM 's3://{b}/one.parquet'").fetchone(), (100000, 4999950000, 7), "one file")
    c.execute(f"COPY (SELECT i AS id, i % 5 AS g FROM range(1000) r(i)) TO 's3://{b}/parts' (FORMAT parquet, PARTITION_BY (g))")
    same(c.execute(f"SELECT count(*) FROM read_parquet('s3://{b}/parts/*/*.parquet', hive_partitioning=true) WHERE g = 3").fetchone(), (200,), "partitions")


def tables(auth):
    c, ns = attached(auth), f"{NS}_{auth}"
    c.execute(f"CREATE SCHEMA lake.{ns}")
    c.execute(f"CREATE TABLE lake.{ns}.t (id BIGINT, name VARCHAR)")
    c.execute(f"INSERT INTO lake.{ns}.t SELECT i, 'n' || i FROM range(1000) r(i)")
    c.execute(f"DELETE FROM lake.{ns}.t WHERE id < 100")
    c.execute(f"UPDATE lake.{ns}.t SET name = 'x' WHERE id >= 990")
    same(attached(auth).execute(f"SELECT count(*), sum(id), count(*) FILTER (name = 'x') FROM lake.{ns}.t").fetchone(), (900, 494550, 10), "rows")
    c.execute("BEGIN")
    c.execute(f"CREATE TABLE lake.{ns}.two AS SELECT 1 AS a")
    c.execute(f"INSERT INTO lake.{ns}.t VALUES (5000, 'late')")
    c.execute("COMMIT")
    same(attached(auth).execute(f"SELECT (SELECT count(*) FROM lake.{ns}.two), (SELECT count(*) FROM lake.{ns}.t)").fetchone(), (1, 901), "after a transaction over two tables")
    for t in ("t", "two"):
        c.execute(f"DROP TABLE lake.{ns}.{t}")
    c.execute(f"DROP SCHEMA lake.{ns}")


@step
def tables_by_sigv4():
    tables("sigv4")


@step
def tables_by_oauth2():
    tables("oauth2")


main()
