"""The shipped locks: whole, hashed, and in step with what is asked for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.places import SCRIPTS
from tests.support.workers import load

CONTAINERS = SCRIPTS.parent / "containers"
TOOLS = {path.parent.name: path.parent for path in CONTAINERS.glob("tools/*/tool.toml")}
INSTALLING = sorted(name for name, place in TOOLS.items() if (place / "requirements").is_dir())
LOCKS = sorted(
    [
        *CONTAINERS.glob("tools/*/requirements/lock*.txt"),
        *CONTAINERS.glob("serving/*/requirements.lock"),
    ]
)

renew = load(SCRIPTS / "renew-requirements")


def locked(name: str) -> dict[str, set[str]]:
    """The versions of each package in all locks of a tool."""
    found: dict[str, set[str]] = {}
    for path in (TOOLS[name] / "requirements").glob("lock*.txt"):
        for pin in renew.read_pins(path.read_text()):
            found.setdefault(pin.name, set()).add(pin.version)
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: f"{lock.parent.parent.name}-{lock.name}")
def test_every_line_of_a_lock_is_a_pin_with_hashes(lock: Path) -> None:
    entries = re.sub(r"\s*\\\n\s*", " ", lock.read_text()).splitlines()
    entries = [line for line in entries if line.strip() and not line.lstrip().startswith("#")]

    assert len(entries) >= 1
    pattern = r"[a-z0-9-]+==[\w.+!]+(?: ; [\w'\" =!<>.()]+)?(?: --hash=sha256:[0-9a-f]{64})+"
    assert [line for line in entries if not re.fullmatch(pattern, line)] == []
    assert len(renew.read_pins(lock.read_text())) == len(entries)


@pytest.mark.parametrize("name", INSTALLING)
def test_a_tool_installs_locks_only(name: str) -> None:
    table = tomllib.loads((TOOLS[name] / "tool.toml").read_text())

    used = [group["requirements"] for group in table["install"]]
    used += [group["prefer"] for group in table["install"] if "prefer" in group]
    used += [group["cuda"] for group in table["install"] if "cuda" in group]

    there = {f"requirements/{path.name}" for path in TOOLS[name].glob("requirements/lock*.txt")}
    assert set(used) == there
    assert all(group["require_hashes"] and group["no_deps"] for group in table["install"])


@pytest.mark.parametrize("name", INSTALLING)
def test_a_lock_has_what_is_asked_for(name: str) -> None:
    pins = locked(name)
    asked = [
        line
        for part in ("direct.txt", "no-deps.txt")
        if (file := TOOLS[name] / "requirements" / part).exists()
        for line in file.read_text().splitlines()
        if line and not line.startswith("#")
    ]

    assert [line for line in asked if "==" not in line] == []
    for line in asked:
        wanted, _, version = line.partition("==")
        assert version in pins[wanted.lower().replace("_", "-")], line


@pytest.mark.parametrize("name", INSTALLING)
def test_the_versions_in_keys_are_those_of_the_lock(name: str) -> None:
    declared = tomllib.loads((TOOLS[name] / "tool.toml").read_text())["packages"]

    pins = locked(name)

    assert declared
    assert {name: one for name, one in declared.items() if one not in pins[name]} == {}


@pytest.mark.parametrize("name", ["draft-heads", "llmcompressor"])
def test_the_lock_of_torch_for_gpus_has_no_build_for_processors(name: str) -> None:
    place = TOOLS[name] / "requirements"

    def files(lock: str) -> set[str]:
        (pin,) = renew.read_pins((place / lock).read_text())
        assert (pin.name, pin.version.partition("+")[0]) == ("torch", "2.13.0")
        return set(pin.hashes)

    all_builds, on_cpu = files("lock-torch.txt"), files("lock-torch-cpu.txt")
    assert files("lock-torch-cuda.txt") == all_builds - on_cpu
    assert (len(all_builds - on_cpu), len(on_cpu)) == (24, 6)


@pytest.mark.parametrize("name", INSTALLING)
def test_whoever_asks_for_a_package_is_in_the_lock_too(name: str) -> None:
    pins = locked(name)
    askers = {
        by
        for path in (TOOLS[name] / "requirements").glob("lock*.txt")
        for pin in renew.read_pins(path.read_text())
        for by in pin.wanted_by
    }

    assert ("torch" if "torch" in pins else name) in askers
    assert askers - set(pins) == set()


@pytest.mark.parametrize("name", INSTALLING)
def test_nothing_for_gpus_alone_is_in_the_lock_of_all(name: str) -> None:
    text = (TOOLS[name] / "requirements/lock.txt").read_text()

    names = {pin.name for pin in renew.read_pins(text)}

    assert {one for one in names if renew.FOR_GPUS.fullmatch(one)} <= {"nvidia-ml-py"}


def test_the_lock_of_the_base_has_every_package_once_in_its_layer() -> None:
    base = CONTAINERS / "serving/vllm-cpu"
    asked = renew.read_sections((base / "requirements.txt").read_text())
    sections = re.split(r"^# layer: ", (base / "requirements.lock").read_text(), flags=re.M)[1:]

    found = {part.splitlines()[0]: renew.read_pins(part) for part in sections}

    assert list(found) == list(asked) == ["torch", "python", "vllm"]
    for layer, lines in asked.items():
        wanted = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines}
        assert {pin.name for pin in found[layer]} == wanted
        versions = {line.partition("==")[2] for line in lines}
        assert {pin.version.removesuffix("+cpu") for pin in found[layer]} == versions


UV = (
    (Path(__file__).parent / "corpus/uv.lock.txt")
    .read_text()
    .replace("AAAA", "a" * 64)
    .replace("BBBB", "b" * 64)
)


def test_what_only_a_torch_for_gpus_brings_is_set_apart() -> None:
    plain, gpu = renew.split_for_gpus(renew.read_pins(UV))

    assert [pin.name for pin in gpu] == ["nvidia-nccl-cu13", "cuda-bindings"]
    assert [pin.name for pin in plain] == ["aaa", "colorama", "torch", "nvidia-ml-py", "tqdm"]


def test_a_pin_is_read_as_it_was_written() -> None:
    pins = renew.read_pins(UV)

    assert pins[0].marker == "python_full_version < '3.12'"
    assert pins[0].hashes == ("a" * 64, "b" * 64)
    assert pins[2].wanted_by == ("tqdm",)
    assert renew.read_pins("".join(pin.text() for pin in pins)) == pins


def test_renewing_prints_what_changed() -> None:
    text = UV.replace("tqdm==4.0", "tqdm==4.1").replace("aaa==1.0", "bbb==1.0")
    after = renew.read_pins(text.replace("b" * 64, "c" * 64))

    assert renew.changes(renew.read_pins(UV), after) == read_tables(__file__)["changes"]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool of two requirements, and a uv that answers with the same lock every time."""
    place = tmp_path / "containers/tools/mine/requirements"
    place.mkdir(parents=True)
    (place / "direct.txt").write_text("torch==2.13.0\ntqdm==4.0\n")
    (tmp_path / "uv.out").write_text(UV)
    program = tmp_path / "bin/uv"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor last; do :; done\ncp {tmp_path}/uv.out "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    for name, place_of in (
        ("ROOT", "."),
        ("TOOLS", "containers/tools"),
        ("BASES", "containers/serving"),
    ):
        monkeypatch.setattr(renew, name, tmp_path / place_of)
    return place


def run_renew(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["renew-requirements", *arguments])
    status: int = renew.main()
    return status


def test_a_name_without_requirements_is_refused(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_renew(monkeypatch, "neuron") == 64
    assert "'neuron' has no requirements here" in capsys.readouterr().err


def test_a_lock_of_torch_has_cpu_builds_whatever_the_index_lists(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renew, "compiled", lambda *_, **__: renew.read_pins(UV))

    assert run_renew(monkeypatch, "mine") == 0

    files = {name: hashes_in(recipe / f"lock-torch{name}.txt") for name in ("", "-cpu", "-cuda")}
    assert files["-cuda"] == {"b" * 64}  # what uv found
    assert len(files["-cpu"]) == 6
    assert files[""] == files["-cpu"] | files["-cuda"]


def hashes_in(lock: Path) -> set[str]:
    return {digest for pin in renew.read_pins(lock.read_text()) for digest in pin.hashes}
