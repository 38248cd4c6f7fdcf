"""Logits of checkpoints as the evaluating tool loads them: a quantized one against its source.

Runs in the tool's environment: `python whole_logits.py PLACE CASE...`, as `whole_models.py`.
Writes a JSON object: the relative error of each case, or why it cannot be loaded.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
from pathlib import Path

import torch
from loading import load_model
from packager_worker import BadInput

PLACE = Path(sys.argv[1])
TOKENS = torch.arange(3, 60).reshape(1, -1)


def error_of(model: str, method: str) -> float:
    """Return how far the candidate's logits are from the base's, relative to these."""
    meant = logits_of(PLACE / "models" / model)
    return float((logits_of(PLACE / f"{model}-{method}") - meant).norm() / meant.norm())


@functools.cache
def logits_of(place: Path) -> torch.Tensor:
    model = load_model(place, place.name, "float32", 0)
    with torch.no_grad():
        logits: torch.Tensor = model(TOKENS).logits
    return logits


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.freeze()
    found: dict[str, float | str] = {}
    for case in sys.argv[2:]:
        try:
            found[case] = error_of(*case.split(":"))
        except BadInput as error:
            found[case] = str(error)
    sys.stdout.write(json.dumps(found) + "\n")
