# SPDX-License-Identifier: Apache-2.0
label fuzz full 'libFuzzer targets of tests/fuzz, each for a while from its corpus (--fuzz SECONDS)'
suite_fuzz() {
    local f n corpus
    compgen -G "$T_TOP/tests/fuzz/fuzz_*.c" >/dev/null || { skipped fuzz "there is no target"; return 0; }
    need_build fuzz || { skipped fuzz "the fuzz build failed"; return 0; }
    for f in "$T_TOP"/tests/fuzz/fuzz_*.c; do
        n=$(basename "$f" .c)
        [ -x "$T_TOP/build/fuzz/$n" ] || { failed "fuzz/$n" "it was not built"; continue; }
        # What it finds on the way is kept in the work folder; the tree's corpus stays as it is.
        corpus=$T_TOP/tests/fuzz/corpus/$n
        mkdir -p "$T_WORK/corpus/$n" "$T_LOGS/$n"
        [ -d "$corpus" ] || corpus=
        check "fuzz/$n" $((T_FUZZ + 120)) "$T_TOP/build/fuzz/$n" -max_total_time="$T_FUZZ" -timeout=20 -rss_limit_mb=2048 \
            -artifact_prefix="$T_LOGS/$n/" "$T_WORK/corpus/$n" ${corpus:+"$corpus"} || true
    done
}
