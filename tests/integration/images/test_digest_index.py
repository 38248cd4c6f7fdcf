"""The table of digests: kept open, not synced note by note, in the file when a note is made."""

from __future__ import annotations

import signal
from pathlib import Path

from packager.images.digest_index import DigestIndex, KnownDigest
from tests.support.places import ROOT
from tests.support.processes import run_python
from tests.unit.images.test_digest_index import ABC, blobs_of


def test_a_killed_process_has_lost_no_note(tmp_path: Path) -> None:
    (blob,) = blobs_of(tmp_path, 1)
    code = (
        "import os, signal\n"
        "from tests.unit.images.test_digest_index import *\n"
        f"index = DigestIndex(Path({str(tmp_path)!r}) / 'digests.sqlite', clock_ns=an_hour_later)\n"
        f"note(index, Blob((FileRange(path={blob.segments[0].path!r}, offset=0, length=7),)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_python("-c", code, env={"PYTHONPATH": str(ROOT)}, status=-signal.SIGKILL)

    assert DigestIndex(tmp_path / "digests.sqlite").get(blob) == KnownDigest(ABC, proven=True)
