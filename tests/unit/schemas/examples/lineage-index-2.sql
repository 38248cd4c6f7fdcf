BEGIN TRANSACTION;
CREATE TABLE aliases (document INTEGER, name TEXT, node TEXT);
INSERT INTO "aliases" VALUES(1,'a','model:a');
CREATE TABLE documents
    (id INTEGER PRIMARY KEY, place TEXT UNIQUE, stamp TEXT, fault TEXT);
INSERT INTO "documents" VALUES(1,'kept:a','1','');
CREATE TABLE edges (document INTEGER, source TEXT, target TEXT);
INSERT INTO "edges" VALUES(1,'model:a','image:b');
CREATE TABLE nodes
    (document INTEGER, id TEXT, kind TEXT, label TEXT, facts TEXT, known INTEGER);
INSERT INTO "nodes" VALUES(1,'model:a','model','a','{"size": "1"}',1);
CREATE INDEX nodes_id ON nodes (id);
CREATE INDEX aliases_name ON aliases (name);
CREATE INDEX nodes_document ON nodes (document);
CREATE INDEX edges_document ON edges (document);
CREATE INDEX aliases_document ON aliases (document);
COMMIT;
PRAGMA user_version=2;
