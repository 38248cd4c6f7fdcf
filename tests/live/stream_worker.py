"""Quantizes checkpoints by the worker's own code, to be compared: run in the tool environment.

    python stream_worker.py CASES MODELS OUTPUT

CASES is a JSON list of `name`, `label` and `parameters` of the step; MODELS holds the checkpoints
by name.  The files of each case are left in OUTPUT, below its name and label.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import quantize_matrix
from collected import Collected
from loguru import logger


def main() -> None:
    """Run every case; one that fails leaves nothing."""
    cases, models, output = (Path(argument) for argument in sys.argv[1:4])
    logger.remove()
    for case in json.loads(cases.read_text(encoding="utf-8")):
        work = output / "work"
        spec = quantize_matrix.spec_of(case, models, work)
        told: dict[str, str] = {}
        try:
            quantize_matrix.worker.quantize(spec, Collected())
            shutil.move(work / "out", output / f"{case['name']} {case['label']}")
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"}
        line = {"name": case["name"], "label": case["label"], **told}
        sys.__stdout__.write(json.dumps(line) + "\n")
        sys.__stdout__.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
