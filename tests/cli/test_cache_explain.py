"""A miss names the model's file and the field, for a model that nobody has read yet, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.cache import open_local
from artifact_cache.key import parse_document
from packager.core.cached import difference_name
from packager.reports.cache import neighbour_lines
from tests.commandline import TINY, Done, packager_in


@pytest.mark.parametrize(
    ("pointer", "name"),
    [
        ("/weights/files/model.safetensors", "weights file model.safetensors changed"),
        ("/weights/files/tokenizer.json", "model file tokenizer.json changed"),
        ("/weights/files/sub~1a~0b.json", "model file sub/a~b.json changed"),
        ("/weights/draft/model.safetensors", "draft's file model.safetensors changed"),
        ("/candidate/model.safetensors", "candidate's file model.safetensors changed"),
        (
            "/graph/architecture/hidden_act",
            "model file config.json changed: field hidden_act",
        ),
        ("/toolchain/environment/numpy", "version of numpy in the tool's environment"),
        ("/shape/max_batch", "/shape/max_batch"),
    ],
)
def test_a_difference_is_named_in_the_users_words(pointer: str, name: str) -> None:
    assert difference_name(pointer) == name


def test_another_model_does_not_fill_the_screen() -> None:
    differences = [
        {"pointer": f"/graph/architecture/field{n}", "wanted": "1", "found": "2"} for n in range(50)
    ]
    told: dict[str, Any] = {
        "key": "a" * 64,
        "labels": {},
        "built_at": 0,
        "differences": differences,
    }

    lines = list(neighbour_lines(told, 0.0))

    assert len(lines) == 22
    assert lines[-1] == "    and 30 more; --format json has all of them"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


@pytest.fixture
def explained(tmp_path: Path, model: Path) -> Any:
    """Ask what a build of the model would find."""
    packager = packager_in(tmp_path)
    env = {"PACKAGER_CACHE": str(tmp_path / "cache"), "PACKAGER_TOOLS": str(tmp_path / "tools")}

    def explain(*words: str) -> Done:
        asked = ("--model", str(model), "--instance", "local", "--quantize", "awq")
        return packager("cache", "explain", *asked, *words, env=env)

    return explain


def publish(root: Path, document: dict[str, Any], into: Path) -> None:
    """Put something into the cache under a key document."""

    def build(place: Path) -> None:
        (place / "model.safetensors").write_bytes(b"quantized")

    open_local(root / "artifacts").get_or_build(parse_document(document), build, into)


CHANGES = {
    "field": '    model file config.json changed: field hidden_act  asked for "gelu", there is',
    "weights": "    weights file model-00002-of-00003.safetensors changed  asked for ",
    "template": "    model file tokenizer_config.json changed  asked for ",
}


@pytest.mark.parametrize("change", [*CHANGES, "card"])
def test_a_miss_names_the_file_and_the_field(
    explained: Any, model: Path, tmp_path: Path, change: str
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
    if change == "card":
        assert after.out.startswith("quantize: hit (")
    else:
        assert after.out.startswith("quantize: miss (")
        assert "1 field differs" in after.out
        assert CHANGES[change] in after.out
