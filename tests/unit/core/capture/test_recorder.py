"""The queue, the files and their limits; a lost row loses no request, and is counted."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.capture import recorder as recorders
from packager.core.capture.files import CaptureFiles, CaptureLimits, complete_files
from packager.core.capture.keeping import Capture
from packager.core.capture.recorder import MAX_EXCHANGE, CapturePlace, Recorder
from packager.core.capture.rows import Options
from tests.support.places import ROOT

HOUR_S = 3600.0


class Clock:
    now = 1_764_482_400.0  # 2025-11-30T06:00:00Z

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Rows are made once it is set."""
    found, make = threading.Event(), recorders.make_row

    def waiting(*arguments: Any) -> Any:
        assert found.wait(30)
        return make(*arguments)

    monkeypatch.setattr(recorders, "make_row", waiting)
    yield found
    found.set()


def capture(root: Path, recorder: Recorder, percent: int = 100) -> Capture:
    return Capture(
        recorder, CapturePlace(root, "e/v"), Options(), percent, iter([0.2, 0.7] * 50).__next__
    )


def send(to: Capture, request: bytes = b"{}", *pieces: bytes) -> bool:
    kept = to.begin(request, "application/json")
    for piece in pieces or (b"{}",):
        if kept is not None:
            kept.take(piece)
    return kept is not None and kept.end("1", "application/json")


def test_files_are_private_named_by_the_hour_and_complete_at_the_end(
    tmp_path: Path, clock: Clock
) -> None:
    files = CaptureFiles(CaptureLimits(file_bytes=100, file_s=60), clock)
    root = tmp_path / "captures"
    for text in ("one", "two"):
        files.write(root, "e/v", json.dumps({"text": text}).encode() + b"\n")
    assert complete_files(root) == []

    clock.now += HOUR_S
    files.write(root, "e/v", b"three\n")

    (first,) = complete_files(root)
    assert str(first.parent.relative_to(root)) == "e/v/2025/11/30/06"
    assert first.read_bytes() == b'{"text": "one"}\n{"text": "two"}\n'
    assert (first.stat().st_mode & 0o777, first.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    files.rotate()
    clock.now += 60
    files.rotate()
    assert len(complete_files(root)) == 2


def test_what_a_killed_writer_left_is_completed_without_its_last_half_row(
    tmp_path: Path, clock: Clock
) -> None:
    folder = tmp_path / "e/v/2025/11/30/05"
    folder.mkdir(parents=True)
    left = folder / "00000000-0000-4000-8000-000000000000.jsonl.part"
    left.write_bytes(b"whole\nha")
    alive = CaptureFiles(CaptureLimits(), clock)
    alive.write(tmp_path, "e/v", b"alive\n")

    CaptureFiles(CaptureLimits(), clock).write(tmp_path, "e/v", b"other\n")

    assert [path.read_bytes() for path in complete_files(tmp_path)] == [b"whole\n"]
    alive.close()
    assert len(complete_files(tmp_path)) == 2


@pytest.mark.parametrize("limit", [{"root_bytes": 10}, {"disk_share": 0.5}])
def test_a_limit_ends_captures_and_not_requests(
    tmp_path: Path, limit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(100, 60, 40)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    recorder = Recorder(CaptureFiles(CaptureLimits(**{"disk_share": 1.0, **limit})))

    assert send(capture(tmp_path, recorder))

    recorder.close()
    assert recorder.counts() == {"dropped-full": 1}
    assert recorder.is_full(tmp_path)


def test_old_files_are_removed_and_files_of_the_users_own_are_not(
    tmp_path: Path, clock: Clock
) -> None:
    name = "11111111-1111-4111-8111-111111111111.jsonl"
    places = (tmp_path / "e/v" / name, tmp_path / "e/v/notes.jsonl", tmp_path / "mine" / name)
    for path in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
        os.utime(path, (0, 0))

    CaptureFiles(CaptureLimits(), clock).write(tmp_path, "e/v", b"{}\n")

    assert [path.exists() for path in places] == [False, True, True]


def test_a_queue_that_is_full_drops_and_counts(tmp_path: Path, gate: threading.Event) -> None:
    recorder = Recorder(max_rows=3)
    taken = [send(capture(tmp_path, recorder)) for _ in range(20)]
    gate.set()
    recorder.close()

    counts = recorder.counts()
    assert 3 <= sum(taken) <= 4  # one may be with the thread already
    assert counts["rows"] + counts["dropped-queue-full"] == 20
    assert not send(capture(tmp_path, recorder))


def test_a_share_is_drawn_and_large_answers_are_lost(tmp_path: Path) -> None:
    recorder = Recorder()
    half = capture(tmp_path, recorder, percent=50)
    assert [send(half) for _ in range(4)] == [True, False, True, False]
    assert not send(capture(tmp_path, recorder), b"{}", b"x" * MAX_EXCHANGE, b"y")
    recorder.close()

    assert recorder.counts()["dropped-too-large"] == 1


def test_a_folder_that_cannot_be_written_loses_rows_alone(tmp_path: Path) -> None:
    recorder = Recorder()
    (tmp_path / "e").write_text("no folder")

    assert send(capture(tmp_path, recorder))

    recorder.close()
    assert recorder.counts() == {"dropped-not-written": 1}


def test_the_capture_needs_the_standard_library_alone() -> None:
    needed = set()
    for path in (ROOT / "packager/core/capture").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9))):
            if isinstance(node, ast.ImportFrom):
                needed.add(str(node.module))
            elif isinstance(node, ast.Import):
                needed |= {name.name for name in node.names}

    roots = {
        name.partition(".")[0] for name in needed if not name.startswith("packager.core.capture.")
    }
    assert roots - sys.stdlib_module_names == set()
