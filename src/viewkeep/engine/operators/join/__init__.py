"""Joins: the rows of one arrangement with their partners in another.

Law, with L and R the sides at the epoch before and d their changes:

    d(L join R) = dL join R + L join dR + dL join dR
    d(L semi R) = dL where R has a partner after + L where that changed
    d(L anti R) = dL where R has none after      + L where that changed
    d(L left R) = d(L join R) + d(L anti R) with NULLs

A row of the result has the key of its left row.
"""
