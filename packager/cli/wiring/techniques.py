"""Choice of quantizers and compilers, and of their tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from packager.cli.plugins.rows import BrokenPlugin, Row, Table
from packager.cli.plugins.tables import COMPILERS, QUANTIZERS, outside_tool_directory, outside_tools
from packager.cli.wiring.settings import Settings, log_dir
from packager.core.events import ignore
from packager.core.files.atomic import user_dir
from packager.core.plan import SHARDED_STATE
from packager.core.ports import Compiler, Quantizer
from packager.core.share import share_dir
from packager.estimate.sizing.schemes import NONE, parse_quantize

if TYPE_CHECKING:
    from packager.optimize.steps.tools.environments import Environments

T = TypeVar("T")


def find_quantizer(
    asked: str | None, on_warning: Callable[[str], None] = ignore
) -> Quantizer | None:
    """Find the quantizer of `METHOD` or `QUANTIZER:METHOD`; None where none is needed.

    Without a quantizer's name the stream does what it can, and llm-compressor the rest.  A wrong
    name selects the first quantizer, whose check refuses it and lists the methods.
    """
    if asked is None or asked == NONE:
        return None
    wanted = parse_quantize(asked)
    if wanted.quantizer:
        return QUANTIZERS.find(wanted.quantizer).make()
    from packager.optimize.quantize.default import DefaultQuantizer

    usable = _usable(QUANTIZERS, on_warning)
    next(usable)  # the tool: the default has its methods
    first = DefaultQuantizer()
    if wanted.method in first.methods:
        return first
    return next((found for _, found in usable if wanted.method in found.methods), first)


def find_compilers(
    asked: str | None, on_warning: Callable[[str], None] = ignore
) -> Mapping[str, Compiler]:
    """Return the compilers for a value of `--compile`: all for `auto` or an unknown name."""
    if asked in (None, "off"):
        return {}
    if asked in COMPILERS:
        return {asked: COMPILERS.find(asked).make()}
    return dict(_usable(COMPILERS, on_warning))


def find_sharder(load_format: str) -> Compiler | None:
    """Return the tool that splits weights for a load format; None for formats that need none.

    Only one engine has such a format, so there is no table of them.
    """
    if load_format != SHARDED_STATE:
        return None
    from packager.optimize.compile.sharded_state import StateSharder

    return StateSharder()


def _usable(table: Table[Row[[], T]], on_warning: Callable[[str], None]) -> Iterator[tuple[str, T]]:
    """Yield all implementations of a table; warn of those of other packages that are broken."""
    for name in table:
        try:
            yield name, table.find(name).make()
        except BrokenPlugin as error:
            on_warning(f"{error.message}; it is left out")


def tool_names(on_warning: Callable[[str], None] = ignore) -> tuple[str, ...]:
    """Return the names of all tools: packager's own, and those of other packages."""
    names = {place.parent.name for place in _tools_dir().glob("*/tool.toml")}
    for name in outside_tools():
        try:
            outside_tool_directory(name)
        except BrokenPlugin as error:
            on_warning(f"{error.message}; it is left out")
        else:
            names.add(name)
    return tuple(sorted(names))


def environments_for(settings: Settings) -> Environments:
    """Choose where tools are installed: for all builds of a user, whatever cache they use."""
    from packager.optimize.steps.tools.environments import Environments

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
    return ours if ours.is_dir() else outside_tool_directory(name) or ours
