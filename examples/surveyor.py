"""An agent that looks over the project it is opened in: a plan, tool calls, thoughts and a streamed answer.

    coupler serve examples/surveyor.py

It needs no model and no key, so it shows in any editor what the protocol can carry.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from coupler import Agent, McpError, Turn, serve

SKIPPED = {".git", ".venv", "node_modules", "__pycache__", "site", "build", "dist"}


class Surveyor(Agent):
    """Surveys the session's directory."""

    title = "Project surveyor"

    async def prompt(self, turn: Turn) -> None:
        root = Path(turn.session.cwd)
        plan = await turn.plan("Find the Python files", "Read the longest one", "Say what was found")
        await show_tools(turn)

        await turn.think(f"Whatever was asked, a survey of {root.name or root} comes first.")
        await plan.start(0)
        async with turn.tool("Find Python files", kind="search", input={"pattern": "**/*.py"}) as call:
            files = await asyncio.to_thread(find_python_files, root)
            await call.result({"count": len(files)})
            await call.output(f"{len(files)} files")
        await plan.complete(0)
        if not files:
            await turn.say(f"There is no Python under {root}.")
            return

        await plan.start(1)
        longest = max(files, key=lambda file: file.stat().st_size)
        async with turn.tool(f"Read {longest.name}", kind="read", path=str(longest)) as call:
            text = longest.read_text(errors="replace")
            await call.result({"lines": text.count("\n"), "characters": len(text)})
        await plan.complete(1)

        await plan.start(2)
        for word in summary(root, files, longest, text).split(" "):
            await turn.say(f"{word} ")
            await asyncio.sleep(0.02)  # as fast as a model speaks
        await plan.complete(2)


async def show_tools(turn: Turn) -> None:
    """Show what the MCP servers of the editor and of the configuration could do. One that fails is named."""
    for server in turn.mcp.servers:
        async with turn.tool(f"Look at the tools of {server}", kind="search") as call:
            try:
                tools = await turn.mcp.tools(server)
            except McpError as error:
                call.fail(str(error))
            else:
                await call.output(", ".join(tool.name for tool in tools) or "no tools")


def find_python_files(root: Path) -> list[Path]:
    """Every Python file that belongs to the project itself."""
    found = (path for path in root.rglob("*.py") if not SKIPPED & set(path.relative_to(root).parts))
    return [path for path in found if path.is_file()]


def summary(root: Path, files: list[Path], longest: Path, text: str) -> str:
    """What a person would want to hear."""
    place = longest.relative_to(root)
    found = "one Python file" if len(files) == 1 else f"{len(files)} Python files"
    return (
        f"This project has {found}. "
        f"The longest is `{place}` with {text.count(chr(10))} lines; start reading there."
    )


if __name__ == "__main__":
    serve(Surveyor)
