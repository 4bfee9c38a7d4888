"""The MySQL protocol, so that MySQL's clients read and write as they are.

Law: a client gets MySQL's answer or a numbered error, never another answer in silence
(docs/mysql.md).
"""

from viewkeep.serve.mysql.server import MysqlServer, start_mysql

__all__ = ["MysqlServer", "start_mysql"]
