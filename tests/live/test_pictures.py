"""Tokens of pictures, compared with the processors of transformers."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from packager.estimate.sizing.pictures import COUNTS, picture_tokens

pytestmark = [pytest.mark.live, pytest.mark.extended]

SIZES = 200
LEAST_SIDE = 4  # smaller ones a processor takes for channels


def sizes() -> list[tuple[int, int]]:
    """Return sizes from 4 to 8,192 pixels, sides of up to 16 to 1, and those of the encoders."""
    made = random.Random(7)
    found = [(336, 336), (364, 364), (448, 448), (512, 512), (1024, 1024), (4096, 4096)]
    while len(found) < SIZES:
        width = 2 ** made.uniform(3, 13)
        height = width * 2 ** made.uniform(-4, 4)
        found.append((int(width), int(min(max(height, LEAST_SIDE), 8192))))
    return found


def test_each_family_counts_as_its_own_processor(quantizing: Path) -> None:
    worker = Path(__file__).with_name("picture_counts.py")
    asked = sizes()
    done = subprocess.run(
        [quantizing, worker],
        input=json.dumps({"sizes": asked}),
        capture_output=True,
        text=True,
        check=True,
    )

    families = json.loads(done.stdout)["families"]
    wrong = {
        family: differing
        for family, told in families.items()
        if (
            differing := [
                (size, ours, theirs)
                for size, theirs in zip(asked, told["tokens"], strict=True)
                if (ours := picture_tokens(told["config"], told["settings"], size)) != theirs
            ]
        )
    }

    assert not wrong
    assert len(families) >= 8
    assert set(families) <= set(COUNTS)
