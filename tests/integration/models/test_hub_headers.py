"""Planning from a hub: headers by ranges, weights left where they are."""

from __future__ import annotations

import hashlib

import pytest

from packager.core.errors import ProtocolFailed
from packager.core.image import RemoteRange
from tests.support.doubles.models import write_json
from tests.support.known import known
from tests.support.model_places import SHARD, Place
from tests.support.model_places import place as place


def test_nothing_but_headers_and_configuration_is_downloaded(place: Place) -> None:
    place.publish()

    place.headers()

    kept = [path.name for path in place.cache.rglob("*") if path.is_symlink()]
    assert sorted(kept) == ["config.json", "model.safetensors.index.json", "tokenizer_config.json"]
    assert place.hub.asked("/tokenizer.json") == []
    assert len(place.hub.asked("GET /blobs/")) == 3  # one for each shard


def test_added_tokens_are_read_from_the_tokenizers_beginning_alone(place: Place) -> None:
    """A plan from a hub and one from a directory choose the same parser."""
    write_json(place.model / "tokenizer_config.json", {})
    (place.model / "chat_template.jinja").write_text("{% if tools %}[TOOL_CALLS]{% endif %}")
    added = [{"content": "[TOOL_CALLS]"}]
    write_json(place.model / "tokenizer.json", {"added_tokens": added, "model": "x" * 3_000_000})
    place.publish()

    found, local = place.headers(), place.local()

    assert found.chat_template == local.chat_template
    assert known(found.chat_template).tokens == {"[TOOL_CALLS]"}
    assert not any(path.name == "tokenizer.json" for path in place.cache.rglob("*"))


def test_files_are_named_on_the_hub_by_their_commit(place: Place) -> None:
    commit = place.publish()
    size = (place.model / SHARD).stat().st_size
    sha256 = hashlib.sha256((place.model / SHARD).read_bytes()).hexdigest()

    (shard,) = [file for file in place.headers().files if file.path == SHARD]

    assert shard.content == RemoteRange(
        url=f"hf://org/name@{commit}/{SHARD}?size={size}&sha256={sha256}", offset=0, length=size
    )
    assert shard.sha256


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "cut off"])
def test_a_long_header_is_read(place: Place, monkeypatch: pytest.MonkeyPatch, ranges: bool) -> None:
    """A server without ranges is cut off there."""
    monkeypatch.setattr("packager.models.remote_headers.FIRST_BYTES", 64)
    place.publish()
    place.hub.ranges = ranges
    assert place.headers().tensors == place.local().tensors


def test_shards_in_the_cache_are_read_from_there(place: Place) -> None:
    place.publish()
    place.facts()
    place.hub.requests.clear()

    place.headers()

    assert place.hub.asked("/blobs/") == []


def test_a_model_planned_from_headers_is_downloaded_when_it_is_built(place: Place) -> None:
    place.publish()
    planned = place.headers()

    built = place.facts()

    assert built.ref == planned.ref
    assert not [file for file in built.files if isinstance(file.content, RemoteRange)]


def test_an_answer_that_is_cut_short_is_not_taken_for_a_broken_file(place: Place) -> None:
    place.publish()
    place.hub.cut_short = 10

    with pytest.raises(ProtocolFailed, match="sent 10 of"):
        place.headers()
