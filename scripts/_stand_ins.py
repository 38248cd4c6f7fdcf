"""Stand-ins for packages that an engine imports and that its argument parser does not need.

SGLang's parser is ordinary Python, but importing it loads torch, CUDA kernels and much more.
Everything outside the standard library is replaced by modules whose every name is an empty
class, so that the parser can be built on any machine.  A stand-in is falsy, has no members and
can be subclassed, called and used as a decorator.  Whoever reads the parser must refuse types
and choices that are stand-ins: `is_stand_in` finds them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class StandIn(ABCMeta):
    """The type of stand-in classes."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(cls, *given: Any, **named: Any) -> Any:
        if len(given) == 1 and not named and isinstance(given[0], types.FunctionType | type):
            return given[0]  # a decorator
        return cls

    def __bool__(cls) -> bool:
        return False

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __contains__(cls, item: object) -> bool:
        return False

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __enter__(cls) -> Any:
        return cls

    def __exit__(cls, *error: object) -> None:
        return None

    def __index__(cls) -> int:
        return 0

    def _itself(cls, *_: object) -> Any:
        return cls

    __or__ = __ror__ = __add__ = __radd__ = __sub__ = __rsub__ = _itself
    __mul__ = __rmul__ = __truediv__ = __floordiv__ = __pow__ = __neg__ = _itself

    def __lt__(cls, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


def stand_in(name: str) -> Any:
    members = {
        "__init_subclass__": classmethod(_take_any),
        "__get_pydantic_core_schema__": classmethod(_any_schema),  # as the type of a field
    }
    return StandIn(name, (), members)


def _any_schema(_cls: type, *_: object) -> dict[str, str]:
    return {"type": "any"}


def _take_any(_cls: type, **_: object) -> None:
    """Accept the keywords that classes of the replaced package give to their bases."""


def is_stand_in(value: object) -> bool:
    return isinstance(value, StandIn)


class Module(types.ModuleType):
    """A module whose every name is a stand-in."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "99.0.0"
        if name.startswith("__") or name in (
            "hip",
            "musa",
        ):  # torch.version.hip
            raise AttributeError(name)
        return stand_in(name)


# The arguments of `find_spec` are the import system's.
# ruff: noqa: ARG002


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find stand-ins for the modules of `names`; with no names, for every module."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        inside = (name == one or name.startswith(f"{one}.") for one in self.names)
        if self.names and not any(inside):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


class Kept(importlib.abc.MetaPathFinder):
    """Find installed packages that are needed as they are, and nothing else that is installed."""

    def __init__(self, names: tuple[str, ...], places: list[str]) -> None:
        self.names, self.places = names, places

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, path or self.places)


def install(package: Path, *, replaced: tuple[str, ...], kept: tuple[str, ...]) -> None:
    """Make the package of a source tree importable, with stand-ins for all its imports.

    `replaced` names modules of the package itself that are not wanted, `kept` what is taken as
    it is installed.  The package's own `__init__` does not run.
    """
    places = [path for path in sys.path if "-packages" in path]
    sys.path[:] = [path for path in sys.path if "-packages" not in path]
    bare = types.ModuleType(package.name)
    bare.__path__ = [str(package)]
    sys.modules[package.name] = bare
    sys.meta_path.insert(0, Finder(replaced))
    sys.meta_path += [Kept(kept, places), Finder()]
