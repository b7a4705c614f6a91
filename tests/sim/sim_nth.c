/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

int nth_main(bool verbose)
{
    (void)verbose;
    return 0;
}
