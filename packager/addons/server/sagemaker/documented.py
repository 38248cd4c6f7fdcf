"""Names that AWS documents for optimization jobs: settings, variables and images, by version.

`scripts/sagemaker-names` reads them out of djl-serving's pages and classes, the SDK's lists of
images and the containers' own; the file says which commits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.suggestions import nearest
from packager.engines.schema import shipped_schemas
from packager.engines.trtllm import ENGINE as TENSORRT

TABLE = Path(__file__).parent / "data" / "documented.json"
_PAGES = {
    "tensorrt-llm": "TensorRT-LLM",
    "neuron": "Neuron",
    "lmi": "LMI",
    "lmi-dist": "LMI's lmi-dist",
    "vllm": "LMI's vLLM",
    "deepspeed": "DeepSpeed",
    "transformers": "LMI's transformers",
}
_TGI = "tgi"
# Pattern of a tag → the family of its images.
_FAMILIES = (
    ("djl-inference", re.compile(r"-(lmi|deepspeed|tensorrtllm)"), "lmi"),
    ("djl-inference", re.compile(r"-neuronx-"), "neuron"),
    ("huggingface-pytorch-tgi-inference", re.compile(r"-tgi"), "tgi"),
    ("huggingface-pytorch-tgi-inference", re.compile(r"-optimum"), "neuron"),
    ("huggingface-vllm-inference-neuronx", re.compile(r""), "neuron"),
    ("huggingface-vllm", re.compile(r""), "vllm"),
    ("vllm", re.compile(r""), "vllm"),
    ("huggingface-sglang", re.compile(r""), "sglang"),
    ("sglang", re.compile(r""), "sglang"),
)
_REVISION = re.compile(r"-v[0-9]+(\.[0-9]+)*")  # of the same image, such as `-v1.2`


@dataclass(frozen=True, slots=True)
class DocumentedImage:
    """An image that AWS documents."""

    family: str  # "" where none here serves like it
    engine: str  # "" for one of several


def option_source(name: str) -> str:
    """Return which pages have a setting, without `option.`, and in which versions; "" for none."""
    pages = _table()["options"].get(name, {})
    own = {page: found for page, found in pages.items() if page != "lmi"}
    versions = (own or pages).items()
    return "; ".join(
        f"{_PAGES[page]}, djl-serving {found[0]} to {found[-1]}" for page, found in versions
    )


def variable_source(name: str) -> str:
    """Return who documents a variable, and in which versions; "" if undocumented."""
    if found := _table()["variables"].get(name):
        return f"djl-serving {found[0]} to {found[-1]}"
    return "text-generation-inference" if name in _of_tgi() else ""


def known_names() -> tuple[str, ...]:
    """Return every variable, those of settings with `OPTION_`."""
    options = (f"OPTION_{name.upper()}" for name in _table()["options"])
    return tuple(sorted({*options, *_table()["variables"], *_of_tgi()}))


def find_image(repository: str, tag: str) -> DocumentedImage | None:
    """Return the image of a repository and tag; None if undocumented."""
    name = repository.rpartition("/")[2]
    tags = _table()["images"].get(name, ())
    if tag not in tags and not any(
        tag.startswith(one) and _REVISION.fullmatch(tag[len(one) :]) for one in tags
    ):
        return None
    families = (family for of, part, family in _FAMILIES if of == name and part.search(tag))
    return DocumentedImage(next(families, ""), TENSORRT if "-tensorrtllm" in tag else "")


def nearest_image(repository: str, tag: str) -> str:
    """Return the documented image whose name is most like one; "" where none is."""
    name = repository.rpartition("/")[2]
    table: Mapping[str, list[str]] = _table()["images"]
    known = name if name in table else nearest(name, tuple(table)) or ""
    found = nearest(tag, tuple(table.get(known, ()))) if known else ""
    return f"{known}:{found}" if found else known


@cache
def _of_tgi() -> frozenset[str]:
    return frozenset(name for schema in shipped_schemas(_TGI) for name in schema.options)


@cache
def _table() -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return read
