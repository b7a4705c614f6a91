# SPDX-License-Identifier: Apache-2.0
# Results: what a check prints, how it is counted, how a command is run within its time. Sourced by tests/run.
#
# Every check ends in exactly one of ok, failed or skipped. The counts live in a file, so that a function may report
# from a subshell too.

# ok NAME SECONDS [DETAIL] / failed NAME REASON [LOG] / skipped NAME WHY
ok() {
    echo ok >>"$T_WORK/counts"
    printf 'ok %s %s%s\n' "$1" "$2" "${3:+ ($3)}"
}
failed() {
    echo failed >>"$T_WORK/counts"
    printf 'FAILED %s: %s%s\n' "$1" "$2" "${3:+ ($3)}"
    printf '%s: %s\n' "$1" "$2" >>"$T_WORK/failures"
}
skipped() {
    echo skipped >>"$T_WORK/counts"
    printf 'skipped %s: %s\n' "$1" "$2"
}
# count WORD N: N results that are not printed one by one
count() {
    local i
    for ((i = 0; i < $2; i++)); do echo "$1"; done >>"$T_WORK/counts"
}
counted() { grep -c "^$1\$" "$T_WORK/counts" || true; }

now() { printf '%s' "$EPOCHREALTIME"; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

# The last lines of a log that say something, on one line.
last_words() { { grep -v '^[[:space:]]*$' "$1" 2>/dev/null || true; } | tail -n "${2:-1}" | cut -c1-400 | paste -sd' '; }

# bounded SECONDS LOG COMMAND...: the command's exit status, 124 when its time was up. Its processes end with it.
bounded() {
    local pid rc=0
    python3 "$T_TOP/tests/lib/bounded.py" "$1" "$2" "${@:3}" </dev/null &
    pid=$!
    echo "$pid" >>"$T_WORK/pids"
    wait "$pid" || rc=$?
    sed -i "/^$pid\$/d" "$T_WORK/pids"
    return "$rc"
}

# check NAME SECONDS COMMAND...: one check; exit status 77 means skipped, and its last line why
check() {
    local name=$1 limit=$2 log began rc=0
    log=$T_LOGS/${name//\//-}.log
    shift 2
    began=$(now)
    bounded "$limit" "$log" "$@" || rc=$?
    case $rc in
    0) ok "$name" "$(since "$began")" ;;
    77) skipped "$name" "$(last_words "$log")" ;;
    124) failed "$name" "still running after $limit s" "$log" ;;
    *) failed "$name" "exit $rc: $(last_words "$log")" "$log" ;;
    esac
    [ "$rc" = 0 ]
}

# collect NAME SECONDS COMMAND...: a command that reports checks of its own (ok …, FAILED …, skipped …); each counts as one.
#   COLLECT_FROM=FILE  the lines are in that file and not in the output
#   COLLECT_BRIEF=1    passed ones are counted, and printed as one line
collect() {
    local name=$1 limit=$2 log began rc=0 lines
    log=$T_LOGS/${name//\//-}.log
    shift 2
    began=$(now)
    bounded "$limit" "$log" "$@" || rc=$?
    lines=$T_WORK/collected
    # A progress bar of a client ends in \r, and a result may stand behind it.
    { tr '\r' '\n' <"${COLLECT_FROM:-$log}" 2>/dev/null | grep -E '^(ok|FAILED|skipped) [^ ]' || true; } >"$lines"
    take_lines "$name" "$lines" "$log" "$(since "$began")"
    if [ "$rc" = 124 ]; then
        failed "$name/end" "still running after $limit s" "$log"
    elif [ ! -s "$lines" ]; then
        if [ "$rc" = 77 ]; then skipped "$name" "$(last_words "$log")"; else failed "$name/run" "it reported nothing, exit $rc: $(last_words "$log" 2)" "$log"; fi
    elif [ "$rc" != 0 ] && [ "$rc" != 77 ] && ! grep -q '^FAILED ' "$lines"; then
        failed "$name/end" "exit $rc: $(last_words "$log")" "$log"
    fi
}

# take_lines NAME FILE LOG SECONDS: counts and prints result lines under a name
take_lines() {
    local word rest what good
    good=$(grep -c '^ok ' "$2" || true)
    while read -r word rest; do
        what=${rest%%[: ]*}
        case $word in
        ok) [ -n "${COLLECT_BRIEF:-}" ] || ok "$1/$what" "${rest#* }" ;;
        FAILED) failed "$1/$what" "$(cut -c1-600 <<<"${rest#*: }")" "$3" ;;
        skipped) skipped "$1/$what" "$(cut -c1-300 <<<"${rest#*: }")" ;;
        esac
    done <"$2"
    if [ -n "${COLLECT_BRIEF:-}" ] && [ "$good" -gt 0 ]; then
        count ok "$good"
        printf 'ok %s %s (%s checks passed)\n' "$1" "$4" "$good"
    fi
}
