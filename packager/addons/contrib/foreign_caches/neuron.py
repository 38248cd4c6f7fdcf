"""The compiler's own cache of Neuron graphs, which optimum-neuron and Neo both keep.

    neuronxcc-<version>+<git hash>/
        MODULE_<hash of the graph>+<hash of the flags>/
            model.neff  model.done      a compiled graph
            compile_flags.json          what the compiler was told
            model.hlo_module.pb  …      the graph
            model.log                   a failure, instead of model.neff
            *.lock                      somebody compiles, or was killed

Nothing in it is executed or unpickled, no link is followed, and a graph of
which anything does not fit is left out with the reason.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packager.addons.contrib.foreign_caches.neff import BadNeff, read_neff_header
from packager.core.documents import NotStrict, parse_json
from packager.core.errors import NotFound

MAX_SMALL_BYTES = 1024 * 1024
MAX_MODULES = 100_000

COMPILER = re.compile(r"neuronxcc-(?P<version>[0-9][0-9A-Za-z.]{0,60}\+[0-9a-f]{7,40})")
MODULE = re.compile(r"MODULE_[0-9A-Za-z]{8,64}\+(?P<flags>[0-9a-f]{8})")
_KEPT = frozenset(
    {
        "model.neff",
        "model.done",
        "model.hlo_module.pb",
        "model.hlo.pb",
        "wrapped_neff.hlo",
        "compile_flags.json",
        "compile_flags.txt",
    }
)
_PASSED_OVER = ("model.log",)  # beside a sound graph: of no use, and it may hold paths
_TARGET = re.compile(r"--target[ =](?P<value>[a-z0-9]{2,10})")
_CORES = re.compile(r"--lnc[ =](?P<value>[1-8])")
_AUTO_CAST = re.compile(r"--auto-cast[ =](?P<value>[a-z]{2,12})")
_AUTO_CAST_TYPE = re.compile(r"--auto-cast-type[ =](?P<value>[a-z0-9]{2,12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One compiled graph."""

    name: str
    files: tuple[tuple[str, Path], ...]  # path below the cache's root, and where it is
    flags: tuple[str, ...] | None  # None: not written down
    logical_core_size: int | None  # as the NEFF or the flags say

    def said(self, pattern: re.Pattern[str]) -> str | None:
        """Return the value that the compiler flags state last; None where they do not."""
        found = list(pattern.finditer(" ".join(self.flags or ())))
        return found[-1]["value"] if found else None

    @property
    def target(self) -> str | None:
        return self.said(_TARGET)

    @property
    def auto_cast(self) -> str | None:
        return self.said(_AUTO_CAST)

    @property
    def auto_cast_dtype(self) -> str | None:
        return self.said(_AUTO_CAST_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerCache:
    """The graphs of one compiler version."""

    version: str
    directory: Path
    modules: tuple[Module, ...]
    left_out: tuple[tuple[str, str], ...]  # name and reason


def find_compiler_caches(root: Path) -> tuple[CompilerCache, ...]:
    """Read every compiler version's graphs directly below `root`."""
    if not root.is_dir() or root.is_symlink():
        raise NotFound(f"{str(root)!r} is not a directory", hint="name a directory, not a link")
    found = []
    for place in _entries(root):
        matched = COMPILER.fullmatch(place.name)
        if matched and place.is_dir(follow_symlinks=False):
            found.append(_read_cache(matched["version"], Path(place.path)))
    return tuple(found)


def modules_named(texts: Iterable[str]) -> frozenset[str]:
    """Find the names of graphs in texts, such as the log of a compilation."""
    return frozenset(found[0] for text in texts for found in MODULE.finditer(text))


def _read_cache(version: str, directory: Path) -> CompilerCache:
    modules: list[Module] = []
    left_out: list[tuple[str, str]] = []
    for place in _entries(directory):
        if not place.name.startswith("MODULE_"):
            continue
        try:
            modules.append(_read_module(directory, place))
        except (_Unfit, BadNeff) as error:
            left_out.append((place.name[:100], str(error)))
        except OSError as error:
            left_out.append((place.name[:100], (error.strerror or str(error)).lower()))
        if len(modules) + len(left_out) > MAX_MODULES:
            left_out.append(("the rest", f"more than {MAX_MODULES} graphs"))
            break
    return CompilerCache(
        version=version, directory=directory, modules=tuple(modules), left_out=tuple(left_out)
    )


class _Unfit(Exception):
    """A graph that cannot be used, with the reason."""


def _read_module(directory: Path, place: os.DirEntry[str]) -> Module:
    matched = MODULE.fullmatch(place.name)
    if place.is_symlink():
        raise _Unfit("is a link; copy the tree with what its links lead to")
    if matched is None or not place.is_dir():
        raise _Unfit("is not a compiled graph by its name")
    files: dict[str, Path] = {}
    for one in _entries(Path(place.path)):
        if one.name.endswith(".lock"):
            continue
        if not stat.S_ISREG(one.stat(follow_symlinks=False).st_mode):
            raise _Unfit(f"{one.name[:100]!r} in it is a link or no file")
        if one.name in _KEPT:
            files[one.name] = Path(one.path)
        elif one.name not in _PASSED_OVER:
            raise _Unfit(f"{one.name[:100]!r} in it is not a file of the compiler's")
    if "model.neff" not in files or "model.done" not in files:
        has_log = Path(place.path, "model.log").is_file()
        raise _Unfit("failed to compile" if has_log else "was not compiled to its end")
    flags = _read_flags(files, matched["flags"])
    header = read_neff_header(files["model.neff"])
    module = Module(
        name=place.name,
        files=tuple(
            (f"{directory.name}/{place.name}/{name}", path) for name, path in sorted(files.items())
        ),
        flags=flags,
        logical_core_size=header.logical_core_size,
    )
    cores = module.said(_CORES)
    if cores and header.logical_core_size not in (None, int(cores)):
        raise _Unfit(f"its flags say --lnc={cores}, its NEFF {header.logical_core_size}")
    if cores:
        module = Module(
            name=module.name, files=module.files, flags=flags, logical_core_size=int(cores)
        )
    return module


def _read_flags(files: dict[str, Path], digest: str) -> tuple[str, ...] | None:
    """Read what the compiler was told, and hold it to the hash in the graph's name."""
    if "compile_flags.json" in files:
        try:
            flags = parse_json(_small(files["compile_flags.json"]))
        except NotStrict as error:
            raise _Unfit(f"its compile_flags.json cannot be read: {error}") from None
        if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
            raise _Unfit("its compile_flags.json is not a list of flags")
    elif "compile_flags.txt" in files:
        flags = _small(files["compile_flags.txt"]).decode("utf-8", "replace").split()
    else:
        return None
    written = hashlib.md5(" ".join(flags).encode(), usedforsecurity=False).hexdigest()[:8]
    if written != digest:
        raise _Unfit(f"its flags are not those of its name: {written}, not {digest}")
    return tuple(flags)


def _small(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_SMALL_BYTES + 1)
    if len(data) > MAX_SMALL_BYTES:
        raise _Unfit(f"{path.name} is too large")
    return data


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as found:
        yield from sorted(found, key=lambda entry: entry.name)
