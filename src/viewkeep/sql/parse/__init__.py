"""Text to syntax trees: their size is bounded and every part of them is known.

Law: no name is looked up here, so the tree of a text depends on the text alone."""
