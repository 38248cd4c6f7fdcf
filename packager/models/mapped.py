"""Ids of models that stand for places of one's own, such as those of JumpStart.

They come from the command line, `ID=PLACE` or a file, and from the user's standing file:

    meta-textgeneration-llama-3-8b = "s3://models/llama-3-8b/"

    [meta-textgeneration-llama-3-70b]
    place = "s3://models/llama-3-70b/"
    draft = "s3://models/llama-3-1b/"     # the draft model that AWS's configuration would bring

A place is `s3://BUCKET/PREFIX` or a directory of this machine, which is below the file's own
where it is relative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.documents import shorten
from packager.core.errors import NotFound, UsageError
from packager.core.files.atomic import user_dir
from packager.core.files.user_files import expand_home, read_table
from packager.core.references import parse_bucket_place

OPTION = "--jumpstart"
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")
_HINT = "such as meta-textgeneration-llama-3-8b=s3://models/llama-3-8b/, or a file of such lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedModel:
    """Where a model is, and its draft model; "" where there is none."""

    place: str
    draft: str = ""


def parse_mapped(texts: Iterable[str], standing: Path | None = None) -> dict[str, MappedModel]:
    """Read `ID=PLACE` and names of files; what is in `standing` counts where they do not say it.

    Raises `UsageError`, and `NotFound` for a directory that is not there.
    """
    found: dict[str, MappedModel] = {}
    for text in texts:
        for name, model in _read(text):
            if name in found:
                raise UsageError(f"{OPTION} maps {name!r} twice", hint="give each id one place")
            found[name] = model
    if standing is not None and standing.is_file():
        found = {**dict(_of_file(standing)), **found}
    return found


def standing_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's own file, which need not be there."""
    return user_dir("config", environment) / "packager" / "jumpstart.toml"


def _read(text: str) -> Iterable[tuple[str, MappedModel]]:
    name, equals, place = text.partition("=")
    if not equals:
        path = expand_home(text)
        if not path.is_file():
            raise UsageError(
                f"{OPTION} {shorten(text, 200)} is neither ID=PLACE nor a file", hint=_HINT
            )
        return _of_file(path)
    return [(_checked_id(name, text), MappedModel(place=_checked(place, name, Path())))]


def _of_file(path: Path) -> Iterable[tuple[str, MappedModel]]:
    what = f"file of {OPTION}"
    table = read_table(path, what=what, hint=_HINT)
    for name, value in table.items():
        _checked_id(name, name)
        fields: dict[str, Any] = value if isinstance(value, dict) else {"place": value}
        unknown = fields.keys() - {"place", "draft"}
        texts = [fields.get(key, "") for key in ("place", "draft")]
        if unknown or not texts[0] or not all(isinstance(one, str) for one in texts):
            raise UsageError(
                f"{shorten(str(path), 200)}: {name!r} is neither a place nor a table of place and "
                "draft",
                hint=_HINT,
            )
        place, draft = (_checked(one, name, path.parent) if one else "" for one in texts)
        yield name, MappedModel(place=place, draft=draft)


def _checked_id(name: str, text: str) -> str:
    if not _ID.fullmatch(name):
        raise UsageError(f"{OPTION} {shorten(text, 200)} is not ID=PLACE", hint=_HINT)
    return name


def _checked(place: str, name: str, below: Path) -> str:
    """Return a place that means the same everywhere on this machine."""
    if parse_bucket_place(place) is not None:
        return place
    directory = (below / expand_home(place)).absolute()
    if not directory.is_dir():
        raise NotFound(
            f"{OPTION} {name!r} is at {shorten(place, 200)}, which is no directory",
            hint="name a directory of this machine, or s3://BUCKET/PREFIX",
        )
    return str(directory)
