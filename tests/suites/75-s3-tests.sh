# SPDX-License-Identifier: Apache-2.0
label s3-tests standard 'shared/conformance/s3-tests, the gate list: at least half of it passes'
label versitygw full 'shared/conformance/versitygw: counted, no threshold yet'

# measured NAME PART-OF-100 SECONDS COMMAND...: a suite that we do not pass as a whole yet: one check, with the counts
measured() {
    local name=$1 part=$2 limit=$3 log began closing
    log=$T_LOGS/$name.log
    shift 3
    began=$(now)
    bounded "$limit" "$log" "$@" || true
    closing=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    cp "$T_WORK/$name.txt" "$T_LOGS/$name-results.txt" 2>/dev/null || true
    if [ -z "$closing" ]; then
        failed "$name" "it did not come to its end: $(last_words "$log")" "$log"
    elif awk -v p="$part" '{ exit !($1 * 100 >= p * ($1 + $3)) }' <<<"$closing"; then
        ok "$name" "$(since "$began")" "$closing; wanted: $part % of those run"
    else
        failed "$name" "$closing; wanted: $part % of those run" "$log"
    fi
}

suite_s3_tests() {
    need_shared s3-tests conformance/s3-tests/run.py || return 0
    need_daemon s3-tests release || return 0
    prefetch_wait
    # Three users, and a "day" of ten seconds for the rules of lifecycle.
    export TARN_ALT_ACCESS_KEY=s3tests-alt TARN_ALT_SECRET_KEY=alt-secret-word TARN_TENANT_ACCESS_KEY=s3tests-tenant TARN_TENANT_SECRET_KEY=tenant-secret-word TARN_LC_DEBUG_INTERVAL=10
    with_server s3-tests s3-tests/daemon release 4 TARN_LC_DEBUG_INTERVAL=10 \
        "TARN_USERS=$TARN_ALT_ACCESS_KEY:$TARN_ALT_SECRET_KEY,$TARN_TENANT_ACCESS_KEY:$TARN_TENANT_SECRET_KEY" -- measured s3-tests 50 1200 \
        python3 "$T_SHARED/conformance/s3-tests/run.py" "$T_SHARED/conformance/s3-tests/lists/gate-pypi.txt" --max-time 1000 --timeout 120 --out "$T_WORK/s3-tests.txt"
}

suite_versitygw() {
    need_shared versitygw conformance/versitygw/run.py || return 0
    command -v go >/dev/null || { skipped versitygw "Go is not here"; return 0; }
    need_daemon versitygw release || return 0
    prefetch_wait
    with_server versitygw versitygw/daemon release 4 -- measured versitygw 0 1600 \
        python3 "$T_SHARED/conformance/versitygw/run.py" --out "$T_WORK/versitygw.txt"
}
