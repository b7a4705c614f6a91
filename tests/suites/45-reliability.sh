# SPDX-License-Identifier: Apache-2.0
label reliability standard 'the daemon killed under load, histories checked for linearisability, drives that fail under load'
suite_reliability() {
    local rounds=8 seconds=8
    [ "$T_MODE" != full ] || { rounds=50 seconds=60; }
    need_daemon reliability release || return 0
    collect reliability/checker 120 python3 "$T_TOP/tests/reliability/test_linear.py"
    collect reliability/history $((seconds * 20 + 300)) python3 "$T_TOP/tests/reliability/history.py" --seconds "$seconds"
    collect reliability/crash $((rounds * 20 + 200)) python3 "$T_TOP/tests/reliability/crash.py" --rounds "$rounds"
    [ "$T_MODE" = full ] || return 0
    [ ! -f "$T_TOP/tests/reliability/faults.py" ] || collect reliability/faults 1800 python3 "$T_TOP/tests/reliability/faults.py"
}
