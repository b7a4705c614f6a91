# SPDX-License-Identifier: Apache-2.0
"""The notebook of the compose file: its code cells, one after another, as Jupyter would run them."""
import glob
import json
import os
import re
import subprocess
import sys

from steps import ACCESS, ENDPOINT, REGION, SECRET, TOP, absent, main, same, step

homes = [d for d in [os.environ.get("JAVA_HOME", ""), *sorted(glob.glob("/usr/lib/jvm/*17*"))] if os.access(os.path.join(d, "bin", "java"), os.X_OK)]
if not homes:
    absent("Java 17 is not here")
os.environ |= {"JAVA_HOME": homes[0], "SPARK_LOCAL_IP": "127.0.0.1", "AWS_ENDPOINT_URL": ENDPOINT, "AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": ACCESS,
               "AWS_SECRET_ACCESS_KEY": SECRET,
               "PYSPARK_SUBMIT_ARGS": f"--conf spark.jars.ivy={os.environ['T_CACHE']}/ivy --driver-memory 1g --master local[2] --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
                                      "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=2 pyspark-shell"}


@step
def cells():
    with open(os.path.join(TOP, "deploy", "notebook", "first-steps.ipynb"), encoding="utf-8") as f:
        doc = json.load(f)
    code = ["".join(c["source"]) for c in doc["cells"] if c["cell_type"] == "code"]
    r = subprocess.run([sys.executable, "-c", "import pyspark.sql\npyspark.sql.SparkSession.builder.config('spark.jars.packages', '%s').getOrCreate()"
                        % re.search(r'spark.jars.packages", "([^"]+)"', code[1]).group(1)], capture_output=True, text=True)
    if r.returncode and "UNRESOLVED DEPENDENCIES" in r.stdout + r.stderr:
        absent("Spark cannot fetch its packages here")
    scope = {"__name__": "__main__"}
    for cell in code:
        exec(cell, scope)
    spark, first = scope["spark"], scope["first"]
    same([tuple(r) for r in spark.sql("SELECT id, tier FROM tarn.lab.customers ORDER BY id").collect()], [(1, "gold"), (2, "plain"), (3, "gold")], "the table")
    same([r[0] for r in spark.sql(f"SELECT id FROM tarn.lab.customers VERSION AS OF {first} ORDER BY id").collect()], [1, 2], "the first snapshot")
    spark.stop()


main()
