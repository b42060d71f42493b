"""Runs a prompt turn: agents report and act through `Turn`, `Prompting` runs them and answers the prompt.

Usage, notices, compactions and plans are here too. Only some clients can show notices and compactions; to the
others they are said as messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType, json

from coupler import events
from coupler.agent.agent import Agent, Invocation, find_invocation
from coupler.agent.content import LONGEST_PIECE, block, chosen, pieces, plain_text, prompt_text
from coupler.agent.errors import AuthRequiredError, TurnFailedError, agent_failed, describe
from coupler.agent.output import UNREDACTED_REQUESTS
from coupler.agent.terminal import Terminal
from coupler.agent.tool_call import Call
from coupler.events import Compaction, CompactionSummary, Content, Notice, Text, Thought, Usage
from coupler.events.events import Role
from coupler.events.records import TurnEnd
from coupler.events.v1_codec import EmittedEvent
from coupler.runtime.exceptions import only_cause
from coupler.schema.v1 import (
    ContentBlock,
    Cost,
    PlanEntry,
    PlanEntryPriority,
    PromptResponse,
    StopReason,
    TextContent,
    ToolKind,
)
from coupler.wire.messages import CANCELLED, RpcError, encode
from coupler.wire.peer import Peer, Request

if TYPE_CHECKING:
    from coupler.agent.editor import Editor
    from coupler.agent.elicitation import Answer
    from coupler.agent.files import Files
    from coupler.agent.mcp_servers import TurnMcp
    from coupler.agent.session import Session
    from coupler.schema.unstable import Usage as TokenUsage

log = logging.getLogger("coupler.agent")

T = TypeVar("T")

CANCEL_GRACE = 5.0
"""Seconds between asking cancelled work to end and ending it."""

LAST_MOMENTS = 0.3
"""Seconds that the agent's code has after `CANCEL_GRACE`, to clean up, before it is left behind."""

STOP_REASONS: tuple[str, ...] = get_args(StopReason)

NOTICES = "session.notices"
COMPACTION = "session.compaction"
"""Capabilities of clients that can show notices and compactions."""

SEVERITIES = ("info", "warning", "error")

MOST_TOKENS = 2**63 - 1

PRIORITIES: tuple[str, ...] = get_args(PlanEntryPriority)


class TurnEndedError(RuntimeError):
    """Something was reported for a turn whose prompt was answered."""


class Turn:
    """One prompt turn, as an agent's code uses it. It is invalid once the prompt was answered."""

    def __init__(
        self, session: Session, blocks: tuple[ContentBlock, ...], prompt_meta: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.blocks = blocks
        self.prompt_meta = prompt_meta
        """The `_meta` of the prompt, such as the trace that it belongs to."""
        self.grace = CANCEL_GRACE
        """Seconds that what the turn runs has to end by itself, once the turn is cancelled."""
        self.tokens: TokenUsage | None = None
        """The tokens that the turn has used, if its agent counts them; see `count_tokens`."""
        self._meta: dict[str, Any] | None = None
        self._text: tuple[tuple[ContentBlock, ...], str] | None = None
        self._ended_by: type[BaseException] | None = None
        self._message: tuple[Role, str] | None = None
        self.is_cancelled = False
        self._work: set[asyncio.Task[Any]] = set()

    @property
    def text(self) -> str:
        """The prompt as text: its text blocks, links and embedded text."""
        # An agent may put other blocks into the place of the prompt's own.
        if self._text is None or self._text[0] is not self.blocks:
            self._text = self.blocks, prompt_text(self.blocks)
        return self._text[1]

    @property
    def meta(self) -> dict[str, Any] | None:
        """The `_meta` of the answer to the prompt, for clients that know more than the protocol."""
        return self._meta

    @meta.setter
    def meta(self, meta: dict[str, Any] | None) -> None:
        # A copy, and what JSON cannot hold is refused here: a prompt must not lack its answer by it.
        self._meta = None if meta is None else json.decode(encode(meta), type=dict[str, Any])

    @property
    def command(self) -> Invocation | None:
        """The slash command that the prompt invokes, if it is one of the session's."""
        return find_invocation(self.session.commands, self.blocks)

    @property
    def terminal(self) -> Terminal:
        """Runs commands for the turn."""
        return Terminal(self)

    @property
    def files(self) -> Files:
        """The files of the session's directories, as the editor has them or on the disk."""
        # Imported on use: most agents touch none, and all of them have to start quickly.
        from coupler.agent.files import Files

        return Files(self)

    @property
    def mcp(self) -> TurnMcp:
        """The tools of the session's MCP servers."""
        from coupler.agent.mcp_servers import TurnMcp

        return TurnMcp(self, self.session.servers)

    @property
    def editor(self) -> Editor:
        """The client, and its capabilities."""
        return self.session.editor

    async def say(self, content: str | ContentBlock) -> None:
        """Send a piece of the answer. Pieces in a row are one message."""
        if type(content) is str and 0 < len(content) <= LONGEST_PIECE:
            # What models stream: worth a way without detours.
            self.check_alive()
            outlet = self.session.outlet
            if not outlet.say(content, self._message_id("agent")):
                await outlet.wait_for_room()
        elif isinstance(content, str):
            for piece in pieces(plain_text(content, "what an agent says")):
                await self.say(piece)
        else:
            content = block(content, "what an agent says")
            await self.report(Content(content, "agent", self._message_id("agent")))

    async def think(self, text: str) -> None:
        """Send a piece of the reasoning, which clients show apart from the answer."""
        for piece in pieces(plain_text(text, "what an agent thinks")):
            await self.report(Thought(piece, self._message_id("thought")))

    async def plan(self, *entries: str) -> Plan:
        """Show a plan; the entries can then be started, completed and added to."""
        self.begin_new_message()
        plan = Plan(self.report, entries)
        await plan.send()
        return plan

    async def ask(self, message: str, spec: Any) -> Answer[Any]:
        """Ask the user for what `spec` describes: a type with fields, a choice, or a JSON Schema.

        To decline is an answer too: look at its `accepted`. A client that cannot show forms gets a choice as
        a permission dialog; other questions are put in the chat, and the answer is then declined.
        """
        # Imported on use, here and below: most turns ask nothing.
        from coupler.agent.elicitation import ask

        return await ask(self, message, spec)

    async def ask_url(self, message: str, url: str) -> Answer[None]:
        """Ask the user to open a page: the only way to ask for something secret."""
        from coupler.agent.elicitation import ask_url

        return await ask_url(self, message, url)

    async def complete_url(self, id: str) -> bool:
        """Tell the client that what a page was opened for is done; False if no such page is open."""
        from coupler.agent.elicitation import notify_complete

        return notify_complete(self, id)

    async def usage(self, used: int, size: int, *, cost: float | None = None, currency: str = "USD") -> None:
        """Report how full the context is, in tokens, and what the session has cost so far."""
        await self.report(usage_event(used, size, cost, currency))

    async def count_tokens(
        self,
        input: int,
        output: int,
        *,
        cached_read: int | None = None,
        cached_write: int | None = None,
        thought: int | None = None,
        total: int | None = None,
    ) -> None:
        """Say what the whole turn has used; the answer to the prompt reports the last that was said."""
        self.check_alive()
        self.tokens = token_usage(input, output, cached_read, cached_write, thought, total)

    async def notice(self, title: str, description: str | None = None, *, severity: str = "info") -> None:
        """Tell the user something that is not part of the conversation: "info", "warning" or "error"."""
        notice = make_notice(title, description, severity)
        if self.editor.offers(NOTICES):
            await self.report(notice)
        else:
            await self.say_apart(notice_text(notice))

    def compaction(self) -> Compacting:
        """Show that the context is being shortened, as an async context manager; see `Compacting`."""
        return Compacting(self)

    async def say_apart(self, text: str) -> None:
        """Say something as a message of its own."""
        self.begin_new_message()
        await self.say(text)
        self.begin_new_message()

    def tool(
        self,
        title: str,
        *,
        kind: ToolKind = "other",
        name: str | None = None,
        path: str | None = None,
        line: int | None = None,
        input: Any = None,
        id: str | None = None,
        command: str | Sequence[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Call:
        """A tool call, as an async context manager: leaving it completes the call, an exception fails it.

        `path`, `command` (for a shell, or as a list of words) with the variables in `env` that it is given
        and the directory `cwd` that it runs in, and `url` are what `call.permitted()` is decided by; the rest
        is for people to see.
        """
        return Call(
            self,
            title,
            kind=kind,
            name=name,
            path=path,
            line=line,
            input=input,
            id=id,
            command=command,
            url=url,
            env=env,
            cwd=cwd,
        )

    async def report(self, event: EmittedEvent) -> None:
        """Send an event, and wait while too much is unsent."""
        self.check_alive()
        self.session.outlet.send(event)
        await self.session.outlet.wait_for_room()

    async def call_editor(self, request: Any, *, deadline: float | UnsetType | None = UNSET) -> Any:
        """Ask the client something that it offers, with one of the schema's request types.

        Files and terminals have 30 s to answer, dialogs have no limit; `deadline` sets another, in seconds.
        A question that is open when the turn ends is taken back.
        """
        self.check_alive()
        if type(request) not in UNREDACTED_REQUESTS:
            # A dialog stands between what was said before it and after it.
            self.begin_new_message()
        return await self.own(self.session.outlet.ask(request, deadline))

    async def own(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that is cancelled with the turn at the latest, whichever task began it."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        try:
            return await task
        finally:
            self._work.discard(task)

    @property
    def is_alive(self) -> bool:
        """True while the prompt is not answered."""
        return self._ended_by is None

    def check_alive(self) -> None:
        """Raise if the prompt was answered: nothing of this turn may follow its answer."""
        if self._ended_by is not None:
            raise self._ended_by("the turn has ended: its prompt was answered")

    def begin_new_message(self) -> None:
        """End the current message: what is said next is another one."""
        self._message = None
        self.session.outlet.end_message()

    def end(self, by: type[BaseException] = TurnEndedError) -> None:
        """End the turn, because the prompt is answered; whoever still uses it gets this exception."""
        self._ended_by = by
        for task in self._work:
            task.cancel()

    def _message_id(self, role: Role) -> str:
        if self._message is None or self._message[0] != role:
            self._message = (role, self.session.outlet.new_message_id())
        return self._message[1]


class Prompting:
    """Runs an agent's code for one `session/prompt` and answers the request exactly once.

    Whatever the agent's code does, the answer comes: after a return, an exception, a cancel, and also when
    the code ignores the cancel. Before it goes out every open tool call is settled, and after it the turn
    cannot be used any more.
    """

    def __init__(self, request: Request, turn: Turn, agent: Agent, ended: Callable[[], None]) -> None:
        self._request = request
        self._turn = turn
        self._agent = agent
        self._ended = ended
        self._has_begun = False
        self._is_cancelled = False
        self._is_over = False
        self._patience: asyncio.TimerHandle | None = None

    def start(self, peer: Peer) -> None:
        """Start the turn; a cancel that was read right behind the prompt finds it running."""
        self._peer = peer
        self._task = peer.start(self._run())
        self._request.when_cancelled(self.cancel)

    def cancel(self, grace: float | None = None) -> None:
        """Cancel the agent's code; what has not ended after the grace is left behind."""
        grace = CANCEL_GRACE if grace is None else grace
        self._turn.grace = min(self._turn.grace, grace)
        if not self._is_cancelled:
            self._is_cancelled = self._turn.is_cancelled = True
            # A task that is cancelled before its first step never enters its own code.
            if self._has_begun:
                self._task.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace + LAST_MOMENTS
        if self._patience is not None:
            # Who cancels again and again must not put off the end.
            deadline = min(deadline, self._patience.when())
            self._patience.cancel()
        self._patience = loop.call_at(deadline, self._abandon)

    async def _run(self) -> None:
        self._has_begun = True
        if self._is_cancelled:
            self._conclude_cancelled()
            return
        try:
            await self._turn.session.until_ready()
        except RpcError as error:
            self._refuse(error)
            return
        except asyncio.CancelledError:
            self._conclude_cancelled()
            return
        try:
            await self._warn()
            self._conclude_stopped(await self._agent.perform(self._turn) or "end_turn")
        except asyncio.CancelledError:
            self._conclude_cancelled()
        except BaseException as error:
            self._conclude_failed(error)

    async def _warn(self) -> None:
        """Tell what was left out when the session was opened: clients may drop what comes before a turn."""
        session = self._turn.session
        warnings, session.warnings = session.warnings, []
        for sentence in warnings:
            await self._turn.notice(sentence, severity="warning")

    def _conclude_stopped(self, reason: str) -> None:
        if self._is_cancelled:
            self._conclude_cancelled()
        elif reason in STOP_REASONS:
            self._settle("completed")
            self._finish(reason)
        else:
            known = ", ".join(STOP_REASONS)
            self._conclude_failed(
                ValueError(f"the agent returned {reason!r}; a stop reason is one of {known}")
            )

    def _conclude_failed(self, error: BaseException) -> None:
        if self._is_cancelled:
            log.info("the cancelled turn raised %s", describe(error))
            self._conclude_cancelled()
            return
        cause = only_cause(error)
        if isinstance(cause, AuthRequiredError):  # whoever has to log in has done nothing wrong
            log.info("the turn needs a login: %s", cause.message)
        elif isinstance(
            cause, TurnFailedError
        ):  # no fault of the code, whose traceback would explain nothing
            log.info("the turn cannot be answered: %s", cause.message)
        else:
            log.error("the agent's turn failed", exc_info=error)
        self._settle("failed", describe(error))
        self._finish(agent_failed(error))

    def _conclude_cancelled(self) -> None:
        if self._is_over:
            return
        self._settle("failed", "cancelled", cancelled=True)
        if self._is_cancelled:
            self._finish("cancelled")
        else:
            self._finish(RpcError.because(CANCELLED, "the agent's code cancelled itself"))

    def _abandon(self) -> None:
        if not self._is_over:
            log.warning("the cancelled turn did not end in time and is left behind")
            self._conclude_cancelled()

    def _settle(self, status: str, reason: str | None = None, *, cancelled: bool = False) -> None:
        if not self._is_over:
            self._turn.session.outlet.ledger.settle_all(status, reason, cancelled=cancelled)

    def _refuse(self, error: RpcError) -> None:
        """Answer a turn that never began with an error, without trying to store its end."""
        if not self._is_over:
            self._end()
            self._answer(error)

    def _finish(self, outcome: str | RpcError) -> None:
        if self._is_over:
            return
        self._end()
        end = TurnEnd(error=outcome.message) if isinstance(outcome, RpcError) else TurnEnd(reason=outcome)
        # Who cancelled wants to hear that, also of a turn that could not be kept.
        self._turn.session.end_turn(
            end, lambda error: self._answer(outcome if error is None or self._is_cancelled else error)
        )

    def _end(self) -> None:
        self._is_over = True
        self._turn.end(asyncio.CancelledError if self._is_cancelled else TurnEndedError)
        if self._patience is not None:
            self._patience.cancel()

    def _answer(self, outcome: str | RpcError) -> None:
        self._ended()
        if isinstance(outcome, RpcError):
            self._request.fail(outcome)
        else:
            self._request.answer(self._response(outcome))
        # Somebody waits for just this: a tick of the loop is a tenth of a short turn's round trip.
        self._peer.flush()

    def _response(self, reason: str) -> PromptResponse:
        meta = self._turn.meta or UNSET
        if self._turn.tokens is None:
            return PromptResponse(reason, meta=meta)  # type: ignore[arg-type]
        # Imported on use: what was counted has loaded it.
        from coupler.schema import unstable

        return unstable.PromptResponse(reason, usage=self._turn.tokens, meta=meta)  # type: ignore[arg-type]


def usage_event(used: int, size: int, cost: float | None, currency: str) -> Usage:
    """Check and make a report of context usage and cost."""
    for name, value in (("used", used), ("size", size)):
        if not 0 <= index(value) <= MOST_TOKENS:
            raise ValueError(f"`{name}` is a number of tokens from 0 on, not {value}")
    if cost is None:
        return Usage(index(used), index(size))
    if not 0 <= cost < float("inf"):
        raise ValueError(f"a cost is an amount from 0 on, not {cost}")
    return Usage(index(used), index(size), Cost(float(cost), plain_text(currency, "a currency")))


def token_usage(
    input: int,
    output: int,
    cached_read: int | None,
    cached_write: int | None,
    thought: int | None,
    total: int | None,
) -> TokenUsage:
    """Check and make the token counts of a turn; without a total it is the sum."""
    # Imported on use: most agents count nothing.
    from coupler.schema.unstable import Usage as TokenUsage

    kinds = {
        "input_tokens": input,
        "output_tokens": output,
        "cached_read_tokens": cached_read,
        "cached_write_tokens": cached_write,
        "thought_tokens": thought,
    }
    known: dict[str, Any] = {name: index(count) for name, count in kinds.items() if count is not None}
    known["total_tokens"] = sum(known.values()) if total is None else index(total)
    for name, count in known.items():
        if not 0 <= count <= MOST_TOKENS:
            raise ValueError(f"`{name}` is a number of tokens from 0 on, not {count}")
    return TokenUsage(**known)


def make_notice(title: str, description: str | None, severity: str) -> Notice:
    """Check and make a notice."""
    title = plain_text(title, "a notice's title")
    if not title:
        raise ValueError("a notice needs a title")
    text = plain_text(description, "a notice's description") if description is not None else None
    return Notice(chosen(severity, SEVERITIES, "a notice's severity"), title, text)


def notice_text(notice: Notice) -> str:
    """Spell a notice for clients that show messages only."""
    label = "" if notice.severity == "info" else f"{notice.severity.capitalize()}: "
    return f"{label}{notice.title}" + (f"\n\n{notice.description}" if notice.description else "")


def compaction_text(compaction: Compaction) -> str:
    """Spell how a compaction ended, for clients that show messages only."""
    match compaction.status:
        case "completed":
            blocks = compaction.summary or ()
            summary = "".join(block.text for block in blocks if isinstance(block, TextContent))
            return "The earlier conversation was summarized" + (f":\n\n{summary}" if summary else ".")
        case "cancelled":
            return "Summarizing the earlier conversation was cancelled."
        case _:
            return (
                f"The earlier conversation could not be summarized: {compaction.error or 'no reason given'}"
            )


class Compacting:
    """A compaction while it runs; leaving the block completes it, an exception fails it.

    What `summarize` is given is shown to the user: the summary that the agent goes on with.
    """

    def __init__(self, turn: Turn) -> None:
        self.id = f"compaction_{os.urandom(8).hex()}"
        self._turn = turn
        self._summary: list[str] = []

    async def __aenter__(self) -> Self:
        self._turn.begin_new_message()
        await self._report(Compaction(self.id, "in_progress"))
        return self

    async def summarize(self, text: str) -> None:
        """Add a piece of the summary."""
        self._summary.append(plain_text(text, "a summary"))
        if self._is_shown and text:
            await self._turn.report(CompactionSummary(self.id, TextContent(text)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._settle(Compaction(self.id, "cancelled"))
        elif error is not None:
            self._settle(Compaction(self.id, "failed", UNSET, describe(error)))
        else:
            await self._report(Compaction(self.id, "completed"))

    @property
    def _is_shown(self) -> bool:
        return self._turn.editor.offers(COMPACTION)

    async def _report(self, compaction: Compaction) -> None:
        if self._is_shown:
            await self._turn.report(compaction)
        elif compaction.status == "in_progress":
            await self._turn.say_apart("Summarizing the earlier conversation…")
        else:
            summary = (TextContent("".join(self._summary)),)
            await self._turn.say_apart(compaction_text(Compaction(self.id, compaction.status, summary)))

    def _settle(self, compaction: Compaction) -> None:
        """Send the end of a compaction without waiting for room: the turn is being cancelled, or fails."""
        if not self._turn.is_alive:
            return
        if self._is_shown:
            self._turn.session.outlet.send(compaction)
        else:
            session = self._turn.session
            session.outlet.send(Text(compaction_text(compaction), session.outlet.new_message_id()))
            self._turn.begin_new_message()


class Plan:
    """A plan that the client is shown whole after each change. An entry is named by its index or its text."""

    def __init__(self, report: Callable[[events.Plan], Awaitable[None]], contents: tuple[str, ...]) -> None:
        self._report = report
        self._entries = [_entry(content, "medium") for content in contents]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PlanEntry]:
        return iter(self._entries)

    async def add(self, content: str, *, priority: PlanEntryPriority = "medium") -> None:
        """Append an entry."""
        self._entries.append(_entry(content, priority))
        await self.send()

    async def start(self, entry: int | str) -> None:
        """Mark an entry as the one being worked on."""
        await self._change(entry, status="in_progress")

    async def complete(self, entry: int | str) -> None:
        """Mark an entry as done."""
        await self._change(entry, status="completed")

    async def prioritize(self, entry: int | str, priority: PlanEntryPriority) -> None:
        """Give an entry another priority."""
        await self._change(entry, priority=chosen(priority, PRIORITIES, "a priority"))

    async def send(self) -> None:
        """Send the plan as it stands."""
        await self._report(events.Plan(tuple(self._entries)))

    async def _change(self, entry: int | str, **fields: str) -> None:
        place = entry if isinstance(entry, int) else self._index_of(entry)
        self._entries[place] = msgspec.structs.replace(self._entries[place], **fields)
        await self.send()

    def _index_of(self, content: str) -> int:
        for place, entry in enumerate(self._entries):
            if entry.content == content:
                return place
        known = ", ".join(repr(entry.content) for entry in self._entries)
        raise ValueError(f"the plan has no entry {content!r}; it has {known or 'none'}")


def _entry(content: object, priority: object) -> PlanEntry:
    priority_word: Any = chosen(priority, PRIORITIES, "a priority")
    return PlanEntry(plain_text(content, "a plan's entry"), priority_word, "pending")
