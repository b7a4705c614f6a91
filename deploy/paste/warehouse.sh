curl --aws-sigv4 "aws:amz:us-east-1:s3tables" --user minioadmin:minioadmin \
    -H "Content-Type: application/json" -d '{"name": "lakehouse"}' http://127.0.0.1:9000/_iceberg/v1/warehouses
