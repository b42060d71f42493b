"""A program that asks an agent about many files, several at once, with one budget for all of them.

    python examples/batch.py claude "Which errors are not handled?" src/*.py --tokens 200000

It needs nothing but Coupler, and an agent: a name that `coupler agents` lists, or a command line. Each answer
is a line of JSON in `answers.jsonl`, written when it comes. What is there already is not asked again, so that
a run which was interrupted, or whose budget was spent, is gone on with by the same command. Of what it asks
for, the agent may only read.

Exit codes: 0 if there is an answer for each file, 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from coupler import AgentError, Budget, connect
from coupler.client.remote import RemoteAgent


class Batch:
    """The question, what may be spent on it, and where the answers go."""

    def __init__(self, question: str, budget: Budget, output: Path) -> None:
        self.question = question
        self.budget = budget
        self.output = output
        self.failed: list[str] = []

    def missing(self, files: list[str]) -> list[str]:
        """Those that have no answer yet."""
        answered = set()
        for number, line in enumerate(
            self.output.read_text().splitlines() if self.output.exists() else (), 1
        ):
            try:
                answered.add(json.loads(line)["file"])
            except (ValueError, TypeError, KeyError):
                sys.exit(
                    f"batch.py: line {number} of {self.output} is no answer: name another file, or mend it"
                )
        return [file for file in dict.fromkeys(files) if file not in answered]

    async def run(self, agent: str, files: list[str], at_once: int) -> None:
        """One process of the agent, and a session for each file, so that none is mixed up with another."""
        places = asyncio.Semaphore(at_once)
        async with connect(agent) as running, asyncio.TaskGroup() as tasks:
            for file in files:
                tasks.create_task(self.ask_about(running, file, places))

    async def ask_about(self, agent: RemoteAgent, file: str, places: asyncio.Semaphore) -> None:
        """Write the answer down. What goes wrong with one file does not keep the others from their turn."""
        async with places:
            try:
                self.budget.refuse_if_spent()  # before a session is opened for nothing
                session = await agent.new()
                reply = await session.prompt(
                    f"{self.question}\n\nAnswer for the file {file} alone.", budget=self.budget, timeout=600
                )
                reply.raise_for_stop()  # a refusal, or half an answer, is none
                await session.close()
            except AgentError as error:
                self.failed.append(file)
                print(f"{file}: {error.message}", file=sys.stderr)
            else:
                answer = {"file": file, "answer": reply.text, "tokens": reply.usage.total}
                with self.output.open("a") as lines:
                    lines.write(json.dumps(answer) + "\n")


def main() -> int:
    options = arguments()
    batch = Batch(options.question, Budget(tokens=options.tokens), options.output)
    files = batch.missing(options.files)
    try:
        asyncio.run(batch.run(options.agent, files, options.at_once))
    except AgentError as error:  # it could not be started at all
        print(f"batch.py: {error}", file=sys.stderr)
        return 1
    about = "about " if batch.budget.is_estimated else ""
    done = len(files) - len(batch.failed)
    print(f"{done} of {len(files)} files, {about}{batch.budget.spent_tokens} tokens", file=sys.stderr)
    return 1 if batch.failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask an agent about many files.")
    parser.add_argument("agent", help="a name that `coupler agents` lists, or a command line in one word")
    parser.add_argument("question")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokens", type=int, default=100_000, help="what may be spent in all (100000)")
    parser.add_argument("--at-once", type=int, default=4, help="how many files at the same time (4)")
    parser.add_argument("--output", type=Path, default=Path("answers.jsonl"), help="(answers.jsonl)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
