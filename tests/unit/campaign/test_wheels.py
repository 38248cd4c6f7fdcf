"""Wheels that a machine with torch and without a network is given."""

from __future__ import annotations

import json
import platform
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.campaign import wheels
from benchmarks.campaign.stages import Failure
from tests.support.cases import cases, read_tables

HERE = ".".join(platform.python_version_tuple()[:2])


def write_wheel(place: Path, name: str, files: dict[str, str]) -> Path:
    place.mkdir(exist_ok=True)
    with zipfile.ZipFile(place / name, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return place / name


def listed(place: Path, python: str = HERE) -> Path:
    files = {path.name: wheels._sha256(path) for path in sorted(place.glob("*.whl"))}
    (place / "wheels.json").write_text(json.dumps({"python": python, "files": files}))
    return place


@cases("lists_of_packages")
def test_lists_of_packages(text: str) -> None:
    found = wheels.read_list(text)

    assert found["pyyaml"] == "6.0.3"
    assert found["torch"] == "2.11.0+cu130"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A package index: wheels of 1000 bytes each; packager needs rich, which needs mdurl-x."""
    asked: list[tuple[str, ...]] = []

    def pip(*arguments: str) -> None:
        asked.append(arguments)
        if arguments[0] == "install":
            found = [{"metadata": {"name": name, "version": "1"}} for name in ("rich", "Mdurl_X")]
            report = Path(arguments[arguments.index("--report") + 1])
            report.write_text(json.dumps({"install": found}))
        else:
            place = Path(arguments[arguments.index("-d") + 1])
            for word in arguments:
                if "==" in word:
                    (place / f"{word.replace('==', '-')}-py3-none-any.whl").write_bytes(b"1" * 1000)

    monkeypatch.setattr(wheels, "pip", pip)
    return asked


def test_wheels_are_collected_for_another_python(
    tmp_path: Path, index: list[tuple[str, ...]]
) -> None:
    has = tmp_path / "has.txt"
    has.write_text("torch 2.11.0\npyarrow 21.0.0\nnumpy 2.5.2\n")

    told = wheels.collect(tmp_path / "wheels", "3.12", has)

    names = {path.name.partition("-")[0] for path in (tmp_path / "wheels").glob("*.whl")}
    assert {"llmcompressor", "auto", "rich", "mdurl", "speculators"} <= names
    assert not names & {"torch", "pyarrow", "numpy"}
    assert told["bytes"] == 1000 * told["wheels"]
    assert all(line[line.index("--python-version") + 1] == "3.12" for line in index)
    listing = json.loads((tmp_path / "wheels/wheels.json").read_bytes())
    assert listing["python"] == "3.12"
    assert len(listing["files"]) == told["wheels"]


def test_a_directory_with_something_in_it_is_not_collected_into(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    with pytest.raises(Failure, match="is not empty"):
        wheels.collect(tmp_path, "3.12")

    assert (tmp_path / "mine").read_text() == "precious"


def test_what_is_imported_is_unpacked_and_nothing_outside(tmp_path: Path) -> None:
    files = read_tables(__file__)["hostile_wheel"]
    write_wheel(tmp_path / "wheels", "one-1-py3-none-any.whl", files)

    assert wheels.unpack(listed(tmp_path / "wheels"), tmp_path / "site") == 1

    found = {str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*.*")}
    assert found == {"one/__init__.py", "two.py"}
    assert not (tmp_path / "outside.py").exists()


def damage(place: Path) -> None:
    (place / "one-1-py3-none-any.whl").write_bytes(b"PK")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage, "missing or damaged: one-1-py3-none-any.whl"),
        (lambda place: (place / "one-1-py3-none-any.whl").unlink(), "missing or damaged: one-1"),
        (lambda place: (place / "wheels.json").unlink(), "has no wheels.json"),
        (lambda place: listed(place, "3.9"), f"for Python 3.9, this is {HERE}"),
    ],
    ids=["damaged", "gone", "never collected", "another Python"],
)
def test_wheels_that_cannot_be_used_are_refused(
    tmp_path: Path, harm: Callable[[Path], object], said: str
) -> None:
    place = tmp_path / "wheels"
    write_wheel(place, "one-1-py3-none-any.whl", {"one.py": ""})
    listed(place)
    harm(place)

    with pytest.raises(Failure, match=said):
        wheels.unpack(place, tmp_path / "site")

    assert not (tmp_path / "site").exists()
