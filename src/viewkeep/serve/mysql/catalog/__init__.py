"""What clients declare and ask of a server: tables, columns and variables as MySQL shows them.

Law: clients are told what MySQL would tell them in the same form; what does not exist here is
empty, and is never made up.
"""
