"""A YAML file for an engine's `--config`: its options by name."""

from __future__ import annotations

import json
from typing import Any

from packager.addons.check.values import DescribedServer, Setting
from packager.core.documents import NotStrict
from packager.core.positions import Place
from packager.core.yaml_nodes import YamlNode


def read_config(file: str, documents: list[YamlNode]) -> DescribedServer:
    """Read the options of one engine."""
    if len(documents) != 1 or documents[0].type != "mapping":
        raise NotStrict("it has no mapping of options")
    settings = tuple(
        Setting(key.text, _spelled(value), Place(file, key.line, key.column))
        for key, value in documents[0].pairs
    )
    return DescribedServer(place=Place(file), config=settings)


def _spelled(node: YamlNode) -> str:
    """Return a value as a word of the command line; lists and mappings as JSON."""
    if node.type in {"list", "mapping"}:
        return json.dumps(_plain(node), separators=(",", ":"))
    if node.type == "bool":
        return str(node.text.lower() in {"true", "yes", "on"}).lower()
    return node.text


def _plain(node: YamlNode) -> Any:
    match node.type:
        case "list":
            return [_plain(one) for one in node.items]
        case "mapping":
            return {key: _plain(value) for key, value in node.entries().items()}
        case "bool":
            return node.text.lower() in {"true", "yes", "on"}
        case "null":
            return None
        case "int" | "float":
            try:
                return int(node.text) if node.type == "int" else float(node.text)
            except ValueError:
                return node.text
    return node.text
