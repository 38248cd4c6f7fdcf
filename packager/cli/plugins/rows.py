"""Rows and tables of plug-ins: a name, a summary, and a typed factory.

packager's own rows are checked by mypy: a factory states the port that it returns.
Rows of installed packages come through entry points, in an entry-point group of the table.
They are loaded when their name is used, and compared with the port then; a package whose
plug-in cannot be loaded breaks no command that does not name it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from artifact_cache.distribution import DISTRIBUTION
from packager.core.errors import PackagerError, UsageError
from packager.core.suggestions import guessed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from packager.cli.plugins.contexts import ExecutorContext, SinkContext
    from packager.core.ports import Executor, ImageSink
    from packager.core.references import ImageTarget


P = ParamSpec("P")
T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Row(Generic[P, T]):
    """One implementation: its summary, and how to make it."""

    summary: str
    make: Callable[P, T]  # imports the implementation when it is called


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    """Properties of a kind of output, known before one is made."""

    order: int = 1  # lower numbers are written first; later sinks may read their copies
    is_remote: bool = False  # its images are not on this machine
    takes_artifacts: bool = True  # False: only images that can run
    takes_compressed: bool = True  # False: layers must not be compressed
    keeps_index: bool = True  # False: of an image of two forms it takes the plain one
    takes_sparse_base: bool = False  # can leave out the base's layers
    holds_tree: bool = False  # files instead of an image


if TYPE_CHECKING:
    _MakesSink = Row[[ImageTarget, SinkContext], ImageSink]
    _MakesExecutor = Row[[ExecutorContext], Executor]
else:  # their modules take long to import
    _MakesSink = _MakesExecutor = Row


@dataclass(frozen=True, slots=True)
class SinkRow(_MakesSink):
    """A kind of output; `make` is called with the target and a `SinkContext`."""

    traits: SinkTraits = SinkTraits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorTraits:
    """Traits of an executor, known before it is made."""

    is_cluster: bool = False  # has an address; a dry run gets tools and capacity from it
    has_own_tools: bool = False  # a dry run gets tools from it, where it can be reached


@dataclass(frozen=True, slots=True)
class ExecutorRow(_MakesExecutor):
    """Where steps run."""

    traits: ExecutorTraits = ExecutorTraits()


R = TypeVar("R", bound=Row[..., Any])


class BrokenPlugin(UsageError):
    """A plug-in of an installed package cannot be loaded, or does not implement its port."""

    def __init__(self, kind: str, name: str, origin: str, reason: str) -> None:
        super().__init__(
            f"{kind} {name!r} {origin} cannot be used: {reason}",
            hint="update or uninstall that package",
        )


class Table(Collection[str], Generic[R]):
    """The implementations of one port, by name, in the order in which they are preferred.

    `group` is the group of entry points in which add-ons of packager name their rows, and other
    packages a row or what makes the implementation, called as `Row.make` is.  Those of others
    come last, by name, and cannot replace packager's own; what they make is compared with the
    protocol `port` of `ports.py`.
    """

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, R],
        *,
        port: str = "",
        group: str = "",
        row_type: type[Any] = Row,
    ) -> None:
        self.kind = kind
        self._rows = rows
        self._port = port
        self.group = group
        self._row_type = row_type

    def __iter__(self) -> Iterator[str]:
        yield from self._rows
        yield from self._of_addons()
        yield from self._outside()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if name in self._rows:
            return True
        # An address, such as HOST/REPOSITORY, is not a plug-in's name: skip installed packages.
        return isinstance(name, str) and "/" not in name and name in self._points()

    def is_outside(self, name: str) -> bool:
        """Return whether the name is an installed package's."""
        return name not in self._rows and name in self._outside()

    def summaries(self) -> dict[str, str]:
        """Return the summary of each implementation, without loading any."""
        ours = {name: row.summary for name, row in self._rows.items()}
        ours |= {name: self.find(name).summary for name in self._of_addons()}
        return ours | {name: origin_of(point) for name, point in self._outside().items()}

    def find(self, name: str) -> R:
        """Return the row called `name`.

        Raises `UsageError` for an unknown name, `BrokenPlugin` for one of an installed package
        that cannot be loaded.
        """
        if name in self._rows:
            return self._rows[name]
        points = self._points()
        if name not in points:
            raise UsageError(
                f"there is no {self.kind} {name!r}",
                hint=guessed(name, self, f"choose from {', '.join(self)}"),
            )
        if is_own(points[name]):
            return cast(R, load_entry_point(self.kind, points[name]))
        return self._load(name, points[name])

    def of_target(self, target: ImageTarget) -> R:
        """Return the row of a target's scheme; raise as `find` does."""
        return self.find(target.scheme)

    def _of_addons(self) -> Mapping[str, EntryPoint]:
        return {name: point for name, point in self._points().items() if is_own(point)}

    def _outside(self) -> Mapping[str, EntryPoint]:
        return {name: point for name, point in self._points().items() if not is_own(point)}

    def _points(self) -> Mapping[str, EntryPoint]:
        found = entry_points_of(self.group, tuple(sys.path)) if self.group else {}
        return {name: point for name, point in found.items() if name not in self._rows}

    def _load(self, name: str, point: EntryPoint) -> R:
        loaded, origin = load_entry_point(self.kind, point), origin_of(point)
        row = loaded if isinstance(loaded, self._row_type) else self._row_type(origin, loaded)
        make = row.make
        if not callable(make):
            reason = f"{point.value} is {type(make).__name__}, not something that makes a plug-in"
            raise BrokenPlugin(self.kind, name, origin, reason)

        def make_checked(*args: Any, **kwargs: Any) -> object:
            try:
                made = make(*args, **kwargs)
            except PackagerError:
                raise
            except Exception as error:
                raise BrokenPlugin(self.kind, name, origin, repr(error)) from error
            from packager.core import ports

            wrong = departures(made, getattr(ports, self._port))
            if wrong:
                raise BrokenPlugin(self.kind, name, origin, "; ".join(wrong))
            return made

        return cast(R, replace(row, make=make_checked))


@cache
def entry_points_of(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:  # noqa: ARG001
    """Return the entry points of packages on `path`, which is `sys.path`, by name."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    by_name = sorted(entry_points(group=group), key=lambda one: (one.name, origin_of(one)))
    for point in sorted(by_name, key=is_own, reverse=True):  # nothing takes an add-on's place
        found.setdefault(point.name, point)
    return found


def is_own(point: EntryPoint) -> bool:
    """Return whether the entry point belongs to packager's own distribution, as add-ons do."""
    return point.dist is not None and point.dist.name == DISTRIBUTION


def load_entry_point(kind: str, point: EntryPoint) -> object:
    """Load an entry point. Raises `BrokenPlugin` for any failure in it."""
    try:
        return point.load()
    except Exception as error:
        reason = f"{point.value}: {error}"
        raise BrokenPlugin(kind, point.name, origin_of(point), reason) from error


def origin_of(point: EntryPoint) -> str:
    """Return the package that registers the entry point: `from PACKAGE`."""
    return f"from {point.dist.name if point.dist else 'outside'}"


def departures(made: object, port: type) -> tuple[str, ...]:
    """Return how an object departs from a protocol: members that it lacks, other arguments."""
    found = []
    for name, member in _members(port).items():
        if not hasattr(made, name):
            found.append(f"it has no {name!r}, which {port.__name__} asks for")
        elif inspect.isfunction(member) and not _takes(getattr(made, name), member):
            asked = ", ".join(list(inspect.signature(member).parameters)[1:])
            found.append(f"{name!r} cannot be called with ({asked}), as {port.__name__} asks for")
    return tuple(found)


def _members(port: type) -> dict[str, object]:
    found: dict[str, object] = {}
    for base in reversed(port.__mro__):
        if base.__module__ not in ("typing", "builtins"):
            found.update(dict.fromkeys(inspect.get_annotations(base)))
            found.update(
                (name, member) for name, member in vars(base).items() if not name.startswith("_")
            )
    return found


def _takes(method: object, asked: Callable[..., object]) -> bool:
    """Return whether a bound method can be called as a function of a protocol is."""
    parameters = list(inspect.signature(asked).parameters.values())[1:]
    names = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    positions = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]
    if not callable(method):
        return False
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C
        return True
    needed = [one for one in positions if one.default is one.empty]
    for given in (needed, positions):
        try:
            signature.bind(*given, **{one.name: None for one in names})
        except TypeError:
            return False
    return True
