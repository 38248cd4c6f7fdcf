"""A miss names the model's file and the field, for a model that nobody has read yet, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.optimize.keys.documents import parse_document
from tests.support.cache_opening import open_local
from tests.support.cases import cases
from tests.support.commandline import Done, packager_in
from tests.unit.optimize.cache.test_cache_explain import model as model


@pytest.fixture
def explained(tmp_path: Path, model: Path) -> Any:
    """Ask what a build of the model would find."""
    packager = packager_in(tmp_path)
    env = {"PACKAGER_CACHE": str(tmp_path / "cache"), "PACKAGER_TOOLS": str(tmp_path / "tools")}

    def explain(*words: str) -> Done:
        asked = ("--model", str(model), "--instance", "ml.g5.xlarge", "--quantize", "awq")
        return packager("cache", "explain", *asked, *words, env=env)

    return explain


def publish(root: Path, document: dict[str, Any], into: Path) -> None:
    """Put something into the cache under a key document."""

    def build(place: Path) -> None:
        (place / "model.safetensors").write_bytes(b"quantized")

    open_local(root / "artifacts").get_or_build(parse_document(document), build, into)


@cases("changes")
def test_a_miss_names_file_and_field(
    explained: Any, model: Path, tmp_path: Path, change: str, said: str
) -> None:
    first = explained("--format", "json")
    assert first.status == 0, first.err
    [asked] = json.loads(first.out)
    publish(tmp_path / "cache", asked["document"], tmp_path / "into")

    match change:
        case "field":
            config = json.loads((model / "config.json").read_text())
            (model / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
        case "weights":
            data = (model / "model-00002-of-00003.safetensors").read_bytes()
            (model / "model-00002-of-00003.safetensors").write_bytes(
                data[:-1] + bytes([data[-1] ^ 1])
            )
        case "template":
            (model / "tokenizer_config.json").write_text('{"chat_template": "another"}')
        case "card":
            (model / "README.md").write_text("another card")
    after = explained()

    assert after.status == 0, after.err
    if not said:
        assert after.out.startswith("quantize: hit (")
    else:
        assert after.out.startswith("quantize: miss (")
        assert "1 field differs" in after.out
        assert said in after.out
