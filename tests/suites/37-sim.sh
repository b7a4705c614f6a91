# SPDX-License-Identifier: Apache-2.0
label sim quick 'the whole store on simulated drives: power cuts and faults against a model; canaries; each fallible call fails once'
suite_sim() {
    # A full run looks for new faults with fresh seeds; the others run the same plans each time, so that what fails is the change's doing.
    local plans=(--seed 1 --runs 20) asan_plans=(--seed 1 --runs 12) stride=2003 dir=$T_LOGS/sim-regressions
    need_build dev || { skipped sim "the dev build failed"; return 0; }
    mkdir -p "$dir"
    case $T_MODE in
    standard) plans=(--seed 1 --runs 60) ;;
    full) plans=(--seconds 300) asan_plans=(--seconds 60) stride=1 ;;
    esac
    collect sim/regressions 300 "$T_TOP/build/dev/tarn_sim" replay "$T_TOP"/tests/sim/regressions/*.txt
    # A failing plan is shrunk and left here: put it into tests/sim/regressions with its fix.
    collect sim 900 "$T_TOP/build/dev/tarn_sim" run "${plans[@]}" --jobs "$(nproc)" --keep "$dir"
    [ "$T_MODE" != quick ] || return 0
    collect sim/canaries 900 "$T_TOP/build/dev/tarn_sim" canaries
    need_build asan || { skipped sim/asan "the asan build failed"; return 0; }
    collect sim/asan 900 "$T_TOP/build/asan/tarn_sim" run "${asan_plans[@]}" --jobs "$(nproc)" --keep "$dir"
    # Even every two-thousandth call takes five minutes on two cores, and a standard run has an hour for everything.
    [ "$T_MODE" = full ] || return 0
    collect sim/nth 2400 "$T_TOP/build/asan/tarn_sim" nth --jobs "$(nproc)" --stride "$stride"
}
