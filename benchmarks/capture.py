"""What Data Capture costs an endpoint: answers a second with it and without, in turns.

    python benchmarks/capture.py [--front] [--rounds 12] [--concurrency 16] [--requests 64]

One server of the API (a process) has two endpoints before one engine; all traffic of the second is
captured to a directory, redacted as by default.  With --front there are two fronts of compose in
its place (two processes), the second with `--capture-share 1`.  The engine is a stand-in (`tokens`
pieces of a stream, one every `--token-ms`): it uses little of the processors, so that what
capturing uses is seen, and it serves both alike.  Every round sends the same requests to both, by
turns first; the ratio of a round is of tokens a second, and the interval is Student's over the
rounds: more and shorter ones (`--rounds 60 --requests 32`) decide sooner.
A client sends several requests in a round: rows are made of answers that have ended, so with one
request each all that capturing uses would fall into the next round.
`saturated` is the same with an engine that never waits, in a third of the rounds: what is left
where the server itself is the limit.  It has no target.

The last line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.request import urlopen

import aiohttp
from aiohttp import web
from judging import at_least, at_most, verdict

from packager.addons.bench.compare import paired_ratio
from packager.addons.deploy.compose.documents import FRONT_FILE, SERVERS_FILE, files_beside
from packager.addons.deploy.compose.front import STATE
from packager.core.capture.settings import VARIABLE, CaptureSettings
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.free_ports import free_port
from tests.support.hosting_server import Server
from tests.support.serve_services import config_body, model_body

MOST_LOST = 0.03  # of throughput, at the upper end of the interval
CHAT = "/v1/chat/completions"
WORDS = ["the", "reader", "asked", "about", "OCI", "images", "and", "mail", "to", "a@example.org"]


def main() -> int:
    """Measure and print; 1 where the limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--front", action="store_true", help="fronts of compose, not the API")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64, help="of an endpoint in a round")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--token-ms", type=float, default=25.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), asked)
    for name, value in figures.items():
        print(f"{name:24} {value}")
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def measure(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Start engine and server, load both endpoints, and return the figures."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    captured = folder / "captured"
    captured.mkdir()
    engine = spawn.Process(target=run_engine, args=(theirs, asked.tokens), daemon=True)
    engine.start()
    address = ours.recv()
    run = run_fronts if asked.front else run_server
    server = spawn.Process(target=run, args=(theirs, folder, captured, address))
    server.start()
    urls = ours.recv()
    try:
        paced = asyncio.run(load(urls, asked, asked.rounds, asked.token_ms))
        saturated = asyncio.run(load(urls, asked, max(3, asked.rounds // 3), 0.0))
        ours.send("end")
        counts = ours.recv()
    finally:
        for process in (server, engine):
            process.terminate()
            process.join(10)
    rows = sum(path.read_bytes().count(b"\n") for path in captured.rglob("*.jsonl"))
    ratio, flooded = paired_ratio(*paced), paired_ratio(*saturated)
    lost = None if ratio.low is None else 1 - ratio.low
    sent = (len(paced[1]) + len(saturated[1]) + 2) * asked.requests
    judged = [
        at_most("throughput_lost_upper_end", lost, MOST_LOST),
        at_least("rows_over_requests", rows / sent, 1.0),
    ]
    return {
        "benchmark": "capture",
        "where": "fronts of compose" if asked.front else "the SageMaker API",
        "engine": f"a stand-in, {asked.tokens} tokens, {asked.token_ms:g} ms each",
        "concurrency": asked.concurrency,
        "rounds": asked.rounds,
        "tokens_s_without": round(sum(paced[0]) / asked.rounds, 1),
        "tokens_s_with": round(sum(paced[1]) / asked.rounds, 1),
        "ratio": round(ratio.ratio, 4),
        "ratio_low": None if ratio.low is None else round(ratio.low, 4),
        "ratio_high": None if ratio.high is None else round(ratio.high, 4),
        "saturated_tokens_s_without": round(sum(saturated[0]) / len(saturated[0]), 1),
        "saturated_ratio": round(flooded.ratio, 4),
        "saturated_ratio_low": None if flooded.low is None else round(flooded.low, 4),
        "rows": rows,
        "counts": counts,
        **verdict(judged),
    }


async def load(
    urls: dict[str, str], asked: argparse.Namespace, rounds: int, token_ms: float
) -> tuple[list[float], list[float]]:
    """Return tokens a second of each round, without a capture and with it."""
    found: dict[str, list[float]] = {"plain": [], "captured": []}
    prompt = " ".join(WORDS[number % len(WORDS)] for number in range(400))
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "token_ms": token_ms,
        }
    ).encode()
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(endpoint: str) -> None:
            async with session.post(urls[endpoint], data=body, headers=headers) as answer:
                whole = await answer.read()
                if answer.status != 200 or b"[DONE]" not in whole:
                    raise SystemExit(f"{answer.status} {whole[:300]!r}")

        async def client(endpoint: str, requests: int) -> None:
            for _ in range(requests):
                await ask(endpoint)

        async def once(endpoint: str) -> float:
            each = asked.requests // asked.concurrency
            began = time.perf_counter()
            await asyncio.gather(*(client(endpoint, each) for _ in range(asked.concurrency)))
            return each * asked.concurrency * asked.tokens / (time.perf_counter() - began)

        for endpoint in found:
            await once(endpoint)  # not counted
        for number in range(rounds):
            order = list(found) if number % 2 else list(found)[::-1]
            for endpoint in order:
                found[endpoint].append(await once(endpoint))
    return found["plain"], found["captured"]


def run_engine(pipe: Connection, tokens: int) -> None:
    """Answer every request with a stream of so many tokens, as OpenAI's servers do."""

    async def stream(request: web.Request) -> web.StreamResponse:
        pause_s = (await request.json())["token_ms"] / 1e3
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        due = time.perf_counter()
        for number in range(tokens):
            delta = {"content": f"{WORDS[number % len(WORDS)]} "}
            event = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            due += pause_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def ping(_: web.Request) -> web.Response:
        return web.Response()

    async def start() -> None:
        application = web.Application(client_max_size=1 << 24)
        application.add_routes([web.post(path, stream) for path in ("/invocations", CHAT)])
        application.add_routes([web.get("/ping", ping)])
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(start())


def run_server(pipe: Connection, folder: Path, captured: Path, engine: str) -> None:
    """Serve the API with both endpoints until told to end."""
    server = Server(folder, FakeContainers(model=engine))
    capture = {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": f"file://{captured}",
        "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
        "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
        "EnableCapture": True,
    }
    server.ask("CreateModel", **model_body("m"))
    for name, more in (("plain", {}), ("captured", {"DataCaptureConfig": capture})):
        config = {**config_body("m", **more), "EndpointConfigName": name}
        server.ask("CreateEndpointConfig", **config)
        server.ask("CreateEndpoint", EndpointName=name, EndpointConfigName=name)
        while server.ask("DescribeEndpoint", EndpointName=name)["EndpointStatus"] != "InService":
            time.sleep(0.1)
    paths = {one: f"/endpoints/{one}/invocations-response-stream" for one in ("plain", "captured")}
    pipe.send({name: server.url + path for name, path in paths.items()})
    pipe.recv()
    ended = threading.Thread(target=server.stop)
    ended.start()
    ended.join(30)
    pipe.send(server.services.endpoints.captures.counts())
    time.sleep(3600)


def run_fronts(pipe: Connection, folder: Path, captured: Path, engine: str) -> None:
    """Run two fronts of compose as their containers do, until told to end."""
    for file in files_beside("a"):
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_text(file.text)
    named = {"servers": [engine.removeprefix("http://")], "health": "/ping"}
    (folder / SERVERS_FILE).write_text(json.dumps(named))
    settings = CaptureSettings(directory=str(captured), share=1.0).text()
    ports = {"plain": free_port(), "captured": free_port()}
    running = {}
    for name, port in ports.items():
        words = ["-I", "-S", str(folder / FRONT_FILE), str(folder / SERVERS_FILE), str(port), "30"]
        env = {VARIABLE: settings} if name == "captured" else {}
        running[name] = subprocess.Popen([sys.executable, *words], env=env)
    for port in ports.values():
        wait_for_port(port)
    pipe.send({name: f"http://127.0.0.1:{port}{CHAT}" for name, port in ports.items()})
    pipe.recv()
    with urlopen(f"http://127.0.0.1:{ports['captured']}{STATE}") as answer:
        counts = json.load(answer)["capture"]
    for one in running.values():
        one.terminate()
        one.wait(60)
    pipe.send(counts)
    time.sleep(3600)


def wait_for_port(port: int) -> None:
    """Wait until something listens."""
    while True:
        with suppress(ConnectionRefusedError), create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
