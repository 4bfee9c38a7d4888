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
    """A module whose code has not run yet, or runs just now.

    Once it has run, this is a plain module.
    """

    def __getattribute__(self, name: str) -> Any:
        # Names with underscores are the import system's. Other threads must not see a name that is
        # there already: its value may be another one when the code has run.
        if not name.startswith("__"):
            _load(self)
        return ModuleType.__getattribute__(self, name)  # by now it may be a plain module

    def __getattr__(self, name: str) -> Any:
        _load(self)
        if type(self) is not DeferredModule:
            return getattr(self, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _load(module: ModuleType) -> None:
    """Run a deferred module's code unless this thread is at it, or wait until another one has."""
    with _loading:
        if type(module) is not DeferredModule or "_begun" in module.__dict__:
            return
        module.__dict__["_begun"] = True
        spec = module.__spec__
        assert spec is not None
        assert spec.loader is not None
        module.__path__ = list(spec.submodule_search_locations or [])
        spec.loader.exec_module(module)
        del module.__dict__["_begun"]
        object.__setattr__(module, "__class__", ModuleType)


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
