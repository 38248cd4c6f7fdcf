"""Time limits that a test can wait for."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from packager.adapters import registry


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that says nothing for half a second is given up, whatever it was asked."""
    for found in pkgutil.iter_modules(registry.__path__):
        module = importlib.import_module(f"{registry.__name__}.{found.name}")
        for name in vars(module):
            if name.endswith("TIMEOUT_S") and "CONNECT" not in name:
                monkeypatch.setattr(module, name, 0.5)
