"""A program that uses any agent: it lends it Python functions as tools, and gets an answer of a type.

    pip install "coupler[mcp]"
    python examples/triage.py claude "The export of large tables hangs"
    python examples/triage.py "opencode acp" < report.txt

The agent is a name that `coupler agents` lists, or a command line. The program prints JSON; run it in the git
repository that the report is about. The agent may read files there and use these tools, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Literal

from coupler import AgentError, Policy, connect


@dataclass
class Triage:
    """What the agent answers with. What does not fit is sent back to it, with the reason."""

    severity: Literal["low", "medium", "high"]
    files: list[str]
    summary: str
    question: str = ""


def recent_changes(path: str = ".", count: int = 10) -> str:
    """The last commits that touched a file or a directory.

    Args:
        path: relative to the root of the repository
        count: how many at most
    """
    return git("log", f"--max-count={count}", "--format=%h %as %an: %s", "--", path)


def authors(path: str) -> str:
    """Who has committed to a file or a directory, with the number of commits."""
    return git("shortlog", "--summary", "--numbered", "HEAD", "--", path)


def git(*words: str) -> str:
    """An exception in a tool is an error that the model reads."""
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout or "none"


TOOLS = [recent_changes, authors]
NAMES = [tool.__name__ for tool in TOOLS] + [
    "structured_output"
]  # the last is the tool that takes the answer
ALLOWED = ["read", "search", "mcp:coupler"] + [f"tool:{name}" for name in NAMES]
"""What is lent is the MCP server `coupler`. Some agents say so when they ask, others just name the tool."""


async def triage(agent: str, report: str) -> Triage:
    """Ask, for five minutes at most."""
    async with connect(agent) as running:
        session = await running.new(tools=TOOLS, output=Triage, permissions=Policy.patterns(allow=ALLOWED))
        reply = await session.prompt(
            "Find out which files this report is about and how severe it is. Change nothing. "
            f"If something is missing in it, put one question for its author.\n\n{report}",
            output=Triage,
            timeout=300,
        )
    for denied in reply.denied:
        print(f"It was not allowed to {denied.tool_call.title!r}: {denied.remedy}", file=sys.stderr)
    answer: Triage = reply.output
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description="Let an agent judge a bug report.")
    parser.add_argument("agent", help="a name that `coupler agents` lists, or a command line in one word")
    parser.add_argument("report", nargs="?", help="the report; without it, stdin is read")
    options = parser.parse_args()
    report = sys.stdin.read() if options.report is None else options.report
    if not report.strip():
        parser.error("the report is empty")
    try:
        answer = asyncio.run(triage(options.agent, report))
    except AgentError as error:  # all that can go wrong with an agent; `str(error)` has its stderr as well
        print(f"triage.py: {error.message}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(answer), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
