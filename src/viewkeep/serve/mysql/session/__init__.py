"""One client's session: its statements one after another, and what is remembered between them."""
