"""Chooses the draft of a plan, with its figures, and checks it against the model.

Checks here cover failures in any engine, and useless proposals. The rules check what a family or
version can serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.model import ModelProfile
from packager.core.techniques import Draft
from packager.engines.request_options import spelled
from packager.optimize.drafts.assistant import assistant_draft, check_assistant
from packager.optimize.drafts.dflash import check_dflash, dflash_draft, read_dflash
from packager.optimize.drafts.eagle import check_eagle, eagle_draft, read_eagle
from packager.optimize.drafts.layouts import check_layout
from packager.optimize.drafts.medusa import check_medusa, medusa_draft, read_medusa
from packager.optimize.drafts.models import check_model, model_draft
from packager.optimize.drafts.mtp import check_mtp, mtp_draft
from packager.optimize.drafts.numbers import main_dtype
from packager.optimize.drafts.options import check_options
from packager.optimize.drafts.request import check_absence, count_tokens
from packager.optimize.drafts.suffix import check_suffix
from packager.optimize.drafts.targets import check_target

CODE_OF = "model-impl"  # the option by which an engine runs transformers' code of a model


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """The draft with its numbers, or none, with findings."""

    draft: Draft | None
    findings: tuple[Finding, ...] = ()
    counted: Draft | None = None  # requested by engine options: its memory is counted, too


def choose_draft(
    facts: Facts,
    profile: ModelProfile,
    requested_tokens: int | None,
    options: Mapping[str, str] | None,
    *,
    base: str,
    weights: Literal["baked", "mounted"],
    is_auto: bool,
) -> DraftChoice:
    """Return the requested draft with its sizes and defaults, checked against the model.

    `options` are the engine's own; `base` is the image that is built on; `is_auto`: the catalog
    was searched for a draft.
    """
    requested = facts.draft_request
    if isinstance(requested, Finding):
        return DraftChoice(None, (requested,))
    if requested is None:
        counted, found = check_options(facts, profile, options, base)
        found += check_absence(requested_tokens, unknown=is_auto and not facts.draft_findings)
        return DraftChoice(None, (*facts.draft_findings, *found), counted)
    tokens, wrong = count_tokens(requested_tokens, requested)
    if wrong:
        return DraftChoice(None, (*facts.draft_findings, *wrong))
    draft = Draft(
        kind=requested.kind, reference=requested.reference or "", speculative_tokens=tokens
    )
    if not draft.has_files:
        choice = _without_files(draft, facts, profile, base)
        return replace(choice, findings=(*facts.draft_findings, *choice.findings))
    if facts.draft is None:
        message = f"the draft {draft.reference[:60]!r} was not looked up: its size is not known"
        hint = "name a directory or a hub id that can be read, or `--draft none`"
        return DraftChoice(None, (Finding("error", "draft-unknown", message, hint),))
    pinned = replace(
        draft,
        ref=facts.draft.ref,
        license=facts.draft_license,
        dtype=main_dtype(facts.draft.tensors),
    )
    choice = _with_files(pinned, facts, profile)
    findings = (*facts.draft_findings, *choice.findings)
    if dict(spelled(options)).get(CODE_OF) != "transformers":
        findings += tuple(check_target(draft.kind, facts.model, facts.container, facts.containers))
    if choice.draft is not None and not errors_in(choice.findings):
        kept = "baked" if facts.writes_tree else weights  # a tree is laid out by us, too
        findings += tuple(check_layout(choice.draft, facts.container, kept, facts.draft))
    return replace(choice, findings=findings)


def _without_files(draft: Draft, facts: Facts, profile: ModelProfile, base: str) -> DraftChoice:
    if draft.kind == "suffix":
        return DraftChoice(draft, tuple(check_suffix(facts.container, base)))
    if draft.kind != "mtp":
        return DraftChoice(draft)
    model, container = facts.model, facts.container
    found = tuple(check_mtp(model, profile, container, draft.speculative_tokens))
    return DraftChoice(mtp_draft(draft, model, container, profile), found)


def _with_files(draft: Draft, facts: Facts, profile: ModelProfile) -> DraftChoice:
    files, tokens, values = facts.draft, draft.speculative_tokens, facts.head_values
    assert files is not None
    if draft.kind == "mtp":
        found = tuple(check_assistant(files, facts.model, profile, facts.container))
        return DraftChoice(assistant_draft(draft, files), found)
    if draft.kind == "draft_model":
        complete = model_draft(draft, files)
        traits = facts.container.traits
        found = tuple(check_model(files, facts.model, profile, facts.instance, traits))
        return DraftChoice(complete, found)
    if draft.kind == "medusa":
        heads = read_medusa(files)
        found = tuple(check_medusa(heads, files, facts.model, profile, tokens, values))
        return DraftChoice(medusa_draft(draft, heads) if heads.heads else None, found)
    if draft.kind == "dflash":
        head = read_dflash(files)
        found = tuple(check_dflash(head, files, facts.model, profile, tokens, values))
        numbered = head.hidden_size and head.heads and (tokens or head.stated_tokens)
        return DraftChoice(dflash_draft(draft, head) if numbered else None, found)
    head = read_eagle(files)
    found = tuple(check_eagle(draft.kind, head, files, facts.model, profile, values))
    numbered = head.hidden_size and head.heads
    return DraftChoice(eagle_draft(draft, head) if numbered else None, found)
