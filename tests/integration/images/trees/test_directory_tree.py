"""Trees in directories: what they hold, what is refused, and what a rebuild touches."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings, settings_for
from packager.core.errors import NotReproduced, OutputFailed, UsageError
from packager.core.record import BuildRecord
from packager.core.reports.text import report_text
from packager.core.request import BuildRequest
from packager.core.tree_manifest import read_manifest
from packager.core.units import MIB
from packager.images.blobs import BlobReader
from packager.images.trees import directory
from packager.pipeline import pipeline
from packager.pipeline.report import dry_run_document, dry_run_report
from tests.integration.images.trees.building import DRAFT, MODEL, built, files_of_image
from tests.support.cases import read_tables
from tests.support.doubles.models import write_json, write_model, write_safetensors
from tests.support.places import files_below

GPU = {"instance": "ml.g5.xlarge"}
TABLES = read_tables(__file__)
ARCHITECTURES: dict[str, dict[str, Any]] = TABLES["architectures"]


def listed(root: Path) -> dict[str, tuple[int, str]]:
    files = read_manifest((root / "packager-tree.json").read_bytes()).files
    return {file.path: (file.size, file.sha256) for file in files}


@dataclass
class Tree:
    """The directory `tree`, which is built into."""

    work: Path

    @property
    def root(self) -> Path:
        return self.work / "tree"

    def build(self, *outputs: str, **asked: Any) -> BuildRecord:
        return built(f"dir:{self.root}", *outputs, **asked)

    def files(self) -> dict[str, bytes]:
        return files_below(self.root)

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "packager-tree.json").read_bytes())
        return found

    def check_refused(self, reason: str) -> None:
        """A build is refused, and nothing is touched."""
        before = self.files()
        with pytest.raises(OutputFailed, match=reason):
            self.build()
        assert self.files() == before


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_files_of_a_tree_are_the_image_s(name: str, compression: str, tmp_path: Path) -> None:
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
    tree = files_below(tmp_path / "tree")
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

    assert files_below(tmp_path / "alone") == files_below(tmp_path / "beside")
    assert files_below(tmp_path / "alone") == files_below(tmp_path / "mounted")
    assert alone.digest == beside.trees[0].digest == mounted.trees[0].digest
    assert (alone.images, alone.layers, alone.base.reference) == ((), (), "scratch")
    assert beside.digest == beside.images[0].digest != alone.digest
    assert not [path for path in files_of_image(tmp_path / "server") if "safetensors" in path]


def test_a_draft_of_lmi_lies_in_the_tree_that_is_mounted(tree: Tree) -> None:
    tree.build(draft=DRAFT, family="lmi", **GPU)

    files = tree.files()
    assert files["draft/model.safetensors"] == Path(DRAFT, "model.safetensors").read_bytes()
    lines = files["serving.properties"].decode().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert json.loads(properties["option.speculative_config"])["model"] == "/opt/ml/model/draft"
    manifest = tree.manifest()
    assert manifest["mounts"] == [{"tree": ".", "container": "/opt/ml/model"}]
    env = manifest["container"]["env"]
    assert json.loads(env["OPTION_SPECULATIVE_CONFIG"])["model"] == "/opt/ml/model/draft"


def test_medusa_heads_lie_as_the_guide_to_awq_and_medusa_lays_them(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", shards=2)
    heads = tmp_path / "heads"
    heads.mkdir()
    medusa = TABLES["medusa"]
    write_json(heads / "config.json", medusa["config"])
    tensors = {
        f"{head}.{name}": ("F16", tuple(shape))
        for head in range(3)
        for name, shape in medusa["head"].items()
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
    tree = files_below(tmp_path / "tree")
    manifest = json.loads(tree.pop("packager-tree.json"))
    assert tree == files_below(guide)
    assert manifest["container"]["env"]["HF_MODEL_ID"] == "/opt/ml/model"


def test_a_second_build_leaves_the_directory_alone(tree: Tree) -> None:
    tree.root.mkdir()  # an empty directory is taken
    first = tree.build()
    before = tree.root.stat().st_ino

    assert tree.build().digest == first.digest
    assert tree.root.stat().st_ino == before
    assert list(tree.work.glob(".tree*")) == []


def test_a_changed_shard_is_replaced_and_the_others_stay(tree: Tree) -> None:
    model, other = (
        write_model(tree.work / name, hidden_size=256, intermediate_size=1024, seed=seed)
        for name, seed in (("model", 0), ("other", 7))
    )
    kept, shard = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2))
    tree.build(model=model)
    before = (tree.root / kept).stat().st_ino
    shutil.copy(other / shard, model / shard)

    tree.build(model=model)

    assert (tree.root / shard).read_bytes() == (other / shard).read_bytes()
    assert (tree.root / kept).stat().st_ino == before


def test_a_file_that_was_edited_is_written_again(tree: Tree) -> None:
    tree.build()
    config = tree.root / "config.json"
    config.write_bytes(config.read_bytes().replace(b"llama", b"LLAMA"))

    tree.build()

    assert config.read_bytes() == Path(MODEL, "config.json").read_bytes()


def test_equal_files_of_a_tree_are_files_of_their_own(tree: Tree) -> None:
    tree.build(draft=DRAFT, family="lmi", **GPU)

    one, other = tree.root / "tokenizer.json", tree.root / "draft/tokenizer.json"
    assert one.read_bytes() == other.read_bytes()
    assert (one.stat().st_nlink, other.stat().st_nlink) == (1, 1)
    assert one.stat().st_ino != other.stat().st_ino


def test_a_directory_of_somebody_else_is_refused_before_any_work(tree: Tree) -> None:
    tree.root.mkdir()
    (tree.root / "notes.txt").write_text("mine")

    tree.check_refused(r"not a tree that packager wrote: it has no packager-")


def test_a_tree_with_a_file_or_a_link_of_somebody_else_is_refused(tree: Tree) -> None:
    tree.build()
    (tree.root / "notes.txt").write_text("mine")
    tree.check_refused(r"'notes.txt' is none of its files")
    (tree.root / "notes.txt").unlink()
    (tree.work / "mine").mkdir()
    (tree.root / "data").symlink_to(tree.work / "mine")
    tree.check_refused(r"'data' is none of its files")
    assert (tree.root / "data").is_symlink()


def test_where_names_cannot_be_exchanged_one_follows_the_other(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.build()
    monkeypatch.setattr(directory.ctypes, "CDLL", lambda *_, **__: object())

    tree.build(max_batch=2)

    assert tree.manifest()["build"]["request"]["max_batch"] == 2
    assert list(tree.work.glob(".tree*")) == []


def test_a_link_to_a_directory_stays_one(tree: Tree) -> None:
    (tree.work / "disk").mkdir()
    tree.root.symlink_to(tree.work / "disk/tree")

    tree.build()

    assert tree.root.is_symlink()
    assert (tree.work / "disk/tree/packager-tree.json").is_file()


def test_a_tree_is_a_model(tree: Tree) -> None:
    tree.build(family="lmi", **GPU)
    again = tree.work / "again"

    built(f"dir:{again}", model=tree.root, served_name="tiny-llama", family="lmi", **GPU)

    assert listed(again) == listed(tree.root)


def test_a_record_repeats_a_tree_and_refuses_another(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    record = built(f"dir:{tmp_path}/tree", model=model)

    def repeated() -> str:
        request = record.request.model_copy(update={"outputs": (f"dir:{tmp_path}/again",)})
        settings = settings_for(request)
        with_record = Settings(outputs=settings.outputs, repeat=record)
        return pipeline.build(request, services_for(with_record)).digest

    assert repeated() == record.digest
    write_model(tmp_path / "model", seed=4)
    with pytest.raises(NotReproduced):
        repeated()
    assert listed(tmp_path / "again") == listed(tmp_path / "tree")


def test_two_names_of_one_directory_are_refused(tree: Tree) -> None:
    with pytest.raises(UsageError, match="is named twice"):
        tree.build(f"dir:{tree.root}")
    with pytest.raises(UsageError, match="one directory"):
        tree.build(f"dir:{tree.work}/./tree")


def test_modes_are_those_of_the_image(tree: Tree) -> None:
    tree.build()

    modes = {path.stat().st_mode & 0o777 for path in tree.root.rglob("*.json")}
    assert (modes, tree.root.stat().st_mode & 0o777) == ({0o644}, 0o755)


def test_a_dry_run_lists_the_files_and_writes_nothing(tree: Tree) -> None:
    request = BuildRequest(model=MODEL, instance="local", outputs=(f"dir:{tree.root}",))
    assembled = pipeline.assemble(request, services_for(settings_for(request)))

    assert "model-00001-of-00003.safetensors" in report_text(dry_run_report(assembled))
    paths = [file["path"] for file in dry_run_document(assembled)["tree"]]
    assert paths[:2] == ["README.md", "config.json"]
    assert list(tree.work.glob("*tree*")) == []
