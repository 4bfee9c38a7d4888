"""Commands that answer at once: large libraries load when a command first uses them, if it does.

Law: a deferred module behaves as an imported one; its code runs once, at the first use of a name of
it, and other threads wait for that. The standard library's lazy loader runs it at the next `import`
of it already (Python 3.11), which is too early here.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

LARGE = ("polars", "pyarrow", "numpy")
_loading = threading.RLock()


class DeferredModule(ModuleType):
    """A module whose code has not run yet, or runs just now."""

    def __getattr__(self, name: str) -> Any:
        with _loading:
            if type(self) is DeferredModule and "_begun" not in self.__dict__:
                self.__dict__["_begun"] = True
                spec = self.__spec__
                assert spec is not None
                assert spec.loader is not None
                self.__path__ = list(spec.submodule_search_locations or [])
                spec.loader.exec_module(self)
                del self.__dict__["_begun"]
                object.__setattr__(self, "__class__", ModuleType)
                return getattr(self, name)
            if type(self) is not DeferredModule:  # another thread has loaded it meanwhile
                return getattr(self, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def defer(*names: str) -> None:
    """Have `import` of these modules (default: the large ones) load them at their first use.

    Garbage is collected more rarely: what such a command imports stays, and it ends soon.
    """
    gc.set_threshold(100_000)
    for name in names or LARGE:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None:
            continue
        module = DeferredModule(name)
        module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
        module.__package__ = name  # without a __path__: who imports a part of it loads it first
        sys.modules[name] = module
