"""The HTTP interface: reads, writes, SQL, change feeds, status.

Law: a value is the same JSON in every answer and request, and an error is one shape of JSON with
the status of its class.
"""
