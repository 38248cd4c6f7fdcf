"""Trains EAGLE-3 heads with SpecForge, the SGLang project's own trainer.

Parameters: those of `training.py`.  Inputs: `model`, `samples` (`train.jsonl`
and `held-out.jsonl`) and, to go on with one, `head`.  What an interrupted run
left in the work directory is used again.

Libraries are imported once stdout is the protocol's: some print while they load.
"""

from __future__ import annotations

import os
from typing import Any

from packager_worker import Rejected, Report, Spec, run


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Load the libraries, then train."""
    if spec.parameters["task"] != "eagle3":
        raise Rejected(
            f"SpecForge trains no {spec.parameters['task']!r} heads here",
            "train them with `--trainer speculators`",
        )
    os.environ["SPECFORGE_DEVICE"] = "cuda" if spec.gpus else "cpu"
    if not spec.gpus:
        # The library compiles parts of the head, which on processors takes longer than they do.
        os.environ["TORCH_COMPILE_DISABLE"] = "1"
    with report.busy("loading libraries"):
        from training import train
    return train(spec, report)


if __name__ == "__main__":
    run(work, packages=("torch", "transformers", "specforge"))
