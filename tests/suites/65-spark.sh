# SPDX-License-Identifier: Apache-2.0
label spark standard 'shared/acceptance/jvm: the lakehouse tutorial in Spark, strictly'
label trino full "shared/acceptance/jvm/trino, and the README's catalog file in a Trino of our own"
label spark-features full 'shared/acceptance/jvm/spark features'
label flink full 'shared/acceptance/jvm/flink'
label rck full "shared/acceptance/jvm/rck: Iceberg's REST Compatibility Kit"
label concurrency full 'shared/acceptance/jvm/concurrency'

# engine NAME SECONDS JAVA PART [ARGUMENT...]: one part of the JVM checks against a fresh daemon
engine() {
    local name=$1 limit=$2 java=$3 part=$4
    shift 4
    need_shared "$name" "acceptance/jvm/$part/run" || return 0
    java_home "$java" >/dev/null || { skipped "$name" "Java $java is not here"; return 0; }
    command -v mvn >/dev/null || { skipped "$name" "Maven is not here"; return 0; }
    need_daemon "$name" release || return 0
    prefetch_wait
    TARN_TMP=$T_WORK/scratch-$name TARN_SPARK_STRICT=yes with_server "$name" "$name/daemon" release 1 -- \
        collect "$name" "$limit" "$T_SHARED/acceptance/jvm/$part/run" "$@"
    mkdir -p "$T_LOGS/$name" && cp "$T_WORK/scratch-$name"/*.err "$T_WORK/scratch-$name"/*.log "$T_LOGS/$name/" 2>/dev/null || true
    rm -rf "$T_WORK/scratch-$name"
}
suite_spark() { engine spark 1200 17 spark tutorial; }
suite_trino() {
    need_daemon trino release || return 0
    with_server trino-paste trino-paste/daemon release 1 -- collect trino-paste 900 "$T_TOP/tests/clients/run" trino
    engine trino 1500 25 trino
}
suite_spark_features() { engine spark-features 2000 17 spark features; }
suite_flink() { engine flink 1300 17 flink; }
suite_rck() { engine rck 1900 17 rck; }
suite_concurrency() { engine concurrency 1000 17 concurrency; }
