"""get-or-build: built once, found again, and never in the way of a build."""

from __future__ import annotations

import threading
from pathlib import Path

from artifact_cache.cache import ArtifactCache
from artifact_cache.results import Notice
from tests.support.cache_entries import CHECKPOINT, Build, files_of
from tests.support.cache_opening import open_local
from tests.support.places import files_below
from tests.support.processes import run_python
from tests.unit.artifact_cache.test_cache import codes


def test_a_second_process_waits_knowingly(root: Path, cache: ArtifactCache, tmp_path: Path) -> None:
    heard: list[Notice] = []
    waiting = threading.Event()

    def listen(notice: Notice) -> None:
        heard.append(notice)
        waiting.set()

    def build(directory: Path) -> None:
        other.start()
        assert waiting.wait(60)
        Build()(directory)

    second = Build()
    listener = open_local(root, notify=listen)
    other = threading.Thread(
        target=listener.get_or_build, args=(CHECKPOINT, second, tmp_path / "b")
    )
    cache.get_or_build(CHECKPOINT, build, tmp_path / "a")
    other.join()

    assert second.runs == 0
    assert [notice.code for notice in heard] == ["waiting"]
    assert heard[0].message.endswith("is building the same quantized-checkpoint")


def test_a_wait_ends(root: Path, cache: ArtifactCache, tmp_path: Path) -> None:
    """A holder that never finishes must not hold up everyone for ever."""
    impatient = open_local(root, wait_s=0.2)
    second = Build(b"second")

    def never_done(directory: Path) -> None:
        thread = threading.Thread(
            target=lambda: results.append(
                impatient.get_or_build(CHECKPOINT, second, tmp_path / "b")
            )
        )
        thread.start()
        thread.join()
        Build(b"first")(directory)

    results = []  # type: ignore[var-annotated]
    adopted = cache.get_or_build(CHECKPOINT, never_done, tmp_path / "a")

    assert codes(results[0].notices) == ["waiting", "lock"]
    assert files_below(adopted.path) == files_below(results[0].path) == files_of(b"second")


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, artifact_cache\n"
        "assert not {'pydantic', 'filelock', 'packager'} & set(sys.modules)\n"
        "for name in artifact_cache.__all__: getattr(artifact_cache, name)\n"
        "assert 'packager' not in sys.modules\n"
    )
    run_python("-c", code)
