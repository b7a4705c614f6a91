# SPDX-License-Identifier: Apache-2.0
label soak soak 'tests/run --soak HOURS: simulation, kills, faults of drives, histories and fuzzers in rounds, each with its own seeds'

# soak_left: seconds until the end, 0 when it is over
soak_left() { echo $((SOAK_END > SECONDS ? SOAK_END - SECONDS : 0)); }

# soak_part NAME SECONDS COMMAND...: one part of a round, unless the time is over; the log stays where something failed
soak_part() {
    local name=$1 limit=$2 before
    shift 2
    [ "$(soak_left)" -gt 0 ] || return 0
    before=$(counted failed)
    COLLECT_BRIEF=1 collect "soak/$name" "$limit" "$@"
    [ "$(counted failed)" != "$before" ] || rm -f "$T_LOGS/soak-${name//\//-}.log"
}

soak_fuzz() { # ROUND SECONDS
    local f n before log
    for f in "$T_TOP"/tests/fuzz/fuzz_*.c; do
        [ "$(soak_left)" -gt 0 ] || return 0
        n=$(basename "$f" .c) before=$(counted failed) log=$T_LOGS/soak-$1-$n.log
        mkdir -p "$T_WORK/corpus/$n" "$T_LOGS/$n"
        check "soak/$1/$n" $(($2 + 300)) "$T_TOP/build/fuzz/$n" -max_total_time="$2" -timeout=60 -rss_limit_mb=2048 \
            -artifact_prefix="$T_LOGS/$n/" "$T_WORK/corpus/$n" "$T_TOP/tests/fuzz/corpus/$n" || true
        [ "$(counted failed)" != "$before" ] || rm -f "$log"
    done
}

suite_soak() {
    local at=$T_TOP/tests/reliability round=0 seed began before seconds fuzz=no
    need_build dev && need_daemon soak release || { skipped soak "a build failed"; return 0; }
    if need_build fuzz; then fuzz=yes; else skipped soak/fuzz "the fuzz build failed"; fi
    SOAK_END=$((SECONDS + $(awk -v h="${T_SOAK:-0.1}" 'BEGIN { printf "%d", h * 3600 }')))
    mkdir -p "$T_LOGS/sim-regressions"
    while [ "$(soak_left)" -gt 0 ]; do
        round=$((round + 1)) seed=$((T_SEED + round * 1000003)) began=$SECONDS before="$(counted ok) $(counted failed)"
        seconds=$(soak_left)
        [ "$seconds" -lt 600 ] || seconds=600
        soak_part "$round/sim" 3000 "$T_TOP/build/dev/tarn_sim" run --seed "$seed" --seconds "$seconds" --jobs "$(nproc)" --keep "$T_LOGS/sim-regressions"
        soak_part "$round/kills" 1800 python3 "$at/crash.py" --rounds 30 --seed "$seed"
        soak_part "$round/drives" 1800 python3 "$at/faults.py" --seed "$seed"
        soak_part "$round/histories" 900 python3 "$at/history.py" --seed "$seed"
        [ $fuzz = no ] || soak_fuzz "$round" "$T_FUZZ"
        echo "# round $round: seed $seed, $((SECONDS - began)) s, passed and failed until then: $before, now: $(counted ok) $(counted failed)"
    done
}
