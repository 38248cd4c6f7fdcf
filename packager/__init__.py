"""packager: from (model, target instance) to a deployable serving image.

    from packager import build, errors, plan

They are imported when they are asked for: every command pays for what this file imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.core.version import __version__ as __version__

if TYPE_CHECKING:
    from packager.api import build as build
    from packager.api import plan as plan
    from packager.core import errors as errors

__all__ = ["__version__", "build", "errors", "plan"]

if not TYPE_CHECKING:  # a type checker shall find names that are not there

    def __getattr__(name: str) -> object:
        if name in ("build", "plan"):
            from packager import api

            return getattr(api, name)
        if name == "errors":
            from packager.core import errors

            return errors
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
