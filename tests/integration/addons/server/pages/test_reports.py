"""Pages of what was measured, and of what came from what."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.addons.server.pages.commands import CommandRunner
from packager.addons.server.services import ServeServices
from packager.pipeline.records import put_bench
from tests.support.bench_reports import REPORTS
from tests.support.cases import read_tables
from tests.support.commandline import TINY, packager_in
from tests.support.made_up_jobs import MadeUpJobs, new_job
from tests.support.served_pages import Visitor, pages_app, served, services_at

HOSTILE = "<script>alert(1)</script>"
ONE, OTHER, WITHOUT = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the record of a real build."""
    place = tmp_path_factory.mktemp("build")
    done = packager_in(place)(
        *("build", "--model", str(TINY), "--instance", "local", "--base", "scratch"),
        *("--output", "oci:out", "--record", "record.json", "--quiet"),
        env={"XDG_STATE_HOME": str(place)},
    )
    assert done.status == 0, done.err
    return (place / "record.json").read_text()


@pytest.fixture
def services(tmp_path: Path, record: str) -> ServeServices:
    records = tmp_path / "records"
    records.mkdir()
    for age, digest in enumerate((ONE, OTHER, WITHOUT)):
        place = records / f"{digest}.json"
        place.write_text(json.dumps(json.loads(record) | {"digest": f"sha256:{digest}"}))
        if digest != WITHOUT:
            put_bench(place, REPORTS["quantized"]())
        os.utime(place, (1_795_000_000 - age, 1_795_000_000 - age))
    (records / f"{'4' * 64}.json").write_text('{"bench": {"')
    (tmp_path / "secret.json").write_text((records / f"{ONE}.json").read_text())
    (records / "notes.json").write_text('{"bench": {}}')
    return services_at(tmp_path, MadeUpJobs(tmp_path / "jobs"))


@pytest.fixture
def visitor(services: ServeServices) -> Iterator[Visitor]:
    with served(lambda: pages_app(services)) as address:
        yield Visitor(address)


def test_what_was_measured_is_listed_and_what_cannot_be_read_is_not(visitor: Visitor) -> None:
    status, _, text = visitor.get("/ui/benchmarks")

    assert status == 200
    assert [text.count(f'value="record/{one}"') for one in (ONE, OTHER, WITHOUT)] == [1, 1, 0]
    assert text.index(ONE) < text.index(OTHER)


def test_one_benchmark_is_its_report(visitor: Visitor) -> None:
    status, headers, text = visitor.get(f"/ui/benchmarks/compare?of=record/{ONE}")

    assert status == 200
    assert text.startswith("<!doctype html>")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith("frame-ancestors 'none'")


def test_several_benchmarks_stand_side_by_side(visitor: Visitor) -> None:
    alone = visitor.get(f"/ui/benchmarks/compare?of=record/{ONE}")[2]
    both = visitor.get(f"/ui/benchmarks/compare?of=record/{ONE}&of=record/{OTHER}")[2]

    assert both.count("<tr>") > alone.count("<tr>")
    assert ONE[:12] in both
    assert OTHER[:12] in both


@pytest.mark.parametrize("key", read_tables(__file__)["keys"])
def test_nothing_but_records_is_read(visitor: Visitor, key: str) -> None:
    status, _, text = visitor.get(f"/ui/benchmarks/compare?of={key}")

    assert status in (400, 404)
    assert "Not done" in text


def test_a_page_takes_no_more_benchmarks_than_fit(visitor: Visitor) -> None:
    chosen = "&".join(f"of=record/{ONE}" for _ in range(13))
    status, _, text = visitor.get(f"/ui/benchmarks/compare?{chosen}")

    assert status == 400
    assert "choose 12 at most" in text


def test_the_report_of_a_benchmark_job_is_listed(visitor: Visitor, services: ServeServices) -> None:
    jobs = services.jobs
    assert isinstance(jobs, MadeUpJobs)
    job = jobs.create(new_job("load-1", kind="benchmark"))
    (job.folder / "bench.json").write_text(REPORTS["quantized"]().model_dump_json())
    assert "job/load-1" not in visitor.get("/ui/benchmarks")[2]

    jobs.change(job, status="completed")

    assert 'value="job/load-1"' in visitor.get("/ui/benchmarks")[2]
    assert visitor.get("/ui/benchmarks/compare?of=job/load-1")[0] == 200


def test_lineage_is_drawn_and_told_with_links(services: ServeServices, tmp_path: Path) -> None:
    graph = read_tables(__file__)["graph"]
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    program = tmp_path / "program"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f'if [ $3 = svg ]; then echo "<svg>drawn</svg>"; else cat {tmp_path}/graph.json; fi\n'
    )
    program.chmod(0o755)
    commands = CommandRunner(program=(str(program),))
    with served(lambda: pages_app(services, commands=commands)) as address:
        status, _, text = Visitor(address).get("/ui/lineage?ref=--help")
        Visitor(address).get("/ui/lineage")  # opens with the newest build

    assert status == 200
    assert sorted((tmp_path / "asked").read_text().splitlines()) == [
        "lineage --format json -- --help",
        f"lineage --format json -- sha256:{ONE}",
        "lineage --format svg -- --help",
        f"lineage --format svg -- sha256:{ONE}",
    ]
    assert "<svg>drawn</svg>" in text
    assert HOSTILE not in text
    assert 'href="/ui/jobs/command/tiny"' in text
    assert 'href="/ui/lineage?ref=sha256%3A12"' in text
    assert 'href="/ui/endpoints/tiny"' in text
    assert "<td>claimed</td>" in text
    assert "<td>unknown</td>" in text


def test_a_link_of_another_site_looks_for_nothing(services: ServeServices, tmp_path: Path) -> None:
    """To look for an image's lineage may be to ask a registry that the link names."""
    commands = CommandRunner(program=("/bin/sh", "-c", f"touch {tmp_path}/asked"))
    link = "/ui/lineage?ref=intranet.example/image:1"
    followed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    with served(lambda: pages_app(services, commands=commands)) as address:
        status, _, text = Visitor(address).get(link, Sec_Fetch_Site="cross-site", **followed)
        loaded, _, _ = Visitor(address).get(
            link, Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image"
        )

    assert (status, loaded) == (200, 403)
    assert 'value="intranet.example/image:1"' in text
    assert not (tmp_path / "asked").exists()


def test_lineage_of_what_nobody_knows_is_refused_beside_its_field(services: ServeServices) -> None:
    script = 'echo \'{"message": "there is no such thing", "hint": "look"}\' >&2; exit 66'
    commands = CommandRunner(program=("/bin/sh", "-c", script))
    with served(lambda: pages_app(services, commands=commands)) as address:
        status, _, text = Visitor(address).get("/ui/lineage?ref=none")

    assert status == 400
    assert '<p class="wrong" id="ref-wrong"><b>Wrong:</b> there is no such thing: look' in text
