"""Checkpoints as llm-compressor and AutoRound write them pass the gate, and damaged they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.model import ModelFiles, TensorInfo
from packager.images.blobs import BlobReader
from packager.models.checkpoints.gate import inspect_quantized, quantized_scales
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.safetensors import read_weights_header
from packager.models.scales import read_scale_values
from tests.live.tool_programs import run_program
from tests.support.cases import read_tables
from tests.support.commandline import TINY

pytestmark = pytest.mark.live

SCHEMES: dict[str, list[str]] = read_tables(__file__)["schemes"]
AUTO_ROUND = ("auto_round", "auto_round:auto_awq", "auto_gptq", "auto_awq")
NAMES = (*SCHEMES, *(f"auto_round-{form.replace(':', '-')}" for form in AUTO_ROUND))


@pytest.fixture(scope="module")
def written(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Have all checkpoints written by one process: the libraries take long to load."""
    into = tmp_path_factory.mktemp("arrived")
    wanted = (*SCHEMES, *(f"auto_round={form}" for form in AUTO_ROUND))
    run_program(quantizing_python, "arrived_checkpoints.py", str(TINY), str(into), *wanted)
    return into


def codes(model: ModelFiles) -> list[str]:
    reader = BlobReader()
    values = read_scale_values(
        model,
        quantized_scales(model),
        read_header=lambda file: read_weights_header(file, reader.read),
        read=reader.read,
    )
    assert values.read_bytes == values.total_bytes > 0
    return [finding.code for finding in inspect_quantized(model, values).findings]


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_passes_as_it_was_written(written: Path, name: str) -> None:
    model = LocalSource().facts(parse_model_reference(str(written / name)))

    assert codes(model) == []
    arrived = inspect_quantized(model).arrived
    assert arrived is not None
    assert arrived.features == tuple(SCHEMES.get(name, ()))


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_with_one_scale_of_no_number_is_refused(written: Path, name: str) -> None:
    scale = quantized_scales(LocalSource().facts(parse_model_reference(str(written / name))))[-1]
    offset = offset_of(written / name / scale.file, scale)
    path = written / name / scale.file
    sound = path.read_bytes()
    try:
        with path.open("r+b") as stream:
            stream.seek(offset)
            stream.write(b"\xff" * scale.size)  # no number in any format
        assert codes(LocalSource().facts(parse_model_reference(str(written / name)))) == [
            "quantization-scale-value"
        ]
    finally:
        path.write_bytes(sound)


def offset_of(path: Path, wanted: TensorInfo) -> int:
    reader = BlobReader()
    model = LocalSource().facts(parse_model_reference(str(path.parent)))
    (file,) = (one for one in model.files if one.path == wanted.file)
    header = read_weights_header(file, reader.read)
    at = header.data_offset
    for tensor in header.tensors:
        if tensor.name == wanted.name:
            return at
        at += tensor.size
    raise AssertionError(wanted)
