"""One digest of a merged file on every processor."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packager.images.blobs import BlobReader
from tests.unit.optimize.merge.test_merging import blob_of, built

TYPES = ("BF16", "F16", "F32")
PROGRAM = """
import sys
from pathlib import Path
from tests.integration.optimize.merge.test_digests import digests
print(*digests(Path(sys.argv[1])))
"""
# Instructions that NumPy uses where a processor has them, beyond those of every x86-64.
LESSER = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR AVX2 FMA3"


def digests(place: Path) -> list[str]:
    """Return the digest of a merged file of each type."""
    found = []
    for dtype in TYPES:
        (place / dtype).mkdir(parents=True)
        data = BlobReader().read(blob_of(built(place / dtype, dtype)))
        found.append(hashlib.sha256(data).hexdigest())
    return found


@pytest.mark.parametrize("without", [LESSER, "AVX512F AVX512CD AVX512_SKX"])
def test_the_digest_is_the_same_without_instructions_that_a_processor_may_lack(
    tmp_path: Path, without: str
) -> None:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "there")],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": without},
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout.split() == digests(tmp_path / "here")
