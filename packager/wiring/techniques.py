"""Who quantizes and compiles, and the tools that do it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packager import plugins
from packager.adapters.files import user_dir
from packager.planning.schemes import NONE, parse_quantize
from packager.ports import Compiler, Quantizer
from packager.share import share_dir
from packager.wiring.settings import Settings, log_dir

if TYPE_CHECKING:
    from packager.adapters.tools.environments import Environments


def find_quantizer(asked: str | None) -> Quantizer | None:
    """Find who does `METHOD`, or is named by `QUANTIZER:METHOD`; None where nobody is needed.

    For a wrong name it is the first of all: whoever refuses it lists what there is.
    """
    if asked in (None, NONE):
        return None
    assert asked is not None
    table = plugins.quantizers()
    wanted = parse_quantize(asked)
    if wanted.quantizer:
        quantizer: Quantizer = plugins.load(table, wanted.quantizer)()
        return quantizer
    made: list[Quantizer] = [plugins.load(table, name)() for name in table]
    return next((found for found in made if wanted.method in found.methods), made[0])


def find_compilers(asked: str | None) -> Mapping[str, Compiler]:
    """Give who may be meant by `--compile`: everybody for `auto` or a wrong name, or nobody."""
    table = plugins.compilers() if asked not in (None, "off") else {}
    return {name: plugins.load(table, name)() for name in table}


def tool_names() -> tuple[str, ...]:
    """Name every tool: those that packager brings, and those of other packages."""
    ours = (place.parent.name for place in _tools_dir().glob("*/tool.toml"))
    return tuple(sorted({*ours, *plugins.tool_directories()}))


def environments_for(settings: Settings) -> Environments:
    """Choose where tools are installed: for all builds of a user, whatever cache they use."""
    from packager.adapters.tools.environments import Environments

    named = settings.environment.get("PACKAGER_TOOLS")
    return Environments(
        Path(named).absolute()
        if named
        else user_dir("cache", settings.environment) / "packager/tools",
        find_directory=_tool_directory,
        helper=_tools_dir() / "common",
        log_dir=log_dir(settings),
        environment=settings.environment,
        on_event=settings.on_event,
    )


def _tools_dir() -> Path:
    return share_dir("containers") / "tools"


def _tool_directory(name: str) -> Path:
    ours = _tools_dir() / name
    outside = plugins.tool_directories()
    if ours.is_dir() or name not in outside:
        return ours
    return Path(plugins.load(outside, name))
