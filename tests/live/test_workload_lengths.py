"""Lengths of prompts and answers, as a real engine counts them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import urllib3

from packager.addons.bench.load.server_counts import ServerCounter, count_by_tokenize
from packager.addons.bench.load.spec import EndpointKind, RequestSpec, settle
from packager.addons.bench.load.tokenizer import TokenCounter, open_tokenizer
from packager.addons.bench.load.values import LoadRequest
from packager.addons.bench.load.workloads import CountPrompt, make_requests, open_source
from packager.core.workload import WORKLOADS
from tests.support.commandline import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

MODEL = TINY.name


class Asked:
    """A server, asked without streams."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = urllib3.PoolManager(retries=False)

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        answer = self._http.request("POST", self._url + path, json=body, timeout=300)
        return answer.status, answer.data

    def usage(self, request: LoadRequest) -> dict[str, int]:
        """Return the tokens that the server counted for a request."""
        body = {name: one for name, one in request.body.items() if name != "stream_options"}
        answer = self._http.request(
            "POST",
            self._url + request.endpoint,
            json={**body, "stream": False, "model": MODEL},
            timeout=300,
        )
        assert answer.status == 200, answer.data[:500]
        found: dict[str, int] = answer.json()["usage"]
        return found

    def cached_tokens(self) -> float:
        """Return the tokens of prompts so far that were found in the prefix cache."""
        text = self._http.request("GET", f"{self._url}/metrics", timeout=300).data.decode()
        hits = [one for one in text.splitlines() if one.startswith("vllm:prefix_cache_hits_total")]
        assert hits, text[:2000]
        return sum(float(one.split()[-1]) for one in hits)

    def prompt_tokens(self, request: LoadRequest) -> int:
        return self.usage(request)["prompt_tokens"]


@pytest.fixture
def asked(plain_server: str) -> Asked:
    """Return a vLLM that serves the small model."""
    return Asked(plain_server)


def test_prompts_and_answers_are_as_long_as_asked_for(asked: Asked) -> None:
    """The tokens of the chat template are in the length; answers do not end before."""

    def tokenized(request: LoadRequest) -> int:
        found = count_by_tokenize(asked.post, request, MODEL)
        assert found is not None
        return found

    here = open_tokenizer(TINY)
    kinds: tuple[EndpointKind, ...] = ("chat", "completions", "invocations")
    cases = [("chat", kind) for kind in kinds] + [(name, kinds[0]) for name in WORKLOADS]
    wrong = [
        *_wrong(asked, cases, here, tokenized),
        *_wrong(asked, cases[1::4], None, tokenized),  # each of them counts some 60 texts
        *_wrong(asked, cases[:1], None, asked.prompt_tokens),
        *_counted_otherwise(asked, tokenized),
    ]

    assert wrong == []
    assert _found_in_the_cache(asked, here, shared=0) == 0
    assert _found_in_the_cache(asked, here, shared=400) >= 3 * 256  # blocks may have 128 tokens
    text = "What does the shelve module do?"
    assert list(ServerCounter(asked.post, MODEL).encode(text)) == list(here.encode(text))


def _wrong(
    asked: Asked,
    cases: Sequence[tuple[str, EndpointKind]],
    counter: TokenCounter | None,
    count_prompt: CountPrompt,
) -> Iterator[Any]:
    """Yield the requests whose prompt or answer has another length."""
    for name, endpoint in cases:
        spec = RequestSpec(workload=name, endpoint=endpoint, input_tokens=500, output_tokens=12)
        shape = settle(spec, WORKLOADS[name], forces_length=True)
        source = open_source(shape, counter=counter, count_prompt=count_prompt)
        for request in itertools.islice(make_requests(source, "a load"), 2):
            usage = asked.usage(request)
            if abs(usage["prompt_tokens"] - 500) > 10 or usage["completion_tokens"] != 12:
                yield name, endpoint, usage


def _found_in_the_cache(asked: Asked, counter: TokenCounter, *, shared: int) -> float:
    """Send two loads of two requests; return their tokens that the prefix cache had."""
    spec = RequestSpec(input_tokens=500, output_tokens=1, prefix_tokens=shared, seed=1)
    source = open_source(settle(spec, forces_length=True), counter=counter)
    before = asked.cached_tokens()
    for load in ("one", "two"):
        for request in itertools.islice(make_requests(source, load), 2):
            asked.usage(request)
    return asked.cached_tokens() - before


def _counted_otherwise(asked: Asked, tokenized: CountPrompt) -> Iterator[Any]:
    """Yield requests that /tokenize counts otherwise than an answer does."""
    for name in ("multi_turn_chat", "agent_tool_calling"):
        spec = RequestSpec(workload=name, input_tokens=300, output_tokens=1)
        (request,) = itertools.islice(make_requests(open_source(settle(spec))), 1)
        counts = tokenized(request), asked.prompt_tokens(request)
        if counts[0] != counts[1]:
            yield name, counts
