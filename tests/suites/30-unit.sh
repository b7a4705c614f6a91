# SPDX-License-Identifier: Apache-2.0
label unit quick 'unit tests: dev build, and under ASan and UBSan; clang compiles it without a warning'
suite_unit() {
    need_build dev || { skipped unit "the dev build failed"; return 0; }
    collect unit 900 "$T_TOP/tests/lib/unit" dev
    [ "$T_MODE" != quick ] || return 0
    need_build asan || { skipped unit-asan "the asan build failed"; return 0; }
    collect unit-asan 1800 "$T_TOP/tests/lib/unit" asan
    need_build clang || true
}
