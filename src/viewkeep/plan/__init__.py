"""Plans: nodes, the passes that improve them, and the program of operators that they become.

Law: nodes are frozen values with ids derived from their content, so two views that compute the same
share it. Nothing here reads a row.
"""
