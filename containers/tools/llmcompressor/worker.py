"""Quantizes a checkpoint with llm-compressor; `quantize.py` does it.

Libraries are imported once stdout is the protocol's: some print while they load.
"""

from __future__ import annotations

import gc
from typing import Any

from packager_worker import Report, Spec, run


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Load the libraries, then do the work."""
    with report.busy("loading libraries"):
        gc.disable()  # none of 700,000 objects goes: looking for garbage took a quarter of it
        from quantize import quantize

        gc.freeze()
        gc.enable()
    return quantize(spec, report)


if __name__ == "__main__":
    run(work, packages=("torch", "llmcompressor", "compressed-tensors", "transformers"))
