"""Models on a hub: pinned, chosen before the download, proven by digest."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.model import ModelFiles
from packager.errors import (
    AccessDenied,
    ModelRefused,
    NotFound,
    OutputFailed,
    ProtocolFailed,
    Unavailable,
    UsageError,
)
from packager.models.hub import HubSource
from packager.models.local import LocalSource
from packager.models.proof import check_bytes
from packager.models.reference import parse_model_reference
from packager.models.rules import ListedFile
from packager.models.walk import plain_file
from packager.remote.hub_failures import Asked, explain
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model

ASKED = Asked(name="org/name", revision="main", endpoint="https://hub.example", token=False)
SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub-cache"


def facts(
    hub: FakeHub, cache: Path, reference: str = "org/name", *, token: str | bool = "hf_right"
) -> ModelFiles:
    return HubSource(endpoint=hub.url, cache_dir=cache, token=token).facts(
        parse_model_reference(reference)
    )


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def blob(found: ModelFiles, path: str) -> Path:
    content = next(file.content for file in found.files if file.path == path)
    return Path(content.path)  # type: ignore[union-attr]


def test_a_model_is_pinned_to_a_commit(hub: FakeHub, cache: Path, model: Path) -> None:
    commit = hub.add("org/name", model)
    ref = facts(hub, cache).ref
    assert (ref.source, ref.name, ref.revision) == ("hub", "org/name", commit)


def test_a_downloaded_model_equals_the_directory(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    found, local = facts(hub, cache), LocalSource().facts(parse_model_reference(str(model)))
    assert [(file.path, file.role, file.size) for file in found.files] == [
        (file.path, file.role, file.size) for file in local.files
    ]
    assert found.tensors == local.tensors
    assert found.config == local.config


def test_weights_carry_the_digest_that_the_hub_lists(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    commit = hub.add("org/name", model)
    listed = hub.repositories["org/name"].commits[commit][SHARD].sha256
    digests = {file.path: file.sha256 for file in facts(hub, cache).files}
    assert digests[SHARD] == listed
    assert digests["config.json"] == ""


def test_a_branch_is_asked_for_and_a_commit_is_downloaded(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    commit = hub.add("org/name", model, revision="v2")
    facts(hub, cache, "org/name@v2")
    assert hub.requests[0] == "GET /api/models/org/name/revision/v2"
    assert all(commit in request for request in hub.asked("resolve"))


def test_pickled_weights_beside_safetensors_are_not_downloaded(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", {**files_in(model), "pytorch_model.bin": b"x" * 99, "x.py": b"import os"})
    found = facts(hub, cache)
    assert dict(found.left_out) == {
        "pytorch_model.bin": "pickle: can run code when it is loaded",
        "x.py": "code is not packaged",
    }
    assert hub.asked("pytorch_model.bin") == hub.asked("x.py") == []
    assert len(hub.asked("/blobs/")) == 3


def test_shards_that_the_index_does_not_name_are_not_downloaded(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", {**files_in(model), "consolidated.safetensors": b"x" * 99})
    found = facts(hub, cache)
    assert "consolidated.safetensors" in found.left_out
    assert hub.asked("consolidated") == []


def test_only_pickled_weights_are_refused_before_any_download(hub: FakeHub, cache: Path) -> None:
    hub.add("org/name", {"config.json": b"{}", "tokenizer.json": b"{}", "model.bin": b"x"})
    with pytest.raises(ModelRefused, match="pickle files only"):
        facts(hub, cache)
    assert hub.asked("resolve") == []


def test_a_missing_shard_is_refused_before_the_others_are_downloaded(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    (model / SHARD).unlink()
    hub.add("org/name", model)
    with pytest.raises(ModelRefused, match=f"lacks '{SHARD}'"):
        facts(hub, cache)
    assert hub.asked("/blobs/") == []


def test_code_that_is_needed_is_refused_before_weights_are_downloaded(
    hub: FakeHub, cache: Path, tmp_path: Path
) -> None:
    hub.add(
        "org/name",
        write_model(
            tmp_path / "m",
            config={"architectures": ["New"], "auto_map": {"AutoConfig": "c.Config"}},
        ),
    )
    with pytest.raises(ModelRefused, match="auto_map"):
        facts(hub, cache)
    assert hub.asked("/blobs/") == []


@pytest.mark.parametrize("path", ["../../escape.json", "/etc/escape.json", "a\\b.json"])
def test_a_hub_that_lists_an_unsafe_path_is_refused(
    hub: FakeHub, cache: Path, model: Path, path: str
) -> None:
    hub.add("org/name", {**files_in(model), path: b"{}"})
    with pytest.raises(ModelRefused, match="unsafe name"):
        facts(hub, cache)
    assert hub.asked("resolve") == []


def test_a_pickle_under_a_harmless_name_is_refused(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", {**files_in(model), "tokenizer.json": b"\x80\x04}\x94."})
    with pytest.raises(ModelRefused, match="it is a pickle"):
        facts(hub, cache)


def test_names_with_brackets_are_downloaded_literally(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", {**files_in(model), "prompt[1].txt": b"x", "prompt1.py": b"y"})
    assert "prompt[1].txt" in [file.path for file in facts(hub, cache).files]


# The second time


def test_nothing_is_downloaded_twice(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    first = facts(hub, cache)
    hub.requests.clear()
    assert facts(hub, cache) == first
    assert hub.requests == ["GET /api/models/org/name/revision/main"]


def test_a_commit_that_is_known_needs_no_hub(hub: FakeHub, cache: Path, model: Path) -> None:
    commit = hub.add("org/name", model)
    first = facts(hub, cache)
    hub.requests.clear()
    assert facts(hub, cache, f"org/name@{commit}") == first
    assert hub.requests == []


def test_a_branch_that_moved_is_followed(hub: FakeHub, cache: Path, tmp_path: Path) -> None:
    hub.add("org/name", write_model(tmp_path / "old"))
    facts(hub, cache)
    moved = hub.add("org/name", write_model(tmp_path / "new", seed=7))
    assert facts(hub, cache).ref.revision == moved


def test_files_that_were_proven_are_not_hashed_again(
    hub: FakeHub, cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/name", model)
    facts(hub, cache)
    monkeypatch.setattr("packager.models.hub.check_bytes", None)
    facts(hub, cache)


def test_a_cache_that_cannot_be_noted_in_costs_only_another_hash(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)
    (cache / "models--org--name").mkdir(parents=True)
    (cache / "models--org--name" / "packager").write_text("a file where our notes would be")
    assert facts(hub, cache) == facts(hub, cache)


@pytest.mark.parametrize(
    "notes", ["", "[]", "{}", '{"schema": 1, "files": {"a": 1}, "proven": [1]}', '{"schema": 9}']
)
def test_damaged_notes_are_ignored(hub: FakeHub, cache: Path, model: Path, notes: str) -> None:
    commit = hub.add("org/name", model)
    first = facts(hub, cache)
    (cache / "models--org--name" / "packager" / f"{commit}.json").write_text(notes)
    assert facts(hub, cache, f"org/name@{commit}") == first


# Proof


def test_bytes_damaged_on_the_way_are_fetched_again(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    hub.damaged[SHARD] = 1
    assert blob(facts(hub, cache), SHARD).read_bytes() == (model / SHARD).read_bytes()


def test_bytes_that_stay_wrong_are_refused(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    hub.damaged[SHARD] = 9
    with pytest.raises(ModelRefused, match="not what the hub lists: sha256") as caught:
        facts(hub, cache)
    assert "delete" in caught.value.hint


def test_bytes_damaged_in_the_cache_are_found_and_fetched_again(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)
    place = blob(facts(hub, cache), SHARD)
    place.chmod(0o644)
    place.write_bytes(bytes(place.stat().st_size))
    assert blob(facts(hub, cache), SHARD).read_bytes() == (model / SHARD).read_bytes()


def test_a_small_file_damaged_in_the_cache_is_found_too(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)
    place = blob(facts(hub, cache), "config.json")
    place.chmod(0o644)
    place.write_bytes(place.read_bytes().replace(b"512", b"999"))
    assert facts(hub, cache).config["max_position_embeddings"] == 512


def test_a_file_without_a_digest_is_proven_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1234")
    with pytest.raises(ModelRefused, match="4 bytes instead of 5"):
        check_bytes(plain_file(tmp_path / "x", "x"), ListedFile(size=5))


def test_a_snapshot_link_that_leads_elsewhere_is_refused(
    hub: FakeHub, cache: Path, model: Path, tmp_path: Path
) -> None:
    commit = hub.add("org/name", model)
    facts(hub, cache)
    link = cache / "models--org--name" / "snapshots" / commit / "config.json"
    link.unlink()
    link.symlink_to(model / "config.json")
    with pytest.raises(ModelRefused, match="leads out"):
        facts(hub, cache)


# Failures


def test_a_model_that_is_not_there(hub: FakeHub, cache: Path) -> None:
    with pytest.raises(NotFound, match=r"127\.0\.0\.1 has no model 'org/name'") as caught:
        facts(hub, cache)
    assert "HF_TOKEN" in caught.value.hint


def test_a_revision_that_is_not_there(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    with pytest.raises(NotFound, match="no revision 'v9'"):
        facts(hub, cache, "org/name@v9")


@pytest.mark.parametrize(
    ("token", "needed"),
    [
        ("hf_right", "with the account of the token"),
        (False, "then set HF_TOKEN to a token of"),
    ],
)
def test_a_gated_model_asks_for_its_conditions_and_a_token(
    hub: FakeHub, cache: Path, model: Path, token: str | bool, needed: str
) -> None:
    hub.add("org/name", model, gated=True)
    with pytest.raises(AccessDenied, match="'org/name' is gated") as caught:
        facts(hub, cache, token=token)
    assert f"{hub.url}/org/name" in caught.value.hint
    assert needed in caught.value.hint


def test_a_wrong_token_is_refused_and_not_repeated(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    with pytest.raises(AccessDenied, match=r"refuses access to 'org/name' \(401\)") as caught:
        facts(hub, cache, token="hf_secret")
    assert "hf_secret" not in caught.value.message + caught.value.hint


def test_the_right_token_opens_a_private_model(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model, private=True)
    assert facts(hub, cache).ref.name == "org/name"


def test_a_forbidden_model(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    hub.failing["/api/"] = 403
    with pytest.raises(AccessDenied, match="403"):
        facts(hub, cache)


@pytest.mark.parametrize(("status", "why"), [(429, "too many requests"), (500, "answers 500")])
def test_a_hub_in_trouble_is_unavailable(
    hub: FakeHub, cache: Path, model: Path, status: int, why: str
) -> None:
    hub.add("org/name", model)
    hub.failing["/api/"] = status
    with pytest.raises(Unavailable, match=why):
        facts(hub, cache)


def test_a_hub_that_does_not_answer_is_unavailable(cache: Path) -> None:
    with FakeHub() as gone:
        url = gone.url
    with pytest.raises(
        Unavailable, match=r"cannot reach 127\.0\.0\.1:\d+ for 'org/name': connection refused"
    ) as caught:
        HubSource(endpoint=url, cache_dir=cache).facts(parse_model_reference("org/name"))
    assert "HF_ENDPOINT" in caught.value.hint


def test_a_mirror_that_hides_sizes_is_no_hub(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)
    hub.names_only = True
    with pytest.raises(ProtocolFailed, match="does not say how long"):
        facts(hub, cache)


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
        error = explain(kind.__new__(kind), asked)
        assert error is not None
        assert "secret" not in error.message + error.hint


@pytest.mark.parametrize("reference", ["name", "org/name@../x", "org/name@a//b", "org/name@"])
def test_what_is_no_id_is_a_usage_error(reference: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model_reference(reference)
    assert "`org/name@revision`" in caught.value.hint


def test_a_name_that_hubs_forbid_is_a_usage_error(hub: FakeHub, cache: Path) -> None:
    with pytest.raises(UsageError, match="not a name that a hub allows"):
        facts(hub, cache, "org/a--b")


# The environment, which huggingface-hub reads when it is imported

SHOW = """
import json, sys
from packager.models.hub import HubSource
from packager.errors import PackagerError
from packager.models.reference import parse_model_reference
try:
    found = HubSource().facts(parse_model_reference(sys.argv[1]))
    print(json.dumps([found.ref.revision, len(found.files)]))
except PackagerError as error:
    print(json.dumps([type(error).__name__, error.message, error.hint]))
"""


def run(tmp_path: Path, reference: str = "org/name", **environment: str) -> tuple[list[str], str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, reference],
        env={"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path / "home"), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout), done.stderr


def test_endpoint_token_and_cache_come_from_the_environment(
    hub: FakeHub, tmp_path: Path, model: Path
) -> None:
    commit = hub.add("org/name", model, private=True)
    answer, messages = run(tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN="hf_right")
    assert answer == [commit, 7]
    assert (tmp_path / "home" / "hub" / "models--org--name").is_dir()
    assert "%|" not in messages  # no progress bar where nobody watches


def test_offline_a_model_comes_from_the_cache(hub: FakeHub, tmp_path: Path, model: Path) -> None:
    commit = hub.add("org/name", model)
    run(tmp_path, HF_ENDPOINT=hub.url)
    hub.requests.clear()
    answer, _ = run(tmp_path, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    assert answer == [commit, 7]
    assert hub.requests == []


def test_offline_a_download_by_another_program_is_found(
    hub: FakeHub, tmp_path: Path, model: Path
) -> None:
    from huggingface_hub import snapshot_download

    commit = hub.add("org/name", model)
    cached = tmp_path / "home" / "hub"
    snapshot_download("org/name", endpoint=hub.url, cache_dir=cached, token=False)
    answer, _ = run(tmp_path, HF_HUB_OFFLINE="1")
    assert answer == [commit, 7]


def test_offline_a_download_by_another_program_is_proven_too(
    hub: FakeHub, tmp_path: Path, model: Path
) -> None:
    from huggingface_hub import snapshot_download

    hub.add("org/name", model)
    hub.damaged[SHARD] = 1
    cached = tmp_path / "home" / "hub"
    snapshot_download("org/name", endpoint=hub.url, cache_dir=cached, token=False)
    answer, _ = run(tmp_path, HF_HUB_OFFLINE="1")
    assert answer[0] == "WrongBytes"
    assert answer[1].startswith(f"'{SHARD}' is not what the hub lists: sha256")


def test_offline_a_model_that_is_not_cached_is_not_found(tmp_path: Path) -> None:
    answer, _ = run(tmp_path, HF_HUB_OFFLINE="1")
    assert answer[0] == "NotFound"
    assert "not in the hub cache" in answer[1]
    assert "`hf download org/name`" in answer[2]


def test_offline_a_file_lost_from_the_cache_is_not_found(
    hub: FakeHub, tmp_path: Path, model: Path
) -> None:
    commit = hub.add("org/name", model)
    run(tmp_path, HF_ENDPOINT=hub.url)
    home = tmp_path / "home" / "hub" / "models--org--name"
    (home / "snapshots" / commit / SHARD).unlink()
    answer, _ = run(tmp_path, HF_HUB_OFFLINE="1")
    assert answer[0] == "NotFound"
    assert "HF_HUB_OFFLINE" in answer[1]
