"""What MySQL clients declared of a table comes back with a backup."""

from __future__ import annotations

from pathlib import Path

from tests.serve.mysql.conftest import Running

import viewkeep
from viewkeep.serve.settings import Settings


def test_defaults_and_numbers_are_restored(running: Running, tmp_path: Path) -> None:
    made = (
        "CREATE TABLE notes (id BIGINT AUTO_INCREMENT PRIMARY KEY, "
        "kind VARCHAR(9) DEFAULT 'plain', body TEXT NOT NULL)"
    )
    with running.connect() as client, client.cursor() as cursor:
        cursor.execute(made)
        cursor.execute("INSERT INTO notes (body) VALUES ('a'), ('b')")
        cursor.execute("SHOW CREATE TABLE notes")
        shown = cursor.fetchall()
        cursor.execute("SELECT MAX(id) FROM notes")
        ((last,),) = cursor.fetchall()
    running.db.backup(tmp_path / "backups")
    with viewkeep.restore(tmp_path / "backups", tmp_path / "again.vk") as db:
        again = Running(db, Settings(http_port=None, mysql_port=0))
        again.start()
        try:
            with again.connect() as client, client.cursor() as cursor:
                cursor.execute("SHOW CREATE TABLE notes")
                assert cursor.fetchall() == shown
                cursor.execute("INSERT INTO notes (body) VALUES ('c')")
                cursor.execute(f"SELECT kind, body FROM notes WHERE id > {last}")
                assert cursor.fetchall() == (("plain", "c"),)
        finally:
            again.stop()
