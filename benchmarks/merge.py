"""Processor time of folding an adapter into weights, for an element and for each rank of it.

    python benchmarks/merge.py

For each type the time of three matrices, in blocks of rows as a build reads them, and the line
through them: what an element takes, and what a rank adds.  The last line of stdout is one JSON
object with every figure.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from packager.optimize.merge.arithmetic import Product, add_products

SHAPES = ((14336, 4096, 8), (4096, 4096, 16), (1024, 8192, 64))  # rows, columns, rank
BLOCK = 256  # rows
TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}


def main() -> int:
    """Measure every type."""
    figures = {}
    for dtype, stored in TYPES.items():
        times = [element_ns(dtype, stored, *shape) for shape in SHAPES]
        slope, start = np.polyfit([rank for _, _, rank in SHAPES], times, 1)
        figures[dtype] = {"element_ns": round(float(start), 2), "rank_ns": round(float(slope), 2)}
        sys.stderr.write(f"{dtype}: {start:.1f} ns an element, {slope:.2f} ns each rank\n")
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def element_ns(dtype: str, stored: str, rows: int, columns: int, rank: int) -> float:
    """Return the time of an element of a matrix."""
    made = np.random.default_rng(0)
    numbers = made.standard_normal((rows, columns)).astype(np.float32)
    data = numbers.view(np.uint32) >> 16 if dtype == "BF16" else numbers
    raw = data.astype(stored).tobytes()
    width = len(raw) // rows
    left, right = made.standard_normal((rows, rank)), made.standard_normal((rank, columns))
    start = time.process_time()
    for at in range(0, rows, BLOCK):
        product = Product(0, left[at : at + BLOCK], right, 0.01, rounded=False)
        add_products(raw[at * width : (at + BLOCK) * width], columns, dtype, [product])
    return (time.process_time() - start) / (rows * columns) * 1e9


if __name__ == "__main__":
    sys.exit(main())
