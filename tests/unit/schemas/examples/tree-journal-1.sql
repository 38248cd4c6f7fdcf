BEGIN TRANSACTION;
CREATE TABLE trees_v1 (
    place TEXT, path TEXT, state TEXT NOT NULL, PRIMARY KEY (place, path)
);
INSERT INTO "trees_v1" VALUES('s3://b/p','a','{"size": 1, "sha256": "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc", "etag": "etag"}');
COMMIT;
PRAGMA user_version=0;
