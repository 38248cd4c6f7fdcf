"""Key values that the user states for an imported tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from artifact_cache.key import plain
from packager.core.documents import NotStrict, parse_json
from packager.core.errors import NotFound, UsageError
from packager.core.trees import Stated
from packager.optimize.keys.documents import parse_document


def own_words(stated: Stated) -> dict[str, Any]:
    """Return the values of --state, by JSON pointer into the key document."""
    found = {}
    for text in stated.stated:
        pointer, equals, value = text.partition("=")
        if not equals or not pointer.startswith("/"):
            raise UsageError(
                f"--state {text!r} is not /POINTER=JSON", hint="such as --state /shape/max_batch=8"
            )
        try:
            found[pointer] = parse_json(value.encode(errors="surrogatepass"))
        except NotStrict:
            found[pointer] = value  # a plain word needs no quotes
    return found


def read_document(path: Path) -> dict[str, Any]:
    """Read the key document of --as."""
    found = read_json(path)
    found = found.get("keydoc", found.get("document", found))  # of `show`, of `explain --last`
    try:
        return plain(parse_document(found))
    except (ValidationError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} is not a key document",
            hint="`packager cache show KEY --format json` and `explain --last` have some",
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that the user names."""
    try:
        found = parse_json(path.read_bytes())
    except (OSError, NotStrict) as error:
        raise NotFound(f"cannot read {str(path)!r}: {error}", hint="name a JSON file") from error
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict):
        raise UsageError(
            f"{str(path)!r} holds no JSON object, or several", hint="write one object in each file"
        )
    return found
