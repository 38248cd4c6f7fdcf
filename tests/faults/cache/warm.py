"""Imported by the process that others are forked from: does everything once.

What is imported or compiled on first use would otherwise be among the calls that are counted.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from artifact_cache.errors import Rejected
from tests.faults.cache.scenes import scene_for
from tests.faults.cache.working import OPERATIONS, in_one_thread

in_one_thread()
with tempfile.TemporaryDirectory() as _directory:
    for _operation, _do in OPERATIONS.items():
        with suppress(Rejected):
            _do(scene_for(_operation, Path(_directory, _operation)))
