"""Requests that are read from standard input."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from packager.addons.deploy.commands import deploy_options
from packager.addons.deploy.commands.deploy_options import read_body
from packager.core.errors import UsageError


@pytest.mark.parametrize(("size", "taken"), [(8, True), (9, False)])
def test_a_request_is_refused_and_not_cut(
    monkeypatch: pytest.MonkeyPatch, size: int, taken: bool
) -> None:
    monkeypatch.setattr(deploy_options, "MAX_BODY_BYTES", 8)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"x" * size)))
    if taken:
        assert read_body("-") == b"x" * size
    else:
        with pytest.raises(UsageError, match="larger than 8 bytes"):
            read_body("-")
