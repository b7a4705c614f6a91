# SPDX-License-Identifier: Apache-2.0
label clients standard "the project's own client tests: the README's lines for aws-cli, boto3, PyIceberg, DuckDB, Spark"

clients_with() { # PREFIX NAME...
    local prefix=$1 n
    shift
    for n in "$@"; do collect "$prefix/$n" 600 "$T_TOP/tests/clients/run" "$n"; done
}

suite_clients() {
    collect clients/readme 60 python3 "$T_TOP/tests/clients/readme.py"
    need_daemon clients release || return 0
    java_home 17 >/dev/null || need_packages openjdk-17-jre-headless || true
    prefetch_wait
    with_server clients clients/daemon release 1 -- clients_with clients properties awscli boto3 pyiceberg duckdb spark
    with_server clients-threads clients-threads/daemon release 4 TARN_IO=threads -- clients_with clients-threads awscli boto3 pyiceberg
}
