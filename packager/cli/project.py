"""Project file: the named targets of a repository, each with the fields of a request.

    [defaults]
    instance = "ml.g6.xlarge"

    [targets.small]
    model = "models/small"
    outputs = ["registry.example.com/small:latest"]

A file that lies in a directory is not a command of the user's: what decides whom packager trusts,
and where steps run, stays with the command line.  The file is looked for from the working directory
upwards, as far as the repository's root and never into the home directory or another owner's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.documents import shorten
from packager.core.errors import NotFound, UsageError
from packager.core.files.user_files import read_table
from packager.core.request import BuildRequest, refuse_unknown
from packager.core.suggestions import guessed

FILE_NAME = "packager.toml"
MARK = "@"  # before the name of a target on the command line
_TABLES = ("defaults", "targets")
NOT_HERE = ("trust_roots", "executor", "address", "allow_runtime_adapters")
_OUTPUTS = ("oci:", "dir:")
_MAY_BE_FILES = ("model", "base", "draft", "calibration", "evaluate", "workload", "adapters_dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project file that was read."""

    path: Path
    targets: Mapping[str, Mapping[str, Any]]  # name → fields of a request, defaults included

    def fields_of(self, name: str) -> dict[str, Any]:
        """Return a target's fields; raise `UsageError` for a name that is not in the file.

        Files and directories that the file names by relative paths are those beside it.
        """
        if name not in self.targets:
            listed = f"{self.path.name} has {', '.join(self.targets)}"
            raise UsageError(
                f"{self._label} has no target {shorten(name)}",
                hint=guessed(name, self.targets, listed),
            )
        fields = dict(self.targets[name])
        for key in _MAY_BE_FILES:
            if isinstance(text := fields.get(key), str):
                fields[key] = self._beside(text)
        if isinstance(adapters := fields.get("adapters"), dict):
            fields["adapters"] = {name: self._adapter(ref) for name, ref in adapters.items()}
        if isinstance(outputs := fields.get("outputs"), list):
            fields["outputs"] = tuple(map(self._output, outputs))
        return fields

    @property
    def _label(self) -> str:
        return f"project file {shorten(str(self.path), 200)}"

    def _beside(self, text: str) -> str:
        """Return a value with its path as seen from the working directory, if it is one."""
        kind, colon, rest = text.partition(":")
        for prefix, place in (("", text), (kind + colon, rest)):
            if place and not place.startswith(("/", "~")) and (self._root / place).exists():
                return prefix + os.path.relpath(self._root / place)
        return text

    def _adapter(self, reference: Any) -> Any:
        return self._beside(reference) if isinstance(reference, str) else reference

    def _output(self, text: Any) -> Any:
        prefix = next((one for one in _OUTPUTS if str(text).startswith(one)), "")
        place = str(text).removeprefix(prefix)
        if not prefix or place.startswith("/"):
            return text
        return prefix + os.path.normpath(self._root / place)

    @property
    def _root(self) -> Path:
        return self.path.parent


def find_project(start: Path, home: Path) -> Path:
    """Return the project file that counts in a directory; raise `NotFound` where there is none."""
    for directory in _directories(start, home):
        if (found := directory / FILE_NAME).is_file():
            return found
    raise NotFound(
        f"there is no {FILE_NAME} in {shorten(str(start), 200)}, nor above it in its repository",
        hint=f"write one with a table [targets.NAME], or name a model instead of {MARK}NAME",
    )


def _directories(start: Path, home: Path) -> Iterator[Path]:
    """Yield the directory and those above it, as far as the repository's root."""
    for directory in (start, *start.parents):
        if directory != start and (directory == home or directory.stat().st_uid != os.geteuid()):
            return
        yield directory
        if (directory / ".git").exists():
            return


def read_project(path: Path) -> Project:
    """Read a project file; raise `UsageError` for what no target may have."""
    label = f"project file {shorten(str(path), 200)}"
    if path.stat().st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{label} belongs to another user", hint="take it over: `chown`")
    document = read_table(path, what="project file", hint="write tables [targets.NAME] in TOML")
    if unknown := [name for name in document if name not in _TABLES]:
        raise UsageError(
            f"{label} has an unknown table {shorten(unknown[0])}",
            hint="its tables are [defaults] and [targets.NAME]",
        )
    defaults, targets = (document.get(name, {}) for name in _TABLES)
    if not isinstance(defaults, dict) or not isinstance(targets, dict) or not targets:
        raise UsageError(f"{label} has no targets", hint="write a table [targets.NAME]")
    for name, fields in {"defaults": defaults, **targets}.items():
        where = f"[{name}] of {label}" if fields is defaults else f"target {name} of {label}"
        if not isinstance(fields, dict):
            raise UsageError(f"{where} is not a table", hint="write [targets.NAME]")
        if refused := [key for key in NOT_HERE if key in fields]:
            raise UsageError(
                f"{where} has {refused[0]}, which only the command line may say",
                hint="what packager trusts, servers allow, and where steps run is not for a file",
            )
        refuse_unknown(fields, where)
    return Project(
        path=path, targets={name: {**defaults, **fields} for name, fields in targets.items()}
    )


def project_schema() -> dict[str, Any]:
    """Return the JSON schema of a project file, for editors."""
    request = request_schema()
    fields = {
        "type": "object",
        "properties": {k: v for k, v in request["properties"].items() if k not in NOT_HERE},
        "additionalProperties": False,
    }
    return {
        "$schema": request["$schema"],
        "title": "Project file of packager",
        "type": "object",
        "properties": {
            "defaults": fields,
            "targets": {"type": "object", "minProperties": 1, "additionalProperties": fields},
        },
        "required": ["targets"],
        "additionalProperties": False,
        "$defs": request.get("$defs", {}),
    }


def request_schema() -> dict[str, Any]:
    """Return the JSON schema of a request file, for editors."""
    schema = BuildRequest.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Request file of packager",
        "additionalProperties": False,
        "required": [],
    }
