/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What presigned URLs and POST forms of signature version 2 share: base64(HMAC-SHA1(secret, text)).
 * Memory: the request's arena. Threads: the request's fiber.
 */
#ifndef TARN_AUTH_V2_H
#define TARN_AUTH_V2_H

#include "tarn/base.h"

tarn_str auth_v2_signature(tarn_arena *arena, tarn_str secret, tarn_str text); /* {NULL,0}: no memory */
bool auth_v2_equals(tarn_str computed, tarn_str given);                        /* constant time */

#endif
