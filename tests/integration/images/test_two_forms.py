"""Images in two forms, from the command line into registries and layouts, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry
from tests.support.fresh_machines import Machines
from tests.support.fresh_machines import hub as hub
from tests.support.fresh_machines import machines as machines
from tests.support.fresh_machines import model as model
from tests.support.fresh_machines import registry as registry

KEY = "packager-claim-key-1:" + "0123456789abcdef" * 4
EROFS = ("--layer-format", "erofs")
BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")


def record_of(packager: Packager, *arguments: str) -> dict[str, Any]:
    done = packager(*BUILD, *arguments, "--quiet", "--format", "json", status=0)
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_the_tag_moves_behind_both_forms(packager: Packager, registry: FakeRegistry) -> None:
    record = record_of(packager, *EROFS, "--output", f"{registry.host}/team/model:1")

    written = [seen.path for seen in registry.seen if seen.method == "PUT"]
    manifests = [path.rpartition("/")[2] for path in written if "/manifests/" in path]
    media_type, index = registry.manifests["team/model", "1"]
    entries = json.loads(index)["manifests"]
    assert manifests[:4] == [entries[0]["digest"], entries[1]["digest"], record["digest"], "1"]
    assert media_type == "application/vnd.oci.image.index.v1+json"
    assert record["plain_digest"] == entries[0]["digest"]
    _, second = registry.manifests["team/model", entries[1]["digest"]]
    assert [layer["digest"] for layer in json.loads(second)["layers"]] == [
        layer["erofs"] for layer in record["layers"]
    ]


def test_the_second_build_reads_nothing_and_so_does_one_for_another_repository(
    packager: Packager, registry: FakeRegistry
) -> None:
    first, again, other = (
        record_of(packager, *EROFS, "--output", f"{registry.host}/team/{name}:1")
        for name in ("model", "model", "other")
    )

    size = sum(layer["size"] for layer in first["layers"])
    assert 2 * size < first["transfer"]["bytes_sent"] < 2.1 * size
    assert first["transfer"]["bytes_read"] < size
    assert (again["transfer"]["bytes_read"], other["transfer"]["bytes_read"]) == (0, 0)
    assert other["transfer"]["bytes_sent"] < 20_000
    assert {first["digest"], again["digest"], other["digest"]} == {first["digest"]}


@pytest.mark.parametrize("has_key", [True, False], ids=["with the key", "without the key"])
def test_a_second_machine_reads_only_what_it_cannot_believe_and_sends_nothing(
    machines: Machines, registry: FakeRegistry, has_key: bool
) -> None:
    key = {"PACKAGER_CLAIM_KEY": KEY} if has_key else {}
    output = ("--output", f"{registry.host}/team/model:1", *EROFS)
    first, second = (
        machines.build(name, "hf://acme/tiny", *output, **key) for name in ("one", "two")
    )

    weights = sum(layer["size"] for layer in first["layers"] if layer["role"] == "weights")
    assert second["digest"] == first["digest"]
    assert first["transfer"]["bytes_read"] > weights * 0.9
    read = second["transfer"]["bytes_read"]
    assert read < weights * 0.1 if has_key else weights * 0.9 < read < weights * 1.1
    assert second["transfer"]["bytes_sent"] < weights * 0.1


def test_a_registry_that_refuses_file_systems_keeps_the_tag(packager: Packager) -> None:
    with FakeRegistry(no_file_systems=True) as registry:
        target = f"{registry.host}/team/model:1"
        plain = record_of(packager, "--output", target)

        done = packager(*BUILD, *EROFS, "--served-name", "new", "--output", target, status=74)

        assert "does not take layers that are EROFS file systems" in done.err
        assert "leave --layer-format out" in done.err
        assert registry.tagged("team/model", "1") == plain["digest"]


def test_who_reads_the_image_gets_its_plain_form(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    target = f"{registry.host}/team/model:1"
    plain = record_of(packager, *EROFS, "--output", target, "--output", "oci:both")["plain_digest"]

    assert record_of(packager, "--output", "oci:alone")["digest"] == plain
    for source in (target, "oci:both"):
        shown = json.loads(packager("inspect", source, "--format", "json").out)
        copied = packager("copy", source, f"oci:copy-{len(source)}", "--quiet")

        assert shown["digest"] == plain
        assert copied.out.strip().endswith(plain)
    same = packager("diff", target, "oci:both", "--format", "json")
    assert json.loads(same.out)["same"] is True
    packager(
        *(*BUILD[:-1], f"oci:{tmp_path}/both", "--output", "oci:above", "--served-name", "x"),
        "--quiet",
        status=0,
    )


def test_a_manifest_of_file_systems_is_no_base(packager: Packager, registry: FakeRegistry) -> None:
    name = f"{registry.host}/team/model"
    record_of(packager, *EROFS, "--output", f"{name}:1")
    second = json.loads(registry.manifests["team/model", "1"][1])["manifests"][1]["digest"]

    done = packager(*BUILD[:-1], f"{name}@{second}", "--output", "oci:above", "--quiet", status=2)

    assert "the manifest of its file systems" in done.err


def test_the_lineage_of_both_digests_is_that_of_the_build(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    target = f"{registry.host}/team/model:1"
    record = record_of(packager, *EROFS, "--output", target)
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}

    told = [packager("lineage", name).out for name in (target, record["digest"])]
    told += [packager("lineage", record["plain_digest"]).out]
    claimed = packager("lineage", target, env=elsewhere).out

    for text in told:
        assert "model      tiny-llama (local)" in text
        assert record["digest"] in text
    assert "model      tiny-llama (local) (claimed)" in claimed


def test_a_record_repeats_both_forms(packager: Packager, tmp_path: Path) -> None:
    first = record_of(packager, *EROFS, "--output", "oci:one", "--record", "record.json")

    again = packager(
        *("build", "--from-record", "record.json", "--output", "oci:two", "--format", "json"),
        "--quiet",
        status=0,
    )

    assert json.loads(again.out)["digest"] == first["digest"]


def test_a_tree_beside_it_takes_its_files(packager: Packager, tmp_path: Path) -> None:
    done = packager(*BUILD, *EROFS, "--output", "oci:one", "--output", "dir:files", status=0)

    assert "'dir:files' takes the plain layers" in done.err
    assert [path.read_bytes() for path in (tmp_path / "files").rglob("tokenizer_config.json")] == [
        (TINY / "tokenizer_config.json").read_bytes()
    ]


def test_compressed_file_systems_are_refused_with_the_reason(packager: Packager) -> None:
    done = packager(*BUILD, *EROFS, "--compression", "zstd", "--output", "oci:one")

    assert done.status != 0
    assert "a compressed layer cannot be mounted" in done.err


def test_a_plan_says_what_the_second_form_costs(packager: Packager) -> None:
    plan = ("plan", "--model", str(TINY), "--instance", "local", *EROFS)

    text, document = packager(*plan), packager(*plan, "--format", "json")

    found = next(
        one for one in json.loads(document.out)["findings"] if one["code"] == "erofs-space"
    )
    weights = sum(path.stat().st_size for path in TINY.glob("*.safetensors"))
    assert weights <= found["data"]["registry_bytes"] < weights + 500_000
    assert found["data"]["assumed_bytes_s"] == 12_500_000
    assert "--layer-format erofs keeps 8.5 MB more in a registry" in " ".join(text.out.split())
