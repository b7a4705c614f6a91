# SPDX-License-Identifier: Apache-2.0
# What a machine needs: Debian's packages and the builds. Sourced by tests/run and deploy/quickstart.

T_BUILD_PACKAGES=(cmake ninja-build gcc libc6-dev pkg-config libssl-dev libjansson-dev libsqlite3-dev liburing-dev libisal-dev libexpat1-dev)
T_TEST_PACKAGES=(make procps clang-14 clang-format-14 libclang-rt-14-dev libcmocka-dev python3-venv curl git xz-utils ca-certificates)

# need_packages PACKAGE...: installs those that are missing; says so, and how to do it by hand where it may not
need_packages() {
    local p missing=() as_root=()
    command -v dpkg-query >/dev/null || {
        echo "# no dpkg here: these Debian packages are taken for granted: $*"
        return 0
    }
    for p in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || {
            echo "error: these packages are missing, and only root may install them: apt-get install ${missing[*]}" >&2
            return 1
        }
        as_root=(sudo)
    fi
    echo "# installing ${missing[*]}"
    # shellcheck disable=SC2024
    {
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
    } >"${T_LOGS:-/tmp}/apt.log" 2>&1 || {
        tail -n 5 "${T_LOGS:-/tmp}/apt.log" >&2
        echo "error: apt-get could not install: ${missing[*]}" >&2
        return 1
    }
}

# build_preset PRESET [TARGET...]: configures and builds; runs that stand side by side wait for each other here.
# The preset "clang" is dev with the other compiler.
build_preset() {
    local preset=$1 args=(--build "build/$1") configure=(--preset "$1") launcher=()
    shift
    [ $# -eq 0 ] || args+=(--target "$@")
    if [ "$preset" = clang ]; then configure=(--preset dev -B build/clang -DCMAKE_C_COMPILER=clang-14); fi
    if command -v ccache >/dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache); fi
    mkdir -p "$T_TOP/build"
    (
        flock 9
        cd "$T_TOP"
        cmake "${configure[@]}" "${launcher[@]}" && cmake "${args[@]}"
    ) 9>"$T_TOP/build/.lock-$preset"
}
