"""Claims from the command line: the key, what was believed, what was not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import fill_with_numbers, write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.fresh_machines import Machines, weights_of
from tests.support.fresh_machines import hub as hub
from tests.support.fresh_machines import machines as machines
from tests.support.fresh_machines import model as model
from tests.support.fresh_machines import registry as registry

KEY = "packager-claim-key-1:" + "0123456789abcdef" * 4
OTHER = "packager-claim-key-1:" + "fedcba9876543210" * 4


def not_weights(record: dict[str, Any]) -> int:
    return sum(layer["size"] for layer in record["layers"] if layer["role"] != "weights")


def test_what_was_believed_is_named_in_the_text_the_json_and_the_record(
    machines: Machines, registry: FakeRegistry, tmp_path: Path
) -> None:
    build = ("build", "--instance", "local", "--base", "scratch", "--model", "hf://acme/tiny")
    build += ("--output", f"{registry.host}/team/model:1")
    first = machines.build("one", "hf://acme/tiny", *build[-2:], PACKAGER_CLAIM_KEY=KEY)
    kept = tmp_path / "record.json"

    text = machines.run("two", *build, "--record", str(kept), PACKAGER_CLAIM_KEY=KEY).err
    shown = machines.build("three", "hf://acme/tiny", *build[-2:], PACKAGER_CLAIM_KEY=KEY)

    key_id = machines.run("one", "claims", "key", PACKAGER_CLAIM_KEY=KEY).out.split()[-1]
    lines = [line for line in text.splitlines() if line.startswith("not read")]
    assert [line.split()[-1] for line in lines] == weights_of(first)
    assert all(
        line.startswith(f"not read, believed by a claim of key {key_id}: weights ")
        for line in lines
    )
    for record in (shown, json.loads(kept.read_text())):
        believed = {layer["digest"]: layer.get("believed") for layer in record["layers"]}
        assert [believed[digest] for digest in weights_of(first)] == [key_id] * 3
        assert list(believed.values()).count(key_id) == 3
    assert not any("believed" in layer for layer in first["layers"])


@pytest.mark.parametrize("split", [(), ("--max-layer-size", "2MiB")], ids=["whole", "in parts"])
def test_a_fresh_machine_without_the_key_streams_once_and_sends_nothing(
    machines: Machines, registry: FakeRegistry, hub: FakeHub, split: tuple[str, ...]
) -> None:
    """Streams of a hub were sent again, whatever the registry had."""
    output = (*split, "--output", f"{registry.host}/team/model:1")
    first = machines.build("one", "hf://acme/tiny", *output)
    hub.seen.clear()

    done = machines.build_with("two", "hf://acme/tiny", *output)

    second = json.loads(done.out)
    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_sent"] < 5_000
    if not split:
        blobs = [seen for seen in hub.seen if seen.path.startswith("/blobs/") and not seen.range]
        assert len(blobs) == 3
        assert done.err.count("warning: what layers in") == 1


@pytest.mark.extended
@pytest.mark.parametrize("key", [KEY, OTHER], ids=["our own", "somebody else's"])
def test_a_copy_is_claimed_for_its_new_repository_by_whoever_could_prove_it(
    machines: Machines, registry: FakeRegistry, key: str
) -> None:
    source, target = f"{registry.host}/team/model:1", f"{registry.host}/prod/model"
    first = machines.build("one", "hf://acme/tiny", "--output", source, PACKAGER_CLAIM_KEY=KEY)
    machines.run("one", "copy", source, f"{target}:1", PACKAGER_CLAIM_KEY=key)

    output = ("--output", f"{target}:2")
    second = machines.build("two", "hf://acme/tiny", *output, PACKAGER_CLAIM_KEY=key)

    assert weights_of(second) == weights_of(first)
    if key == KEY:
        assert second["transfer"]["bytes_read"] <= not_weights(second)
    else:
        assert not any(layer.get("believed") for layer in second["layers"])


def test_the_key_is_in_nothing_that_a_build_leaves_behind(
    machines: Machines, registry: FakeRegistry, tmp_path: Path
) -> None:
    secret = KEY.partition(":")[2].encode()
    build = ("--output", f"{registry.host}/team/model:1", "--record", str(tmp_path / "r.json"))

    done = machines.build_with("one", "hf://acme/tiny", *build, PACKAGER_CLAIM_KEY=KEY)
    machines.build_with("one", "hf://acme/tiny", *build, PACKAGER_CLAIM_KEY=KEY)

    held = [done.out.encode(), done.err.encode(), *registry.blobs.values()]
    held += [data for _, data in registry.manifests.values()]
    held += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    raw = bytes.fromhex(secret.decode())
    assert not any(secret in data or raw in data for data in held)


def test_a_key_that_must_not_be_used_stops_a_build_before_any_work(
    machines: Machines, registry: FakeRegistry, hub: FakeHub
) -> None:
    build = ("build", "--instance", "local", "--base", "scratch", "--model", "hf://acme/tiny")
    output = ("--output", f"{registry.host}/team/model:1")
    done = machines.run("one", *build, *output, status=2, PACKAGER_CLAIM_KEY="hunter2")

    assert "error: the claim key in 'PACKAGER_CLAIM_KEY' cannot be used" in done.err
    assert "hunter2" not in done.err
    assert registry.seen == []
    assert hub.seen == []


def test_a_layout_needs_no_key(machines: Machines) -> None:
    machines.build_with(
        "one", "hf://acme/tiny", "--output", "oci:out", PACKAGER_CLAIM_KEY="hunter2"
    )


def test_a_key_is_made_shown_exported_and_taken_over(machines: Machines, tmp_path: Path) -> None:
    assert "none yet" in machines.run("one", "claims", "key").out
    made = json.loads(machines.run("one", "claims", "key", "--create", "--format", "json").out)
    assert made["place"] == str(tmp_path / "one" / "config" / "packager" / "claim-key")
    shown = machines.run("one", "claims", "key")
    exported = machines.run("one", "claims", "export").out
    (tmp_path / "key").write_text(exported)
    taken = machines.run("two", "claims", "import", str(tmp_path / "key"))

    assert exported.startswith("packager-claim-key-1:")
    assert exported.strip().partition(":")[2] not in shown.out + shown.err + taken.out + taken.err
    assert taken.out.strip() == made["id"]
    assert made["id"] in shown.out
    assert machines.run("two", "claims", "export").out == exported


@cases("a_key_that_is_not_there_is_explained")
def test_a_key_that_is_not_there_is_explained(
    machines: Machines, arguments: tuple[str, ...], status: int, said: str
) -> None:
    assert said in machines.run("one", "claims", *arguments, status=status).err


def test_another_key_is_not_overwritten(machines: Machines, tmp_path: Path) -> None:
    machines.run("one", "claims", "key", "--create")
    (tmp_path / "key").write_text(KEY)

    refused = machines.run("one", "claims", "import", str(tmp_path / "key"), status=2)
    machines.run("one", "claims", "import", str(tmp_path / "key"), "--replace")

    assert "there is another claim key" in refused.err
    assert machines.run("one", "claims", "export").out.strip() == KEY


@pytest.mark.parametrize("method", ["stream:fp8", "stream:nvfp4"])
def test_what_was_quantized_on_its_way_is_believed_by_another_machine(
    machines: Machines, registry: FakeRegistry, hub: FakeHub, tmp_path: Path, method: str
) -> None:
    """Embeddings and head are layers of their own, as in models of any use."""
    place = tmp_path / "wide"
    model = write_model(place, hidden_size=512, intermediate_size=4096, vocab_size=2048, layers=3)
    fill_with_numbers(model)
    hub.add("acme/tiny", model)
    output = ("--output", f"{registry.host}/team/model:1")
    asked = (*output, "--quantize", method, "--instance", "ml.p5.48xlarge")
    first = machines.build("one", "hf://acme/tiny", *asked, PACKAGER_CLAIM_KEY=KEY)

    second = machines.build("two", "hf://acme/tiny", *asked, PACKAGER_CLAIM_KEY=KEY)

    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_read"] <= not_weights(second) + 10_000
    believed = [layer["role"] for layer in second["layers"] if "believed" in layer]
    assert believed == [*["weights"] * len(weights_of(second)), "model"]
