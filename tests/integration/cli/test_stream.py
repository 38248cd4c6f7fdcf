"""Models that stream into an image: nothing lands on disk, nothing wrong is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commandline import Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.doubles.s3 import Bucket
from tests.support.places import ROOT
from tests.support.remote_models import TOKEN
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import server as server

SHARD = "model-00002-of-00003.safetensors"
BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--format", "json")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three shards, each a layer of its own."""
    return write_model(tmp_path / "upstream", hidden_size=512, intermediate_size=1024)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def bytes_below(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def test_a_hub_model_streams_into_a_registry_without_landing_on_disk(
    packager: Packager, environment: dict[str, str], registry: FakeRegistry, tmp_path: Path
) -> None:
    output = f"{registry.host}/acme/tiny:1"

    done = packager(*BUILD, "--model", "hf://acme/tiny", "--output", output, env=environment)

    assert done.status == 0, done.err
    assert ("acme/tiny", "1") in registry.manifests
    assert not [path for path in (tmp_path / "disk").rglob("*") if "safetensors" in path.suffix]
    assert bytes_below(tmp_path / "disk") < 200_000  # the weights have 14 MB
    assert TOKEN not in done.out + done.err


def test_streamed_downloaded_and_local_weights_are_the_same_layers(
    packager: Packager, environment: dict[str, str], bucket: Bucket, model: Path
) -> None:
    built = {}
    for name, reference in {
        "hf": "hf://acme/tiny",
        "hub": "acme/tiny",
        "s3": f"{bucket.url}/llama",
        "local": str(model),
    }.items():
        done = packager(
            *BUILD, "--model", reference, "--output", f"oci:out-{name}", env=environment
        )
        assert done.status == 0, done.err
        built[name] = json.loads(done.out)

    assert built["hf"]["digest"] == built["hub"]["digest"]
    digests = {
        name: [layer["digest"] for layer in record["layers"]][:4] for name, record in built.items()
    }
    assert digests["s3"] == digests["local"] == digests["hf"]


@pytest.mark.parametrize("source", ["hf", "s3"])
def test_a_second_build_reads_nothing(
    packager: Packager,
    environment: dict[str, str],
    registry: FakeRegistry,
    bucket: Bucket,
    source: str,
) -> None:
    reference = {"hf": "hf://acme/tiny", "s3": f"{bucket.url}/llama"}[source]
    build = (*BUILD, "--model", reference, "--output", f"{registry.host}/acme/tiny:1")
    first = packager(*build, env=environment, status=0)

    second = packager(*build, env=environment, status=0)

    transfer = json.loads(second.out)["transfer"]
    assert (transfer["bytes_read"], transfer["layers_streamed"]) == (0, 0)
    assert json.loads(second.out)["digest"] == json.loads(first.out)["digest"]


def test_a_streamed_build_can_be_repeated_from_its_record(
    packager: Packager, environment: dict[str, str], hub: FakeHub, tmp_path: Path
) -> None:
    first = packager(*BUILD, "--model", "hf://acme/tiny", "--output", "oci:one", env=environment)
    (tmp_path / "record.json").write_text(first.out)
    hub.add("acme/tiny", write_model(tmp_path / "newer", seed=1))

    again = ("build", "--from-record", "record.json", "--output", "oci:two", "--quiet")
    second = packager(*again, env=environment, status=0)

    assert json.loads(first.out)["digest"] in second.out
    assert not list((tmp_path / "disk").rglob("*.safetensors"))


def test_only_what_a_new_commit_changed_is_read(
    packager: Packager, environment: dict[str, str], hub: FakeHub, model: Path, tmp_path: Path
) -> None:
    build = (*BUILD, "--model", "hf://acme/tiny", "--output", "oci:out")
    assert packager(*build, env=environment).status == 0
    other = write_model(tmp_path / "other", hidden_size=512, intermediate_size=1024, seed=7)
    (model / SHARD).write_bytes((other / SHARD).read_bytes())
    hub.add("acme/tiny", model)

    done = packager(*build, env=environment, status=0)

    transfer = json.loads(done.out)["transfer"]
    shard_bytes = (model / SHARD).stat().st_size
    assert shard_bytes <= transfer["bytes_read"] < shard_bytes + 100_000


def test_connections_that_drop_do_not_stop_a_build(
    packager: Packager, environment: dict[str, str], hub: FakeHub
) -> None:
    hub.drops[SHARD] = [2_000_000, 1_500_000]

    done = packager(*BUILD, "--model", "hf://acme/tiny", "--output", "oci:out", env=environment)

    assert done.status == 0, done.err
    assert hub.drops[SHARD] == []


def test_wrong_bytes_from_a_hub_are_never_named(
    packager: Packager, environment: dict[str, str], hub: FakeHub, registry: FakeRegistry
) -> None:
    output = f"{registry.host}/acme/tiny:1"
    registry.put_manifest("acme/tiny", "1", b"{}", "application/vnd.oci.image.manifest.v1+json")
    before = dict(registry.manifests)
    hub.damaged[SHARD] = 99

    done = packager(*BUILD, "--model", "hf://acme/tiny", "--output", output, env=environment)

    assert done.status == 65
    assert SHARD in done.err
    assert registry.manifests == before


def test_an_object_that_changes_during_the_build_is_never_named(
    packager: Packager,
    environment: dict[str, str],
    bucket: Bucket,
    registry: FakeRegistry,
    tmp_path: Path,
) -> None:
    changing = (
        "import sys\n"
        "from packager.models import s3\n"
        "from packager.cli.app import run\n"
        "from tests.support.doubles.s3 import boto3\n"
        "facts = s3.S3Source.facts\n"
        "def then_change(self, reference):\n"
        "    found = facts(self, reference)\n"
        f"    place = dict(Bucket={bucket.name!r}, Key='llama/{SHARD}')\n"
        "    boto3.client('s3').put_object(**place, Body=b'other')\n"
        "    return found\n"
        "s3.S3Source.facts = then_change\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    arguments = (
        *BUILD,
        "--model",
        f"{bucket.url}/llama",
        "--output",
        f"{registry.host}/acme/tiny:1",
    )

    done = run_code(changing, *arguments, environment=environment, cwd=tmp_path)

    assert done.returncode == 65, done.stderr
    assert "changed since it was listed" in done.stderr
    assert registry.manifests == {}
    assert "secret-canary" not in done.stdout + done.stderr


@pytest.mark.parametrize("source", ["hf", "s3"])
def test_a_plan_of_a_streamed_model_reads_headers(
    packager: Packager, environment: dict[str, str], bucket: Bucket, tmp_path: Path, source: str
) -> None:
    reference = {"hf": "hf://acme/tiny", "s3": f"{bucket.url}/llama"}[source]

    done = packager("plan", "--model", reference, "--instance", "g5.xlarge", env=environment)

    assert done.status == 0, done.err
    assert "LlamaForCausalLM" in done.out
    assert bytes_below(tmp_path / "disk") < 100_000


@pytest.mark.parametrize("source", ["hf", "s3"])
def test_memory_does_not_grow_with_the_model(
    server: str, environment: dict[str, str], hub: FakeHub, tmp_path: Path, source: str
) -> None:
    """Python, its libraries and some chunks a layer: the weights have 220 MB."""
    large = write_model(
        tmp_path / "large", hidden_size=1024, intermediate_size=4096, layers=6, vocab_size=8000
    )
    hub.add("acme/large", large)
    reference = "hf://acme/large"
    if source == "s3":
        bucket = Bucket(server)
        bucket.upload(large, "large")
        environment |= bucket.environment
        reference = f"{bucket.url}/large"
    measured = (
        "import pathlib, sys\n"
        "from packager.cli.app import run\n"
        "status = run(sys.argv[1:])\n"
        # Not getrusage: a child starts with the peak of the process that made it.
        "status_lines = pathlib.Path('/proc/self/status').read_text()\n"
        "print('peak', status_lines.split('VmHWM:')[1].split()[0], file=sys.stderr)\n"
        "sys.exit(status)\n"
    )
    arguments = (*BUILD, "--model", reference, "--output", "oci:out")

    done = run_code(measured, *arguments, environment=environment, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert bytes_below(tmp_path / "out") > 200_000_000
    assert int(done.stderr.split("peak ")[1]) * 1024 < 150_000_000


def run_code(
    code: str, *arguments: str, environment: dict[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python code with the command line's arguments, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
