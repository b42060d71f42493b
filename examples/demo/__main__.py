"""`make demo`: a workflow, served by `coupler serve` and driven over ACP by Coupler's own client.

    python examples/demo              asks before something is written, and lets you talk to an agent
    python examples/demo --yes        asks nothing, as it does where there is no terminal
    python examples/demo --scripted   fetches no model: the agents say what they were told to

The agents have a model that runs on this machine. Where it is missing it is fetched meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fetching import NAME, Fetching, model_here
from rich.console import Console
from rich.panel import Panel
from show import Show

from coupler import AgentError, connect
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from coupler import PermissionRequest
    from coupler.client.session import RemoteSession

HERE = Path(__file__).parent
WINDOW = 2048
"""Tokens that the model takes in: what is said here is short."""

PATIENCE = 60
"""Seconds that the demo waits for a model that is still being fetched when all else is over."""

QUESTION = "Why do people like tea? Answer in one sentence."


class Demo:
    """One showing."""

    def __init__(self, console: Console, *, is_agreed: bool) -> None:
        self._console = console
        self._is_agreed = is_agreed
        self._show = Show(console)

    async def tour(self, agent: str, model: Mapping[str, str]) -> bool:
        """Run the workflow with this agent; whether it went well."""
        self._show.voice = NAME if model else "a script"
        with tempfile.TemporaryDirectory(prefix="coupler-demo-") as place:
            project = Path(place, "project")
            shutil.copytree(HERE / "project", project)
            env = {**model, "COUPLER_HOME": str(Path(place, "home"))}
            command = [sys.executable, "-m", "coupler", "serve", str(HERE / "tour.yaml")]
            async with connect(command, cwd=project, env=env) as served:
                session = await served.new(permissions=self._permit)
                self._console.print(f"[dim]Connected over ACP; the session is {session.id[:13]}…[/]\n")
                self._said_by_user("Tell me about the tea timer")
                if not await self._prompt(session, f"agent={HERE / 'agents.py'}:{agent}"):
                    return False
                await self._talk(session)
            self._print_notes(project / "NOTES.md")
        return True

    async def meet(self, model: Mapping[str, str]) -> None:
        """One question to the model that was fetched meanwhile."""
        self._show.voice = NAME
        with tempfile.TemporaryDirectory(prefix="coupler-demo-") as home:
            command = [sys.executable, "-m", "coupler", "serve", f"{HERE / 'agents.py'}:local"]
            async with connect(command, cwd=home, env={**model, "COUPLER_HOME": home}) as served:
                session = await served.new()
                await self._prompt(session, await self._question())

    async def _talk(self, session: RemoteSession) -> None:
        """The workflow waits for what we say, until we have no more to say."""
        question = await self._question()
        while question and await self._prompt(session, question):
            question = "" if self._is_agreed else await self._typed("Another question, or Enter to end")
        await self._prompt(session, "/done")

    async def _prompt(self, session: RemoteSession, text: str) -> bool:
        prompt = session.prompt(text)
        with self._show.turn() as see:
            async for event in prompt:
                see(event)
        self._console.print()
        return (await prompt).is_complete

    async def _permit(self, request: PermissionRequest) -> bool:
        return await self._show.ask(request, self._is_agreed)

    async def _question(self) -> str:
        if not self._is_agreed:
            return await self._typed(f"Say something, or press Enter to ask: {QUESTION}") or QUESTION
        self._said_by_user(QUESTION)
        return QUESTION

    async def _typed(self, invitation: str) -> str:
        self._console.print(f"[dim]{invitation}[/]")
        return (await in_thread(lambda: self._console.input("[bold cyan]>[/] "))).strip()

    def _said_by_user(self, text: str) -> None:
        self._console.print(f"[bold cyan]>[/] [bold]{text}[/]\n")

    def _print_notes(self, file: Path) -> None:
        if file.is_file():
            self._console.print(Panel(file.read_text().strip(), title=file.name, title_align="left"))


@asynccontextmanager
async def running(console: Console, file: Path | None) -> AsyncIterator[dict[str, str] | None]:
    """The variables that lead to a model, which is loaded meanwhile; None if there is none."""
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.model.local_server import LocalServer

    if file is None:
        yield None
        return
    server = LocalServer(str(file), WINDOW)
    try:
        try:
            address = await in_thread(server.address)
        except ModelError as error:
            console.print(f"[yellow]The model does not run here: {error}[/]")
            yield None
            return
        yield {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": server.token, "OPENAI_MODEL": NAME}
    finally:
        server.close()


async def fetched(console: Console, fetching: Fetching) -> Path | None:
    """The model, when it is there; None, and why, if it cannot be had."""
    with console.status(f"Fetching the model {NAME}…"):
        for _ in range(PATIENCE * 10):
            if fetching.is_over:
                break
            await asyncio.sleep(0.1)
    if not fetching.is_over:
        console.print(f"The model is not there yet. `{program()} models install {NAME}` fetches it.")
    elif fetching.problem is not None:
        console.print(f"There is no model for the agents: {fetching.problem}", markup=False)
    return model_here()


async def run(console: Console, *, is_agreed: bool, is_scripted: bool) -> int:
    demo = Demo(console, is_agreed=is_agreed)
    file = None if is_scripted else model_here()
    fetching = Fetching() if file is None and not is_scripted else None
    try:
        introduce(console, file, fetching)
        async with running(console, file) as model:
            is_well = model is not None and await demo.tour("local", model)
            if not is_well:
                is_well = await demo.tour("scripted", {})
        if fetching is not None and (file := await fetched(console, fetching)) is not None:
            console.rule("The model is here")
            async with running(console, file) as model:
                if model is not None:
                    await demo.meet(model)
    finally:
        if fetching is not None:
            fetching.end()
    tell_next(console, has_model=model_here() is not None)
    return 0 if is_well else 1


def introduce(console: Console, file: Path | None, fetching: Fetching | None) -> None:
    agents = f"a model on this machine, local:{NAME}" if file else "scripts, which say what they were told to"
    lines = [
        "An agent and a client of the Agent Client Protocol, both of them Coupler's.",
        "[bold]$ coupler serve examples/demo/tour.yaml[/]",
        f"The agents of this workflow are {agents}.",
    ]
    if fetching is not None:
        lines.append(f"A real model ({NAME}, 93 MB, and the package that runs it) is fetched meanwhile.")
    console.print(Panel("\n".join(lines), title="Coupler", title_align="left", border_style="cyan"))


def tell_next(console: Console, *, has_model: bool) -> None:
    name = program()
    console.print("[bold]What next?[/]\n")
    if has_model:
        console.print("[dim]# talk to a coding agent with this model[/]")
        console.print(f"COUPLER_MODEL=local:{NAME} {name} chat coder")
    console.print("[dim]# put an agent into your editor: zed, neovim, jetbrains, emacs or vscode[/]")
    console.print(f"{name} editor zed")
    console.print("[dim]# begin in a project of yours[/]")
    console.print(f"{name} init")


def program() -> str:
    """How `coupler` is called here: `make demo` puts it on nobody's path."""
    file = Path(sys.executable).with_name("coupler")
    if not file.exists():
        return "coupler"
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def main() -> int:
    parser = argparse.ArgumentParser(description="Show Coupler at work.")
    parser.add_argument("--yes", action="store_true", help="ask nothing: approve, and say what is prepared")
    parser.add_argument("--scripted", action="store_true", help="use no model, and fetch none")
    given = parser.parse_args()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # what a terminal cannot show is no reason to end
    console = Console(highlight=False)
    is_agreed = given.yes or not (sys.stdin.isatty() and console.is_terminal)
    try:
        return asyncio.run(run(console, is_agreed=is_agreed, is_scripted=given.scripted))
    except (KeyboardInterrupt, EOFError):
        console.print("\nLeft. Nothing of it is left behind.")
        return 130
    except AgentError as error:
        console.print(f"The demo broke off: {error}", markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
