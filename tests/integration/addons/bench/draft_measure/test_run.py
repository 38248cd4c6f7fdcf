"""The measurement against servers whose every number is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from packager.addons.bench.draft_measure.run import DraftMeasureOptions, measure
from packager.addons.bench.draft_measure.servers import (
    MeasuredServer,
    Opener,
    targets,
)
from packager.addons.bench.load import run
from packager.core.errors import SmokeFailed, UsageError
from packager.core.samples import Message, Sample, Samples
from packager.core.speculation import Acceptance, Sameness, SpeculationReport
from tests.support.cases import cases_of, read_tables
from tests.support.doubles.speculating import SpeculatingServer
from tests.support.known import known
from tests.support.measured_engine import Engine
from tests.support.refusals import raises_code

cases = cases_of(__file__)

WORDS = "one two three four five six seven eight nine"  # 9 tokens: 1, then 8 in steps
SAMPLES = tuple(Sample(prompt=f"{name} {WORDS}") for name in ("a", "b", "c", "d", "e", "f"))
CONFIGS = read_tables(__file__)["configs"]
LAUNCHED, WITHOUT_DRAFT, LMI = (CONFIGS[name] for name in ("launched", "without_draft", "lmi"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of the doubles stand still at once."""
    monkeypatch.setattr(run, "_SETTLE_S", 0.0)


def measured(
    name: str,
    plain: str = "auto",
    *,
    engine: Engine | None = None,
    samples: tuple[Sample, ...] = SAMPLES,
    concurrency: tuple[int, ...] = (1, 4),
    env: Mapping[str, str] | None = None,
) -> SpeculationReport:
    def connect() -> Any:
        return known(engine)

    first, second = targets(name, plain, env or {}, connect)
    return measure(
        first,
        second,
        DraftMeasureOptions(
            samples=Samples(source="data", samples=samples),
            seed=0,
            max_tokens=9,
            concurrency=concurrency,
        ),
        Opener(connect=connect, deadline_s=60.0, connections=4, on_progress=lambda line: None),
        measured="2026-01-02T03:04:05Z",
        on_progress=lambda line: None,
    )


def engine_with(
    config: Mapping[str, Any] = LAUNCHED, *, obeys: bool = True, **plain: Any
) -> Engine:
    """An engine whose image `i:1` drafts unless it is told not to."""

    def serve(image: str, env: Mapping[str, str | None]) -> SpeculatingServer:
        off = image == "plain:1" or (obeys and env.get("PACKAGER_SPECULATION") == "off")
        return SpeculatingServer(step=1, **plain) if off else SpeculatingServer(step=4)

    return Engine({"i:1": config, "plain:1": WITHOUT_DRAFT}, serve)


def sameness(
    samples: tuple[Sample, ...] = SAMPLES, drafting: Mapping[str, Any] = {}, **plain: Any
) -> Sameness:
    """Hold a server that drafts against a plain one that does as it is told."""
    with SpeculatingServer(step=4, **drafting) as one, SpeculatingServer(**plain) as other:
        same = measured(one.url, other.url, samples=samples).sameness
    return known(same)


def test_two_servers_are_held_against_each_other() -> None:
    with SpeculatingServer(step=4) as drafting, SpeculatingServer() as plain:
        report = measured(drafting.url, plain.url)

    assert (report.server, report.plain) == (drafting.url, plain.url)
    # A request has 8 tokens after its first, in 2 steps of a proposal of 4 of which 3 are taken.
    assert report.acceptance == Acceptance(
        source="vllm",
        length=4.0,
        rate=0.75,
        drafts=24,
        draft_tokens=96,
        accepted_tokens=72,
        by_position=(1.5, 1.5, 0.0, 0.0),  # as the double spreads them
    )
    assert [speed.concurrency for speed in report.speeds] == [1, 4]
    for speed in report.speeds:
        assert speed.plain is not None
        assert (speed.speculative.output_tokens, speed.plain.output_tokens) == (54, 54)
        assert (speed.speculative.requests, speed.speculative.failed) == (6, 0)
        assert speed.speedup == pytest.approx(
            speed.speculative.tokens_per_second / speed.plain.tokens_per_second, abs=1e-4
        )
    assert report.sameness is not None
    assert (report.sameness.compared, report.sameness.identical) == (6, 6)


def test_an_address_alone_is_compared_with_nothing() -> None:
    with SpeculatingServer(step=4) as server:
        report = measured(server.url)

    assert (report.plain, report.sameness) == ("", None)
    assert report.speeds[0].plain is None
    assert report.speeds[0].speedup is None


def test_a_server_without_metrics_is_estimated_by_its_chunks() -> None:
    with SpeculatingServer(step=4, told="none") as server:
        report = measured(server.url)

    assert report.acceptance == Acceptance(source="chunks", length=4.0, rate=None)


def test_answers_that_part_are_shown_with_the_place() -> None:
    def other(prompt: str) -> list[str]:
        words = prompt.split()
        return ["c", "one", "TWO", *words[3:]] if words[0] == "c" else words

    same = sameness(answer=other)

    assert (same.compared, same.identical) == (6, 5)
    (found,) = same.differences
    assert (found.sample, found.character) == (3, len("c one "))
    assert found.speculative.startswith("two three")
    assert found.plain.startswith("TWO three")
    assert found.prompt == f"c {WORDS}"


def test_tokens_that_differ_are_a_difference_even_where_the_text_is_the_same() -> None:
    with SpeculatingServer(step=4) as drafting, SpeculatingServer() as plain:
        plain.answer = lambda prompt: prompt.split()[:-1] + ["nine"]
        same = measured(drafting.url, plain.url).sameness
        assert same is not None
        assert same.identical == same.compared
        plain.answer = lambda prompt: prompt.split()[:3]
        found = measured(drafting.url, plain.url).sameness

    assert found is not None
    assert found.differences[0].token == 3
    assert found.differences[0].plain == ""


OTHERS = {"a": "TWOS", "b": "TWOS", "c": "TWOS"}  # one letter longer: another token


def other_words(prompt: str) -> list[str]:
    """Answer `TWOS` for `two` in the first three prompts."""
    words = prompt.split()
    return [*words[:2], OTHERS.get(words[0], words[2]), *words[3:]]


@cases("chances")
def test_a_tie_is_told_from_a_difference(chances: object, verdict: str, gap: float | None) -> None:
    same = sameness(answer=other_words, chances=lambda prompt: chances)

    assert [(one.verdict, one.gap, one.token) for one in same.differences] == [
        (verdict, gap, 2)
    ] * 3
    assert (same.compared, same.identical, same.noise) == (6, 3, 0.25)
    assert same.ties == (3 if verdict == "tie" else 0)
    assert same.unknown == (3 if verdict == "unknown" else 0)
    assert same.different == (0 if verdict == "tie" else 3)


def test_chances_are_asked_for_after_the_prompt_and_what_the_answers_have_in_common() -> None:
    asked: list[list[int]] = []

    def chances(tokens: list[int]) -> dict[int, float]:
        asked.append(tokens)
        return {4: -0.7, 3: -0.7}

    with (
        SpeculatingServer(step=4) as drafting,
        SpeculatingServer(answer=other_words, chances=chances) as plain,
    ):
        measured(drafting.url, plain.url)

    # A prompt's tokens are those of its ten words; the answers share `a one`.
    words = [1001, 1003, 1003, 1005, 1004, 1004, 1003, 1005, 1005, 1004]
    assert asked == [[*words, 1, 3]] * 3
    body = next(body for body in plain.asked if body["prompt"] == asked[0])
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 1, 0)
    assert not [body for body in drafting.asked if "logprobs" in body]


def test_a_real_difference_is_shown_before_ties() -> None:
    def chances(tokens: list[int]) -> dict[int, float]:
        answered.append(tokens)
        return {4: -0.1, 3: -3.0} if len(answered) == 3 else {4: -0.7, 3: -0.7}

    answered: list[list[int]] = []
    same = sameness(answer=other_words, chances=chances)

    assert [(one.sample, one.verdict) for one in same.differences] == [
        (3, "difference"),
        (1, "tie"),
        (2, "tie"),
    ]


@cases("earlier_ends")
def test_an_answer_that_ends_earlier_is_weighed(chances: dict[str, float], verdict: str) -> None:
    """No server tells the token that ends an answer."""
    drafting = {"answer": lambda prompt: prompt.split()[:5]}
    same = sameness(drafting=drafting, chances=lambda tokens: chances)

    assert {one.verdict for one in same.differences} == {verdict}


@pytest.mark.parametrize("kind", ["drafting", "plain"])
def test_servers_that_tell_no_tokens_leave_it_unknown(kind: str) -> None:
    same = sameness(
        drafting={"knows_ids": kind != "drafting"},
        knows_ids=kind != "plain",
        answer=other_words,
        chances=lambda tokens: {4: -1, 3: -1},
    )

    assert (same.ties, same.unknown, same.different) == (0, 3, 3)


@cases("noises")
def test_noise_is_that_of_the_number_format(precision: str | None, noise: float) -> None:
    """The spacing of logits, which no machine decides."""
    record = f'{{"draft":{{"kind":"ngram"}},"precision":"{precision}"}}'
    labels = {"dev.packager.record": record if precision else '{"draft":{"kind":"ngram"}}'}

    same = measured("i:1", engine=engine_with({**LAUNCHED, "Labels": labels})).sameness

    assert known(same).noise == noise


def test_a_refused_prompt_is_a_failure_and_is_compared_with_nothing() -> None:
    with SpeculatingServer(step=4, refused="b ") as drafting, SpeculatingServer() as plain:
        report = measured(drafting.url, plain.url)

    assert [speed.speculative.failed for speed in report.speeds] == [1, 1]
    assert report.speeds[0].speculative.output_tokens == 45
    assert report.sameness is not None
    assert (report.sameness.compared, report.sameness.identical) == (5, 5)
    assert report.failures == (
        f'{drafting.url}: /v1/completions answered 400: {{"error": "too long"}}',
    )


def test_a_server_that_refuses_everything_is_a_failure() -> None:
    with SpeculatingServer(step=4, refused="one") as server, pytest.raises(SmokeFailed) as caught:
        measured(server.url)

    assert "answered nothing: /v1/completions answered 400" in caught.value.message


def test_a_server_without_a_draft_is_refused_before_it_is_measured() -> None:
    with SpeculatingServer() as server, raises_code("NoDraft"):
        measured(server.url)
    assert len(server.asked) == 1


def test_a_plain_server_with_a_draft_is_refused() -> None:
    with (
        SpeculatingServer(step=4) as one,
        SpeculatingServer(step=2) as other,
        raises_code("StillSpeculates", match="has a draft, too") as caught,
    ):
        measured(one.url, other.url)

    assert "--plain" in caught.value.hint


def test_a_server_that_stops_answering_ends_the_measurement() -> None:
    with (
        SpeculatingServer(step=4, breaks_after=3) as server,
        pytest.raises(SmokeFailed, match="stopped answering: the connection failed"),
    ):
        measured(server.url)

    assert len(server.asked) == 6  # not all the others


def test_nothing_that_answers_is_a_failure_without_the_secret() -> None:
    with SpeculatingServer() as gone:
        address = gone.url.replace("http://", "http://user:secret@")
    with pytest.raises(SmokeFailed, match="does not answer") as caught:
        measured(address)

    assert "secret" not in caught.value.message


def test_samples_of_every_kind_are_asked_and_empty_ones_are_not() -> None:
    talk = (Message(role="user", content="hello you"), Message(role="assistant", content="yes"))
    samples = (
        Sample(messages=talk),
        Sample(prompt="a b", completion="c"),
        Sample(text="first half of a text and the other half"),
        Sample(messages=talk[1:]),
        Sample(text=""),
    )
    with SpeculatingServer(step=4) as server:
        report = measured(server.url, samples=samples, concurrency=(1,))

    assert report.samples == 3
    prompts = [body.get("prompt") or body["messages"] for body in server.asked[1:]]
    assert prompts == [[{"role": "user", "content": "hello you"}], "a b", "first half of a"]


def test_data_that_asks_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="holds nothing that can be asked"):
        measured("http://127.0.0.1:9", samples=(Sample(text=""),))


def test_an_image_is_started_with_its_draft_and_then_without() -> None:
    engine = engine_with()

    report = measured("i:1", engine=engine, env={"THREADS": "1"})

    assert engine.started == [
        ("i:1", {"THREADS": "1"}),
        ("i:1", {"THREADS": "1", "PACKAGER_SPECULATION": "off"}),
    ]
    assert (engine.most_at_once, engine.running) == (1, {})
    assert (report.server, report.plain) == ("i:1", "i:1 without its draft")
    assert report.sameness is not None
    assert report.sameness.identical == report.sameness.compared


def test_containers_get_gpus_where_they_are_asked_for() -> None:
    engine = engine_with()
    opener = Opener(
        connect=lambda: engine,
        deadline_s=5.0,
        connections=1,
        on_progress=lambda line: None,
        gpus=True,
    )

    with opener.open(MeasuredServer(name="i:1", env={})):
        pass
    measured("i:1", "none", engine=engine)

    first, second = engine.options
    assert first["device_requests"] == [
        {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
    ]
    assert "device_requests" not in second


def test_an_image_of_ours_without_a_draft_is_not_even_started() -> None:
    engine = engine_with(WITHOUT_DRAFT)

    with raises_code("NoDraft") as caught:
        measured("i:1", engine=engine)

    assert engine.started == []
    assert "--draft" in caught.value.hint


def test_where_no_variable_switches_the_draft_off_the_way_out_is_named() -> None:
    engine = engine_with(LMI)

    with pytest.raises(UsageError, match="no variable switches off") as caught:
        measured("i:1", engine=engine)

    assert engine.started == []
    assert "--draft none" in caught.value.hint
    assert "--plain IMAGE" in caught.value.hint


def test_a_launcher_of_before_the_switch_is_found_out() -> None:
    with raises_code("StillSpeculates") as caught:
        measured("i:1", engine=engine_with(obeys=False))

    assert "build it again" in caught.value.hint


def test_a_container_that_ends_meanwhile_gives_its_log() -> None:
    engine = engine_with(breaks_after=4)

    with pytest.raises(SmokeFailed, match="ended with status 137 while") as caught:
        measured("i:1", engine=engine)

    assert caught.value.log == "the end of the log\n"
    assert engine.running == {}
