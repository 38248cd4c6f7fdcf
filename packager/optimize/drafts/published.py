"""Choice of the published draft for `--draft auto`, with reasons against the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from packager.core.catalog import KnownDraft, Rule, finding_of, matching
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding, errors_in
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.models.architectures.profile import architecture_of, make_profile, read_head
from packager.optimize.drafts.assistant import ASSISTANT
from packager.optimize.drafts.mtp import check_engine, layer_words, why_not_mtp
from packager.optimize.drafts.targets import check_target

# kind of a draft → its prefix in a request
SPELLED = {
    "draft_model": "",
    "eagle": "eagle:",
    "eagle3": "eagle3:",
    "peagle": "peagle:",
    "dflash": "dflash:",
    "medusa": "medusa:",
    "mtp": "mtp:",
}

OWN = "mtp"  # the model's own head, as a request spells it

# Licences that forbid what most images are for: named to the user, never taken unasked.
RESTRICTED = ("nc", "noncommercial", "non-commercial", "research", "proprietary")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownChoice:
    """The draft for `auto`, as a request spells it; "" when none fits."""

    reference: str = ""
    license: str = ""
    findings: tuple[Finding, ...] = ()


def choose_known(
    drafts: Sequence[KnownDraft],
    model: ModelFiles,
    instance: Instance,
    container: ContainerFacts,
    rules: Iterable[Rule],
    tried: Mapping[str, str] = MappingProxyType({}),
) -> KnownChoice:
    """Return the model's own MTP head, else the first published draft that the container can serve.

    The model's own head needs no other files, and is under the model's licence. `tried` maps failed
    drafts, as a request spells them, to the reason.
    """
    held = tuple(rules)
    own = _why_not_own(model, instance, container, held)
    if own == "":
        own = tried.get(OWN, "")
    against = {
        one: tried.get(_named(one)) or _why_not(one, model, instance, container, held)
        for one in drafts
    }
    fitting = [one for one in drafts if not against[one]]
    refused = [f"{_named(one)}: {why}" for one, why in against.items() if why]
    passed = "; ".join([f"{OWN}: {own}", *refused] if own else refused)
    if own == "":
        return _take_own(model, fitting)
    if not fitting:
        if not passed:
            return KnownChoice()
        message = f"no published draft of this model fits here; passed over {passed}"
        hint = "name one with --draft, or use `--draft ngram`, which needs no files"
        return KnownChoice(findings=(Finding("note", "draft-none-fits", message, hint),))
    chosen, *others = fitting
    stated = chosen.license or "a licence that the catalog does not state: read its model card"
    message = f"auto takes {_named(chosen)}, under {stated}; known from {chosen.source}"
    if others:
        message += f"; {', '.join(map(_named, others))} would fit too"
    if passed:
        message += f"; passed over {passed}"
    hint = "choose with --draft, or leave speculation out with `--draft none`"
    return KnownChoice(
        reference=_named(chosen),
        license=chosen.license,
        findings=(Finding("note", "draft-chosen", message, hint),),
    )


def _take_own(model: ModelFiles, others: Sequence[KnownDraft]) -> KnownChoice:
    head = read_head(model)
    message = (
        f"auto takes mtp: the checkpoint brings {layer_words(head.layers)} of its own, "
        "so that a draft needs no other files"
    )
    if others:
        message += f"; {', '.join(map(_named, others))} would fit too"
    hint = "choose with --draft, or leave speculation out with `--draft none`"
    found = Finding("note", "draft-chosen", message, hint)
    return KnownChoice(reference=OWN, findings=(found,))


def _why_not_own(
    model: ModelFiles, instance: Instance, container: ContainerFacts, rules: tuple[Rule, ...]
) -> str | None:
    profile, findings = make_profile(model)
    if errors_in(findings):
        return None  # the plan is rejected for them
    why = why_not_mtp(model, profile, container)
    return why if why != "" else _refused_by_rules("mtp", model, instance, container, rules)


def _named(draft: KnownDraft) -> str:
    return SPELLED.get(draft.kind, f"{draft.kind}:") + draft.reference


def _why_not(
    draft: KnownDraft,
    model: ModelFiles,
    instance: Instance,
    container: ContainerFacts,
    rules: tuple[Rule, ...],
) -> str:
    if draft.kind not in SPELLED:
        return f"drafts of kind {draft.kind!r} are not rendered"
    if draft.weights == "pickle":
        return "its weights are pickles, which can run code when they are loaded"
    words = draft.license.lower().replace("_", "-").split("-")
    if set(words) & set(RESTRICTED) or draft.license.lower() in RESTRICTED:
        return f"its licence {draft.license!r} restricts use"
    if draft.kind == "mtp":
        found = next(check_engine(ASSISTANT, container), None)
        if found is not None:
            return found.message
    return _refused_by_rules(draft.kind, model, instance, container, rules)


def _refused_by_rules(
    kind: str,
    model: ModelFiles,
    instance: Instance,
    container: ContainerFacts,
    rules: tuple[Rule, ...],
) -> str:
    for found in check_target(kind, model, container):
        return found.message
    situation: dict[str, object] = {
        "target": "image",
        "model": model.ref.name,
        "architecture": architecture_of(model.config),
        "family": container.family,
        "variant": container.variant,
        "engine": container.engine,
        "device": instance.kind,
        "instance": instance.name,
        "draft": kind,
    }
    for key, value in (
        ("engine_version", container.engine_version),
        ("release", container.release or container.version),
        ("instance_family", instance.family),
    ):
        if value:
            situation[key] = value
    refusals = [rule for rule in matching(rules, situation) if rule.severity == "error"]
    return finding_of(refusals[0], situation).message if refusals else ""
