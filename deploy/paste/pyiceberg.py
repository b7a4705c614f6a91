import pyarrow as pa
from pyiceberg.catalog import load_catalog

catalog = load_catalog("tarn", **{
    "type": "rest",
    "uri": "http://127.0.0.1:9000/_iceberg",
    "warehouse": "lakehouse",
    "rest.sigv4-enabled": "true",
    "rest.signing-name": "s3tables",
    "rest.signing-region": "us-east-1",
    "client.access-key-id": "minioadmin",
    "client.secret-access-key": "minioadmin",
    "client.region": "us-east-1",
    "s3.endpoint": "http://127.0.0.1:9000",
    "s3.path-style-access": "true",
})
catalog.create_namespace_if_not_exists("shop")
orders = catalog.create_table("shop.orders", schema=pa.schema([("id", pa.int64()), ("item", pa.string())]))
orders.append(pa.table({"id": [1, 2], "item": ["tea", "cake"]}))
print(orders.scan().to_arrow().to_pylist())
