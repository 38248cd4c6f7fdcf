"""`NextToken`: the position in a list, bound to the list's query.

A token is opaque and bound to its query: with other filters or another order it would skip or
repeat entries in silence, so it is refused.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.core.documents import NotStrict, parse_object

_MAX_TOKEN = 8192  # of the API
_LARGEST = 2**63  # of SQLite's integers


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKey:
    """The last entry of a page."""

    value: str | int  # the sort key's value
    name: str


def query_mark(list_name: str, query: Any) -> str:
    """Return what tells one query (a dataclass with `after` and `most`) from another."""
    fields = {
        each.name: getattr(query, each.name)
        for each in dataclasses.fields(query)
        if each.name not in ("after", "most")
    }
    filters = {
        name: sorted(value) if isinstance(value, frozenset) else str(value)
        for name, value in fields.items()
    }
    return query_mark_of(list_name, filters)


def query_mark_of(list_name: str, filters: Any) -> str:
    """Return a digest of a list's name and its query `told`, a JSON document."""
    text = json.dumps([list_name, filters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_token(key: PageKey, mark: str) -> str:
    """Return the token of the page behind this entry."""
    text = json.dumps({"name": key.name, "query": mark, "value": key.value})
    return base64.urlsafe_b64encode(text.encode()).decode()


def read_token(token: str, mark: str) -> PageKey:
    """Read a token; raises `ValidationRefused` for one of another query."""
    try:
        if len(token) > _MAX_TOKEN:
            raise NotStrict("it is too long")
        data = base64.b64decode(token, altchars=b"-_", validate=True)
        document = parse_object(data, max_bytes=_MAX_TOKEN)
    except (NotStrict, binascii.Error, ValueError):
        raise ValidationRefused("the NextToken is not one that this list gave") from None
    value, name = document.get("value"), document.get("name")
    known = _is_value(value) and isinstance(name, str)
    if not known or set(document) != {"name", "query", "value"}:
        raise ValidationRefused("the NextToken is not one that this list gave")
    if document["query"] != mark:
        raise ValidationRefused(
            "the NextToken belongs to a list with other filters or another order"
        )
    assert isinstance(value, str | int) and isinstance(name, str)
    return PageKey(value=value, name=name)


def _is_value(value: object) -> bool:
    """Return whether a value is valid in a query: a token can be forged."""
    if isinstance(value, bool):
        return False
    return isinstance(value, str) or (isinstance(value, int) and 0 <= value < _LARGEST)
