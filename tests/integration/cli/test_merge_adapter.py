"""`--merge-adapter`: other weights in the same files, from every source, quantized or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.checkpoints import read_tensors
from tests.support.adapters import tiny_modules, write_adapter
from tests.support.cases import cases_of
from tests.support.commandline import TINY, Packager
from tests.support.doubles.s3 import Bucket
from tests.support.remote_models import Remote
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import remote as remote
from tests.support.remote_models import server as server

cases = cases_of(__file__)
CHANGED = ("q_proj", "down_proj")


@pytest.fixture
def model() -> Path:
    return TINY


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "sql", tiny_modules(*CHANGED), size=3.0)


def build(packager: Packager, output: Path, *options: str, model: Path = TINY) -> Any:
    words = ("--model", str(model), "--instance", "ml.g5.xlarge", "--base", "scratch")
    done = packager(
        "build", *words, "--output", f"dir:{output}", "--format", "json", *options, status=0
    )
    return done.document


def merging(adapter: Path) -> tuple[str, ...]:
    return "--adapter", f"sql={adapter}", "--merge-adapter", "sql"


def weights(place: Path) -> dict[str, Any]:
    return {path.name: path.read_bytes() for path in sorted(place.glob("*.safetensors"))}


def test_a_merged_model_has_the_bases_files_with_other_matrices(
    packager: Packager, tmp_path: Path, adapter: Path
) -> None:
    record = build(packager, tmp_path / "out", *merging(adapter))

    before, after = read_tensors(TINY), read_tensors(tmp_path / "out")
    assert {name: one.shape for name, one in after.items()} == {
        name: one.shape for name, one in before.items()
    }
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"{path}.weight" for path in tiny_modules(*CHANGED)}
    assert record["merged_adapter"]["name"] == "sql"
    assert record["adapters"] == []
    assert record["served_name"] == "tiny-llama-sql"


@pytest.mark.parametrize("method", ["fp8", "nvfp4"])
def test_quantizing_in_the_stream_rounds_the_merged_weights(
    packager: Packager, tmp_path: Path, adapter: Path, method: str
) -> None:
    build(packager, tmp_path / "merged", *merging(adapter))

    build(packager, tmp_path / "once", *merging(adapter), "--quantize", f"stream:{method}")
    build(packager, tmp_path / "twice", "--quantize", f"stream:{method}", model=tmp_path / "merged")

    assert weights(tmp_path / "once") == weights(tmp_path / "twice")


def test_every_source_of_base_and_adapter_gives_the_same_bytes(
    remote: Remote, bucket: Bucket, hub: Any, adapter: Path, tmp_path: Path
) -> None:
    hub.add("acme/sql", adapter)
    bucket.upload(adapter, "sql")
    places = {
        "local": (str(TINY), str(adapter)),
        "hub": ("acme/tiny", "acme/sql"),
        "streamed": ("hf://acme/tiny", "hf://acme/sql"),
        "bucket": (f"{bucket.url}/llama", f"{bucket.url}/sql"),
    }

    for name, (base, named) in places.items():
        words = ("--adapter", f"sql={named}", "--merge-adapter", "sql")
        remote.build(base, f"dir:{tmp_path}/{name}", *words)

    first, *others = (weights(tmp_path / name) for name in places)
    assert first != weights(TINY)
    assert all(other == first for other in others)


@cases("refused")
def test_what_cannot_be_merged_is_refused_before_anything_is_written(
    packager: Packager, tmp_path: Path, adapter: Path, words: list[str], told: str, status: int
) -> None:
    given = [word.replace("ADAPTER", str(adapter)) for word in words]
    place = str(tmp_path / "out")

    done = packager(
        *("build", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--base", "scratch"),
        *("--output", f"oci:{place}", *given),
        status=status,
    )

    assert told in " ".join(done.err.split())
    assert not Path(place).exists()


def test_the_plan_says_what_is_merged(packager: Packager, adapter: Path) -> None:
    done = packager("plan", str(TINY), "--instance", "ml.g5.xlarge", *merging(adapter), status=0)

    told = " ".join(done.out.split() + done.err.split())
    assert "the adapter 'sql' (rank 8, 8 modules) is folded into the weights" in told
    assert json.dumps("tiny-llama-sql")[1:-1] in told
