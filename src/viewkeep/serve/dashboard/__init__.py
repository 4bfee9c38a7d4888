"""The dashboard: what the database does, in a browser.

Law: the dashboard reads through the same calls as every client and costs the database a bounded
share, however many pages are open.
"""
