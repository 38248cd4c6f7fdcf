"""`packager tools ls`: which environments there are, and which of them steps take."""

from __future__ import annotations

import pytest

from packager.core.devices import Gpus
from packager.core.reports.text import report_lines
from packager.optimize.steps.tools.report import (
    ToolBuild,
    ToolRow,
    chosen_build,
    tool_documents,
    tools_report,
)

CPU = ToolBuild(
    build="cpu", state="installed", bytes=1_500_000_000, disk_bytes=3, torch="2.13.0+cpu"
)
CUDA = ToolBuild(
    build="cuda", state="not installed", bytes=0, disk_bytes=9_000_000_000, torch="2.13.0"
)
QUANTIZES = ToolRow(name="quantizes", what="what it does", lender="", builds=(CPU, CUDA))
BORROWS = ToolRow(name="borrows", what="w", lender="quantizes", builds=(CUDA,))
SERVES = ToolRow(name="serves", what="w", lender="", builds=())


def test_each_environment_has_a_line_with_its_state_and_size() -> None:
    lines = [
        line.split()
        for line in report_lines(tools_report([QUANTIZES, BORROWS, SERVES], Gpus(count=0)))
    ]

    assert lines[1] == ["quantizes", "cpu", "installed", "1.5", "GB", "what", "it", "does"]
    assert lines[2] == ["cuda", "not", "installed", "needs", "9.0", "GB"]
    assert lines[3] == ["borrows", "any", "not", "installed", "0", "B", "w"]
    assert lines[4] == ["serves", "in", "the", "serving", "image", "0", "B", "w"]


@pytest.mark.parametrize(("count", "used"), [(0, [True, False]), (2, [True, True])])
def test_a_document_names_the_builds_that_steps_take_here(count: int, used: list[bool]) -> None:
    (one,) = tool_documents([QUANTIZES], Gpus(count=count))

    assert [build["used_here"] for build in one["builds"]] == used
    assert [build["torch"] for build in one["builds"]] == ["2.13.0+cpu", "2.13.0"]
    assert (one["state"], one["bytes"]) == ("installed", 1_500_000_000)


def test_why_a_build_is_taken_is_told() -> None:
    without = chosen_build(Gpus(count=0))
    assert without == "steps here run with torch for cpu: no GPU is here for them"
    assert "cuda on the 2 GPUs of 24.1 GB" in chosen_build(Gpus(count=2, bytes=24_100_000_000))
