"""Models in directories: what is taken, what is left out, what is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from packager.cli.options import make_request
from packager.core.errors import ModelRefused, NotFound, UsageError
from packager.core.image import Blob, Inline
from packager.core.model import ModelFiles
from packager.core.references import DirectoryReference
from packager.core.request import trusting_nothing
from packager.images.blobs import BlobReader, SourceChanged
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.trust_roots import resolve_trust_roots
from tests.support.cases import cases_of, read_tables
from tests.support.changed_models import Change
from tests.support.doubles.models import llama_tensors, write_json, write_model, write_safetensors

cases = cases_of(__file__)
TABLES = read_tables(__file__, "damaged")

SHARDS = tuple(TABLES["shards"])
INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def facts(directory: Path) -> ModelFiles:
    return LocalSource().facts(parse_model_reference(str(directory)))


def refused(directory: Path, why: str) -> ModelRefused:
    """Every refusal names what is wrong, prints on one line and says what to do."""
    with pytest.raises(ModelRefused, match=why) as caught:
        facts(directory)
    assert caught.value.message.isprintable()
    assert caught.value.hint
    return caught.value


def test_a_model_is_its_files_in_order_with_their_roles(model: Path) -> None:
    assert [[file.path, file.role] for file in facts(model).files] == TABLES["files_and_roles"]


def test_the_reference_does_not_say_where_the_directory_is(model: Path) -> None:
    found = facts(model)
    assert (found.ref.source, found.ref.name, found.ref.revision) == ("local", model.name, "")


def test_the_content_of_a_file_is_the_whole_file_by_absolute_path(model: Path) -> None:
    content = facts(model).files[0].content
    assert content.path == str((model / "config.json").resolve())  # type: ignore[union-attr]
    assert (content.offset, content.length) == (  # type: ignore[union-attr]
        0,
        (model / "config.json").stat().st_size,
    )


def test_no_file_is_executable_whatever_its_mode(model: Path) -> None:
    (model / "config.json").chmod(0o755)
    assert not any(file.executable for file in facts(model).files)


def test_shards_without_an_index_get_the_one_that_their_headers_say(model: Path) -> None:
    stated = json.loads((model / INDEX).read_bytes())
    (model / INDEX).unlink()

    found = facts(model)
    index = next(file for file in found.files if file.path == INDEX)

    assert isinstance(index.content, Inline)
    assert json.loads(index.content.data)["weight_map"] == stated["weight_map"]
    assert facts(model) == found
    assert json.loads(index.content.data)["metadata"]["total_size"] == found.weight_bytes


@cases("a_link_that_is_left_out_may_lead_anywhere")
def test_a_link_that_is_left_out_may_lead_anywhere(model: Path, name: str, leads: str) -> None:
    (model / name).symlink_to(leads)

    assert name in facts(model).left_out


@pytest.mark.parametrize("relevant", [True, False])
def test_links_into_a_trusted_root_are_taken_where_the_file_is_needed(
    model: Path, tmp_path: Path, relevant: bool
) -> None:
    plain, blobs = facts(model), tmp_path / "older" / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(model.iterdir()) if relevant else ()):
        file.rename(blobs / str(number))
        file.symlink_to(blobs / str(number))
    (model / "consolidated.safetensors").symlink_to(tmp_path / "elsewhere")  # the index lacks it

    source = LocalSource(trust_roots=resolve_trust_roots([str(blobs)]))
    found = source.facts(parse_model_reference(str(model)))

    assert [file.path for file in found.files] == [file.path for file in plain.files]
    assert "consolidated.safetensors" in found.left_out
    if relevant:
        refused(model, "leads out of")


@cases("places_of_a_system_or_a_person_are_no_trusted_roots")
def test_places_of_a_system_or_a_person_are_no_trusted_roots(root: str, said: str) -> None:
    with pytest.raises((UsageError, NotFound), match=said):
        resolve_trust_roots([root])


@pytest.mark.parametrize("place", ["file", "directory", "link"])
def test_a_request_file_that_others_may_write_names_no_trusted_roots(
    tmp_path: Path, place: str
) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"model": "m", "instance": "local", "trust_roots": ["blobs"]}')
    (tmp_path / "link.json").symlink_to(file)
    assert make_request(file).trust_roots == ("blobs",)
    assert trusting_nothing(make_request(file)).trust_roots is None
    if place != "link":
        (file if place == "file" else tmp_path).chmod(0o777)

    with pytest.raises(UsageError, match="others may have written it"):
        make_request(tmp_path / "link.json" if place == "link" else file)


def test_an_adapter_s_weights_are_no_link_out_of_the_model(model: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (model / "law").mkdir()
    (model / "law" / "adapter_config.json").write_text("{}")
    (model / "law" / "adapter_model.safetensors").symlink_to(tmp_path / "secret")

    refused(model, "leads out of")


def test_an_adapter_in_a_directory_of_its_own_is_packaged_and_not_counted(model: Path) -> None:
    plain = facts(model)
    (model / "law").mkdir()
    (model / "law" / "adapter_config.json").write_text("{}")
    write_safetensors(model / "law" / "adapter_model.safetensors", {"w": ("F32", (4,))})

    found = facts(model)
    added = [
        (one.path, one.role)
        for one in found.files
        if one.path not in {file.path for file in plain.files}
    ]
    assert added == [
        ("law/adapter_config.json", "config"),
        ("law/adapter_model.safetensors", "other"),
    ]
    assert found.tensors == plain.tensors


@cases("weights_of_other_engines_are_named")
def test_weights_of_other_engines_are_named(model: Path, changes: Any, said: str) -> None:
    config = json.loads((model / "config.json").read_bytes())
    write_json(model / "config.json", config | changes)

    refused(model, said)


def test_a_name_is_stored_composed(model: Path) -> None:
    (model / "e\u0301.txt").write_text("x")
    assert "\u00e9.txt" in [file.path for file in facts(model).files]


def test_what_is_left_out_is_explained(model: Path) -> None:
    (model / ".git").mkdir()
    (model / ".git" / "HEAD").write_text("ref")
    (model / "modeling.py").write_text("import os")
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    (model / "original").mkdir()
    (model / "original" / "consolidated.00.pth").write_bytes(b"x")
    write_safetensors(model / "consolidated.safetensors", {"w": ("U8", (1,))})
    assert dict(facts(model).left_out) == TABLES["left_out"]


def test_the_index_decides_between_shards_and_a_single_file(model: Path) -> None:
    write_safetensors(model / "model.safetensors", {"w": ("U8", (1,))})
    assert dict(facts(model).left_out) == {
        "model.safetensors": "weights that the model's index does not name"
    }


# Paths


def test_a_misspelt_directory_is_told_its_neighbour(model: Path) -> None:
    with pytest.raises(NotFound) as caught:
        LocalSource().facts(parse_model_reference(str(model.with_name("modle"))))
    assert caught.value.hint == f"did you mean {str(model)!r}?"


def test_a_directory_without_neighbours_is_told_both_forms(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no directory") as caught:
        LocalSource().facts(parse_model_reference(str(tmp_path / "a" / "b")))
    assert "`org/name`" in caught.value.hint


def test_a_file_is_not_a_model(model: Path) -> None:
    with pytest.raises(UsageError, match="is a file") as caught:
        LocalSource().facts(parse_model_reference(str(model / "config.json")))
    assert str(model) in caught.value.hint


def test_what_cannot_be_a_path_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="is not a path"):
        LocalSource().facts(DirectoryReference.at("a\0b"))


def test_the_home_of_a_user_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(NotFound, match="no such user has a home here"):
        LocalSource().facts(DirectoryReference.at("~no-such-user/model"))


def test_a_misspelt_directory_is_no_hub_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples" / "tiny-llama").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    reference = parse_model_reference("examples/tiny-lama")
    with pytest.raises(NotFound, match="there is no directory 'examples/tiny-lama'") as caught:
        LocalSource().facts(reference)

    assert "did you mean 'examples/tiny-llama'?" in caught.value.hint
    assert "'examples/tiny-lama@main'" in caught.value.hint
    pinned = parse_model_reference("examples/tiny-lama@main")
    assert (pinned.source, parse_model_reference("other/tiny-lama").source) == ("hub", "hub")


def test_a_path_of_windows_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(NotFound) as caught:
        LocalSource().facts(parse_model_reference("examples\\tiny"))

    assert caught.value.hint == "did you mean 'examples/tiny'?"


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "is empty")


@cases_of(__file__, "damaged")("damaged", hint="")
def test_a_damaged_model_is_refused(model: Path, change: Change, said: str, hint: str) -> None:
    change.apply(model)

    error = refused(model, said)

    assert error.exit_code == 65
    assert hint in error.hint


# Links and odd things


def test_a_link_inside_the_model_is_its_target(model: Path) -> None:
    (model / "tokenizer.json").rename(model / "real.json")
    (model / "tokenizer.json").symlink_to("real.json")
    file = next(file for file in facts(model).files if file.path == "tokenizer.json")
    assert file.content.path == str(model / "real.json")  # type: ignore[union-attr]


def test_what_is_hidden_is_never_opened(model: Path) -> None:
    (model / ".venv").symlink_to("/")
    os.mkfifo(model / ".pipe")
    assert dict(facts(model).left_out) == {".pipe": "hidden", ".venv": "hidden"}


def test_a_snapshot_in_the_hub_cache_may_link_to_its_blobs(model: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    (repository / "blobs").mkdir(parents=True)
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(model.iterdir())):
        shutil.copy(file, repository / "blobs" / f"{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert [file.path for file in facts(snapshot).files] == [
        file.path for file in facts(model).files
    ]


def test_a_snapshot_may_not_link_beyond_its_blobs(model: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "c0ffee"
    shutil.copytree(model, snapshot)
    (tmp_path / "secret").write_text("{}")
    (snapshot / "x.json").symlink_to("../../../secret")
    refused(snapshot, "leads out")


@cases("an_odd_name_is_refused")
def test_an_odd_name_is_refused(model: Path, name: bytes, why: str) -> None:
    Path(os.fsdecode(os.fsencode(model) + b"/" + name)).write_text("{}")
    refused(model, why)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(model: Path) -> None:
    (model / "tokenizer.json").chmod(0)
    refused(model, r"'tokenizer\.json' cannot be read: permission denied")


# Pickles, pointers and code


def test_code_that_engines_have_themselves_is_not_needed(tmp_path: Path) -> None:
    """DeepSeek-V3 still ships the code it was published with."""
    auto_map = {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}
    config = {"architectures": ["DeepseekV3ForCausalLM"], "auto_map": auto_map}
    model = write_model(tmp_path / "m", config=config)
    (model / "modeling_deepseek.py").write_text("import os")

    found = LocalSource().facts(parse_model_reference(str(model)))

    assert found.left_out == {"modeling_deepseek.py": "code is not packaged"}


@cases("the_code_in_auto_map_is_no_obstacle_where_an_engine_has_the_class")
def test_the_code_in_auto_map_is_no_obstacle_where_an_engine_has_the_class(
    tmp_path: Path, architecture: str, model_type: str
) -> None:
    auto_map = {"AutoConfig": "c.C", "AutoModelForCausalLM": "m.M"}
    config = {"architectures": [architecture], "model_type": model_type, "auto_map": auto_map}

    found = LocalSource().facts(
        parse_model_reference(str(write_model(tmp_path / "m", config=config)))
    )

    assert found.config["architectures"] == [architecture]


def test_draft_heads_need_no_tokenizer_and_may_have_a_file_name_of_theirs(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"medusa_num_heads": 2})
    write_safetensors(
        tmp_path / "medusa_lm_head.safetensors", {"0.0.linear.weight": ("F16", (4, 4))}
    )

    found = LocalSource(is_draft=True).facts(parse_model_reference(str(tmp_path)))

    assert [file.path for file in found.files] == ["config.json", "medusa_lm_head.safetensors"]
    with pytest.raises(ModelRefused, match="no tokenizer"):
        LocalSource().facts(parse_model_reference(str(tmp_path)))


def test_code_for_a_tokenizer_that_is_there_is_not_needed(model: Path) -> None:
    write_json(model / "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a.B", None]}})
    facts(model)


# Configuration


@cases("a_broken_configuration_is_refused")
def test_a_broken_configuration_is_refused(model: Path, content: bytes, why: str) -> None:
    (model / "config.json").write_bytes(content)
    refused(model, f"'config.json' is refused: .*{why}")


def test_a_configuration_with_infinity_is_accepted(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", config={"time_step_limit": [0.0, float("inf")]})
    assert facts(model).config["time_step_limit"][1] == float("inf")


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", shards=2)
    tensors = llama_tensors(
        layers=2, hidden_size=64, intermediate_size=128, kv_size=32, vocab_size=256
    )
    write_safetensors(model / "model-00001-of-00002.safetensors", tensors)
    refused(model, "is both in 'model-00001-of-00002.*and in 'model-00002")


EMPTY = ("BF16", (0,))


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({}, "hold no tensor"),
        ({"model.norm.weight": EMPTY, "model.layers.0.bias": EMPTY}, "hold only empty tensors"),
        ({"model.layers.0.experts.up_proj": ("F32", (8, 0, 64))}, "hold only empty tensors"),
        ({"a.weight": ("F32", (0, 8)), "b.weight": ("F32", (8,))}, "1 weight .* no values: a.wei"),
        ({"a._extra_state": ("U8", (0,)), "b.weight": ("F32", (8,))}, ""),
    ],
)
def test_weights_that_hold_nothing_are_refused(
    tensors: dict[str, Any], why: str, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "m", shards=1)
    write_safetensors(model / "model.safetensors", tensors)
    if why:
        refused(model, why)
    else:
        assert len(facts(model).tensors) == 2


def test_what_is_read_later_is_what_was_looked_at(model: Path) -> None:
    shard = next(file for file in facts(model).files if file.path == SHARDS[1])
    place, reader = model / SHARDS[1], BlobReader()
    assert len(reader.read(Blob((shard.content,)))) == shard.size  # type: ignore[arg-type]

    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)

    with pytest.raises(SourceChanged):
        reader.read(Blob((shard.content,)))  # type: ignore[arg-type]
