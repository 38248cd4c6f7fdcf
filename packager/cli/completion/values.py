"""Values that complete an argument: from the index, the disk and the user's own files.

No network, engine or code of a plug-in is used. A file that cannot be read yields no candidates: a
shell cannot show an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.cli.completion.candidates import CompletionCandidate, Node, Question

MOST_ENTRIES = 2000  # of a directory, or keys of a cache
KEY_DIGITS = 12

# Groups of entry points whose names are values, too.
GROUPS = {
    "family": "packager.families",
    "tool": "packager.tools",
    "compiler": "packager.compilers",
}
# Beginnings of addresses; what follows is a path for those of layouts.
OUTPUTS = {"oci:": "a directory, as an OCI layout", "docker:": "a Docker Engine"}
MODELS = {"hf://": "streamed from the hub", "s3://": "streamed from a bucket"}

_DEVICES = re.compile(r"(\d{1,2})x", re.ASCII)


class Values:
    """Completes values of all kinds; `environment` locates the user's files."""

    def __init__(self, index: Node, environment: Mapping[str, str]) -> None:
        self._values: Mapping[str, Mapping[str, Any]] = index["values"]
        self._environment = environment
        self._kinds: Mapping[str, Callable[[Question], Iterable[CompletionCandidate]]] = {
            "file": lambda asked: paths(asked.text),
            "directory": lambda asked: paths(asked.text, files=False),
            "data": lambda asked: [*self._listed("data"), *paths(asked.text)],
            "workload": lambda asked: [*self._listed("workload"), *paths(asked.text)],
            "model": self._models,
            "draft": self._drafts,
            "instance": self._instances,
            "container": self._containers,
            "output": lambda asked: _addresses(asked.text),
            "image": lambda asked: _addresses(asked.text),
            "base": lambda asked: [*self._listed("base"), *_addresses(asked.text)],
            "key": self._keys,
            "key-kind": self._key_kinds,
        }

    def __call__(self, asked: Question) -> Iterable[CompletionCandidate]:
        """Return the values that may be meant; others are filtered by their beginning."""
        known = self._kinds.get(asked.kind)
        if known is not None:
            return known(asked)
        return [*self._listed(asked.kind), *_installed(GROUPS.get(asked.kind, ""))]

    def _listed(self, kind: str) -> list[CompletionCandidate]:
        return [
            CompletionCandidate(name, told) for name, told in self._values.get(kind, {}).items()
        ]

    def _models(self, asked: Question) -> Iterator[CompletionCandidate]:
        yield from models(asked.text)
        for start, told in MODELS.items():
            yield CompletionCandidate(start, told, is_whole=False)
        if asked.text:  # hundreds: only where one was begun
            yield from self._listed("model")

    def _drafts(self, asked: Question) -> Iterator[CompletionCandidate]:
        kind, colon, place = asked.text.partition(":")
        if colon:
            for one in models(place):
                yield CompletionCandidate(f"{kind}:{one.text}", one.help, one.is_whole)
            return
        for one in self._listed("draft"):
            yield CompletionCandidate(one.text, one.help, is_whole=not one.text.endswith(":"))
        yield from models(asked.text)

    def _instances(self, asked: Question) -> Iterator[CompletionCandidate]:
        if devices := _DEVICES.match(asked.text):
            for device in self._values["device"]:
                yield CompletionCandidate(f"{devices[0]}{device}")
        if asked.command == "plan":
            yield CompletionCandidate("all", "rank them all")
        shipped = self._listed("instance")
        yield from shipped
        for row in self._own("instance"):
            yield CompletionCandidate(str(row.get("name", "")), "your own")
        if not any(one.text.startswith(asked.text) for one in shipped):
            for one in shipped:  # EC2's names are understood, too
                yield CompletionCandidate(one.text.removeprefix("ml."), one.help)

    def _containers(self, asked: Question) -> Iterator[CompletionCandidate]:
        wanted = asked.options.get("--family")
        for family, versions in self._values["container"].items():
            if wanted in (None, family):
                yield from (CompletionCandidate(version, family) for version in versions)
        for row in self._own("container"):
            if wanted in (None, row.get("family")):
                yield CompletionCandidate(
                    str(row.get("version", "")), f"{row.get('family')}, your own"
                )

    def _keys(self, asked: Question) -> Iterator[CompletionCandidate]:
        entries = self._cache(asked) / "ac"
        left = MOST_ENTRIES
        for kind in _names(entries):
            for shard in _names(entries / kind):
                if not (asked.text[:2].startswith(shard) or shard.startswith(asked.text[:2])):
                    continue
                for name in _names(entries / kind / shard):
                    key = name.removesuffix(".json")
                    if left == 0:
                        return
                    left -= 1
                    yield CompletionCandidate(key[: max(KEY_DIGITS, len(asked.text))], kind)

    def _key_kinds(self, asked: Question) -> Iterable[CompletionCandidate]:
        return (CompletionCandidate(name) for name in _names(self._cache(asked) / "ac"))

    def _cache(self, asked: Question) -> Path:
        """Return the directory of the artifact cache, by the same rules as the commands'."""
        named = asked.options.get("--cache-dir") or self._environment.get("PACKAGER_CACHE")
        if not named:
            named = self._toml("cache.toml").get("directory")
        if isinstance(named, str) and named:
            return Path(named).expanduser() / "artifacts"
        return self._user_dir("XDG_CACHE_HOME", ".cache") / "packager" / "artifacts"

    def _own(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Yield rows of the user's own catalog."""
        rows = self._toml("catalog.toml").get(table)
        if isinstance(rows, list):
            yield from (row for row in rows if isinstance(row, dict))

    def _toml(self, name: str) -> Mapping[str, Any]:
        import tomllib  # 2 ms that most questions do not need

        place = self._user_dir("XDG_CONFIG_HOME", ".config") / "packager" / name
        with suppress(OSError, ValueError):
            return tomllib.loads(place.read_text(encoding="utf-8"))
        return {}

    def _user_dir(self, variable: str, below_home: str) -> Path:
        root = self._environment.get(variable) or ""
        return Path(root) if root.startswith("/") else Path.home() / below_home


def paths(text: str, *, files: bool = True) -> Iterator[CompletionCandidate]:
    """Yield files and directories whose names begin with the typed text."""
    for name, entry in _entries(text):
        if entry.is_dir():
            yield CompletionCandidate(f"{name}/", is_whole=False)
        elif files:
            yield CompletionCandidate(name)


def models(text: str) -> Iterator[CompletionCandidate]:
    """Yield directories; one with a `config.json` is a model and ends there."""
    for name, entry in _entries(text):
        if (entry / "config.json").is_file():
            yield CompletionCandidate(name, "model")
        elif entry.is_dir():
            yield CompletionCandidate(f"{name}/", is_whole=False)


def _entries(text: str) -> Iterator[tuple[str, Path]]:
    """Yield entries with the names they have on the command line, at most `MOST_ENTRIES`."""
    head, slash, begun = text.rpartition("/")
    with suppress(OSError, RuntimeError):  # RuntimeError: the user does not exist
        place = Path(head + slash).expanduser()
        begins = (name for name in _names(place) if name.startswith(begun))
        for name in itertools.islice(begins, MOST_ENTRIES):
            if begun.startswith(".") or not name.startswith("."):
                yield f"{head}{slash}{name}", place / name


def _addresses(text: str) -> Iterator[CompletionCandidate]:
    """Yield the beginnings of images' addresses, and directories behind `oci:`."""
    if text.startswith("oci:"):
        for one in paths(text.removeprefix("oci:"), files=False):
            yield CompletionCandidate(f"oci:{one.text}", one.help, one.is_whole)
        return
    for start, told in OUTPUTS.items():
        yield CompletionCandidate(start, told, is_whole=False)


def _installed(group: str) -> Iterator[CompletionCandidate]:
    """Yield names that installed packages register, without importing them."""
    if group:
        from importlib.metadata import entry_points

        for point in entry_points(group=group):
            yield CompletionCandidate(point.name, point.value)


def _names(place: Path) -> list[str]:
    with suppress(OSError):
        return sorted(entry.name for entry in place.iterdir())
    return []
