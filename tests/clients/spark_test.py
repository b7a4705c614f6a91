# SPDX-License-Identifier: Apache-2.0
"""Spark: the README's line as it stands, then a lakehouse lesson in SQL, told no S3 region: the server has to say it."""
import glob
import os
import shlex

from steps import absent, main, paste, same, shell, step, unique, warehouse

NS = unique("lesson", "_")


def java_17():
    for d in [os.environ.get("JAVA_HOME", ""), *sorted(glob.glob("/usr/lib/jvm/*17*"))]:
        if os.access(os.path.join(d, "bin", "java"), os.X_OK):
            return d
    return absent("Java 17 is not here")


os.environ |= {"JAVA_HOME": java_17(), "SPARK_LOCAL_IP": "127.0.0.1"}
for v in [v for v in os.environ if v.startswith("AWS_") and v != "AWS_EC2_METADATA_DISABLED"]:
    del os.environ[v]
# The jars come from Maven Central by Spark's own resolver, once: the home of a client test is a new folder every time.
IVY = os.path.join(os.environ["T_CACHE"], "ivy")
EXTRA = (f"--conf spark.jars.ivy={shlex.quote(IVY)} --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 --driver-memory 1g --master 'local[2]' "
         "--conf spark.driver.host=127.0.0.1 --conf spark.sql.catalogImplementation=in-memory --conf spark.sql.session.timeZone=UTC ")


def table(out):
    return [tuple(line.split("\t")) for line in out.strip().split("\n") if "\t" in line]


def spark_sql(sql):
    command = paste("spark.sh").replace("spark-sql ", "spark-sql " + EXTRA, 1)
    head, tail = command.split(' -e "', 1)
    script = tail.rsplit('"', 1)[0] if sql is None else None
    if script is not None:
        return shell(f'{head} -e "{script}"', timeout=500)
    with open("lesson.sql", "w", encoding="utf-8") as f:
        f.write(sql)
    return shell(f"{head} -f lesson.sql", timeout=500)


@step
def pasted_line():
    warehouse()
    same(table(spark_sql(None)), [("1", "fern"), ("2", "moss")], "what it shows")


@step
def lesson():
    out = spark_sql(f"""
DROP TABLE garden.plants PURGE; DROP NAMESPACE garden;
CREATE NAMESPACE {NS}; USE {NS};
CREATE TABLE customers (customer_id BIGINT, name STRING, country STRING, total DOUBLE) USING iceberg;
INSERT INTO customers VALUES (1, 'Ada', 'UK', 1250.0), (2, 'Bo', 'Canada', 850.5), (3, 'Cy', 'UK', 2100.75);
INSERT INTO customers VALUES (4, 'Di', 'Japan', 10.0);
SELECT 'sum', country, CAST(sum(total) AS INT) FROM customers GROUP BY country ORDER BY country;
ALTER TABLE customers ADD COLUMN tier STRING;
UPDATE customers SET tier = CASE WHEN total > 1000 THEN 'gold' ELSE 'plain' END;
ALTER TABLE customers RENAME COLUMN total TO value;
ALTER TABLE customers ALTER COLUMN tier FIRST;
DELETE FROM customers WHERE country = 'Japan';
MERGE INTO customers t USING (SELECT * FROM VALUES (2, 'Bo', 'Canada', 900.0), (9, 'Ivy', 'Korea', 300.0) AS s(customer_id, name, country, value)) s
  ON t.customer_id = s.customer_id WHEN MATCHED THEN UPDATE SET t.value = s.value
  WHEN NOT MATCHED THEN INSERT (tier, customer_id, name, country, value) VALUES ('new', s.customer_id, s.name, s.country, s.value);
SELECT 'row', customer_id, name, value, tier FROM customers ORDER BY customer_id;
SELECT 'snapshots', count(*) FROM tarn.{NS}.customers.snapshots;
CREATE TABLE orders (order_id BIGINT, day STRING) USING iceberg PARTITIONED BY (day);
INSERT INTO orders VALUES (1, '2024-01-15'), (2, '2024-01-16');
ALTER TABLE orders ADD COLUMN region STRING;
ALTER TABLE orders ADD PARTITION FIELD region;
INSERT INTO orders VALUES (3, '2024-01-17', 'APAC');
SELECT 'spec', spec_id, sum(record_count) FROM tarn.{NS}.orders.files GROUP BY spec_id ORDER BY spec_id;
CREATE TABLE uk AS SELECT * FROM customers WHERE country = 'UK';
SELECT 'uk', count(*) FROM uk;
""")
    same([r for r in table(out) if r[0] in ("sum", "row", "snapshots", "spec", "uk")], [
        ("sum", "Canada", "850"), ("sum", "Japan", "10"), ("sum", "UK", "3350"),
        ("row", "1", "Ada", "1250.0", "gold"), ("row", "2", "Bo", "900.0", "plain"), ("row", "3", "Cy", "2100.75", "gold"), ("row", "9", "Ivy", "300.0", "new"),
        ("snapshots", "5"), ("spec", "0", "2"), ("spec", "1", "1"), ("uk", "2")], "answers")


@step
def time_travel():
    first = table(spark_sql(f"SELECT snapshot_id, 'first' FROM tarn.{NS}.customers.snapshots ORDER BY committed_at LIMIT 1;"))[0][0]
    out = spark_sql(f"""
SELECT 'then', customer_id, name, country, total FROM {NS}.customers VERSION AS OF {first} ORDER BY customer_id;
CALL tarn.system.rollback_to_snapshot('{NS}.customers', {first});
SELECT 'now', count(*) FROM {NS}.customers;
SELECT 'history', count(*), max(CAST(is_current_ancestor AS INT)) FROM tarn.{NS}.customers.history;
DROP TABLE {NS}.customers PURGE; DROP TABLE {NS}.orders PURGE; DROP TABLE {NS}.uk PURGE; DROP NAMESPACE {NS};
""")
    same([r for r in table(out) if r[0] in ("then", "now", "history")], [
        ("then", "1", "Ada", "UK", "1250.0"), ("then", "2", "Bo", "Canada", "850.5"), ("then", "3", "Cy", "UK", "2100.75"),
        ("now", "3"), ("history", "6", "1")], "answers")


main()
