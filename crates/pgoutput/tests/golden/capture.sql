-- What the golden files are captured from: run once per PostgreSQL version, into tests/golden/pg<major>/.
--
-- The server: a new cluster (initdb --no-locale --encoding=UTF8) with wal_level=logical, timezone=UTC,
-- max_prepared_transactions=2 and nobody else on it, so that a scenario's bytes are its own.
--
-- The capture: the statements before the first scenario are run once. For each scenario a pgoutput slot is
-- created, its statements are run in order, and all that pg_logical_slot_peek_binary_changes() yields with
-- proto_version=1, publication_names=p and messages=true becomes <scenario>.hex: first a line '# ' and the
-- server's version(), then a line per message: position, xid, bytes in hexadecimal. Then the slot is dropped.
-- (The option messages exists from 14 on.)
--
-- Lines that mean something:
--   -- scenario: name           what follows belongs to it
--   -- from: major              leave it out on older servers
--   -- options: name=value …    options of the plugin, in place of or beside those above
--   -- messages: count          keep only the first ones
--   -- session: name            what follows is run in this session; every scenario starts in 'main'

CREATE PUBLICATION p FOR ALL TABLES;
-- Of the last scenario; here, since 14 sends a transaction also where nothing of it is published.
CREATE TABLE streamed (id int);

-- scenario: insert_types
CREATE TABLE typed (
  id bigint PRIMARY KEY, a_bool bool, a_int2 int2, a_int4 int4, a_numeric numeric(20,4), a_wide numeric,
  a_float4 float4, a_float8 float8, a_money money, a_text text, a_varchar varchar(10), a_char char(5),
  a_internal_char "char", a_name name, a_bytea bytea, a_uuid uuid, a_json json, a_jsonb jsonb,
  a_date date, a_time time, a_timetz timetz, a_timestamp timestamp(3), a_timestamptz timestamptz,
  a_interval interval, a_inet inet, a_cidr cidr, a_macaddr macaddr, a_bit bit(4), a_varbit varbit,
  a_ints int[], a_texts text[], a_point point, a_range int4range, a_tsvector tsvector, a_oid oid,
  a_regclass regclass, a_lsn pg_lsn
);
INSERT INTO typed VALUES (
  1, true, -32768, 2147483647, 1.5, 123456789012345678901234567890.000001,
  1.1, -0.1, '12.34', 'text', 'varchar', 'char',
  'x', 'name', '\x00ff61', '11111111-2222-3333-4444-555555555555', '{"b": 1,  "a":2}', '{"b": 1,  "a":2}',
  '2024-02-29', '23:59:59.999999', '12:00+02', '2024-01-01 00:00:00.1234', '2024-01-01 00:00:00+01',
  '1 year 2 days 03:04:05', '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '1010', '1',
  '{1,NULL,3}', '{"a,b","c\"d",NULL}', '(1,2)', '[1,10)', 'a fat cat', 42,
  'pg_class', '16/B374D848'
);
INSERT INTO typed (id, a_numeric, a_float8, a_date, a_timestamptz, a_range) VALUES
  (-9223372036854775808, 'NaN', 'NaN', 'infinity', '-infinity', 'empty'),
  (2, 0, 'Infinity', '0044-03-15 BC', '0001-01-01 00:00:00+00', '(,)');

-- scenario: insert_null_and_empty
CREATE TABLE sparse (id int PRIMARY KEY, a text, b bytea, c jsonb, d text[]);
CREATE TABLE without_columns ();
INSERT INTO sparse VALUES (1, NULL, NULL, NULL, NULL), (2, '', '', 'null', '{}'), (3, E'tab\tnewline\nquote\'é漢😀', '\x', '""', '{NULL}');
INSERT INTO without_columns DEFAULT VALUES;

-- scenario: insert_toast
CREATE TABLE toasted (id int PRIMARY KEY, outside text, compressed text);
ALTER TABLE toasted ALTER outside SET STORAGE EXTERNAL;
INSERT INTO toasted VALUES (1, repeat('0123456789', 250), repeat('a', 3000));

-- scenario: insert_many
-- COPY writes several rows in one log record, so that they share a position.
CREATE TABLE many (id int);
COPY many FROM PROGRAM 'printf "1\n2\n3\n4\n"';
BEGIN;
INSERT INTO many SELECT generate_series(5, 8);
COPY many FROM PROGRAM 'printf "9\n10\n"';
COMMIT;

-- scenario: insert_then_delete
CREATE TABLE fleeting (id int PRIMARY KEY, payload text);
BEGIN;
INSERT INTO fleeting VALUES (1, 'one'), (2, 'two');
DELETE FROM fleeting;
COMMIT;

-- scenario: update_identity_default
CREATE TABLE by_key (id int PRIMARY KEY, tenant text, payload text);
INSERT INTO by_key VALUES (1, 'a', 'before');
UPDATE by_key SET payload = 'after';
UPDATE by_key SET id = 2;
UPDATE by_key SET id = 3, payload = NULL;

-- scenario: update_identity_full
CREATE TABLE by_row (id int PRIMARY KEY, payload text);
ALTER TABLE by_row REPLICA IDENTITY FULL;
INSERT INTO by_row VALUES (1, NULL);
UPDATE by_row SET payload = 'after';
UPDATE by_row SET id = 2;

-- scenario: update_identity_index
CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL, payload text);
CREATE UNIQUE INDEX by_index_code ON by_index (code);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code;
INSERT INTO by_index VALUES (1, 'a', 'before');
UPDATE by_index SET payload = 'after', id = 2;
UPDATE by_index SET code = 'b';

-- scenario: update_identity_nothing
-- The server refuses updates that are published without an identity; what is left are the inserts around.
CREATE TABLE by_nothing (id int PRIMARY KEY, payload text);
ALTER TABLE by_nothing REPLICA IDENTITY NOTHING;
INSERT INTO by_nothing VALUES (1, 'before');
DO $$ BEGIN UPDATE by_nothing SET payload = 'after'; EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END $$;
ALTER PUBLICATION p SET (publish = 'insert');
UPDATE by_nothing SET payload = 'after';
ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate');
INSERT INTO by_nothing VALUES (2, 'again');

-- scenario: update_toast_unchanged
CREATE TABLE big (id int PRIMARY KEY, outside text, counter int);
CREATE TABLE big_by_row (id int PRIMARY KEY, outside text, counter int);
ALTER TABLE big ALTER outside SET STORAGE EXTERNAL;
ALTER TABLE big_by_row ALTER outside SET STORAGE EXTERNAL;
ALTER TABLE big_by_row REPLICA IDENTITY FULL;
INSERT INTO big VALUES (1, repeat('0123456789', 250), 0);
INSERT INTO big_by_row VALUES (1, repeat('0123456789', 250), 0);
UPDATE big SET counter = 1;
UPDATE big SET id = 2;
UPDATE big_by_row SET counter = 1;

-- scenario: delete_identities
CREATE TABLE gone_by_key (id int PRIMARY KEY, payload text);
CREATE TABLE gone_by_row (id int, payload text);
ALTER TABLE gone_by_row REPLICA IDENTITY FULL;
INSERT INTO gone_by_key VALUES (1, 'one');
INSERT INTO gone_by_row VALUES (1, 'one'), (2, NULL);
DELETE FROM gone_by_key;
DELETE FROM gone_by_row;

-- scenario: truncate
CREATE TABLE cut_a (id serial PRIMARY KEY);
CREATE TABLE cut_b (id int PRIMARY KEY REFERENCES cut_a);
CREATE TABLE cut_c (id int);
TRUNCATE cut_c;
TRUNCATE cut_a, cut_b, cut_c;
TRUNCATE cut_a RESTART IDENTITY CASCADE;

-- scenario: data_types
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN address AS text CHECK (VALUE LIKE '%@%');
CREATE TYPE pair AS (a int, b mood);
CREATE SCHEMA "Other Schema";
CREATE TYPE "Other Schema"."Odd ""Type""" AS ENUM ('x');
CREATE TABLE with_types (id int PRIMARY KEY, m mood, a address, p pair, ms mood[], o "Other Schema"."Odd ""Type""");
INSERT INTO with_types VALUES (1, 'happy', 'a@b', '(1,sad)', '{sad,happy}', 'x');

-- scenario: origin
CREATE TABLE from_elsewhere (id int PRIMARY KEY);
SELECT pg_replication_origin_create('elsewhere');
SELECT pg_replication_origin_session_setup('elsewhere');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/1234', '2024-01-01 00:00:00+00');
INSERT INTO from_elsewhere VALUES (1);
COMMIT;
SELECT pg_replication_origin_session_reset();
INSERT INTO from_elsewhere VALUES (2);

-- scenario: logical_messages
CREATE TABLE beside_messages (id int PRIMARY KEY);
SELECT pg_logical_emit_message(true, 'heartbeat', 'alone in its transaction');
SELECT pg_logical_emit_message(false, 'heartbeat', 'outside any');
BEGIN;
INSERT INTO beside_messages VALUES (1);
SELECT pg_logical_emit_message(true, 'é', '\x00ff'::bytea);
SELECT pg_logical_emit_message(false, '', '');
INSERT INTO beside_messages VALUES (2);
COMMIT;
BEGIN;
SELECT pg_logical_emit_message(true, 'rolled back', 'never seen');
SELECT pg_logical_emit_message(false, 'rolled back', 'seen all the same');
ROLLBACK;

-- scenario: relation_change
CREATE TABLE changing (id int PRIMARY KEY, type text, payload text);
BEGIN;
INSERT INTO changing VALUES (1, 't', 'one');
ALTER TABLE changing ADD COLUMN trace text DEFAULT 'default';
INSERT INTO changing VALUES (2, 't', 'two', 'trace');
UPDATE changing SET payload = 'changed' WHERE id = 1;
ALTER TABLE changing DROP COLUMN type;
INSERT INTO changing VALUES (3, 'three');
ALTER TABLE changing RENAME COLUMN trace TO traceparent;
INSERT INTO changing VALUES (4, 'four');
ALTER TABLE changing ALTER COLUMN payload TYPE varchar(20);
INSERT INTO changing VALUES (5, 'five');
ALTER TABLE changing RENAME TO changed;
INSERT INTO changed VALUES (6, 'six');
DELETE FROM changed WHERE id = 1;
COMMIT;

-- scenario: relation_change_rolled_back
CREATE TABLE unchanged (id int PRIMARY KEY);
BEGIN;
INSERT INTO unchanged VALUES (1);
SAVEPOINT s;
ALTER TABLE unchanged ADD COLUMN extra text;
INSERT INTO unchanged VALUES (2, 'extra');
ROLLBACK TO s;
INSERT INTO unchanged VALUES (3);
COMMIT;

-- scenario: partitioned_by_leaf
CREATE TABLE leaves (id int, payload text, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE leaves_1 PARTITION OF leaves FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE leaves_2 (dropped int, day date NOT NULL, payload text, id int NOT NULL);
ALTER TABLE leaves_2 DROP COLUMN dropped;
ALTER TABLE leaves ATTACH PARTITION leaves_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
INSERT INTO leaves VALUES (1, 'one', '2024-01-10'), (2, 'two', '2024-02-10');
UPDATE leaves SET day = '2024-02-20' WHERE id = 1;
TRUNCATE leaves;

-- scenario: partitioned_by_root
-- options: publication_names=p_root
CREATE PUBLICATION p_root FOR ALL TABLES WITH (publish_via_partition_root = true);
CREATE TABLE rooted (id int, payload text, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE rooted_1 PARTITION OF rooted FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE rooted_2 (dropped int, day date NOT NULL, payload text, id int NOT NULL);
ALTER TABLE rooted_2 DROP COLUMN dropped;
ALTER TABLE rooted ATTACH PARTITION rooted_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
INSERT INTO rooted VALUES (1, 'one', '2024-01-10'), (2, 'two', '2024-02-10');
UPDATE rooted SET payload = 'changed';
UPDATE rooted SET day = '2024-02-20' WHERE id = 1;
CREATE TABLE rooted_3 PARTITION OF rooted FOR VALUES FROM ('2024-03-01') TO ('2024-04-01');
INSERT INTO rooted VALUES (3, 'three', '2024-03-10');
DELETE FROM rooted WHERE id = 2;
TRUNCATE rooted;

-- scenario: rollback
CREATE TABLE attempted (id int PRIMARY KEY);
BEGIN;
INSERT INTO attempted VALUES (1);
ROLLBACK;
BEGIN;
INSERT INTO attempted VALUES (2);
SAVEPOINT s;
INSERT INTO attempted VALUES (3);
ROLLBACK TO s;
INSERT INTO attempted VALUES (4);
SAVEPOINT t;
INSERT INTO attempted VALUES (5);
RELEASE t;
COMMIT;

-- scenario: interleaved
CREATE TABLE woven (id text PRIMARY KEY);
BEGIN;
INSERT INTO woven VALUES ('a1');
-- session: other
BEGIN;
INSERT INTO woven VALUES ('b1');
COMMIT;
-- session: main
INSERT INTO woven VALUES ('a2');
-- session: other
BEGIN;
INSERT INTO woven VALUES ('c1');
-- session: main
COMMIT;
-- session: other
INSERT INTO woven VALUES ('c2');
COMMIT;

-- scenario: prepared_transaction
-- Without the plugin's two_phase it arrives like any other, when it is committed.
CREATE TABLE prepared (id int PRIMARY KEY);
BEGIN;
INSERT INTO prepared VALUES (1);
PREPARE TRANSACTION 'golden';
INSERT INTO prepared VALUES (2);
COMMIT PREPARED 'golden';

-- scenario: generated_and_quoted
CREATE SCHEMA "Sch.ema";
CREATE TABLE "Sch.ema"."Out""box é" ("Id" int PRIMARY KEY, "twice as ""much""" int GENERATED ALWAYS AS ("Id" * 2) STORED, "a.b" text);
INSERT INTO "Sch.ema"."Out""box é" ("Id", "a.b") VALUES (1, 'x');

-- scenario: column_list
-- from: 15
-- options: publication_names=p_columns
CREATE TABLE listed (id int PRIMARY KEY, hidden text, shown text);
CREATE PUBLICATION p_columns FOR TABLE listed (id, shown) WHERE (id > 1);
INSERT INTO listed VALUES (1, 'h', 'filtered'), (2, 'h', 's');
UPDATE listed SET shown = 'changed';
UPDATE listed SET id = id + 10;
DELETE FROM listed;

-- scenario: binary
-- from: 14
-- options: binary=true
CREATE TABLE in_binary (id int PRIMARY KEY, payload jsonb, raw bytea, nothing text, at timestamptz);
INSERT INTO in_binary VALUES (1, '{"a":1}', '\x00ff', NULL, '2024-01-01 00:00:00+00');
UPDATE in_binary SET id = 2;

-- scenario: streamed
-- A transaction above logical_decoding_work_mem: version 1 never streams, version 2 is recognised and refused.
-- from: 14
-- options: proto_version=2 streaming=on
-- messages: 1
SET logical_decoding_work_mem = '64kB';
INSERT INTO streamed SELECT generate_series(1, 2000);
