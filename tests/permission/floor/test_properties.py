"""What holds of the floor for all texts: it raises nothing, and no nesting of wrappers gets through."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from permission.parts import Bench

WRAPPERS = (
    *("sudo {0}", "env {0}", "nohup {0} &", "timeout 5 {0}", "time {0}", "exec {0}", "nice -n 5 {0}"),
    *("sh -c {1}", "bash -c {1}", "eval {1}", "su -c {1}", "watch {1}", "ssh host {1}", "trap {1} EXIT"),
)
AROUND = (
    *("({0})", "{{ {0}; }}", "true && {0}", "false || {0}", "if true; then {0}; fi", "{0} 2>/dev/null"),
    *("for i in 1 2; do {0}; done", "f() {{ {0}; }}; f", "x=$( {0} )", "echo `ls`; {0}", "ls\n{0}\nls"),
    *("sh <<< {1}", "alias x={1}; x", "case a in a) {0};; esac", "[[ -d x ]] && {0}"),
)
HIDING = ("echo {1} | sh", "printf %s {1} | bash", "echo {1} > x.sh && sh x.sh", "python -c {1} | sh")
FATAL = st.sampled_from(
    ["rm -rf /", "rm -rf ~", "rm -rf $HOME/*", "dd if=x of=/dev/sda", "chmod -R 777 /", "mkfs.ext4 /dev/sda1"]
)
LETTERS = st.text(st.sampled_from("rm -rf/~$HOME*{},()`'\"\\;|&<>=!#\n\t x\u200b\uff0f\ue000"), max_size=60)


def wrapped(inner: str, wrappers: list[str]) -> str:
    for wrapper in wrappers:
        inner = wrapper.format(inner, shlex.quote(inner))
    return inner


def judged(command: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory).resolve() / "app"
        project.mkdir()
        return Bench(project).run(command, "*").decision


@given(
    FATAL,
    st.lists(st.sampled_from(WRAPPERS), max_size=2),
    st.lists(st.sampled_from(AROUND), max_size=2),
)
def test_wrappers_in_wrappers_get_nothing_through(fatal: str, inner: list[str], outer: list[str]) -> None:
    assert judged(wrapped(fatal, [*inner, *outer])) == "deny"


@given(FATAL, st.lists(st.sampled_from(WRAPPERS), max_size=1), st.sampled_from(HIDING))
def test_what_hides_it_is_at_least_asked_about(fatal: str, inner: list[str], hiding: str) -> None:
    assert judged(wrapped(fatal, [*inner, hiding])) in {"deny", "ask"}


@given(st.text(st.characters(min_codepoint=0x80, exclude_categories=("Cs",)), min_size=1, max_size=5))
def test_letters_beyond_ascii_do_not_end_the_process(letters: str) -> None:
    """The grammar's own code would read beyond its tables for some of these."""
    for command in (
        f"={{{letters}",
        f"echo {{{letters}..{letters}}}",
        f"ls {letters}",
        f"${letters} $(({letters}))",
    ):
        assert judged(command) in {"allow", "ask", "deny"}


@given(LETTERS)
def test_any_text_gets_an_answer(text: str) -> None:
    assert judged(text) in {"allow", "ask", "deny"}


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_words_get_an_answer(first: str, second: str) -> None:
    for command in (
        f"rm -rf {first} {second}",
        f"echo {first} | base64 -d | sh",
        f"python -c '{first}{second}'",
    ):
        assert judged(command) in {"allow", "ask", "deny"}
