"""The demo: a news site whose views are kept live while readers vote and comment, then verified.

Law: what the demo shows was read from the database that it runs.
"""

from viewkeep.demo.show import run_demo

__all__ = ["run_demo"]
