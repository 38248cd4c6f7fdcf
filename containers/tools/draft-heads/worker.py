"""Trains the heads that make a model's next tokens cheap to guess.

Parameters: `task` (`answers`, `eagle3`, `peagle`, `medusa` or `mtp`), and those of the module
that does it.  Inputs: `model`, `samples` (`train.jsonl` and `held-out.jsonl`)
and, to go on with one, `head`.  What an interrupted run left in the work
directory is used again.

Libraries are imported once stdout is the protocol's: some print while they load.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from packager_worker import Rejected, Report, Spec, check_gpus, run


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Load the libraries that the task needs, then do it."""
    if spec.gpus:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without it its sums vary
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # libraries compile for what they find
    with report.busy("loading libraries"):
        import torch

        check_gpus(spec.gpus, torch)
        task = _task(spec.parameters["task"])
    return task(spec, report)


def _task(name: str) -> Callable[[Spec, Report], dict[str, Any]]:
    match name:
        case "answers":
            from answers import answer

            return answer
        case "eagle3":
            from eagle3 import train as train_eagle3

            return train_eagle3
        case "peagle":
            from peagle import train as train_peagle

            return train_peagle
        case "medusa":
            from medusa import train as train_medusa

            return train_medusa
        case "mtp":
            from mtp import train as train_mtp

            return train_mtp
    raise Rejected(f"this worker does not know task {name!r}")


if __name__ == "__main__":
    run(work, packages=("torch", "transformers", "speculators"))
