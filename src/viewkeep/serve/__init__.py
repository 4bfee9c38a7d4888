"""Serving a database to others: HTTP, the MySQL protocol, and the dashboard."""
