"""Opens the sessions of one conversation: new ones, earlier ones, and the same again after the agent died."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from coupler.cli.chat import input_line
from coupler.cli.chat.input_line import CompletionContext, Suggestion, suggestions
from coupler.cli.chat.transcript import Listing, Remark
from coupler.client.errors import AgentError
from coupler.client.observation import Observation, Received
from coupler.client.remote import RemoteAgent, SessionOptions
from coupler.client.session import RemoteSession
from coupler.runtime.terminal_text import one_line
from coupler.schema.methods import offers
from coupler.schema.v1 import SessionInfo

if TYPE_CHECKING:
    from coupler.cli.chat.dialogs import ChatFront
    from coupler.client.terminals import ClientTerminal

HELP = "/help"
SEPARATOR = " · "

SHORTEST_TITLE = 16
"""Columns that a title has at least, if it is shown."""

SHORTEST_MODEL = 16
"""Columns that a long name of a model has in the narrowest line."""

LOAD = "loadSession"
RESUME = "sessionCapabilities.resume"
LIST = "sessionCapabilities.list"


class ChatSessions:
    """Opens sessions of one agent, and keeps the transcript in step with the one that is open."""

    def __init__(self, agent: RemoteAgent, front: ChatFront, options: SessionOptions, cwd: str) -> None:
        self.cwd = cwd
        self._agent = agent
        self._front = front
        self._options = options
        self._session: RemoteSession | None = None
        self._left: set[str] = set()
        self._listed: list[SessionInfo] = []
        front.transcript.terminal_of = self._terminal

    @property
    def is_open(self) -> bool:
        """True if there is a session yet."""
        return self._session is not None

    @property
    def session(self) -> RemoteSession:
        """The session that is open."""
        assert self._session is not None  # nothing is typed or asked before the first one is open
        return self._session

    def notice(self, observation: Observation) -> None:
        """Passes on observations of the open session, and of the one that is being opened."""
        if isinstance(observation, Received) and observation.session_id in self._left:
            return
        self._front.transcript.notice(observation)
        self._front.refresh()

    async def first(self, resume: str | None, latest: bool) -> list[Remark]:
        """Opens the first session; the remarks say what is different from what was asked for."""
        if resume is not None:
            return await self.earlier(resume)
        if not latest:
            return await self.new()
        found = await self.found()
        if not found:
            return [
                *await self.new(),
                Remark("There is no earlier session in this directory: this is a new one."),
            ]
        return await self._open_earlier(found[0].session_id)

    async def new(self) -> list[Remark]:
        """Opens a new session."""
        await self._open(self._agent.new(**self._options))
        return []

    async def earlier(self, word: str) -> list[Remark]:
        """Opens an earlier session: by its number in the last listing, its id, or how its id begins."""
        if word.isascii() and word.isdecimal() and 0 < int(word[:9]) <= len(self._listed):
            return await self._open_earlier(self._listed[int(word) - 1].session_id)
        known = [session.session_id for session in self._listed]
        if not known and offers(self._agent.capabilities, LIST):
            known = [session.session_id for session in await self.found()]
        beginning = [known_id for known_id in known if known_id.startswith(word)]
        if len(beginning) > 1 and word not in beginning:
            raise AgentError("session", f"{len(beginning)} sessions begin with {word!r}: type more of the id")
        return await self._open_earlier(word if word in beginning or not beginning else beginning[0])

    async def again(self) -> list[Remark]:
        """Starts an agent that has died again, and goes on with the session if it can."""
        lost = self.session.id
        self._left.discard(lost)
        if not (offers(self._agent.capabilities, LOAD) or offers(self._agent.capabilities, RESUME)):
            await self.new()
            return [Remark("The agent was restarted, with a new session: it cannot resume earlier ones.")]
        try:
            await self._go_on(lost)
        except AgentError as error:
            if error.kind != "session":
                raise
            await self.new()
            return [
                Remark("The agent was restarted, with a new session.", one_line(error.message), "warning")
            ]
        return [Remark("The agent was restarted, and the session was resumed.")]

    async def listing(self) -> Listing:
        """Lists the earlier sessions in this directory; their numbers hold until the next listing."""
        return input_line.sessions_listing(await self.found(), self.session.id)

    def status(self, width: int) -> str:
        """A line about the agent and its session.

        What there is no room for is left out: the title first, model and tokens never.
        """
        info = self._agent.info
        name = one_line((info.title or info.name) if info else "agent") or "agent"
        if self._session is None:
            return _shortened(name, width)
        settings = self._settings_in_words()
        known = [*settings[0], HELP]
        room = width - cell_len(_joined([name, "", *known])) - cell_len(SEPARATOR)
        title = _shortened(self._front.transcript.title or "", room) if room >= SHORTEST_TITLE else ""
        return _first_that_fits([[name, title, *known], [name, *known], known, *settings], width)

    def work_status(self, width: int) -> str:
        """The model and the tokens, and the mode if there is room; empty if there is not enough for them."""
        return "" if self._session is None else _first_that_fits(self._settings_in_words(), width)

    def _settings_in_words(self) -> list[list[str]]:
        """Mode, model and tokens, in words that get fewer and shorter."""
        session, usage = self.session, self._front.transcript.usage
        option = session.settings.mode_option
        mode = one_line(session.mode or (None if option is None else option.current_value) or "")
        model = one_line(session.model or "")
        tokens = few_tokens = ""
        if usage is not None:
            tokens = f"{usage.used:,}/{usage.size:,} tokens"
            few_tokens = f"{_rounded(usage.used)}/{_rounded(usage.size)}"
        named = f"model {model}" if model else ""
        last = model.rpartition("/")[2]
        alone = last.partition(":")[2] or last
        return [
            [f"mode {mode}" if mode else "", named, tokens],
            [named, tokens],
            [model, tokens],
            [model, few_tokens],
            [alone, few_tokens],
            [_shortened(alone, SHORTEST_MODEL), few_tokens],
        ]

    def suggest(self, before: str) -> Iterable[Suggestion]:
        """Completions at the cursor."""
        if self._session is None:
            return ()
        ids = [session.session_id for session in self._listed]
        return suggestions(
            before, CompletionContext(self._session.settings, self._session.commands, ids, self.cwd)
        )

    def _terminal(self, id: str) -> ClientTerminal | None:
        return None if self._session is None else self._session.terminals.get(id)

    async def _open_earlier(self, id: str) -> list[Remark]:
        capabilities = self._agent.capabilities
        if self._session is not None and id == self._session.id:
            return [Remark("That session is open.")]
        if offers(capabilities, LOAD):
            await self._open(self._agent.load(id, **self._options), id)
            return []
        if offers(capabilities, RESUME):
            await self._open(self._agent.resume(id, **self._options), id)
            return [Remark("The session was resumed; the agent does not show its history.")]
        raise AgentError("session", "the agent cannot resume earlier sessions")

    async def _go_on(self, id: str) -> None:
        """Opens the session again whose history is on the screen already."""
        transcript = self._front.transcript
        transcript.is_muted = True
        try:
            if offers(self._agent.capabilities, RESUME):
                self._session = await self._agent.resume(id, **self._options)
            else:
                self._session = await self._agent.load(id, **self._options)
        finally:
            transcript.is_muted = False

    async def _open(self, opening: Awaitable[RemoteSession], earlier: str = "") -> None:
        """Opens another session with a transcript of its own; if that fails, all stays as it was."""
        before, seen, left = self._session, self._front.transcript, {*self._left}
        self._left.discard(earlier)  # it tells its history before it is open
        if before is not None:
            seen.settle()
            self._front.refresh()
            self._left.add(before.id)
        self._front.transcript = seen.successor()
        try:
            session = await opening
        except BaseException:
            self._front.transcript, self._left = seen, left
            raise
        self._session = session
        self._left.discard(session.id)
        self._front.transcript.mode = session.mode
        self._front.transcript.settle()
        if before is not None and not before.is_over:
            await before.close()

    async def found(self) -> list[SessionInfo]:
        """The earlier sessions in this directory, the latest first."""
        if not offers(self._agent.capabilities, LIST):
            raise AgentError("session", "the agent cannot list its sessions")
        self._listed = input_line.newest_first(await self._agent.list(self.cwd))
        return self._listed


def _joined(words: Sequence[str]) -> str:
    return SEPARATOR.join(filter(None, words))


def _first_that_fits(lines: Sequence[Sequence[str]], width: int) -> str:
    return next((line for words in lines if cell_len(line := _joined(words)) <= width), "")


def _shortened(text: str, width: int) -> str:
    """The text in so many columns; if it is longer, its beginning, up to a word's end if there is one."""
    if cell_len(text) <= width:
        return text
    cut = set_cell_size(text, max(width - 1, 0))
    words = cut.rpartition(" ")[0] if text[len(cut) : len(cut) + 1] != " " else cut
    return f"{(words or cut).rstrip()}…"


def _rounded(number: int) -> str:
    """A number in few characters: 950, 12k, 1.2M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + letter
    return str(number)
