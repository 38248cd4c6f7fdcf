"""What strangers name, label and answer is printed within one line of ours, and in its order."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from packager.cli import app
from tests.support.cases import cases
from tests.support.commandline import TINY
from tests.support.written_layouts import WrittenLayout
from tests.unit.cli.test_hostile_names import HOSTILE, assert_harmless


def poisoned(value: Any, skip: tuple[str, ...] = ()) -> Any:
    """Put hostile characters behind every text in a document, but for what is looked up."""
    if isinstance(value, str):
        return f"{value}{HOSTILE}"
    if isinstance(value, list):
        return [poisoned(one, skip) for one in value]
    if isinstance(value, dict):
        return {name: one if name in skip else poisoned(one, skip) for name, one in value.items()}
    return value


def write_blob(layout: Path, document: Any) -> dict[str, Any]:
    data = json.dumps(document).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


@pytest.fixture
def hostile_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build an image, and write hostile texts into all that its documents say in words."""
    monkeypatch.chdir(tmp_path)
    built = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")
    assert app.run([*built, "--output", "oci:plain"]) == 0
    assert app.run([*built, "--output", "oci:evil"]) == 0
    layout = tmp_path / "evil"
    written = WrittenLayout(layout)
    index, manifest, config = written.index, written.manifest, written.config
    labels = config["config"]["Labels"]
    record = json.loads(labels["dev.packager.record"])
    labels = {name: f"{value}{HOSTILE}" for name, value in labels.items()}
    labels |= {"dev.packager.record": json.dumps(poisoned(record)), HOSTILE: HOSTILE}
    config["config"] |= {
        "Labels": labels,
        "Env": [f"A={HOSTILE}", HOSTILE],
        "Entrypoint": [HOSTILE],
        "Cmd": [HOSTILE],
    }
    config["created"] = HOSTILE
    config["history"] = poisoned(config.get("history", []))
    manifest["config"] |= write_blob(layout, config)
    for layer in manifest["layers"]:
        layer["annotations"] = poisoned(layer.get("annotations", {}))
    index["manifests"][0] |= write_blob(layout, manifest)
    (layout / "index.json").write_text(json.dumps(index))
    return layout


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_hostile_image_forges_no_line(
    hostile_image: Path, output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = ("--shared-with", "oci:plain", "--format", output_format)

    capsys.readouterr()
    assert app.run(["inspect", "oci:evil", *others]) == 0
    inspected = "".join(capsys.readouterr())
    assert app.run(["diff", "oci:plain", "oci:evil", *others[2:]]) == 0
    compared = "".join(capsys.readouterr())

    assert_harmless(inspected)
    assert_harmless(compared)
    if output_format == "json":
        assert json.loads(inspected)["created"] == HOSTILE
        assert HOSTILE in [change["after"] for change in json.loads(compared)["changes"]]


@cases("requests")
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_request_file_forges_no_line(
    name: str, text: str, output_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / name
    for word, value in (("hostile", HOSTILE), ("tiny", str(TINY))):
        text = text.replace(f"{{{word}}}", json.dumps(value)[1:-1])
    place.write_text(text)

    assert app.run(["plan", "--request", str(place), "--format", output_format]) in {2, 3, 65, 66}
    assert_harmless("".join(capsys.readouterr()))
