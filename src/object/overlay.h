/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system whose writes stay in memory: see overlay.c.
 */
#ifndef TARN_OBJECT_OVERLAY_H
#define TARN_OBJECT_OVERLAY_H

#include "private.h"

typedef struct obj_overlay obj_overlay;
obj_overlay *obj_overlay_new(tarn_fs *below); /* NULL when out of memory */
tarn_fs *obj_overlay_fs(obj_overlay *o);
void obj_overlay_free(obj_overlay *o); /* every file is closed; NULL is fine */

#endif
