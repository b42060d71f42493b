"""What was answered before anybody asked: `--answer STEP=TEXT` and `--mock STEP=FILE`, held against steps.

A step is named by its id, or by its path where ids repeat, as `fixes[2].fix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import as_input
from coupler.workflow.language.model import Approve, Ask, Converse, Step, all_steps, lists_of

if TYPE_CHECKING:
    from coupler.workflow.journal.run_events import Place
    from coupler.workflow.language.library import Bundle

YES = frozenset({"y", "yes", "true", "allow"})
NO = frozenset({"n", "no", "false", "deny"})

MOST_NAMED = 10
"""Steps that a sentence names."""


class GivenAnswers:
    """Texts by steps; each message of a conversation is given out once."""

    def __init__(self, given: Sequence[tuple[str, str]]) -> None:
        self._texts: dict[str, list[str]] = {}
        for name, text in given:
            self._texts.setdefault(name, []).append(text)

    def check(self, bundle: Bundle, cwd: str) -> None:
        """Raise InputError for what answers nothing, or what the step cannot take."""
        by_id = _steps_by_id(bundle)
        asking = {name: steps for name, steps in by_id.items() if any(map(_asks, steps))}
        for name, texts in self._texts.items():
            steps = [step for step in asking.get(id_in(name), ()) if _asks(step)]
            if not steps:
                raise InputError(_unknown("--answer", name, asking, "no step of that name asks anything"))
            for step in steps:
                _check_texts(step, name, texts, cwd)

    def text_for(self, place: Place) -> str | None:
        """The answer to the question of a step."""
        texts = self._at(place)
        return texts[0] if texts else None

    def approval_for(self, place: Place) -> bool | None:
        """The same as a yes or no."""
        text = self.text_for(place)
        return None if text is None else text.strip().lower() in YES

    def has_messages(self, place: Place) -> bool:
        """Whether something was given for a conversation, said already or not."""
        return self._at(place) is not None

    def next_message(self, place: Place) -> str | None:
        """The next thing to say; None after the last one."""
        texts = self._at(place)
        return texts.pop(0) if texts else None

    def _at(self, place: Place) -> list[str] | None:
        for name in (str(place), place.path, id_in(place.path)):
            if name in self._texts:
                return self._texts[name]
        return None


def mocks_of(given: Mapping[str, str], bundle: Bundle) -> dict[str, Path]:
    """Files by the steps whose results they stand for; raises InputError."""
    by_id = _steps_by_id(bundle)
    for name, file in given.items():
        if id_in(name) not in by_id:
            raise InputError(_unknown("--mock", name, by_id, "there is no step of that name"))
        if not Path(file).is_file():
            raise InputError(f"--mock {name}: there is no file {file}")
    return {name: Path(file) for name, file in given.items()}


def _steps_by_id(bundle: Bundle) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = {}
    for workflow in bundle.workflows:
        for listed in lists_of(workflow):
            for step in all_steps(listed):
                steps.setdefault(step.id, []).append(step)
    return steps


def _asks(step: Step) -> bool:
    return isinstance(step, Ask | Converse | Approve)


def id_in(name: str) -> str:
    """The step's own id at the end of a path, without the number of a visit."""
    return re.split(r"[./]", name)[-1].partition("#")[0]


def _check_texts(step: Step, name: str, texts: Sequence[str], cwd: str) -> None:
    if len(texts) > 1 and not isinstance(step, Converse):
        raise InputError(f"--answer {name}: it is asked once: give one answer")
    match step:
        case Ask():
            try:
                as_input(step.answer, texts[0], cwd)
            except InputError as error:
                raise InputError(f"--answer {name}: {error}") from None
        case Approve() if texts[0].strip().lower() not in YES | NO:
            raise InputError(f"--answer {name}: answer with yes or no")


def _unknown(option: str, name: str, known: Iterable[str], reason: str) -> str:
    names = [*known]
    near = get_close_matches(id_in(name), names, 1)
    if near:
        return f"{option} {name}: {reason}: did you mean {near[0]}?"
    listed = ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
    return f"{option} {name}: {reason}" + (f": there is {listed}" if listed else "")
