# SPDX-License-Identifier: Apache-2.0
label hostile standard 'shared/conformance/hostile against the sanitizer build'
suite_hostile() {
    need_shared hostile conformance/hostile/hostile.py || return 0
    need_daemon hostile asan || return 0
    # Cases that ask for what no source documents may be argued against, each with its source, in this list.
    local known=$T_TOP/tests/suites/hostile-known.tsv args=()
    [ ! -s "$known" ] || args=(--expected "$known")
    # A pair of its own: with the defaults the secret and the access key are the same word, and one case looks whether
    # an answer that names the key gives the secret away.
    local -x TARN_ACCESS_KEY=hostile-key TARN_SECRET_KEY=hostile-secret-word
    COLLECT_FROM=$T_WORK/hostile.txt COLLECT_BRIEF=1 with_server hostile hostile/daemon asan 1 \
        TARN_ROOT_USER=$TARN_ACCESS_KEY TARN_ROOT_PASSWORD=$TARN_SECRET_KEY -- collect hostile 1000 python3 "$T_SHARED/conformance/hostile/hostile.py" --out "$T_WORK/hostile.txt" "${args[@]}"
}
