# SPDX-License-Identifier: Apache-2.0
# What several suites need: builds on demand, the shared suites, clients fetched while the compiler works. Sourced by tests/run.

declare -A T_BUILT=()

# need_build PRESET: builds once a run; the first caller reports it as a check. Returns 1 where it does not build.
need_build() {
    if [ -z "${T_BUILT[$1]:-}" ]; then
        T_BUILT[$1]=yes
        check "build/$1" 1800 "$T_TOP/tests/lib/build" "$1" || T_BUILT[$1]=no
        [ "${T_BUILT[$1]}" = yes ] || { grep -m5 -E 'error:|Error ' "$T_LOGS/build-$1.log" | sed 's/^/#   /' || true; }
    fi
    [ "${T_BUILT[$1]}" = yes ]
}

# need_daemon LABEL PRESET: a build that has a daemon in it
need_daemon() {
    need_build "$2" || { skipped "$1" "the $2 build failed"; return 1; }
    [ -x "$T_TOP/build/$2/tarn" ] || { failed "$1" "the $2 build has no daemon"; return 1; }
    export TARN_BIN=$T_TOP/build/$2/tarn
}

# need_shared LABEL PATH: the suites that lie beside the project's clone; a user's clone has none
need_shared() {
    [ -e "$T_SHARED/$2" ] || { skipped "$1" "$2 is not beside this clone"; return 1; }
}

# java_home MAJOR: a JDK or JRE of exactly that version
java_home() {
    local d
    for d in "${JAVA_HOME:-}" /usr/lib/jvm/*; do
        if [ -x "$d/bin/java" ] && "$d/bin/java" -version 2>&1 | grep -q "version \"$1[.\"]"; then
            echo "$d"
            return 0
        fi
    done
    return 1
}

# Clients are fetched while the compiler works: each task of tests/lib/prefetch that a chosen label wants, one after
# another. Nothing fails here: a client that could not be fetched shows in the check that needs it.
T_PREFETCH=''
prefetch_start() {
    local l tasks=()
    for l in "$@"; do
        case $l in
        property | clients | packaging) [[ " ${tasks[*]} " == *' own '* ]] || tasks+=(own) ;;
        acceptance) [ ! -e "$T_SHARED/acceptance/run" ] || tasks+=(acceptance) ;;
        spark) [ ! -e "$T_SHARED/acceptance/jvm" ] || tasks+=(spark) ;;
        s3-tests) [ ! -e "$T_SHARED/conformance/s3-tests" ] || tasks+=(s3-tests) ;;
        versitygw) [ ! -e "$T_SHARED/conformance/versitygw" ] || tasks+=(versitygw) ;;
        trino | flink | rck | concurrency | spark4 | lakes) [ ! -e "$T_SHARED/acceptance/jvm" ] || tasks+=("$l") ;;
        esac
    done
    [ ${#tasks[@]} -gt 0 ] || return 0
    nice -n 10 python3 "$T_TOP/tests/lib/bounded.py" 2400 "$T_LOGS/prefetch.log" "$T_TOP/tests/lib/prefetch" "${tasks[@]}" </dev/null &
    T_PREFETCH=$!
    echo "$T_PREFETCH" >>"$T_WORK/pids"
}
prefetch_wait() {
    [ -n "$T_PREFETCH" ] || return 0
    local at=$SECONDS
    wait "$T_PREFETCH" || true
    sed -i "/^$T_PREFETCH\$/d" "$T_WORK/pids"
    T_PREFETCH=''
    sed -n 's/^fetched/# fetched/p' "$T_LOGS/prefetch.log"
    echo "# waited $((SECONDS - at)) s for the clients"
}
