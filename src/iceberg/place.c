/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, places: which locations a table may have, and what its metadata files are called.
 *
 * A table's files lie in its warehouse. An s3 location elsewhere is refused: a catalog that wrote there would let one
 * warehouse's users reach another's data. Places of another kind (file:, a plain path) come from clients that do not know
 * the store; the server uses a place of its own instead.
 */
#include "build.h"

#define ICE_LOCATION_BYTES_MAX 900 /* leaves room for the names of files below it within a key's maximum */

bool ice_s3_split(tarn_str location, tarn_str *bucket, tarn_str *key)
{
    static const char *const schemes[] = {"s3://", "s3a://", "s3n://"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(schemes); i++) {
        if (!tarn_str_istarts(location, schemes[i]))
            continue;
        tarn_str rest = tarn_str_sub(location, tarn_str_of(schemes[i]).n, location.n);
        tarn_str_split(rest, '/', bucket, key);
        return bucket->n > 0;
    }
    return false;
}

/* Every segment is a name: not empty, not "." or "..", no control characters. */
static bool clean_path(tarn_str path)
{
    while (path.n > 0) {
        tarn_str segment, rest;
        tarn_str_split(path, '/', &segment, &rest);
        if (segment.n == 0 || tarn_str_eqc(segment, ".") || tarn_str_eqc(segment, ".."))
            return false;
        for (size_t i = 0; i < segment.n; i++)
            if ((unsigned char)segment.p[i] < 0x20 || segment.p[i] == 0x7f)
                return false;
        path = rest;
    }
    return true;
}

/* Is the s3 place below the warehouse's root ("s3://bucket/")? */
static tarn_err check_below(const ice_ctx *ctx, const char *what, tarn_str place, ice_error *e)
{
    tarn_str bucket, key, root_bucket, root_key;
    bool ok = ice_s3_split(ctx->warehouse_root, &root_bucket, &root_key) && ice_s3_split(place, &bucket, &key);
    while (ok && key.n > 0 && key.p[key.n - 1] == '/')
        key.n--;
    if (!ok || !tarn_str_eq(bucket, root_bucket) || key.n == 0)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid %s %.*s: it must lie inside the warehouse, below %.*s", what,
                        TARN_STR_ARG(place), TARN_STR_ARG(ctx->warehouse_root));
    if (!clean_path(key) || key.n > ICE_LOCATION_BYTES_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST,
                        "Invalid %s %.*s: empty, dot and control segments are not allowed, nor more than %d bytes", what,
                        TARN_STR_ARG(place), ICE_LOCATION_BYTES_MAX);
    return TARN_OK;
}

tarn_err ice_location_check(const ice_ctx *ctx, tarn_str *location, bool *use, ice_error *e)
{
    tarn_str l = *location, bucket, key;
    while (l.n > 0 && l.p[l.n - 1] == '/')
        l.n--;
    *use = l.n > 0;
    if (ctx->warehouse_root.n > 0) {
        *use = ice_s3_split(l, &bucket, &key);
        if (*use)
            ICE_TRY(check_below(ctx, "location", l, e));
    }
    *location = l;
    return TARN_OK;
}

tarn_err ice_check_path_properties(const ice_ctx *ctx, const json_t *properties, ice_error *e)
{
    static const char *const names[] = {"write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names) && ctx->warehouse_root.n > 0; i++) {
        tarn_str v = ice_string_or_empty(properties, names[i]);
        if (v.p)
            ICE_TRY(check_below(ctx, names[i], v, e));
    }
    return TARN_OK;
}

/* "…/00012-<uuid>.metadata.json" → 12; -1 when there is no such number. */
static int64_t file_version(tarn_str previous)
{
    uint64_t v = 0;
    ptrdiff_t slash = tarn_str_rchr(previous, '/');
    tarn_str name = tarn_str_sub(previous, (size_t)(slash + 1), previous.n), digits, rest;
    if (!tarn_str_split(name, '-', &digits, &rest) || !tarn_str_to_u64(digits, &v) || v > INT32_MAX)
        return -1;
    return (int64_t)v;
}

void ice_metadata_file_name(const json_t *metadata, tarn_str previous, const char *property_codec, tarn_sb *out, bool *gzip)
{
    const json_t *properties = json_object_get(metadata, "properties");
    tarn_str dir = ice_string_or_empty(properties, "write.metadata.path");
    char uuid[37];
    tarn_uuid4(uuid);
    *gzip = tarn_str_ieqc(ice_string_or_empty(properties, property_codec), "gzip");
    while (dir.n > 0 && dir.p[dir.n - 1] == '/')
        dir.n--;
    if (dir.n > 0)
        tarn_sb_str(out, dir);
    else
        tarn_sb_fmt(out, "%.*s/metadata", TARN_STR_ARG(ice_string_or_empty(metadata, "location")));
    tarn_sb_fmt(out, "/%05lld-%s%s.metadata.json", (long long)(file_version(previous) + 1), uuid, *gzip ? ".gz" : "");
}
