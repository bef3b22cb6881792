-- Tables for events that cannot be published as they are. Needed for `on_poison = "park"` and for `posthaste skip`, and for nothing
-- else. Run as a superuser or the owner of the database, in the service's database; running it again changes nothing.
-- Another schema than posthaste is named in poison.schema. Rows of these tables are never events.

CREATE SCHEMA IF NOT EXISTS posthaste;

CREATE TABLE IF NOT EXISTS posthaste.parked (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot                  text        NOT NULL,
    commit_lsn            pg_lsn      NOT NULL,
    insert_index          bigint      NOT NULL,
    state                 text        NOT NULL CHECK (state IN ('held', 'queued', 'published', 'discarded')),
    aggregate_type        bytea,
    aggregate_id          bytea,
    event_id              text,
    stage                 text        NOT NULL,
    code                  text        NOT NULL,
    reason                text        NOT NULL,
    attempts              integer     NOT NULL,
    source_schema         text        NOT NULL,
    source_table          text        NOT NULL,
    lsn                   pg_lsn      NOT NULL,
    xid                   bigint      NOT NULL,
    commit_micros         bigint      NOT NULL,
    column_names          text[]      NOT NULL,
    column_types          oid[]       NOT NULL,
    column_type_modifiers integer[]   NOT NULL,
    column_values         bytea[]     NOT NULL,
    column_known          boolean[]   NOT NULL,
    bytes                 bigint      NOT NULL,
    parked_at             timestamptz NOT NULL DEFAULT now(),
    changed_at            timestamptz NOT NULL DEFAULT now(),
    UNIQUE (slot, commit_lsn, insert_index)
);

CREATE INDEX IF NOT EXISTS parked_held ON posthaste.parked (slot, aggregate_id, commit_lsn, insert_index) WHERE state = 'held';
CREATE INDEX IF NOT EXISTS parked_queued ON posthaste.parked (slot, commit_lsn, insert_index) WHERE state = 'queued';

COMMENT ON TABLE  posthaste.parked IS 'Events that could not be published, and those of their aggregates behind them; posthaste parked lists and changes them';
COMMENT ON COLUMN posthaste.parked.commit_lsn IS 'With insert_index the event''s identity: where the commit of its transaction begins';
COMMENT ON COLUMN posthaste.parked.state IS 'held: waits for a person. queued: published once nothing before it of its aggregate is held. published, discarded: done, kept until the slot has passed it';
COMMENT ON COLUMN posthaste.parked.column_values IS 'The text of each column in UTF-8, as convert_to(…, ''UTF8'') gives it';
COMMENT ON COLUMN posthaste.parked.column_known IS 'False for columns of a row that was too large to be read: they have to be filled in before it can be published';

CREATE TABLE IF NOT EXISTS posthaste.skipped (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot         text        NOT NULL,
    commit_lsn   pg_lsn,
    insert_index bigint,
    event_id     text,
    reason       text,
    requested_by text        NOT NULL DEFAULT session_user,
    requested_at timestamptz NOT NULL DEFAULT now(),
    skipped_at   timestamptz,
    CHECK (event_id IS NOT NULL OR (commit_lsn IS NOT NULL AND insert_index IS NOT NULL))
);

CREATE INDEX IF NOT EXISTS skipped_pending ON posthaste.skipped (slot) WHERE skipped_at IS NULL;

COMMENT ON TABLE posthaste.skipped IS 'Decisions to pass over single events, and when each was carried out: the audit log of posthaste skip';

-- The connector's role, if it has the name of 002_role.sql; for another one run these for it.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'posthaste') THEN
        GRANT USAGE ON SCHEMA posthaste TO posthaste;
        GRANT SELECT, INSERT, UPDATE, DELETE ON posthaste.parked TO posthaste;
        GRANT SELECT, INSERT, UPDATE ON posthaste.skipped TO posthaste;
    END IF;
END
$$;
