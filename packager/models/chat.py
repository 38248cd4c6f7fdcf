"""The chat template of a model, tokens added to its vocabulary, settings of its processor.

All are untrusted text and are never executed.  Too long or broken text counts as missing: the
engine reports it better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from packager.catalog.parsers import names_tokens
from packager.core.documents import NotStrict, parse_object, strict_decoder
from packager.core.parsers import ChatTemplate
from packager.models.contents import readable
from packager.models.walk import Found

TEMPLATE = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"  # of processors that read images
TEMPLATES = (TEMPLATE, TEMPLATE_JSON)
TOKENIZER = "tokenizer.json"
# What cuts pictures: transformers 5 writes all of it into the second, below `image_processor`.
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
MAX_TEMPLATE_BYTES = 1024 * 1024  # the longest released one has 30 kB
HEAD_BYTES = 1024 * 1024  # of tokenizer.json, where the added tokens stand before the vocabulary
MAX_ADDED = 10_000  # Qwen 3 has 26, DeepSeek V3 818, Mistral 1,000
ADDED = re.compile(rb'"added_tokens"\s*:\s*\[', re.ASCII)
USED = ("tool_use", "default")  # of several templates, those that answer chats

ReadHead = Callable[[str, int], bytes]  # path and most bytes → the beginning of a file


def read_chat_template(
    small: Mapping[str, Found], tokenizer: Mapping[str, Any], read_head: ReadHead
) -> ChatTemplate | None:
    """Return the template that engines take, or None.

    A file of its own wins over the field in tokenizer_config.json, as in transformers.  Tokens
    are read only where the template writes one that a parser needs.
    """
    text = _file(small, TEMPLATE) or _field(_json(small, TEMPLATE_JSON)) or _field(tokenizer)
    if not text or len(text) > MAX_TEMPLATE_BYTES:
        return None
    if not names_tokens(text):
        return ChatTemplate(text=text)
    tokens = _listed(tokenizer)
    return ChatTemplate(text=text, tokens=_added(read_head) if tokens is None else tokens)


def read_picture_settings(small: Mapping[str, Found]) -> Mapping[str, Any]:
    """Return the settings of the processor of pictures, the newer file over the older."""
    older, newer = (_json(small, path) for path in PROCESSORS)
    inner = newer.get("image_processor")
    return {**older, **newer, **(inner if isinstance(inner, Mapping) else {})}


def _file(small: Mapping[str, Found], path: str) -> str:
    if path not in small:
        return ""
    with readable(path, small[path]) as stream:
        data = stream.read(MAX_TEMPLATE_BYTES + 1)
    return data.decode("utf-8", "replace") if len(data) <= MAX_TEMPLATE_BYTES else ""


def _json(small: Mapping[str, Found], path: str) -> Mapping[str, Any]:
    try:
        return parse_object(_file(small, path).encode())
    except NotStrict:
        return {}


def _field(document: Mapping[str, Any]) -> str:
    """Return the template of a document: one text, or several with names."""
    found = document.get("chat_template")
    if isinstance(found, list):
        rows = [row for row in found if isinstance(row, dict)]
        found = {str(row.get("name")): row.get("template") for row in rows}
    if isinstance(found, dict):
        return "\n".join(text for name in USED if isinstance(text := found.get(name), str))
    return found if isinstance(found, str) else ""


def _listed(tokenizer: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the added tokens that tokenizer_config.json lists; None where it lists none."""
    rows = tokenizer.get("added_tokens_decoder")
    return _contents(list(rows.values())) if isinstance(rows, dict) and rows else None


def _added(read_head: ReadHead) -> frozenset[str] | None:
    """Return the added tokens of tokenizer.json; None where its beginning does not hold them."""
    head = read_head(TOKENIZER, HEAD_BYTES)
    found = ADDED.search(head)
    if found is None:
        return None
    text = head[found.end() - 1 :].decode("utf-8", "replace")
    try:
        rows, _ = strict_decoder().raw_decode(text)
    except (ValueError, RecursionError):  # cut off, or broken
        return None
    return _contents(rows)


def _contents(rows: list[Any]) -> frozenset[str]:
    contents = (row.get("content") for row in rows[:MAX_ADDED] if isinstance(row, dict))
    return frozenset(text for text in contents if isinstance(text, str))
