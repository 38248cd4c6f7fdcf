"""The layout of a model over devices: its sums and its words."""

from __future__ import annotations

import pytest

from packager.core.split import Split

CASES = {
    "one device": (Split(), 1, 1, 1, "TP 1"),
    "tensor parallel": (Split(tp_degree=8), 8, 1, 8, "TP 8"),
    "pipeline": (Split(tp_degree=4, pp_degree=2), 8, 1, 4, "TP 4 PP 2"),
    "data parallel": (
        Split(tp_degree=2, dp_degree=4),
        8,
        4,
        2,
        "TP 2 x 4 copies (data parallel)",
    ),
    "workers": (Split(tp_degree=2, workers=4), 8, 4, 2, "TP 2 x 4 copies (4 workers)"),
    "attention copied, experts shared": (
        Split(dp_degree=8, dp_attention=True, expert_parallel=True),
        8,
        8,
        8,
        "TP 1 x 8 copies (data parallel attention), experts over 8 devices",
    ),
    "whole experts": (
        Split(tp_degree=8, expert_parallel=True),
        8,
        1,
        8,
        "TP 8, experts over 8 devices",
    ),
    "two nodes": (Split(tp_degree=8, pp_degree=2, nodes=2), 16, 1, 8, "TP 8 PP 2, 2 nodes"),
}


@pytest.mark.parametrize(
    ("split", "devices", "copies", "experts", "words"), CASES.values(), ids=CASES
)
def test_a_split_counts_its_devices_and_copies(
    split: Split, devices: int, copies: int, experts: int, words: str
) -> None:
    assert (split.devices, split.copies, split.expert_degree) == (devices, copies, experts)
    assert split.words == words
