"""Announces, updates and settles the tool calls of one prompt, each under one id.

Models announce calls while they write them, argument by argument; nodes run them, more than once if they are
tried again; results come as messages. Each model chooses the ids of its calls for itself: that of an agent
which a tool has started may have the id of the tool's own call. So whoever tells something of a call names it
by its key: at the top the model's id, in another call one of its own for that id in there. The client knows
the call by the model's id, unless that was used before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
from msgspec import UNSET

from coupler.agent.content import json_value
from coupler.agent.tool_call import Call, cancelled_meta, step_into, step_out_of
from coupler.events.fold import text_content
from coupler.langchain.current import further_rules
from coupler.langchain.file_backends import backend_files
from coupler.langchain.presentation import tool_metadata
from coupler.langchain.tool_arguments import partial_object
from coupler.schema.v1 import (
    Content,
    Diff,
    PermissionToolCall,
    Terminal,
    TextContent,
    ToolCallContent,
    ToolKind,
)

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from coupler.agent.tool_call import Ledger
    from coupler.agent.turn import Turn
    from coupler.langchain.current import Current
    from coupler.langchain.presentation import Presentation
    from coupler.permission.action import Action
    from coupler.permission.decision import Permission
    from coupler.permission.rules import Rule
    from coupler.schema.v1 import ContentBlock, ToolCallLocation

REPORT_INTERVAL = 0.05
"""Seconds between two reports of arguments that a model is still writing."""

REPORT_GROWTH = 1.5
"""Factor by which arguments grow between two reports, so that all reports are in proportion to the last."""

LONGEST_PARTIAL = 64 * 1024
"""Characters of arguments that are looked at before they are complete."""

LONGEST_ID = 200
LONGEST_NAME = 200
"""Characters of what a model calls a call, or a tool."""

STOPPED = "the agent stopped before this was done"


class EditedCall(NamedTuple):
    """A call whose arguments the user has changed."""

    name: str
    before: dict[str, Any]
    after: dict[str, Any]


class Nesting(NamedTuple):
    """A call that is made in another one, its `parent`, which has this name and these arguments."""

    parent: str
    name: str
    arguments: dict[str, Any]
    model_id: str
    key: str


class ToolCalls:
    """Tells the client everything about the tool calls of one prompt."""

    def __init__(self, turn: Turn, presentation: Presentation, tools: dict[str, BaseTool]) -> None:
        self._turn = turn
        self._presentation = presentation
        self._tools = tools
        self._calls: dict[str, _CallState] = {}
        self._nested: dict[tuple[str, str], str] = {}
        self._ids: dict[str, str] = {}
        self.shown: set[str] = set()
        """Calls whose tools have shown their results themselves: nothing is added when they end."""
        self.permitted: set[str] = set()
        """Calls that were decided about already: nobody is asked again."""
        self.approved: set[str] = set()
        """Calls that the user has approved, so that another question about them is not asked."""
        self.edited: dict[str, EditedCall] = {}
        """Calls that the user has changed; when they run again after an interrupt, nobody is asked again."""
        self.failures: dict[str, str] = {}
        """Reasons why calls end as failed although their tools have returned something, by key."""
        self.refused: dict[str, str] = {}
        """Reasons of calls that must not run although nobody else stops them, by key."""

    def __contains__(self, id: str) -> bool:
        return id in self._calls

    def key(self, id: str, parent: str | None) -> str:
        """Return the key of the call with this id, if it is made in the call `parent`.

        Unlike everything else here, this may be asked from any thread.
        """
        if parent is None:
            return id
        key = self._nested.get((parent, id))
        if key is None:
            # No model can write it: what was permitted to one call is not what another finds permitted.
            new = f"{id[:LONGEST_ID]}_{os.urandom(8).hex()}"
            self._ids[new] = id
            # A tool in a thread may ask for it while the loop still tells what the model has written.
            key = self._nested.setdefault((parent, id), new)
        return key

    def nesting(self, key: str) -> list[Nesting]:
        """Return in which calls a call is made, the outermost first; none at the top."""
        places = {each: place for place, each in self._nested.items()}
        found: list[Nesting] = []
        while key in places and places[key][0] in self._calls:
            parent, model_id = places[key]
            found.insert(0, Nesting(parent, self.name(parent), self.arguments(parent), model_id, key))
            key = parent
        return found

    def announce_nesting(self, nesting: Sequence[Nesting]) -> str | None:
        """Begin the calls around one of an earlier prompt, which keeps its key; returns the innermost's."""
        around = None
        for parent, name, arguments, model_id, key in nesting:
            self._nested[parent, model_id], self._ids[key] = key, model_id
            self.announce(parent, name, arguments, parent=around)
            around = parent
        return around

    def open_key(self, id: str, parent: str | None) -> str:
        """Return the key of a call in `parent`; if there is none, that of the only open one elsewhere."""
        key = self.key(id, parent)
        if key in self._calls:
            return key
        others = [each for each in self.open_ids if self._ids.get(each, each) == id]
        return others[0] if len(others) == 1 else key

    def reviewed_key(self, id: str, name: str, arguments: dict[str, Any]) -> str:
        """Return the key of the latest open call of this tool that a review is about, wherever it is made."""
        alike = [
            each for each in self.open_ids if self._ids.get(each, each) == id and self.name(each) == name
        ]
        exact = [each for each in alike if self.arguments(each) == arguments]
        return next(reversed(exact or alike), id)

    def withdraw(self, key: str, name: str, arguments: dict[str, Any]) -> None:
        """Withdraw the permission of a call that is made otherwise than was decided about."""
        if not self.is_like(key, name, arguments):
            self.permitted.discard(key)
            self.approved.discard(key)

    def refuse(self, key: str, reason: str) -> None:
        """Keep a call from running, whoever permits it."""
        self.permitted.discard(key)
        self.approved.discard(key)
        self.refused[key] = reason

    def is_like(self, key: str, name: str, arguments: dict[str, Any]) -> bool:
        """True if the call was announced for this tool, with these arguments."""
        call = self._calls.get(key)
        return call is not None and call.name == name and call.arguments == arguments

    def is_open(self, id: str) -> bool:
        """True if the call was announced and has not ended."""
        return id in self._calls and not self._calls[id].is_over

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The keys of the calls that have not ended, in the order of their announcement."""
        return tuple(call_id for call_id, call in self._calls.items() if not call.is_over)

    def open_inside(self, id: str) -> tuple[str, ...]:
        """Return the keys of open calls that are made inside of this one."""
        around = self._calls[id].client_id
        return tuple(each for each in self.open_ids if self._calls[each].parent == around)

    @property
    def running_ids(self) -> tuple[str, ...]:
        """The keys of the calls that run."""
        running = (call_id for call_id, call in self._calls.items() if call.is_running and not call.is_over)
        return tuple(running)

    @property
    def never_begun(self) -> list[str]:
        """The ids of calls at the top whose tools are known and were never started."""
        return [
            key
            for key, call in self._calls.items()
            if key not in self._ids and not call.is_running and self._tool(call) is not None
        ]

    def client_id(self, id: str) -> str:
        """The id that the client knows the call by."""
        return self._calls[id].client_id

    def model_id(self, key: str) -> str:
        """The id that the model has given to the call."""
        return self._ids.get(key, key)

    def name(self, id: str) -> str:
        """The name of the tool that is called."""
        return self._calls[id].name

    def arguments(self, id: str) -> dict[str, Any]:
        """Return the arguments of a call, as far as they are known."""
        return self._calls[id].arguments

    def announce(
        self, id: str, name: str, arguments: dict[str, Any] | None = None, *, parent: str | None = None
    ) -> None:
        """Begin a call; announced again, only its arguments are completed.

        `parent` is the call in which this one is made, as by the agent that a tool has started.
        """
        call = self._calls.get(id)
        if call is None:
            self._calls[id] = call = _CallState(
                name, self._free_id(self._ids.get(id, id)), arguments or {}, self._known_parent(parent)
            )
            if self._presentation.starts(name):
                self._tell_beginning(call)
        elif arguments is not None and (call.is_partial or arguments != call.arguments):
            self.rewrite(id, arguments)

    def identify(self, id: str, tool: BaseTool) -> None:
        """Set the tool that a call runs: it says which files the call's paths mean.

        Two agents may have tools of one name that work on different files. So what was decided about other
        files is withdrawn, and of a call that is made in another one no files are shown before its tool is
        known.
        """
        call = self._calls[id]
        before = self._tool(call)
        if backend_files(before) != backend_files(tool):
            self.permitted.discard(id)
            self.approved.discard(id)
        was_known = self._knows_files(call) and before is tool
        call.tool = tool
        if not was_known and not call.is_over:
            self._tell_changes(call)
            if call.arguments and not call.is_partial:
                self._preview(call)

    def free(self, id: str) -> None:
        """Forget a call that is over, because a new one may have the same id.

        Some models count their calls from nothing in every message.
        """
        if id in self._calls and self._calls[id].is_over:
            del self._calls[id]
            self.shown.discard(id)

    def write(self, id: str, piece: str) -> None:
        """Add a piece of the arguments, which are JSON, and report them from time to time."""
        call = self._calls[id]
        call.written += piece
        now = time.monotonic()
        if call.is_over or now < call.next_report or len(call.written) < call.next_length:
            return
        if len(call.written) > LONGEST_PARTIAL:
            return
        call.next_report, call.next_length = now + REPORT_INTERVAL, len(call.written) * REPORT_GROWTH
        arguments = partial_object(call.written)
        if arguments and arguments != call.arguments:
            call.arguments, call.is_partial = arguments, True
            self._tell_changes(call)

    def finish_writing(self, id: str) -> None:
        """Report all arguments that were written for a call that nobody announces once more."""
        call = self._calls[id]
        arguments = partial_object(call.written)
        if arguments and not call.is_over and arguments != call.arguments:
            self.rewrite(id, arguments)

    def rewrite(self, id: str, arguments: dict[str, Any]) -> None:
        """Set the final arguments of a call, which only an edit may change."""
        call = self._calls[id]
        call.arguments, call.is_partial = arguments, False
        self._tell_changes(call)
        self._preview(call)

    def run(self, id: str) -> None:
        """Show the call as running, for the first time or again."""
        call = self._calls[id]
        if not call.is_running and not call.is_over:
            call.is_running = True
            if call.is_told:
                self._ledger.update(call.client_id, status="in_progress")

    def is_running(self, id: str) -> bool:
        """True if the call is shown as running."""
        return self._calls[id].is_running

    def begin(self, id: str) -> None:
        """Note that the call's tool was started; one that asks for itself runs once it is permitted."""
        if not asks_for_itself(self._tool(self._calls[id])):
            self.run(id)

    def show(self, id: str) -> str:
        """Show the call to the client in any case, because the user is asked about it.

        Returns the id that the client knows it by.
        """
        call = self._calls[id]
        if not call.is_told:
            self._tell_beginning(call)
        return call.client_id

    def locate(self, id: str, places: Sequence[ToolCallLocation]) -> None:
        """Set the places that the tool itself has found, in place of those from its arguments."""
        call = self._calls[id]
        call.places = tuple(places)
        self._tell_changes(call)

    def append(self, id: str, content: str | ContentBlock | ToolCallContent, *, starts: bool = True) -> None:
        """Show another piece of what the call puts out, which runs with it unless that only describes it."""
        call = self._calls[id]
        if call.is_over or not self._presentation.results(call.name):
            return
        if isinstance(content, str):
            content = self._presentation.output(id, content)
            if not content:
                return
            call.shown += content
        if call.is_told:
            self._ledger.append(call.client_id, _item(content), starts=starts and not call.is_running)
            call.is_running = call.is_running or starts

    def settle(
        self,
        id: str,
        status: str,
        *,
        content: list[ToolCallContent] | None = None,
        output: Any = UNSET,
        reason: str | None = None,
        cancelled: bool = False,
    ) -> None:
        """End a call as completed or failed: with what it shows in the end, and why it failed."""
        # Some models count their calls from nothing in every message: what was permitted is over with this.
        self.permitted.discard(id)
        self.approved.discard(id)
        self.refused.pop(id, None)
        self.edited.pop(id, None)
        failure = self.failures.pop(id, None)
        if status == "completed" and failure is not None:
            status, reason = "failed", failure
        call = self._calls[id]
        if call.is_over:
            return
        call.is_over = True
        shows = self._presentation.results(call.name)
        if not call.is_told:
            if not shows:
                return
            self._tell_beginning(call)
        left = self._left_to_show(call, content or []) if shows and id not in self.shown else []
        told: dict[str, Any] = {"raw_output": json_value(output)} if shows and output is not UNSET else {}
        if cancelled:
            told["meta"] = cancelled_meta(call.meta)
        why = reason if shows or status == "failed" else None
        self._ledger.settle(call.client_id, status, why, left, **told)

    def settle_open(self, status: str, reason: str) -> None:
        """End everything that has not ended."""
        for call_id in self.open_ids:
            self.settle(call_id, status, reason=reason)

    def _tell_changes(self, call: _CallState) -> None:
        if call.is_told and not call.is_over and (changed := self._changed(call)):
            self._ledger.update(call.client_id, **changed)

    def _preview(self, call: _CallState) -> None:
        """Show what the call is about to change, so that the user sees what is asked about."""
        if not call.is_told or call.is_over or not self._presentation.results(call.name):
            return
        tool = self._tool(call)
        if shows_own_changes(tool) or not self._knows_files(call):
            return
        arguments = self._presentation.arguments(call.arguments)
        preview = tuple(self._presentation.preview(call.name, arguments, tool))
        if preview != call.preview:
            call.preview = preview
            self._ledger.replace(call.client_id, preview)

    def _tell_beginning(self, call: _CallState) -> None:
        self._turn.check_alive()
        self._turn.begin_new_message()
        call.is_told = True
        told = self._changed(call)
        title, kind = told.pop("title"), told.pop("kind")
        self._ledger.announce(
            title,
            id=call.client_id,
            kind=kind,
            status="in_progress" if call.is_running else "pending",
            name=call.name[:LONGEST_NAME],
            **told,
            **({"meta": call.meta} if call.meta else {}),
        )
        if call.arguments and not call.is_partial:
            self._preview(call)

    def _changed(self, call: _CallState) -> dict[str, Any]:
        """Return the fields of the call that have changed since the client was told of them."""
        tool, arguments = self._tool(call), self._presentation.arguments(call.arguments)
        places = call.places
        if self._knows_files(call):
            places = self._presentation.locations(call.name, arguments, call.is_partial, places, tool)
        told = {
            "title": self._presentation.title(call.name, tool, arguments, call.is_partial),
            "kind": self._presentation.kind(call.name, tool, arguments),
            "locations": places or (() if "locations" in call.told else UNSET),
            "raw_input": json_value(arguments) if arguments else UNSET,
        }
        changed = {name: value for name, value in told.items() if value != call.told.get(name, UNSET)}
        call.told |= changed
        return changed

    def _tool(self, call: _CallState) -> BaseTool | None:
        return call.tool or self._tools.get(call.name)

    def _knows_files(self, call: _CallState) -> bool:
        return call.tool is not None or call.parent is None

    def _left_to_show(self, call: _CallState, content: list[ToolCallContent]) -> list[ToolCallContent]:
        """Return what came out and was not shown while the call ran."""
        text = "".join(_text_of(item) for item in content)
        if call.shown and content and all(_text_of(item) for item in content):
            if call.shown.rstrip().endswith(text.strip()):
                return []
            if text.startswith(call.shown):
                return [text_content(text[len(call.shown) :])]
        return content

    def _known_parent(self, parent: str | None) -> str | None:
        return self._calls[parent].client_id if parent in self._calls else parent

    def _free_id(self, id: str) -> str:
        """Return an id that is new in the session and valid, as models may repeat or invent any."""
        if not id or len(id) > LONGEST_ID or not id.isprintable():
            return f"call_{os.urandom(8).hex()}"
        return f"{id}_{os.urandom(4).hex()}" if self._ledger.knows(id) else id

    @property
    def _ledger(self) -> Ledger:
        return self._turn.session.outlet.ledger


class _CallState:
    """The state of one call."""

    def __init__(self, name: str, client_id: str, arguments: dict[str, Any], parent: str | None) -> None:
        self.name = name
        self.client_id = client_id
        self.arguments = arguments
        self.parent = parent
        self.tool: BaseTool | None = None
        self.meta: dict[str, Any] = {"coupler": {"parent": parent}} if parent else {}
        self.is_partial = False
        self.written = ""
        self.shown = ""
        self.preview: tuple[ToolCallContent, ...] = ()
        self.places: tuple[ToolCallLocation, ...] = ()
        self.told: dict[str, Any] = {}
        self.next_report = 0.0
        self.next_length = 0.0
        self.is_told = False
        self.is_running = False
        self.is_over = False


def shows_own_changes(tool: BaseTool | None) -> bool:
    """True if a tool asks for permission and shows what it changes by itself, as those of the editor do."""
    return tool_metadata(tool).get("asks") is True


def asks_for_itself(tool: BaseTool | None) -> bool:
    """True if a tool asks for permission before it does something: those of MCP servers and of the editor."""
    return "server" in tool_metadata(tool) or shows_own_changes(tool)


def _item(content: str | ContentBlock | ToolCallContent) -> ToolCallContent:
    if isinstance(content, str):
        return text_content(content)
    return content if isinstance(content, Content | Diff | Terminal) else Content(content)


def _text_of(item: ToolCallContent) -> str:
    is_text = isinstance(item, Content) and isinstance(item.content, TextContent)
    return item.content.text if is_text else ""  # type: ignore[union-attr]


class JoinedCall(Call):
    """The block of code that carries out a model's tool call, which was announced with the key `key`.

    `ToolCalls` announces and settles it; in between, what files, commands and questions of the turn belong to
    is the innermost `Call`. This is that call: entering it announces nothing, and leaving it settles nothing.
    """

    def __init__(
        self,
        current: Current,
        key: str,
        title: str,
        *,
        kind: ToolKind,
        name: str | None = None,
        path: str | None = None,
        line: int | None = None,
        command: str | None = None,
        cwd: str | None = None,
        server: str | None = None,
        url: str | None = None,
        leaves_out_denied: bool = False,
        roots: tuple[str, ...] = (),
        more_paths: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            current.turn,
            title,
            kind=kind,
            name=name,
            path=path,
            line=line,
            input=current.calls.arguments(key) or None,
            id=current.calls.client_id(key),
            command=command,
            cwd=cwd,
            server=server,
            url=url,
        )
        self._roots = roots
        self._paths += map(self._absolute, more_paths)
        self._leaves_out_denied = leaves_out_denied
        self._calls = current.calls
        self._key = key
        self.was_answered = False
        """True if a person has answered the question for permission."""

    async def __aenter__(self) -> Self:
        self._turn.check_alive()
        self._is_open = True
        step_into(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        step_out_of(self)
        self._is_open = False
        if self._failure is not None:
            self._calls.failures[self._key] = self._failure

    async def permitted(self, *, deadline: float | None = None) -> bool:
        """True if the call may go on; asks at most once in each call."""
        if self._key in self._calls.refused:
            self._refused = self._calls.refused[self._key]
            return False
        if self._key in self._calls.permitted:
            self._is_permitted = True
            return True
        is_permitted = await super().permitted(deadline=deadline)
        if is_permitted:
            self._calls.permitted.add(self._key)
        return is_permitted

    def _action(self) -> Action:
        action = super()._action()
        return msgspec.structs.replace(
            action, roots=(*action.roots, *self._roots), leaves_out_denied=self._leaves_out_denied
        )

    def _decided(self, permission: Permission) -> bool:
        self.was_answered = permission.is_answered
        return super()._decided(permission)

    def _further_rules(self) -> Sequence[Rule]:
        return further_rules.get()

    def start(self) -> None:
        """Report that the call runs."""
        self._calls.run(self._key)

    def _as_asked(self) -> PermissionToolCall:
        self._is_running = self._calls.is_running(self._key)
        return super()._as_asked()

    def _go_on(self) -> None:
        self._calls.run(self._key)

    async def _show(self, item: ToolCallContent, *, starts: bool) -> None:
        self._turn.check_alive()
        self._calls.append(self._key, item, starts=starts)
        await self._turn.session.outlet.wait_for_room()

    async def _report(self, *, starts: bool = False, **fields: Any) -> None:
        """Report nothing: `ToolCalls` presents the calls of models."""
        self._turn.check_alive()


OutputWriter = Callable[[Any], None]

_writer_variable: ContextVar[OutputWriter | None] | None


try:
    from langgraph.pregel._tools import _tool_call_writer as _writer_variable
except ImportError:
    _writer_variable = None


HAS_OUTPUT_WRITER = _writer_variable is not None
"""True if LangGraph's output writer was found; otherwise the output of tools comes by the stream."""


def write_to(writer: OutputWriter | None) -> OutputWriter | None:
    """Have the tools of the running code write their output to this; returns the writer before.

    LangGraph's `runtime.emit_output_delta` uses the writer. LangGraph sets it itself if it is asked for the
    stream of mode `tools`; but then it also listens to every token of every model, for nothing, and each of
    them takes longer. So it is set here; a version of LangGraph that has it elsewhere is asked for that
    stream.
    """
    if _writer_variable is None:
        return None
    before = _writer_variable.get()
    _writer_variable.set(writer)
    return before
