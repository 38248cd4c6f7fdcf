"""Credentials that are given never come back in a message, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from packager.cli import app
from tests.support.commandline import TINY

SECRET = "canary-7f3a9c"
AT = f"user:{SECRET}@127.0.0.1:1"  # nobody listens on port 1
GPU = ("--model", str(TINY), "--instance", "ml.g5.xlarge")
BUILD = ("build", "--model", str(TINY), "--instance", "local", "--quiet")

ENVIRONMENT = {
    "HF_TOKEN": SECRET,
    "HF_ENDPOINT": f"http://{AT}",
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": SECRET,
    "AWS_ENDPOINT_URL": f"http://{AT}",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "HTTP_PROXY": f"http://{AT}",
    "HTTPS_PROXY": f"http://{AT}",
    "http_proxy": f"http://{AT}",
    "https_proxy": f"http://{AT}",
    "DOCKER_HOST": f"tcp://{AT}",
    "DOCKER_AUTH_CONFIG": '{"auths": {"127.0.0.1:1": {"auth": "dXNlcjpjYW5hcnktN2YzYTlj"}}}',
}

COMMANDS = {
    "hub id": ("plan", "--model", "org/name", "--instance", "local"),
    "hub stream": ("plan", "--model", "hf://org/name", "--instance", "local"),
    "bucket": ("plan", "--model", "s3://bucket/prefix", "--instance", "local"),
    "url as a model": ("plan", "--model", f"https://{AT}/model", "--instance", "local"),
    "hub with userinfo": ("plan", "--model", f"hf://{AT}/name", "--instance", "local"),
    "bucket with userinfo": ("plan", "--model", f"s3://{AT}/name", "--instance", "local"),
    "draft": ("plan", *GPU, "--draft", f"eagle3:https://{AT}/head"),
    "calibration": ("plan", *GPU, "--quantize", "awq", "--calibration", f"https://{AT}/texts"),
    "registry": ("inspect", f"{AT}/team/model:1"),
    "registry without userinfo": ("inspect", "127.0.0.1:1/team/model:1"),
    "registry with a scheme": ("inspect", f"https://{AT}/team/model:1"),
    "output": (*BUILD, "--base", "scratch", "--output", f"{AT}/team/model:1"),
    "base": (*BUILD, "--base", f"{AT}/team/base:1", "--output", "oci:out"),
    "copy": ("copy", f"{AT}/a:1", f"{AT}/b:1"),
    "shared cache": ("plan", *GPU, "--quantize", "fp8", "--cache-shared", f"s3://{AT}/a"),
    "shared url": ("plan", *GPU, "--quantize", "fp8", "--cache-shared", f"https://{AT}/a"),
    "shared bucket": ("plan", *GPU, "--quantize", "fp8", "--cache-shared", "s3://bucket/a"),
    "export": ("cache", "export", "--all", "--to", f"{AT}/a:1@x"),
    "import": ("cache", "import", f"{AT}/a:1"),
    "grid": ("warm", "plan", f"http://{AT}/plan.json?X-Amz-Signature={SECRET}"),
    "job": ("warm", "one", "--plan", f"http://{AT}/plan.json?sig={SECRET}", "--index", "0"),
    "offer": ("catalog", "refresh", "--from", f"https://{AT}/index.json?sig={SECRET}"),
    "offer over http": ("catalog", "refresh", "--from", f"http://{AT}/index.json?sig={SECRET}"),
    "engine": ("smoke", "image:1"),
    "image in an engine": ("inspect", "docker:image"),
    "server": ("draft", "measure", f"http://{AT}/?key={SECRET}", "--timeout", "1"),
    "variables of a container": ("smoke", "image:1", "--env", f"HF_TOKEN={SECRET}"),
    "doctor": ("doctor",),
}


@pytest.fixture(autouse=True)
def sessions() -> Iterator[None]:
    """Close the hub's session: it keeps the proxy of the environment that it was made in."""
    yield
    close_session()


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_secret_is_printed(
    command: str,
    output_format: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    arguments = list(COMMANDS[command])
    if COMMANDS[command][:2] != ("warm", "one"):
        arguments += ["--format", output_format]

    status = app.run(arguments)

    printed = "".join(capsys.readouterr())
    assert status != 70, printed
    assert SECRET not in printed
