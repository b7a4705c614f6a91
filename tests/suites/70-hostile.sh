# SPDX-License-Identifier: Apache-2.0
label hostile standard 'shared/conformance/hostile against the sanitizer build'
suite_hostile() {
    need_shared hostile conformance/hostile/hostile.py || return 0
    need_daemon hostile asan || return 0
    # Cases that ask for what no source documents may be argued against, each with its source, in this list.
    local known=$T_TOP/tests/suites/hostile-known.tsv args=()
    [ ! -s "$known" ] || args=(--expected "$known")
    COLLECT_FROM=$T_WORK/hostile.txt COLLECT_BRIEF=1 with_server hostile hostile/daemon asan 1 -- \
        collect hostile 1000 python3 "$T_SHARED/conformance/hostile/hostile.py" --out "$T_WORK/hostile.txt" "${args[@]}"
}
