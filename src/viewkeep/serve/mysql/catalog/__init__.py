"""What clients declare and ask of a server: tables, columns and variables as MySQL shows them."""
