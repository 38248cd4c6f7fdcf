"""What a model card states of itself: the licence, and the models that it was made from.

A card is its author's word: nothing here proves it.  One that cannot be read states nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from packager.core.documents import NotStrict
from packager.core.model import ModelFile
from packager.core.yaml_values import parse_yaml_table

CARD = "README.md"
MAX_CARD_BYTES = 1 << 20
_FRONT = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_LONGEST = 512  # of one statement
_MOST_BASES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Statements of a card; "" and () where it makes none."""

    license: str = ""  # as hubs name it: `apache-2.0`, `other`
    license_name: str = ""
    license_link: str = ""
    base_models: tuple[str, ...] = ()
    relation: str = ""  # `finetune`, `quantized`, `adapter`, `merge`
    datasets: tuple[str, ...] = ()
    task: str = ""  # `text-generation`


def card_of(files: Iterable[ModelFile], read: Callable[[ModelFile], bytes]) -> ModelCard:
    """Return what the card among files states; nothing without one."""
    readme = next((one for one in files if one.path.lower() == CARD.lower()), None)
    return read_card(read(readme)) if readme else ModelCard()


def read_card(data: bytes) -> ModelCard:
    """Read the statements at the head of a README.md."""
    found = _FRONT.search(data[:MAX_CARD_BYTES])
    if found is None:
        return ModelCard()
    try:
        stated = parse_yaml_table(found[1])
    except NotStrict:
        return ModelCard()
    return ModelCard(
        license=_text(stated.get("license")),
        license_name=_text(stated.get("license_name")),
        license_link=_text(stated.get("license_link")),
        base_models=_texts(stated.get("base_model")),
        relation=_text(stated.get("base_model_relation")),
        datasets=_texts(stated.get("datasets")),
        task=_text(stated.get("pipeline_tag")),
    )


def _text(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    is_short = isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()
    return str(value).strip() if is_short else ""


def _texts(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    return tuple(filter(None, map(_text, listed[:_MOST_BASES])))
