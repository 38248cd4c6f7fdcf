"""The layout of a model over devices: its sums and its words."""

from __future__ import annotations

from packager.core.split import Split
from tests.support.cases import cases


@cases("a_split_counts_its_devices_and_copies")
def test_a_split_counts_its_devices_and_copies(
    split: Split, devices: int, copies: int, experts: int, words: str
) -> None:
    assert (split.devices, split.copies, split.expert_degree) == (devices, copies, experts)
    assert split.words == words
