"""Where the work is done: on a GPU, which takes the layers in turn, or on the processor.

The weights stay in the machine's memory, or on disk, where `memory.py` leaves them; the
library brings one layer after another onto the first GPU that this process sees, and takes
the activations of all texts back between two of them.  Others would idle.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from packager_worker import Report, WorkerFailed, check_gpus

_WORKSPACE = ":4096:8"  # without it, the order of cuBLAS's sums varies from run to run


def choose_device(gpus: int, report: Report) -> None:
    """Prepare what the step was given; raise where that is not what libraries will take."""
    check_gpus(gpus, torch)
    if not gpus:
        if torch.cuda.is_available():
            raise WorkerFailed("the step has no GPU, and one is visible to it")
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _WORKSPACE)
    torch.use_deterministic_algorithms(True, warn_only=True)
    report.note(f"the layers are worked on by one {torch.cuda.get_device_name(0)}")


def device_used(gpus: int) -> dict[str, Any]:
    """Describe for the record where the work was done, and the most memory of a GPU."""
    if not gpus:
        return {"device": "cpu", "threads": torch.get_num_threads()}
    return {
        "device": "cuda",
        "gpu": torch.cuda.get_device_name(0),
        "gpu_peak_bytes": int(torch.cuda.max_memory_reserved(0)),
    }
