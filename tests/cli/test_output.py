"""The one way to print: whatever it is given, a terminal obeys nothing of it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cli.hostile import HOSTILE, obeyed_in
from coupler.cli.output import Output
from coupler.runtime import terminal_text
from coupler.runtime.terminal_text import clean, clean_sentence, one_line, terminal_safe_json
from tables import table

SOURCE = Path(__file__).parents[2]


class Screen(io.StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True


def written(print_it, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    print_it(Output(stream))
    return stream.getvalue()


def a_table() -> Table:
    made = Table(HOSTILE)
    made.add_row(Text(HOSTILE), HOSTILE.replace("[", ""))
    return made


WAYS = {
    "line": lambda output: output.line(HOSTILE, "bold red"),
    "pieces": lambda output: output.pieces((HOSTILE, "dim"), (HOSTILE, "")),
    "cells": lambda output: output.cells([HOSTILE, HOSTILE], ["cyan", ""]),
    "fields": lambda output: output.fields(HOSTILE, HOSTILE),
    "text": lambda output: output.text(HOSTILE),
    "json": lambda output: output.json(json.dumps({HOSTILE: HOSTILE}, ensure_ascii=False)),
    "what is no JSON": lambda output: output.json(HOSTILE),
    "console": lambda output: output.console(width=80).print(Text(HOSTILE, "bold")),
    "table": lambda output: output.console(width=80).print(a_table()),
    "redraw": lambda output: output.redraw([Text(HOSTILE)], output.console(width=80), over=0),
}


def test_every_way_to_print_cleans_for_pipes_and_for_terminals(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    shown = {name: (written(way), written(way, Screen())) for name, way in WAYS.items()}

    assert {name: obeyed_in(piped) for name, (piped, _) in shown.items() if obeyed_in(piped)} == {}
    assert {name for name, (_, seen) in shown.items() if obeyed_in(seen, is_terminal=True)} == set()
    assert all("evil" in piped and "evil" in seen for piped, seen in shown.values())
    assert "\x1b[" in shown["line"][1], "our own styles are shown"


def test_no_link_hides_where_it_leads_and_no_text_is_taken_for_markup(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def print_it(output):
        output.console(width=80).print(
            Text("a", Style(link="http://evil")), "[/no] [link=http://evil]b[/link]"
        )

    for stream in (io.StringIO(), Screen()):
        assert written(print_it, stream) == "a [/no] [link=http://evil]b[/link]\n"


def test_a_line_is_one_line_and_fields_have_no_tabs():
    assert written(lambda output: output.line("a\nb\r\nc\u2028d")) == "a b c d\n"
    assert written(lambda output: output.fields("a\tb", "c\nd")) == "a b\tc d\n"


def test_data_is_unchanged_for_programs_and_clean_on_terminals():
    assert written(lambda output: output.data(HOSTILE)) == HOSTILE
    assert obeyed_in(written(lambda output: output.data(HOSTILE), Screen())) == []


def test_a_stream_cannot_be_written_to_as_it_is():
    assert not hasattr(Output(io.StringIO()), "write")


def test_json_means_the_same():
    text = json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=False)

    assert json.loads(terminal_safe_json(text)) == {HOSTILE: [HOSTILE]}
    assert obeyed_in(terminal_safe_json(text)) == []


@table(
    "text, shown",
    [
        ("\x1b[31mred\x1b[0m (B", "red (B"),
        ("\x1b(B\x1b[mplain", "plain"),
        # What is opened in a quotation takes none of our words along.
        ("the file evil\x1b] is not trusted, evil\x07 says", "the file evil] is not trusted, evil says"),
        ("the file evil\x1b is not trusted", "the file evil is not trusted"),
        ("the file evil\x9b is not trusted", "the file evil is not trusted"),
        ("evil\x1b/.coupler/workflows", "evil/.coupler/workflows"),
        ("👩\u200d💻 \u0645\u06cc\u200c\u062e", "👩\u200d💻 \u0645\u06cc\u200c\u062e"),
        ("half \ud800 a pair", "half \ufffd a pair"),
    ],
)
def test_a_sentence_keeps_its_own_words(text, shown):
    assert clean_sentence(text) == one_line(text) == shown


@pytest.mark.parametrize("way", [clean, clean_sentence, one_line])
def test_what_is_clean_stays_as_it_is(way):
    assert obeyed_in(way(HOSTILE)) == []
    assert way(way(HOSTILE)) == way(HOSTILE)


BANNED = """
import logging, sys, traceback
import click
from rich.console import Console
click.echo("x")
click.confirm("x")
sys.stdout.write("x")
sys.stderr.write("x")
print("x")
traceback.print_exc()
logging.StreamHandler()
"""


def test_the_linter_refuses_every_other_way_to_print():
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--select", "T20,TID251", "--output-format", "json", "--stdin-filename"]

    done = subprocess.run(
        [*command, "src/coupler/cli/listing.py", "-"],
        input=BANNED,
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=60,
    )

    lines = BANNED.splitlines()
    refused = {lines[each["location"]["row"] - 1] for each in json.loads(done.stdout)}
    assert refused == {line for line in lines if line and not line.startswith("import")}


def test_lines_that_have_nothing_to_remove_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may print millions of them, and Ctrl-C waits until they are shown."""
    lines = "a line\n\tanother ä 漢\n\n" * 1000

    def search(pattern: str) -> NoReturn:
        raise AssertionError("the text was searched")

    monkeypatch.setattr(terminal_text, "_compiled", search)

    assert terminal_text.clean(lines) == terminal_text.clean_sentence(lines) == lines
