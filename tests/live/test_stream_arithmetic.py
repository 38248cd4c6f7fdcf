"""What the stream computes is what llm-compressor computes, bit by bit, on hostile matrices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packager.optimize.quantize.stream.formats import SOURCES
from tests.live.tool_programs import documents_in, run_program

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
MATRICES = 3400 if LONG else 150  # of each type
FORMATS = (
    "fp8", "fp8-block", "int8", "w8a16", "rtn-128", "rtn-32-asymmetric", "w4afp8",
    "mxfp4", "mxfp8", "nvfp4", "widened",
)  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_become_the_librarys_bytes(quantizing_python: Path, name: str) -> None:
    found = documents_in(
        run_program(quantizing_python, "stream_arithmetic.py", str(MATRICES), "1", name)
    )

    assert [one["differs"] for one in found] == [[]]
    assert found[0]["compared"] == MATRICES * len(SOURCES)
