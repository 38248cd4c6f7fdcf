"""What a measurement of drafts takes of a load's results."""

from __future__ import annotations

from packager.addons.bench.draft_measure.load import ask_all
from packager.cli.serving.openai import Server
from packager.cli.serving.opening import OpenServer
from packager.core.probes import probe_request
from packager.core.samples import Sample
from tests.support.doubles.speculating import SpeculatingServer
from tests.support.known import known

PROMPT = probe_request(Sample(prompt="one two three four five six seven"), 6)


def opened(server: SpeculatingServer) -> OpenServer:
    return OpenServer(server=Server(server.url), model="m", shown=server.url, url=server.url)


def test_text_tokens_and_chunks_are_told_apart() -> None:
    with SpeculatingServer(step=3) as server:
        (answer,) = ask_all(opened(server), [PROMPT], 1).answers

    assert answer is not None
    assert answer.text == "one two three four five six "
    assert (answer.tokens, answer.chunks) == (6, 3)  # 1 and 3 and 2
    assert answer.token_ids == (3, 3, 5, 4, 4, 3)
    assert answer.prompt_token_ids == (1003, 1003, 1005, 1004, 1004, 1003, 1005)
    assert 0 < answer.first_s <= answer.last_s
    assert not answer.error


def test_an_answer_without_a_count_is_a_failure() -> None:
    with SpeculatingServer(counts_usage=False) as server:
        (answer,) = ask_all(opened(server), [PROMPT], 1).answers

    assert known(answer).error == "it does not count its tokens: the answer has no usage"
