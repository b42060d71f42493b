"""Answers what a workflow asks on a command line: by options, at the terminal, or not at all.

At the terminal each question has its sign and its step before it, and what strangers wrote is indented
behind: no text can pass for a question of another step, or for an answer. In `--answer STEP=TEXT` and
`--mock STEP=FILE` a step is named by its id, or by its path where ids repeat, as `fixes[2].fix`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches, unified_diff
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from coupler.runtime.terminal_text import clean, one_line
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import Diff
from coupler.workflow.engine.front import Approval, FrontEnd, InterruptedAnswer, QuestionAnswer, UserMessage
from coupler.workflow.errors import InputError, Parked
from coupler.workflow.journal.run_events import step_id_in
from coupler.workflow.language.inputs import parse_input
from coupler.workflow.language.model import Step, all_steps, lists_of
from coupler.workflow.steps.kinds import kind_of
from coupler.workflow.steps.questions import NO, YES

if TYPE_CHECKING:
    from coupler.cli.chat.dialogs import Dialogs
    from coupler.cli.run.progress import ProgressScreen
    from coupler.cli.terminal import QuestionTerminal
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.events import ToolCall
    from coupler.workflow.engine.front import PermissionQuestion
    from coupler.workflow.engine.performers import Choice
    from coupler.workflow.journal.run_events import Place
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Input, InputType, Json


DONE_COMMAND = "/done"
"""The message that leaves a conversation."""


MOST_NAMED = 10
"""Steps that a sentence names."""

MOST_LINES = 200
"""Lines of all changes that are shown."""

LONGEST_TEXT = 1024 * 1024
"""Characters of a file, old and new, that are compared: it takes time."""

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


_INTERRUPTED_CHOICES: Mapping[str, Literal["again", "done", "stop"]] = {
    "r": "again",
    "run": "again",
    "d": "done",
    "done": "done",
    "s": "stop",
    "stop": "stop",
}


class CommandFront(FrontEnd):
    """Answers by options first; then somebody is asked, or the run waits for somebody."""

    def __init__(
        self,
        screen: ProgressScreen,
        terminal: QuestionTerminal | None,
        answers: GivenAnswers,
        approval: bool | None,
        cwd: str,
    ) -> None:
        self._screen = screen
        self._terminal = terminal
        self._answers = answers
        self._approval = approval
        self._cwd = cwd
        self._talking: Place | None = None
        """The conversation that goes on."""

    @property
    def is_present(self) -> bool:
        return self._terminal is not None and self._approval is None

    @property
    def shows_forms(self) -> bool:
        return self._terminal is not None

    @property
    def shows_pages(self) -> bool:
        return self._terminal is not None

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
    ) -> Approval:
        # What is given for a conversation are messages, and no answers to what its agent wishes.
        given = self._answers.approval_for(place) if wish is None else None
        given = self._approval if given is None else given
        if given is not None:
            return Approval(given, "option")
        if self._terminal is None:
            return Approval(bool(default), "nobody" if default is None else "default")
        async with self._screen.suspended(), self._terminal.turn():
            shown = self._screen.mask(question)
            approval = await ask_permission(
                self._terminal, str(place), shown, default, self._details_of(wish)
            )
        if approval is None:
            raise Parked(f"{place} waits for a yes or no: resume it at a terminal, or with --yes or --no")
        return approval

    async def ask_interrupted(self, place: Place, question: str) -> InterruptedAnswer:
        if self._approval is not None:
            return InterruptedAnswer("again" if self._approval else "stop", "option")
        if self._terminal is None:
            return InterruptedAnswer("stop", "nobody")
        async with self._screen.suspended(), self._terminal.turn():
            choice = await ask_interrupted(self._terminal, str(place), self._screen.mask(question))
        if choice is None:
            raise Parked(f"{place} waits for a choice: resume it at a terminal, or with --done or --yes")
        return InterruptedAnswer(choice, "user")

    async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
        given = self._answers.text_for(place)
        if given is not None:
            return QuestionAnswer(given, parse_input(answer, given, self._cwd), "option")
        if self._terminal is None and answer.default is not msgspec.UNSET:
            return default_answer(answer, self._cwd)
        if self._terminal is None:
            raise _parked(place, "an answer")
        async with self._screen.suspended(), self._terminal.turn():
            shown = self._screen.mask(question)
            asked = await ask_value(self._terminal, str(place), shown, answer, self._cwd)
        if asked is None:
            raise _parked(place, "an answer")
        return asked

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        if self._answers.has_messages(place):
            text = self._answers.next_message(place)
            return UserMessage(text) if text and text != DONE_COMMAND else None
        if self._terminal is None:
            raise _parked(place, "a message")
        shown = None if self._screen.shows_texts else self._screen.mask(reply)
        is_first, self._talking = self._talking != place, place
        async with self._screen.suspended(), self._terminal.turn():
            text = await ask_message(self._terminal, str(place), shown, has_hint=is_first)
        return None if text is None else UserMessage(text)

    async def fill_in(self, place: Place, form: FormRequest, call: str | None) -> FormAnswer:
        shown = msgspec.structs.replace(form, message=self._named(place, form.message))
        async with self._dialogs() as dialogs:
            return False if dialogs is None else await dialogs.form(shown)

    async def open_page(self, place: Place, page: UrlRequest, call: str | None) -> bool | None:
        shown = msgspec.structs.replace(page, message=self._named(place, page.message))
        async with self._dialogs() as dialogs:
            return False if dialogs is None else await dialogs.page(shown)

    async def choose(self, place: Place, title: str) -> Choice:
        """Asks whether a step is run or skipped, in a run that goes step by step."""
        assert self._terminal is not None
        async with self._screen.suspended(), self._terminal.turn():
            choice = await ask_choice(self._terminal, str(place), self._screen.mask(title))
        return "stop" if choice is None else choice

    @asynccontextmanager
    async def _dialogs(self) -> AsyncIterator[Dialogs | None]:
        """Yields dialogs for an agent's questions; None if there is no terminal."""
        if self._terminal is None:
            yield None
            return
        # Imported on use: few agents ask.
        from coupler.cli.chat.dialogs import Dialogs
        from coupler.cli.chat.plain import LineDialogFront

        async with self._screen.suspended(), self._terminal.turn():
            yield Dialogs(LineDialogFront(self._terminal))

    def _named(self, place: Place, message: str) -> str:
        return f"{place}: {self._screen.mask(message)}"

    def _details_of(self, wish: PermissionQuestion | None) -> PermissionDetails:
        """The details of a permission question; secrets are never kept, nor shown."""
        if wish is None:
            return PermissionDetails()
        offers = (wish.offer(approved=True), wish.offer(approved=False))
        always, never = (
            None if offer is None or self._screen.mask(offer.text) != offer.text else offer.text
            for offer in offers
        )
        return PermissionDetails(self._screen.mask(diff_text(wish.tool_call)), always, never)


class RehearsalFront(FrontEnd):
    """Answers in a dry run, which asks nobody: approvals are given, and other questions park the run."""

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
    ) -> Approval:
        return Approval(True, "default")

    async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
        raise Parked(f"{place} would ask")

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        return None


def _parked(place: Place, what: str) -> Parked:
    return Parked(f"{place} waits for {what}: resume it at a terminal, or with --answer '{place}=TEXT'")


class GivenAnswers:
    """The answers of `--answer`, by step; each message of a conversation is given out once."""

    def __init__(self, given: Sequence[tuple[str, str]]) -> None:
        self._texts: dict[str, list[str]] = {}
        for name, text in given:
            self._texts.setdefault(name, []).append(text)

    def check(self, bundle: Bundle, cwd: str) -> None:
        """Raises InputError for what answers nothing, or what the step cannot take."""
        by_id = _steps_by_id(bundle)
        asking = {
            name: steps for name, steps in by_id.items() if any(kind_of(each).asks_user for each in steps)
        }
        for name, texts in self._texts.items():
            steps = asking.get(step_id_in(name), ())
            if not steps:
                raise InputError(_unknown("--answer", name, asking, "no step of that name asks anything"))
            for step in steps:
                try:
                    kind_of(step).check_answers(step, texts, cwd)
                except InputError as error:
                    raise InputError(f"--answer {name}: {error}") from None

    def text_for(self, place: Place) -> str | None:
        """The answer to the question of a step."""
        texts = self._at(place)
        return texts[0] if texts else None

    def approval_for(self, place: Place) -> bool | None:
        """The answer to a step as a yes or no."""
        text = self.text_for(place)
        return None if text is None else text.strip().lower() in YES

    def has_messages(self, place: Place) -> bool:
        """True if something was given for a conversation, said already or not."""
        return self._at(place) is not None

    def next_message(self, place: Place) -> str | None:
        """The next message; None after the last one."""
        texts = self._at(place)
        return texts.pop(0) if texts else None

    def _at(self, place: Place) -> list[str] | None:
        for name in (str(place), place.path, step_id_in(place.path)):
            if name in self._texts:
                return self._texts[name]
        return None


def mock_files(given: Mapping[str, str], bundle: Bundle) -> dict[str, Path]:
    """Files by the steps whose results they stand for; raises InputError."""
    by_id = _steps_by_id(bundle)
    for name, file in given.items():
        if step_id_in(name) not in by_id:
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


def _unknown(option: str, name: str, known: Iterable[str], reason: str) -> str:
    names = [*known]
    near = get_close_matches(step_id_in(name), names, 1)
    if near:
        return f"{option} {name}: {reason}: did you mean {near[0]}?"
    listed = ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
    return f"{option} {name}: {reason}" + (f": there is {listed}" if listed else "")


class PermissionDetails(NamedTuple):
    """The details of a question about an agent's tool call."""

    changes: str = ""
    """The changes to files, as diffs."""
    always: str | None = None
    never: str | None = None
    """The meanings of a yes and of a no for good; None if they are not offered."""


async def ask_approval(
    terminal: QuestionTerminal, name: str, question: str, default: bool | None
) -> bool | None:
    """Asks for yes or no; None if the person has left."""
    approval = await ask_permission(terminal, name, question, default, PermissionDetails())
    return None if approval is None else approval.approved


async def ask_permission(
    terminal: QuestionTerminal, name: str, question: str, default: bool | None, details: PermissionDetails
) -> Approval | None:
    """Asks for yes or no, once or for good; None if the person has left."""
    for_good = {"a": details.always, "x": details.never}
    meanings = {letter: meaning for letter, meaning in for_good.items() if meaning is not None}
    choices = f"[{'/'.join(['Y/n' if default else 'y/N', *meanings])}]"
    below = [f"    {line}" for line in clean(details.changes).splitlines()]
    below += [f"  {letter}: {one_line(meaning)}" for letter, meaning in meanings.items()]
    prompt = "\n".join(
        [question_text(name, question), *below, ""] if below else [question_text(name, question)]
    )
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
) -> QuestionAnswer | None:
    """Asks for text or a value; what does not fit is asked for again. None if the person has left."""
    ask = terminal.ask_hidden if declared.secret else terminal.ask
    prompt = "\n".join([question_text(name, question), *_choices(declared), f"  {_hint(declared)}> "])
    while line := await ask(prompt):
        text = line.strip() if declared.type != "string" else line.rstrip("\r\n")
        try:
            if text:
                return _parse_answer(declared, text, cwd)
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
    """Asks for the next message of a conversation, after the agent's reply; None if the person leaves it.

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
        if message == DONE_COMMAND:
            return None
        if message:
            return message
        lines = []
    terminal.write("\n")
    return None


async def ask_choice(terminal: QuestionTerminal, name: str, title: str) -> Choice | None:
    """Asks whether to run a step, to skip it or to stop; None if the person has left."""
    prompt = f"{question_text(name, title)} [R]un, [s]kip or [q]uit? "
    while line := await terminal.ask(prompt):
        choice = _CHOICES.get(line.strip().lower())
        if choice is not None:
            return choice
        prompt = "  Answer r, s or q: "
    terminal.write("\n")
    return None


async def ask_interrupted(
    terminal: QuestionTerminal, name: str, question: str
) -> Literal["again", "done", "stop"] | None:
    """Asks what becomes of an interrupted step that is to run once; None if the person has left."""
    prompt = f"{question_text(name, question)}\n  [r]un it again, it was [d]one, or [s]top? "
    while line := await terminal.ask(prompt):
        choice = _INTERRUPTED_CHOICES.get(line.strip().lower())
        if choice is not None:
            return choice
        prompt = "  Answer r, d or s: "
    terminal.write("\n")
    return None


def default_answer(declared: Input, cwd: str) -> QuestionAnswer:
    """The answer when none is given."""
    default = declared.default
    value = parse_input(declared, default, cwd) if isinstance(default, str) else default
    return QuestionAnswer(_as_text(default), value, "default")


def question_text(name: str, question: str) -> str:
    """Formats a question behind its step; further lines are indented."""
    first, *rest = clean(question).strip("\n").split("\n")
    head = f"? {one_line(name)}: {first}" if name else f"? {first}"
    return "\n".join([head, *(f"    {line}" for line in rest)])


def _choices(declared: Input) -> list[str]:
    return [f"  {number}. {one_line(_as_text(choice))}" for number, choice in enumerate(declared.enum, 1)]


def _hint(declared: Input) -> str:
    hints = []
    if declared.enum:
        hints.append(f"1 to {len(declared.enum)}")
    elif declared.type in _HINTS:
        hints.append(_HINTS[declared.type])
    if declared.default is not msgspec.UNSET and not declared.secret:
        hints.append(f"nothing for {one_line(_as_text(declared.default))}")
    return f"({', '.join(hints)}) " if hints else ""


def _parse_answer(declared: Input, text: str, cwd: str) -> QuestionAnswer:
    """Parses an answer; it may be the number of a choice, unless it is itself one of them."""
    is_number = text.strip().isdecimal() and text.strip() not in map(_as_text, declared.enum)
    if is_number and 1 <= int(text) <= len(declared.enum):
        choice = declared.enum[int(text) - 1]
        value: Json = [choice] if declared.type == "list" else choice
        return QuestionAnswer(_as_text(choice), value, "user")
    return QuestionAnswer(text, parse_input(declared, text, cwd), "user")


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_reply(terminal: QuestionTerminal, name: str, reply: str | None, *, has_hint: bool) -> None:
    hint = f" ({DONE_COMMAND} or Ctrl-D leaves, \\ at the end of a line goes on below)" if has_hint else ""
    lines = [] if reply is None else [f"  {line}".rstrip() for line in clean(reply).strip().split("\n")]
    terminal.write("\n".join([f"{one_line(name)}:{hint}", *lines, ""]))


def diff_text(call: ToolCall) -> str:
    """The changes of a tool call as unified diffs, for a person to read before agreeing to it.

    That there is more is told, for nobody may agree to what is hidden.
    """
    lines = [line for item in call.content if isinstance(item, Diff) for line in _diff_lines(item)]
    left = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], f"… and {left} lines more"] if left > 0 else lines)


def _diff_lines(change: Diff) -> Iterator[str]:
    old = change.old_text if isinstance(change.old_text, str) else ""
    if len(old) + len(change.new_text) > LONGEST_TEXT:
        yield f"{change.path}: the change is too long to show"
        return
    yield f"{'changes' if isinstance(change.old_text, str) else 'creates'} {change.path}"
    compared = unified_diff(old.splitlines(), change.new_text.splitlines(), lineterm="", n=2)
    yield from islice(compared, 2, None)
