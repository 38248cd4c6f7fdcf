"""Models that stream into an image: nothing lands on disk, nothing wrong is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.doubles.s3 import Bucket
from tests.support.places import ROOT
from tests.support.processes import run_python
from tests.support.remote_models import BUILD, TOKEN, Remote
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import remote as remote
from tests.support.remote_models import server as server

SHARD = "model-00002-of-00003.safetensors"


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


def test_a_hub_model_streams_without_a_disk(remote: Remote, registry: FakeRegistry) -> None:
    done = remote.build("hf://acme/tiny", f"{registry.host}/acme/tiny:1")

    assert ("acme/tiny", "1") in registry.manifests
    assert not remote.weights_on_disk()
    assert bytes_below(remote.disk) < 200_000  # the weights have 14 MB
    assert TOKEN not in done.out + done.err


def test_every_source_gives_the_same_layers(remote: Remote, bucket: Bucket, model: Path) -> None:
    places = {
        "hf": "hf://acme/tiny",
        "hub": "acme/tiny",
        "s3": f"{bucket.url}/llama",
        "local": str(model),
    }
    built = {name: remote.record(place, f"oci:out-{name}") for name, place in places.items()}

    assert built["hf"]["digest"] == built["hub"]["digest"]
    digests = {
        name: [layer["digest"] for layer in record["layers"]][:4] for name, record in built.items()
    }
    assert digests["s3"] == digests["local"] == digests["hf"]


@pytest.mark.extended
@pytest.mark.parametrize("source", ["hf", "s3"])
def test_a_second_build_reads_nothing(
    remote: Remote, registry: FakeRegistry, bucket: Bucket, source: str
) -> None:
    reference = {"hf": "hf://acme/tiny", "s3": f"{bucket.url}/llama"}[source]
    first = remote.record(reference, f"{registry.host}/acme/tiny:1")

    second = remote.record(reference, f"{registry.host}/acme/tiny:1")

    transfer = second["transfer"]
    assert (transfer["bytes_read"], transfer["layers_streamed"]) == (0, 0)
    assert second["digest"] == first["digest"]


def test_a_streamed_build_can_be_repeated_from_its_record(remote: Remote, hub: FakeHub) -> None:
    first = remote.build("hf://acme/tiny", "oci:one")
    (remote.root / "record.json").write_text(first.out)
    hub.add("acme/tiny", write_model(remote.root / "newer", seed=1))

    again = ("build", "--from-record", "record.json", "--output", "oci:two", "--quiet")
    second = remote.run(*again)

    assert json.loads(first.out)["digest"] in second.out
    assert not remote.weights_on_disk()


def test_only_what_a_new_commit_changed_is_read(remote: Remote, hub: FakeHub, model: Path) -> None:
    remote.build("hf://acme/tiny", "oci:out")
    other = write_model(remote.root / "other", hidden_size=512, intermediate_size=1024, seed=7)
    (model / SHARD).write_bytes((other / SHARD).read_bytes())
    hub.add("acme/tiny", model)

    transfer = remote.record("hf://acme/tiny", "oci:out")["transfer"]

    shard_bytes = (model / SHARD).stat().st_size
    assert shard_bytes <= transfer["bytes_read"] < shard_bytes + 100_000


def test_wrong_bytes_are_never_named(remote: Remote, hub: FakeHub, registry: FakeRegistry) -> None:
    registry.put_manifest("acme/tiny", "1", b"{}", "application/vnd.oci.image.manifest.v1+json")
    before = dict(registry.manifests)
    hub.damaged[SHARD] = 99

    done = remote.build("hf://acme/tiny", f"{registry.host}/acme/tiny:1", status=65)

    assert SHARD in done.err
    assert registry.manifests == before


@pytest.mark.extended
def test_changed_objects_fail(remote: Remote, bucket: Bucket, registry: FakeRegistry) -> None:
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
    places = ("--model", f"{bucket.url}/llama", "--output", f"{registry.host}/acme/tiny:1")

    done = run_code(remote, changing, *BUILD, *places, status=65)

    assert "changed since it was listed" in done.stderr
    assert registry.manifests == {}
    assert "secret-canary" not in done.stdout + done.stderr


@pytest.mark.parametrize("source", ["hf", "s3"])
def test_a_plan_of_a_streamed_model_is_cheap(remote: Remote, bucket: Bucket, source: str) -> None:
    reference = {"hf": "hf://acme/tiny", "s3": f"{bucket.url}/llama"}[source]

    done = remote.run("plan", "--model", reference, "--instance", "g5.xlarge")

    assert "LlamaForCausalLM" in done.out
    assert bytes_below(remote.disk) < 100_000


@pytest.mark.extended
@pytest.mark.parametrize("source", ["hf", "s3"])
def test_memory_does_not_grow_much(server: str, remote: Remote, hub: FakeHub, source: str) -> None:
    """Python, its libraries and some chunks a layer: the weights have 220 MB."""
    large = write_model(
        remote.root / "large", hidden_size=1024, intermediate_size=4096, layers=6, vocab_size=8000
    )
    hub.add("acme/large", large)
    reference = "hf://acme/large"
    if source == "s3":
        bucket = Bucket(server)
        bucket.upload(large, "large")
        remote.environment |= bucket.environment
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
    done = run_code(remote, measured, *BUILD, "--model", reference, "--output", "oci:out")

    assert bytes_below(remote.root / "out") > 200_000_000
    assert int(done.stderr.split("peak ")[1]) * 1024 < 150_000_000


def run_code(remote: Remote, code: str, *arguments: str, **how: Any) -> CompletedProcess[str]:
    """Run Python code with the command line's arguments, in a process of its own."""
    env = {**remote.environment, "PYTHONPATH": str(ROOT)}
    return run_python("-c", code, *arguments, cwd=remote.root, env=env, **how)
