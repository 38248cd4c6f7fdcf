"""Reading numbers of config.json, which is untrusted, under all of their names.

A wrong value becomes a finding, never an exception.  Missing values are the defaults of
transformers' class (`model_types`) or of a row of the table of architectures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.catalog.model_types import ModelType, find_type
from packager.core.findings import Finding

LARGEST = 2**31 - 1  # what the engines keep these numbers in
PUBLISHED = "use the config.json that was published with these weights"
UNPUBLISHED = (
    "write it into config.json as the model's own code assumes it; packager has no defaults of "
    "this model_type"
)

# Where a multimodal config.json nests the language model; the first that is there.
TEXT_PARTS = ("thinker_config", "text_config", "llm_config", "language_config", "llm_model")
DEEPEST = 3  # Qwen3-Omni: thinker_config.text_config
# Parts that hold some numbers of the layers: DBRX and MPT.
INNER_PARTS = ("ffn_config", "attn_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model: multimodal configs nest it."""
    return _descend(config)[0]


def language_path(config: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the keys that lead to the language model's part, () for all of it, and its type."""
    _, types, path = _descend(config)
    return path, types[0] if types else ""


def _descend(
    config: Mapping[str, Any],
) -> tuple[Mapping[str, Any], tuple[str, ...], tuple[str, ...]]:
    types: list[str] = []
    path: tuple[str, ...] = ()
    implied = ""
    merged = config
    part: Mapping[str, Any] = config
    for _ in range(DEEPEST):
        stated = part.get("model_type")
        types.insert(0, stated if isinstance(stated, str) else implied)
        known = find_type(types[0])
        key = next((key for key in TEXT_PARTS if isinstance(part.get(key), Mapping)), "")
        if not key:
            break
        implied = known.parts.get(key, "") if known else ""
        part, path = part[key], (*path, key)
        merged = {**merged, **part}
    return merged, tuple(one for one in types if one), path


class Config:
    """Reads numbers of config.json and collects what is wrong with them."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, int]) -> None:
        text, types, _ = _descend(config)
        inner = {key: text[key] for key in INNER_PARTS if isinstance(text.get(key), Mapping)}
        self._inner = tuple(inner.values())
        self._config = text
        self._defaults = defaults
        found = (find_type(one) for one in types[:1])
        self._type = next((one for one in found if one is not None), ModelType())
        self.types = types  # of the language model, and of what nests it
        self.has_type = bool(types) and find_type(types[0]) is not None
        self._published = PUBLISHED if self.has_type else UNPUBLISHED
        self.findings: list[Finding] = []

    def number(self, *keys: str, needed: bool = True, least: int = 1) -> int:
        """Return the first that is stated, else what is assumed; 0 for what is neither."""
        for key, stated in self._stated(keys):
            if type(stated) is int and least <= stated <= LARGEST:
                return stated
            self.refuse(key, stated)
            return 0
        value = self._assumed(keys)
        if needed and not value:
            self.missing(keys[0])
        return value

    def refuse(self, key: str, stated: object, wanted: str = "a positive whole number") -> None:
        """Find that what is stated is not what it has to be."""
        self._error("config-value", f"config.json: {key} is {shown(stated)}, not {wanted}")

    def missing(self, key: str) -> None:
        """Find that a number is neither stated nor assumed by a class that is known."""
        message = f"config.json does not state {key}, and no default of it is known"
        self.findings.append(Finding("error", "config-missing", message, self._published))

    def count(self, *keys: str, assumed: bool = True) -> int:
        """Return a number that may be none, 0, or one for each layer: then the largest."""
        for key, stated in self._stated(keys):
            values = stated if isinstance(stated, list) else [stated]
            if values and all(type(one) is int and 0 <= one <= LARGEST for one in values):
                return int(max(values))
            what = f"config.json: {key} is {shown(stated)}, not a whole number"
            self._error("config-value", what)
            return 0
        return self._assumed(keys) if assumed else 0

    def has(self, *keys: str) -> bool:
        """Whether config.json itself states one of the keys."""
        return next(self._stated(keys), None) is not None

    def switch(self, key: str, *, default: bool) -> bool:
        stated = next((value for _, value in self._stated((key,))), None)
        if isinstance(stated, bool):
            return stated
        assumed = self._type.defaults.get(key)
        return assumed if isinstance(assumed, bool) else default

    def word(self, key: str) -> str:
        """Return the stated text; "" if missing."""
        stated = next((value for _, value in self._stated((key,))), None)
        return stated if isinstance(stated, str) else ""

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a nested part; an empty one where there is none."""
        found = self._config.get(name)
        return found if isinstance(found, Mapping) else {}

    def stated(self) -> Mapping[str, Any]:
        """Return all keys of the language model's part."""
        return self._config

    def listed(self, *keys: str) -> list[Any] | None:
        """Return the first of the keys that is a list."""
        found = (value for _, value in self._stated(keys) if isinstance(value, list))
        return next(found, None)

    def _stated(self, keys: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for key in keys:
            for name in (key, self._type.names.get(key, "")):
                for part in (self._config, *self._inner):
                    if name and part.get(name) is not None:
                        yield name, part[name]

    def _assumed(self, keys: tuple[str, ...]) -> int:
        # A null is a statement: `sliding_window: null` is no window, whatever the class assumes.
        names = {name for key in keys for name in (key, self._type.names.get(key, ""))}
        is_null = any(name in self._config and self._config[name] is None for name in names)
        for table in (self._defaults, {} if is_null else self._type.defaults):
            for key in keys:
                for name in (key, self._type.names.get(key, "")):
                    value = table.get(name)
                    if type(value) is int and value > 0:
                        return value
        return 0

    def _error(self, code: str, message: str) -> None:
        self.findings.append(Finding("error", code, message, PUBLISHED))


def shown(value: object) -> str:
    """Return an untrusted value as one short line."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
