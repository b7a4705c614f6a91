# SPDX-License-Identifier: Apache-2.0
label reliability standard 'kill -9 rounds, faults of drives under verified load, recorded histories checked for linearisability'

suite_reliability() {
    need_daemon reliability release || return 0
    local at=$T_TOP/tests/reliability loadgen=$T_SHARED/bench/loadgen
    [ -d "$loadgen" ] || loadgen=$T_TOP/tests/bench/loadgen
    mkdir -p "$T_WORK/loadgen"
    # Without it the project's own traffic has to do.
    make -s -C "$loadgen" OUT="$T_WORK/loadgen" all >"$T_LOGS/reliability-loadgen.log" 2>&1 || true
    [ -x "$T_WORK/loadgen/loadgen" ] || skipped reliability/loadgen "it does not build: $(last_words "$T_LOGS/reliability-loadgen.log")"
    collect reliability/checker 120 python3 "$at/test_linear.py"
    collect reliability/histories 900 python3 "$at/history.py" --seed "$T_SEED"
    collect reliability/kills 1500 python3 "$at/crash.py" --rounds 50 --seed "$T_SEED"
    if [ -x "$T_WORK/loadgen/loadgen" ]; then
        TARN_LOADGEN=$T_WORK/loadgen/loadgen collect reliability/drives 1500 python3 "$at/faults.py" --seed "$T_SEED"
    else
        collect reliability/drives 1500 python3 "$at/faults.py" --seed "$T_SEED"
    fi
}
