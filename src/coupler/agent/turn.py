"""A turn: one prompt of the user, and everything an agent can say and do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, UnsetType, json

from coupler.agent.asides import NOTICES, Compacting, make_notice, spoken_notice, tokens, usage
from coupler.agent.call import Call
from coupler.agent.command import Invocation, invoked
from coupler.agent.masked import FUNCTIONAL_REQUESTS
from coupler.agent.plan import Plan
from coupler.agent.prompt_text import prompt_text
from coupler.agent.terminal import Terminal
from coupler.agent.text import LONGEST_PIECE, block, pieces, plain_text
from coupler.events import Content, Thought
from coupler.events.events import Role
from coupler.events.v1_codec import Emitted
from coupler.schema.v1 import ContentBlock, ToolKind
from coupler.wire.messages import encode

if TYPE_CHECKING:
    import os

    from coupler.agent.editor import Editor
    from coupler.agent.files import Files
    from coupler.agent.mcp import TurnMcp
    from coupler.agent.question import Answer
    from coupler.agent.session import Session
    from coupler.schema.unstable import Usage as TokenUsage

T = TypeVar("T")

CANCEL_GRACE = 5.0
"""Seconds between asking cancelled work to end and ending it."""


class TurnEndedError(RuntimeError):
    """Something was reported for a turn whose answer has been sent."""


class Turn:
    """What an agent gets for each prompt. It is dead once the prompt was answered."""

    def __init__(
        self, session: Session, blocks: tuple[ContentBlock, ...], prompt_meta: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.blocks = blocks
        self.prompt_meta = prompt_meta
        """What the prompt carries as `_meta`, such as the trace that it belongs to."""
        self.grace = CANCEL_GRACE
        """Seconds between asking what the turn runs to end and ending it, once it is cancelled."""
        self.tokens: TokenUsage | None = None
        """What the turn has used, as far as its agent counts; see `count_tokens`."""
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
        """What the answer to the prompt carries as `_meta`, for clients that know more than the protocol."""
        return self._meta

    @meta.setter
    def meta(self, meta: dict[str, Any] | None) -> None:
        # A copy, and what JSON cannot hold is refused here: a prompt must not lack its answer by it.
        self._meta = None if meta is None else json.decode(encode(meta), type=dict[str, Any])

    @property
    def command(self) -> Invocation | None:
        """The slash command that the prompt is, if it is one of the session's."""
        return invoked(self.session.commands, self.blocks)

    @property
    def terminal(self) -> Terminal:
        """Where the turn runs its commands."""
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
        from coupler.agent.mcp import TurnMcp

        return TurnMcp(self, self.session.servers)

    @property
    def editor(self) -> Editor:
        """The client, and what it offers."""
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
        from coupler.agent.question import ask

        return await ask(self, message, spec)

    async def ask_url(self, message: str, url: str) -> Answer[None]:
        """Ask the user to open a page: the only way to ask for something secret."""
        from coupler.agent.question import ask_url

        return await ask_url(self, message, url)

    async def complete_url(self, id: str) -> bool:
        """Tell the client that what a page was opened for is done; False if no such page is open."""
        from coupler.agent.question import notify_complete

        return notify_complete(self, id)

    async def usage(self, used: int, size: int, *, cost: float | None = None, currency: str = "USD") -> None:
        """Report how full the context is, in tokens, and what the session has cost so far."""
        await self.report(usage(used, size, cost, currency))

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
        self.tokens = tokens(input, output, cached_read, cached_write, thought, total)

    async def notice(self, title: str, description: str | None = None, *, severity: str = "info") -> None:
        """Tell the user something that is not part of the conversation: "info", "warning" or "error"."""
        notice = make_notice(title, description, severity)
        if self.editor.offers(NOTICES):
            await self.report(notice)
        else:
            await self.say_apart(spoken_notice(notice))

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

    async def report(self, event: Emitted) -> None:
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
        if type(request) not in FUNCTIONAL_REQUESTS:
            # A dialog stands between what was said before it and after it.
            self.begin_new_message()
        return await self.own(self.session.outlet.ask(request, deadline))

    async def own(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that ends with the turn at the latest, whichever task began it."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        try:
            return await task
        finally:
            self._work.discard(task)

    @property
    def is_alive(self) -> bool:
        """Whether the prompt still waits for its answer."""
        return self._ended_by is None

    def check_alive(self) -> None:
        """Raise if the prompt was answered: nothing of this turn may follow its answer."""
        if self._ended_by is not None:
            raise self._ended_by("the turn has ended: its prompt was answered")

    def begin_new_message(self) -> None:
        """What is said next is not part of the message before."""
        self._message = None
        self.session.outlet.end_message()

    def end(self, by: type[BaseException] = TurnEndedError) -> None:
        """The prompt is answered; whoever still uses the turn gets this exception."""
        self._ended_by = by
        for task in self._work:
            task.cancel()

    def _message_id(self, role: Role) -> str:
        if self._message is None or self._message[0] != role:
            self._message = (role, self.session.outlet.new_message_id())
        return self._message[1]
