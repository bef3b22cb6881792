-- The connector's role. Run as a superuser (PostgreSQL 16 and later: or as a role with CREATEROLE and REPLICATION), in
-- the service's database; running it again changes nothing. Give it a password afterwards, for example with
-- `\password posthaste`: none stands in a file.
--
-- What it needs, and why:
--   LOGIN        it connects, once for SQL and once for the stream;
--   REPLICATION  it starts the stream and may create its slot. PostgreSQL has no smaller right for that: the role could
--                also copy the whole cluster, so let pg_hba.conf admit it from the connector's hosts alone, and to this
--                database alone (lines for `all` do not cover physical replication, which needs `replication`);
--   CONNECT      for clusters where CONNECT was revoked from PUBLIC.
-- It needs no right on the outbox table itself, neither SELECT nor INSERT: rows come through the stream.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'posthaste') THEN
        CREATE ROLE posthaste;
    END IF;
    -- Whatever an older role of this name had, it ends up with this and no more.
    ALTER ROLE posthaste LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO posthaste', current_database());
END
$$;
