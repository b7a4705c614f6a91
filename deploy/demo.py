# SPDX-License-Identifier: Apache-2.0
"""A round through a table with PyIceberg: warehouse, namespace, table, append, schema evolution, time travel.

Run by `deploy/quickstart --demo`; TARN_ENDPOINT, TARN_ACCESS_KEY and TARN_SECRET_KEY say where the server is.
"""
import json
import os
import urllib.error
import urllib.request

import pyarrow as pa
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

ENDPOINT = os.environ["TARN_ENDPOINT"]
ACCESS, SECRET, REGION = os.environ["TARN_ACCESS_KEY"], os.environ["TARN_SECRET_KEY"], "us-east-1"
CATALOG = ENDPOINT + "/_iceberg"


def make_warehouse(name):
    """One signed POST; that the warehouse is there already is fine."""
    body = json.dumps({"name": name}).encode()
    request = AWSRequest("POST", CATALOG + "/v1/warehouses", data=body, headers={"Content-Type": "application/json"})
    SigV4Auth(Credentials(ACCESS, SECRET), "s3tables", REGION).add_auth(request)
    try:
        urllib.request.urlopen(urllib.request.Request(request.url, body, dict(request.headers.items()), method="POST"), timeout=30).close()
    except urllib.error.HTTPError as e:
        if e.code != 409:
            raise SystemExit(f"creating the warehouse: {e.code} {e.read().decode()}") from e


def show(title, table):
    print(f"\n{title}\n  {' | '.join(table.column_names)}")
    for row in table.to_pylist():
        print("  " + " | ".join("-" if v is None else str(v) for v in row.values()))


def main():
    make_warehouse("lakehouse")
    catalog = load_catalog("tarn", **{
        "type": "rest", "uri": CATALOG, "warehouse": "lakehouse",
        "rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": REGION,
        "client.access-key-id": ACCESS, "client.secret-access-key": SECRET, "client.region": REGION,
        "s3.endpoint": ENDPOINT, "s3.path-style-access": "true",
    })
    catalog.create_namespace_if_not_exists("demo")
    if catalog.table_exists("demo.lakes"):
        catalog.purge_table("demo.lakes")

    lakes = catalog.create_table("demo.lakes", pa.schema([("name", pa.string()), ("depth_m", pa.float64())]))
    print(f"created demo.lakes at {lakes.location()}")
    lakes.append(pa.table({"name": ["Loch Ness", "Lake Bled"], "depth_m": [227.0, 30.6]}))
    first = lakes.current_snapshot().snapshot_id
    show("after the first append", lakes.scan().to_arrow())

    with lakes.update_schema() as change:
        change.add_column("carved_by", StringType())
    lakes.append(pa.table({"name": ["Lake Agnes"], "depth_m": [20.0], "carved_by": ["ice"]}))
    now = catalog.load_table("demo.lakes").scan().to_arrow().sort_by("name")
    show("after a new column and one more row", now)

    then = catalog.load_table("demo.lakes").scan(snapshot_id=first).to_arrow().sort_by("name")
    show(f"as it was at snapshot {first}", then)

    if now.num_rows != 3 or then.num_rows != 2 or then.column_names != ["name", "depth_m"]:
        raise SystemExit("error: the rows are not those that were written")
    print("\nall rows came back as they were written")


main()
