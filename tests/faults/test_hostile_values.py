"""Values on the command line and in the environment that nobody sane gives: typed, and early."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli import app
from tests.faults.test_hostile_documents import DOCUMENTED, faults_of
from tests.support.commandline import TINY

LONG = "v" * 100_000
# None has a null character: no argument and no variable of a process can hold one.
VALUES = {
    "empty": "",
    "long": LONG,
    "long path": "/" + "/".join(["v" * 200] * 400),
    "long component": "./" + "v" * 300,
    "line feed": "a\nerror: forged",
    "direction mark": "a\u202eb",
    "colour": "\x1b[31ma",
    "half a surrogate pair": "\udce9",
    "dots": "../" * 2000,
    "home of nobody": "~nobody-is-called-that/model",
    "colons": ":" * 50,
    "url": "https://user:pass@[::1/a",
    "large integer": "9" * 5000,
    "not a number": "nan",
    "infinite": "1e999",
    "json": '{"a": ' + "[" * 5000,
}

MODEL = ("--model", str(TINY), "--instance", "local")
GPU = ("--model", str(TINY), "--instance", "ml.g5.xlarge")
BUILD = ("build", *MODEL, "--base", "scratch")
# each takes the value where `{}` stands
COMMANDS: dict[str, tuple[str, ...]] = {
    "model": ("plan", "--model", "{}", "--instance", "local"),
    "hub model": ("plan", "--model", "hf://{}", "--instance", "local"),
    "bucket": ("plan", "--model", "s3://{}", "--instance", "local"),
    "instance": ("plan", "--model", str(TINY), "--instance", "{}"),
    "draft": ("plan", *GPU, "--draft", "{}"),
    "eagle draft": ("plan", *GPU, "--draft", "eagle3:{}"),
    "n-gram": ("plan", *GPU, "--draft", "ngram:{}"),
    "calibration": ("plan", *GPU, "--quantize", "awq", "--calibration", "{}"),
    "dataset": ("plan", *GPU, "--quantize", "awq", "--calibration", "hf://datasets/{}"),
    "evaluation": ("plan", *GPU, "--quantize", "awq", "--evaluate", "{}"),
    "quantize": ("plan", *GPU, "--quantize", "{}"),
    "ignored module": ("plan", *GPU, "--quantize", "awq", "--quantize-ignore", "{}"),
    "compiler": ("plan", *GPU, "--compile", "{}"),
    "served name": ("plan", *MODEL, "--served-name", "{}"),
    "container version": ("plan", *MODEL, "--container-version", "{}"),
    "batch": ("plan", *MODEL, "--max-batch", "{}"),
    "total tokens": ("plan", *MODEL, "--max-total-tokens", "{}"),
    "largest batch": ("plan", *MODEL, "--max-batch", "2147483647"),
    "largest length": ("plan", *MODEL, "--max-total-tokens", "2147483647"),
    "layer size": ("plan", *MODEL, "--max-layer-size", "{}"),
    "engine option": ("plan", *MODEL, "--engine-option", "{}"),
    "value of an engine option": ("plan", *MODEL, "--engine-option", "seed={}"),
    "region": ("plan", *GPU, "--region", "{}"),
    "request file": ("plan", "--request", "{}"),
    "catalog": ("plan", *MODEL, "--catalog", "{}"),
    "measurements": ("plan", *GPU, "--measured", "{}"),
    "record": ("build", "--from-record", "{}", "--output", "oci:out"),
    "output": (*BUILD, "--dry-run", "--output", "{}"),
    "layout": (*BUILD, "--output", "oci:{}"),
    "layout of a base": (*BUILD[:-1], "oci:{}", "--dry-run", "--output", "oci:out"),
    "cache directory": ("cache", "ls", "--cache-dir", "{}"),
    "shared cache": ("plan", *GPU, "--quantize", "fp8", "--cache-shared", "{}"),
    "shared directory": ("plan", *GPU, "--quantize", "fp8", "--cache-shared", "dir:{}"),
    "shared bucket": ("plan", *GPU, "--quantize", "fp8", "--cache-shared", "ro:s3://{}"),
    "trusted keys": ("cache", "ls", "--require-signed", "--trusted-keys", "{}"),
    "key of an entry": ("cache", "show", "{}"),
    "name of a pin": ("cache", "pin", "--model", "a", "--name", "{}"),
    "model of a pin": ("cache", "pin", "--model", "{}", "--name", "a"),
    "unpin": ("cache", "unpin", "{}"),
    "export": ("cache", "export", "--all", "--to", "{}.tar"),
    "import": ("cache", "import", "{}.tar"),
    "span": ("cache", "gc", "--max-age", "{}"),
    "size": ("cache", "gc", "--max-size", "{}"),
    "image": ("inspect", "{}"),
    "image in a layout": ("inspect", "oci:{}"),
    "platform": ("inspect", "oci:a", "--platform", "{}"),
    "authority": ("inspect", "127.0.0.1:1/a:b", "--ca-file", "{}"),
    "copy": ("copy", "oci:a", "{}"),
    "grid": ("warm", "plan", "{}"),
    "offer": ("catalog", "refresh", "--from", "{}"),
    "region of an offer": ("catalog", "refresh", "--region", "{}"),
    "migrate": ("migrate", "{}"),
    "release": ("migrate", "{}", "--to", "{}"),
    "list": ("list", "models", "{}"),
    "tool": ("tools", "path", "{}"),
    "explain": ("explain", "{}"),
    "server": ("draft", "measure", "{}"),
    "address": ("draft", "measure", "http://{}", "--timeout", "1"),
    "data": ("draft", "measure", "http://127.0.0.1:1", "--data", "{}"),
    "image to smoke": ("smoke", "{}"),
}
VARIABLES: dict[str, tuple[str, ...]] = {
    "PACKAGER_CACHE": ("cache", "ls"),
    "PACKAGER_CACHE_SHARED": ("plan", *GPU, "--quantize", "fp8"),
    "PACKAGER_CACHE_TRUSTED_KEYS": ("cache", "ls", "--require-signed"),
    "PACKAGER_CACHE_SIGNING_KEY": ("plan", *GPU, "--quantize", "fp8"),
    "PACKAGER_CACHE_MATCH": ("plan", *GPU, "--quantize", "fp8"),
    "XDG_CONFIG_HOME": ("list", "instances"),
    "XDG_DATA_HOME": ("list", "prices"),
    "XDG_STATE_HOME": ("cache", "explain", "--last"),
    "DOCKER_CONFIG": ("doctor",),
    "DOCKER_HOST": ("inspect", "docker:a"),
    "SOURCE_DATE_EPOCH": (*BUILD, "--dry-run", "--output", "oci:out"),
}


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; return what is wrong with how it ended, "" where nothing is."""
    status = app.run(arguments)
    printed = "".join(capsys.readouterr())
    if status not in DOCUMENTED:
        return f"status {status}: {printed[-1500:]}"
    faults = faults_of(printed)
    # a value that is the user's own may be repeated, once in the message and once in the hint
    return "" if "characters were printed" in faults and len(printed) < 650_000 else faults


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_hostile_value_ends_in_a_documented_status(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACKAGER_DEBUG", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.chdir(tmp_path)

    ends = {
        name: run([one.replace("{}", value) for one in COMMANDS[kind]], capsys)
        for name, value in VALUES.items()
    }

    wrong = {name: why for name, why in ends.items() if why}
    assert wrong == {}, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_hostile_variable_ends_in_a_documented_status(
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACKAGER_DEBUG", "1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.chdir(tmp_path)

    ends = {}
    for name, value in VALUES.items():
        monkeypatch.setenv(variable, value)
        ends[name] = run(list(VARIABLES[variable]), capsys)

    wrong = {name: why for name, why in ends.items() if why}
    assert wrong == {}, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.parametrize("option", ["--max-batch", "--max-total-tokens", "--calibration-seed"])
def test_a_number_that_no_engine_takes_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = option.removeprefix("--").replace("-", "_")
    request = tmp_path / "request.toml"
    request.write_text(f"{name} = 2147483648\n")

    assert app.run(["plan", *MODEL, option, "2147483648"]) == 2
    assert app.run(["plan", *MODEL, "--request", str(request)]) == 2
    said = capsys.readouterr().err
    assert f"{name} 2147483648: input should be less than or equal to 2147483647" in said
    assert "and at most 2147483647" in said
