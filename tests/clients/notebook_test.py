# SPDX-License-Identifier: Apache-2.0
"""The notebook of the compose file: its code cells, one after another, as Jupyter would run them."""
import glob
import json
import os
import sys

from steps import ACCESS, ENDPOINT, REGION, SECRET, TOP, main, same, step

homes = [d for d in [os.environ.get("JAVA_HOME", ""), *sorted(glob.glob("/usr/lib/jvm/*17*"))] if os.access(os.path.join(d, "bin", "java"), os.X_OK)]
if not homes:
    print("Java 17 is not here")
    sys.exit(77)
os.environ |= {"JAVA_HOME": homes[0], "SPARK_LOCAL_IP": "127.0.0.1", "AWS_ENDPOINT_URL": ENDPOINT, "AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": ACCESS,
               "AWS_SECRET_ACCESS_KEY": SECRET,
               "PYSPARK_SUBMIT_ARGS": f"--conf spark.jars.ivy={os.environ['T_CACHE']}/ivy --driver-memory 1g --master local[2] --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
                                      "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=2 pyspark-shell"}


@step
def cells():
    with open(os.path.join(TOP, "deploy", "notebook", "first-steps.ipynb"), encoding="utf-8") as f:
        doc = json.load(f)
    scope = {"__name__": "__main__"}
    for cell in doc["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    spark, first = scope["spark"], scope["first"]
    same([tuple(r) for r in spark.sql("SELECT id, tier FROM tarn.lab.customers ORDER BY id").collect()], [(1, "gold"), (2, "plain"), (3, "gold")], "the table")
    same([r[0] for r in spark.sql(f"SELECT id FROM tarn.lab.customers VERSION AS OF {first} ORDER BY id").collect()], [1, 2], "the first snapshot")
    spark.stop()


main()
