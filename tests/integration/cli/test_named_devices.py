"""`--instance 8xH100-80`: a machine without a row, from the plan to the image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.commandline import TINY, Packager

MODEL = ("--model", str(TINY))


def planned(packager: Packager, instance: str, *options: str) -> dict[str, Any]:
    done = packager("plan", *MODEL, "--instance", instance, *options, "--format", "json", status=0)
    return dict(json.loads(done.out))


def test_a_machine_named_by_its_devices_is_planned_without_a_price(packager: Packager) -> None:
    done = packager("plan", *MODEL, "--instance", "8xh100", status=0)

    assert "instance   8xH100-80: 8 x H100, 80.0 GiB each\n" in done.out
    assert "costs      not known: say it with --usd-per-hour\n" in done.out


def test_the_price_of_an_hour_can_be_said(packager: Packager) -> None:
    page = planned(packager, "4xL40S", "--usd-per-hour", "5.5")

    assert page["instance"]["name"] == "4xL40S"
    assert (page["instance"]["price_usd_hour"], page["instance"]["price_basis"]) == (5.5, "user")
    assert page["predicted"]["points"][0]["usd_per_million"]["F3"]["output"] > 0


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf", "1e300"])
def test_what_is_no_price_is_refused(packager: Packager, price: str) -> None:
    packager("plan", *MODEL, "--instance", "1xL4", "--usd-per-hour", price, status=2)


@cases("two_spellings_build_the_same_image_and_its_label_is_canonical")
def test_two_spellings_build_the_same_image_and_its_label_is_canonical(
    packager: Packager, tmp_path: Path, spellings: tuple[str, ...], label: str
) -> None:
    digests = set()
    for name in spellings:
        out = tmp_path / name
        done = packager(
            "build", *MODEL, "--instance", name, "--base", "scratch",
            "--output", f"oci:{out}", "--quiet", "--format", "json",
        status=0)  # fmt: skip
        digests.add(json.loads(done.out)["digest"])
    texts = [
        file.read_bytes()
        for file in (out / "blobs" / "sha256").iterdir()
        if file.stat().st_size < 100_000
    ]

    assert len(digests) == 1
    assert any(f'"dev.packager.instance":"{label}"'.encode() in text for text in texts)


def test_all_stands_for_what_sagemaker_hosts_on(packager: Packager) -> None:
    done = packager("plan", *MODEL, "--instance", "all", "--goal", "cost", "--format", "json")
    ranking = json.loads(done.out)
    names = [one["instance"] for one in (*ranking["options"], *ranking["skipped"])]

    assert len(names) == 116
    assert all(name.startswith("ml.") for name in names)
    assert "ml.gr6.4xlarge" not in names


def test_machines_of_another_cloud_are_ranked_by_a_pattern(packager: Packager) -> None:
    done = packager("plan", *MODEL, "--instance", "a3-*", "--format", "json")

    assert next(one["instance"] for one in json.loads(done.out)["options"]) == "a3-ultragpu-8g"


def test_without_prices_nothing_is_called_the_best_price(packager: Packager) -> None:
    done = packager("plan", *MODEL, "--instance", "a3-highgpu-*")

    assert "price-performance" not in done.out
    assert done.out.splitlines()[-1].startswith("No price is known. Most tokens from a3-highgpu-8g")


def test_a_grid_of_warm_up_takes_named_devices(packager: Packager, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f'[axes]\nmodel = ["{TINY}"]\ninstance = ["4xl40s", "8xH100"]\nquantize = ["fp8"]\n'
    )
    packager("warm", "plan", str(grid), "--output", str(tmp_path / "plan.json"), status=0)
