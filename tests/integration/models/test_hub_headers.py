"""Planning from a hub: headers by ranges, weights left where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.core.image import RemoteRange
from packager.core.model import ModelFiles
from packager.errors import ModelRefused, ProtocolFailed
from packager.models.hub import HubSource
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_json, write_model

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", hidden_size=256, intermediate_size=512)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub-cache"


def headers(hub: FakeHub, cache: Path) -> ModelFiles:
    source = HubSource(endpoint=hub.url, cache_dir=cache, token=hub.token, headers_only=True)
    return source.facts(parse_model_reference("org/name"))


def test_headers_tell_the_same_as_the_whole_model(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)

    found, local = headers(hub, cache), LocalSource().facts(parse_model_reference(str(model)))

    assert found.tensors == local.tensors
    assert found.config == local.config
    assert [(f.path, f.role, f.size) for f in found.files] == [
        (f.path, f.role, f.size) for f in local.files
    ]


def test_nothing_but_headers_and_configuration_is_downloaded(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)

    headers(hub, cache)

    kept = [path.name for path in cache.rglob("*") if path.is_symlink()]
    assert sorted(kept) == ["config.json", "model.safetensors.index.json", "tokenizer_config.json"]
    assert hub.asked("/tokenizer.json") == []
    assert len(hub.asked("GET /blobs/")) == 3  # one for each shard


def test_added_tokens_are_read_from_the_tokenizers_beginning_and_no_more_is_kept(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    """A plan from a hub and one from a directory choose the same parser."""
    write_json(model / "tokenizer_config.json", {})
    (model / "chat_template.jinja").write_text("{% if tools %}[TOOL_CALLS]{% endif %}")
    added = [{"content": "[TOOL_CALLS]"}]
    write_json(model / "tokenizer.json", {"added_tokens": added, "model": "x" * 3_000_000})
    hub.add("org/name", model)

    found, local = headers(hub, cache), LocalSource().facts(parse_model_reference(str(model)))

    assert found.chat_template == local.chat_template
    assert found.chat_template is not None
    assert found.chat_template.tokens == {"[TOOL_CALLS]"}
    assert not any(path.name == "tokenizer.json" for path in cache.rglob("*"))


def test_files_are_named_on_the_hub_by_their_commit(hub: FakeHub, cache: Path, model: Path) -> None:
    commit = hub.add("org/name", model)
    size = (model / SHARD).stat().st_size
    sha256 = hashlib.sha256((model / SHARD).read_bytes()).hexdigest()

    (shard,) = [file for file in headers(hub, cache).files if file.path == SHARD]

    assert shard.content == RemoteRange(
        url=f"hf://org/name@{commit}/{SHARD}?size={size}&sha256={sha256}", offset=0, length=size
    )
    assert shard.sha256


def test_a_header_longer_than_the_first_bytes_is_read_to_its_end(
    hub: FakeHub, cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packager.models.remote_headers.FIRST_BYTES", 64)
    hub.add("org/name", model)

    assert (
        headers(hub, cache).tensors
        == LocalSource().facts(parse_model_reference(str(model))).tensors
    )


def test_a_server_that_knows_no_ranges_is_cut_off(
    hub: FakeHub, cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packager.models.remote_headers.FIRST_BYTES", 64)
    hub.add("org/name", model)
    hub.ranges = False

    assert (
        headers(hub, cache).tensors
        == LocalSource().facts(parse_model_reference(str(model))).tensors
    )


def test_shards_in_the_cache_are_read_from_there(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    HubSource(endpoint=hub.url, cache_dir=cache, token=hub.token).facts(
        parse_model_reference("org/name")
    )
    hub.requests.clear()

    headers(hub, cache)

    assert hub.asked("/blobs/") == []


def test_a_model_planned_from_headers_is_downloaded_when_it_is_built(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)
    planned = headers(hub, cache)

    built = HubSource(endpoint=hub.url, cache_dir=cache, token=hub.token).facts(
        parse_model_reference("org/name")
    )

    assert built.ref == planned.ref
    assert not [file for file in built.files if isinstance(file.content, RemoteRange)]


def test_a_truncated_shard_is_refused_from_its_header(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    (model / SHARD).write_bytes((model / SHARD).read_bytes()[:-1])
    hub.add("org/name", model)

    with pytest.raises(ModelRefused, match=f"'{SHARD}' is not a sound.*truncated"):
        headers(hub, cache)


def test_a_pickle_under_a_harmless_name_is_refused(hub: FakeHub, cache: Path, model: Path) -> None:
    (model / SHARD).write_bytes(b"PK\x03\x04" + bytes(999))
    hub.add("org/name", model)

    with pytest.raises(ModelRefused, match="as torch"):
        headers(hub, cache)


def test_an_answer_that_is_cut_short_is_not_taken_for_a_broken_file(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)
    hub.cut_short = 10

    with pytest.raises(ProtocolFailed, match="sent 10 of"):
        headers(hub, cache)
