"""The lock file of a project: what it pins, what it refuses, and that it is the same each time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry

TABLES = read_tables(__file__)

PROJECT = TABLES["project"]
TEXTS = '{"text": "one text to calibrate with"}\n{"text": "and another"}\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    shutil.copytree(TINY, root / "tiny")
    (root / ".git").mkdir()
    (root / "texts.jsonl").write_text(TEXTS)
    (root / "packager.toml").write_text(PROJECT)
    return root


def test_a_lock_is_the_same_bytes_from_anywhere_and_builds_what_is_built_without_it(
    packager: Packager, project: Path, tmp_path: Path
) -> None:
    first = packager("lock", cwd=project, status=0)
    text = (project / "packager.lock").read_bytes()
    copy = shutil.copytree(project, tmp_path / "elsewhere" / "copy")
    (copy / "packager.lock").unlink()
    packager("lock", cwd=copy / "tiny", status=0)

    assert first.out == f"{project}/packager.lock\n"
    assert (copy / "packager.lock").read_bytes() == text
    document = json.loads(text)
    assert document["schema_version"] == 1
    assert [*document["targets"]] == ["rounded", "small"]
    assert set(document["targets"]["rounded"]["data"]) == {"calibration"}
    assert set(document["targets"]["rounded"]["tools"]) == {"llmcompressor"}
    plain = packager("build", "@small", "-q", cwd=project, status=0)
    assert packager("build", "@small", "-q", "--locked", cwd=project, status=0).out == plain.out


def change_weights(root: Path) -> None:
    shard = next((root / "tiny").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


def change_texts(root: Path) -> None:
    (root / "texts.jsonl").write_text(TEXTS.replace("another", "a third"))


def change_fields(root: Path) -> None:
    written = (root / "packager.toml").read_text()
    (root / "packager.toml").write_text(
        written.replace('"oci:small"]', '"oci:small"]\nmax_batch = 4')
    )


@pytest.mark.parametrize(
    ("change", "target", "named"),
    [
        (change_weights, "small", "model.files is sha256:"),
        (change_texts, "rounded", "data.calibration is sha256:"),
        (change_fields, "small", "fields.max_batch is 4, locked is none"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_differs_is_refused_by_name(
    packager: Packager, project: Path, change: Callable[[Path], None], target: str, named: str
) -> None:
    packager("lock", cwd=project, status=0)
    change(project)

    done = packager("build", f"@{target}", "-q", "--locked", cwd=project, status=5)

    assert f"target '{target}' differs from packager.lock: {named}" in done.err
    assert done.err.count(" is ") - done.err.count("locked is") == 1  # nothing else
    assert f"`packager lock @{target}`" in done.err
    assert not (project / target).exists()
    packager("lock", f"@{target}", cwd=project, status=0)
    packager("build", f"@{target}", "--locked", "--dry-run", cwd=project, status=0)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub() as served:
        yield served


def test_a_locked_build_stays_on_the_commit_and_the_base_that_moved_on(
    packager: Packager, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "upstream")
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    commit = hub.add("acme/tiny", files)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    with FakeRegistry() as registry:
        base = f"{registry.host}/base:1"
        make_base = ("build", str(TINY), "--instance", "local", "--base", "scratch", "-q")
        packager(*make_base, "--output", base, status=0)
        (tmp_path / "packager.toml").write_text(
            f'[targets.hub]\nmodel = "acme/tiny"\ninstance = "local"\nbase = "{base}"\n'
            'base_files = "skip"\noutputs = ["oci:hub"]\n'
        )
        packager("lock", status=0)
        locked = packager("build", "@hub", "-q", status=0).out
        hub.add("acme/tiny", files | {"added.json": b"{}"})
        packager(*make_base, "--max-batch", "2", "--output", base, status=0)

        again = packager("build", "@hub", "-q", "--locked", status=0).out
        free = packager("build", "@hub", "-q", status=0).out

    assert again == locked
    assert free != locked
    pinned = json.loads((tmp_path / "packager.lock").read_text())["targets"]["hub"]
    assert pinned["model"] == {
        "files": "",
        "name": "acme/tiny",
        "revision": commit,
        "source": "hub",
    }
    assert pinned["base"]["reference"] == base


def test_wrong_uses_say_what_to_do(packager: Packager, project: Path) -> None:
    missing = packager("build", "@small", "--locked", cwd=project, status=66)
    packager("lock", "@small", cwd=project, status=0)
    other = packager("build", "@rounded", "--locked", cwd=project, status=66)
    option = packager("build", "@small", "--locked", "--max-batch", "2", cwd=project, status=2)
    bare = packager("build", "tiny", "--instance", "local", "--locked", cwd=project, status=2)
    (project / "packager.lock").write_text('{"schema_version": 2, "targets": {}}')
    newer = packager("build", "@small", "--locked", cwd=project, status=2)

    for done, words in (
        (missing, "there is no packager.lock"),
        (other, "packager.lock' has no target 'rounded'"),
        (option, "--max-batch cannot be combined with --locked"),
        (bare, "--locked is for targets of packager.toml"),
        (newer, "cannot be read: schema_version"),
    ):
        assert words in done.err
