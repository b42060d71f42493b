"""Every block of code in the manual is of a kind that is judged: nothing in it is misspelt or gone.

Pages that are followed from their beginning to their end are the subject of `test_docs_followed.py` and
`test_docs_troubleshooting.py`, Python that of `test_docs.py`. Here the settings, workflows and commands of
all pages are given to the code that would read them.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from coupler.cli.main import command
from coupler.config import load
from coupler.workflow.language.library import Library
from docs.manual import DOCS, ROOT, Block, blocks_of, is_followed
from tables import table

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SHELL = {"console", "sh", "bash"}
JUDGED = {"python", "py", "json", "toml", "yaml", *SHELL}
SHOWN = {"", "text", "markdown", "lua", "elisp"}
"""What is there to be read: output, signatures, pictures; settings of editors have tests of their own."""
MOST_NOT_RUN = 8
OTHERS = {
    "bash",
    "cat",
    "cd",
    "code",
    "cp",
    "echo",
    "eval",
    "export",
    "gh",
    "git",
    "grep",
    "jq",
    "ls",
    "mkdir",
}
OTHERS |= {"no-such-agent", "npm", "npx", "printf", "python", "python3", "sort", "tail", "touch", "."}
"""Programs that are not Coupler's, and are only named."""
RUN_ELSEWHERE = {"workflow-language.md", "workflows.md"}
"""Pages all of whose workflows are run by `tests/workflow/language/test_language_docs.py`."""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def of(*languages: str) -> list[object]:
    return [pytest.param(block, id=block.place) for block in BLOCKS if block.language in languages]


def test_every_block_is_judged_or_there_to_be_read() -> None:
    assert [block.place for block in BLOCKS if block.language not in JUDGED | SHOWN] == []
    assert sum(block.language in JUDGED for block in BLOCKS) > 150


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    reasons = [block.notes["not run"] for block in BLOCKS if "not run" in block.notes]
    assert 0 < len(reasons) <= MOST_NOT_RUN
    assert all(len(reason.split()) > 3 for reason in reasons)


@table("block", of("json"))
def test_json_is_valid(block: Block) -> None:
    for text in [block.text] if block.text.startswith(("{\n", "[\n")) else block.text.splitlines():
        json.loads(text)


@pytest.mark.parametrize("block", of("toml"))
def test_settings_are_taken(block: Block, tmp_path: Path) -> None:
    (tmp_path / "coupler.toml").write_text(block.text)
    if "alow" in block.text:
        with pytest.raises(Exception, match="did you mean `allow`"):
            load(str(tmp_path), environ={"COUPLER_HOME": str(tmp_path)})
    else:
        load(str(tmp_path), environ={"COUPLER_HOME": str(tmp_path)})


def lines_of(block: Block) -> Iterator[str]:
    """The commands of a block, without what they print."""
    if block.language == "console":
        yield from (typed for typed, _ in block.commands)
    else:
        yield from (line for line in block.text.splitlines() if line and not line.startswith("#"))


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands that pipes, lists and redirections of a line are made of, as words."""
    line = re.sub(r"^[A-Z_]+=\$\([^)]*\) ", "", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    is_file = False
    for word in lexer:
        if set(word) <= set("|;&"):
            yield words
            words = []
        elif set(word) <= set("<>&"):
            is_file = True
        elif is_file:
            is_file = False
        elif words or not re.match(r"[A-Z_]+=", word):
            words.append(word)
    yield words


def understand(group: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Let the command read its words, without doing anything; raises UsageError if it cannot."""
    if not isinstance(group, click.Group):
        group.make_context(group.name, list(words), parent=parent)
        return
    context = group.make_context(group.name, list(words), parent=parent)
    rest = [*context._protected_args, *context.args]
    if rest:
        _, found, arguments = group.resolve_command(context, rest)
        assert found is not None
        understand(found, arguments, context)


TYPED = [
    pytest.param(block, id=block.place)
    for block in BLOCKS
    if block.language in SHELL and ("not run" in block.notes or not is_followed(ROOT / block.page))
]


@pytest.mark.parametrize("block", TYPED)
def test_commands_are_understood(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (words for line in lines_of(block) for words in simple_commands(line) if words):
        match words:
            case ["coupler", *arguments]:
                try:
                    understand(command, arguments)
                except click.BadParameter as error:
                    assert "does not exist" in error.format_message(), f"{block.place}: {words}"
            case ["make", target, *_]:
                assert target in TARGETS
            case ["pip", "install", *packages]:
                named = re.findall(r"(?:coupler|clone)\[([a-z,]+)\]", " ".join(packages))
                assert {extra for group in named for extra in group.split(",")} <= set(EXTRAS)
                assert named
            case [program, *_]:
                assert program in OTHERS, f"{block.place}: {words}"


@table(
    "words",
    [["exce", "claude"], ["exec", "--fromat", "json", "claude"], ["runs", "lst"], ["init", "a", "b"]],
    ids=" ".join,
)
def test_a_command_that_there_is_not_is_found_out(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        understand(command, words)


WORKFLOWS = [
    pytest.param(block, id=block.place)
    for block in BLOCKS
    if block.language == "yaml" and "steps:" in block.text and Path(block.page).name not in RUN_ELSEWHERE
]


@pytest.mark.parametrize("block", WORKFLOWS)
def test_workflows_are_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "example.yaml").write_text(block.text)
    if "rn: make" in block.text:
        with pytest.raises(Exception, match="did you mean `run`"):
            Library(str(tmp_path)).bundle_of("example.yaml")
    else:
        Library(str(tmp_path)).bundle_of("example.yaml")
