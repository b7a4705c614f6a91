# SPDX-License-Identifier: Apache-2.0
"""PyIceberg: the README's lines, then schema and partition evolution, time travel, branches, views of namespaces, OAuth2, many writers."""
import concurrent.futures
import contextlib
import io

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType

from steps import ACCESS, CATALOG, ENDPOINT, REGION, SECRET, main, paste, same, step, unique, warehouse

NS = unique("pi", "_")


def connect(auth="sigv4"):
    common = {"type": "rest", "uri": CATALOG, "warehouse": "lakehouse", "s3.endpoint": ENDPOINT, "s3.path-style-access": "true",
              "s3.access-key-id": ACCESS, "s3.secret-access-key": SECRET, "s3.region": REGION}
    how = {"sigv4": {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": REGION, "client.access-key-id": ACCESS,
                     "client.secret-access-key": SECRET, "client.region": REGION},
           "oauth2": {"credential": f"{ACCESS}:{SECRET}", "oauth2-server-uri": CATALOG + "/v1/oauth/tokens"}}
    return load_catalog(unique("c"), **common, **how[auth])


def rows(first, n):
    return pa.table({"id": pa.array(range(first, first + n), pa.int64()), "name": [f"n{i}" for i in range(first, first + n)]})


def raises(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


@step
def pasted_lines():
    warehouse()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(paste("pyiceberg.py"), {"__name__": "pasted"})
    same(out.getvalue().strip(), str([{"id": 1, "item": "tea"}, {"id": 2, "item": "cake"}]), "what it prints")
    c = connect()
    c.purge_table("shop.orders")
    c.drop_namespace("shop")


@step
def evolve_and_travel():
    c = connect()
    c.create_namespace(NS, {"owner": "tests"})
    t = c.create_table(f"{NS}.t", rows(0, 1).schema)
    same(str(t.metadata.table_uuid) in t.location(), True, f"the location {t.location()} holds the uuid")
    t.append(rows(0, 100))
    first = t.current_snapshot().snapshot_id
    with t.update_schema() as u:
        u.add_column("price", DoubleType())
        u.rename_column("name", "label")
        u.move_first("price")
    with t.update_spec() as u:
        u.add_field("label", IdentityTransform(), "by_label")
    t.append(pa.table({"price": [1.5, None], "id": pa.array([500, 501], pa.int64()), "label": ["x", "x"]}))
    fresh = connect().load_table(f"{NS}.t")
    same(fresh.scan().to_arrow().num_rows, 102, "rows now")
    same(fresh.scan(snapshot_id=first).to_arrow().column_names, ["id", "name"], "columns of the first snapshot")
    same(fresh.scan(row_filter="label = 'x'").to_arrow()["id"].to_pylist(), [500, 501], "a filter on the new partition field")
    t.delete("id < 50")
    same(t.scan().to_arrow().num_rows, 52, "rows after the delete")
    t.manage_snapshots().create_tag(first, "start").create_branch(first, "side").commit()
    same(sorted(connect().load_table(f"{NS}.t").refs()), ["main", "side", "start"], "references")
    t.overwrite(pa.table({"price": [9.0], "id": pa.array([1], pa.int64()), "label": ["only"]}))
    same(connect().load_table(f"{NS}.t").scan().to_arrow().to_pylist(), [{"price": 9.0, "id": 1, "label": "only"}], "overwritten")


@step
def many_writers():
    c = connect()
    c.create_table(f"{NS}.many", rows(0, 1).schema)

    def writer(w):
        done = 0
        mine = connect()
        for i in range(4):
            for _ in range(60):
                try:
                    mine.load_table(f"{NS}.many").append(rows(1000 * w + i, 1))
                    done += 1
                    break
                except Exception as e:  # noqa: BLE001 - a lost race says so, and is tried again
                    if type(e).__name__ != "CommitFailedException":
                        raise
        return done
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        same(sum(pool.map(writer, range(6))), 24, "appends that went through")
    t = connect().load_table(f"{NS}.many")
    same(t.scan().to_arrow().num_rows, 24, "rows")
    same(len(t.snapshots()), 24, "snapshots")
    parents = {s.snapshot_id: s.parent_snapshot_id for s in t.snapshots()}
    at, seen = t.current_snapshot().snapshot_id, 0
    while at is not None:
        at, seen = parents[at], seen + 1
    same(seen, 24, "the line of snapshots is unbroken")


@step
def oauth2():
    c = connect("oauth2")
    c.create_table(f"{NS}.o", rows(0, 1).schema).append(rows(0, 3))
    same(connect("oauth2").load_table(f"{NS}.o").scan().to_arrow().num_rows, 3, "rows")


@step
def names_and_refusals():
    c = connect()
    same((f"{NS}",) in c.list_namespaces(), True, "namespace listed")
    raises(TableAlreadyExistsError, lambda: c.create_table(f"{NS}.t", rows(0, 1).schema))
    raises(NoSuchTableError, lambda: c.load_table(f"{NS}.absent"))
    raises(NamespaceNotEmptyError, lambda: c.drop_namespace(NS))
    c.rename_table(f"{NS}.o", f"{NS}.renamed")
    same(sorted(n for _, n in c.list_tables(NS)), ["many", "renamed", "t"], "tables")
    c.update_namespace_properties(NS, removals={"owner"}, updates={"team": "lake"})
    same({k: v for k, v in c.load_namespace_properties(NS).items() if k in ("owner", "team")}, {"team": "lake"}, "properties")
    c.create_namespace((NS, "inner"))
    same(c.list_namespaces(NS), [(NS, "inner")], "nested namespaces")
    c.drop_namespace((NS, "inner"))
    for t in ("many", "renamed", "t"):
        c.purge_table(f"{NS}.{t}")
    c.drop_namespace(NS)


main()
