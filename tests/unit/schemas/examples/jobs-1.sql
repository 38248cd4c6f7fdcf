BEGIN TRANSACTION;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of the queue, whatever clocks say
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    asked TEXT NOT NULL,  -- the NewJob as JSON, without its files
    status TEXT NOT NULL,
    created INTEGER NOT NULL,  -- microseconds since 1970, as all times are
    modified INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    stage INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    failure TEXT NOT NULL DEFAULT '',
    UNIQUE (kind, name)
);
INSERT INTO "jobs" VALUES(1,'e454d1b81d1d4a199dd032724bd3eb1c','optimization','a','{"kind":"optimization","name":"a","document":{"ModelSource":{"S3":{"S3Uri":"s3://models/llama"}}},"stages":[{"name":"build","arguments":["build","--request","{job}/request.json"],"environment":{},"directory":"{job}"}],"limits":{"run_s":null,"wait_s":null},"tags":{}}','queued',1795967466545902,1795967466545902,NULL,NULL,0,0,'');
CREATE INDEX jobs_created ON jobs (created, number);
CREATE INDEX jobs_name ON jobs (name, number);
CREATE INDEX jobs_status ON jobs (status, number);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',1);
COMMIT;
PRAGMA user_version=1;
