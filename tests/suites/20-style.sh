# SPDX-License-Identifier: Apache-2.0
label style quick 'clang-format, shell and Python syntax, no registry host or path of a machine in the tree'
suite_style() {
    collect style 120 python3 "$T_TOP/tests/lib/style.py"
}
