# SPDX-License-Identifier: Apache-2.0
label acceptance standard 'shared/acceptance: 21 clients on one drive, five on six drives of which two were emptied'

acceptance_run() { # NAME SECONDS [ONLY]
    local args=()
    [ -z "${3:-}" ] || args=(--only "$3")
    TARN_WORK=$T_WORK/scratch-$1 collect "$1" "$2" "$T_SHARED/acceptance/run" "${args[@]}"
    # What its checks logged is worth keeping, the files they worked on are not.
    mkdir -p "$T_LOGS/$1" && cp -r "$T_WORK/scratch-$1/logs/." "$T_LOGS/$1/" 2>/dev/null || true
    rm -rf "$T_WORK/scratch-$1"
}

# Six drives: something is written on all of them, then two are emptied while the daemon is stopped, and clients go on.
acceptance_six_drives() {
    local gone
    if ! server_start six release 6; then
        failed acceptance-6/daemon "the daemon does not start" "${S_LOG[six]}"
        return 0
    fi
    TARN_ENDPOINT=${S_URL[six]} check acceptance-6/before 120 python3 "$T_TOP/tests/lib/survivor.py" write "$T_WORK/survivor.json" || true
    S_KEEP=yes server_stop six acceptance-6/stopped
    for gone in 2 5; do find "${S_FOLDER[six]}/drive$gone" -mindepth 1 -delete; done
    if ! server_start six release 6; then
        failed acceptance-6/restarted "the daemon does not start with two emptied drives" "${S_LOG[six]}"
        server_forget six
        return 0
    fi
    export TARN_ENDPOINT=${S_URL[six]} TARN_CATALOG=${S_URL[six]}/_iceberg
    check acceptance-6/after 120 python3 "$T_TOP/tests/lib/survivor.py" read "$T_WORK/survivor.json" || true
    acceptance_run acceptance-6 900 warehouse,awscli,boto3,pyiceberg,rclone
    check acceptance-6/after-all 120 python3 "$T_TOP/tests/lib/survivor.py" read "$T_WORK/survivor.json" || true
    unset TARN_ENDPOINT TARN_CATALOG
    server_stop six acceptance-6/end
}

suite_acceptance() {
    need_shared acceptance acceptance/run || return 0
    need_daemon acceptance release || return 0
    prefetch_wait
    with_server acceptance acceptance/daemon release 1 -- acceptance_run acceptance 2400
    acceptance_six_drives
    with_server acceptance-threads acceptance-threads/daemon release 1 TARN_IO=threads -- acceptance_run acceptance-threads 600 warehouse,boto3,pyiceberg
}
