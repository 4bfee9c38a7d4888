"""numpy, polars and pyarrow, each imported when one of its names is first used.

    from viewkeep.deferred import np, pl

Together they take a quarter of a second to import. Reading a row by its key needs none of them, and
neither does a write of a few rows and the epoch that follows it.

Law: a deferred module gives what the module itself gives, and after its first use at the same
price. `sys.modules` holds the real modules alone, so nothing changes for other packages.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["np", "pa", "pl"]


class DeferredModule(ModuleType):
    """Stands for a module until one of its names is asked for; then it is a copy of that module.

    The import system sees to threads: whoever asks while the module's code runs waits for its end.
    """

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        # What comes to the real module later, such as a part that is imported, is asked of it.
        self.__dict__.update(vars(module) | {"__getattr__": partial(getattr, module)})
        object.__setattr__(self, "__class__", ModuleType)
        return getattr(module, name)


if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa
else:
    np, pa, pl = DeferredModule("numpy"), DeferredModule("pyarrow"), DeferredModule("polars")
