"""Tiny models of vectors and scores, and what sentence-transformers 6.2.0 answers with them.

Of the judge, it is what the code of Qwen3-Reranker's card answers with transformers 5.17.

`data/models/pooling/NAME.json` has a model's files, the shapes of its weights and the answers;
weights come from a generator with a seed, so that they are the same everywhere.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

from tests.support.places import DATA

PLACE = DATA / "models" / "pooling"


def load(name: str) -> dict[str, Any]:
    """Read a model's files, shapes and answers."""
    found: dict[str, Any] = json.loads((PLACE / f"{name}.json").read_bytes())
    return found


def write_model(model: dict[str, Any], directory: Path) -> Path:
    """Write the files of a model, with weights of its shapes."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = load(model["tokenizer"]) | model.get("tokenizing", {})
    files = model["files"] | {"tokenizer.json": tokenizer}
    for path, content in files.items():
        place = directory / path
        place.parent.mkdir(exist_ok=True)
        place.write_text(content if isinstance(content, str) else json.dumps(content))
    drawn = random.Random(7)
    for path, shapes in model["weights"].items():
        (directory / path).write_bytes(_safetensors(shapes, drawn))
    return directory


def _safetensors(shapes: dict[str, list[int]], drawn: random.Random) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        start = len(data)
        is_norm = "norm" in name.lower() and name.endswith("weight")
        values = (1.0 if is_norm else drawn.gauss(0.0, 0.15) for _ in range(count))
        data += struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)
