"""Files that users name on the command line: read up to a limit, parsed strictly.

Any content gives a document or a refusal that names the file: an untrusted file never causes a
traceback, or takes more memory than its size explains.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from packager.core.documents import MAX_TOML_BYTES, NotStrict, parse_object, parse_toml, shorten
from packager.core.errors import NotFound, UsageError, is_system_limit
from packager.core.files.pipes import open_waiting

STDIN = "-"
MAX_JSON_BYTES = 4 * 1024 * 1024


def expand_home(name: str) -> Path:
    """Return a path with the `~` of its beginning replaced; raise `UsageError` for nobody's."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"no home directory found for {shorten(name, 60)}", hint="write the path out"
        ) from error


def read_user_file(path: Path, *, what: str, hint: str, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Read a file of at most `max_bytes`; raise `NotFound`, or `UsageError` for a longer one."""
    try:
        with open_waiting(path) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        if is_system_limit(error):
            raise
        reason = (error.strerror or str(error)).lower()
        raise NotFound(
            f"cannot read {what} {shorten(str(path), 200)}: {reason}", hint=hint
        ) from error
    except ValueError as error:  # a null character
        raise UsageError(f"{shorten(str(path), 200)} is not a path", hint=hint) from error
    if len(data) > max_bytes:
        raise UsageError(
            f"{what} {shorten(str(path), 200)} is larger than {max_bytes} bytes", hint=hint
        )
    return data


def read_file_or_stdin(name: str, *, what: str, hint: str, max_bytes: int) -> bytes:
    """Read a file, or stdin for `-`, of at most `max_bytes`; raises as `read_user_file`."""
    if name != STDIN:
        return read_user_file(Path(name), what=what, hint=hint, max_bytes=max_bytes)
    data = sys.stdin.buffer.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise UsageError(f"{what} on stdin is larger than {max_bytes} bytes", hint=hint)
    return data


def read_table(path: Path, *, what: str, hint: str) -> dict[str, Any]:
    """Read a table in JSON, where the name ends with `.json`, or in TOML."""
    data = read_user_file(path, what=what, hint=hint)
    return parse_table(data, str(path))


def parse_table(
    data: bytes, name: str, *, max_json_bytes: int = MAX_JSON_BYTES, is_json: bool | None = None
) -> dict[str, Any]:
    """Parse a table in the format of `name`'s suffix; raise `UsageError` that quotes `name`."""
    if is_json is None:
        is_json = name.endswith(".json")
    try:
        if is_json:
            return parse_object(data, max_bytes=max_json_bytes, max_values=max_json_bytes)
        return parse_toml(data, max_bytes=MAX_TOML_BYTES)
    except NotStrict as error:
        other = "" if is_json else "; JSON is read from a file whose name ends with .json"
        raise UsageError(
            f"{shorten(name, 200)} cannot be parsed: {error}",
            hint=f"correct it: it is read as {'JSON' if is_json else 'TOML'}{other}",
        ) from error
