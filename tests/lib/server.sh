# SPDX-License-Identifier: Apache-2.0
# Daemons under test: start on a free port and on drives of their own, wait until ready, stop, look into the log.
# Sourced by tests/run. Every daemon is known by a name; all that still run are stopped when the run ends.

declare -A S_PID=() S_URL=() S_LOG=() S_FOLDER=() S_DRIVES=() S_BINARY=() S_ENV=()

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# server_start NAME PRESET DRIVES [NAME=VALUE...]: the variables are for the daemon's environment. A daemon that was
# stopped is started again on the drives that it had.
server_start() {
    local name=$1 preset=$2 drives=$3 i
    shift 3
    S_BINARY[$name]=$T_TOP/build/$preset/tarn
    if [ -z "${S_FOLDER[$name]:-}" ]; then
        S_FOLDER[$name]=$(mktemp -d "$T_WORK/server-$name.XXXXXX")
        S_DRIVES[$name]=''
        for ((i = 1; i <= drives; i++)); do S_DRIVES[$name]+="${S_FOLDER[$name]}/drive$i "; done
    fi
    S_LOG[$name]=$T_LOGS/server-$name.log
    S_ENV[$name]="$*"
    for i in 1 2 3; do
        server_spawn "$name" && return 0
        # The port was free when the kernel named it; somebody may have taken it since.
        tail -n 20 "${S_LOG[$name]}" | grep -qi 'in use' || break
    done
    echo "# the daemon $name does not start; the end of its log:"
    tail -n 15 "${S_LOG[$name]}" | sed 's/^/#   /'
    return 1
}

server_spawn() {
    local name=$1 port limit d unset
    port=$(free_port)
    for d in ${S_DRIVES[$name]}; do mkdir -p "$d"; done
    [ -x "${S_BINARY[$name]}" ] || {
        echo "${S_BINARY[$name]} is not there" >>"${S_LOG[$name]}"
        return 1
    }
    # What the tests tell each other by TARN_… is no setting of the daemon.
    mapfile -t unset < <(compgen -e | sed -n 's/^TARN_.*/-u\n&/p')
    # shellcheck disable=SC2086
    (cd "${S_FOLDER[$name]}" && exec env "${unset[@]}" ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1}" UBSAN_OPTIONS=print_stacktrace=1 ${S_ENV[$name]} \
        setsid "${S_BINARY[$name]}" server --address "127.0.0.1:$port" ${S_DRIVES[$name]}) </dev/null >>"${S_LOG[$name]}" 2>&1 &
    S_PID[$name]=$!
    S_URL[$name]=http://127.0.0.1:$port
    echo "${S_PID[$name]}" >>"$T_WORK/pids"
    limit=$((SECONDS + 60))
    while [ $SECONDS -lt $limit ]; do
        kill -0 "${S_PID[$name]}" 2>/dev/null || break
        curl -sf -o /dev/null --max-time 5 "${S_URL[$name]}/minio/health/ready" && return 0
        sleep 0.1
    done
    server_end "$name"
    return 1
}

# server_end NAME: TERM, at most 45 s of draining, then KILL; the exit status (137 when it had to be killed)
server_end() {
    local name=$1 pid=${S_PID[$1]:-} i rc=0
    [ -n "$pid" ] || return 0
    unset "S_PID[$name]"
    kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < 450; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || rc=$?
    sed -i "/^$pid\$/d" "$T_WORK/pids"
    return "$rc"
}

# server_stop NAME CHECK: ends the daemon as a check of its own: exit status 0, no sanitizer's report, still alive until now
server_stop() {
    local name=$1 what=$2 rc=0 began alive=yes
    began=$(now)
    kill -0 "${S_PID[$name]:-0}" 2>/dev/null || alive=no
    server_end "$name" || rc=$?
    if grep -qE 'ERROR: (Address|Leak)Sanitizer|runtime error:' "${S_LOG[$name]}"; then
        failed "$what" "a sanitizer found: $(grep -m1 -E 'ERROR: (Address|Leak)Sanitizer|runtime error:' "${S_LOG[$name]}" | cut -c1-300)" "${S_LOG[$name]}"
    elif [ $alive = no ]; then
        failed "$what" "the daemon had ended by itself with $rc: $(last_words "${S_LOG[$name]}" 2)" "${S_LOG[$name]}"
    elif [ "$rc" != 0 ]; then
        failed "$what" "exit status $rc after TERM" "${S_LOG[$name]}"
    else
        ok "$what" "$(since "$began")"
    fi
    [ -n "${S_KEEP:-}" ] || server_forget "$name"
}

server_forget() {
    [ -z "${S_FOLDER[$1]:-}" ] || rm -rf "${S_FOLDER[$1]}"
    unset "S_FOLDER[$1]" "S_DRIVES[$1]"
}

# with_server NAME CHECK PRESET DRIVES [NAME=VALUE...] -- COMMAND...: starts, runs the command (a function may be one), stops
with_server() {
    local name=$1 what=$2 preset=$3 drives=$4 env=()
    shift 4
    while [ "$1" != -- ]; do
        env+=("$1")
        shift
    done
    shift
    if ! server_start "$name" "$preset" "$drives" "${env[@]}"; then
        failed "$what" "the daemon does not start" "${S_LOG[$name]}"
        server_forget "$name"
        return 0
    fi
    export TARN_ENDPOINT=${S_URL[$name]} TARN_CATALOG=${S_URL[$name]}/_iceberg
    "$@" || true
    unset TARN_ENDPOINT TARN_CATALOG
    server_stop "$name" "$what"
}
