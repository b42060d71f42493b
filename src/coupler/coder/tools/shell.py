"""The command tools: run commands to their end, or in the background, where they can be looked at.

A command that is waited for runs in the editor's terminal where there is one, and its user sees it live.
Nobody is there to answer what it asks: it reads from nothing, and is told so in the ways that there are.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.tools import BaseTool

from coupler.coder.prompt import safe_git_variables
from coupler.coder.tools.background_jobs import CommandOutput
from coupler.langchain.editor_tools.tool_use import ToolUse, session_tool, tool_use
from coupler.langchain.presentation import title_with_text
from coupler.redaction.sources import withheld_sentence
from coupler.runtime.files import find_inside
from coupler.runtime.paths import is_below, real_directories
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.terminal import Finished
    from coupler.coder.tools.background_jobs import BackgroundJob, BackgroundJobs
    from coupler.coder.tools.outputs import SessionOutputs
    from coupler.coder.tools.sandbox import Sandbox

USUAL_TIME, LONGEST_TIME = 120.0, 3600.0
"""Seconds that a command has, if nothing is said, and at most."""

LONGEST_WAIT = 600.0
"""Seconds that a look at a job waits for its end at most."""

FIRST_MOMENT = 1.0
"""Seconds to wait for a job that fails at once, so that the model is told without another call."""

EDITOR_OUTPUT = 1024 * 1024
"""Bytes of the output that an editor is asked for: it comes in one message, which has a limit."""

UNATTENDED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "GH_PROMPT_DISABLED": "1",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
}
"""Variables that keep programs from paging, editing or asking; not `CI`, which changes more."""


def shell_tools(
    session: Session, jobs: BackgroundJobs, outputs: SessionOutputs, sandbox: Sandbox
) -> list[BaseTool]:
    """Return `run_command`, `command_output` and `stop_command` for one session."""
    session.env.update(UNATTENDED)
    shell = ShellTools(session, jobs, outputs, sandbox)
    return [
        session_tool(shell.run_command, "execute", session, title=title_with_text("Run", "command")),
        session_tool(shell.command_output, "read", session, title=title_with_text("Output of", "id")),
        session_tool(shell.stop_command, "execute", session, title=title_with_text("Stop", "id")),
    ]


class ShellTools:
    """The command tools of one session."""

    def __init__(
        self, session: Session, jobs: BackgroundJobs, outputs: SessionOutputs, sandbox: Sandbox
    ) -> None:
        self._session = session
        self._jobs = jobs
        self._outputs = outputs
        self._sandbox = sandbox
        self._told_withheld: tuple[str, ...] = ()

    async def run_command(
        self,
        command: Annotated[str, "A command line for the shell."],
        directory: Annotated[str, "Where to run it, absolute or relative to the working directory."] = ".",
        timeout: Annotated[float, "Seconds after which it is ended; not in the background."] = USUAL_TIME,  # noqa: ASYNC109 - a tool's
        background: Annotated[bool, "Let it run on while you go on: for servers and watchers."] = False,
    ) -> tuple[str, dict[str, Any]]:
        """Run a command in the shell. The answer is what it wrote, and its exit code.

        Each command starts anew in its directory: variables and `cd` do not last. Nobody answers questions:
        give the options that make it ask none. Of long output you get the beginning and the end, and the name
        of a file with all of it. What it leaves running with `&` is ended. What does not end by itself, such
        as a server, needs background=true: it runs on over turns, until stop_command or the session's end.
        """
        if not command.strip():
            raise ValueError("the command is empty")
        if not 0 < timeout <= LONGEST_TIME:
            raise ValueError(f"timeout is a number of seconds up to {LONGEST_TIME:g}; or use background=true")
        place = await in_thread(lambda: self._place(directory))
        async with tool_use("Run", "execute", command=command, cwd=place) as call:
            is_reading = self._session.project.permissions().runs_only_reading
            if is_reading and background:
                raise ValueError("in this mode nothing runs in the background")
            await call.ask()
            shell = self._shell(command)
            if is_reading:
                shell = (*await self._harmless_environment(command, place), *shell)
            words = await self._sandbox.words(shell, place)
            if (warning := self._sandbox.take_warning()) is not None:
                await call.prompt.turn.notice("Commands run without a sandbox", warning, severity="warning")
            if (suggestion := await self._sandbox.take_suggestion()) is not None:
                await call.prompt.turn.notice("Commands run without a sandbox", suggestion)
            if background:
                return await self._begin(call, command, words, place)
            return await self._run(call, words, place, timeout, in_editor=not is_reading)

    async def command_output(
        self,
        id: Annotated[str, "The job, as run_command named it."],
        wait: Annotated[float, "Seconds to wait for its end before you look; it may end sooner."] = 0,
    ) -> tuple[str, dict[str, Any]]:
        """Read what a background command has written since you last looked, and whether it still runs."""
        if not 0 <= wait <= LONGEST_WAIT:
            raise ValueError(f"wait is a number of seconds up to {LONGEST_WAIT:g}")
        job = self._jobs.find(id)
        async with tool_use("Output of", "think", about=id) as use:
            await use.ask()
            await job.wait(wait)
            return self._looked_at(job), job.outcome

    async def stop_command(
        self, id: Annotated[str, "The job, as run_command named it."]
    ) -> tuple[str, dict[str, Any]]:
        """End a command in the background, and everything that it has started."""
        job = self._jobs.find(id)
        async with tool_use("Stop", "think", about=id) as use:
            await use.ask()
            if not job.is_running:
                return f"It does not run any more.\n{self._looked_at(job)}", job.outcome
            await job.stop()
            return self._looked_at(job), job.outcome

    async def _run(
        self, call: ToolUse, words: list[str], place: str, seconds: float, *, in_editor: bool
    ) -> tuple[str, dict[str, Any]]:
        written = CommandOutput(self._outputs, "run_command")
        try:
            finished = await call.prompt.turn.terminal.run(
                *words,
                cwd=place,
                timeout=seconds,
                # What is given input runs here: an editor would show the words of `env`.
                input=None if in_editor else b"",
                output_limit=EDITOR_OUTPUT,
                heard=written.append,
            )
            if not written.size:
                written.append(finished.output.encode("utf-8", "replace"))
        finally:
            written.close()
        call.has_shown()
        if finished.failure is not None:
            call.block.fail(_ending(finished, seconds))
        text = written.take()
        if finished.truncated and written.size <= EDITOR_OUTPUT:
            text = f"… (the editor's terminal has forgotten the beginning)\n{text}"
        outcome = {
            "exitCode": finished.exit_code,
            "signal": finished.signal,
            "timedOut": finished.timed_out,
        }
        told = f"{text}\n({_ending(finished, seconds)})".lstrip("\n")
        return f"{told}{self._withheld_from(finished.exit_code)}", outcome

    async def _begin(
        self, call: ToolUse, command: str, words: list[str], place: str
    ) -> tuple[str, dict[str, Any]]:
        job = self._jobs.start(command, words, place)
        try:
            await job.wait(FIRST_MOMENT)
        except BaseException:
            # The turn was cancelled before the model has heard of it.
            await job.stop(0)
            raise
        if not job.is_running:
            if job.outcome["exitCode"] != 0:
                call.block.fail(f"{job.id} {job.state}")
            return f"It did not stay in the background.\n{self._looked_at(job)}", job.outcome
        how = (
            f'It runs in the background as {job.id}: command_output("{job.id}") gives what it writes'
            f' from now on, stop_command("{job.id}") ends it.'
        )
        return f"{how}\n{job.take_output()}".rstrip("\n"), job.outcome

    def _looked_at(self, job: BackgroundJob) -> str:
        output = job.take_output() or "(nothing new was written)"
        return f"{output}\n({job.id} {job.state}){self._withheld_from(job.outcome['exitCode'])}"

    def _withheld_from(self, exit_code: int | None) -> str:
        """Return a line that says what a failed command was not given; its model is told once."""
        names = self._session.kept_from_commands
        if not exit_code or not names or names == self._told_withheld:
            return ""
        self._told_withheld = names
        return f"\n({withheld_sentence(names, '`environment` of `[coder]` in coupler.toml')})"

    async def _harmless_environment(self, command: str, place: str) -> tuple[str, ...]:
        """Return the words before a command that only reads, so that what the project has cannot run by it.

        Programs are looked for outside of the session's directories, and git is told to run no others; raises
        ValueError if it cannot be.
        """
        session = self._session
        path, program = await in_thread(lambda: _programs_outside(session))
        variables = {"PATH": path}
        if "git" in command:
            comparing = len(re.findall(r"\b(?:status|diff)\b", command))
            try:
                variables |= await safe_git_variables(
                    place,
                    session.roots,
                    {**session.env, **variables},
                    looks_into_submodules=comparing > command.count("--ignore-submodules"),
                )
            except ValueError as error:
                raise ValueError(f"git is not run in this mode: {error}") from None
        return (program, *(f"{name}={value}" for name, value in variables.items()))

    def _place(self, directory: str) -> str:
        found = find_inside(directory, self._session.cwd, self._session.roots)
        if not Path(found.real).is_dir():
            raise ValueError(f"there is no directory {directory}: list_directory shows which there are")
        return found.shown

    def _shell(self, command: str) -> tuple[str, ...]:
        if sys.platform == "win32":
            return ("cmd", "/c", command)
        # What models write is bash more often than not, and it is how commands are judged.
        has_bash = shutil.which("bash", path=self._session.env.get("PATH")) is not None
        return ("bash" if has_bash else "sh", "-c", command)


def _programs_outside(session: Session) -> tuple[str, str]:
    """Return a PATH without the session's directories, and the program `env` in it."""
    roots = real_directories(session.roots)
    path = os.pathsep.join(
        each
        for each in (session.env.get("PATH") or os.defpath).split(os.pathsep)
        if Path(each).is_absolute() and not any(is_below(os.path.realpath(each), root) for root in roots)
    )
    program = shutil.which("env", path=path)
    if program is None:
        raise ValueError("commands need the program `env` in this mode, and there is none on PATH")
    return path, program


def _ending(finished: Finished, limit: float) -> str:
    if finished.timed_out:
        return f"it was ended after {limit:g} s: give it more, or let it run in the background"
    return finished.failure or "exit code 0"
