BEGIN TRANSACTION;
CREATE TABLE seen_v1 (
    host TEXT NOT NULL, digest TEXT NOT NULL, repository TEXT NOT NULL, seen_at INTEGER NOT NULL,
    PRIMARY KEY (host, digest, repository)
) WITHOUT ROWID;
INSERT INTO "seen_v1" VALUES('host','sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','a/b',1795967467);
COMMIT;
PRAGMA user_version=0;
