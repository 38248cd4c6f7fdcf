"""Files and helpers of credentials that hold nonsense: refused, and no secret is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packager.core.errors import PackagerError
from tests.support.cases import cases
from tests.unit.images.registry.test_hostile_credentials import SECRET, look_up


@cases("answer")
def test_an_answer_of_a_helper_that_cannot_be_read_is_refused_and_not_shown(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer").write_text(answer)
    helper = tmp_path / "docker-credential-told"
    helper.write_text(f"#!/bin/sh\nexec cat {tmp_path / 'answer'}\n")
    helper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "config.json").write_text('{"credsStore":"told"}')

    with pytest.raises(PackagerError, match="it wrote no credentials") as caught:
        look_up(tmp_path)

    assert caught.value.exit_code == 77
    assert SECRET not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"


@pytest.mark.parametrize("stream", ["1", "2"], ids=["stdout", "stderr"])
def test_a_helper_that_writes_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    helper = tmp_path / "docker-credential-told"
    helper.write_text(f"#!/bin/sh\nexec yes {SECRET} >&{stream}\n")
    helper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "config.json").write_text('{"credsStore":"told"}')

    with pytest.raises(PackagerError, match="it wrote more than 1048576 bytes") as caught:
        look_up(tmp_path)

    assert SECRET not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"
