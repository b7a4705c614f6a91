# SPDX-License-Identifier: Apache-2.0
label sim quick 'the whole store on simulated drives: power cuts and faults against a model; canaries; each fallible call fails once'
suite_sim() {
    local seconds=20 dir=$T_LOGS/sim-regressions
    need_build dev || { skipped sim "the dev build failed"; return 0; }
    mkdir -p "$dir"
    collect sim/regressions 300 "$T_TOP/build/dev/tarn_sim" replay "$T_TOP"/tests/sim/regressions/*.txt
    [ "$T_MODE" = quick ] || seconds=300
    # A failing plan is shrunk and left here: put it into tests/sim/regressions with its fix.
    collect sim $((seconds + 400)) "$T_TOP/build/dev/tarn_sim" run --seconds "$seconds" --jobs "$(nproc)" --keep "$dir"
    [ "$T_MODE" != quick ] || return 0
    collect sim/canaries 600 "$T_TOP/build/dev/tarn_sim" canaries
    need_build asan || { skipped sim/asan "the asan build failed"; return 0; }
    collect sim/asan 500 "$T_TOP/build/asan/tarn_sim" run --seconds 60 --jobs "$(nproc)" --keep "$dir"
    collect sim/nth 2400 "$T_TOP/build/asan/tarn_sim" nth --jobs "$(nproc)" --stride "$([ "$T_MODE" = full ] && echo 1 || echo 7)"
}
