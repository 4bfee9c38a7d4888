"""Bytes for keys, rows and versions: what stores hold, and the ways to and from columns."""
