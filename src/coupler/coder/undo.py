"""Undoes and redoes turns, with the files that they have written: the commands /undo and /redo.

All that is needed is in the conversation, and so as durable as that: the prompt's message tells how things
were when the turn began, the results of tools tell what was in the files before. A turn that was undone
is kept in the graph's state until the next prompt.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr, hook_config
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from typing_extensions import TypedDict

from coupler.agent.errors import EditorError
from coupler.agent.files import WrittenFile, written_files
from coupler.coder.commands import REDO, UNDO, typed_command
from coupler.coder.compaction import COMPACTED, expected_tokens, reported_tokens, visible_messages
from coupler.coder.tools.outputs import one_line
from coupler.coder.usage import note_context
from coupler.langchain.current import Current, current
from coupler.runtime.files import find_inside
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from coupler.langchain.middleware import ToolHandler

MOST_TURNS = 20
"""Turns whose files can be restored, the last ones; and turns that can be redone."""

LONGEST_FILE = 1_000_000
"""Characters of a file up to which it can be restored."""

MOST_KEPT = 10_000_000
"""Characters of all files of a session that can be restored; the oldest are forgotten first."""

LONGEST_PROMPT, LONGEST_REASON = 80, 200
"""Characters of a prompt, and of an error, in the answer."""

TURN_KEY, FILES_KEY = "coupler_turn", "coupler_files"
"""Keys in the metadata of prompts and of results."""

UNDONE = "undone"
"""Key in the agent's state for the turns that were taken back."""

TODOS = "todos"

TRACKED = frozenset(
    {"read_file", "write_file", "edit_file", "list_directory", "find_files", "search", "fetch"}
    | {"use_skill", "write_todos", "ask_user", "present_plan", "command_output"}
)
"""Tools that change nothing, or nothing but files that can be restored."""


class FileBefore(TypedDict):
    """A file that a tool has written."""

    path: str
    before: str | None
    """Its text before; None if there was no file, or if the text is not kept."""
    is_kept: bool
    after: str
    """The digest of its text after."""


class FileChange(TypedDict):
    """A file that was restored when a turn was taken back."""

    path: str
    before: str | None
    after: str | None


class UndoneTurn(TypedDict):
    """A turn that was taken back."""

    number: int | None
    """Its number in the session's journal."""
    messages: list[AnyMessage]
    files: list[FileChange]
    then: dict[str, Any]
    """The to-do list and the summary as the turn left them."""


class UndoState(AgentState[Any]):
    """The state of an agent whose turns can be taken back."""

    undone: NotRequired[Annotated[list[UndoneTurn], PrivateStateAttr]]


class UndoMiddleware(AgentMiddleware[UndoState, Any, Any]):
    """Carries out /undo and /redo, and keeps what they need."""

    state_schema = UndoState

    @hook_config(can_jump_to=["end"])
    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Carry out a command; of any other prompt note how things are before it."""
        served, messages = current(), state["messages"]
        if served is None or not messages or not isinstance(messages[-1], HumanMessage):
            return None
        typed = typed_command(served.turn, (UNDO.command, REDO.command))
        if typed is None:
            return _begun(state, served.session.turn_number)
        own = RemoveMessage(str(messages[-1].id))
        act = _undo if typed.name == UNDO.name else _redo
        change = await act({**state, "messages": messages[:-1]}, served)
        return {**change, "messages": [own, *change.get("messages", ())], "jump_to": "end"}

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """Run the tool, and keep what was in the files that it has written."""
        written: list[WrittenFile] = []
        token = written_files.set(written)
        try:
            result = await handler(request)
        finally:
            written_files.reset(token)
        if not written or not isinstance(result, ToolMessage):
            return result
        served = current()
        mask = str if served is None else served.session.secrets.mask
        kept = await in_thread(lambda: [_kept(each, mask) for each in written])
        return result.model_copy(update={"response_metadata": {**result.response_metadata, FILES_KEY: kept}})


def _begun(state: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    """Note how things are before a turn, and forget what can be restored no more."""
    prompt = state["messages"][-1]
    mark = {"number": number, **_things(state)}
    marked = prompt.model_copy(update={"response_metadata": {**prompt.response_metadata, TURN_KEY: mark}})
    change: dict[str, Any] = {"messages": [*forgotten(state["messages"][:-1]), marked]}
    if state.get(UNDONE):
        change[UNDONE] = []
    return change


def _things(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state.get(name) for name in (TODOS, COMPACTED)}


def forgotten(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield messages without the texts of files that are too old, or too much."""
    turns, size = 1, 0
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and (files := _files_in(message)):
            size += sum(len(file["before"] or "") for file in files)
            if (turns > MOST_TURNS or size > MOST_KEPT) and any(file["is_kept"] for file in files):
                bare = [FileBefore(**{**file, "before": None, "is_kept": False}) for file in files]
                about = {**message.response_metadata, FILES_KEY: bare}
                yield message.model_copy(update={"response_metadata": about})
        turns += _is_prompt(message)


def _kept(file: WrittenFile, mask: Callable[[str], str]) -> FileBefore:
    """Return what is kept of a file: nothing of one that is too long, or has a secret in it."""
    texts = (file.before or "", file.after)
    is_kept = all(len(text) <= LONGEST_FILE and mask(text) == text for text in texts)
    before = file.before if is_kept else None
    return FileBefore(path=file.path, before=before, is_kept=is_kept, after=_digest(file.after))


def _files_in(message: BaseMessage) -> list[FileBefore]:
    found = message.response_metadata.get(FILES_KEY)
    return found if isinstance(found, list) else []


def _is_prompt(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and "lc_source" not in message.additional_kwargs


async def _undo(state: Mapping[str, Any], served: Current) -> dict[str, Any]:
    """Take back the last turn; returns the change of the state."""
    messages: list[AnyMessage] = [*state["messages"]]
    at = max((at for at, message in enumerate(messages) if _is_prompt(message)), default=None)
    if at is None:
        await served.turn.say("There is no turn to undo.")
        return {}
    turn = messages[at:]
    mark = turn[0].response_metadata.get(TURN_KEY)
    mark = mark if isinstance(mark, dict) else {"number": None, **_things(state)}
    report = _Report(served.session.cwd)
    files = [each async for each in _restored(_first_and_last(turn), served, report)]
    _note_context({**state, "messages": messages[:at], COMPACTED: mark.get(COMPACTED)}, served)
    undone = UndoneTurn(number=mark["number"], messages=turn, files=files, then=_things(state))
    session, number = served.session, mark["number"]
    session.change_hidden_turns(hidden=_numbers(number, session.turn_number))
    await served.turn.say(report.text(f"Undone: {_named(turn)}", has_run=_has_run_more(turn)))
    return {
        "messages": [RemoveMessage(str(message.id)) for message in turn],
        UNDONE: [*(state.get(UNDONE) or ()), undone][-MOST_TURNS:],
        **{name: mark.get(name) for name in _things(state) if mark.get(name) != state.get(name)},
    }


async def _redo(state: Mapping[str, Any], served: Current) -> dict[str, Any]:
    """Redo the turn that was undone last; returns the change of the state."""
    undone: list[UndoneTurn] = [*(state.get(UNDONE) or ())]
    if not undone:
        await served.turn.say("There is no turn to redo.")
        return {}
    turn = undone.pop()
    report = _Report(served.session.cwd)
    for file in turn["files"]:
        await _change(served, file["path"], {_digest_of(file["before"])}, file["after"], report)
    session, number = served.session, turn["number"]
    session.change_hidden_turns(hidden=_numbers(session.turn_number), shown=_numbers(number))
    if served.when_restored is not None:
        served.when_restored(turn["messages"])
    await served.turn.say(report.text(f"Redone: {_named(turn['messages'])}"))
    things = {name: value for name, value in turn["then"].items() if value != state.get(name)}
    _note_context({**state, **things, "messages": [*state["messages"], *turn["messages"]]}, served)
    return {"messages": turn["messages"], UNDONE: undone, **things}


def _note_context(state: Mapping[str, Any], served: Current) -> None:
    """Note how full the context is with these messages, for /usage."""
    visible = visible_messages(state)
    tokens = reported_tokens(visible, state.get(COMPACTED)) or expected_tokens(visible)
    note_context(served.session, tokens)


def _numbers(*numbers: int | None) -> list[int]:
    return [number for number in numbers if number is not None]


def _named(turn: Sequence[BaseMessage]) -> str:
    return f"“{one_line(str(turn[0].text), LONGEST_PROMPT)}”"


def _has_run_more(turn: Iterable[BaseMessage]) -> bool:
    """True if tools have run that may have changed something that is not restored."""
    ran = (message for message in turn if isinstance(message, ToolMessage) and message.status != "error")
    return any(message.name not in TRACKED for message in ran)


def _first_and_last(turn: Iterable[BaseMessage]) -> list[FileBefore]:
    """Return each file of a turn once: as it was before the first write, and after the last one."""
    found: dict[str, FileBefore] = {}
    for message in turn:
        for file in _files_in(message):
            before = found.get(file["path"], file)
            found[file["path"]] = FileBefore(**{**before, "after": file["after"]})
    return [*found.values()]


async def _restored(
    files: Iterable[FileBefore], served: Current, report: _Report
) -> AsyncIterator[FileChange]:
    """Restore files; yields those that were, with their texts before and after."""
    for file in files:
        if not file["is_kept"]:
            report.left.append(f"`{report.name(file['path'])}` (its text before is not kept)")
            continue
        expected = {file["after"], _digest_of(file["before"])}
        changed = await _change(served, file["path"], expected, file["before"], report)
        if changed is not None:
            yield changed


async def _change(
    served: Current, path: str, expected: set[str], text: str | None, report: _Report
) -> FileChange | None:
    """Give a file this text, or delete it, if it is as expected; None if it was left as it is."""
    files, session, name = served.turn.files, served.session, report.name(path)
    try:
        async with served.turn.tool(f"Restore {name}", kind="edit", path=path) as call:
            now = await files.read(path) if await files.exists(path) else None
            if _digest_of(now) not in expected:
                await call.output(f"{name} has changed since, and is left as it is.")
                report.left.append(f"`{name}` (it has changed since)")
                return None
            if now == text:
                return FileChange(path=path, before=text, after=now)
            if text is None:
                await files.remove(path)
            else:
                await files.write(path, text, overwrite=True)
    except (OSError, ValueError, EditorError) as error:
        report.left.append(f"`{name}` ({one_line(str(error), LONGEST_REASON)})")
        return None
    (report.deleted if text is None else report.written).append(f"`{name}`")
    # The model has to read it again before it changes it.
    session.known_files.forget(find_inside(path, session.cwd, session.roots).real)
    return FileChange(path=path, before=text, after=now)


class _Report:
    """Collects what became of files, for the answer."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self.written: list[str] = []
        self.deleted: list[str] = []
        self.left: list[str] = []

    def name(self, path: str) -> str:
        """Return a path as the user knows it: relative to the session's directory, if it is in there."""
        return os.path.relpath(path, self._cwd) if Path(path).is_relative_to(self._cwd) else path

    def text(self, lead: str, *, has_run: bool = False) -> str:
        """Return the answer to the user."""
        lines = [f"{lead}."]
        lines += [f"Restored: {', '.join(self.written)}."] if self.written else []
        lines += [f"Deleted: {', '.join(self.deleted)}."] if self.deleted else []
        lines += [f"Left as they are: {', '.join(self.left)}."] if self.left else []
        lines += ["What commands and other tools have changed is not undone."] if has_run else []
        return "\n\n".join(lines)


def _digest_of(text: str | None) -> str:
    return "" if text is None else _digest(text)


def _digest(text: str) -> str:
    """Return a digest of a text, whatever line ends and mark an editor gives it."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
