-- The password of the role that sql/002_role.sql makes, for compose.yaml alone: from the environment of the server's container.
\set password `printenv POSTHASTE_PASSWORD`
ALTER ROLE posthaste PASSWORD :'password';
