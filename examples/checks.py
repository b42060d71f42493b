"""An agent that runs the checks of a project: a plan, a tool call for each check, and a permission for each.

    coupler serve examples/checks.py                   in an editor
    coupler chat "coupler serve examples/checks.py"    in this terminal

It needs nothing but Coupler, and no model: it looks at what a project has and runs what usually goes with it.
Say "list" to see what that is, anything else to run it. Tools of MCP servers that are called "check…" are
checks as well; those need `coupler[mcp]`.
"""

from __future__ import annotations

from pathlib import Path

from coupler import Agent, Command, McpError, NotPermittedError, Turn, serve

KNOWN = {
    "Makefile": ["make", "test"],
    "pyproject.toml": ["python3", "-m", "pytest", "-q"],
    "package.json": ["npm", "test"],
    "Cargo.toml": ["cargo", "test"],
    "go.mod": ["go", "test", "./..."],
}
"""What is run in a project that has this file. Change it to what you run."""

LONGEST = 600
"""Seconds after which a check is ended."""


class Checks(Agent):
    """Each session is about the directory that it was opened in."""

    title = "Checks"
    commands = (Command("list", "Say what would be run, and run nothing"),)

    async def prompt(self, turn: Turn) -> None:
        root = Path(turn.session.cwd)
        checks = {" ".join(words): words for file, words in KNOWN.items() if (root / file).is_file()}
        if turn.text.strip().lstrip("/") == "list":
            await turn.say("\n".join(f"- `{line}`" for line in checks) or "none")
            return
        if checks:
            await self.run(turn, checks)
        else:
            await turn.say(f"I know no checks for {root}. I look for {', '.join(KNOWN)}.\n")
        await run_tools(turn)

    async def run(self, turn: Turn, checks: dict[str, list[str]]) -> None:
        """One after the other. The editor shows the plan advance, and what the checks print as it comes."""
        plan = await turn.plan(*checks)
        for line, words in checks.items():
            await plan.start(line)
            verdict = await run_check(turn, line, words)
            await turn.say(f"- `{line}`: {verdict}\n")
            await plan.complete(line)


async def run_check(turn: Turn, line: str, words: list[str]) -> str:
    """What became of it. `command` is what rules and the dialog judge, so it has to be what is really run."""
    async with turn.tool(f"Run {line}", kind="execute", command=words) as call:
        if not await call.permitted():  # by a rule, by an earlier "always", or by the user now
            return "not run"
        done = await turn.terminal.run(*words, timeout=LONGEST)  # in the editor's terminal, if it has any
        await call.result({"exit_code": done.exit_code})
        if done.exit_code == 0:
            return "passed"
        reason = "it took too long" if done.timed_out else f"exit code {done.exit_code or done.signal}"
        call.fail(reason)  # so that the editor shows the call as failed; the turn goes on
        return f"**failed**, {reason}"


async def run_tools(turn: Turn) -> None:
    """The checks of MCP servers, of the editor's and of `coupler.toml`. Each use is asked about by itself."""
    for tool in await turn.mcp.tools():
        if tool.name.startswith("check"):
            try:
                result = await turn.mcp.call(tool.server, tool.name)
            except (NotPermittedError, McpError) as error:
                await turn.say(f"- {tool.server}, {tool.name}: {error}\n")
            else:
                verdict = "**failed**" if result.is_error else "passed"
                await turn.say(f"- {tool.server}, {tool.name}: {verdict}\n")


if __name__ == "__main__":
    serve(Checks)
