"""Commands that the guides and the README show do what is said, with an agent of ours for those of others.

Pages that are followed as a whole are the subject of `test_docs_followed.py`. Here a block is run by itself,
in a directory that has what it takes for granted: an agent, a client, a recording.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.manual import ROOT, Block, Reader, blocks_of, fits
from docs.test_blocks import lines_of

AGENT = """
from coupler import Turn, serve

async def agent(turn: Turn) -> None:
    await turn.say(f"You said: {turn.text}")

serve(agent)
"""
CLIENT = """
import sys
from coupler import ask

command = sys.argv[sys.argv.index("--agent") + 1] if "--agent" in sys.argv else sys.argv[1:]
ask(command, "hello")
"""
HOME = "/home/ann"
"""The home of who has tried it out for the pages."""

COUNTS = ("(46 passed, 19 skipped)", "(… passed, … skipped)")
"""How many can be judged of a quick agent depends on how busy the machine is."""

RUN = {
    "README.md": ["coupler exec", "coupler check", "coupler editor"],
    "docs/chat.md": ["printf"],
    "docs/check-clients.md": ["coupler check --client"],
    "docs/check.md": ["coupler check --json", "coupler check --trace"],  # the plain one is README's
    "docs/editors.md": ["coupler editor"],
    "docs/exec.md": ["coupler exec"],
    "docs/recording.md": ["coupler record", "jq", "coupler replay session"],
    "docs/relay.md": ["coupler serve"],
}
"""The blocks, by how they begin."""

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]


def chosen() -> Iterator[object]:
    for page, beginnings in RUN.items():
        blocks = [block for block in blocks_of(ROOT / page) if block.language in ("console", "sh")]
        for beginning in beginnings:
            found = [block for block in blocks if block.text.removeprefix("$ ").startswith(beginning)]
            assert found, f"{page} has no block that begins with {beginning}"
            yield from (pytest.param(block, id=block.place) for block in found)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Somebody who has all that the pages speak of."""
    programs = tmp_path / "programs"
    programs.mkdir()
    project = tmp_path / "project"
    reader = Reader(project, {"PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"})
    for name in ("agent.py", "app.py"):
        (project / name).write_text(AGENT)
    (project / "README.md").write_text("# A project\n")
    for name in ("my-agent", "opencode", "claude", "gemini"):
        put_program(programs / name, f"exec {sys.executable} {project / 'agent.py'}")
    put_program(programs / "my-client", f'exec {sys.executable} {project / "my_client.py"} "$@"')
    (project / "my_client.py").write_text(CLIENT)
    names = ("claude", "gemini")
    put_settings(reader, "zed/settings.json", "{}\n")
    put_settings(
        reader,
        "coupler/coupler.toml",
        "".join(f'[agents.{name}]\ncommand = "{programs / name}"\n' for name in names),
    )
    return reader


def put_program(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def put_settings(reader: Reader, name: str, text: str) -> None:
    file = Path(reader.variables["HOME"], ".config", name)
    file.parent.mkdir(parents=True)
    file.write_text(text)


@pytest.mark.parametrize("block", [*chosen()])
def test_a_block_does_what_its_page_says(block: Block, reader: Reader) -> None:
    if "session.ndjson" in block.text and "record" not in block.text:
        reader.run("coupler exec 'coupler record -o session.ndjson -- my-agent --acp' hello")
    printed = dict(block.commands) if block.language == "console" else {}
    for line in lines_of(block):
        code, output = reader.run(line)

        assert code == 0, f"{block.place}: `{line}` ended with {code}:\n{output}"
        shown = printed.get(line, "").replace(HOME, reader.variables["HOME"]).replace(*COUNTS)
        assert fits(shown, output), f"{block.place}: `{line}` printed:\n{output}\nnot:\n{shown}"
