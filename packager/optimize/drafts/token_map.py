"""A head's own vocabulary by its values: which of the model's tokens it proposes.

In every engine and trainer, token `i` of the head is token `i + d2t[i]` of the model, and `t2d` is
a mask of the model's tokens that the head has.  Engines index with the one unchecked, and leave the
other out; trainers read both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from packager.core.findings import Finding, errors_in
from packager.core.model import HeadValues
from packager.optimize.drafts.numbers import TRAINED_FOR

CODE = "draft-mapping"
ABSOLUTE = "the values look like the model's ids themselves: subtract the index from each"
BOTH = "export the head again with 'd2t' and 't2d' from one list of tokens"
MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapped:
    """Facts of a map that findings are made of."""

    targets: tuple[int, ...]
    falls: int | None  # the first token whose offset is less than the one before
    absolute: bool  # ids of the model, not offsets: each is another one of the model's, and `t2d`
    # says so, or they grow at every step, or they make no sense as offsets
    kept: frozenset[int] | None  # by `t2d`


def check_token_map(
    values: HeadValues | None, model_tokens: int, *, trains: bool = False
) -> Iterator[Finding]:
    """Find errors of a map to so many tokens, for engines or for trainers.

    Types and lengths were already checked by the headers.
    """
    if values is None or values.d2t is None:
        yield _unread("d2t")
        return
    yield from _check_targets(values, values.d2t, model_tokens, trains=trains)


def check_medusa_map(values: HeadValues | None, model_tokens: int) -> Iterator[Finding]:
    """Find errors of `token_map`, which has the model's token ids."""
    if values is None or values.token_map is None:
        yield _unread("token_map")
        return
    ids = values.token_map
    yield from _check_places("token_map", ids, ids, model_tokens, TRAINED_FOR)
    yield from _check_ends(frozenset(ids), values.end_tokens, model_tokens)


def _unread(name: str) -> Finding:
    message = f"the values of {name!r} of the draft were not read: which tokens it proposes is open"
    hint = "a build reads and checks them; for a plan, name the head's directory"
    return Finding("note", "draft-mapping-unread", message, hint)


def _check_targets(
    values: HeadValues, offsets: tuple[int, ...], model_tokens: int, *, trains: bool
) -> Iterator[Finding]:
    mapped = _mapped(values, model_tokens)
    first_ones = not any(offsets) and len(offsets) < model_tokens
    hint = ABSOLUTE if mapped.absolute else TRAINED_FOR
    found = list(_check_places("d2t", offsets, mapped.targets, model_tokens, hint))
    other = mapped.kept is not None and mapped.kept != frozenset(mapped.targets)
    if not found and other:
        wrong = trains or first_ones or mapped.absolute
        found.append(_other_mask(mapped, len(offsets), wrong=wrong))
    yield from found
    if errors_in(found):
        return
    if mapped.absolute:
        message = "'d2t' of the draft grows with every token, as ids do and offsets do not"
        yield Finding("warning", CODE, message, ABSOLUTE)
    if first_ones:
        message = (
            f"'d2t' of the draft is 0 throughout: it proposes the first {len(offsets)} of the "
            f"model's {model_tokens} tokens, whatever these are"
        )
        hint = "make sure that the head was trained on these; else export it with its offsets"
        yield Finding("warning", CODE, message, hint)
    if mapped.falls is not None:
        at = mapped.falls
        message = (
            f"'d2t' of the draft falls from {offsets[at - 1]} to {offsets[at]} at token {at}: "
            "trainers write the tokens in the model's order, where offsets never fall"
        )
        hint = "make sure that these are offsets, not ids or offsets of another order"
        yield Finding("warning", CODE, message, hint)
    yield from _check_ends(frozenset(mapped.targets), values.end_tokens, model_tokens)


def _check_places(
    name: str, values: tuple[int, ...], ids: tuple[int, ...], model_tokens: int, hint: str
) -> Iterator[Finding]:
    """Refuse ids outside the model's vocabulary, and ids that occur twice."""
    outside, twice = _places(ids, model_tokens)
    if outside:
        at = outside[0]
        message = (
            f"{name!r} of the draft maps {len(outside)} of {len(ids)} tokens to none of the "
            f"model's {model_tokens}: token {at}, with {values[at]}, to {ids[at]}"
        )
        message += "; an engine indexes with it, and ends with a device-side assert"
        yield Finding("error", CODE, message, hint)
    elif twice is not None:
        first, second = (at for at, _ in zip(_all_at(ids, twice), range(2), strict=False))
        message = (
            f"{name!r} of the draft maps tokens {first} and {second} to one of the model's, {twice}"
        )
        yield Finding("error", CODE, message, hint)


def _other_mask(mapped: _Mapped, count: int, *, wrong: bool) -> Finding:
    """Return the finding that `t2d` has other tokens than `d2t`."""
    kept = mapped.kept or frozenset()
    differ = sorted(kept ^ frozenset(mapped.targets))
    message = (
        f"'t2d' of the draft marks {len(kept)} of the model's tokens, 'd2t' maps {count}; "
        f"{len(differ)} are in one alone, such as {_listed(differ)}"
    )
    if mapped.absolute:
        message = "'d2t' of the draft has the ids that 't2d' marks; engines add the index to them"
    elif not wrong:
        message += "; engines use 'd2t'"
    return Finding("error" if wrong else "warning", CODE, message,
                   ABSOLUTE if mapped.absolute else BOTH)  # fmt: skip


def _check_ends(
    ids: frozenset[int], end_tokens: tuple[int, ...], model_tokens: int
) -> Iterator[Finding]:
    """Find the tokens that end an answer and that the head cannot propose."""
    ends = [one for one in end_tokens if 0 <= one < model_tokens]
    lacking = [one for one in ends if one not in ids]
    if not lacking:
        return
    if len(lacking) < len(ends):
        message = (
            f"the draft's vocabulary lacks {_listed(lacking)} of the tokens {_listed(ends)} "
            "that end the model's answers"
        )
        hint = "nothing is to be done where answers end with the others"
        yield Finding("note", "draft-end-tokens", message, hint)
        return
    message = (
        f"the draft's vocabulary lacks {_listed(lacking)}, which end the model's answers: the "
        "draft never proposes an end"
    )
    hint = "the model still ends them by itself; keep these tokens when the head is trained"
    yield Finding("warning", "draft-end-tokens", message, hint)


@lru_cache(maxsize=4)  # ranking plans one head many times
def _mapped(values: HeadValues, model_tokens: int) -> _Mapped:
    offsets = values.d2t or ()
    targets = tuple(map(sum, enumerate(offsets)))
    steps = tuple(pairwise(offsets))
    mask = values.t2d
    of_model = mask is not None and len(mask) == model_tokens
    kept = frozenset(at for at, one in enumerate(mask) if one) if mask and of_model else None
    are_ids = len(frozenset(offsets)) == len(offsets) > 1 and not _places(offsets, model_tokens)[0]
    grows = are_ids and all(one < after for one, after in steps)
    by_mask = kept is not None and kept == frozenset(offsets) != frozenset(targets)
    outside, twice = _places(targets, model_tokens)
    return _Mapped(
        targets=targets,
        falls=next((at for at, (one, after) in enumerate(steps, 1) if after < one), None),
        absolute=are_ids and (by_mask or grows or bool(outside) or twice is not None),
        kept=kept,
    )


@lru_cache(maxsize=4)
def _places(ids: tuple[int, ...], model_tokens: int) -> tuple[tuple[int, ...], int | None]:
    """Return the positions of ids outside the vocabulary, and the first repeated id."""
    outside = tuple(at for at, one in enumerate(ids) if not 0 <= one < model_tokens)
    seen: set[int] = set()
    twice = None
    if len(frozenset(ids)) < len(ids):
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
    return outside, twice


def _all_at(ids: tuple[int, ...], wanted: int) -> Iterator[int]:
    return (at for at, one in enumerate(ids) if one == wanted)


def _listed(ids: list[int]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(map(str, ids[:MOST_NAMED])) + more
