"""A step as another machine is asked for it, and the files that it has to find."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from packager.core.documents import parse_model
from packager.core.image import Blob, FileRange, Inline
from packager.core.model import ModelFile, TensorInfo
from packager.core.order import StepOrder
from packager.core.recipe import Estimate, Step, StepInput, Work
from packager.optimize.keys.documents import StepInputKey
from packager.optimize.steps.ray.orders import LEFT_OUT, make_order, make_step, segments_of
from tests.support.cases import as_type, read_tables

CONFIG = ModelFile(path="config.json", role="config", content=Inline(b"{}"), sha256="a" * 64)
REMOTE = as_type(read_tables(__file__)["remote"], ModelFile)
ON_DISK = ModelFile(
    path="tokenizer.json",
    role="tokenizer",
    content=FileRange(path="/models/tokenizer.json", offset=0, length=7),
    sha256="c" * 64,
    origin="cache://model-answers/" + "d" * 64 + "/tokenizer.json",
)
STEP = Step(
    name="quantize",
    tool="llmcompressor",
    gives="model",
    parameters={"scheme": "W4A16", "ratio": 0.5, "layers": [1, 2]},
    inputs={"model": StepInput(files=(CONFIG, REMOTE, ON_DISK))},
    env={"OMP_NUM_THREADS": "2"},
    key=StepInputKey(sha256="e" * 64),
    needs=Estimate(memory_bytes=10, seconds=1.5, work=(Work(stage="one", matmul_flops=2.0),)),
    labels={"model": "tiny"},
    gpus=1,
    gpu="A10G",
    threads=3,
    carried=(replace(CONFIG, path="LICENSE"),),
    config={"hidden_size": 8},
    tensors=(TensorInfo(name="norm", dtype="BF16", shape=(8,), size=16, file="m.safetensors"),),
    resumable=True,
    holds_weights=True,
    timeout_s=60.0,
    quiet_s=6.0,
)


def no_digest(file: ModelFile) -> str:
    raise AssertionError(f"{file.path} states its digest")


def sent(step: Step) -> StepOrder:
    """Take a step over the wire."""
    data = make_order(step, no_digest).model_dump_json(exclude_defaults=True).encode()
    return parse_model(StepOrder, data)


def test_every_field_of_a_step_arrives_or_is_left_out_by_name() -> None:
    order = sent(STEP)
    files = (CONFIG, REMOTE, ON_DISK)

    arrived = make_step(order, {"model": files})

    everything = {one.name for one in fields(Step)} - LEFT_OUT
    defaults = Step(name="", tool="", gives="model")
    assert same(arrived, STEP, everything) == everything - {"carried"}
    assert same(STEP, defaults, everything) == {"gives"}  # else nothing would show that it arrived
    assert [file.path for file in arrived.carried] == ["LICENSE"]


def same(one: Step, other: Step, names: set[str]) -> set[str]:
    return {name for name in names if getattr(one, name) == getattr(other, name)}


PART = replace(ON_DISK, content=FileRange(path="/models/all", offset=5, length=7))
HEADED = Blob((Inline(b"head"), FileRange(path="/m", offset=0, length=3)))


@pytest.mark.parametrize(
    ("file", "place", "origin", "travels"),
    [
        (CONFIG, "", "", True),
        (REMOTE, "", "", True),
        (ON_DISK, "/models/tokenizer.json", ON_DISK.origin, False),
        (PART, "", ON_DISK.origin, False),
        (replace(ON_DISK, content=HEADED), "", ON_DISK.origin, False),
    ],
    ids=["made here", "fetched by address", "on disk", "part of a file", "partly on disk"],
)
def test_a_file_is_named_by_what_it_holds_unless_its_bytes_travel(
    file: ModelFile, place: str, origin: str, travels: bool
) -> None:
    [named] = sent(replace(STEP, inputs={"model": StepInput(files=(file,))})).inputs["model"]

    assert (named.place, named.origin) == (place, origin)
    assert (named.path, named.size, named.sha256) == (file.path, file.size, file.sha256)
    assert segments_of(named) == ((file.content,) if travels else None)


def test_a_local_file_without_a_digest_is_read_for_one() -> None:
    unread = replace(ON_DISK, sha256="")
    step = replace(STEP, inputs={"model": StepInput(files=(unread, CONFIG))})

    order = make_order(step, lambda file: f"{file.path}-digest")

    assert [one.sha256 for one in order.inputs["model"]] == ["tokenizer.json-digest", "a" * 64]


def test_no_weights_travel_in_an_order(tmp_path: Path) -> None:
    place = tmp_path / "model.safetensors"
    place.write_bytes(b"SECRETWEIGHTS" * 1000)
    local = ModelFile(
        path="model.safetensors",
        role="weights",
        content=FileRange(path=str(place), offset=0, length=13000),
        sha256="f" * 64,
    )

    order = sent(replace(STEP, inputs={"model": StepInput(files=(local,))}))

    assert len(order.model_dump_json()) < 3000
    assert segments_of(order.inputs["model"][0]) is None
