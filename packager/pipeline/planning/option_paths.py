"""Paths in engine options, compared with what the image will hold.

An engine opens a path minutes after the start of its container: one that no layer holds ends the
server then.  The rule goes by values, whatever the option is called and however it nests them
(text, lists, `name=path`, JSON).  Where paths need not exist yet, the option's own name says so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from packager.core.documents import parse_json
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import COMPILED_DIR, MODEL_DIR
from packager.core.suggestions import nearest
from packager.engines.shared import draft_dir, model_dir

FILE_NOT_PACKAGED = "file-not-packaged"
PATH = "path"  # in the data of a finding
OURS = posixpath.dirname(MODEL_DIR)
_PATH = re.compile(r"(?:file://)?(/[^\s{}<>'\"]+)")
# Words in names of options that name an output path, or no path at all.
_WRITTEN = {"allowed", "cache", "dir", "download", "dump", "export", "offload", "root", "save"}
_WRITTEN |= {"socket", "storage", "trace", "uds"}
_MADE_AT_START = ("/dev", "/proc", "/sys", "/tmp")


def check_option_paths(facts: Facts, plan: Plan) -> Iterator[Finding]:
    """Refuse paths below packager's directory that the image lacks; warn of those elsewhere."""
    held = _held(facts, plan)
    for name, value in plan.engine_options:
        for path in sorted(set(paths_in(value))):
            if path in held or (plan.compiler and _is_below(path, COMPILED_DIR)):
                continue
            if _is_below(path, OURS):
                close = nearest(path, sorted(held))
                hint = f"did you mean {close!r}?" if close else f"the image holds {model_dir(plan)}"
                message = f"engine option {name!r} names {path!r}, which no layer of the image has"
                yield Finding("error", FILE_NOT_PACKAGED, message, hint)
            elif not (_names_no_file(name) or any(_is_below(path, one) for one in _MADE_AT_START)):
                message = f"engine option {name!r} names {path!r}, which the build does not add"
                hint = "the base image must have it, or a mount of the container"
                yield Finding("warning", FILE_NOT_PACKAGED, message, hint, {PATH: path})


def paths_in(value: str) -> Iterator[str]:
    """Yield the absolute paths that an option's value is or holds, without `.` and `..`."""
    for text in _texts(value):
        found = _PATH.fullmatch(text)
        if found:
            yield posixpath.normpath(found[1])


def _texts(value: str) -> Iterator[str]:
    """Yield the parts of a value: of JSON its texts, else what separators part."""
    if value[:1] in "{[":
        try:
            yield from _leaves(parse_json(value.encode()))
        except ValueError:  # also a template instead of a path
            return
    elif not any(char in value for char in "{}<>"):
        yield from re.split(r"[\s,=]+", value)


def _leaves(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, list | dict):
        for one in found.values() if isinstance(found, dict) else found:
            yield from _leaves(one)


def _held(facts: Facts, plan: Plan) -> frozenset[str]:
    """Return the files that layers or mounts provide, and their parent directories."""
    adapters = plan.adapters.adapters if plan.adapters else ()
    held = {model_dir(plan), *(one.directory for one in adapters)}
    for files, place in ((facts.model, model_dir(plan)), (facts.draft, draft_dir(plan))):
        for file in files.files if files is not None else ():
            path = f"{place}/{file.path}"
            while path not in held and path != "/":
                held.add(path)
                path = posixpath.dirname(path)
    return frozenset(held)


def _names_no_file(option: str) -> bool:
    return not _WRITTEN.isdisjoint(re.split(r"[^a-z]+", option.lower()))


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
