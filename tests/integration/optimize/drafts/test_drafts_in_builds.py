"""Drafts on the command line: what is refused unread, and what lies where in the image."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.core.model import ModelFiles
from tests.support import heads, zoo
from tests.support.cases import cases_of, read_tables
from tests.support.changed_models import Change
from tests.support.commandline import Packager
from tests.support.doubles.models import (
    safetensors_bytes,
    write_json,
    write_model,
    write_safetensors,
)
from tests.support.doubles.registry import FakeRegistry
from tests.support.headers import TINY
from tests.support.written_layouts import WrittenLayout, files_in

cases = cases_of(__file__)

TARGET = TINY | {"num_hidden_layers": 8}
MACHINE = ("--instance", "ml.g5.xlarge", "--base", "scratch", "--quiet")
LMI = (*MACHINE, "--family", "lmi")


def write_target(directory: Path) -> Path:
    return write_model(directory, **read_tables(__file__)["target"])


def write_head(directory: Path, head: ModelFiles, *, name: str = "model", seed: int = 0) -> Path:
    directory.mkdir()
    write_json(directory / "config.json", head.config)
    tensors = {one.name: (one.dtype, one.shape) for one in head.tensors}
    write_safetensors(directory / f"{name}.safetensors", tensors, seed=seed)
    return directory


def write_target_and_two_heads(directory: Path) -> None:
    write_target(directory / "model")
    head = heads.eagle3_of_speculators(TARGET, draft_vocab=1024)
    write_head(directory / "one", head)
    write_head(directory / "other", head, seed=1)


def build(packager: Packager, draft: str, out: str = "out", *, family: str = "lmi") -> None:
    """Build ./model with a draft into a layout."""
    asked = ("--model", "./model", "--draft", draft, "--output", f"oci:{out}")
    packager("build", *MACHINE, "--family", family, *asked, status=0)


def layers_of(layout: Path) -> list[tuple[str, str]]:
    """Role and digest of every layer, in order."""
    layers = WrittenLayout(layout).manifest["layers"]
    return [(layer["annotations"]["dev.packager.role"], layer["digest"]) for layer in layers]


def files_of(layout: Path) -> dict[str, bytes]:
    found = files_in(WrittenLayout(layout).layers)
    return {f"/{name}": content for name, (_, content) in found.items()}


def header_of(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return header


def tensor_bytes(data: bytes) -> bytes:
    return data[8 + int.from_bytes(data[:8], "little") :]


def test_another_draft_changes_only_its_own_layers(packager: Packager, tmp_path: Path) -> None:
    write_target_and_two_heads(tmp_path)

    drafts = {"plain": "none", "ngram": "ngram", "a": "eagle3:./one", "b": "eagle3:./other"}
    for out, draft in drafts.items():
        build(packager, draft, out)

    plain, ngram, a, b = (layers_of(tmp_path / out) for out in ("plain", "ngram", "a", "b"))
    models = [layer for layer in plain if layer[0] in ("weights", "model")]
    assert len(models) == 3
    for layers in (ngram, a, b):
        assert [layer for layer in layers if layer[0] in ("weights", "model")] == models
    assert {role for role, _ in {*ngram} - {*plain}} == {"config"}
    assert {role for role, _ in {*a} - {*plain}} == {"draft", "config"}
    assert {role for role, _ in {*b} - {*a}} == {"draft"}  # both lie at the same path


def test_only_the_new_drafts_layers_are_sent(packager: Packager, tmp_path: Path) -> None:
    write_target_and_two_heads(tmp_path)

    with FakeRegistry() as registry:
        sent = []
        for tag, draft in (("1", "eagle3:./one"), ("2", "eagle3:./other")):
            to = ("--output", f"{registry.host}/m:{tag}", "--insecure-registry", registry.host)
            record = ("--record", f"{tag}.json")
            asked = ("--model", "./model", "--draft", draft)
            packager("build", *LMI, *asked, *to, *record, status=0)
            sent.append(json.loads((tmp_path / f"{tag}.json").read_text()))

    first, second = sent
    draft_bytes = sum(layer["size"] for layer in second["layers"] if layer["role"] == "draft")
    assert second["transfer"]["bytes_sent"] < draft_bytes + 20_000
    assert first["transfer"]["bytes_sent"] > second["transfer"]["bytes_sent"] + 10_000_000
    assert second["draft"] == read_tables(__file__)["recorded"]


def test_lmi_finds_one_model_and_the_draft_beside_it(packager: Packager, tmp_path: Path) -> None:
    """DJL Serving makes a model of every directory in its store, unless the root is one."""
    write_target(tmp_path / "model")
    write_head(tmp_path / "head", heads.eagle3_of_speculators(TARGET, draft_vocab=1024))

    build(packager, "eagle3:./head")

    files = files_of(tmp_path / "out")
    config = WrittenLayout(tmp_path / "out").config
    env = dict(line.split("=", 1) for line in config["config"]["Env"])
    store = env["SERVING_MODEL_STORE"]
    assert "HF_MODEL_ID" not in env
    assert f"{store}/serving.properties" in files
    in_store = [path.removeprefix(f"{store}/") for path in files if path.startswith(f"{store}/")]
    assert not [path for path in in_store if "/" in path]
    named = json.loads(env["OPTION_SPECULATIVE_CONFIG"])["model"]
    assert named == "/opt/packager/draft"
    assert not named.startswith(f"{store}/")
    assert f"{named}/model.safetensors" in files
    assert not [path for path in files if path.startswith("/opt/ml/")]

    verifier = json.loads(files[f"{named}/config.json"])["speculators_config"]["verifier"]
    assert verifier["name_or_path"] == store  # not where it was trained


def test_a_head_of_speculators_is_rewritten_for_sglang(packager: Packager, tmp_path: Path) -> None:
    write_target(tmp_path / "model")
    head = heads.eagle3_of_speculators(
        TARGET, draft_vocab=1024, eagle_aux_hidden_state_layer_ids=[2, 4, 5]
    )
    write_head(tmp_path / "head", head)

    build(packager, "eagle3:./head", family="sglang")

    files = files_of(tmp_path / "out")
    written = files["/opt/packager/draft/model.safetensors"]
    original = (tmp_path / "head/model.safetensors").read_bytes()
    assert tensor_bytes(written) == tensor_bytes(original)
    published = heads.eagle3(TARGET, draft_vocab=1024)
    assert header_of(written).keys() == {one.name for one in published.tensors}
    config = json.loads(files["/opt/packager/draft/config.json"])
    assert config.items() >= published.config.items()
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]


@cases("medusa")
def test_medusa_heads_lie_as_their_engine_looks_for_them(
    packager: Packager, tmp_path: Path, family: str, file: str, tensor: str
) -> None:
    write_target(tmp_path / "model")
    write_head(tmp_path / "head", zoo.medusa(2, 256, 2048), name="heads")

    build(packager, "medusa:./head", family=family)

    files = files_of(tmp_path / "out")
    draft = {path for path in files if path.startswith("/opt/packager/draft/")}
    assert draft == {f"/opt/packager/draft/{name}" for name in ("config.json", file)}
    config = json.loads(files["/opt/packager/draft/config.json"])
    assert config.items() >= read_tables(__file__)["medusa_keys"].items()
    assert "architectures" not in config
    written = files[f"/opt/packager/draft/{file}"]
    assert tensor in header_of(written)
    assert tensor_bytes(written) == tensor_bytes((tmp_path / "head/heads.safetensors").read_bytes())
    shards = [path for path in files if path.endswith(".safetensors") and path not in draft]
    assert len(shards) == 2  # one copy of the model, where it always is


def sparse(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Write headers of tensors whose bytes are a hole: reading them would take minutes."""
    header, start = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + size]}
        start += size
    path.write_bytes(safetensors_bytes(header))
    os.truncate(path, path.stat().st_size + start)


def test_a_wrong_head_is_refused_from_its_header(packager: Packager, tmp_path: Path) -> None:
    """A hundred gigabytes that are not there cannot have been read."""
    write_target(tmp_path / "model")
    head = tmp_path / "head"
    head.mkdir()
    wide = 163_840
    write_json(head / "config.json", {"medusa_num_heads": 4, "medusa_num_layers": 1})
    sparse(
        head / "medusa_lm_head.safetensors",
        {
            name: ("F16", shape)
            for number in range(4)
            for name, shape in (
                (f"{number}.0.linear.weight", (wide, wide)),
                (f"{number}.0.linear.bias", (wide,)),
                (f"{number}.1.weight", (wide, wide)),
            )
        },
    )
    assert (head / "medusa_lm_head.safetensors").stat().st_size > 400e9

    asked = ("--model", "./model", "--draft", "medusa:./head", "--output", "oci:out")
    started = time.monotonic()
    done = packager("build", *LMI, *asked)

    assert done.status != 0
    assert "has the shape" in done.err
    assert (
        time.monotonic() - started < 200
    )  # a machine under load, and never the many minutes of reading it
    assert not (tmp_path / "out").exists()


@cases("broken")
def test_a_broken_head_is_refused(
    packager: Packager, tmp_path: Path, change: Change, why: str
) -> None:
    write_target(tmp_path / "model")
    change.apply(write_head(tmp_path / "head", zoo.medusa(2, 256, 2048), name="medusa_lm_head"))

    asked = ("--model", "./model", "--draft", "medusa:./head")
    done = packager("plan", "--instance", "ml.g5.xlarge", "--family", "tgi", *asked)

    assert done.status != 0
    assert why in done.err


def write_mimo(directory: Path) -> Path:
    """A tiny model that brings an MTP head, as MiMo names it."""
    hidden = TARGET["hidden_size"]
    write_target(directory)
    config = json.loads((directory / "config.json").read_text())
    config |= {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "mimo",
        "num_nextn_predict_layers": 1,
    }
    write_json(directory / "config.json", config)
    at = "model.mtp_layers.0"
    norms = ("token_layernorm", "hidden_layernorm", "final_layernorm")
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        f"{at}.{name}.weight": ("BF16", (hidden,)) for name in norms
    }
    shapes[f"{at}.input_proj.weight"] = ("BF16", (hidden, 2 * hidden))
    write_safetensors(directory / "model-mtp.safetensors", shapes)
    index = directory / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"] |= dict.fromkeys(shapes, "model-mtp.safetensors")
    write_json(index, listed)
    return directory


TRAIN = ("draft", "train", "--method", "eagle3", "--output", "new", "--from")


@pytest.mark.parametrize(
    "asked", [("plan", *MACHINE[:2]), ("build", *LMI, "--output", "oci:out"), TRAIN]
)
def test_a_map_to_tokens_that_the_model_has_not_is_refused_by_its_values(
    packager: Packager, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    write_target(tmp_path / "model")
    head = write_head(tmp_path / "head", heads.eagle3_of_speculators(TARGET, draft_vocab=1024))
    weights = head / "model.safetensors"
    at = weights.read_bytes().index(struct.pack("<3q", 0, 0, 0))  # where `d2t` begins
    with weights.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack("<q", 2048))
    named = ("./head",) if asked is TRAIN else ("--draft", "eagle3:./head")

    done = packager(*asked, *named, "--model", "./model")

    assert done.status == 3, done.err
    assert "maps 1 of 1024 tokens to none of the model's 2048: token 0, with 2048" in done.err


def test_auto_serves_the_models_own_head(packager: Packager, tmp_path: Path) -> None:
    write_mimo(tmp_path / "model")

    build(packager, "none", "plain")
    build(packager, "auto", "mtp")

    plain, served = layers_of(tmp_path / "plain"), layers_of(tmp_path / "mtp")
    assert {role for role, _ in {*served} - {*plain}} == {"config"}
    shown = json.loads(packager("inspect", "oci:mtp", "--format", "json").out)
    assert shown["made"]["record"]["draft"] == {"kind": "mtp", "speculative_tokens": 1}
    properties = files_of(tmp_path / "mtp")["/opt/packager/model/serving.properties"].decode()
    told = dict(line.split("=", 1) for line in properties.splitlines() if "=" in line)
    assert told["option.speculative_config"].replace("\\", "") == (
        '{"method":"mtp","num_speculative_tokens":1}'
    )


def test_a_request_file_asks_for_the_models_own_head(packager: Packager, tmp_path: Path) -> None:
    model = write_mimo(tmp_path / "model")
    (tmp_path / "request.toml").write_text('model = "./model"\ndraft = "mtp:2"\n')
    asked = ("plan", "--request", "request.toml", "--instance", "ml.g5.xlarge", "--family", "vllm")

    whole = packager(*asked, status=0)
    (model / "model-mtp.safetensors").unlink()
    index = model / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"] = {
        name: file for name, file in listed["weight_map"].items() if "mtp" not in name
    }
    write_json(index, listed)
    lost = packager(*asked, status=3)

    said = " ".join(whole.out.split())
    assert "2 tokens are drafted at a time from the model's own MTP head" in said
    assert "the checkpoint lacks model.mtp_layers.*" in " ".join(lost.err.split())
