/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every SQL text of the project: META_SQL(id, text). This file is included several times with different meanings of the
 * macro (the enum, the table of texts), hence no include guard.
 *
 * Rules: every statement finds its rows by an index (a test asks EXPLAIN QUERY PLAN for each); parameters are numbered.
 */
#ifndef META_OBJ_COLS
#define META_OBJ_COLS "bucket,key,seq,nonce,flags,size,mtime_ms,data_id,inline_id,parts_n,tags_n,retain_until_ms,etag,tags,attrs,layout"
#define META_LIST_COLS "key,seq,nonce,flags,size,mtime_ms,etag,attrs"
#define META_OBJ_VALUES "?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16"
#define META_OBJ_SET                                                                                                                       \
    "seq=excluded.seq,nonce=excluded.nonce,flags=excluded.flags,size=excluded.size,mtime_ms=excluded.mtime_ms,"                            \
    "data_id=excluded.data_id,inline_id=excluded.inline_id,parts_n=excluded.parts_n,tags_n=excluded.tags_n,"                               \
    "retain_until_ms=excluded.retain_until_ms,etag=excluded.etag,tags=excluded.tags,attrs=excluded.attrs,layout=excluded.layout"
#define META_BUCKET_COLS                                                                                                                   \
    "id,name,owner,created_ms,versioning,object_lock,warehouse,warehouse_uuid,warehouse_created_ms,warehouse_properties,generation"
#define META_ENTITY_COLS "id,bucket,ns,name,kind,uuid,location,pointer,version,created_ms,updated_ms"
#define META_ENTITY_COLS_E "e.id,e.bucket,e.ns,e.name,e.kind,e.uuid,e.location,e.pointer,e.version,e.created_ms,e.updated_ms"
#endif

/* transactions */
META_SQL(BEGIN, "BEGIN IMMEDIATE")
META_SQL(COMMIT, "COMMIT")
META_SQL(ROLLBACK, "ROLLBACK")
META_SQL(SAVEPOINT, "SAVEPOINT f")
META_SQL(RELEASE, "RELEASE f")
META_SQL(ROLLBACK_TO, "ROLLBACK TO f")
META_SQL(READ_BEGIN, "BEGIN")
META_SQL(READ_END, "COMMIT")

/* key-value */
META_SQL(KV_GET, "SELECT value FROM kv WHERE name=?1")
META_SQL(KV_PUT, "INSERT INTO kv(name,value) VALUES(?1,?2) ON CONFLICT(name) DO UPDATE SET value=excluded.value")
META_SQL(SEQ_GET, "SELECT next FROM sequence WHERE id=1")
META_SQL(INTEGRITY, "PRAGMA integrity_check(100)")
META_SQL(SEQ_PUT, "UPDATE sequence SET next=?1 WHERE id=1")

/* buckets */
META_SQL(BUCKET_GET, "SELECT " META_BUCKET_COLS " FROM bucket WHERE name=?1")
META_SQL(BUCKET_GET_ID, "SELECT " META_BUCKET_COLS " FROM bucket WHERE id=?1")
META_SQL(BUCKET_LIST, "SELECT " META_BUCKET_COLS " FROM bucket WHERE name>=?1 AND (?2=0 OR warehouse=1) ORDER BY name")
META_SQL(BUCKET_INSERT, "INSERT INTO bucket(" META_BUCKET_COLS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11) ON CONFLICT DO NOTHING")
META_SQL(BUCKET_UPDATE, "UPDATE bucket SET owner=?2,versioning=?3,object_lock=?4,warehouse=?5,warehouse_uuid=?6,warehouse_created_ms=?7,"
                        "warehouse_properties=?8,generation=?9 WHERE id=?1")
META_SQL(BUCKET_TOUCH, "UPDATE bucket SET generation=?2 WHERE id=?1")
META_SQL(BUCKET_DELETE, "DELETE FROM bucket WHERE id=?1")
META_SQL(BUCKET_IN_USE, "SELECT EXISTS(SELECT 1 FROM object WHERE bucket=?1) OR EXISTS(SELECT 1 FROM version WHERE bucket=?1) OR "
                        "EXISTS(SELECT 1 FROM upload WHERE bucket=?1) OR EXISTS(SELECT 1 FROM namespace WHERE bucket=?1)")
META_SQL(CONFIG_GET, "SELECT body FROM bucket_config WHERE bucket=?1 AND kind=?2")
META_SQL(CONFIG_PUT, "INSERT INTO bucket_config(bucket,kind,body) VALUES(?1,?2,?3) ON CONFLICT DO UPDATE SET body=excluded.body")
META_SQL(CONFIG_DELETE, "DELETE FROM bucket_config WHERE bucket=?1 AND kind=?2")
META_SQL(CONFIG_DELETE_ALL, "DELETE FROM bucket_config WHERE bucket=?1")

/* object versions */
META_SQL(OBJECT_GET, "SELECT " META_OBJ_COLS " FROM object WHERE bucket=?1 AND key=?2")
META_SQL(VERSION_GET, "SELECT " META_OBJ_COLS " FROM version WHERE bucket=?1 AND key=?2 AND seq=?3")
META_SQL(VERSION_GET_NULL, "SELECT " META_OBJ_COLS " FROM version WHERE bucket=?1 AND key=?2 AND flags&1")
META_SQL(OBJECT_PUT, "INSERT INTO object(" META_OBJ_COLS ") VALUES(" META_OBJ_VALUES ") ON CONFLICT(bucket,key) DO UPDATE SET " META_OBJ_SET
                     " WHERE excluded.seq>object.seq")
META_SQL(OBJECT_TO_VERSION, "INSERT INTO version(" META_OBJ_COLS ") SELECT " META_OBJ_COLS " FROM object WHERE bucket=?1 AND key=?2")
META_SQL(VERSION_TO_OBJECT,
         "INSERT INTO object(" META_OBJ_COLS ") SELECT " META_OBJ_COLS " FROM version WHERE bucket=?1 AND key=?2 ORDER BY seq DESC LIMIT 1")
META_SQL(OBJECT_DELETE, "DELETE FROM object WHERE bucket=?1 AND key=?2 AND seq=?3")
META_SQL(VERSION_DELETE, "DELETE FROM version WHERE bucket=?1 AND key=?2 AND seq=?3")
META_SQL(VERSION_DELETE_NEWEST,
         "DELETE FROM version WHERE bucket=?1 AND key=?2 AND seq=(SELECT seq FROM object WHERE bucket=?1 AND key=?2)")
META_SQL(OBJECT_UPDATE, "UPDATE object SET flags=(flags&~?4)|?5,tags_n=?6,retain_until_ms=?7,tags=?8,attrs=?9,layout=?10 "
                        "WHERE bucket=?1 AND key=?2 AND seq=?3")
META_SQL(VERSION_UPDATE, "UPDATE version SET flags=(flags&~?4)|?5,tags_n=?6,retain_until_ms=?7,tags=?8,attrs=?9,layout=?10 "
                         "WHERE bucket=?1 AND key=?2 AND seq=?3")

/* listing: lower bound inclusive, upper bound exclusive */
META_SQL(LIST_OBJECT, "SELECT " META_LIST_COLS " FROM object WHERE bucket=?1 AND key>=?2 AND key<?3 ORDER BY key")
META_SQL(LIST_OBJECT_ALL, "SELECT " META_OBJ_COLS " FROM object WHERE bucket=?1 AND key>=?2 AND key<?3 ORDER BY key")
META_SQL(LIST_VERSION, "SELECT " META_LIST_COLS " FROM version WHERE bucket=?1 AND key>=?2 AND key<?3 ORDER BY key,seq DESC")
META_SQL(LIST_VERSION_ALL, "SELECT " META_OBJ_COLS " FROM version WHERE bucket=?1 AND key>=?2 AND key<?3 ORDER BY key,seq DESC")
META_SQL(LIST_VERSION_KEY, "SELECT " META_LIST_COLS " FROM version WHERE bucket=?1 AND key=?2 AND seq<?3 ORDER BY seq DESC")
META_SQL(LIST_VERSION_KEY_ALL, "SELECT " META_OBJ_COLS " FROM version WHERE bucket=?1 AND key=?2 AND seq<?3 ORDER BY seq DESC")

/* inline data */
META_SQL(INLINE_PUT, "INSERT INTO inline(data_id,bytes) VALUES(?1,?2)")
META_SQL(INLINE_GET, "SELECT bytes FROM inline WHERE data_id=?1")
META_SQL(INLINE_DELETE, "DELETE FROM inline WHERE data_id=?1")

/* parts */
META_SQL(PART_PUT, "INSERT INTO part(data_id,number,size,mtime_ms,blob_id,etag,attrs,layout) VALUES(?1,?2,?3,?4,?5,?6,?7,?8) "
                   "ON CONFLICT DO UPDATE SET size=excluded.size,mtime_ms=excluded.mtime_ms,blob_id=excluded.blob_id,"
                   "etag=excluded.etag,attrs=excluded.attrs,layout=excluded.layout")
META_SQL(PART_GET, "SELECT number,size,mtime_ms,blob_id,etag,attrs,layout FROM part WHERE data_id=?1 AND number=?2")
META_SQL(PART_DELETE, "DELETE FROM part WHERE data_id=?1 AND number=?2")
META_SQL(PART_LIST, "SELECT number,size,mtime_ms,blob_id,etag,attrs FROM part WHERE data_id=?1 AND number>?2 ORDER BY number")
META_SQL(PART_LIST_ALL, "SELECT number,size,mtime_ms,blob_id,etag,attrs,layout FROM part WHERE data_id=?1 AND number>?2 ORDER BY number")

/* uploads */
META_SQL(UPLOAD_INSERT, "INSERT INTO upload(bucket,key,id,nonce,initiated_ms,owner,attrs) VALUES(?1,?2,?3,?4,?5,?6,?7)")
META_SQL(UPLOAD_GET, "SELECT key,id,nonce,initiated_ms,owner,attrs FROM upload WHERE bucket=?1 AND key=?2 AND id=?3")
META_SQL(UPLOAD_DELETE, "DELETE FROM upload WHERE id=?1 AND bucket=?2")
META_SQL(UPLOAD_LIST, "SELECT key,id,nonce,initiated_ms,owner,attrs FROM upload WHERE bucket=?1 AND key>=?2 AND key<?3 ORDER BY key,id")
META_SQL(UPLOAD_LIST_KEY, "SELECT key,id,nonce,initiated_ms,owner,attrs FROM upload WHERE bucket=?1 AND key=?2 AND id>?3 ORDER BY id")

/* garbage, repair */
META_SQL(GARBAGE_INSERT, "INSERT INTO garbage(id,since_ms,data_id,layout) VALUES(?1,?2,?3,?4)")
META_SQL(GARBAGE_LIST, "SELECT id,since_ms,data_id,layout FROM garbage WHERE id>?1 ORDER BY id")
META_SQL(GARBAGE_DELETE, "DELETE FROM garbage WHERE id=?1")
META_SQL(DATA_REFERENCED, "SELECT EXISTS(SELECT 1 FROM object WHERE data_id=?1) OR EXISTS(SELECT 1 FROM version WHERE data_id=?1) OR "
                          "EXISTS(SELECT 1 FROM inline WHERE data_id=?1) OR EXISTS(SELECT 1 FROM upload WHERE id=?1) OR "
                          "EXISTS(SELECT 1 FROM garbage WHERE data_id=?1)")
META_SQL(DATA_HELD, "SELECT EXISTS(SELECT 1 FROM object WHERE data_id=?1) OR EXISTS(SELECT 1 FROM version WHERE data_id=?1) OR "
                    "EXISTS(SELECT 1 FROM garbage WHERE data_id=?1)")
META_SQL(REPAIR_INSERT,
         "INSERT INTO repair(id,bucket,key,seq,since_ms,tries) VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT(bucket,key,seq) DO NOTHING")
META_SQL(REPAIR_GET_ID, "SELECT id FROM repair WHERE bucket=?1 AND key=?2 AND seq=?3")
META_SQL(REPAIR_LIST, "SELECT id,bucket,key,seq,since_ms,tries FROM repair WHERE id>?1 ORDER BY id")
META_SQL(REPAIR_DELETE, "DELETE FROM repair WHERE id=?1")

/* the catalog */
META_SQL(NS_GET, "SELECT id,bucket,path,properties,created_ms FROM namespace WHERE bucket=?1 AND path=?2")
META_SQL(NS_INSERT,
         "INSERT INTO namespace(id,bucket,parent,path,created_ms,properties) VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT(bucket,path) DO NOTHING")
META_SQL(NS_UPDATE, "UPDATE namespace SET properties=?3 WHERE id=?1 AND bucket=?2")
META_SQL(NS_DELETE, "DELETE FROM namespace WHERE id=?1 AND bucket=?2")
META_SQL(NS_LIST, "SELECT id,bucket,path,properties,created_ms FROM namespace WHERE bucket=?1 AND parent=?2 AND path>?3 ORDER BY path")
META_SQL(NS_COUNT, "SELECT (SELECT count(*) FROM entity WHERE ns=?1 AND kind=1),(SELECT count(*) FROM entity WHERE ns=?1 AND kind=2),"
                   "(SELECT count(*) FROM namespace WHERE bucket=?2 AND parent=?1)")
META_SQL(NS_IN_USE, "SELECT EXISTS(SELECT 1 FROM entity WHERE ns=?1) OR EXISTS(SELECT 1 FROM namespace WHERE bucket=?2 AND parent=?1)")
META_SQL(NS_EXISTS, "SELECT 1 FROM namespace WHERE id=?1")
META_SQL(ENTITY_GET,
         "SELECT " META_ENTITY_COLS_E " FROM namespace n JOIN entity e ON e.ns=n.id AND e.name=?3 WHERE n.bucket=?1 AND n.path=?2")
META_SQL(ENTITY_KIND, "SELECT kind FROM entity WHERE ns=?1 AND name=?2")
META_SQL(ENTITY_INSERT,
         "INSERT INTO entity(" META_ENTITY_COLS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11) ON CONFLICT(ns,name) DO NOTHING")
META_SQL(ENTITY_SWAP, "UPDATE entity SET uuid=?3,location=?4,pointer=?5,version=?2+1,updated_ms=?6 WHERE id=?1 AND version=?2")
META_SQL(ENTITY_EXISTS, "SELECT 1 FROM entity WHERE id=?1")
META_SQL(ENTITY_RENAME, "UPDATE OR IGNORE entity SET ns=?2,name=?3 WHERE id=?1")
META_SQL(ENTITY_DELETE, "DELETE FROM entity WHERE id=?1")
META_SQL(ENTITY_LIST, "SELECT " META_ENTITY_COLS " FROM entity WHERE ns=?1 AND kind=?2 AND name>?3 ORDER BY name")
META_SQL(PURGE_INSERT, "INSERT INTO purge(id,since_ms,bucket,entity,kind,uuid,location,pointer,version) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)")
META_SQL(PURGE_LIST, "SELECT id,since_ms,bucket,entity,kind,uuid,location,pointer,version FROM purge WHERE id>?1 ORDER BY id")
META_SQL(PURGE_DELETE, "DELETE FROM purge WHERE id=?1")
