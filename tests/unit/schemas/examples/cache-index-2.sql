BEGIN TRANSACTION;
CREATE TABLE entries (kind TEXT, key TEXT, ino INTEGER, mtime_ns INTEGER, groups BLOB,
                      built_at INTEGER, bytes INTEGER, build_s REAL, labels TEXT,
                      PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE groups (id INTEGER PRIMARY KEY, name TEXT, digest BLOB UNIQUE, value TEXT);
CREATE TABLE shards (kind TEXT, shard TEXT, ino INTEGER, mtime_ns INTEGER,
                     PRIMARY KEY (kind, shard)) WITHOUT ROWID;
COMMIT;
PRAGMA user_version=2;
