"""Finds files, addresses and code in option values of untrusted documents.

An engine that compiles runs with the document's options on the server's machine: a file in them
would be read there, an address contacted, a class imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from packager.core.documents import NotStrict, parse_object

OF_THE_MODEL = ("/opt/ml/model/", "/opt/ml/additional-model-data-sources/")
# Options of vLLM and SGLang whose value is code to import, or a program to start.
CODE = frozenset(
    {
        *("custom_weight_loader", "forward_hooks", "io_processor_plugin", "logits_processors"),
        *("middleware", "model_class_overrides", "model_config_parser", "reasoning_parser_plugin"),
        *("scheduler_cls", "sidecar", "sidecar_args", "tool_parser_plugin", "tool_server"),
        *("worker_cls", "worker_extension_cls"),
    }
)
_PATH = re.compile(r"[/~\\]|\.{1,2}/|[A-Za-z]:[\\/]")  # starts of a text that is not a name
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:data|file|unix):", re.IGNORECASE)
_COMMAND = re.compile(r"\$[({]")
_SEPARATORS = re.compile(r"[\s,;=]+")
_TEMPLATE = re.compile(r"\{[{%]")  # of Jinja: a template, not a path
_MOST_DEPTH = 20


def reaches_out(option: str, value: str) -> str:
    """Return the kind of reference in a value, such as `a file`; "" for a plain value."""
    if option in CODE:
        return "code"
    if _TEMPLATE.search(value):
        return "a command" if _COMMAND.search(value) else ""
    for text in _texts(value):
        if _COMMAND.search(text):
            return "a command"
        if _ADDRESS.match(text):
            return "an address"
        if ".." in text.replace("\\", "/").split("/"):
            return "a file"
        if _PATH.match(text) and not text.startswith(OF_THE_MODEL):
            return "a file"
    return ""


def _texts(value: str) -> Iterator[str]:
    """Yield every text in a value: of JSON those inside, else its parts."""
    yield value
    try:
        yield from _inside(parse_object(f'{{"": {value}}}'.encode()), 0)
    except (NotStrict, UnicodeEncodeError):
        yield from filter(None, _SEPARATORS.split(value))


def _inside(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > _MOST_DEPTH:
        yield json.dumps(value)
    elif isinstance(value, dict):
        yield from value
        for one in value.values():
            yield from _inside(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _inside(one, depth + 1)
