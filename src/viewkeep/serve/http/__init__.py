"""The HTTP interface: reads, writes, SQL, change feeds, status."""
