# SPDX-License-Identifier: Apache-2.0
label bench standard 'tests/bench/run for a moment: every row runs without an error (its figures judge nothing here)'

suite_bench() {
    need_daemon bench release || return 0
    local log=$T_LOGS/bench.log row
    check bench 300 "$T_TOP/tests/bench/run" --seconds 1 --json "$T_WORK/bench.json" || return 0
    while IFS=$'\t' read -r row word; do
        if [ "$word" = fine ]; then ok "bench/$row" 0.0; else failed "bench/$row" "$word" "$log"; fi
    done < <(python3 -c '
import json, sys
for name, r in json.load(open(sys.argv[1]))["rows"].items():
    bad = r.get("error") or (r["errors"]["total"] and "%d requests failed" % r["errors"]["total"])
    print(name, " ".join(str(bad).split())[:200] if bad else "fine", sep="\t")' "$T_WORK/bench.json")
}
