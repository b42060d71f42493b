"""What the manual has from the code is as the code has it now, and nothing of the code is left out."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import coupler
from coupler import acp
from coupler.agent import mcp_servers, sessions, terminal
from coupler.agent.connection import END_GRACE
from coupler.agent.turn import CANCEL_GRACE
from coupler.cli.main import command
from coupler.client.connection import FRAME_LIMIT
from coupler.coder import hooks, prompt
from coupler.coder.tools import background_jobs, outputs, shell
from coupler.mcp import connection, http_client
from coupler.permission import web_requests
from coupler.runtime import logs
from coupler.schema import base, lenient
from coupler.store import journal, journal_writer
from coupler.wire import messages, outbox, peer
from coupler.wire.frames import DEFAULT_LIMIT
from coupler.workflow.steps import shell_command

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
SOURCE = ROOT / "src" / "coupler"
GENERATORS = sorted(SCRIPTS.glob("generate_*_docs.py"))


@pytest.fixture(autouse=True)
def beside_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import their neighbours, as they do when Python runs them."""
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.mark.parametrize("script", GENERATORS, ids=lambda script: script.stem)
def test_a_page_is_up_to_date(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = runpy.run_path(str(script))["main"](["--check"])

    assert outcome == 0, capsys.readouterr().err


def test_a_page_that_is_out_of_date_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pages

    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- part -->\n\nold\n\n<!-- end -->\n\nby hand\n")
    monkeypatch.setattr(pages, "DOCS", tmp_path)

    assert pages.update({"page.md": {"part": "new"}}, ["--check"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("docs/page.md is out of date: run make reference\n")
    assert "-old\n+new\n" in told
    assert "old" in page.read_text()

    assert pages.update({"page.md": {"part": "new"}}, []) == 0
    assert page.read_text() == "# Page\n\n<!-- part -->\n\nnew\n\n<!-- end -->\n\nby hand\n"
    assert pages.update({"page.md": {"part": "new"}}, ["--check"]) == 0


def test_a_part_that_no_page_has_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pages

    (tmp_path / "page.md").write_text("# Page\n")
    monkeypatch.setattr(pages, "DOCS", tmp_path)

    with pytest.raises(ValueError, match="there is no <!-- part --> … <!-- end --> in the page"):
        pages.update({"page.md": {"part": "new"}}, [])


def test_a_new_command_gets_a_section_where_the_alphabet_puts_it() -> None:
    cli = runpy.run_path(str(SCRIPTS / "generate_cli_docs.py"))
    page = "## coupler serve\n\n## coupler agents\n\n## coupler chat\n\n## coupler runs\n\n## Exit codes\n"

    page = cli["with_sections"](
        page, ["coupler brew --help", "coupler runs list --help", "coupler zap --help"]
    )

    headings = re.findall(r"^#+ .*$", page, re.MULTILINE)
    commands = ["agents", "brew", "chat", "runs"]
    assert headings == [
        "## coupler serve",
        *(f"## coupler {name}" for name in commands),
        "### coupler runs list",
        "## coupler zap",
        "## Exit codes",
    ]


def test_every_command_has_a_section() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in command.commands if f"\n## coupler {name}\n" not in page] == []


def test_every_public_name_has_a_section() -> None:
    page = (ROOT / "docs" / "python-api.md").read_text()
    names = [*(name for name in coupler.__all__ if name != "__version__"), *(f"acp.{n}" for n in acp.__all__)]
    assert [name for name in names if f"\n### {name}\n" not in page] == []


def test_the_manual_awaits_nothing_that_returns_nothing() -> None:
    manual = ROOT / "docs"
    listed = (manual / "python-api.md").read_text()
    plain = {*re.findall(r"^- `(\w+)\([^`]*\) -> None`", listed, re.M)}
    plain -= {*re.findall(r"^- `await (\w+)\(", listed, re.M)}
    assert "set_commands" in plain
    wrong = [
        f"{page.name}: {found[0]}"
        for page in manual.rglob("*.md")
        for found in re.finditer(r"await\s+[\w.]+\.(\w+)\(", page.read_text())
        if found[1] in plain
    ]
    assert wrong == []


def test_a_signature_stands_as_it_is_written_with_the_values_of_constants(tmp_path, monkeypatch) -> None:
    import pages
    import python_source

    (tmp_path / "src" / "coupler").mkdir(parents=True)
    (tmp_path / "src" / "coupler" / "limits.py").write_text("MOST = 64 * 1024\n")
    (tmp_path / "src" / "coupler" / "box.py").write_text(
        "from coupler.limits import MOST\n"
        "class Base:\n"
        '    def shut(self) -> None:\n        """Shut it."""\n'
        "class Box(Base):\n"
        '    """A box."""\n'
        "    def __init__(self, name: str, *, size: int = MOST) -> None:\n"
        "        self.name = name\n"
        "        self.full: bool = False\n"
        '        """Whether more fits."""\n'
        "        self._hidden = 1\n"
        "    async def put(self, *things: str) -> int:\n"
        '        """Put things\n        into it."""\n'
        "    def shut(self) -> None: ...\n"
    )
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(python_source, "ROOT", tmp_path)
    python_source._tree.cache_clear()
    python_source._imports.cache_clear()

    box = python_source.described("coupler.box", "Box")

    assert box.signature == "Box(name: str, *, size: int = 64 * 1024)"
    assert box.text == "A box."
    assert {member.signature: member.sentence for member in box.members} == {
        "shut() -> None": "Shut it.",
        "name: str": "",
        "full: bool": "Whether more fits.",
        "await put(*things: str) -> int": "Put things into it.",
    }


PROMISES = {
    "ordering.md": {
        f"turns of {outbox.QUANTUM >> 10} KiB": "how much a session writes before the next one",
        f"{outbox.BUDGET >> 10} KiB that may be unsent": "and how much waits",
        f"{CANCEL_GRACE:g} seconds, or {END_GRACE:g} when the client has left": "the grace",
    },
    "durability.md": {
        {0.25: "a quarter of a second"}[journal.FLUSH_AFTER]: "how long text waits",
        f"{journal_writer.FLUSH_AT >> 10} KiB": "and how much of it",
    },
    "security-model.md": {
        f"at most {DEFAULT_LIMIT >> 20} MiB ({FRAME_LIMIT >> 20} MiB as a client)": "the longest line",
        f"bytes of a line | {DEFAULT_LIMIT >> 20} MiB, {FRAME_LIMIT >> 20} MiB as a client |": "in the table",
        f"levels of nested JSON | {messages.MAX_DEPTH} |": "",
        f"JSON values in a message | {messages.MAX_VALUES:,} |": "",
        f"items of a list, members of a map | {base.MAX_ITEMS:,} |": "",
        f"damaged or very long | {lenient.MAX_READS:,} |": "",
        f"dropped items that the log names | {lenient.MAX_PROBLEMS} a message |": "",
        f"MCP servers of a session | {sessions.MAX_MCP_SERVERS} |": "",
        f"additional directories of a session | {sessions.MAX_DIRECTORIES:,} |": "",
        f"open sessions of a connection | {sessions.MAX_OPEN_SESSIONS:,} |": "",
        f"wait for their answers | {peer.MAX_REQUESTS_IN_FLIGHT:,}, and the bytes of "
        f"{ {4: 'four'}[peer.FRAMES_IN_FLIGHT] } of the longest lines": "",
        f"has not read | {peer.MAX_UNREAD_ANSWERS:,}, or {peer.MAX_UNREAD_BYTES >> 20} MiB |": "",
        f"after {peer.UNREAD_TIMEOUT:g} s in which it takes none": "",
        f"text that an error quotes | {messages.MAX_ERROR_TEXT:,} characters |": "",
        f"lines of a kind in the log | {logs.LINES_OF_A_KIND} {'a minute' * (logs.PERIOD == 60)} |": "",
        f"{logs.MAX_MESSAGE:,} characters, a traceback {logs.MAX_TRACEBACK:,} |": "a line in the log",
        f"handles them for {peer.TIME_SLICE * 1000:g} ms at a time": "",
        f"a command of the coder | {background_jobs.HEAD + background_jobs.TAIL:,} bytes for the model, "
        f"{outputs.LARGEST >> 20} MiB in a file, {outputs.MOST_OF_SESSION >> 20} MiB of files a session": "",
        f"its timeout, {shell.USUAL_TIME:g} s unless the model says otherwise": "",
        f"a `run` step | {(shell_command.MOST_HEAD + shell_command.MOST_TAIL) >> 20} MiB of stdout": "",
        f"an editor's terminal | {terminal.OUTPUT_LIMIT >> 20} MiB |": "",
        f"a hook of the coder | {hooks.LARGEST_OUTPUT >> 10} KiB, {hooks.LIMIT:g} s |": "",
        f"looks at a repository | {prompt.LARGEST_OUTPUT >> 10} KiB and {prompt.GIT_TIMEOUT:g} s ": "",
        f"coder fetches | {web_requests.LARGEST_RESPONSE >> 20} MiB unpacked, "
        f"{web_requests.RESPONSE_TIME:g} s;": "",
        f"a message of an MCP server | {http_client.LONGEST_ANSWER >> 20} MiB |": "over HTTP",
        f"MCP server | {connection.MOST_TOOLS:,}, {connection.MOST_PAGES} pages, "
        f"{connection.LARGEST_LIST >> 20} Mi characters |": "its tools",
        f"requests of an MCP server | {connection.MOST_REQUESTS} that wait": "",
        f"a call of an MCP server | {mcp_servers.CALL_LIMIT:g} s, {mcp_servers.MOST_PROGRESS} lines": "",
        f"the grace of {CANCEL_GRACE:g} s": "of a signal",
    },
}


@pytest.mark.parametrize("page", PROMISES)
def test_a_number_that_is_explained_is_that_of_the_code(page: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert [promise for promise in PROMISES[page] if promise not in text] == []


# What contributors are told to look at is there.


BUILT = {"dist/"}
"""What a target of the Makefile makes."""


def test_every_file_that_contributors_are_told_of_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`([\w./]+(?:\.py|\.md|\.txt|/))`", text)
    places = (ROOT, SOURCE, SOURCE / "workflow" / "language", SOURCE / "workflow" / "engine")

    missing = [name for name in named if not any((place / name).exists() for place in places)]
    missing = [name for name in missing if name not in BUILT]

    assert len(named) > 20
    assert missing == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_no_link_beside_the_manual_is_broken(name: str) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_command_is_in_the_changelog() -> None:
    text = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    assert [name for name in command.commands if f"coupler {name}" not in text] == []
