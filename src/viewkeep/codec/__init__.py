"""Bytes for keys, rows and versions: what stores hold, and the ways to and from columns.

Law: every encoding has one inverse and its bytes do not depend on the machine; comparing key bytes
compares keys. Nothing here knows tables, stores or epochs.
"""
