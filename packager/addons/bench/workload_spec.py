"""Workload specifications of SageMaker's AI benchmark jobs, as options of a benchmark.

    {"benchmark": {"type": "aiperf"}, "parameters": {…},
     "tooling": {"api_standard": "openai", "version": "0.8.0"}}

in JSON or YAML, as `CreateAIWorkloadConfig` takes it and the SageMaker SDK's `Workload` writes
it; parameters are options of AIPerf 0.13.  What would be measured otherwise than it says is
refused by its name, with its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.bench.load.template import NAMED, BadTemplate, is_inline, parse_template
from packager.addons.bench.options import MOST_AT_ONCE
from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.errors import NotFound, UsageError
from packager.core.files.pipes import open_waiting
from packager.core.suggestions import nearest
from packager.core.text import escape
from packager.core.workload import LONGEST
from packager.core.yaml_nodes import YamlNode, parse_yaml

MAX_BYTES = 1024 * 1024
_PARTS = ("benchmark", "parameters", "tooling", "secrets")
_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:[^:]+:\d+:secret:.+", re.ASCII)
_GOODPUT = {
    "time_to_first_token": "ttft_ms",
    "inter_token_latency": "tpot_ms",
    "request_latency": "latency_ms",
}
_DATASET = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_PASSED = {  # of published workloads: parameters without an effect on measurements here
    "model": "the endpoint's own is asked",
    "model_selection_strategy": "one model is measured",
    "warmup_duration": "requests before the measured ones are counted, not timed",
    "concurrency_min": "a search begins at one request",
    "search_max_iterations": "a search ends at its boundary",
    "search_initial_points": "a search begins at one request",
}
_OTHERS = (
    *("goodput", "extra_inputs", "custom_dataset_type", "public_dataset", "concurrency_max"),
    *_PASSED,
)
_OF_PROMPTS = ("input_tokens", "input_stddev", "output_stddev", "prefix_tokens")
_TEMPLATE = ("payload_template", "response_field")
_TEMPLATE_TYPE = "template"  # AIPerf's endpoint of a form of its own


def bad_workload_spec(path: Path, node: YamlNode | None, what: str, hint: str = "") -> UsageError:
    """Return an error: a workload specification is invalid, or requests what is unsupported."""
    where = f"line {node.line} of {escape(path.name)}" if node else escape(path.name)
    return UsageError(
        f"{where}: {what}", hint=hint or "see docs/workloads.md", code="BadWorkloadSpec"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A workload specification as values of options, by the names of their fields."""

    options: Mapping[str, Any]  # of `RequestSpec` and `Asked`
    needs_data: bool = False  # its requests are those of a data set
    dataset: str = ""  # the name of that data set, where it is one that AIPerf would fetch
    template_file: str = ""  # where AIPerf would read the template of requests
    tokenizer: str = ""  # a directory, or a model of a hub; whoever measures looks for it
    notes: tuple[str, ...] = ()  # what was passed over

    @property
    def uses_template(self) -> bool:
        """Whether bodies of requests are printed by a template."""
        return bool(self.template_file or "request_template" in self.options)


def read_workload_spec(path: Path) -> WorkloadSpec:
    """Read a specification; raise `UsageError`, or `NotFound` without a file."""
    try:
        with open_waiting(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFound(
            f"no workload specification at {shorten(str(path), 200)}: {error.strerror}",
            hint="name a JSON or YAML file",
        ) from error
    return parse_workload_spec(data, path.name)


def parse_workload_spec(data: bytes, name: str) -> WorkloadSpec:
    """Parse a specification; raise `UsageError`, in which `name` says which it is."""
    return _Reader(Path(name)).read(data)


def without_prompts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those of made prompts: the SDK writes them beside a data set, too."""
    return {name: value for name, value in options.items() if name not in _OF_PROMPTS}


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path

    def read(self, data: bytes) -> WorkloadSpec:
        if len(data) > MAX_BYTES:
            raise self.fault(None, f"it has more than {MAX_BYTES} bytes")
        try:
            found = parse_yaml(data.decode("utf-8"))
        except (NotStrict, UnicodeDecodeError) as error:
            raise self.fault(None, f"it cannot be read: {error}") from error
        if len(found) != 1 or found[0].type != "mapping":
            raise self.fault(None, "it is not one object with benchmark and parameters")
        parts = self.entries(found[0])
        for name, (key, _) in parts.items():
            if name not in _PARTS:
                raise self.unknown(key, name, _PARTS, "part of a workload")
        self.expect(parts, "benchmark", "type", "aiperf")
        self.expect(parts, "tooling", "api_standard", "openai", passed=("version",))
        notes = (*self.secrets(parts), *self.version(parts))
        if "parameters" not in parts:
            raise self.fault(found[0], "it has no parameters")
        return self.parameters(parts["parameters"][1], notes)

    def parameters(self, node: YamlNode, notes: tuple[str, ...]) -> WorkloadSpec:
        options: dict[str, Any] = {}
        needs_data, dataset, is_own_form = False, "", False
        given = self.entries(node)
        for name, (key, value) in given.items():
            if name in ("custom_dataset_type", "input_file"):
                needs_data = True
            elif name == "public_dataset":
                needs_data, dataset = True, self.dataset(value)
            elif name in _PASSED:
                notes = (*notes, f"{name} is passed over: {_PASSED[name]}")
            elif name == "concurrency_max":
                options["most"], cut = self.most(value)
                notes = (*notes, *cut)
            elif name == "endpoint_type" and value.text == _TEMPLATE_TYPE:
                is_own_form = True
            elif name == "endpoint_type" and "custom_endpoint" in given:
                self.expect_chat(value)
            elif name in _PARAMETERS:
                option, read = _PARAMETERS[name]
                if option in options:
                    raise self.fault(key, f"{name} and another parameter both say {option}")
                options[option] = read(self, value, name)
            elif name == "goodput":
                options |= self.goodput(value)
            elif name == "extra_inputs":
                options |= self.extra_inputs(value)
            else:
                known = (*_PARAMETERS, *_OTHERS)
                raise self.unknown(key, name, known, "parameter of a workload")
        if needs_data:
            options = without_prompts(options)
        tokenizer, template_file = options.pop("tokenizer", ""), options.pop("template_file", "")
        is_template = bool(template_file or "request_template" in options)
        if is_own_form and not is_template:
            raise self.fault(node, "endpoint_type is 'template', and no payload_template is there")
        if is_template and options.pop("endpoint", "invocations") != "invocations":
            raise self.fault(node, "payload_template and endpoint_type say two forms of requests")
        return WorkloadSpec(
            options=options,
            needs_data=needs_data,
            dataset=dataset,
            template_file=template_file,
            tokenizer=tokenizer,
            notes=notes,
        )

    def most(self, node: YamlNode) -> tuple[int, tuple[str, ...]]:
        """Return the most requests at a time that a search tries, and a note where that is less."""
        asked: int = _whole(1, 10**6)(self, node, "concurrency_max")
        note = f"concurrency_max {asked} is more than the {MOST_AT_ONCE} that are tried at most"
        return min(asked, MOST_AT_ONCE), ((note,) if asked > MOST_AT_ONCE else ())

    def dataset(self, node: YamlNode) -> str:
        """Return the name of a public data set."""
        if not _DATASET.fullmatch(node.text):
            raise self.fault(node, f"public_dataset is {shorten(node.text)}, which is no name")
        return node.text

    def version(self, parts: Mapping[str, tuple[YamlNode, YamlNode]]) -> Iterator[str]:
        """Yield a note on the requested version of the tool."""
        fields = self.entries(parts["tooling"][1]) if "tooling" in parts else {}
        if "version" in fields:
            version = shorten(self.scalar(fields["version"][1], "tooling.version"))
            yield f"tooling.version {version} is not used: packager sends the load itself"

    def expect_chat(self, node: YamlNode) -> None:
        """Refuse another type than chats for SageMaker's own path."""
        if node.text != "chat":
            raise self.fault(node, f"endpoint_type is {shorten(node.text)}, expected 'chat'")

    def goodput(self, node: YamlNode) -> dict[str, float]:
        """Return limits of `time_to_first_token:500 inter_token_latency:20`."""
        found: dict[str, float] = {}
        for name, value in self.pairs(node):
            if name not in _GOODPUT:
                raise self.unknown(node, name, tuple(_GOODPUT), "metric that requests are good by")
            found[_GOODPUT[name]] = self.number_of(node, value, f"goodput {name}")
        return found

    def extra_inputs(self, node: YamlNode) -> dict[str, Any]:
        """Return fields of every request; those with an option of their own as that option."""
        given = list(self.pairs(node))
        found = self.template({name: value for name, value in given if name in _TEMPLATE}, node)
        is_template = bool(found)
        extra: list[str] = []
        for name, value in given:
            if name in _TEMPLATE:
                continue
            if is_template:  # a template's body gets them as they are
                extra.append(f"{name}={value}")
            elif name == "ignore_eos":
                if value.lower() not in ("true", "false"):
                    raise self.fault(node, f"ignore_eos is {shorten(value)}, not true or false")
                found["ignore_eos"] = value.lower() == "true"
            elif name == "temperature":
                found["temperature"] = self.number_of(node, value, name, least=0.0)
            elif name not in ("min_tokens", "max_tokens"):  # they follow from the lengths
                extra.append(f"{name}={value}")
        return {**found, "extra": tuple(extra)} if extra else found

    def template(self, given: Mapping[str, str], node: YamlNode) -> dict[str, Any]:
        """Return the options of a request template, given itself or by the name of its file."""
        source, field = given.get("payload_template"), given.get("response_field", "")
        if source is None:
            if field:
                raise self.fault(node, "response_field is there without payload_template")
            return {}
        found = {"response_field": field} if field else {}
        if not is_inline(source) and source not in NAMED:
            return {**found, "template_file": source}
        try:
            parse_template(source, field)
        except BadTemplate as error:
            raise self.fault(node, error.message, error.hint) from error
        return {**found, "request_template": source}

    def secrets(self, parts: Mapping[str, tuple[YamlNode, YamlNode]]) -> Iterator[str]:
        """Yield a note for each secret; one in plain text is refused and not shown."""
        if "secrets" not in parts:
            return
        for name, (key, value) in self.entries(parts["secrets"][1]).items():
            if not _ARN.fullmatch(value.text):
                raise self.fault(
                    key,
                    f"the secret {shorten(name)} stands there in plain text",
                    "take it out of the file; a tokenizer is read from a directory here",
                )
            yield f"the secret {shorten(name)} is not read: nothing here needs it"

    def expect(
        self,
        parts: Mapping[str, tuple[YamlNode, YamlNode]],
        part: str,
        name: str,
        wanted: str,
        passed: tuple[str, ...] = (),
    ) -> None:
        """Refuse a part that lacks the required value, or has fields beside it and `passed`."""
        if part not in parts:
            if part == "benchmark":
                raise self.fault(None, "it has no benchmark: is it a workload specification?")
            return
        fields = self.entries(parts[part][1])
        for other, (key, _) in fields.items():
            if other not in (name, *passed):
                raise self.unknown(key, other, (name, *passed), f"field of {part}")
        absent = wanted if passed and set(fields) <= {*passed} else ""
        found = fields[name][1].text if name in fields else absent
        if found != wanted:
            node = parts[part][0]
            raise self.fault(node, f"{part}.{name} is {shorten(found)}, expected {wanted!r}")

    def entries(self, node: YamlNode) -> dict[str, tuple[YamlNode, YamlNode]]:
        """Return a mapping's keys and values; refuse duplicate keys."""
        if node.type != "mapping":
            raise self.fault(node, f"expected an object, not {shorten(node.text or node.type)}")
        found: dict[str, tuple[YamlNode, YamlNode]] = {}
        for key, value in node.pairs:
            if key.text in found:
                raise self.fault(key, f"{shorten(key.text)} is given twice")
            found[key.text] = (key, value)
        return found

    def pairs(self, node: YamlNode) -> Iterator[tuple[str, str]]:
        """Yield names and values of `a:1 b:2`, of JSON as a text, of a list, or of a mapping."""
        if node.type == "mapping":
            for key, (_, item) in self.entries(node).items():
                yield key, self.scalar(item, key)
            return
        for one in node.items if node.type == "list" else [node]:
            text = self.scalar(one, "a value")
            if text.lstrip().startswith("{"):
                yield from self.members(one, text)
                continue
            for word in text.split():
                name, colon, value = word.partition(":")
                if not (name and colon and value):
                    raise self.fault(one, f"{shorten(word)} is not NAME:VALUE")
                yield name, value

    def members(self, node: YamlNode, text: str) -> Iterator[tuple[str, str]]:
        """Yield names and values of a JSON object that a text holds; values of texts are bare."""
        try:
            found = parse_json(text.encode())
        except NotStrict as error:
            raise self.fault(node, f"{shorten(text)} is not JSON") from error
        for name, value in found.items():
            yield name, value if isinstance(value, str) else json.dumps(value)

    def scalar(self, node: YamlNode, name: str) -> str:
        if node.type in ("list", "mapping", "null"):
            raise self.fault(node, f"{shorten(name)} is {node.type}, expected a number or a text")
        return node.text

    def number_of(
        self, node: YamlNode, text: str, name: str, least: float = 0.0, most: float = 1e9
    ) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise self.fault(node, f"{name} is {shorten(text)}, expected a number from {least:g}")
        return value

    def fault(self, node: YamlNode | None, what: str, hint: str = "") -> UsageError:
        return bad_workload_spec(self.path, node, what, hint)

    def unknown(self, node: YamlNode, name: str, known: tuple[str, ...], what: str) -> UsageError:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(known))}"
        return self.fault(node, f"{shorten(name)} is not a {what} that is done here", hint)


_Read = Callable[[_Reader, YamlNode, str], Any]


def _whole(least: int, most: int) -> _Read:
    def read(reader: _Reader, node: YamlNode, name: str) -> int:
        text = reader.scalar(node, name)
        value = int(text) if re.fullmatch(r"\d{1,12}", text, re.ASCII) else -1
        if not least <= value <= most:
            raise reader.fault(
                node, f"{name} is {shorten(text)}, expected a whole number from {least} to {most}"
            )
        return value

    return read


def _number(least: float, most: float = 1e9) -> _Read:
    def read(reader: _Reader, node: YamlNode, name: str) -> float:
        return reader.number_of(node, reader.scalar(node, name), name, least, most)

    return read


def _several(one: _Read) -> _Read:
    """Return what reads one value, several with commas between them, or a list."""

    def read(reader: _Reader, node: YamlNode, name: str) -> tuple[Any, ...]:
        items = node.items
        if node.type != "list":
            texts = map(str.strip, reader.scalar(node, name).split(","))
            items = [YamlNode(type="text", line=node.line, column=0, text=text) for text in texts]
        return tuple(one(reader, item, name) for item in items)

    return read


def _choice(choices: Mapping[str, str]) -> _Read:
    def read(reader: _Reader, node: YamlNode, name: str) -> str:
        text = reader.scalar(node, name)
        if text not in choices:
            known = ", ".join(choices)
            raise reader.fault(node, f"{name} is {shorten(text)}, expected one of {known}")
        return choices[text]

    return read


def _flag(reader: _Reader, node: YamlNode, name: str) -> bool:
    if node.type != "bool" or node.text.lower() not in ("true", "false"):
        raise reader.fault(node, f"{name} is {shorten(node.text)}, expected true or false")
    return node.text.lower() == "true"


def _text(reader: _Reader, node: YamlNode, name: str) -> str:
    return reader.scalar(node, name)


_TOKENS = _whole(1, LONGEST)
_PARAMETERS: Mapping[str, tuple[str, _Read]] = {
    "tokenizer": ("tokenizer", _text),
    "concurrency": ("concurrency", _several(_whole(1, 1024))),
    "request_rate": ("rate", _several(_number(1e-6, 1e6))),
    "arrival_pattern": ("arrivals", _choice({"poisson": "poisson", "constant": "constant"})),
    "search_recipe": ("find", _choice({"max-concurrency-under-sla": "max-concurrency"})),
    "ttft_sla_ms": ("ttft_ms", _number(1e-3)),
    "tpot_sla_ms": ("tpot_ms", _number(1e-3)),
    "e2e_sla_ms": ("latency_ms", _number(1e-3)),
    "request_count": ("requests", _whole(1, 10**9)),
    "benchmark_duration": ("duration_s", _number(1e-3)),
    "warmup_request_count": ("warm_up", _whole(0, 10_000)),
    "num_profile_runs": ("rounds", _whole(1, 1000)),
    "request_timeout_seconds": ("request_timeout_s", _number(1e-3)),
    "prompt_input_tokens_mean": ("input_tokens", _TOKENS),
    "prompt_input_tokens_stddev": ("input_stddev", _number(0, LONGEST)),
    "output_tokens_mean": ("output_tokens", _TOKENS),
    "output_tokens_stddev": ("output_stddev", _number(0, LONGEST)),
    "prompt_output_tokens_mean": ("output_tokens", _TOKENS),
    "prompt_output_tokens_stddev": ("output_stddev", _number(0, LONGEST)),
    "shared_system_prompt_length": ("prefix_tokens", _whole(0, LONGEST)),
    "streaming": ("stream", _flag),
    "random_seed": ("seed", _whole(0, 2**63)),
    "endpoint_type": (
        "endpoint",
        _choice({"chat": "chat", "completions": "completions"}),
    ),
    "custom_endpoint": ("endpoint", _choice({"/invocations": "invocations"})),  # of chats
}
