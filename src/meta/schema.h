/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema, one statement a line of the tables: the first version's, then what each later one adds. Only schema.c includes this.
 * docs/on-disk-format.md describes every column. Narrow columns stand first and `layout` last, so that a listing reads the leaf page only,
 * whatever a row drags behind it.
 */
#define META_OBJECT_COLUMNS                                                                                                                \
    "bucket INTEGER NOT NULL,key BLOB NOT NULL,seq INTEGER NOT NULL,nonce INTEGER NOT NULL,flags INTEGER NOT NULL,"                        \
    "size INTEGER NOT NULL,mtime_ms INTEGER NOT NULL,data_id INTEGER,inline_id INTEGER,parts_n INTEGER NOT NULL,"                          \
    "tags_n INTEGER NOT NULL,retain_until_ms INTEGER NOT NULL,etag,tags BLOB NOT NULL,attrs BLOB NOT NULL,layout BLOB NOT NULL,"

static const char *const META_SCHEMA[] = {
    "CREATE TABLE kv(name TEXT PRIMARY KEY,value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sequence(id INTEGER PRIMARY KEY CHECK(id=1),next INTEGER NOT NULL)",
    "CREATE TABLE bucket(id INTEGER PRIMARY KEY,name TEXT NOT NULL UNIQUE,owner TEXT NOT NULL,created_ms INTEGER NOT NULL,"
    "versioning INTEGER NOT NULL,object_lock INTEGER NOT NULL,warehouse INTEGER NOT NULL,warehouse_uuid TEXT NOT NULL,"
    "warehouse_created_ms INTEGER NOT NULL,warehouse_properties TEXT NOT NULL,generation INTEGER NOT NULL)",
    "CREATE TABLE bucket_config(bucket INTEGER NOT NULL,kind INTEGER NOT NULL,body BLOB NOT NULL,PRIMARY KEY(bucket,kind)) WITHOUT ROWID",
    "CREATE TABLE object(" META_OBJECT_COLUMNS "PRIMARY KEY(bucket,key)) WITHOUT ROWID",
    "CREATE INDEX object_data ON object(data_id) WHERE data_id IS NOT NULL",
    "CREATE TABLE version(" META_OBJECT_COLUMNS "PRIMARY KEY(bucket,key,seq DESC)) WITHOUT ROWID",
    "CREATE INDEX version_data ON version(data_id) WHERE data_id IS NOT NULL",
    "CREATE UNIQUE INDEX version_null ON version(bucket,key) WHERE flags&1",
    "CREATE TABLE inline(data_id INTEGER PRIMARY KEY,bytes BLOB NOT NULL)",
    "CREATE TABLE part(data_id INTEGER NOT NULL,number INTEGER NOT NULL,size INTEGER NOT NULL,mtime_ms INTEGER NOT NULL,"
    "blob_id INTEGER NOT NULL,etag TEXT NOT NULL,attrs BLOB NOT NULL,layout BLOB NOT NULL,PRIMARY KEY(data_id,number)) WITHOUT ROWID",
    "CREATE TABLE upload(bucket INTEGER NOT NULL,key BLOB NOT NULL,id INTEGER NOT NULL UNIQUE,nonce INTEGER NOT NULL,"
    "initiated_ms INTEGER NOT NULL,owner TEXT NOT NULL,attrs BLOB NOT NULL,PRIMARY KEY(bucket,key,id)) WITHOUT ROWID",
    "CREATE TABLE garbage(id INTEGER PRIMARY KEY,since_ms INTEGER NOT NULL,data_id INTEGER NOT NULL,layout BLOB NOT NULL)",
    "CREATE INDEX garbage_data ON garbage(data_id)",
    "CREATE TABLE repair(id INTEGER PRIMARY KEY,bucket INTEGER NOT NULL,key BLOB NOT NULL,seq INTEGER NOT NULL,"
    "since_ms INTEGER NOT NULL,tries INTEGER NOT NULL,UNIQUE(bucket,key,seq))",
    "CREATE TABLE namespace(id INTEGER PRIMARY KEY,bucket INTEGER NOT NULL,parent INTEGER NOT NULL,path BLOB NOT NULL,"
    "created_ms INTEGER NOT NULL,properties TEXT NOT NULL,UNIQUE(bucket,path))",
    "CREATE UNIQUE INDEX namespace_parent ON namespace(bucket,parent,path)",
    "CREATE TABLE entity(id INTEGER PRIMARY KEY,bucket INTEGER NOT NULL,ns INTEGER NOT NULL,name BLOB NOT NULL,kind INTEGER NOT NULL,"
    "uuid TEXT NOT NULL,location TEXT NOT NULL,pointer TEXT NOT NULL,version INTEGER NOT NULL,created_ms INTEGER NOT NULL,"
    "updated_ms INTEGER NOT NULL,UNIQUE(ns,name))",
    "CREATE UNIQUE INDEX entity_kind ON entity(ns,kind,name)",
    "INSERT INTO sequence(id,next) VALUES(1,1)",
};

/* Version 2: purges that outlive the process. */
static const char *const META_SCHEMA_2[] = {
    "CREATE TABLE purge(id INTEGER PRIMARY KEY,since_ms INTEGER NOT NULL,bucket INTEGER NOT NULL,entity INTEGER NOT NULL,"
    "kind INTEGER NOT NULL,uuid TEXT NOT NULL,location TEXT NOT NULL,pointer TEXT NOT NULL,version INTEGER NOT NULL)",
};
