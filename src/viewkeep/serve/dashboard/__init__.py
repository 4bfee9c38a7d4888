"""The dashboard: what the database does, in a browser."""
