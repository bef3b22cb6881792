-- The publication. Run as the owner of the outbox table with CREATE on the database (or as a superuser); running it again
-- changes nothing, and puts right a publication of this name that publishes too much or too little.
--
-- Only inserts are published: updates and deletes of outbox rows are housekeeping. Create the slot after this: a slot
-- cannot decode changes from before its publication.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'outbox') THEN
        CREATE PUBLICATION outbox FOR TABLE public.outbox WITH (publish = 'insert');
    ELSE
        ALTER PUBLICATION outbox SET (publish = 'insert');
        ALTER PUBLICATION outbox SET TABLE public.outbox;
    END IF;
END
$$;
