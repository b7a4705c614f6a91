# SPDX-License-Identifier: Apache-2.0
label layers quick 'who includes whom, SQL in meta alone, banned functions, sizes'
suite_layers() {
    collect layers 60 python3 "$T_TOP/tests/layers"
    collect layers-own 60 python3 "$T_TOP/tests/lib/test_layers.py"
}
