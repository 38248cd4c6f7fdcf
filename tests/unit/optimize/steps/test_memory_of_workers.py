"""Variables that keep a worker's memory the same from run to run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.tool_steps import executor, step


def environment(tool: str, tmp_path: Path) -> dict[str, str]:
    asked = replace(step("copy"), tool=tool)
    return executor(tmp_path)._environment(asked, tmp_path, tmp_path / "bin/python")


def test_large_tensors_of_a_quantizer_are_given_back_when_they_are_freed(tmp_path: Path) -> None:
    """In heaps of threads they lay fallow: 2.77 GB were resident once, the bound was 2.35."""
    assert environment("llmcompressor", tmp_path)["MALLOC_MMAP_THRESHOLD_"] == "1048576"


def test_other_workers_keep_what_they_allocate_again_and_again(tmp_path: Path) -> None:
    assert "MALLOC_MMAP_THRESHOLD_" not in environment("draft-heads", tmp_path)
