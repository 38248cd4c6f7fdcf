"""A model's texts go with its quantized weights as they are now, not as they were then."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import FileRange, Inline
from packager.core.model import ModelFile
from packager.core.recipe import Step
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.optimize.steps.failures import StepBroken
from packager.optimize.steps.inputs import carried_files
from packager.optimize.steps.results import read_result
from tests.support.doubles.models import write_model

QUANTIZATION = {"quant_method": "compressed-tensors"}
INDEX = "model.safetensors.index.json"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model with a card, of which somebody has just changed the answers' end."""
    place: Path = write_model(tmp_path / "source", shards=1)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "eos_token_id": 7, "zoë": 1e-05}))
    (place / "README.md").write_text("card of today")
    return place


@pytest.fixture
def artifact(tmp_path: Path, source: Path) -> Path:
    """What quantizing an earlier state of it left: weights and what describes them."""
    place = tmp_path / "artifact"
    place.mkdir()
    shutil.copyfile(source / "model.safetensors", place / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    del config["eos_token_id"]
    (place / "config.json").write_text(json.dumps({**config, "quantization_config": QUANTIZATION}))
    return place


def step_of(source: Path, **changes: Any) -> Step:
    model = LocalSource().facts(parse_model_reference(str(source)))
    given = {"gives": "model", "carried": carried_files(model.files), "config": model.config}
    return Step(name="quantize", tool="t", **{**given, **changes})


def content(file: ModelFile) -> bytes:
    if isinstance(file.content, Inline):
        return file.content.data
    assert isinstance(file.content, FileRange)
    return Path(file.content.path).read_bytes()


def test_weights_are_the_artifacts_and_all_else_the_sources(source: Path, artifact: Path) -> None:
    found = {file.path: file for file in read_result(step_of(source), artifact, {}, {})}

    weights = found["model.safetensors"].content
    assert isinstance(weights, FileRange)
    assert Path(weights.path).parent == artifact
    assert content(found["README.md"]) == b"card of today"
    assert content(found["tokenizer.json"]) == (source / "tokenizer.json").read_bytes()
    assert [file.path for file in read_result(step_of(source), artifact, {}, {})] == sorted(found)


def test_the_configuration_is_the_sources_and_quantization(source: Path, artifact: Path) -> None:
    config = next(
        file
        for file in read_result(step_of(source), artifact, {}, {})
        if file.path == "config.json"
    )

    expected = json.loads((source / "config.json").read_text())
    assert json.loads(content(config)) == {**expected, "quantization_config": QUANTIZATION}
    assert config.sha256 == hashlib.sha256(content(config)).hexdigest()
    assert '"zoë": 1e-05'.encode() in content(config)


def test_an_artifact_without_its_quantization_is_broken(source: Path, artifact: Path) -> None:
    shutil.copyfile(source / "config.json", artifact / "config.json")

    with pytest.raises(StepBroken, match="without 'quantization_config'"):
        read_result(step_of(source), artifact, {}, {})


def test_a_result_that_carries_nothing_is_still_a_whole_model(source: Path, artifact: Path) -> None:
    """A quantizer of another package gives everything back itself."""
    alone = step_of(source, carried=(), config=None)

    with pytest.raises(StepBroken, match="no tokenizer"):
        read_result(alone, artifact, {}, {})


def test_an_engine_serves_with_the_tokenizer_of_today(source: Path, tmp_path: Path) -> None:
    """trtllm-build's own config.json stays; the server looks for a tokenizer beside it."""
    built = tmp_path / "engine"
    built.mkdir()
    (built / "config.json").write_text('{"build_config": {}}')
    (built / "rank0.engine").write_bytes(b"engine")

    (source / "generation_config.json").write_text('{"of": "the source"}')
    (built / "generation_config.json").write_text('{"of": "the engine"}')

    files = read_result(step_of(source, gives="compiled", config=None), built, {}, {})
    found = {file.path: file for file in files}

    assert len(files) == len(found)
    assert content(found["generation_config.json"]) == b'{"of": "the engine"}'
    assert content(found["config.json"]) == b'{"build_config": {}}'
    assert content(found["tokenizer.json"]) == (source / "tokenizer.json").read_bytes()
    assert "model.safetensors" not in found
    assert INDEX not in found
