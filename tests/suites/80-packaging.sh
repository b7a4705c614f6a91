# SPDX-License-Identifier: Apache-2.0
label quickstart standard "the README's one command in a clean clone: build, daemon, a PyIceberg round trip, a clean end"
label packaging standard 'compose file, image, seccomp profile, systemd unit, notebook'

suite_quickstart() {
    local clone=$T_WORK/scratch-quickstart port log=$T_LOGS/quickstart.log
    port=$(free_port)
    git clone -q "$T_TOP" "$clone" || { failed quickstart "the clone cannot be made"; return 0; }
    check quickstart 1200 env -C "$clone" TARN_ROOT_USER=quickuser TARN_ROOT_PASSWORD=quick-secret-word \
        deploy/quickstart --demo --exit --address "127.0.0.1:$port" || return 0
    local want
    for want in 'all rows came back as they were written' 'Loch Ness' "uri=http://127.0.0.1:$port/_iceberg" 'rest.secret-access-key=quick-secret-word' '"uri": "http' 'ATTACH' 'aws s3 mb'; do
        if grep -qF -- "$want" "$log"; then ok "quickstart/prints" 0.0 "$want"; else failed quickstart/prints "'$want' is not in what it prints" "$log"; fi
    done
    if curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$port/"; then failed quickstart/ends "something still listens on its port" "$log"; else ok quickstart/ends 0.0; fi
    rm -rf "$clone"
}

suite_packaging() {
    need_daemon packaging release || return 0
    prefetch_wait
    "$T_TOP/tests/clients/install" iceberg >>"$T_LOGS/install.log" 2>&1 || true
    local python=$T_CACHE/venv-iceberg/bin/python
    [ -x "$python" ] || python=python3
    collect packaging 900 "$python" "$T_TOP/tests/lib/packaging.py"
    with_server notebook packaging/notebook-daemon release 1 -- collect packaging/notebook 600 "$T_TOP/tests/clients/run" notebook
}
