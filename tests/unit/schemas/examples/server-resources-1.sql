BEGIN TRANSACTION;
CREATE TABLE resources (
    kind TEXT NOT NULL, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, document TEXT NOT NULL,
    status TEXT NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL, tags TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);
INSERT INTO "resources" VALUES('model','a','arn:a','{"ModelName":"a"}','ok',1795967466734531,1795967466734531,'{"b":"c"}');
COMMIT;
PRAGMA user_version=1;
