"""Values of a stranger's document that reach for files, addresses or code.

An engine that compiles runs where jobs run, with the options of the document: a file that one of
them names would be one of the server's machine, an address one of its network, a class one that is
imported there.
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
_PATH = re.compile(r"[/~\\]|\.{1,2}/|[A-Za-z]:[\\/]")  # where a text begins that is no name
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:data|file|unix):", re.IGNORECASE)
_COMMAND = re.compile(r"\$[({]")
_SEPARATORS = re.compile(r"[\s,;=]+")
_TEMPLATE = re.compile(r"\{[{%]")  # of Jinja: a text that is no place
_MOST_DEPTH = 20


def reaches_out(option: str, value: str) -> str:
    """Return what a value reaches for, such as `a file`; "" for one that stays in the engine."""
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
