INSTALL httpfs; LOAD httpfs;
INSTALL aws; LOAD aws;
INSTALL avro; LOAD avro;
INSTALL iceberg; LOAD iceberg;
CREATE SECRET tarn (TYPE s3, KEY_ID 'minioadmin', SECRET 'minioadmin', REGION 'us-east-1',
                    ENDPOINT '127.0.0.1:9000', URL_STYLE 'path', USE_SSL false);
ATTACH 'lakehouse' AS lake (TYPE iceberg, ENDPOINT 'http://127.0.0.1:9000/_iceberg', AUTHORIZATION_TYPE 'sigv4',
                            SIGV4_SERVICE 's3tables', SIGV4_REGION 'us-east-1', SECRET tarn, ACCESS_DELEGATION_MODE 'none');
CREATE SCHEMA IF NOT EXISTS lake.zoo;
CREATE TABLE lake.zoo.animals AS SELECT * FROM (VALUES (1, 'otter'), (2, 'heron')) t(id, name);
SELECT * FROM lake.zoo.animals ORDER BY id;
