"""A writing client of its own, to be killed: `writer.py URL ACKNOWLEDGED FIRST SEED`.

Write n puts row n and changes an earlier row, in one call; once the call has returned, n is
appended to the file ACKNOWLEDGED.
"""

from __future__ import annotations

import os
import random
import sys

import viewkeep


def main() -> None:
    url, acknowledged, first, seed = sys.argv[1:]
    source = random.Random(int(seed))
    db = viewkeep.open(url, create=False)
    file = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = int(first)
    while True:
        rows = [{"id": number, "team": number % 7, "points": number}]
        if number > 10:
            old = source.randrange(1, number)
            rows.append({"id": old, "team": source.randrange(7), "points": old})
        db.put("games", rows)
        os.write(file, b"%d\n" % number)
        number += 1


if __name__ == "__main__":
    main()
