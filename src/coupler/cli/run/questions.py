"""Questions of workflows at a terminal: a yes or no, a value, a message, and what becomes of a step.

Each has its sign and its step before it, and what strangers wrote is indented behind: no text can pass for a
question of another step, or for an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coupler.cli.run.answers import NO, YES
from coupler.cli.sessions.wording import clean, one_line
from coupler.runtime.threads import in_thread
from coupler.workflow.engine.front import Answer, Approval
from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import as_input

if TYPE_CHECKING:
    from coupler.cli.question_terminal import QuestionTerminal
    from coupler.workflow.engine.performers import Choice
    from coupler.workflow.language.model import Input, InputType, Json

DONE = "/done"
"""What leaves a conversation."""

_HINTS: Mapping[InputType, str] = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "list": "items with commas between",
    "object": "a JSON object",
    "file": "a path",
}
_CHOICES: Mapping[str, Choice] = {
    "r": "run",
    "run": "run",
    "": "run",
    "s": "skip",
    "skip": "skip",
    "q": "stop",
    "quit": "stop",
    "stop": "stop",
}


class Further(NamedTuple):
    """What a question about an agent's call has besides its words."""

    changes: str = ""
    """What it would change in files."""
    always: str | None = None
    never: str | None = None
    """What a yes or a no for good would mean; None if there is none."""


async def ask_approval(
    terminal: QuestionTerminal, name: str, question: str, default: bool | None
) -> bool | None:
    """Yes or no; None if the person has left."""
    approval = await ask_permission(terminal, name, question, default, Further())
    return None if approval is None else approval.approved


async def ask_permission(
    terminal: QuestionTerminal, name: str, question: str, default: bool | None, further: Further
) -> Approval | None:
    """Yes or no, once or for good; None if the person has left."""
    for_good = {"a": further.always, "x": further.never}
    meanings = {letter: meaning for letter, meaning in for_good.items() if meaning is not None}
    choices = f"[{'/'.join(['Y/n' if default else 'y/N', *meanings])}]"
    below = [f"    {line}" for line in clean(further.changes).splitlines()]
    below += [f"  {letter}: {one_line(meaning)}" for letter, meaning in meanings.items()]
    prompt = "\n".join([asked(name, question), *below, ""] if below else [asked(name, question)])
    prompt = f"{prompt} {choices} "
    while line := await terminal.ask(prompt):
        word = line.strip().lower()
        if word in meanings:
            return Approval(word == "a", "user", is_for_good=True)
        if word in YES | NO or not word:
            return Approval(word in YES if word else bool(default), "user")
        prompt = f"  Answer {' or '.join(['y', 'n', *meanings])} {choices} "
    terminal.write("\n")
    return None


async def ask_value(
    terminal: QuestionTerminal, name: str, question: str, declared: Input, cwd: str
) -> Answer | None:
    """Text or a value; what does not fit is asked for again. None if the person has left."""
    ask = terminal.ask_hidden if declared.secret else terminal.ask
    prompt = "\n".join([asked(name, question), *_choices(declared), f"  {_hint(declared)}> "])
    while line := await ask(prompt):
        text = line.strip() if declared.type != "string" else line.rstrip("\r\n")
        try:
            if text:
                return _given(declared, text, cwd)
            if declared.default is not msgspec.UNSET:
                return default_answer(declared, cwd)
            problem = "it needs an answer"
        except InputError as error:
            problem = one_line(str(error))
        prompt = f"  {problem}\n  > "
    terminal.write("\n")
    return None


async def ask_message(
    terminal: QuestionTerminal, name: str, reply: str | None, *, has_hint: bool
) -> str | None:
    """The next message of a conversation, after the agent's reply; None if the person leaves it.

    A line that ends with a backslash goes on with the next one.
    """
    await in_thread(lambda: _show_reply(terminal, name, reply, has_hint=has_hint))
    lines: list[str] = []
    while line := await terminal.ask("> " if not lines else "… "):
        text = line.rstrip("\r\n")
        if text.endswith("\\"):
            lines.append(text[:-1])
            continue
        message = "\n".join([*lines, text]).strip()
        if message == DONE:
            return None
        if message:
            return message
        lines = []
    terminal.write("\n")
    return None


async def ask_choice(terminal: QuestionTerminal, name: str, title: str) -> Choice | None:
    """What becomes of a step; None if the person has left."""
    prompt = f"{asked(name, title)} [R]un, [s]kip or [q]uit? "
    while line := await terminal.ask(prompt):
        choice = _CHOICES.get(line.strip().lower())
        if choice is not None:
            return choice
        prompt = "  Answer r, s or q: "
    terminal.write("\n")
    return None


def default_answer(declared: Input, cwd: str) -> Answer:
    """The value when none is given."""
    default = declared.default
    value = as_input(declared, default, cwd) if isinstance(default, str) else default
    return Answer(_spelled(default), value, "default")


def asked(name: str, question: str) -> str:
    """A question behind its step; further lines are indented."""
    first, *rest = clean(question).strip("\n").split("\n")
    head = f"? {one_line(name)}: {first}" if name else f"? {first}"
    return "\n".join([head, *(f"    {line}" for line in rest)])


def _choices(declared: Input) -> list[str]:
    return [f"  {number}. {one_line(_spelled(choice))}" for number, choice in enumerate(declared.enum, 1)]


def _hint(declared: Input) -> str:
    hints = []
    if declared.enum:
        hints.append(f"1 to {len(declared.enum)}")
    elif declared.type in _HINTS:
        hints.append(_HINTS[declared.type])
    if declared.default is not msgspec.UNSET and not declared.secret:
        hints.append(f"nothing for {one_line(_spelled(declared.default))}")
    return f"({', '.join(hints)}) " if hints else ""


def _given(declared: Input, text: str, cwd: str) -> Answer:
    """A text may be the number of a choice, unless it is itself one of them."""
    is_number = text.strip().isdecimal() and text.strip() not in map(_spelled, declared.enum)
    if is_number and 1 <= int(text) <= len(declared.enum):
        choice = declared.enum[int(text) - 1]
        value: Json = [choice] if declared.type == "list" else choice
        return Answer(_spelled(choice), value, "user")
    return Answer(text, as_input(declared, text, cwd), "user")


def _spelled(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_reply(terminal: QuestionTerminal, name: str, reply: str | None, *, has_hint: bool) -> None:
    hint = f" ({DONE} or Ctrl-D leaves, \\ at the end of a line goes on below)" if has_hint else ""
    lines = [] if reply is None else [f"  {line}".rstrip() for line in clean(reply).strip().split("\n")]
    terminal.write("\n".join([f"{one_line(name)}:{hint}", *lines, ""]))
