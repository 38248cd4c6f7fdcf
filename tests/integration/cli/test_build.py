"""`packager build` into layouts: what it writes, and that it writes the same everywhere."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager
from tests.support.doubles.models import write_json, write_model, write_safetensors
from tests.support.written_layouts import WrittenLayout, files_in

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet")


def test_stdout_is_the_digest_and_nothing_else(packager: Packager, tmp_path: Path) -> None:
    done = packager(*BUILD, "--model", str(TINY), "--output", "oci:out", status=0)

    assert done.out == f"oci:{tmp_path}/out:latest@{WrittenLayout(tmp_path / 'out').digest}\n"


def test_every_model_file_arrives_with_its_digest(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--model", str(TINY), "--output", "oci:out")
    found = files_in(WrittenLayout(tmp_path / "out").layers)

    for source in TINY.glob("*.safetensors"):
        assert found[f"opt/packager/model/{source.name}"][1] == source.read_bytes()
    assert {"opt/packager/model/config.json", "opt/packager/model/tokenizer.json"} <= set(found)
    assert "opt/packager/serving/command.json" in found


def test_neither_user_umask_nor_time_changes_the_digest(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--model", str(TINY), "--output", "oci:one")

    copy = tmp_path / "else where" / TINY.name
    shutil.copytree(TINY, copy)
    for path in copy.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(0o600 if path.is_file() else 0o700)
    old = os.umask(0o077)
    try:
        done = packager(
            *BUILD,
            *("--model", ".", "--output", f"oci:{tmp_path}/two"),
            cwd=copy,
            env={"TZ": "Asia/Kathmandu", "LC_ALL": "C", "HOME": str(tmp_path), "USER": "nobody"},
        )
    finally:
        os.umask(old)

    assert done.status == 0, done.err
    assert WrittenLayout(tmp_path / "one").digest == WrittenLayout(tmp_path / "two").digest


def test_the_served_name_decides_the_digest(packager: Packager, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "renamed")

    packager(*BUILD, "--model", str(TINY), "--output", "oci:one")
    packager(*BUILD, "--model", "renamed", "--served-name", TINY.name, "--output", "oci:two")
    packager(*BUILD, "--model", "renamed", "--output", "oci:three")

    one, two, three = (WrittenLayout(tmp_path / name).digest for name in ("one", "two", "three"))
    assert one == two != three


def test_source_date_epoch_sets_the_creation_time(packager: Packager, tmp_path: Path) -> None:
    done = packager(
        *BUILD,
        *("--model", str(TINY), "--output", "oci:out", "--format", "json"),
        env={"SOURCE_DATE_EPOCH": "1700000000"},
    )

    assert json.loads(done.out)["created"] == "2023-11-14T22:13:20Z"


def test_second_build_reads_no_weights(packager: Packager, tmp_path: Path) -> None:
    arguments = (*BUILD, "--model", str(TINY), "--output", "oci:out", "--format", "json")
    first = json.loads(packager(*arguments).out)
    second = json.loads(packager(*arguments).out)

    assert first["digest"] == second["digest"]
    assert first["transfer"]["bytes_read"] > 8_000_000
    assert second["transfer"]["bytes_read"] == 0


def test_a_record_reproduces_its_digest_elsewhere(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--model", str(TINY), "--max-batch", "4", "--output", "oci:out")
    copy = tmp_path / "moved"
    shutil.copytree(TINY, copy)

    packager(
        *("build", "--from-record", "out.record.json", "--model", str(copy)),
        *("--output", "oci:again", "--quiet"),
        status=0,
    )

    assert WrittenLayout(tmp_path / "again").digest == WrittenLayout(tmp_path / "out").digest


def test_a_record_of_other_weights_is_not_reproduced(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--model", str(TINY), "--output", "oci:out")
    copy = tmp_path / "moved"
    shutil.copytree(TINY, copy)
    shard = sorted(copy.glob("*.safetensors"))[0]
    with shard.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))

    packager(
        *("build", "--from-record", "out.record.json", "--model", str(copy)),
        *("--output", "oci:again", "--quiet"),
        status=5,
    )

    assert not (tmp_path / "again").exists()


def test_dry_run_shows_the_files_and_writes_nothing(packager: Packager, tmp_path: Path) -> None:
    done = packager(
        *("build", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--family", "lmi"),
        *("--base", "scratch", "--dry-run"),
        status=0,
    )

    assert "--- /opt/packager/model/serving.properties" in done.out
    assert list(tmp_path.iterdir()) == []


def test_labels_tell_how_it_was_made_without_paths(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--model", str(TINY), "--output", "oci:out")
    config = WrittenLayout(tmp_path / "out").config

    labels = config["config"]["Labels"]
    assert json.loads(labels["dev.packager.record"])["request"]["instance"] == "local"
    assert str(tmp_path) not in json.dumps(config)
    assert str(TINY.parent) not in json.dumps(config)


@pytest.mark.parametrize("content", ["toml", "json"])
def test_request_files_stand_for_options(packager: Packager, tmp_path: Path, content: str) -> None:
    fields = {"model": str(TINY), "instance": "local", "base": "scratch", "outputs": ["oci:out"]}
    text = (
        json.dumps(fields)
        if content == "json"
        else "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    )
    (tmp_path / f"request.{content}").write_text(text)

    packager("build", "--request", f"request.{content}", "--quiet", status=0)

    assert (tmp_path / "out/index.json").exists()


def test_a_dry_run_says_what_to_mount_where(packager: Packager, tmp_path: Path) -> None:
    write_model(tmp_path / "model", shards=1)
    heads = tmp_path / "heads"
    heads.mkdir()
    write_json(heads / "config.json", {"medusa_num_heads": 1, "medusa_num_layers": 1})
    tensors = {
        "0.0.linear.weight": ("BF16", (64, 64)),
        "0.0.linear.bias": ("BF16", (64,)),
        "0.1.weight": ("BF16", (256, 64)),
    }
    write_safetensors(heads / "medusa_lm_head.safetensors", tensors)

    asked = ("--instance", "ml.g5.xlarge", "--family", "tgi", "--weights", "mounted")
    named = ("--model", "./model", "--draft", "medusa:./heads", "--base", "scratch")
    done = packager("build", *asked, *named, "--dry-run", "--format", "json", status=0)

    assert done.document["mount"] == read_tables(__file__)["mount"]
