"""SQL statements run over tables and views, once or prepared.

Law: a statement is whole or has not happened, and reads at one epoch."""
