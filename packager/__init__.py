"""packager: from (model, target instance) to a deployable serving image.

    from packager import build, errors, plan

They are imported when they are asked for: every command pays for what this file imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.core.version import __version__ as __version__

if TYPE_CHECKING:
    from packager import aio as aio
    from packager.api.images import build as build
    from packager.api.images import plan as plan
    from packager.api.images import push as push
    from packager.api.measuring import bench as bench
    from packager.api.measuring import evaluate as evaluate
    from packager.api.measuring import tune as tune
    from packager.api.serving import RunningModel as RunningModel
    from packager.api.serving import run as run
    from packager.core import errors as errors
    from packager.core.events import Event as Event

_PLACES = {
    **dict.fromkeys(("build", "plan", "push"), "packager.api.images"),
    **dict.fromkeys(("bench", "evaluate", "tune"), "packager.api.measuring"),
    **dict.fromkeys(("RunningModel", "run"), "packager.api.serving"),
    "Event": "packager.core.events",
}
_MODULES = {"aio": "packager.aio", "errors": "packager.core.errors"}

__all__ = ["__version__", *sorted(_PLACES), *_MODULES]

if not TYPE_CHECKING:  # a type checker shall find names that are not there

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return import_module(_MODULES[name])
        if name in _PLACES:
            return getattr(import_module(_PLACES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
