"""Whether torch finds the GPUs that a step was given."""

from __future__ import annotations

import torch
from packager_worker import WorkerFailed


def check_gpus(gpus: int) -> None:
    """Raise where a step was given GPUs and this torch finds fewer."""
    found = torch.cuda.device_count() if gpus and torch.cuda.is_available() else 0
    if found < gpus:
        raise WorkerFailed(
            f"the step has {gpus} GPUs, and torch {torch.__version__} finds {found or 'none'}",
            "compare the driver that `nvidia-smi` names with what this torch needs, "
            "or use `--gpus 0`",
        )
