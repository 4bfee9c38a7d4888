"""Change feeds: the rows of a view at one epoch, then what each published epoch changed.

Law: the first rows with the changes up to e applied are exactly the view at e.
"""
