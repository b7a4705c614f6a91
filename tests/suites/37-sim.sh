# SPDX-License-Identifier: Apache-2.0
label sim quick 'the whole store on simulated drives: power cuts and faults against a model; canaries; each fallible call fails once'
suite_sim() {
    # The same plans each time, so that what fails is the change's doing; then five minutes of plans that this change is the first
    # to meet (the seed comes from the sources, see tests/run).
    local dir=$T_LOGS/sim-regressions jobs runs=20
    jobs=$(nproc)
    need_build dev || { skipped sim "the dev build failed"; return 0; }
    mkdir -p "$dir"
    [ "$T_MODE" = quick ] || runs=60
    collect sim/regressions 600 "$T_TOP/build/dev/tarn_sim" replay "$T_TOP"/tests/sim/regressions/*.txt
    # A failing plan is shrunk and left here: put it into tests/sim/regressions with its fix.
    collect sim 1800 "$T_TOP/build/dev/tarn_sim" run --seed 1 --runs $runs --jobs "$jobs" --keep "$dir"
    [ "$T_MODE" != quick ] || return 0
    collect sim/fresh 1800 "$T_TOP/build/dev/tarn_sim" run --seed "$T_SEED" --seconds 300 --jobs "$jobs" --keep "$dir"
    collect sim/canaries 1800 "$T_TOP/build/dev/tarn_sim" canaries
    need_build asan || { skipped sim/asan "the asan build failed"; return 0; }
    collect sim/asan 1800 "$T_TOP/build/asan/tarn_sim" run --seed 1 --runs 12 --jobs "$jobs" --keep "$dir"
    # A full run fails each call, and a sample with the sanitizers; a standard one the same sample each time, and with the sanitizers
    # a few calls on one drive, where most errors are told: well under a minute.
    if [ "$T_MODE" = full ]; then
        collect sim/nth 3600 "$T_TOP/build/dev/tarn_sim" nth --jobs "$jobs"
        collect sim/nth-asan 3600 "$T_TOP/build/asan/tarn_sim" nth --jobs "$jobs" --sample 40 --seed "$T_SEED"
    else
        collect sim/nth 1800 "$T_TOP/build/dev/tarn_sim" nth --jobs "$jobs" --sample 10 --seed 1
        collect sim/nth-asan 600 "$T_TOP/build/asan/tarn_sim" nth --jobs "$jobs" --drives 1 --sample 2 --seed "$T_SEED"
    fi
}
