"""Versions, extras and the digest of the shipped data, as installed.

A report of a bug begins with it.  The digest of the data is the same in a checkout and in the
wheel made from it, so two machines with one digest plan with the same tables.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from artifact_cache.distribution import DISTRIBUTION, extra_requirements
from packager.catalog.containers import containers
from packager.catalog.instances import instances
from packager.catalog.prices import prices
from packager.catalog.served_architectures import read_on
from packager.core.engine_rows import engine_rows
from packager.core.platforms import architecture_of
from packager.core.reports.report import Lines, Pair, Pairs, Report, one_section
from packager.core.share import PACKAGE, share_dir
from packager.core.version import __version__
from packager.core.versions import LOWEST, version_key
from packager.engines.schema import ENGINES

_FOR_DEVELOPERS = frozenset({"test", "lint", "docs"})
_SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedTable:
    """A shipped table: how many rows, and the newest date that a row states."""

    rows: int
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """An optional extra and the packages that it requires; None: not installed."""

    name: str
    packages: Mapping[str, str | None]

    @property
    def is_installed(self) -> bool:
        return None not in self.packages.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One installation of packager on one Python."""

    version: str
    place: str  # directory of the package
    python: str
    implementation: str
    executable: str
    system: str  # as Docker spells platforms, such as linux/amd64
    libc: str
    data_digest: str  # SHA-256 of all shipped data, templates and sources of containers
    tables: Mapping[str, ShippedTable]
    engines: Mapping[str, tuple[str, ...]]  # versions whose options are known, oldest first
    extras: tuple[Extra, ...]


def describe_installation() -> Installation:
    """Describe the installation."""
    return Installation(
        version=__version__,
        place=str(PACKAGE),
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        executable=sys.executable,
        system=f"{sys.platform}/{_architecture()}",
        libc=" ".join(filter(None, platform.libc_ver())),
        data_digest=data_digest(),
        tables={
            "instances": _table(found.date for found in instances()),
            "containers": _table(found.date for found in containers()),
            "prices": _table(found.date for found in prices()),
            "engines": ShippedTable(rows=len(_option_tables()), date=read_on()),
        },
        engines={name: found for name in engine_rows() if (found := _versions(name))},
        extras=tuple(_extras()),
    )


def data_digest() -> str:
    """Return the SHA-256 of all shipped files other than packager's own code."""
    total = hashlib.sha256()
    for name, path in sorted(_shipped()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{name}\0{content}\n".encode())
    return total.hexdigest()


def installation_document(found: Installation) -> dict[str, Any]:
    """Return it for `--format json`."""
    return {
        "packager": found.version,
        "place": found.place,
        "python": {
            "version": found.python,
            "implementation": found.implementation,
            "executable": found.executable,
        },
        "platform": {"system": found.system, "libc": found.libc},
        "data": {
            "sha256": found.data_digest,
            "tables": {name: asdict(table) for name, table in found.tables.items()},
            "engines": {name: list(versions) for name, versions in found.engines.items()},
        },
        "extras": {extra.name: dict(extra.packages) for extra in found.extras},
    }


def installation_report(found: Installation) -> Report:
    """Return it as a report."""
    tables = (f"{name} {table.date} ({table.rows})" for name, table in found.tables.items())
    engines = (
        f"{name} {versions[0]} to {versions[-1]}" for name, versions in found.engines.items()
    )
    have = [_shown(extra) for extra in found.extras if extra.is_installed]
    lack = [extra.name for extra in found.extras if not extra.is_installed]
    title = f"packager {found.version}"
    facts = (
        Pair("in", found.place),
        Pair("python", f"{found.python} {found.implementation}, {found.executable}"),
        Pair("platform", f"{found.system}, {found.libc}" if found.libc else found.system),
        Pair("data", f"{found.data_digest[:_SHOWN_DIGITS]}: {', '.join(tables)}"),
        Pair("options", ", ".join(engines)),
        Pair("extras", ", ".join(have) or "none"),
        Pair("absent", ", ".join(lack) or "none"),
    )
    return one_section(title, Lines((title,)), Pairs(facts))


def _shown(extra: Extra) -> str:
    return f"{extra.name} ({', '.join(f'{name} {at}' for name, at in extra.packages.items())})"


def _architecture() -> str:
    machine = platform.machine().lower()
    return architecture_of(machine) or machine


def _table(dates: Iterable[str]) -> ShippedTable:
    known = list(dates)
    return ShippedTable(rows=len(known), date=max(known, default=""))


def _option_tables() -> list[Path]:
    return [*ENGINES.glob("*-*.json"), *ENGINES.glob("*/*.json")]


def _versions(engine: str) -> tuple[str, ...]:
    found = [
        path.stem.removeprefix(f"{engine}-")
        for path in _option_tables()
        if path.stem.startswith(f"{engine}-") or path.parent.name == engine
    ]
    return tuple(sorted(found, key=lambda one: version_key(one) or LOWEST))


def _shipped() -> Iterator[tuple[str, Path]]:
    """Yield shipped files with the names that they have in a checkout."""
    for data in PACKAGE.rglob("data"):
        yield from _files(data, f"packager/{data.relative_to(PACKAGE).as_posix()}")
    for name in ("templates", "containers"):
        yield from _files(share_dir(name), name)


def _files(directory: Path, name: str) -> Iterator[tuple[str, Path]]:
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield f"{name}/{path.relative_to(directory).as_posix()}", path


def _extras() -> Iterator[Extra]:
    """Yield the extras that users may want, as the installed metadata lists them."""
    try:
        names = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:  # run from a checkout without an installation by pip
        return
    for name in names:
        if name not in _FOR_DEVELOPERS:
            yield Extra(name=name, packages=dict(packages_of_extra(DISTRIBUTION, name)))


def packages_of_extra(distribution: str, extra: str) -> Iterator[tuple[str, str | None]]:
    """Yield the requirements of an extra, each with its installed version.

    An extra of another package, such as docker's `ssh`, is looked up in that package.
    """
    for asked in extra_requirements(distribution, extra):
        try:
            yield asked.name, metadata.version(asked.name)
        except metadata.PackageNotFoundError:
            yield asked.name, None
        else:
            for further in sorted(asked.extras):
                yield from packages_of_extra(asked.name, further)
