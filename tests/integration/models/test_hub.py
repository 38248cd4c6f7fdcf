"""Models on a hub: pinned, chosen before the download, proven by digest."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.errors import ModelRefused, OutputFailed, ProtocolFailed, UsageError
from packager.core.remote.hub_failures import HubRequest, explain
from packager.models.proof import check_bytes
from packager.models.rules import ListedModelFile
from packager.models.walk import plain_file
from tests.support.doubles.models import write_model
from tests.support.known import known
from tests.support.model_places import SHARD, Place, blob
from tests.support.model_places import place as place
from tests.support.processes import run_python

ASKED = HubRequest(name="org/name", revision="main", endpoint="https://hub.example", token=False)


def test_a_model_is_pinned_to_a_commit(place: Place) -> None:
    commit = place.publish()
    ref = place.facts().ref
    assert (ref.source, ref.name, ref.revision) == ("hub", "org/name", commit)


def test_weights_carry_the_digest_that_the_hub_lists(place: Place) -> None:
    commit = place.publish()
    listed = place.hub.repositories["org/name"].commits[commit][SHARD].sha256
    digests = {file.path: file.sha256 for file in place.facts().files}
    assert digests[SHARD] == listed
    assert digests["config.json"] == ""


def test_a_branch_is_asked_for_and_a_commit_is_downloaded(place: Place) -> None:
    commit = place.publish(revision="v2")
    place.facts("org/name@v2")
    assert place.hub.requests[0] == "GET /api/models/org/name/revision/v2"
    assert all(commit in request for request in place.hub.asked("resolve"))


def test_pickled_weights_beside_safetensors_are_not_downloaded(place: Place) -> None:
    place.publish_with({"pytorch_model.bin": b"x" * 99, "x.py": b"import os"})
    found = place.facts()
    assert dict(found.left_out) == {
        "pytorch_model.bin": "pickle: can run code when it is loaded",
        "x.py": "code is not packaged",
    }
    assert place.hub.asked("pytorch_model.bin") == place.hub.asked("x.py") == []
    assert len(place.hub.asked("/blobs/")) == 3


def test_shards_that_the_index_does_not_name_are_not_downloaded(place: Place) -> None:
    place.publish_with({"consolidated.safetensors": b"x" * 99})
    found = place.facts()
    assert "consolidated.safetensors" in found.left_out
    assert place.hub.asked("consolidated") == []


def test_only_pickled_weights_are_refused_before_any_download(place: Place) -> None:
    place.publish({"config.json": b"{}", "tokenizer.json": b"{}", "model.bin": b"x"})
    with pytest.raises(ModelRefused, match="pickle files only"):
        place.facts()
    assert place.hub.asked("resolve") == []


def test_a_missing_shard_is_refused_before_the_others_are_downloaded(place: Place) -> None:
    (place.model / SHARD).unlink()
    place.publish()
    with pytest.raises(ModelRefused, match=f"lacks '{SHARD}'"):
        place.facts()
    assert place.hub.asked("/blobs/") == []


def test_needed_code_is_refused_before_weights_are_downloaded(place: Place, tmp_path: Path) -> None:
    place.publish(
        write_model(
            tmp_path / "m",
            config={"architectures": ["New"], "auto_map": {"AutoConfig": "c.Config"}},
        )
    )
    with pytest.raises(ModelRefused, match="auto_map"):
        place.facts()
    assert place.hub.asked("/blobs/") == []


@pytest.mark.parametrize("path", ["../../escape.json", "/etc/escape.json", "a\\b.json"])
def test_a_hub_that_lists_an_unsafe_path_is_refused(place: Place, path: str) -> None:
    place.publish_with({path: b"{}"})
    with pytest.raises(ModelRefused, match="unsafe name"):
        place.facts()
    assert place.hub.asked("resolve") == []


def test_names_with_brackets_are_downloaded_literally(place: Place) -> None:
    place.publish_with({"prompt[1].txt": b"x", "prompt1.py": b"y"})
    assert "prompt[1].txt" in [file.path for file in place.facts().files]


# The second time


def test_nothing_is_downloaded_twice(place: Place) -> None:
    place.publish()
    first = place.facts()
    place.hub.requests.clear()
    assert place.facts() == first
    assert place.hub.requests == ["GET /api/models/org/name/revision/main"]


def test_a_commit_that_is_known_needs_no_hub(place: Place) -> None:
    commit = place.publish()
    first = place.facts()
    place.hub.requests.clear()
    assert place.facts(f"org/name@{commit}") == first
    assert place.hub.requests == []


def test_a_branch_that_moved_is_followed(place: Place, tmp_path: Path) -> None:
    place.publish(write_model(tmp_path / "old"))
    place.facts()
    moved = place.publish(write_model(tmp_path / "new", seed=7))
    assert place.facts().ref.revision == moved


def test_proven_files_are_not_hashed_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.publish()
    place.facts()
    monkeypatch.setattr("packager.models.hub.check_bytes", None)
    place.facts()


def test_a_cache_that_cannot_be_noted_in_costs_only_another_hash(place: Place) -> None:
    place.publish()
    (place.cache / "models--org--name").mkdir(parents=True)
    (place.cache / "models--org--name" / "packager").write_text("a file where our notes would be")
    assert place.facts() == place.facts()


@pytest.mark.parametrize(
    "notes", ["", "[]", "{}", '{"schema": 1, "files": {"a": 1}, "proven": [1]}', '{"schema": 9}']
)
def test_damaged_notes_are_ignored(place: Place, notes: str) -> None:
    commit = place.publish()
    first = place.facts()
    (place.cache / "models--org--name" / "packager" / f"{commit}.json").write_text(notes)
    assert place.facts(f"org/name@{commit}") == first


# Proof


def test_bytes_damaged_on_the_way_are_fetched_again(place: Place) -> None:
    place.publish()
    place.hub.damaged[SHARD] = 1
    assert blob(place.facts(), SHARD).read_bytes() == (place.model / SHARD).read_bytes()


def test_bytes_that_stay_wrong_are_refused(place: Place) -> None:
    place.publish()
    place.hub.damaged[SHARD] = 9
    with pytest.raises(ModelRefused, match="not what the hub lists: sha256") as caught:
        place.facts()
    assert "delete" in caught.value.hint


def test_bytes_damaged_in_the_cache_are_found_and_fetched_again(place: Place) -> None:
    place.publish()
    held = blob(place.facts(), SHARD)
    held.chmod(0o644)
    held.write_bytes(bytes(held.stat().st_size))
    assert blob(place.facts(), SHARD).read_bytes() == (place.model / SHARD).read_bytes()


def test_a_small_file_damaged_in_the_cache_is_found_too(place: Place) -> None:
    place.publish()
    held = blob(place.facts(), "config.json")
    held.chmod(0o644)
    held.write_bytes(held.read_bytes().replace(b"512", b"999"))
    assert place.facts().config["max_position_embeddings"] == 512


def test_a_file_without_a_digest_is_proven_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1234")
    with pytest.raises(ModelRefused, match="4 bytes instead of 5"):
        check_bytes(plain_file(tmp_path / "x", "x"), ListedModelFile(size=5))


def test_a_snapshot_link_that_leads_elsewhere_is_refused(place: Place, tmp_path: Path) -> None:
    commit = place.publish()
    place.facts()
    link = place.cache / "models--org--name" / "snapshots" / commit / "config.json"
    link.unlink()
    link.symlink_to(place.model / "config.json")
    with pytest.raises(ModelRefused, match="leads out"):
        place.facts()


# Failures


def test_the_right_token_opens_a_private_model(place: Place) -> None:
    place.publish(private=True)
    assert place.facts().ref.name == "org/name"


def test_a_mirror_that_hides_sizes_is_no_hub(place: Place) -> None:
    place.publish()
    place.hub.names_only = True
    with pytest.raises(ProtocolFailed, match="does not say how long"):
        place.facts()


@pytest.mark.parametrize(
    ("code", "why"), [(errno.ENOSPC, "is full"), (errno.EROFS, "cannot be written")]
)
def test_a_disk_that_takes_no_more(code: int, why: str) -> None:
    error = explain(OSError(code, "x"), ASKED)
    assert isinstance(error, OutputFailed)
    assert why in error.message
    assert "HF_HOME" in error.hint


def test_credentials_in_an_endpoint_are_not_repeated() -> None:
    from huggingface_hub.errors import OfflineModeIsEnabled, RevisionNotFoundError

    for kind in (RevisionNotFoundError, OfflineModeIsEnabled):
        asked = replace(ASKED, endpoint="https://me:secret@hub.example")
        error = known(explain(kind.__new__(kind), asked))
        assert "secret" not in error.message + error.hint


def test_a_name_that_hubs_forbid_is_a_usage_error(place: Place) -> None:
    with pytest.raises(UsageError, match="not a name that a hub allows"):
        place.facts("org/a--b")


# The environment, which huggingface-hub reads when it is imported

SHOW = """
import json, sys
from packager.models.hub import HubSource
from packager.core.errors import PackagerError
from packager.models.reference import parse_model_reference
try:
    found = HubSource().facts(parse_model_reference(sys.argv[1]))
    print(json.dumps([found.ref.revision, len(found.files)]))
except PackagerError as error:
    print(json.dumps([type(error).__name__, error.message, error.hint]))
"""


def run(tmp_path: Path, reference: str = "org/name", **environment: str) -> tuple[list[str], str]:
    env = {"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path / "home"), **environment}
    done = run_python("-c", SHOW, reference, env=env, alone=True)
    return json.loads(done.stdout), done.stderr


def test_endpoint_token_and_cache_come_from_the_environment(place: Place, tmp_path: Path) -> None:
    commit = place.publish(private=True)
    answer, messages = run(tmp_path, HF_ENDPOINT=place.hub.url, HF_TOKEN="hf_right")
    assert answer == [commit, 7]
    assert (tmp_path / "home" / "hub" / "models--org--name").is_dir()
    assert "%|" not in messages  # no progress bar where nobody watches


def test_offline_a_model_comes_from_the_cache(place: Place, tmp_path: Path) -> None:
    commit = place.publish()
    run(tmp_path, HF_ENDPOINT=place.hub.url)
    place.hub.requests.clear()
    answer, _ = run(tmp_path, HF_ENDPOINT=place.hub.url, HF_HUB_OFFLINE="1")
    assert answer == [commit, 7]
    assert place.hub.requests == []


def test_offline_a_download_by_another_program_is_proven_too(place: Place, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download

    place.publish()
    place.hub.damaged[SHARD] = 1
    cached = tmp_path / "home" / "hub"
    snapshot_download("org/name", endpoint=place.hub.url, cache_dir=cached, token=False)
    answer, _ = run(tmp_path, HF_HUB_OFFLINE="1")
    assert answer[0] == "WrongBytes"
    assert answer[1].startswith(f"'{SHARD}' is not what the hub lists: sha256")


def test_offline_a_file_lost_from_the_cache_is_not_found(place: Place, tmp_path: Path) -> None:
    commit = place.publish()
    run(tmp_path, HF_ENDPOINT=place.hub.url)
    home = tmp_path / "home" / "hub" / "models--org--name"
    (home / "snapshots" / commit / SHARD).unlink()
    answer, _ = run(tmp_path, HF_HUB_OFFLINE="1")
    assert answer[0] == "NotFound"
    assert "HF_HUB_OFFLINE" in answer[1]
