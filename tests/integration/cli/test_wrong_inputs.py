"""Every wrong input: one clear error, a hint, a documented status, nothing left behind."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.support.commandline import TINY, Packager

BUILD = ("build", "--instance", "local", "--base", "scratch", "--output", "oci:out")


def copy_of_tiny(where: Path) -> Path:
    return Path(shutil.copytree(TINY, where / "model"))


def empty(model: Path) -> None:
    shutil.rmtree(model)
    model.mkdir()


def pickled(model: Path) -> None:
    for path in model.glob("*.safetensors*"):
        path.unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": [1, 2, 3]}, protocol=2))


def pickle_in_disguise(model: Path) -> None:
    (model / "generation_config.json").write_bytes(pickle.dumps({"a": 1}, protocol=2))


def truncated(model: Path) -> None:
    shard = sorted(model.glob("*.safetensors"))[-1]
    os.truncate(shard, shard.stat().st_size - 100)


def without_tokenizer(model: Path) -> None:
    for path in model.glob("tokenizer*"):
        path.unlink()


def missing_shard(model: Path) -> None:
    sorted(model.glob("*.safetensors"))[0].unlink()


def broken_config(model: Path) -> None:
    (model / "config.json").write_text('{"hidden_size": ')


def escaping_link(model: Path) -> None:
    (model / "special_tokens_map.json").unlink(missing_ok=True)
    (model / "special_tokens_map.json").symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (empty, "config.json"),
        (pickled, "pickle"),
        (pickle_in_disguise, "pickle"),
        (truncated, "safetensors"),
        (without_tokenizer, "tokenizer"),
        (missing_shard, "safetensors"),
        (broken_config, "config.json"),
        (escaping_link, "special_tokens_map.json"),
    ],
)
def test_a_bad_model_is_refused(
    packager: Packager, tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    model = copy_of_tiny(tmp_path)
    spoil(model)

    done = packager(*BUILD, "--model", str(model))

    assert done.status in (65, 66), done.err
    assert says in done.err
    assert "\nhint: " in done.err
    assert "Traceback" not in done.err
    assert (done.out, (tmp_path / "out").exists()) == ("", False)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        pytest.param((*BUILD, "--model", "./nowhere"), 66, "nowhere", id="no such model directory"),
        pytest.param((*BUILD, "--model", "what is this"), 2, "what is this", id="not a model name"),
        pytest.param(
            ("plan", "--model", str(TINY), "--instance", "ml.g5.huge"),
            *(2, "ml.g5.huge"),
            id="unknown instance",
        ),
        pytest.param(
            (*BUILD, "--model", str(TINY), "--max-total-tokens", "99999999"),
            *(3, "99999999"),
            id="more tokens than the model has positions",
        ),
        pytest.param(
            (*BUILD, "--model", str(TINY), "--max-input-tokens", "64", "--max-total-tokens", "32"),
            *(3, "input"),
            id="contradictory shape",
        ),
        pytest.param(
            (*BUILD, "--model", str(TINY), "--tp-degree", "3"), 3, "3", id="impossible tp degree"
        ),
        pytest.param(
            (*BUILD, "--model", str(TINY), "--output", "oci:out"),
            2,
            "twice",
            id="same output twice",
        ),
        pytest.param(("build", "--instance", "local"), 2, "no model is given", id="no model"),
        pytest.param(
            ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch"),
            *(2, "no output is given"),
            id="no output",
        ),
        pytest.param(
            (*BUILD[:3], "--base", "oci:nowhere", "--output", "oci:out", "--model", str(TINY)),
            *(66, "nowhere"),
            id="no such base layout",
        ),
        pytest.param(
            (
                *BUILD[:5],
                *("--model", str(TINY), "--output", "oci:out:a", "--output", "oci:./out:b"),
            ),
            *(2, "one layout directory"),
            id="two images for one layout",
        ),
        pytest.param(
            (*BUILD[:5], "--output", "127.0.0.1:9/tiny:1", "--model", str(TINY)),
            *(69, "127.0.0.1:9"),
            id="unreachable registry",
        ),
        pytest.param(
            (*BUILD[:5], "--output", "Not A Reference", "--model", str(TINY)),
            *(2, "Not A Reference"),
            id="output of no kind",
        ),
        pytest.param(
            ("build", "--from-record", "nowhere.json"), 66, "nowhere.json", id="no record"
        ),
        pytest.param(("build", "--request", "nowhere.toml"), 66, "nowhere.toml", id="no request"),
    ],
)
def test_a_wrong_request_is_explained(
    packager: Packager, tmp_path: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    done = packager(*arguments)

    assert done.status == status, done.err
    assert says in done.err
    assert "hint: " in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", [None, "{", '{"manifests": [{}]}'])
def test_a_base_layout_without_a_usable_index_is_explained(
    packager: Packager, tmp_path: Path, index: str | None
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    if index is not None:
        (base / "index.json").write_text(index)

    done = packager(*BUILD[:3], "--base", "oci:base", "--model", str(TINY), "--output", "oci:out")

    assert done.status == (66 if index is None else 76), done.err
    assert "hint: " in done.err


def test_an_option_nobody_knows_is_a_usage_error(packager: Packager) -> None:
    done = packager("plan", "--modle", "x")

    assert done.status == 2
    assert "--model" in done.err


def test_no_engine_is_said_before_anything_is_done(packager: Packager, tmp_path: Path) -> None:
    done = packager(
        *BUILD,
        *("--model", str(TINY), "--output", "docker:tiny:1"),
        env={"DOCKER_HOST": f"unix://{tmp_path}/no.sock"},
    )

    assert done.status == 69
    assert "no Docker Engine answers" in done.err
    assert not (tmp_path / "out").exists()


def test_a_model_too_large_for_the_instance_shows_the_numbers(
    packager: Packager, tmp_path: Path
) -> None:
    model = copy_of_tiny(tmp_path)
    config = json.loads((model / "config.json").read_text())
    config["num_hidden_layers"] = 4
    (model / "config.json").write_text(json.dumps(config))

    done = packager(
        *("plan", "--model", str(model), "--instance", "ml.g5.xlarge"),
        *("--max-batch", "1000000", "--max-total-tokens", "1024"),
    )

    assert done.status == 3
    assert "GiB" in done.err


def test_json_errors_are_documents(packager: Packager) -> None:
    done = packager("plan", "--model", "./nowhere", "--instance", "local", "--format", "json")

    document = json.loads(done.err)
    assert document["exit_code"] == done.status == 66
    assert document["hint"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, half the size of the model."""
    if os.geteuid() != 0:
        unavailable("root, to mount a small file system,")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_noticed_before_the_first_byte(packager: Packager, small_disk: Path) -> None:
    done = packager(*BUILD[:5], "--model", str(TINY), "--output", f"oci:{small_disk}/out")

    assert done.status == 74
    assert "are free" in done.err
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    packager: Packager, small_disk: Path, tmp_path: Path
) -> None:
    code = (
        "import shutil, sys\n"
        "from collections import namedtuple\n"
        "usage = namedtuple('usage', 'total used free')\n"
        "shutil.disk_usage = lambda path: usage(10**12, 0, 10**12)\n"
        "from packager.cli.app import run\n"
        f"sys.exit(run(['build', '--model', {str(TINY)!r}, '--instance', 'local', '--base',\n"
        f" 'scratch', '--output', 'oci:{small_disk}/out', '--quiet']))\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 74, done.stderr
    assert "no space left" in done.stderr
    assert list(small_disk.iterdir()) == []
