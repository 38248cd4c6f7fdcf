"""Models of the start-up logs, as published config.json and headers of the same sizes.

Experts lie in one tensor a layer, a tower in one tensor: only sizes and kinds matter to memory.
They are written as `layouts` has it: `data/sizing/startup_models.json`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from packager.core.model import ModelFiles, ModelRef
from tests.support.headers import tensor
from tests.support.layouts import write_out
from tests.support.places import DATA

MODELS: dict[str, dict[str, Any]] = json.loads(
    (DATA / "sizing" / "startup_models.json").read_text("utf-8")
)


@cache
def startup_model(name: str) -> ModelFiles:
    """Make the headers-only model of a log."""
    headers = write_out(MODELS[name]["tensors"]).items()
    return ModelFiles(
        ref=ModelRef(source="hub", name=f"logs/{name}"),
        files=(),
        config=MODELS[name]["config"],
        tensors=tuple(tensor(tensor_name, *header) for tensor_name, header in headers),
    )
