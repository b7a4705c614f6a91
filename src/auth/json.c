/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON documents from strangers (policies, POST policies, tokens): the depth is bounded before the parser recurses, and a
 * name that is there twice is an error, because two readers could take it two ways.
 * Memory: the caller's reference. Threads: any.
 */
#include "auth_private.h"

#include <string.h>

static bool depth_bounded(tarn_str s)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (in_string) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > AUTH_JSON_DEPTH_MAX) {
                return false;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

json_t *auth_json_load(tarn_str text, char *error, size_t error_cap)
{
    json_error_t je;
    tarn_sb b;
    tarn_sb_init_fixed(&b, error, error_cap);
    if (!depth_bounded(text)) {
        tarn_sb_cstr(&b, "nested too deeply");
        return NULL;
    }
    json_t *j = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &je);
    if (!j) {
        tarn_sb_fmt(&b, "line %d, column %d", je.line, je.column);
    }
    return j;
}

tarn_str auth_json_str(const json_t *s)
{
    return (tarn_str){json_string_value(s), json_string_length(s)};
}
