"""AIPerf's classes and SageMaker's SDK, unchanged, read what a benchmark writes."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.export import aws_files, load_files
from packager.addons.bench.load.values import Chunk, Level, LoadResult, LoadRun
from packager.addons.bench.metrics import load_figures
from packager.addons.bench.request_metrics import LIMITED
from packager.addons.bench.search import Breach, SearchPoint, SearchResult, Trial
from packager.addons.bench.search_history import history_document
from packager.core.bench import BenchReport, BenchVariant, BenchWorkload, Boundary, Limits
from packager.core.bench_setup import BenchSetup
from packager.core.capture.rows import CapturedExchange, Options, make_row
from packager.models.samples.formats import read_row
from tests.live.tool_programs import documents_in, printed_by
from tests.support.cases import read_tables
from tests.support.doubles.s3 import Bucket, bucket_server

pytestmark = pytest.mark.live

HERE = Path(__file__).resolve().parent
STARTED = "2026-11-23T10:00:00Z"
LIMITS = Limits(ttft_ms=400, tpot_ms=60, latency_ms=4000)


CORPUS = read_tables(__file__)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


def ask(program: str, path: Path, *arguments: str, **environment: str) -> Any:
    """Run a program with a consumer on the path; give what it printed."""
    printed = printed_by(
        sys.executable, HERE / program, *arguments, PYTHONPATH=str(path), **environment
    )
    return documents_in(printed)[-1]


def made_result(number: int, chance: random.Random) -> LoadResult:
    """Return a streamed answer of any kind, at whole microseconds."""

    def micros(least: int, most: int) -> float:
        return chance.randint(least, most) / 1e6

    sent = number * 0.05 + micros(0, 10_000)
    at, pieces = sent, []
    thoughts = chance.choice([0, 0, 2])
    for piece in range(chance.choice([0, 1, 2, 5, 30])):
        at += micros(50_000, 600_000) if not piece else micros(1_000, 90_000)
        pieces.append(Chunk(at_s=at, is_reasoning=piece < thoughts))
    tokens = len(pieces) if len(pieces) < 2 else len(pieces) * chance.choice([1, 1, 3])
    told = chance.random() < 0.5 and len(pieces) > 1
    if told:
        pieces[0] = replace(pieces[0], tokens=chance.choice([1, 2, 0, tokens]))
    kind = chance.choices(["whole", "cut", "own"], [8, 1, 2])[0]
    is_counted = kind != "own"
    own = max(1, round(tokens * chance.uniform(0.8, 1.2)))
    return LoadResult(
        number=number,
        sent_s=sent,
        ended_s=at + micros(10, 1_000),
        chunks=tuple(pieces),
        text="x" * len(pieces),
        asked_tokens=chance.choice([None, tokens or 4, 40]),
        input_tokens=chance.randint(50, 90) if is_counted else None,
        output_tokens=tokens if is_counted else None,
        reasoning_tokens=min(thoughts, tokens) if is_counted and thoughts else None,
        own_input_tokens=chance.randint(50, 90),
        own_output_tokens=own,
        status=200,
        failure="cut" if kind == "cut" else None,
        reason="no end" if kind == "cut" else "",
    )


def made_run(seed: int, count: int = 300, concurrency: int = 8) -> LoadRun:
    chance = random.Random(seed)
    results = tuple(made_result(number, chance) for number in range(count))
    return LoadRun(
        level=Level(concurrency=concurrency),
        results=results,
        seconds=max(one.ended_s for one in results),
        started=STARTED,
    )


def report_of(*runs: LoadRun) -> BenchReport:
    return BenchReport(
        packager_version="0.9.0",
        measured="2026-11-23T10:00:00Z",
        workload=BenchWorkload(name="chat", input_tokens=70, output_tokens=30),
        limits=LIMITS,
        variants=(
            BenchVariant(
                name="docker:tiny-llama:awq",
                setup=BenchSetup(model="tiny-llama"),
                loads=tuple(load_figures([run], LIMITS) for run in runs),
            ),
        ),
        command="packager bench docker:tiny-llama:awq --concurrency 8",
    )


def as_aiperf(result: LoadResult) -> dict[str, Any]:
    """Return a request in the form that `aiperf_reads.py` takes."""

    def nanoseconds(seconds: float) -> int:
        return 10**15 + round(seconds * 1e9)

    server = {"input": result.input_tokens, "output": result.output_tokens}
    return {
        "sent_ns": nanoseconds(result.sent_s),
        "end_ns": nanoseconds(result.ended_s),
        "chunks": [
            {"ns": nanoseconds(chunk.at_s), "is_reasoning": chunk.is_reasoning}
            for chunk in result.chunks
        ],
        "first": result.chunks[0].tokens if result.chunks else None,
        "asked": result.asked_tokens,
        "failed": not result.is_answered,
        "server": {**server, "reasoning": result.reasoning_tokens}
        if result.output_tokens is not None
        else None,
        "client": {"input": result.own_input_tokens, "output": result.own_output_tokens},
    }


@pytest.fixture(scope="module")
def by_aiperf(consumers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place, run = tmp_path_factory.mktemp("aiperf"), made_run(1)
    report = report_of(run)
    (variant,) = report.variants
    for name, content in load_files(report, variant, variant.loads[0], [run]).items():
        (place / name).write_bytes(content)
    slos = {LIMITED[name]: limit for name, limit in LIMITS.model_dump().items()}
    requests = {"slos": slos, "requests": [as_aiperf(result) for result in run.results]}
    (place / "requests.json").write_text(json.dumps(requests), encoding="utf-8")
    read: dict[str, Any] = ask("aiperf_reads.py", consumers / "aiperf", str(place))
    return read


def test_aiperf_validates_the_summary_and_the_records(by_aiperf: dict[str, Any]) -> None:
    (load,) = report_of(made_run(1)).variants[0].loads

    assert by_aiperf["schema"] == "1.4"
    assert by_aiperf["units"] == {
        tag: load.metrics[tag].unit if tag in load.metrics else "ns" for tag in by_aiperf["units"]
    }
    assert by_aiperf["unknown"] == CORPUS["unknown_to_aiperf"]
    assert by_aiperf["phase"] == {"type": "concurrency", "concurrency": 8}
    assert by_aiperf["records"] == 300
    failed = load.metrics["error_request_count"].avg
    assert by_aiperf["errors"] == by_aiperf["failed_records"] == failed > 20
    assert by_aiperf["left_over"] == ["round"]


def test_aiperf_computes_the_same_metrics(by_aiperf: dict[str, Any]) -> None:
    expected = by_aiperf["metrics"]

    found = load_figures([made_run(1)], LIMITS).metrics

    assert set(expected) - set(found) == set(CORPUS["not_ours"])
    assert set(found) - set(expected) == set()
    for tag, metric in found.items():
        assert metric.model_dump(exclude_none=True) == pytest.approx(
            expected[tag], rel=1e-6, abs=1e-6
        ), tag


@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/score", "/classify"])
def test_aiperf_validates_loads_of_vectors_and_scores(
    consumers: Path, tmp_path: Path, path: str
) -> None:
    results = tuple(
        LoadResult(
            number=at, sent_s=at, ended_s=at + 0.5, is_streamed=False, texts=3, input_tokens=9
        )
        for at in range(4)
    )
    run = LoadRun(level=Level(concurrency=1), results=results, seconds=4.0, started=STARTED)
    workload = BenchWorkload(name="embedding", input_tokens=3, endpoint=path)
    report = report_of(run).model_copy(update={"workload": workload})
    (variant,) = report.variants
    for name, content in load_files(report, variant, variant.loads[0], [run]).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "requests.json").write_text('{"slos": {}, "requests": []}')

    found = ask("aiperf_reads.py", consumers / "aiperf", str(tmp_path))

    load = variant.loads[0]
    assert found["units"] == {
        tag: load.metrics[tag].unit if tag in load.metrics else "ns" for tag in found["units"]
    }
    assert {"request_latency", "request_throughput", "total_isl"} <= set(found["units"])
    assert found["unknown"] == sorted([*CORPUS["unknown_to_aiperf"], *CORPUS["texts"]])
    assert (found["records"], found["failed_records"], found["errors"]) == (4, 0, 0)


def test_aiperf_replays_what_was_captured(consumers: Path, tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "w", "parameters": {}}}]
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "tools": tools}
    answer = {"choices": [{"message": {"content": "yo"}}], "usage": {"prompt_tokens": 4}}
    exchanges = [
        CapturedExchange(
            id=str(number),
            at_s=1.5e9 + number,
            request=json.dumps(asked).encode(),
            request_type="application/json",
            answer=(body,),
            answer_type=kind,
        )
        for number, (body, kind) in enumerate(
            [
                (json.dumps(answer).encode(), "application/json"),
                (b'data: {"choices": [{"delta": {"content": "yo"}}]}\n\n', "text/event-stream"),
            ]
        )
    ]
    options = [Options(), Options(json_types=frozenset({"application/json"}))]
    rows = [make_row(one, how) for one in exchanges for how in options]
    place = tmp_path / "front" / "AllTraffic" / "2017" / "07" / "14" / "02"
    place.mkdir(parents=True)
    (place / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    found = ask("aiperf_captures.py", consumers / "aiperf", str(tmp_path))

    assert found == {
        "taken": True,
        "messages": [asked["messages"]] * 4,
        "tools": [tools] * 4,
        "limits": [9] * 4,
        "prompts": [4, 4, None, None],
        "milliseconds": [1.5e12, 1.5e12, 1.5e12 + 1000, 1.5e12 + 1000],
    }
    assert [read_row(row)[1].answered for row in rows] == [True, True, False, False]


def read_by_sdk(
    consumers: Path, bucket: Bucket, files: Mapping[str, bytes], *places: str
) -> dict[str, Any]:
    """Put what a benchmark writes into a bucket; give what the SDK reads in places of it."""
    for name, content in files.items():
        bucket.put(f"bench/{name}", content)
    folder = f"{bucket.url}/bench/docker_tiny-llama_awq"
    where = [f"{folder}/{place}/" for place in places]
    sdk = consumers / "sagemaker"
    read: dict[str, Any] = ask("sagemaker_reads.py", sdk, *where, **bucket.environment)
    return read


def test_sagemakers_sdk_reads_and_compares_archives_in_a_bucket(
    consumers: Path, server: str
) -> None:
    runs = made_run(4), made_run(5, concurrency=16)
    report = report_of(*runs)
    files = aws_files(report, {(0, 0): [runs[0]], (0, 1): [runs[1]]}, {})

    read = read_by_sdk(consumers, Bucket(server), files, "concurrency_8", "concurrency_16")

    first, second = read["results"]
    assert first["version"] == "packager 0.9.0"
    for one, load in zip((first, second), report.variants[0].loads, strict=True):
        assert {
            name: values for name, values in one["metrics"].items() if name in load.metrics
        } == {
            name: [metric.unit, metric.avg, metric.p50, metric.p99, metric.std or None]
            for name, metric in load.metrics.items()
        }
        assert one["search"] is None
    assert "request_throughput" in first["shown"]
    averages, latencies = read["compared"]
    lines = averages.splitlines()
    assert lines[1].strip() == "baseline: run1  |  stat: avg  (+Δ = better)"
    (throughput,) = [line for line in lines if line.split()[:1] == ["output_token_throughput"]]
    assert throughput.split()[1] == "tokens/sec"
    assert throughput.rstrip().endswith("%")
    assert "stat: p90" in latencies


def test_sagemakers_sdk_reads_the_end_of_a_search(consumers: Path, server: str) -> None:
    run = made_run(6)
    breach = Breach(tag="time_to_first_token", statistic="p95", limit=400.0, observed=612.5)
    found = SearchResult(
        boundary=Boundary(what="max-concurrency", feasible=8, infeasible=9),
        reason="boundary",
        trials=(
            Trial(number=0, point=SearchPoint(concurrency=8, output_token_throughput=120.5)),
            Trial(
                number=1,
                point=SearchPoint(concurrency=9, output_token_throughput=119.0),
                breaches=(breach,),
            ),
        ),
        objective=120.5,
        limits={"time_to_first_token": 400.0},
    )
    files = aws_files(report_of(run), {(0, 0): [run]}, {0: history_document(found)})

    (told,) = read_by_sdk(consumers, Bucket(server), files, "search")["results"]
    assert told["search"] == CORPUS["search"]
    assert told["metrics"] == {}
