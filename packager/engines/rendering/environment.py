"""The template environment: every printed value passes a filter of the target format.

No other filters exist.  A value printed without a filter is refused.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from packager.core.errors import PackagerError
from packager.core.share import share_dir

if TYPE_CHECKING:
    from jinja2 import Environment

PROPERTY_KEY = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
PROPERTY_VALUE = re.compile(r"[\x20-\x5b\x5d-\x7e]*", re.ASCII)  # printable, without backslash


class NotRepresentable(PackagerError):
    """The target format cannot carry a value so that all of its readers agree."""

    def __init__(self, what: str, value: str) -> None:
        super().__init__(
            f"a property's {what} cannot be written so that every reader agrees: {value[:60]!r}",
            hint="use printable ASCII without backslashes, and no space at either end",
        )


def bare_value(value: object) -> PackagerError:
    """Return an error: a template printed a value without a filter of the target format."""
    return PackagerError(
        f"a template printed a value without a filter: {str(value)[:60]!r}", code="BareValue"
    )


class Serialised(str):
    """Text in the target format: what the filters return, and all that may be printed."""

    __slots__ = ()


def render_template(name: str, **values: Any) -> str:
    """Print a template of `templates/`; a value it does not get is an error."""
    return environment().get_template(name).render(values)


@cache
def environment() -> Environment:
    """Build the one environment that every family renders with."""
    # Few configurations are templates: what prints them is loaded for those alone.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(share_dir("templates"), encoding="utf-8"),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_only_serialised,
    )
    made.filters = {
        "jinja": to_jinja,
        "json": to_json,
        "property_key": to_property_key,
        "property_value": to_property_value,
    }
    made.globals = {}
    return made


def to_json(value: object) -> Serialised:
    """Write JSON without spaces, in the order given, in ASCII."""
    if _is_undefined(value):
        str(value)  # raises, and names the value that is missing
    return Serialised(json.dumps(value, separators=(",", ":"), allow_nan=False))


def to_jinja(text: str) -> Serialised:
    """Write a text literal of a template, whose escapes beyond 16 bits are not JSON's."""
    return Serialised(json.dumps(text, ensure_ascii=False))


def to_property_key(key: str) -> Serialised:
    """Write a key of a .properties file."""
    if not isinstance(key, str) or not PROPERTY_KEY.fullmatch(key):
        raise NotRepresentable("key", str(key))
    return Serialised(key)


def to_property_value(value: str) -> Serialised:
    """Write a value of a .properties file.

    Java reads backslash escapes and Latin-1; the scripts beside it split at
    the first `=` and read UTF-8.  Only what both take literally may pass.
    """
    if not isinstance(value, str) or not PROPERTY_VALUE.fullmatch(value) or value != value.strip():
        raise NotRepresentable("value", str(value))
    return Serialised(value)


def _only_serialised(value: object) -> object:
    if isinstance(value, Serialised) or _is_undefined(value):
        return value  # an undefined value raises its own, better error when it is printed
    raise bare_value(value)


def _is_undefined(value: object) -> bool:
    from jinja2 import StrictUndefined

    return isinstance(value, StrictUndefined)
