"""Checks of every server against its engine's version, in the order of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from packager.addons.check.demands import check_resources
from packager.addons.check.engine_commands import other_server
from packager.addons.check.engines import check_engine
from packager.addons.check.lmi import check_lmi
from packager.addons.check.neuron import check_neuron
from packager.addons.check.plain import check_repeats, check_setting
from packager.addons.check.sagemaker import check_request
from packager.addons.check.targets import PREFIXES, UPSTREAM, find_target, unsure
from packager.addons.check.tgi import check_tgi
from packager.addons.check.values import (
    Checked,
    CheckReport,
    ConfigDocument,
    ConfigTarget,
    DescribedServer,
    Remark,
    Setting,
    Word,
)
from packager.core.findings import LACKS, MEMORY, Finding
from packager.core.positions import Place
from packager.engines.rules import NO_FACTS, Facts

CHECKS = {"vllm": check_engine, "sglang": check_engine, "lmi": check_lmi, "tgi": check_tgi}
AskPlanner = Callable[[DescribedServer, ConfigTarget], Iterator[Remark]]
NEURON_CHECKS = {"hf-vllm-neuronx": check_neuron, UPSTREAM: check_neuron}  # by the image
MOST_REMARKS = 60  # of one file: a person mends the first ones and looks again
LONGEST_MESSAGE = 400  # characters; an untrusted key may be very long
OF_IMAGES = ("file-not-packaged",)  # a file that others may mount
SEVERITIES = ("error", "warning", "note")
UNREAD = Finding(
    "error",
    "engine-unknown",
    "nothing of this file was checked: it starts no engine that is covered",
    "name the engine with --for, or what the file is with --as; --skip-others passes it over",
)
SAGEMAKER = ("SM_VLLM_", "SM_SGLANG_", "SM_ON_")


def judge(
    documents: Sequence[ConfigDocument],
    *,
    asked: Sequence[ConfigTarget] = (),
    facts: Facts = NO_FACTS,
    on_sagemaker: bool = False,
    planner: AskPlanner | None = None,
) -> CheckReport:
    """Check every server; a serving.properties and an env file of one call belong together.

    With a `planner`, its refusals are added.
    """
    judge_one = partial(
        _judge, asked=asked, facts=facts, on_sagemaker=on_sagemaker, planner=planner
    )
    judged = [
        (document, [judge_one(server, document) for server in servers])
        for document, servers in _joined(documents)
    ]
    checked = tuple(one for _, servers in judged for one in servers)
    unread = tuple(
        document.file for document, servers in judged if not any(one.is_checked for one in servers)
    )
    remarks = [remark for document in documents for remark in document.remarks]
    remarks += [remark for one in checked for remark in one.remarks]
    remarks += [Remark(Place(file), UNREAD) for file in unread]
    return CheckReport(
        checked=checked,
        unread=unread,
        remarks=tuple(
            remark for document in documents for remark in _of_file(document.file, remarks)
        ),
        kinds={document.file: document.kind for document in documents},
    )


def _of_file(file: str, remarks: Sequence[Remark]) -> list[Remark]:
    """Return a file's remarks by line, each once a line, and at most so many."""
    ours = [remark for remark in remarks if remark.place.file == file]
    ours.sort(key=lambda one: (one.place.line, one.place.column, one.finding.code))
    once: dict[tuple[int, str, str], Remark] = {}
    for remark in ours:
        found = remark.finding
        clipped = replace(found, message=_clipped(found.message), hint=_clipped(found.hint))
        if found.code in OF_IMAGES:
            clipped = replace(clipped, severity="note")
        key = (remark.place.line, found.code, clipped.message)
        once.setdefault(key, replace(remark, finding=clipped))
    kept = list(once.values())
    if len(kept) <= MOST_REMARKS:
        return kept
    by_severity = sorted(kept, key=lambda one: SEVERITIES.index(one.finding.severity))
    worst = set(by_severity[:MOST_REMARKS])
    message = f"there are {len(kept) - MOST_REMARKS} more findings in this file"
    more = Finding("error", "findings-left-out", message, "mend these first")
    return [one for one in kept if one in worst] + [Remark(kept[-1].place, more)]


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def _joined(
    documents: Sequence[ConfigDocument],
) -> Iterator[tuple[ConfigDocument, tuple[DescribedServer, ...]]]:
    """Yield each file's servers; variables of LMI's go to the one serving.properties there is."""
    files = [document for document in documents if document.kind == "properties"]
    beside = [document for document in documents if document.kind == "env"]
    for document in documents:
        if len(files) == 1 and document in beside and _may_be_lmi(document):
            continue
        servers = document.servers
        if files == [document]:
            env = tuple(
                setting
                for other in beside
                if _may_be_lmi(other)
                for server in other.servers
                for setting in server.env
            )
            servers = tuple(replace(server, env=env) for server in servers)
        yield document, servers


def _may_be_lmi(document: ConfigDocument) -> bool:
    names = [setting.name for server in document.servers for setting in server.env]
    return not any(name.startswith(SAGEMAKER) for name in names)


def _judge(
    server: DescribedServer,
    document: ConfigDocument,
    *,
    asked: Sequence[ConfigTarget],
    facts: Facts,
    on_sagemaker: bool,
    planner: AskPlanner | None,
) -> Checked:
    target = find_target(server, asked)
    remarks = [] if target is None and server.config else [*_plain(server)]
    of_image = NEURON_CHECKS.get(target.variant) if target and target.family == "neuron" else None
    checked = of_image or (CHECKS.get(target.family) if target is not None else None)
    remarks += server.remarks
    if target is not None and (who := other_server(target.family, server.command)):
        message = f"{who} reads these options, and they are not covered"
        hint = "pass the file over, or check what else is in it"
        remarks.append(Remark(server.place, Finding("note", "not-covered", message, hint)))
        return Checked(server=server, target=target, remarks=tuple(remarks), is_checked=False)
    if target is None or checked is None:
        remarks += _unknown(server, target)
        return Checked(server=server, target=target, remarks=tuple(remarks), is_checked=False)
    if (finding := unsure(target)) is not None:
        remarks.append(Remark(server.place, finding))
    remarks += _of_others(server.env, target)
    remarks += checked(server, target, facts)
    remarks += check_resources(server, target)
    if planner is not None:  # an engine's own finding about a setting is reported once
        refused_places = {remark.place for remark in remarks if remark.finding.severity == "error"}
        remarks += [
            remark
            for remark in planner(server, target)
            if remark.place not in refused_places - {server.place}
            or remark.finding.data.get(LACKS) == MEMORY
        ]
    names = [setting.name for setting in server.env]
    is_sagemaker = on_sagemaker or any(name.startswith(SAGEMAKER) for name in names)
    if document.kind == "env" and is_sagemaker:
        remarks += check_request(server.env, server.place)
    return Checked(server=server, target=target, remarks=tuple(remarks))


def _plain(server: DescribedServer) -> Iterator[Remark]:
    for settings in (server.properties, server.env, server.config):
        yield from check_repeats(settings)
        for setting in settings:
            yield from check_setting(setting)
    for words in (server.command, server.arguments):
        for setting in _pairs(words):
            yield from check_setting(setting)


def _pairs(words: Sequence[Word]) -> Iterator[Setting]:
    """Yield each option of a command line with the word behind it, or `true`."""
    for word, following in zip_longest(words, words[1:]):
        if word is None or not word.text.startswith("--"):
            continue
        name, equals, value = word.text.partition("=")
        if equals:
            yield Setting(name, value if word.known else None, word.place)
        elif following is None or following.text.startswith("-"):
            yield Setting(name, "true", word.place)
        else:
            yield Setting(name, following.text if following.known else None, word.place)


def _of_others(env: Sequence[Setting], target: ConfigTarget) -> Iterator[Remark]:
    """Find variables that only another engine's images read."""
    for prefix, (family, _) in PREFIXES.items():
        if family == target.family:
            continue
        for setting in env:
            if setting.name.startswith(prefix):
                message = f"{setting.name!r} is not read: the server is {target.title}"
                hint = "leave it out, or name the engine that is meant with --for"
                found = Finding("error", "engines-mixed", message, hint)
                yield Remark(setting.place, found)


def _unknown(server: DescribedServer, target: ConfigTarget | None) -> Iterator[Remark]:
    named = server.name or "the file"
    if target is not None:
        message = f"{named}: options of {target.title} are not checked"
    elif server.image:
        return  # another container beside the server
    elif server.env or server.config or server.arguments:
        message = f"{named}: nothing tells which engine reads these settings"
    else:
        return
    hint = "name it with --for, such as --for vllm:0.27.1"
    yield Remark(server.place, Finding("note", "engine-unknown", message, hint))
