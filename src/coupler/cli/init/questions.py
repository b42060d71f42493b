"""What `coupler init` asks, and what may be answered: by a person, or by an option in advance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

import click

from coupler.cli.sessions.wording import clean

if TYPE_CHECKING:
    from coupler.cli.init.found import Found
    from coupler.config import Config

NONE = "none"
"""The answer for no agent, and for no model."""


class Answers(NamedTuple):
    """What the user wants; None for what nobody has said yet."""

    model: str | None
    agent: str | None

    def problem(self, config: Config) -> str | None:
        """What is wrong with them, as a sentence."""
        wrong_model = None if self.model is None else problem_with_model(self.model)
        return wrong_model or (None if self.agent is None else problem_with_agent(self.agent, config))

    def completed(self, found: Found) -> Answers:
        """The same with what was found in the place of what nobody has said."""
        model = self.model or found.suggested or NONE
        agent = self.agent or next(iter(found.ready(model)), NONE)
        return Answers(model, agent)


def asked(given: Answers, found: Found, config: Config) -> Answers:
    """The same with what the person at this terminal answers, who is asked two questions at most."""
    model, agent = given
    if model is None and found.model is None:
        _explain("Coupler's own coding agent needs a model: provider:name, such as ollama:…, or none.")
        model = _answer("Model", found.suggested or NONE, problem_with_model)
    if agent is None:
        ready = found.ready(model)
        _explain(f"An agent can work in the example workflow. Ready here: {', '.join((*ready, NONE))}.")
        agent = _answer("Agent", next(iter(ready), NONE), lambda name: problem_with_agent(name, config))
    return Answers(model, agent)


def problem_with_model(text: str) -> str | None:
    """Why this is no model that could be set."""
    from coupler.config.value_kinds import model_problem

    problem = None if text == NONE else model_problem(text)
    return None if problem is None else f"the model {problem}"


def problem_with_agent(name: str, config: Config) -> str | None:
    """Why this is no agent that could work."""
    from coupler.providers.catalogue import joined

    known = [*joined(config)]
    if name == NONE or name.partition(":")[0] in known:
        return None
    near = get_close_matches(name.lower(), known, 1)
    meant = f", did you mean {near[0]!r}?" if near else ":"
    return f"there is no agent {name!r}{meant} `coupler agents` lists those there are"


def _answer(question: str, default: str, problem_with: Callable[[str], str | None]) -> str:
    while True:
        answer = str(click.prompt(question, default=default, err=True)).strip()
        problem = problem_with(answer)
        if problem is None:
            _explain("")
            return answer
        _explain(f"  {problem}")


def _explain(sentence: str) -> None:
    sys.stderr.write(f"{clean(sentence)}\n")
    sys.stderr.flush()
