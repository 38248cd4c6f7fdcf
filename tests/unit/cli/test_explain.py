"""Every finding can be explained, and `packager explain` does it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.findings import explanations, find_explanation
from packager.cli.app import run
from packager.core.findings import FILES_LEFT_OUT
from packager.engines.rule_tables import engines_with_rules
from packager.engines.rule_tables import rules as rules_across
from tests.support.places import ROOT

# Functions that take a code and hand it on to a Finding.
MAKERS = {"Finding": 1, "Rejected": 1, "_error": 0, "_refused": 0}


def codes_in(path: Path) -> Iterator[str]:
    """Codes that a module writes out, however they reach a finding."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: one.value
        for one in module.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        place = MAKERS.get(name)
        if place is None:
            continue
        given = list(node.args[place : place + 1])
        given += [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        for one in given:
            value = constants.get(one.id, one) if isinstance(one, ast.Name) else one
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def all_codes() -> set[str]:
    modules = (ROOT / "packager").rglob("*.py")
    across = (rule.code for engine in engines_with_rules() for rule in rules_across(engine))
    return {code for module in modules for code in codes_in(module)} | {*across, FILES_LEFT_OUT}


def test_the_walk_finds_codes_however_they_are_given() -> None:
    assert {"does-not-fit", "tp-does-not-fit", "config-missing", "quantize-unknown"} <= all_codes()


def test_every_code_in_the_source_is_explained() -> None:
    assert all_codes() - set(explanations()) == set()


def test_every_rule_is_explained_in_words_without_braces() -> None:
    for rule in rules():
        explanation = find_explanation(rule.id)
        assert not re.search(r"[{}]", f"{explanation.means}{explanation.do}"), rule.id


def test_no_explanation_is_left_behind() -> None:
    known = all_codes() | {rule.id for rule in rules()}

    assert set(explanations()) - known == set()


def test_every_explanation_says_all_of_it() -> None:
    for explanation in explanations().values():
        assert explanation.title, explanation.code
        assert explanation.means.endswith("."), explanation.code
        assert explanation.why.endswith("."), explanation.code
        assert explanation.do.endswith("."), explanation.code
        assert explanation.source, explanation.code
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", explanation.code)


def test_a_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "devices-idle"]) == 0

    assert capsys.readouterr().out.startswith(
        "devices-idle: some devices would do nothing\n\nmeans      The layout of the model uses"
    )


def test_a_rule_is_explained_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "fp8-w8a8-no-kernel", "--format", "json"]) == 0

    explanation = json.loads(capsys.readouterr().out)
    assert explanation["means"].startswith("The device cannot multiply in FP8")
    assert explanation["source"].startswith("AWS machine learning blog")


def test_a_finding_about_a_draft_is_explained_as_the_model_s() -> None:
    assert find_explanation("draft-config-missing").code == "config-missing"


def test_a_wrong_code_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "does-not-fitt"]) == 2

    assert "did you mean 'does-not-fit'" in capsys.readouterr().err


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0

    assert len(capsys.readouterr().out.splitlines()) == 1 + len(explanations())
