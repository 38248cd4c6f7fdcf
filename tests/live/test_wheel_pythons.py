"""The wheel is installed from an index of packages, and works, on each Python that is here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.wheels import (
    SUPPORTED,
    Distribution,
    build_distribution,
    digest_of_use,
    find_python,
    new_environment,
    pip_install,
    without_settings_of_python,
)

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build_distribution(tmp_path_factory.mktemp("wheel"))


DIGESTS: dict[str, str] = {}


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_wheel_works_with_what_an_index_has(
    made: Distribution, version: str, tmp_path: Path
) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = Path(sys.executable) if version == own else find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    fresh = new_environment(python, tmp_path / "fresh")
    installed = pip_install(fresh, str(made.wheel))
    assert installed.returncode == 0, installed.stderr
    use = tmp_path / "use"
    use.mkdir()

    DIGESTS[version] = digest_of_use(fresh, use, without_settings_of_python())

    assert len(set(DIGESTS.values())) == 1, DIGESTS
