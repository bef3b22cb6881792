-- Of the role that sql/002_role.sql makes, for compose.yaml alone.
ALTER ROLE posthaste PASSWORD 'posthaste';
