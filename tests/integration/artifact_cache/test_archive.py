"""Archives: the same bytes for the same entries, and nothing else is let in."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.processes import run_program
from tests.unit.artifact_cache.test_archive import archive as archive


def test_tar_can_list_and_unpack_it(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    words = ("tar", "--extract", "--verbose", "--directory", tmp_path / "here")
    done = run_program(*words, input=archive, text=False)
    names = done.stdout.decode().splitlines()
    assert names[0] == "VERSION"
    assert names[1:] == sorted(names[1:])
    for name in names:
        if name.startswith("cas/"):
            data = (tmp_path / "here" / name).read_bytes()
            assert hashlib.sha256(data).hexdigest() == name[-64:]
