# SPDX-License-Identifier: Apache-2.0
label wire quick "the project's own tests over the wire: on the sanitizer build, with both I/O back ends"

# wire_field FILE NAME: what a comment at the top of a wire test says
wire_field() { sed -n "1,20s/^# $2: *//p" "$1" | head -n 1; }

# wire_test NAME PRESET FILE [NAME=VALUE...]: one test program against a daemon of its own
wire_test() {
    local name=$1 preset=$2 file=$3 drives env limit
    shift 3
    drives=$(wire_field "$file" drives) env=$(wire_field "$file" env) limit=$(wire_field "$file" limit)
    export TARN_BIN=$T_TOP/build/$preset/tarn
    if [ "$(wire_field "$file" daemon)" = own ]; then
        collect "$name" "${limit:-300}" env "$@" python3 "$file"
    else
        # shellcheck disable=SC2086
        with_server "${name//\//-}" "$name/daemon" "$preset" "${drives:-1}" "$@" $env -- \
            collect "$name" "${limit:-300}" python3 "$file"
    fi
}

suite_wire() {
    local f n preset=asan
    [ "$T_MODE" != quick ] || preset=dev
    need_daemon wire $preset || return 0
    for f in "$T_TOP"/tests/wire/test_*.py; do
        n=$(basename "$f" .py)
        n=${n#test_}
        [ "$T_MODE" != quick ] || [ "$n" = smoke ] || continue
        wire_test "wire/$n" $preset "$f"
        [ "$T_MODE" = quick ] || wire_test "wire-threads/$n" $preset "$f" TARN_IO=threads
    done
}
