"""The proof of a slim base: both answer alike, or it is refused; nothing stays in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from packager.addons.nodes.slim.record import SlimProof
from packager.addons.nodes.slim_proof import prove_slim
from packager.cli.serving.smoke import SmokeAnswer, SmokeResult
from packager.core.errors import SmokeFailed


@dataclass
class Engine:
    """Images and what each base answers; None: it does not start."""

    answers: dict[str, str | None]
    images: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    def build(self, base: str, name: str) -> str:
        self.images[name] = base
        return name

    def ask(self, name: str) -> SmokeResult:
        text = self.answers[self.images[name]]
        if text is None:
            raise SmokeFailed("the container ended with status 1", hint="", log="ImportError: x")
        answer = SmokeAnswer(endpoint="/invocations", text=text, tokens=3, seconds=0.1)
        return SmokeResult(image=name, model="tiny", seconds_to_ping=2.04, answers=(answer,))

    def remove(self, name: str) -> None:
        self.removed.append(name)
        self.images.pop(name)

    def prove(self) -> SlimProof:
        return prove_slim(
            "tiny",
            build=self.build,
            ask=self.ask,
            remove=self.remove,
            original="base",
            slim="slim",
            say=lambda _line: None,
        )


def test_equal_answers_are_a_proof_and_no_image_is_left() -> None:
    engine = Engine({"base": "once upon", "slim": "once upon"})

    proof = engine.prove()

    assert proof == SlimProof(
        model="tiny", answers=("once upon",), original_ready_s=2.0, slim_ready_s=2.0
    )
    assert engine.images == {}
    assert len(engine.removed) == 2


def test_another_answer_is_refused_with_both() -> None:
    with pytest.raises(SmokeFailed, match="with 'twice', the original with 'once'"):
        Engine({"base": "once", "slim": "twice"}).prove()


def test_a_slim_base_that_does_not_start_is_refused_with_its_log() -> None:
    engine = Engine({"base": "once", "slim": None})

    with pytest.raises(SmokeFailed, match="the slim base does not serve") as refused:
        engine.prove()
    assert refused.value.log == "ImportError: x"
    assert "--without-rule" in refused.value.hint
    assert engine.images == {}


def test_an_original_that_does_not_start_is_not_blamed_on_the_slim_base() -> None:
    with pytest.raises(SmokeFailed) as refused:
        Engine({"base": None, "slim": "once"}).prove()

    assert "slim" not in refused.value.message
