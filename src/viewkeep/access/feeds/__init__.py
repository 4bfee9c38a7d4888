"""Change feeds: the rows of a view at one epoch, then what each published epoch changed."""
