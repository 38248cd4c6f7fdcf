"""`packager evaluate` and `build --evaluate`, as far as they go without a library that computes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cases import cases
from tests.support.commandline import TINY, Packager

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")


@cases("nothing")
def test_nothing_to_evaluate(packager: Packager, tmp_path: Path, asked: tuple[str, ...]) -> None:
    done = packager(*BUILD, "--output", "oci:out", *asked, status=2)

    assert "nothing is quantized here" in done.err
    assert "packager evaluate" in done.err
    assert not (tmp_path / "out").exists()


def test_absent_texts_are_missed_before_any_work(packager: Packager, tmp_path: Path) -> None:
    done = packager(*BUILD, "--quantize", "fp8", "--evaluate", "nowhere.jsonl", "--dry-run")
    alone = packager("evaluate", "--base", "a", "--candidate", "b", "--data", "nowhere.jsonl")

    assert (done.status, alone.status) == (66, 66)
    assert "no data found at 'nowhere.jsonl'" in done.err
    assert "no data found at 'nowhere.jsonl'" in alone.err


def test_measuring_changes_nothing_in_the_image(packager: Packager) -> None:
    quantized = (*BUILD, "--quantize", "fp8", "--dry-run", "--format", "json")
    measured = ("--evaluate", "default", "--evaluate-seed", "3", "--max-kld", "0.1")

    plain, limited = packager(*quantized), packager(*quantized, *measured)

    assert plain.status == limited.status == 0, limited.err
    ours, theirs = (json.loads(done.out)["runtime"]["labels"] for done in (plain, limited))
    assert ours == theirs


def test_a_plan_says_that_it_will_be_measured(packager: Packager) -> None:
    plan = ("plan", "--model", str(TINY), "--instance", "local", "--quantize", "fp8")

    done = packager(*plan, "--max-kld", "0.1", "--evaluate-samples", "5", "--format", "json")

    forecasts = json.loads(done.out)["forecasts"]
    assert [one["step"] for one in forecasts] == ["quantize", "evaluate"]
    assert (forecasts[1]["state"], forecasts[1]["tool"]) == ("unknown", "evaluate")
    assert forecasts[1]["reason"].endswith(
        "5 texts; nothing is built with mean KLD over 0.1 or same-top-1 under 50 % (default)"
    )
    for one in forecasts:
        assert one["seconds_from"] == "estimate"
        assert 5 < one["seconds"] < 600
        assert one["where"].startswith("ml.c7i.xlarge ($0.21 an hour): the cheapest")
        assert 0 < one["where_usd"] < 0.05


def test_a_request_file_may_ask_for_it(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "request.toml").write_text(
        f'model = "{TINY}"\ninstance = "local"\nbase = "scratch"\nmax_kld = 0.1\nmin_top1 = 1.5\n'
    )

    done = packager("build", "--request", "request.toml", "--dry-run", status=2)

    assert "min_top1" in done.err


def test_a_model_that_is_not_there_is_not_found(packager: Packager) -> None:
    done = packager("evaluate", "--base", str(TINY), "--candidate", "./nowhere", status=66)

    assert "nowhere" in done.err
