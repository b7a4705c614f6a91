/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of base share with each other and nobody else. */
#ifndef TARN_BASE_PRIVATE_H
#define TARN_BASE_PRIVATE_H

/* Forgets the last time-ordered UUID: a clock or seed that a test sets must give the same identifiers each time. */
void tarn_uuid_reset(void);

#endif
