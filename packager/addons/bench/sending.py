"""Requests to servers under load: made for each server, since each counts tokens its own way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import urllib3

from packager.addons.bench.load.adapters import (
    EVERY,
    AdapterMix,
    dealt,
    parse_shares,
    settle_shares,
)
from packager.addons.bench.load.run import run_load
from packager.addons.bench.load.server_counts import count_by_tokenize
from packager.addons.bench.load.spec import PATHS, Lengths, RequestSpec, settle
from packager.addons.bench.load.tokenizer import TokenCounter
from packager.addons.bench.load.values import Level, LoadRequest, LoadRun
from packager.addons.bench.load.workloads import RequestSource, make_requests, open_source
from packager.addons.bench.options import BenchOptions
from packager.cli.serving.adapters import reach_adapters
from packager.cli.serving.openai import BadAnswer
from packager.cli.serving.opening import OpenServer
from packager.core.engine_rows import engine_rows
from packager.core.samples import Sample
from packager.core.workload import Workload


@dataclass(slots=True, kw_only=True)
class Sender:
    """Puts servers under load. The same load and round of two servers gets the same prompts."""

    spec: RequestSpec
    workload: Workload
    asked: BenchOptions
    lengths: Sequence[Lengths] = ()
    samples: Sequence[Sample] = ()
    counter: TokenCounter | None = None  # the client's own tokenizer
    headers: Mapping[str, str] = field(default_factory=dict)  # for addresses
    stop: threading.Event | None = None
    is_sending: bool = False  # a load runs, which `stop` ends
    _sources: dict[str, RequestSource] = field(default_factory=dict)
    _sent: dict[str, int] = field(default_factory=dict)  # of the user's own samples
    _mixes: dict[str, AdapterMix] = field(default_factory=dict)

    def __call__(
        self, server: OpenServer, level: Level, number: int, on_answer: Callable[[], None]
    ) -> LoadRun:
        """Send one round of one load."""
        source = self.source_of(server)
        plan = self.asked.plan(level, self.spec.seed + number)
        skip = self._sent.get(server.shown, 0)
        load = f"{level.words}, round {number}"
        requests = make_requests(source, load, skip=skip)
        mix = self.mix_of(server)
        if mix is not None:
            requests = dealt(requests, mix, self.spec.seed, load)
        self.is_sending = True
        try:
            run = run_load(
                server.route or server.url,
                server.model,
                requests,
                plan,
                on_result=lambda _: on_answer(),
                tokenizer=self.counter,
                stop=self.stop,
                headers=self.headers if server.container is None else None,
            )
        finally:
            self.is_sending = False
        self._sent[server.shown] = skip + plan.warm_up + len(run.results)
        unproven = mix is not None and not mix.is_proven
        return replace(run, estimated_lengths=source.estimates, unproven_adapters=unproven)

    def mix_of(self, server: OpenServer) -> AdapterMix | None:
        """Return the adapters that requests to a server are for, each shown to answer once."""
        wanted = parse_shares(self.spec.adapter_shares)
        if wanted and server.shown not in self._mixes:
            listed = server.server.adapters() if EVERY in wanted else ()
            shares = settle_shares(wanted, listed, self.spec.adapter_zipf)
            path = PATHS["invocations" if self.spec.endpoint == "invocations" else "completions"]
            models, is_proven = reach_adapters(server, tuple(shares), path)
            self._mixes[server.shown] = AdapterMix(
                shares=shares, models=models, is_proven=is_proven
            )
        return self._mixes.get(server.shown)

    def source_of(self, server: OpenServer) -> RequestSource:
        """Return the source of requests to a server, cached from the first call."""
        if server.shown not in self._sources:
            shape = settle(
                self.spec,
                self.workload,
                lengths=self.lengths,
                forces_length=forces_length(server.metrics()),
            )
            if shape.texts and is_tei(server.metrics()):
                shape = replace(shape, passages="texts")
            if shape.template is not None:  # it counts no prompt of OpenAI's form
                shape = replace(shape, template=replace(shape.template, model=server.model))
                self._sources[server.shown] = open_source(
                    shape, counter=self.counter, samples=self.samples
                )
                return self._sources[server.shown]

            def count_prompt(request: LoadRequest) -> int:
                found = count_by_tokenize(server.server.post, request, server.model)
                if found is not None:
                    return found
                return server.server.count_prompt(request.endpoint, request.body, server.model)

            try:
                source = open_source(
                    shape, counter=self.counter, count_prompt=count_prompt, samples=self.samples
                )
            except BadAnswer:  # it does not count, or refuses short prompts: lengths are estimated
                source = open_source(shape, counter=self.counter, samples=self.samples)
            except urllib3.exceptions.HTTPError as error:
                raise server.failure(f"{server.shown!r} stopped answering") from error
            self._sources[server.shown] = source
        return self._sources[server.shown]


def is_tei(metrics: str) -> bool:
    """Return whether a server is text-embeddings-inference, by the names of its metrics."""
    return any(line.startswith("te_") for line in metrics.splitlines())


def forces_length(metrics: str) -> bool:
    """Return whether an engine can be told to ignore the end of a text, by its metrics."""
    prefixes = tuple(row.metrics for row in engine_rows().values() if row.forces_length)
    return any(line.startswith(prefixes) for line in metrics.splitlines())
