"""Documents of users and models that somebody hostile wrote: typed, and within bounds.

Each kind of document is given each hostile content, through the command that reads it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.cli import app
from packager.contrib.foreign_caches.stated import own_words, read_document
from packager.core.trees import Stated
from packager.errors import PackagerError
from tests.support.commandline import TINY

# 0 is for what is harmless; 70 is a bug, and so is anything that README's table does not list.
DOCUMENTED = {0, 2, 3, 4, 5, 6, 7, 8, 65, 66, 69, 74, 76, 77}
JOBS = {64, 75, 78}  # besides, what tells schedulers whether to try again

DEEP = 5_000
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t\n",
    "null character": b"\x00",
    "zeros": bytes(4096),
    "byte order mark": b"\xef\xbb\xbf{}",
    "utf-16": '{"model": "a"}'.encode("utf-16"),
    "not utf-8": b'{"model": "\xff\xfe"}',
    "carriage returns": b'{\r\n"model": "a"\r\n}\r\n',
    "null": b"null",
    "true": b"true",
    "number": b"17",
    "text": b'"text"',
    "list": b"[]",
    "list of lists": b"[[[]]]",
    "empty object": b"{}",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep lists without an end": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "infinite": b'{"model": 1e999, "points": 1e999, "jobs": 1e999, "hidden_size": 1e999}',
    "not a number": b'{"model": NaN, "points": NaN, "jobs": NaN, "hidden_size": NaN}',
    "long integer": b'{"tp_degree": ' + b"9" * 10_000 + b"}",
    "large integer": b'{"tp_degree": 1%b, "points": 1%b}' % (b"0" * 38, b"0" * 38),
    "key twice": b'{"model": "a", "model": "b"}',
    "half a surrogate pair": b'{"model": "\\ud800", "jobs": "\\udc00"}',
    "forged lines": b'{"x\\nerror: forged\\u202e": 1, "model": "y\\nerror: forged"}',
    "long key": b'{"' + b"k" * 100_000 + b'": 1}',
    "long text": b'{"model": "' + b"v" * 100_000 + b'", "instance": "' + b"v" * 100_000 + b'"}',
    "null characters in texts": b'{"model": "a\\u0000b", "instance": "local", "draft": "\\u0000"}',
    "request with a long path": b'{"model": "%b", "instance": "local"}' % (b"./" + b"v" * 4000),
    "request with null in a path": b'{"model": "./a\\u0000", "instance": "local"}',
    "request with null in a draft": b'{"draft": "./a\\u0000"}',
    "request with null in texts": b'{"quantize": "awq", "calibration": "./a\\u0000"}',
    "engine options that are a list": b'{"engine_options": [1]}',
    "many keys": b"{" + b",".join(b'"k%d":1' % number for number in range(20_000)) + b"}",
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
    "toml deep key": b".".join([b"a"] * 20_000) + b" = 1",
    "toml deep lists": b"a = " + b"[" * DEEP + b"]" * DEEP,
    "toml deep tables": b"a = " + b"{b = " * DEEP + b"1" + b"}" * DEEP,
    "toml infinite": b"a = inf\nmodel = 1e999\n",
    "toml long integer": b"tp_degree = " + b"9" * 10_000,
    "toml large integer": b"max_batch = 1" + b"0" * 4000,
    "toml key twice": b'model = "a"\nmodel = "b"\n',
    "toml forged lines": b'"x\\nerror: forged\\u202e" = 1\n',
    "toml wrong types": b"model = 1\ninstance = []\nshared = 1\n[engine_options]\na = 1\n",
    "commands": b"vllm serve " + b"--a.b" * 5_000 + b" 1 --cc" + b".a" * 5_000 + b" 1\n",
    "unfinished quotes": b"vllm serve \"$(${`'" * 2_000,
    "options without an end": b"vllm serve m " + b"--max-num-seqs " * 20_000,
    "yaml of aliases": b"a: &a [x, x]\n"
    + b"".join(b"%c: &%c [*%c, *%c]\n" % (n, n, n - 1, n - 1) for n in range(98, 123)),
    "yaml of braces": b"a: " + b"{a: " * DEEP,
    "yaml with a tag": b"a: !!python/object/apply:os.system [exit 1]\n",
    "pod of the wrong types": b"apiVersion: v1\nkind: Pod\nmetadata: []\nspec:\n  containers:\n"
    b"  - [a]\n  - {image: [1], args: 1, env: {a: [b]}, command: {x: 1}}\n  - image: vllm/x\n"
    b"    args: [[1], {a: 1}, ~]\n    env: [1, [2], {name: [x], value: {y: z}}]\n",
    "services of the wrong types": b"services:\n  a: [1]\n  b: {image: [x], command: {a: 1}}\n"
    b"  c: {image: x, command: [[1]], environment: [[2], {a: 1}]}\n  d: 1\n",
    "toml rows that are none": b"instance = [1]\nmodel = [[]]\ncontainer = 7\nregistry = [{}]\n",
}

Command = Callable[[Path, bytes], list[str]]


def as_file(name: str, *arguments: str) -> Command:
    """Put the content into a file whose name takes the place of `{}`."""

    def arranged(where: Path, content: bytes) -> list[str]:
        place = where / name
        place.write_bytes(content)
        return [one.replace("{}", str(place)) for one in arguments]

    return arranged


def in_model(name: str, *arguments: str) -> Command:
    """Put the content into a copy of the small model, which takes the place of `{}`."""

    def arranged(where: Path, content: bytes) -> list[str]:
        model = Path(shutil.copytree(TINY, where / "model"))
        (model / name).write_bytes(content)
        return [one.replace("{}", str(model)) for one in arguments]

    return arranged


def in_draft(where: Path, content: bytes) -> list[str]:
    draft = Path(shutil.copytree(TINY, where / "draft"))
    (draft / "config.json").write_bytes(content)
    return ["plan", *LOCAL, "--draft", str(draft)]


def cache_settings(where: Path, content: bytes) -> list[str]:
    place = where / "config" / "packager"
    place.mkdir(parents=True)
    (place / "cache.toml").write_bytes(content)
    return ["cache", "ls"]


def standing_catalog(where: Path, content: bytes) -> list[str]:
    place = where / "config" / "packager"
    place.mkdir(parents=True)
    (place / "catalog.toml").write_bytes(content)
    return ["list", "instances"]


def refreshed_prices(where: Path, content: bytes) -> list[str]:
    place = where / "data" / "packager" / "prices"
    place.mkdir(parents=True)
    (place / "us-east-1.json").write_bytes(content)
    return ["list", "prices"]


LOCAL = ("--model", str(TINY), "--instance", "local")
GPU = ("--model", str(TINY), "--instance", "ml.g5.xlarge")
DRY = ("build", "--dry-run", "--base", "scratch", "--output", "oci:out")

KINDS: dict[str, Command] = {
    "request.json": as_file("request.json", "plan", "--request", "{}", *LOCAL),
    "request.toml": as_file("request.toml", "plan", "--request", "{}", *LOCAL),
    "request alone": as_file("request.json", "plan", "--request", "{}"),
    "request with options": as_file(
        "request.json", "plan", "--request", "{}", "--engine-option", "seed=1", *LOCAL
    ),
    "grid.toml": as_file("grid.toml", "warm", "plan", "{}"),
    "grid.json": as_file("grid.json", "warm", "plan", "{}"),
    "warm plan": as_file(
        "plan.json", "warm", "render", "kubernetes", "{}", "--image", "a", "--secret", "b"
    ),
    "job of a warm plan": as_file("plan.json", "warm", "one", "--plan", "{}", "--index", "0"),
    "record": as_file("record.json", *DRY, "--from-record", "{}"),
    "record of measuring": as_file(
        "record.json", "draft", "measure", "http://127.0.0.1:1", "--record", "{}"
    ),
    "catalog": as_file("catalog.toml", "plan", *LOCAL, "--catalog", "{}"),
    "standing catalog": standing_catalog,
    "measurements": as_file("measured.json", "plan", *GPU, "--measured", "{}"),
    "offer file": as_file("offer.json", "catalog", "refresh", "--from", "{}"),
    "refreshed prices": refreshed_prices,
    "cache settings": cache_settings,
    "samples.jsonl": as_file("texts.jsonl", "plan", *GPU, "--quantize=awq", "--calibration={}"),
    "samples.json": as_file("texts.json", "plan", *GPU, "--quantize=awq", "--calibration={}"),
    "samples.txt": as_file("texts.txt", "plan", *GPU, "--quantize=awq", "--calibration={}"),
    "old settings of LMI": as_file("serving.properties", "migrate", "{}"),
    "serving.properties": as_file("serving.properties", "check", "{}"),
    "env file": as_file("prod.env", "check", "{}"),
    "manifest": as_file("pod.yaml", "check", "{}", "--as=kubernetes", "--format=json"),
    "compose file": as_file("compose.yaml", "check", "{}", "--as=compose", "--format=sarif"),
    "engine's config": as_file("config.yaml", "check", "{}", "--as=config"),
    "Dockerfile": as_file("Dockerfile", "check", "{}"),
    "script": as_file("start.sh", "check", "{}", "--for=vllm:0.27.1"),
    "any configuration": as_file("file", "check", "{}"),
    "another tool's cache": as_file("tree", "cache", "import", "--from", "neo", "{}"),
    "archive of the cache": as_file("entries.tar", "cache", "import", "{}"),
    "public key": as_file("key.pub", "cache", "trust", "{}"),
    "trusted keys": as_file("keys.json", "cache", "ls", "--require-signed", "--trusted-keys", "{}"),
    "config.json": in_model("config.json", "plan", "--model", "{}", "--instance", "local"),
    "tokenizer_config.json": in_model(
        "tokenizer_config.json", *DRY, "--model", "{}", "--instance", "local"
    ),
    "generation_config.json": in_model(
        "generation_config.json", *DRY, "--model", "{}", "--instance", "local"
    ),
    "index of weights": in_model(
        "model.safetensors.index.json", *DRY, "--model", "{}", "--instance", "local"
    ),
    "quantization config": in_model(
        "quantize_config.json", *DRY, "--model", "{}", "--instance", "local"
    ),
    "recipe": in_model("recipe.yaml", *DRY, "--model", "{}", "--instance", "local"),
    "config.json of a draft": in_draft,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_document_ends_in_a_documented_status(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACKAGER_DEBUG", "1")
    wrong = {}
    for number, (name, content) in enumerate(CONTENTS.items()):
        where = tmp_path / str(number)
        where.mkdir()
        monkeypatch.chdir(where)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(where / "config"))
        monkeypatch.setenv("XDG_DATA_HOME", str(where / "data"))

        status = app.run(KINDS[kind](where, content))

        printed = "".join(capsys.readouterr())
        if status not in DOCUMENTED | (JOBS if kind == "job of a warm plan" else set()):
            wrong[name] = f"status {status}: {printed[-1500:]}"
        elif faults := faults_of(printed):
            wrong[name] = faults
        shutil.rmtree(where)

    assert wrong == {}, "\n".join(f"{name}: {why}" for name, why in wrong.items())


def faults_of(printed: str) -> str:
    """Say what is wrong with what was printed; "" where nothing is."""
    if any(line.startswith("error: forged") for line in printed.splitlines()):
        return f"a line was forged: {printed[:300]!r}"
    if len(printed) > 20_000:
        return f"{len(printed)} characters were printed"
    odd = set(printed) & set("\x00\x1b\r\u202e\u2028\ud800")
    return f"not escaped: {odd!r}" if odd else ""


@pytest.mark.parametrize("name", CONTENTS)
def test_a_hostile_key_document_is_refused(name: str, tmp_path: Path) -> None:
    place = tmp_path / "key.json"
    place.write_bytes(CONTENTS[name])

    with pytest.raises(PackagerError):
        read_document(place)


@pytest.mark.parametrize("value", ["[" * DEEP, "9" * 10_000, "NaN", "1e999", "\udce9"])
def test_a_hostile_value_of_a_key_is_taken_as_a_word(value: str) -> None:
    assert own_words(Stated(stated=(f"/shape/max_batch={value}",))) == {"/shape/max_batch": value}
