"""Files that are swapped between the check and the read: what was checked is what is read."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifact_cache import ArtifactCache
from packager.cli.app import run
from packager.core.errors import NotFound
from packager.core.files import opening
from packager.core.files.opening import identity_of, open_checked, open_range
from packager.core.image import Blob, FileRange
from packager.core.model import ModelFile
from packager.core.recipe import Step, StepInput, StepResult
from packager.core.tool import ToolFacts
from packager.images.blobs import BlobReader, FileUnreadable, SourceChanged
from packager.images.digest_index import fingerprint_of
from packager.images.layout.sink import LayoutSink
from packager.images.registry.sink import RegistrySink
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.optimize.steps.runner import RunSettings, StepRunner
from packager.optimize.steps.workspace import Workspace
from tests.support.cache_entries import NEURON, Build
from tests.support.cache_opening import open_local
from tests.support.cases import cases
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.made_images import whole
from tests.support.odd_files import pipe, unix_socket

SECRET = b"root:$6$canary-of-a-secret:19000:0:99999:7:::\n"
NOTES = b"n" * len(SECRET)
Swap = Callable[[Path, Path], None]  # the checked file, and one outside


class Call:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def as_old_as(place: Path, other: Path) -> None:
    status = other.stat(follow_symlinks=False)
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that only we may read; its size and time are for everybody to see."""
    path = tmp_path / "outside" / "tokenizer" / "notes.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def model(tmp_path: Path, secret: Path) -> Path:
    """A model with a note that has the size and the time of the secret."""
    model = write_model(tmp_path / "model")
    made = model / "tokenizer" / "notes.txt"
    made.parent.mkdir()
    made.write_bytes(NOTES)
    as_old_as(made, secret)
    return model


@pytest.fixture
def notes(model: Path) -> Path:
    return model / "tokenizer" / "notes.txt"


def by_rename(notes: Path, make: Callable[[Path], object]) -> None:
    made = notes.with_name("made")
    make(made)
    made.rename(notes)


def to_link(notes: Path, secret: Path) -> None:
    notes.unlink()
    notes.symlink_to(secret)


def to_hard_link(notes: Path, secret: Path) -> None:
    notes.unlink()
    notes.hardlink_to(secret)


def to_relative_link_by_rename(notes: Path, secret: Path) -> None:
    by_rename(notes, lambda made: made.symlink_to(os.path.relpath(secret, notes.parent)))


def to_pickle(notes: Path, secret: Path) -> None:
    def write(made: Path) -> None:
        made.write_bytes(pickle.dumps(Call()).ljust(len(SECRET), b"."))
        as_old_as(made, secret)

    by_rename(notes, write)


def to_written_in_place(notes: Path, secret: Path) -> None:
    notes.write_bytes(SECRET)
    as_old_as(notes, secret)


def aside(directory: Path) -> Path:
    return directory.rename(directory.with_name("aside"))


def to_other_directory(notes: Path, secret: Path) -> None:
    aside(notes.parent)
    shutil.copytree(secret.parent, notes.parent)


def to_link_of_directory(notes: Path, secret: Path) -> None:
    aside(notes.parent)
    notes.parent.symlink_to(secret.parent)


def to_link_of_model(notes: Path, secret: Path) -> None:
    model = notes.parent.parent
    aside(model)
    model.symlink_to(secret.parent.parent)


def endless_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def to(make: Callable[[Path], object]) -> Swap:
    def swap(notes: Path, secret: Path) -> None:
        notes.unlink()
        make(notes)

    return swap


SWAPS: dict[str, Swap] = {
    "a link": to_link,
    "a hard link": to_hard_link,
    "a relative link, by rename": to_relative_link_by_rename,
    "a pickle": to_pickle,
    "written in place": to_written_in_place,
    "its directory for another": to_other_directory,
    "its directory for a link": to_link_of_directory,
    "the model for a link": to_link_of_model,
    "a pipe": to(pipe),
    "a socket": to(unix_socket),
    "an endless device": to(endless_device),
    "a directory": to(Path.mkdir),
}


@pytest.fixture(params=SWAPS.values(), ids=SWAPS)
def swap(request: pytest.FixtureRequest) -> Swap:
    made: Swap = request.param
    return made


def build(model: Path, *outputs: str) -> int:
    given = [part for output in outputs for part in ("--output", output)]
    return run(["build", "--model", str(model), "--instance", "local", "--base", "scratch", *given])


def swap_when_prepared(
    monkeypatch: pytest.MonkeyPatch, sink: type[Any], swap: Callable[[], object]
) -> None:
    """Let somebody replace files once the checks are done, before any byte is read."""
    prepare = sink.prepare

    def swapped(self: object, image: object) -> None:
        prepare(self, image)
        swap()

    monkeypatch.setattr(sink, "prepare", swapped)


def test_a_file_outside_never_gets_into_a_pushed_image(
    notes: Path,
    secret: Path,
    swap: Swap,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The secret was in the pushed layer, and the build ended with status 0."""
    swap_when_prepared(monkeypatch, RegistrySink, lambda: swap(notes, secret))
    with FakeRegistry() as registry:
        assert build(notes.parent.parent, f"{registry.host}/team/model:1") == 65

        assert registry.manifests == {}
        assert not any(SECRET in blob for blob in registry.blobs.values())
        assert SECRET.decode().strip() not in "".join(capsys.readouterr())


def test_a_file_outside_never_gets_into_a_layout(
    notes: Path, secret: Path, swap: Swap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap_when_prepared(monkeypatch, LayoutSink, lambda: swap(notes, secret))

    assert build(notes.parent.parent, f"oci:{tmp_path / 'out'}") == 65
    assert not (tmp_path / "out" / "index.json").exists()
    blobs = (tmp_path / "out").rglob("blobs/sha256/*")
    assert not any(SECRET in blob.read_bytes() for blob in blobs)


def test_a_model_whose_files_stay_is_built(model: Path, tmp_path: Path) -> None:
    assert build(model, f"oci:{tmp_path / 'out'}") == 0
    blobs = [blob.read_bytes() for blob in (tmp_path / "out/blobs/sha256").iterdir()]
    assert any(NOTES in blob for blob in blobs)


@pytest.mark.parametrize("part", ["pickles", "header", "config"])
def test_a_swap_between_two_checks_is_noticed(
    model: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A file that passed one check is never read by the next when it is another by then."""
    from packager.models import contents

    names = {"pickles": "tokenizer.json", "header": "model-00001-of-00003.safetensors"}
    place = model / names.get(part, "config.json")
    check = contents.pickle_kind
    done: list[str] = []

    def swapped(*given: object, **options: object) -> str:
        if not done:
            other = place.with_name("made")
            shutil.copy2(place, other)
            other.rename(place)
        done.append("")
        return check(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(contents, "pickle_kind", swapped)
    with pytest.raises(SourceChanged):
        LocalSource().facts(parse_model_reference(str(model)))


# The cache of a hub is links


@pytest.fixture
def snapshot(tmp_path: Path, model: Path) -> Path:
    """The model as huggingface-hub keeps it."""
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / ("0" * 40)
    (snapshot / "tokenizer").mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(path for path in sorted(model.rglob("*")) if path.is_file()):
        blob = repository / "blobs" / f"{number:040x}"
        shutil.copy2(path, blob)
        link = snapshot / path.relative_to(model)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def test_links_inside_a_hub_s_cache_are_followed(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(tmp_path / "hub")
    by_link = tmp_path / "elsewhere" / snapshot.relative_to(tmp_path / "hub")

    assert build(snapshot, f"oci:{tmp_path / 'out'}") == 0
    assert build(by_link, f"oci:{tmp_path / 'other'}") == 0


def with_other_blobs(blob: Path, secret: Path) -> None:
    shutil.copytree(aside(blob.parent), blob.parent)
    shutil.copy2(secret, blob)


@cases("what_a_link_led_to_is_what_is_read")
def test_what_a_link_led_to_is_what_is_read(
    snapshot: Path,
    secret: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    swapped: str,
    status: int,
) -> None:
    link = snapshot / "tokenizer" / "notes.txt"
    place = link if swapped == "the link" else link.resolve()
    swap = with_other_blobs if swapped == "the blobs" else to_link
    swap_when_prepared(monkeypatch, LayoutSink, lambda: swap(place, secret))

    assert build(snapshot, f"oci:{tmp_path / 'out'}") == status

    blobs = [path.read_bytes() for path in (tmp_path / "out").rglob("blobs/sha256/*")]
    assert not any(SECRET in blob for blob in blobs)


# One file


@pytest.fixture(params=["openat2", "by parts"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The system call, and what is done where it is missing or forbidden."""
    if request.param == "by parts":
        monkeypatch.setattr(opening, "_openat2", lambda: None)
    elif opening._openat2() is None:
        pytest.skip("this system has no openat2")
    return str(request.param)


def checked(path: Path) -> FileRange:
    return replace(whole(path), checked=identity_of(path.stat()))


def test_the_file_that_was_checked_is_opened(way: str, notes: Path) -> None:
    with open_range(checked(notes)) as file:
        assert file.readall() == NOTES


def test_another_file_is_not_opened(way: str, notes: Path, secret: Path, swap: Swap) -> None:
    segment = checked(notes)
    before = fingerprint_of(Blob((segment,)))
    swap(notes, secret)

    with pytest.raises((SourceChanged, NotFound)):
        open_range(segment)
    with pytest.raises((SourceChanged, NotFound)):
        BlobReader().read(Blob((segment,)))
    assert before is not None
    assert fingerprint_of(Blob((segment,))) is None


def test_a_call_that_a_sandbox_forbids_is_done_without(
    notes: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: str) -> int:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(opening, "_openat2", lambda: forbidden)
    segment = checked(notes)

    with open_range(segment) as file:
        assert file.readall() == NOTES
    to_link(notes, secret)
    with pytest.raises(SourceChanged):
        open_range(segment)


def test_a_file_that_is_gone_is_named(way: str, model: Path) -> None:
    segment = checked(model / "config.json")
    (model / "config.json").unlink()

    with pytest.raises(NotFound, match=r"config\.json' is gone"):
        open_range(segment)


@pytest.mark.parametrize("what", ["a pipe", "a socket", "an endless device", "a directory"])
def test_what_is_no_file_is_never_waited_for(notes: Path, secret: Path, what: str) -> None:
    """Of files that nobody checked too: blobs of layouts, results of steps."""
    SWAPS[what](notes, secret)

    with pytest.raises(FileUnreadable):
        open_checked(str(notes))


def test_links_to_content_of_the_cache_change_nothing(tmp_path: Path) -> None:
    """Every hit of another build links to the same file."""
    path = tmp_path / "blob"
    path.write_bytes(b"content")
    segment = checked(path)
    proven = replace(segment, sha256="ab" * 32)
    (tmp_path / "link").hardlink_to(path)
    path.chmod(0o444)

    with open_range(proven) as file:
        assert file.readall() == b"content"
    with pytest.raises(SourceChanged):
        open_range(segment)


def test_a_file_system_that_numbers_files_anew_is_read(
    way: str, notes: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = identity_of(notes.stat())
    anew = (seen[0], seen[1] + 1, *seen[2:])
    with pytest.raises(SourceChanged):
        open_checked(str(notes), anew)

    monkeypatch.setattr(opening, "_renumbers", lambda device: True)
    with open_checked(str(notes), anew) as file:
        assert file.readall() == NOTES
    outside = identity_of(secret.stat())
    to_link(notes, secret)
    with pytest.raises(SourceChanged):
        open_checked(str(notes), (outside[0], outside[1] + 1, *outside[2:]))


@cases("the_mount_says_whether_files_are_numbered_anew")
def test_the_mount_says_whether_files_are_numbered_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: bool
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"30 1 7:41 / / rw - {kind} /dev/x rw\n31 1 0:5 / /proc rw - proc proc rw\n")
    monkeypatch.setattr(opening, "_MOUNTS", table)

    assert opening._renumbers.__wrapped__(os.makedev(7, 41)) is expected
    assert opening._renumbers.__wrapped__(os.makedev(7, 42)) is False


# Steps read files by their names


class Swapping(DryRunExecutor):
    """A tool that takes a while, in which somebody replaces its input."""

    def __init__(self, place: Path, secret: Path, swap: Swap) -> None:
        super().__init__(_tool)
        self._swap = lambda: swap(place, secret)

    def run(self, step: Step, into: Path) -> StepResult:
        self._swap()
        Build()(into)
        return StepResult()


def _tool(name: str) -> ToolFacts:
    return ToolFacts(name=name, requirements="a" * 64, worker="b" * 64, packages={}, installed=True)


def test_a_step_whose_input_was_swapped_gives_nothing(
    notes: Path, secret: Path, swap: Swap, tmp_path: Path
) -> None:
    given = StepInput(files=(ModelFile(path="notes.txt", role="other", content=checked(notes)),))
    step = Step(
        name="compile",
        tool="neuron",
        gives="compiled",
        key=NEURON,
        env=NEURON.invocation.env,
        inputs={"model": given},
    )
    cache: ArtifactCache = open_local(tmp_path / "cache/artifacts")

    with Workspace(tmp_path / "work") as workspace:
        runner = StepRunner(
            Swapping(notes, secret, swap),
            lambda: cache,
            workspace,
            RunSettings(),
        )
        with pytest.raises((SourceChanged, NotFound)):
            runner.run(step)

    assert cache.find(NEURON) is None
