"""The list of bugs fits the code, and the bench tells a caught one from one that escaped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.mutants import ROOT, Mutant, Workbench, all_tests, read_mutants

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_still_fits_its_file(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text("utf-8")

    assert mutant.apply(text) != text
    assert mutant.why


def test_sixty_bugs_at_least_are_kept_each_under_a_name_of_its_own() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_every_named_test_exists() -> None:
    for test in all_tests(MUTANTS):
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8"), (
            test
        )


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A project of one function, whose test covers one of two branches."""
    root = tmp_path / "project"
    (root / "packager").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "packager/__init__.py").write_text("")
    (root / "packager/sign.py").write_text(
        "def sign(x):\n    return 1 if x > 0 else -1 if x < 0 else 0\n"
    )
    (root / "tests/test_sign.py").write_text(
        "from packager.sign import sign\n\n\ndef test_sign():\n    assert sign(3) == 1\n"
    )
    place = tmp_path / "bench"
    place.mkdir()
    return Workbench(place, root=root)


def bug(old: str, new: str) -> Mutant:
    return Mutant(
        id="bug", file="packager/sign.py", old=old, new=new, tests=("tests/test_sign.py",), why="?"
    )


def test_a_bug_that_fails_a_test_is_caught_and_taken_away_again(bench: Workbench) -> None:
    assert bench.judge(bug("x > 0", "x < 0"))[0] == "caught"
    assert bench.check(["tests/test_sign.py"]) == ""


def test_a_bug_that_no_test_sees_escapes(bench: Workbench) -> None:
    assert bench.judge(bug("-1 if x", "-2 if x"))[0] == "escaped"


def test_a_bug_whose_tests_are_left_out_escapes(tmp_path: Path, bench: Workbench) -> None:
    (tmp_path / "left").mkdir()
    left_out = Workbench(tmp_path / "left", root=tmp_path / "project", marks="not_there")

    assert left_out.judge(bug("x > 0", "x < 0"))[0] == "escaped"


def test_a_bug_that_stops_the_tests_from_being_collected_proves_nothing(bench: Workbench) -> None:
    assert bench.judge(bug("return", "retrun"))[0] == "invalid"


@pytest.mark.parametrize("old", ["x ", "nowhere"], ids=["more than once", "not at all"])
def test_a_bug_whose_place_is_not_certain_is_refused(bench: Workbench, old: str) -> None:
    with pytest.raises(ValueError, match="expected once"):
        bench.judge(bug(old, "y"))
