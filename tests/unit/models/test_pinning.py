"""What is told while the files of a model are hashed."""

from __future__ import annotations

from pathlib import Path

from packager.core.events import Event, StepEvent
from packager.core.image import FileRange
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.models.pinning import pin_files

SIZE = 9_000_000


def model_at(root: Path) -> ModelFiles:
    files = []
    for name in ("one", "two"):
        (root / name).write_bytes(name.encode() * (SIZE // 3))
        content = FileRange(path=str(root / name), offset=0, length=SIZE)
        files.append(ModelFile(path=name, role="weights", content=content))
    return ModelFiles(
        ref=ModelRef(source="local", name="tiny"), files=tuple(files), config={}, tensors=()
    )


def test_hashing_counts_the_bytes_of_all_files_once(tmp_path: Path) -> None:
    seen: list[Event] = []
    index = DigestIndex(tmp_path / "index")

    pinned = pin_files(model_at(tmp_path), index, BlobReader(), seen.append)
    told = [event for event in seen if isinstance(event, StepEvent)]

    done = [event.done for event in told if event.state == "running"]
    assert {(event.step, event.size) for event in told if event.state == "running"} == {
        ("hash", 2 * SIZE)
    }
    assert (done, done[-1]) == (sorted(done), 2 * SIZE)
    assert [event.state for event in (told[0], told[-1])] == ["started", "finished"]
    assert len(pinned.files[1].sha256) == 64
