"""packager: from (model, target instance) to a deployable serving image.

    from packager import plan, build

Both are imported when they are asked for: every command pays for what this file imports.
`packager.build` is also the package of the line, so that module is made callable
(docs/decisions/0011-rooms-by-feature.md).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from packager.version import __version__ as __version__

if TYPE_CHECKING:
    from packager.api import build as build
    from packager.api import plan as plan

__all__ = ["__version__", "build", "plan"]


class _Module(ModuleType):
    """A module that is pickled by its name: cloudpickle does so for plain modules only."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        from importlib import import_module

        return import_module, (self.__name__,)


class _Build(_Module):
    """The package `packager.build`, which can be called as the function of the same name."""

    def __call__(self, **asked: Any) -> Any:
        """Build an image; see `packager.api.build`."""
        from packager.api import build

        return build(**asked)


class _Packager(_Module):
    """This package; it makes `packager.build` callable whoever imports it first."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "build" and isinstance(value, ModuleType):
            value.__class__ = _Build
        super().__setattr__(name, value)


if not TYPE_CHECKING:  # a type checker shall find names that are not there

    def __getattr__(name: str) -> object:
        if name == "build":
            import packager.build

            return packager.build
        if name == "plan":
            from packager.api import plan

            return plan
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Packager
