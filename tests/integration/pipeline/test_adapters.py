"""Adapters through the whole line: layers, trees, what another one sends, what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import need
from tests.live.building import ran
from tests.support.adapters import write_adapter
from tests.support.cluster_schemas import check_document
from tests.support.commandline import TINY, Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.known import known

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--family", "vllm")
TOO_MUCH = 20_000  # bytes that another adapter may send beside its own


def build(packager: Packager, place: Path, *words: str) -> dict[str, Any]:
    """Build; return the record."""
    record = place / "record.json"
    ran(packager, *BUILD, "--base", "scratch", "--quiet", "--record", str(record), *words)
    found: dict[str, Any] = json.loads(record.read_text())
    return found


@pytest.mark.live
def test_another_adapter_sends_its_own_bytes_and_the_configuration(
    packager: Packager, registry: str, tmp_path: Path
) -> None:
    one, two = (write_adapter(tmp_path / name, seed=seed) for seed, name in enumerate("ab", 1))
    first = ("--adapter", f"one={one}", "--output", f"{registry}/tiny/adapted:1")
    second = (*first[:2], "--adapter", f"two={two}", "--output", f"{registry}/tiny/adapted:2")

    before = build(packager, tmp_path, *first)
    after = build(packager, tmp_path, *second)

    adapter = sum(file.stat().st_size for file in two.iterdir())
    assert after["transfer"]["bytes_sent"] <= adapter + TOO_MUCH
    kept = {one["digest"] for one in before["layers"] if one["role"] != "config"}
    assert kept <= {one["digest"] for one in after["layers"]}
    assert [(one["name"], one["rank"]) for one in after["adapters"]] == [("one", 8), ("two", 8)]


@pytest.mark.live
def test_an_adapter_is_pushed_alone_and_mounted_by_its_digest(
    packager: Packager, registry: str, tmp_path: Path
) -> None:
    need("skopeo")
    configs = {"served": {}, "next": {"seed": 2}, "wide": {"r": 16}, "other": {"seed": 4}}
    models = {"other": shutil.copytree(TINY, tmp_path / "other-llama")}
    for name, config in configs.items():
        adapter = write_adapter(tmp_path / name, **config)  # type: ignore[arg-type]
        given = ("--adapter", f"sql={adapter}", "--output", f"oci:{tmp_path}/{name}.oci")
        build(packager, tmp_path, *given, "--model", str(models.get(name, TINY)))
    place = f"{registry}/tiny/mounted"
    ran(packager, "push", f"oci:{tmp_path}/served.oci", f"{place}:1", "--quiet")

    def push(name: str) -> dict[str, Any]:
        words = (f"oci:{tmp_path}/{name}.oci", f"{place}:{name}", "--adapter-only", "sql")
        done = ran(packager, "push", *words, "--format", "json")
        found: dict[str, Any] = json.loads(done.out)
        return found

    pushed, *_ = map(push, ("next", "wide", "other"))

    size = sum(file.stat().st_size for file in (tmp_path / "next").iterdir())
    assert [one["role"] for one in pushed["layers"]] == ["adapter"]
    assert pushed["transfer"]["bytes_sent"] <= size + TOO_MUCH
    unpacked = (f"docker://{place}:next", f"oci:{tmp_path}/taken:1")
    flags = ("--src-tls-verify=false", "--dest-oci-accept-uncompressed-layers")
    subprocess.run(["skopeo", "copy", *flags, *unpacked], check=True)
    layer = pushed["layers"][0]["digest"].removeprefix("sha256:")
    with tarfile.open(tmp_path / "taken/blobs/sha256" / layer) as tar:
        weights = tar.extractfile("opt/packager/adapters/sql/adapter_model.safetensors")
        assert known(weights).read() == (tmp_path / "next/adapter_model.safetensors").read_bytes()

    inside = "opt/packager/adapters/sql"
    for platform, version in (("kubernetes", "1.35"), ("kserve", "1.35")):
        render = ("deploy", platform, "render", f"{place}:1", "--kubernetes-version", version)
        mount = ("--adapter", f"sql={place}:next", "--output", f"{tmp_path}/manifests")
        ran(packager, *render, *mount)
        documents = [yaml.safe_load(one.read_text()) for one in (tmp_path / "manifests").iterdir()]
        for document in documents:
            check_document(document, version)
        text = json.dumps(documents)
        volume = {"reference": f"{place}@{pushed['digest']}", "pullPolicy": "IfNotPresent"}
        mounted = {"mountPath": f"/{inside}", "readOnly": True, "subPath": inside}
        assert json.dumps({"name": "adapter-0", "image": volume}) in text
        assert json.dumps({"name": "adapter-0", **mounted}) in text
        shutil.rmtree(tmp_path / "manifests")

    old = ("deploy", "kubernetes", "render", f"{place}:1", "--kubernetes-version", "1.32")
    assert "came with Kubernetes 1.33" in packager(*old, "--adapter", f"sql={place}:next").err
    refused = {
        f"sql={place}:wide": "has rank 16; the largest of the image has 8",
        f"sql={place}:1": "is no image of an adapter",
        f"sql={place}:other": "made for another base than the image has",
        f"chat={place}:next": "the image serves no adapter 'chat'",
        "sql=claim:models": "is not a directory of a claim",
    }
    for asked, said in refused.items():
        assert said in packager(*render, "--adapter", asked, status=2).err


def test_compose_mounts_an_adapter_of_a_tree_that_a_build_wrote(
    packager: Packager, tmp_path: Path
) -> None:
    given = ("--adapter", f"sql={write_adapter(tmp_path / 'a', lora_alpha=16)}", "--output")
    build(packager, tmp_path, *given, f"oci:{tmp_path}/image")
    build(packager, tmp_path, *given, f"dir:{tmp_path}/tree", "--weights", "mounted")
    inside = tmp_path / "tree/adapters/sql"
    render = ("deploy", "compose", "render", f"oci:{tmp_path}/image", "--image", "r.example/m:1")

    ran(packager, *render, "--adapter", f"sql={inside}", "--output", str(tmp_path / "project"))

    (file,) = (tmp_path / "project").glob("*.y*ml")
    services = yaml.safe_load(file.read_text())["services"]
    (server,) = (one for name, one in services.items() if name != "front")
    (volume,) = (one for one in server["volumes"] if one["source"] == str(inside))
    assert (volume["target"], volume["read_only"]) == ("/opt/packager/adapters/sql", True)
    if shutil.which("docker-compose"):
        subprocess.run(["docker-compose", "-f", str(file), "config", "-q"], check=True)

    def refuse(asked: str, said: str) -> None:
        assert said in packager(*render, "--adapter", asked, status=2).err

    refuse(f"sql={tmp_path / 'a'}", "is in no tree")
    refuse(f"law={inside}", "serves no adapter 'law'")
    (inside / "adapter_config.json").write_text("{}")
    refuse(f"sql={inside}", "not what its build wrote")


def test_a_tree_has_each_adapter_in_a_directory_of_its_own(
    packager: Packager, tmp_path: Path
) -> None:
    wrapped = {"model.language_model.layers.0.self_attn.q_proj": (256, 256)}
    odd = write_adapter(tmp_path / "odd", wrapped, lora_alpha=16)
    words = ("--adapter", f"odd={odd}", "--weights", "mounted")
    build(packager, tmp_path, *words, "--output", f"dir:{tmp_path}/tree")

    inside = tmp_path / "tree/adapters/odd"
    config = json.loads((inside / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["alpha_pattern"]) == (8, 8, {})
    assert (inside / "adapter_model.safetensors").stat().st_size > 1000
    command = (tmp_path / "tree/serving/command.json").read_text()
    assert "/opt/ml/model/adapters/odd" in command


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--adapter", "a_b=."), 2, "cannot be an adapter's name"),
        (("--adapter", "sql"), 2, "has no value"),
        (("--adapter", "a=x", "--adapter", "a=y"), 2, "stands twice"),
        (("--adapter", "sql=./nowhere"), 66, "adapter 'sql': there is no directory"),
        (("--adapter", f"sql={TINY}"), 65, "adapter 'sql': this is a model"),
        (("--adapters", "./nowhere"), 66, "there is no directory"),
        (("--max-adapters", "2"), 3, "no adapter"),
    ],
)
def test_what_is_no_adapter_is_refused_with_a_status(
    packager: Packager, words: tuple[str, ...], status: int, said: str
) -> None:
    done = packager("plan", *BUILD[1:], *words)

    assert done.status == status
    assert said in done.err + done.out


@pytest.mark.parametrize("is_rewritten", [False, True], ids=["as it is", "rewritten"])
def test_an_adapter_is_one_layer_wherever_it_comes_from(
    packager: Packager, tmp_path: Path, is_rewritten: bool
) -> None:
    path = "model.layers.0.self_attn.q_proj"
    wrapped = path.replace("model.", "model.language_model.") if is_rewritten else path
    here = write_adapter(tmp_path / "a", {wrapped: (256, 256)}, lora_alpha=6)
    with bucket_server() as url, FakeHub() as hub:
        bucket = Bucket(url)
        bucket.upload(here, "adapters/a")
        hub.add("acme/a", {file.name: file.read_bytes() for file in here.iterdir()})
        env = bucket.environment | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        env |= {"HF_HUB_DISABLE_XET": "1"}
        records = []
        for number, place in enumerate((here, f"{bucket.url}/adapters/a", "acme/a", "hf://acme/a")):
            words = ("--adapter", f"a={place}", "--output", f"oci:{tmp_path}/out{number}")
            done = packager(
                *(*BUILD, "--base", "scratch", "--quiet", "--format", "json", *words), env=env
            )
            assert done.status == 0, done.err
            records.append(json.loads(done.out))

    layers = [
        [one["digest"] for one in record["layers"] if one["role"] == "adapter"]
        for record in records
    ]
    assert len(layers[0]) == 1
    assert layers.count(layers[0]) == len(layers)
    sources = [record["adapters"][0]["source"] for record in records]
    assert sources == ["local", "s3", "hub", "hub"]
    assert len(records[2]["adapters"][0]["revision"]) == 40
