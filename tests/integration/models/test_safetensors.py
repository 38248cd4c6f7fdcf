"""The header reader: what it understands, and what it refuses and how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.core.errors import ModelRefused
from packager.models.safetensors import parse_header
from tests.support.doubles.models import safetensors_bytes
from tests.support.processes import run_python
from tests.unit.models.test_safetensors import BOMBS, JSON, read
from tests.unit.models.test_safetensors import file as file


def test_a_hundred_thousand_tensors_are_read_at_once(file: Path) -> None:
    header = {
        f"t{number}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
        for number in range(100_000)
    }
    content = safetensors_bytes(header)
    started = time.process_time()
    assert len(read(file, content)) == 100_000
    assert time.process_time() - started < 5


FIELDS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["BF16", "F4", "U8", "?"]) | JSON,
        "shape": st.lists(st.integers(-1, 2**65), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-1, 64), min_size=2, max_size=2) | JSON,
    }
)


@given(header=st.dictionaries(st.text(max_size=8), FIELDS | JSON), data_bytes=st.integers(0, 64))
@settings(deadline=None, max_examples=100)
def test_what_is_read_covers_the_data_exactly(header: object, data_bytes: int) -> None:
    try:
        tensors = parse_header(json.dumps(header).encode(), data_bytes, "model.safetensors")
    except ModelRefused:
        return
    assert sum(tensor.size for tensor in tensors) == data_bytes


PEAK = """
import sys
from pathlib import Path
from packager.models.safetensors import BrokenSafetensors, parse_header
header = Path(sys.argv[1]).read_bytes()
# Not getrusage: a child starts with the peak of the process that made it.
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
before, refused = peak(), ""
try:
    parse_header(header, 1, "model.safetensors")
except BrokenSafetensors as error:
    refused = error
print(peak() - before, refused)
"""


@pytest.mark.extended
@pytest.mark.parametrize(("header", "why"), BOMBS.values(), ids=BOMBS)
def test_a_header_takes_little(tmp_path: Path, header: Callable[[], bytes], why: str) -> None:
    (tmp_path / "header").write_bytes(header())

    memory, _, refused = run_python("-c", PEAK, tmp_path / "header").stdout.partition(" ")
    # The header itself is not counted: it was there before.
    assert int(memory) <= 9 * (tmp_path / "header").stat().st_size
    assert why in refused
    assert bool(why) == bool(refused.strip())
