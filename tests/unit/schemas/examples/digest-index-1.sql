BEGIN TRANSACTION;
CREATE TABLE blobs_v1 (
    fingerprint TEXT PRIMARY KEY, digest TEXT NOT NULL, proven INTEGER NOT NULL
);
INSERT INTO "blobs_v1" VALUES('70eaa35d37430ab3ebf3bf1da3fa5ccb79e23227aaec92b0d27965a350eb4f9a','sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',0);
CREATE TABLE packed_v1 (
    plain TEXT, how TEXT, digest TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (plain, how)
);
INSERT INTO "packed_v1" VALUES('sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','zstd','sha256:eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee',5);
COMMIT;
PRAGMA user_version=0;
