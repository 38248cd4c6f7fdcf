"""The pages over HTTP: what they show, what they refuse, and what a hostile text does in them."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ResourceInUse
from packager.addons.server.pages.commands import CommandRunner
from packager.addons.server.pages.job_views import job_path
from packager.addons.server.services import ServeServices
from packager.core.record import RecordedImage, RecordedTree
from packager.pipeline.records import record_document
from tests.support.bench_reports import report, variant
from tests.support.cases import cases_of, read_tables, shows
from tests.support.known import known
from tests.support.lineage_records import build_record
from tests.support.made_up_jobs import MadeUpJobs, fifty_jobs, new_job
from tests.support.report_values import quality_report
from tests.support.served_pages import MadeUpApi, Visitor, pages_app, served, services_at

cases = cases_of(__file__)

HOSTILE = "\"><script>alert(1)</script>'{{7*7}}"
ESCAPED = "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39;{{7*7}}"
FILES = "s3://results/tiny/"


@pytest.fixture
def jobs(tmp_path: Path) -> MadeUpJobs:
    return fifty_jobs(tmp_path / "jobs")


@pytest.fixture
def services(tmp_path: Path, jobs: MadeUpJobs) -> ServeServices:
    return services_at(tmp_path, jobs)


@pytest.fixture
def api() -> MadeUpApi:
    return MadeUpApi()


@pytest.fixture
def visitor(services: ServeServices, api: MadeUpApi) -> Iterator[Visitor]:
    with served(lambda: pages_app(services, api)) as address:
        yield Visitor(address)


@pytest.mark.parametrize("path", read_tables(__file__)["pages"])
def test_every_page_has_the_headers_that_keep_strangers_out(visitor: Visitor, path: str) -> None:
    _, headers, text = visitor.get(path)

    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert not re.search(r"<[^>]* (style|on[a-z]+)=|<script>|<style>", text)
    assert not re.search(r'(src|href|action)="(https?:)?//', text)


def test_a_session_cookie_is_for_the_pages_alone(visitor: Visitor) -> None:
    _, headers, _ = visitor.get("/ui/jobs")

    for part in ("HttpOnly", "SameSite=Strict", "Path=/ui"):
        assert part in headers["set-cookie"]


def test_jobs_are_listed_page_by_page(tmp_path: Path) -> None:
    jobs = fifty_jobs(tmp_path / "jobs")
    for number in range(50, 60):
        jobs.create(new_job(f"late-{number}"))
    with served(lambda: pages_app(services_at(tmp_path, jobs))) as address:
        visitor = Visitor(address)
        first = visitor.get("/ui/jobs")[2]
        following = re.search(r'rel="next" href="([^"]+)"', first)
        second = visitor.get(known(following)[1].replace("&amp;", "&"))[2]

    assert first.count("<tr data-job=") == 50
    assert second.count("<tr data-job=") == 10
    assert "First page" in second
    assert "Next page" not in second


def test_jobs_are_filtered_by_name_and_status(visitor: Visitor) -> None:
    text = visitor.get("/ui/jobs?status=failed&name=LLAMA-1&sort=name&kind=optimization")[2]

    assert re.findall(r'data-job="optimization/([^"]+)"', text) == ["llama-13", "llama-18"]
    assert "<option selected>failed</option>" in text


def test_a_filter_that_nobody_offered_lets_all_pass(visitor: Visitor) -> None:
    assert visitor.get("/ui/jobs?status=odd&kind=odd&sort=odd")[2].count("<tr data-job=") == 50


def test_hostile_names_documents_and_logs_stay_text(visitor: Visitor, jobs: MadeUpJobs) -> None:
    job = jobs.create(
        new_job(HOSTILE, document={"model": HOSTILE, "instance": HOSTILE}, tags={HOSTILE: HOSTILE})
    )
    job = jobs.change(job, status="failed", failure=HOSTILE)
    job.log.write_text(HOSTILE + "\n")

    for path in ("/ui/jobs?name=script", f"/ui/jobs?name={HOSTILE}".replace(" ", "%20")):
        text = visitor.get(path)[2]
        assert "<script>alert" not in text
        assert ESCAPED in text
    status, _, text = visitor.get(f"/ui/{job_path(job)}")
    assert status == 200
    assert "<script>alert" not in text
    assert text.count(ESCAPED) == 12


def test_the_whole_log_is_plain_text(visitor: Visitor, jobs: MadeUpJobs) -> None:
    jobs.get("optimization", "llama-01").log.write_text("<script>alert(1)</script>\n")

    status, headers, text = visitor.get("/ui/jobs/optimization/llama-01/log")

    assert (status, text) == (200, "<script>alert(1)</script>\n")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]


def test_a_job_is_stopped_and_deleted_by_forms(visitor: Visitor, jobs: MadeUpJobs) -> None:
    assert visitor.post("/ui/jobs/optimization/llama-01/stop", {})[0] == 303
    assert jobs.get("optimization", "llama-01").status == "stopping"
    status, headers, _ = visitor.post("/ui/jobs/optimization/llama-00/delete", {})
    assert (status, headers["location"]) == (303, "/ui/jobs")
    assert ("optimization", "llama-00") not in jobs.jobs


def test_a_form_that_is_too_large_is_refused(visitor: Visitor) -> None:
    assert visitor.post("/ui/jobs/new", {"model": "x" * 300_000})[0] == 413


@cases("visits")
def test_a_visitor_is_shown_what_is_there_and_told_what_is_not_done(
    visitor: Visitor, api: MadeUpApi, jobs: MadeUpJobs, case: dict[str, Any]
) -> None:
    """`fields` are a form's; `answers` and `refuses` are the API's, which is `asked` and `sent`."""
    api.answers |= case.get("answers", {})
    api.answers |= {name: ResourceInUse(told) for name, told in case.get("refuses", {}).items()}
    before = set(jobs.jobs)
    if "fields" in case:
        status, headers, text = visitor.post(case["path"], case["fields"])
    else:
        status, headers, text = visitor.get(case["path"], **case.get("headers", {}))

    text = text.replace("\r\n", "\n")
    assert status == case.get("status", 200)
    assert [part for part in case.get("has", ()) if part not in text] == []
    assert [part for part in case.get("lacks", ()) if part in text] == []
    assert headers.get("location") == case.get("location")
    assert [name for name, _ in api.asked] == case.get("asked", [name for name, _ in api.asked])
    assert "sent" not in case or shows(api.asked[0][1], case["sent"])
    assert set(jobs.jobs) == before


@cases("forms")
def test_a_form_of_another_site_does_nothing(
    visitor: Visitor, jobs: MadeUpJobs, fields: dict[str, str], headers: dict[str, str]
) -> None:
    status, _, text = visitor.post("/ui/jobs/optimization/llama-01/stop", fields, **headers)

    assert status == 403
    assert "Not done" in text
    assert jobs.get("optimization", "llama-01").status == "running"


def test_a_token_of_another_session_does_nothing(visitor: Visitor, jobs: MadeUpJobs) -> None:
    token = re.search(r'name="token" value="(\w+)"', visitor.get("/ui/jobs/new")[2])
    other = Visitor(visitor.address)
    status, _, _ = other.post("/ui/jobs/optimization/llama-01/stop", {"token": known(token)[1]})

    assert status == 403
    assert jobs.get("optimization", "llama-01").status == "running"


def test_a_job_of_a_directory_is_kept_with_its_request(visitor: Visitor, jobs: MadeUpJobs) -> None:
    status, headers, _ = visitor.post(
        "/ui/jobs/new", {**read_tables(__file__)["form"], "do": "create"}
    )

    assert (status, headers["location"]) == (303, "/ui/jobs/command/tiny")
    job = jobs.get("command", "tiny")
    assert json.loads((job.folder / "request.json").read_text())["outputs"] == ["oci:out"]


def test_events_tell_what_changes_and_end_with_the_job(visitor: Visitor, jobs: MadeUpJobs) -> None:
    job = jobs.get("optimization", "llama-01")
    address = urlsplit(visitor.address).netloc
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/ui/jobs/optimization/llama-01/events?from=13")
    answer = connection.getresponse()

    assert answer.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    began = _until(answer, "event: job")
    assert "id: 34\nevent: log\n" in began
    assert json.loads(_data(began, "log")) == {"text": "train: read 12 texts\n"}
    assert json.loads(_data(began, "job"))["status"] == "running"
    with job.log.open("a") as file:
        file.write("built\n")
    jobs.change(job, status="completed", stage=2)
    rest = _until(answer, "event: end")
    connection.close()

    assert json.loads(_data(rest, "log")) == {"text": "built\n"}
    assert json.loads(_data(rest, "job"))["ended"] is True


def test_a_server_that_ends_waits_for_no_open_page(services: ServeServices) -> None:
    with served(lambda: pages_app(services), grace_s=600) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        connection.request("GET", "/ui/jobs/optimization/llama-01/events")
        answer = connection.getresponse()
        _until(answer, "event: job")

    assert answer.read().decode().strip() in ("", ": still here")
    connection.close()


def test_events_of_a_list_are_those_of_its_jobs(visitor: Visitor) -> None:
    _, _, text = visitor.get(
        "/ui/jobs/events?job=optimization/llama-00&job=optimization/none&job=odd"
    )

    assert json.loads(_data(text, "job"))["name"] == "llama-00"
    assert text.count("event: job") == 1
    assert text.endswith("event: end\ndata: {}\n\n")


def test_the_cache_is_shown_as_its_command_tells(services: ServeServices, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\n"
        f"if [ $2 = ls ]; then cat {tmp_path}/ls.json; else cat {tmp_path}/stats.json; fi\n"
    )
    program.chmod(0o755)
    listed = {**read_tables(__file__)["entry"], "model": HOSTILE}
    (tmp_path / "ls.json").write_text(json.dumps([listed]))
    (tmp_path / "stats.json").write_text(json.dumps(read_tables(__file__)["statistics"]))
    commands = CommandRunner(program=(str(program),))
    with served(lambda: pages_app(services, commands=commands)) as address:
        _, _, text = Visitor(address).get("/ui/caches")

    assert ESCAPED in text
    assert '<th scope="row">abababababab</th>' in text
    assert "<dd>75 %</dd>" in text
    assert "<dd>1 min 30 s</dd>" in text
    assert "<td>pinned</td>" in text


@cases("failing_commands")
def test_a_failing_command_is_told(services: ServeServices, script: str, told: str) -> None:
    limit_s = 0.2 if "sleep" in script else 600.0
    commands = CommandRunner(program=("/bin/sh", "-c", script), limit_s=limit_s)
    with served(lambda: pages_app(services, commands=commands)) as address:
        status, _, text = Visitor(address).get("/ui/caches")

    assert status == 500
    assert told in text


@pytest.mark.parametrize(("weights", "data"), [("mounted", FILES), ("baked", "")], ids=str)
def test_an_image_that_reads_its_model_is_deployed_with_the_files(
    visitor: Visitor, jobs: MadeUpJobs, weights: str, data: str
) -> None:
    digest = f"sha256:{'ab' * 32}"
    record = build_record(
        request={"model": "m", "instance": "local", "weights": weights},
        images=(RecordedImage(target="docker:jobs:a", name="jobs:a", digest=digest),),
        trees=(RecordedTree(target=FILES, name=FILES, digest=digest, files=1, size=1),),
    )
    job = jobs.get("optimization", "llama-00")
    job.record.write_text(record.model_dump_json(), encoding="utf-8")

    text = visitor.get("/ui/endpoints/new?kind=optimization&job=llama-00")[2]

    assert f'value="{data}"' in re.findall(r'<input[^>]*name="data"[^>]*>', text)[0]


def test_builds_are_listed_with_what_can_be_done_next(
    visitor: Visitor, services: ServeServices
) -> None:
    folder = services.state.parent / "records"
    folder.mkdir()
    for number, target in enumerate(("docker:shop:1", "oci:out")):
        digest = f"sha256:{f'{number:02}' * 32}"
        record = build_record(
            request={"model": HOSTILE, "instance": "ml.g5.xlarge", "quantize": "awq"},
            images=(RecordedImage(target=target, name=target.partition(":")[2], digest=digest),),
            digest=digest,
            served_name=HOSTILE,
        )
        (folder / f"{digest[7:]}.json").write_bytes(record_document(record))
    (folder / f"{'ff' * 32}.json").write_text("{}")

    home, images = (visitor.get(path)[2] for path in ("/ui/", "/ui/images"))

    for text in (home, images):
        assert "<script>alert" not in text
        assert text.count("<td>vllm 0.27.1, awq</td>") == 2
        assert len(re.findall(r'<td( class="n")?>1.41</td>', text)) == 2
    assert re.findall(r'href="/ui/endpoints/new\?build=sha256%3A(\d\d)', images) == ["00"]
    again = re.findall(
        r'href="/ui/jobs/new\?model=[^"]*instance=ml.g5.xlarge&amp;quantize=awq', images
    )
    assert len(again) == 2
    form = visitor.get(f"/ui/endpoints/new?build=sha256:{'00' * 32}")[2]
    assert f'value="shop:1@sha256:{"00" * 32}"' in form


def test_a_job_shows_its_states_and_what_they_say(visitor: Visitor, jobs: MadeUpJobs) -> None:
    states = tuple(
        variant(name, levels=(1, 16), tpot_ms=tpot, ttft_ms=50.0)
        for name, tpot in (("no_eagle", 20.0), ("base_eagle", 15.0), ("trained_eagle", 10.0))
    )
    record = build_record(bench=report(states), quality=quality_report(kld_mean=0.25))
    job = jobs.get("optimization", "llama-00")
    job.record.write_bytes(record_document(record))

    text = visitor.get("/ui/jobs/optimization/llama-00")[2]

    rows = re.findall(r'<tr><th scope="row">(\w+ EAGLE)</th><td class="n">(\d+)</td>', text)
    assert rows == [
        (name, load) for name in ("No EAGLE", "Base EAGLE", "Trained EAGLE") for load in ("1", "16")
    ]
    assert "<p>tokens/s: faster at 2 of 2 loads.</p>" in text
    assert "<p>Mean KLD: 0.25 ± " in text


def _until(answer: http.client.HTTPResponse, mark: str) -> str:
    """Read lines up to the end of the event that has the mark."""
    lines: list[str] = []
    seen = False
    while True:
        line = answer.readline().decode()
        assert line, f"the stream ended without {mark!r}"
        lines.append(line)
        seen = seen or line.startswith(mark)
        if seen and line == "\n":
            return "".join(lines)


def _data(text: str, event: str) -> str:
    return known(re.search(rf"event: {event}\ndata: (.*)\n", text))[1]
