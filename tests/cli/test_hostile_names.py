"""What strangers name, label and answer is printed within one line of ours, and in its order."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from packager.cli import app
from packager.cli.displays import Lines, StepNews
from packager.cli.meter import Meter
from packager.core.events import ImageEvent, LayerEvent, StepEvent
from packager.errors import StepFailed
from tests.commandline import TINY

FORGED = "error: forged"
HOSTILE = (
    f"x\n{FORGED}\r{FORGED}\u2028{FORGED}\x85{FORGED}\x1b[2J\u202e\u2066\u200f\u200b\x9b\ufeff"
)
OBEYED = set("\r\u2028\u2029\x85\x1b\u202e\u2066\u200f\u200b\x9b\ufeff\x00")


def assert_harmless(printed: str) -> None:
    """No line is a stranger's, and nothing is left that a terminal obeys."""
    assert not [line for line in printed.splitlines() if line.startswith(FORGED)]
    assert not set(printed) & OBEYED
    assert "forged" in printed  # it was shown at all


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


def read_blob(layout: Path, descriptor: dict[str, Any]) -> Any:
    digest = descriptor["digest"].removeprefix("sha256:")
    return json.loads((layout / "blobs" / "sha256" / digest).read_bytes())


@pytest.fixture
def hostile_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build an image, and write hostile texts into all that its documents say in words."""
    monkeypatch.chdir(tmp_path)
    built = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")
    assert app.run([*built, "--output", "oci:plain"]) == 0
    assert app.run([*built, "--output", "oci:evil"]) == 0
    layout = tmp_path / "evil"
    index = json.loads((layout / "index.json").read_bytes())
    manifest = read_blob(layout, index["manifests"][0])
    config = read_blob(layout, manifest["config"])
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


def test_progress_of_hostile_names_keeps_its_lines() -> None:
    written: list[str] = []
    lines, meter = Lines(written.append), Meter(0.0)
    events = (
        StepEvent(step="fetch", state="finished", detail=HOSTILE),
        ImageEvent(layers=(10,)),
        LayerEvent(layer=0, label=HOSTILE, size=10, done=10, state="written"),
    )
    for event in events:
        meter.take(event, 5.0)
    news = [
        (5.0, StepNews(event=events[0], seconds=5.0)),
        (5.0, events[1]),
        (5.0, meter.layer(0, 5.0)),
    ]

    lines.show(news, meter.snapshot(5.0))  # type: ignore[arg-type]

    assert [text.count("\n") for text in written] == [1, 1, 1]
    assert_harmless("".join(written))


def test_the_bars_of_hostile_names_keep_their_lines() -> None:
    import io

    from rich.console import Console

    from packager.cli.bars import Bars, _drawn

    stream = io.StringIO()
    bars, meter = Bars(stream), Meter(0.0)
    running = StepEvent(step="fetch", state="running", detail=HOSTILE)
    for event in (running, ImageEvent(layers=(10,))):
        meter.take(event, 1.0)
    label = LayerEvent(layer=0, label=HOSTILE, size=10, done=5, state="streaming")
    meter.take(label, 1.0)
    over = StepNews(
        event=StepEvent(step="look", state="finished", detail=HOSTILE + ":warning: [red]"),
        seconds=9,
    )

    bars.show([(1.0, over)], meter.snapshot(2.0))
    bars.close()
    Console(file=stream, width=400).print(_drawn(meter.snapshot(2.0)))

    drawn = stream.getvalue()
    assert drawn.count("x\\nerror: forged\\rerror: forged\\u2028") == 3
    assert not [line for line in drawn.splitlines() if line.startswith(FORGED)]
    assert not set(drawn) & (OBEYED - set("\r\x1b"))  # rich moves the cursor itself


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_the_log_of_a_step_stands_behind_a_mark(
    output_format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        log = f"loading\n{FORGED}\nhint: run this\n\x1b[31m{HOSTILE}"
        raise StepFailed(f"step {HOSTILE} failed", hint=HOSTILE, log=log)

    monkeypatch.setattr("packager.cli.app.app.main", fail)
    arguments = ["plan", "--format", output_format]

    assert app.run(arguments) == 6

    printed = capsys.readouterr().err
    assert_harmless(printed)
    if output_format == "text":
        *log, error, hint = printed.splitlines()
        assert log[:3] == ["| loading", "| error: forged", "| hint: run this"]
        assert all(line.startswith("| ") for line in log)
        assert error.startswith("error: step x\\nerror: forged")
        assert hint.startswith("hint: x\\nerror: forged")
    else:
        assert json.loads(printed)["hint"] == HOSTILE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "request.toml",
            f'model = "a"\ninstance = "local"\n"x\\n{FORGED}\\u202e" = 1',
        ),
        ("request.json", json.dumps({"model": "a", "instance": "local", HOSTILE: 1})),
        ("request.json", json.dumps({"model": HOSTILE, "instance": "local"})),
        ("request.json", json.dumps({"model": str(TINY), "instance": HOSTILE})),
        ("request.json", json.dumps({"model": str(TINY), "instance": "local", "draft": HOSTILE})),
        (
            "request.json",
            json.dumps(
                {"model": str(TINY), "instance": "local", "engine_options": {HOSTILE: HOSTILE}}
            ),
        ),
    ],
    ids=["toml key", "json key", "model", "instance", "draft", "engine option"],
)
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_request_file_forges_no_line(
    name: str, text: str, output_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / name
    place.write_text(text)

    status = app.run(["plan", "--request", str(place), "--format", output_format])

    assert status in {2, 3, 65, 66}
    assert_harmless("".join(capsys.readouterr()))


@pytest.mark.parametrize("what", ["models", "instances", "containers"])
@pytest.mark.parametrize("output_format", ["text", "json", "csv"])
def test_rows_of_a_catalog_forge_no_line(
    what: str, output_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(HOSTILE)
    catalog = tmp_path / "catalog.toml"
    catalog.write_text(
        f"""
[[model]]
hf_id = "acme/forged"
architecture = "LlamaForCausalLM"
note = {text}
source = {text}
date = 2026-11-20

[[container]]
family = "vllm"
kind = "nvidia"
engine = "forged"
variant = "forged"
engine_version = "0.1"
base = {text}
source = {text}
date = 2026-11-20

[[instance]]
name = "forged"
kind = "nvidia"
device_name = {text}
devices = 1
device_memory_gib = 80.0
host_memory_gib = 100.0
vcpus = 4
compute_capability = 9.0
source = {text}
date = 2026-11-20
"""
    )

    status = app.run(["list", what, "--catalog", str(catalog), "--format", output_format])

    printed = "".join(capsys.readouterr())
    assert status == 0, printed
    assert_harmless(printed)


def test_a_configuration_to_migrate_forges_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "serving.properties"
    place.write_bytes("option.model_id=a\u202e\u2028error: forged\noption.forged=\u2066\n".encode())

    assert app.run(["migrate", str(place)]) == 0

    out, err = capsys.readouterr()
    assert "option.model_id=a\\u202e\\u2028error: forged" in out.splitlines()
    assert_harmless(out + err)


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x07", "\x85", "\x9b", "\x0b", "\x0c"])
def test_a_configuration_with_control_characters_is_not_migrated(
    character: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "serving.properties"
    place.write_bytes(f"engine=Python\noption.model_id=a{character}b\n".encode())

    assert app.run(["migrate", str(place)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "line 2 of" in err
    assert "has a control character" in err
    assert character not in err
