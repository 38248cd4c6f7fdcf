"""Inputs of a step that another machine runs: found there, or handed on by what they hold."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from artifact_cache.key import key_of
from packager.core.errors import ModelRefused, NotFound, PackagerError
from packager.core.files.opening import identity_of
from packager.core.image import FileRange, Inline, RemoteRange
from packager.core.model import ModelFile
from packager.core.order import StepOrder
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.optimize.steps.presence import Presence
from packager.optimize.steps.ray.exchange import FileExchange, InputFinder, InputsMissing
from packager.optimize.steps.ray.orders import make_order
from tests.support.cache_entries import CHECKPOINT
from tests.support.cache_opening import open_cache
from tests.support.cases import cases
from tests.support.tool_steps import checkpoint_step

DATA = b"weights" * 100
SHA256 = hashlib.sha256(DATA).hexdigest()


def scratch(root: Path) -> Callable[[str], Path]:
    numbers = itertools.count()

    def make(name: str) -> Path:
        place = root / f"{name}-{next(numbers)}"
        place.mkdir(parents=True)
        return place

    return make


class Sides:
    """The machine that asks, and a node with a cache of its own."""

    def __init__(self, place: Path) -> None:
        self.shared = f"dir:{place / 'shared'}"
        self.ours = open_cache(place / "ours", [self.shared])
        self.theirs = open_cache(place / "theirs", [self.shared])
        self.reader = BlobReader()
        presence = Presence(
            self.ours, [self.shared], partial=place / "partial", work_dir=place / "work"
        )

        @contextmanager
        def lent() -> Iterator[Callable[[str], Path]]:
            yield scratch(place / "scratch" / os.urandom(4).hex())

        self.exchange = FileExchange(presence, scratch=lent, read=self.reader.chunks, version="1")
        self.finder = InputFinder(
            self.theirs,
            make_directory=scratch(place / "found"),
            read=self.reader.chunks,
            index=DigestIndex(place / "digests.sqlite"),
        )

    def found(self, *files: ModelFile) -> tuple[ModelFile, ...]:
        """Ask the node for files, as an order names them."""
        return self.finder.inputs(self.order(*files))["model"]

    def order(self, *files: ModelFile) -> StepOrder:
        return make_order(checkpoint_step(files), self.exchange.digest)

    def content(self, file: ModelFile) -> bytes:
        assert isinstance(file.content, FileRange)
        return Path(file.content.path).read_bytes()


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


def on_disk(path: Path, data: bytes = DATA) -> ModelFile:
    path.write_bytes(data)
    content = FileRange(path=str(path), offset=0, length=len(data))
    digest = hashlib.sha256(data).hexdigest()
    return ModelFile(path="m.safetensors", role="weights", content=content, sha256=digest)


def gone(sides: Sides, place: Path, origin: str) -> StepOrder:
    """Order a file that is not where it was any more, and says where it is from."""
    order = sides.order(replace(on_disk(place / "m.safetensors"), origin=origin))
    (place / "m.safetensors").unlink()
    return order


def test_a_file_under_the_same_path_with_the_same_content_is_used_where_it_is(
    sides: Sides, tmp_path: Path
) -> None:
    file = on_disk(tmp_path / "m.safetensors")

    [found] = sides.found(file)

    assert found.content == replace(file.content, checked=found.content.checked)  # type: ignore[union-attr]
    assert found.sha256 == SHA256


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: path.write_bytes(b"W" + DATA[1:]), id="other-bytes"),
        pytest.param(lambda path: path.write_bytes(DATA + b"x"), id="longer"),
        pytest.param(lambda path: path.unlink(), id="gone"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), id="a-directory"),
        pytest.param(lambda path: (path.unlink(), os.mkfifo(path)), id="a-pipe"),
        pytest.param(lambda path: (path.unlink(), path.symlink_to("/dev/zero")), id="a-link"),
    ],
)
def test_a_file_under_the_same_path_with_other_content_is_missing(
    sides: Sides, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    order = sides.order(on_disk(tmp_path / "m.safetensors"))
    change(tmp_path / "m.safetensors")

    with pytest.raises(InputsMissing) as caught:
        sides.finder.inputs(order)

    assert caught.value.digests == (SHA256,)


def test_a_handed_on_file_is_found_and_shares_nothing(sides: Sides, tmp_path: Path) -> None:
    place = tmp_path / "m.safetensors"
    file = on_disk(place)
    place.chmod(0o444)
    inode = place.stat().st_ino
    sides.exchange.offer_file(file, SHA256)
    order = sides.order(file)
    place.rename(tmp_path / "away")  # its inode stays taken

    [found] = sides.finder.inputs(order)["model"]

    assert sides.content(found) == DATA
    assert isinstance(found.content, FileRange)
    assert found.content.sha256 == SHA256
    inodes = {blob.stat().st_ino for blob in tmp_path.glob("shared/cas/sha256/*/*")}
    assert inode not in inodes


def test_a_file_changed_since_its_digest_is_not_handed_on(sides: Sides, tmp_path: Path) -> None:
    file = on_disk(tmp_path / "m.safetensors")
    status = (tmp_path / "m.safetensors").stat()
    content = FileRange(
        path=str(tmp_path / "m.safetensors"),
        offset=0,
        length=len(DATA),
        checked=identity_of(status),
    )
    (tmp_path / "m.safetensors").write_bytes(b"W" + DATA[1:])

    with pytest.raises(ModelRefused, match="changed"):
        sides.exchange.offer_file(replace(file, content=content), SHA256)


def test_the_result_of_an_earlier_step_is_found_in_its_entry(sides: Sides, tmp_path: Path) -> None:
    def build(place: Path) -> None:
        (place / "deep").mkdir()
        (place / "deep/m.safetensors").write_bytes(DATA)

    sides.ours.get_or_build(CHECKPOINT, build, tmp_path / "result")
    origin = f"cache://quantized-checkpoint/{key_of(CHECKPOINT)}/deep/m.safetensors"
    order = gone(sides, tmp_path, origin)

    [found] = sides.finder.inputs(order)["model"]

    assert sides.content(found) == DATA
    other = order.inputs["model"][0].model_copy(update={"sha256": "0" * 64})
    with pytest.raises(InputsMissing):
        sides.finder.inputs(order.model_copy(update={"inputs": {"model": (other,)}}))


@cases("hub")
def test_a_file_of_a_hub_is_fetched_at_its_commit(
    sides: Sides, tmp_path: Path, origin: str, found: bool
) -> None:
    query = origin.replace("SIZE", str(len(DATA))).replace("SHA256", SHA256)
    url = f"hf://org/name@{'a' * 40}/m.safetensors?{query}"
    order = gone(sides, tmp_path, url)

    if not found:
        with pytest.raises(InputsMissing):
            sides.finder.inputs(order)
        return
    [file] = sides.finder.inputs(order)["model"]
    assert file.content == RemoteRange(url=url, offset=0, length=len(DATA))


def test_an_order_and_what_was_made_here_reach_the_node(sides: Sides) -> None:
    config = ModelFile(path="config.json", role="config", content=Inline(b'{"a": 1}'))
    order = sides.order(config)

    digest = sides.exchange.offer_order(order)
    arrived = sides.finder.order(digest)

    assert arrived == order
    assert sides.finder.inputs(arrived)["model"][0].content == Inline(b'{"a": 1}')
    assert sides.exchange.offer_order(order) == digest


def test_a_node_that_sees_another_store_says_so_before_it_works(tmp_path: Path) -> None:
    """A directory that is not mounted there is made anew, and results would stay in it."""
    here, there = Sides(tmp_path / "a"), Sides(tmp_path / "b")
    digest = here.exchange.offer_order(here.order())

    with pytest.raises(NotFound, match="not in the shared cache as this node sees it") as caught:
        there.finder.order(digest)

    assert "mounted" in caught.value.hint


def test_nothing_handed_on_stays_in_this_machines_cache(sides: Sides, tmp_path: Path) -> None:
    sides.exchange.offer_file(on_disk(tmp_path / "m.safetensors"), SHA256)

    assert list(tmp_path.glob("ours/ac/*/*/*")) == []


@cases("not_pinned")
def test_an_origin_not_pinned_is_passed_over(sides: Sides, tmp_path: Path, origin: str) -> None:
    with pytest.raises(InputsMissing):
        sides.finder.inputs(gone(sides, tmp_path, origin))


@cases("an_order_that_cannot_be_read_is_a_failure_that_says_so")
def test_an_order_that_cannot_be_read_is_a_failure_that_says_so(
    sides: Sides, tmp_path: Path, data: bytes
) -> None:
    digest = hashlib.sha256(data).hexdigest()
    sides.exchange.offer_file(on_disk(tmp_path / "order", data), digest)

    with pytest.raises(PackagerError, match=f"order {digest[:12]} cannot be read"):
        sides.finder.order(digest)
