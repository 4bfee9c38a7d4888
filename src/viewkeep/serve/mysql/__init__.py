"""The MySQL protocol, so that MySQL's clients read and write as they are."""

from viewkeep.serve.mysql.server import MysqlServer, start_mysql

__all__ = ["MysqlServer", "start_mysql"]
