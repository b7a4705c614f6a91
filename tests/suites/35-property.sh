# SPDX-License-Identifier: Apache-2.0
label property standard 'random commits: the metadata engine and PyIceberg come to the same result'
suite_property() {
    need_build asan || { skipped property "the asan build failed"; return 0; }
    "$T_TOP/tests/clients/install" iceberg >"$T_LOGS/install-iceberg.log" 2>&1 || { skipped property "PyIceberg cannot be installed: $(last_words "$T_LOGS/install-iceberg.log")"; return 0; }
    check property/iceberg-updates 900 "$T_CACHE/venv-iceberg/bin/python" "$T_TOP/tests/property/iceberg_updates.py" \
        --tool "$T_TOP/build/asan/test_iceberg_apply_tool" --rounds 120 || true
}
