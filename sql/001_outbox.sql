-- The outbox table. Run as the owner of the service's schema, in the service's database; running it again changes nothing.
--
-- A service inserts one row per event in the transaction that makes the change. Only the insert is published: rows may
-- be deleted at any time afterwards, also in the same transaction, so the table can stay empty. See docs/configuration.md
-- for other names.

CREATE TABLE IF NOT EXISTS public.outbox (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregatetype     text NOT NULL,
    aggregateid       text,
    type              text,
    payload           jsonb,
    schema_version    integer,
    aggregate_version bigint,
    created_at        timestamptz DEFAULT now()
);

COMMENT ON TABLE  public.outbox IS 'Events on their way to Kafka: each insert becomes one record';
COMMENT ON COLUMN public.outbox.id IS 'Identity of the event: the header `id`, by which consumers tell repeats';
COMMENT ON COLUMN public.outbox.aggregatetype IS 'Last part of the topic: outbox.event.<aggregatetype>';
COMMENT ON COLUMN public.outbox.aggregateid IS 'The record''s key: events of one aggregate stay in commit order';
COMMENT ON COLUMN public.outbox.type IS 'Kind of event, for a header by configuration';
COMMENT ON COLUMN public.outbox.payload IS 'The record''s value; NULL makes a tombstone';
COMMENT ON COLUMN public.outbox.schema_version IS 'Version of the payload''s form, for a header by configuration';
COMMENT ON COLUMN public.outbox.aggregate_version IS 'Number of the event within its aggregate; take it under the aggregate''s row lock';
COMMENT ON COLUMN public.outbox.created_at IS 'When the row was made (start of its transaction), for people and housekeeping';
