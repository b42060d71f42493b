"""Runs commands that outlive the turn that started them: servers, watchers, long builds.

They run here and never in an editor's terminal. The protocol tells of a terminal what it shows, not what is
new, and ties it to a tool call that is over when the turn is; and an editor that is killed would leave them
behind. Here they end with their session, with the client, and also when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coupler.coder.setup import set_state_value, state_value
from coupler.coder.tools.outputs import one_line
from coupler.runtime.commands import Capture, RunningCommand
from coupler.runtime.environment import Environment

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.coder.tools.outputs import OutputFile, SessionOutputs

MOST_RUNNING = 16
"""Jobs of a session that run at once."""

MOST_REMEMBERED = 64
"""Jobs of a session that can be looked at; the oldest of those that have ended are forgotten."""

GRACE = 2.0
"""Seconds that a job has to end by itself once it is told to."""

LAST_GRACE = 0.5
"""Seconds that a job has to end when the session is closed."""

LONGEST_SHOWN = 100
"""Characters of a command where it is only mentioned."""

JOBS_KEY = "jobs"
"""Key in the session's state for the jobs that ran when it was stored."""

HEAD, TAIL = 8_000, 16_000
"""Bytes of the beginning and of the end of new output that a model gets at once."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)


class BackgroundJobs:
    """The background jobs of one session."""

    def __init__(self, session: Session, outputs: SessionOutputs) -> None:
        self._session = session
        self._outputs = outputs
        self._jobs: dict[str, BackgroundJob] = {}
        self._news: list[str] = []
        self._count = 0
        self._is_left = False
        self._recall()

    def start(self, command: str, words: Sequence[str], directory: str) -> BackgroundJob:
        """Run the words, which carry out the command; raises `SpawnError`, or ValueError if too many run."""
        if sum(job.is_running for job in self._jobs.values()) >= MOST_RUNNING:
            raise ValueError(f"{MOST_RUNNING} jobs run already: end one with stop_command\n{self.listed()}")
        job = RunningCommand.start(words, cwd=directory, env=Environment.exact(self._session.command_env))
        self._count += 1
        started = BackgroundJob(f"job_{self._count}", command, job, self._outputs, self._remember)
        self._jobs[started.id] = started
        self._forget_oldest()
        self._remember()
        return started

    def find(self, id: str) -> BackgroundJob:
        """The job with this id; raises ValueError that says which ones there are."""
        job = self._jobs.get(id.strip())
        if job is None:
            raise ValueError(f"there is no job {id[:LONGEST_SHOWN]!r}\n{self.listed()}")
        return job

    def listed(self) -> str:
        """All jobs, a line for each."""
        if not self._jobs:
            return "No command was started in the background."
        return "\n".join(f"{job.id}: `{job.in_short}` {job.state}" for job in self._jobs.values())

    def take_news(self) -> str:
        """Return sentences about jobs that have ended and that the model has not been told of."""
        ended = [
            f"The background job {job.id} (`{job.in_short}`) {job.state}. "
            f'command_output("{job.id}") gives what it wrote last.'
            for job in self._jobs.values()
            if job.has_news
        ]
        news, self._news = [*self._news, *ended], []
        for job in self._jobs.values():
            job.has_news = False
        if news:
            self._remember()
        return "\n".join(news)

    async def close(self) -> None:
        """End all jobs, because the session is closed."""
        # What is remembered is what ran when the session was left.
        self._is_left = True
        await asyncio.gather(*(job.stop(LAST_GRACE) for job in self._jobs.values()))

    def _remember(self) -> None:
        """Store which jobs run, so that a later process can report those that are gone."""
        if self._is_left:
            return
        mask = self._session.secrets.mask
        running = {job.id: mask(job.in_short) for job in self._jobs.values() if job.is_running}
        set_state_value(self._session, JOBS_KEY, {"count": self._count, "running": running})

    def _recall(self) -> None:
        kept = state_value(self._session, JOBS_KEY)
        if not isinstance(kept, Mapping):
            return
        count, running = kept.get("count"), kept.get("running")
        self._count = count if isinstance(count, int) and count >= 0 else 0
        self._news = [
            f"The background job {job} (`{command}`) is gone: this session was opened anew."
            for job, command in (running.items() if isinstance(running, Mapping) else ())
        ]

    def _forget_oldest(self) -> None:
        ended = [job for job in self._jobs.values() if not job.is_running]
        for job in ended[: max(len(self._jobs) - MOST_REMEMBERED, 0)]:
            del self._jobs[job.id]


class BackgroundJob:
    """A command that runs, or has run, with what it wrote."""

    def __init__(
        self,
        id: str,
        command: str,
        job: RunningCommand,
        outputs: SessionOutputs,
        when_over: Callable[[], None],
    ) -> None:
        self.id = id
        self.command = command
        self.has_news = False
        """True if it has ended by itself, and the model was not told."""
        self._job = job
        self._written = CommandOutput(outputs, id)
        self._when_over = when_over
        self._begun = time.monotonic()
        self._took = 0.0
        self._grace = LAST_GRACE
        self._hearing: asyncio.Timeout | None = None
        self._is_stopped = False
        self._over = asyncio.Event()
        # Not of the turn that started it, which will be over.
        self._life = asyncio.create_task(self._live(), context=contextvars.Context())

    @property
    def is_running(self) -> bool:
        return not self._over.is_set()

    @property
    def in_short(self) -> str:
        """The command in one line."""
        return one_line(self.command, LONGEST_SHOWN).replace("`", "'")

    @property
    def state(self) -> str:
        """The job's state in words: for how long it runs, or how it ended."""
        if self.is_running:
            return f"runs, for {time.monotonic() - self._begun:.0f} s by now"
        exit_code, signal = self._job.ending
        how = f"by {signal}" if signal is not None else f"with exit code {exit_code}"
        return f"was stopped after {self._took:.0f} s" if self._is_stopped else f"has ended {how}"

    @property
    def outcome(self) -> dict[str, Any]:
        """The job's state as a JSON value."""
        exit_code, signal = self._job.ending
        is_over = not self.is_running
        return {
            "job": self.id,
            "running": not is_over,
            "exitCode": exit_code if is_over else None,
            "signal": signal if is_over else None,
        }

    def take_output(self) -> str:
        """Return the output since the last call; the end of the job then counts as reported."""
        if not self.is_running:
            self.has_news = False
        return self._written.take()

    async def wait(self, seconds: float) -> None:
        """Wait for the job's end, for so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    async def stop(self, grace: float = GRACE) -> None:
        """End it, and all that it has started."""
        if self.is_running:
            self._is_stopped, self._grace = True, grace
            if self._hearing is not None:
                self._hearing.reschedule(asyncio.get_running_loop().time())
        await asyncio.wait([self._life])

    async def _live(self) -> None:
        """Read the output until the command ends. Cancelled, it kills the command at once."""
        grace = 0.0
        try:
            await self._hear()
            grace = self._grace
        finally:
            try:
                await self._job.end(grace, self._keep)
            finally:
                self._bury()

    async def _hear(self) -> None:
        try:
            async with asyncio.timeout(0 if self._is_stopped else None) as self._hearing:
                await self._job.hear(self._keep)
                await self._job.wait()
        except TimeoutError:
            return
        finally:
            self._hearing = None

    async def _keep(self, chunk: bytes) -> None:
        self._written.append(chunk)

    def _bury(self) -> None:
        self._job.close()
        self._written.close()
        self._took = time.monotonic() - self._begun
        self.has_news = not self._is_stopped
        self._over.set()
        self._when_over()


class CommandOutput:
    """The output of one command for a model: its beginning and end, and all of it in a file.

    The file is there only if the output is long. Memory is bounded; whoever made it has to close it.
    """

    def __init__(self, outputs: SessionOutputs, of: str) -> None:
        self.size = 0
        """Bytes that were written."""
        self._outputs = outputs
        self._of = of
        self._new = Capture(HEAD, TAIL)
        self._whole = bytearray()
        self._file: OutputFile | None = None

    def append(self, chunk: bytes) -> None:
        """Take another piece of the output."""
        self.size += len(chunk)
        self._new.append(chunk)
        if self._file is not None:
            self._file.append(chunk)
            return
        self._whole += chunk
        if len(self._whole) > HEAD + TAIL:
            self._file = self._outputs.begin(self._of)
            self._file.append(bytes(self._whole))
            self._whole.clear()

    def take(self) -> str:
        """Return what was written since the last time; if it is cut, it says where the whole is."""
        new, self._new = self._new, Capture(HEAD, TAIL)
        text = terminal_text(new.content().decode("utf-8", "replace")).strip("\n")
        return f"{text}\n{self._where_the_rest_is()}" if new.is_cut else text

    def close(self) -> None:
        """Close the file, after the last piece."""
        if self._file is not None:
            self._file.close()

    def _where_the_rest_is(self) -> str:
        path = self._file.path if self._file is not None else None
        if path is None:
            return "(the rest could not be kept: have the command write less, or into a file)"
        return f"(this is not all: the whole is in {path}, which read_file and search can read)"


def terminal_text(text: str) -> str:
    """Return the text as a terminal finally shows it: no colours, and only the last progress bar."""
    text = _ESCAPES.sub("", text)
    return "\n".join(map(_last_state, text.split("\n"))) if "\r" in text else text


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]
