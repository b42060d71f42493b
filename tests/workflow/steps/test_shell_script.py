"""Values in scripts of `run` steps, as real shells get them."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coupler.workflow.errors import StepError
from coupler.workflow.expressions.expression import Expressions
from coupler.workflow.steps.shell_script import make_script
from tables import table

SHELLS = ("sh", "bash")

# Prints how many words it got, and the words.
SHOW = 'show() { printf \'%s\\0\' "$#" "$@"; }\n'

VALUES = [
    "plain",
    "",
    "a b",
    "  before and after  ",
    "$(touch pwned)",
    "`touch pwned`",
    "$HOME ${HOME} $1",
    "'",
    '"',
    'it\'s "quoted"',
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a;touch pwned",
    "a|touch pwned&",
    "a && touch pwned || touch pwned",
    "a\nb",
    "a\ntouch pwned\nb",
    "*",
    "?[a-z]*",
    "~",
    "~root",
    "-n",
    "--help",
    "\\",
    "a\\nb\\",
    "\\$(touch pwned)",
    "é 漢字 🎈",
    "\udcff\udc81\udc88x",
    "\x01\x7f\t\x1b",
    "#no comment",
    "!x",
    "{a,b}",
    "a=b",
    "} fi done esac )) ]]",
    "END",
    "$'x'",
    ">pwned",
    "<(touch pwned)",
    "a[$(touch pwned)]",
    "\r x",
    "%s%n&",
]

Expected = Callable[[str], str]


def shown(*words: str) -> str:
    """What `show` prints of these words."""
    return "".join(f"{word}\0" for word in (str(len(words)), *words))


def around(before: str, after: str = "") -> Expected:
    return lambda value: shown(before + value + after)


def always(*words: str) -> Expected:
    return lambda value: shown(*words)


SAME = around("")

CONTEXTS: list[tuple[str, Expected]] = [
    ("show {{ v }}", SAME),
    ("show a{{ v }}b", around("a", "b")),
    ("show --x={{ v }}", around("--x=")),
    ("show {{ v }}{{ v }}", lambda value: shown(value + value)),
    ("show {{ v }} {{ v }}", lambda value: shown(value, value)),
    ("show {{ v }};", SAME),
    ("{ show {{ v }}; }", SAME),
    ("(show {{ v }})", SAME),
    ("show x | cat; show {{ v }} | cat", lambda value: shown("x") + shown(value)),
    ("true && show {{ v }} || show no", SAME),
    ('show "{{ v }}"', SAME),
    ('show "a {{ v }} b"', around("a ", " b")),
    ('show "a"{{ v }}"b"', around("a", "b")),
    ('show "\\"{{ v }}\\""', around('"', '"')),
    ('show "it\'s {{ v }}"', around("it's ")),
    ('show "\\${{ v }}"', around("$")),
    ("show '{{ v }}'", SAME),
    ("show 'a {{ v }} b'", around("a ", " b")),
    ("show 'say \"{{ v }}\"'", around('say "', '"')),
    ("show 'a'{{ v }}'b'", around("a", "b")),
    ("show \\'{{ v }}\\'", around("'", "'")),
    ("show \\{{ v }}", SAME),
    ('show "a\\{{ v }}"', around("a\\")),
    ("show a\\ {{ v }}", around("a ")),
    ('x={{ v }}; show "$x"', SAME),
    ('x="{{ v }}"; show "$x"', SAME),
    ('x={{ v }}:b; show "$x"', around("", ":b")),
    ('x={{ v }} sh -c \'printf "1\\0%s\\0" "$x"\'', SAME),
    ('export x={{ v }}; show "$x"', SAME),
    ('(readonly x={{ v }}; show "$x")', SAME),
    ("show \"$(printf '%s.' {{ v }})\"", around("", ".")),
    ('show "$(printf \'%s.\' "{{ v }}")"', around("", ".")),
    ("show \"$(printf '%s.' '{{ v }}')\"", around("", ".")),
    ('show "a $(printf %s "$(printf \'%s.\' "{{ v }}")") b"', around("a ", ". b")),
    ("x=$(printf '%s.' {{ v }}); show \"$x\"", around("", ".")),
    ("x=`printf '%s.' {{ v }}`; show \"$x\"", around("", ".")),
    ('x=`printf \'%s.\' "{{ v }}"`; show "$x"', around("", ".")),
    ("x=`printf '%s.' '{{ v }}'`; show \"$x\"", around("", ".")),
    ("x=$(case a in a) printf '%s.' {{ v }};; esac); show \"$x\"", around("", ".")),
    (
        'show "$(case a in (b) ;; a) printf \'%s.\' "{{ v }}" ;; esac)" {{ v }}',
        lambda value: shown(value + ".", value),
    ),
    ("show ${none:-{{ v }}}", SAME),
    ('show "${none:-{{ v }}}"', SAME),
    ('show ${none:-"{{ v }}"}', SAME),
    ("show ${none:-'{{ v }}'}", SAME),
    ('show "${none-a {{ v }} b}"', around("a ", " b")),
    ('full=1; show "${full:+{{ v }}}"', SAME),
    ('x=a{{ v }}b; show "${x#a{{ v }}}"', always("b")),
    ('x=a{{ v }}b; x=${x%{{ v }}b}; show "$x"', always("a")),
    ("case {{ v }} in {{ v }}) show yes ;; *) show no ;; esac", always("yes")),
    ("case x{{ v }} in x'{{ v }}') show yes ;; *) show no ;; esac", always("yes")),
    ('case "{{ v }}" in "{{ v }}"|b) show yes ;; *) show no ;; esac', always("yes")),
    ('for x in {{ v }}; do show "$x"; done', SAME),
    ('for x in a {{ v }}\ndo\n  show "$x"\ndone', lambda value: shown("a") + shown(value)),
    ("if [ {{ v }} = {{ v }} ]; then show yes; fi", always("yes")),
    ("if test x\"{{ v }}\" = x'{{ v }}'; then show yes; fi", always("yes")),
    ("while show {{ v }}; do break; done", SAME),
    ("f() { show {{ v }}; }; f", SAME),
    ('f() { show "$1"; }; f {{ v }}', SAME),
    ('set -- {{ v }}; show "$@"', SAME),
    ('sh -c \'printf "1\\0%s\\0" "$1"\' sh {{ v }}', SAME),
    ("echo hi > ../f{{ n }} # {{ v }}\nshow {{ v }}", SAME),
    ("show a#b{{ v }} # it's {{ v }}\n", around("a#b")),
    ("show {{ v }} 2>/dev/null >&1", SAME),
    ("show \\\n  {{ v }}", SAME),
    ("cat <<END\nx {{ v }} $none\\$\nEND\n", lambda value: f"x {value} $\n"),
    ("cat <<-END\n\t{{ v }}.\n\tEND\n", lambda value: f"{value}.\n"),
    ('cat <<END\n"{{ v }}" $(printf "%s." "{{ v }}")\nEND\n', lambda value: f'"{value}" {value}.\n'),
    ("cat <<ONE; cat <<TWO\n{{ v }}.\nONE\n'{{ v }}'\nTWO\n", lambda value: f"{value}.\n'{value}'\n"),
    ('x=$(cat <<END\n{{ v }}.\nEND\n); show "$x"', around("", ".")),
    ("cat <<'END'\nit's \"$x\nEND\nshow {{ v }}", lambda value: "it's \"$x\n" + shown(value)),
    ("{% if v != 'no' %}show {{ v }}{% endif %}", SAME),
    ("show '{% if true %}{{ v }}{% endif %}'", SAME),
    ('show ${#none} "${#none}" {{ v }}', lambda value: shown("0", "0", value)),
    ("show $(( 1 + (2) )) {{ v }}", lambda value: shown("3", value)),
]

BASH_CONTEXTS: list[tuple[str, Expected]] = [
    ("show $'a\\t{{ v }}\\'b'", around("a\t", "'b")),
    ('show $"{{ v }}"', SAME),
    ('a=({{ v }} x); show "${a[@]}"', lambda value: shown(value, "x")),
    ('a=("{{ v }}" \'{{ v }}\'); show "${a[@]}"', lambda value: shown(value, value)),
    ("IFS= read -r -d '' x <<< {{ v }}; show \"$x\"", around("", "\n")),
    ("[[ {{ v }} == {{ v }} ]] && show yes", always("yes")),
    ('[[ x"{{ v }}" =~ ^x{{ v }}$ ]] && show yes', always("yes")),
    ('x=a.b; show "${x/./{{ v }}}"', around("a", "b")),
    ('x=a{{ v }}b; show "${x/{{ v }}b/c}"', always("ac")),
    ('x=a; x+={{ v }}; show "$x"', around("a")),
    ("show \"$(cat <(printf '%s.' {{ v }}))\"", around("", ".")),
    ("for ((i=0; i<1; i++)); do show {{ v }}; done", SAME),
    ('f() { local x={{ v }}; show "$x"; }; f', SAME),
    ("printf -v x %s {{ n }}; show {{ v }}", SAME),
]


def rows() -> list[Any]:
    every = [(shell, *row) for shell in SHELLS for row in CONTEXTS]
    every += [("bash", *row) for row in BASH_CONTEXTS]
    return [pytest.param(*row, id=f"{row[0]}: {row[1]}".encode("unicode_escape").decode()) for row in every]


def run(shell: str, template: str, cwd: Path, **names: object) -> bytes:
    script = make_script(template, names, Expressions(), shell)  # type: ignore[arg-type]
    file = cwd.parent / "script"
    file.write_bytes(script.text)
    return subprocess.run(
        [shell, file],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    ).stdout


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    place = tmp_path / "cwd"
    place.mkdir()
    return place


@pytest.mark.parametrize(("shell", "template", "expected"), rows())
def test_every_value_arrives_as_it_is_in_every_context_and_runs_nothing(
    shell: str, template: str, expected: Expected, cwd: Path
) -> None:
    """One shell for a context: the template's own loop writes the context for each of the values."""
    loop = "{% for v in values %}{% set n = loop.index %}" + template + "\n{% endfor %}"

    written = run(shell, SHOW + loop, cwd, values=VALUES)

    at = 0
    for value in VALUES:
        text = expected(value).encode("utf-8", "surrogateescape")
        assert written[at : at + len(text)] == text, repr(value)
        at += len(text)
    assert at == len(written)
    assert list(cwd.iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_value_of_a_megabyte_arrives(shell: str, cwd: Path) -> None:
    value = "0123456789abcde\n" * 65_536 + "."

    written = run(shell, 'printf %s "{{ v }}"', cwd, v=value)

    assert written == value.encode()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("show {{ words }}", shown("a b", "$(touch pwned)", "")),
        ("show x {{ words }}; show y", shown("x", "a b", "$(touch pwned)", "") + shown("y")),
        ('for w in {{ words }}; do show "$w"; done', shown("a b") + shown("$(touch pwned)") + shown("")),
        ("show $(show {{ words }} | wc -c)", shown("22")),
        ('show "{{ words }}"', shown("a b $(touch pwned) ")),
        ("show '{{ words }}'", shown("a b $(touch pwned) ")),
        ("show --x={{ words }}", shown("--x=a b $(touch pwned) ")),
        ('x={{ words }}; show "$x"', shown("a b $(touch pwned) ")),
        ("case {{ words }} in 'a b'*) show yes ;; esac", shown("yes")),
        ("show x {{ nothing }} y", shown("x", "y")),
        ('show "{{ nothing }}"', shown("")),
        ("show {{ mapping }}", shown('{"a b": [1, null]}')),
        ("show {{ [mapping, 1.5] }}", shown('{"a b": [1, null]}', "1.5")),
        ("show {{ true }} {{ 1.0 }} {{ -3 }}", shown("true", "1.0", "-3")),
        ("show $(( {{ 2 }} * ({{ '3' }} + 1) )) \"$(( {{ 1 }} ))\"", shown("8", "1")),
        ("show {{ 'a  b' | raw }} \"{{ 'c  d' | raw }}\"", shown("a", "b", "c  d")),
        ("{{ ('show ' ~ ('it s' | quote)) | raw }}", shown("it s")),
    ],
)
def test_values_that_are_no_texts_become_words(template: str, expected: str, shell: str, cwd: Path) -> None:
    names = {"words": ["a b", "$(touch pwned)", ""], "nothing": [], "mapping": {"a b": [1, None]}}

    written = run(shell, SHOW + template, cwd, **names)

    assert written.decode() == expected
    assert list(cwd.iterdir()) == []


@table(
    "template",
    [
        "echo $(( {{ v }} ))",
        'echo "$(( 1 + {{ v }} ))"',
        "echo ${x:{{ v }}}",
        "echo ${x[{{ v }}]}",
        "(( x = {{ v }} ))",
        "for ((i = {{ v }}; i < 1; i++)); do :; done",
        "echo $[ {{ v }} ]",
        "let x={{ v }}",
        "[[ 1 -eq {{ v }} ]]",
        "if [[ {{ v }} -lt 3 ]]; then :; fi",
        "declare -i x={{ v }}",
        "unset {{ v }}",
        "read {{ v }}",
        "[ -v {{ v }} ]",
        "printf -v {{ v }} x",
        "eval {{ v }}",
        'true; eval "echo {{ v }}"',
        "sh -c {{ v }}",
        "sh -c 'echo {{ v }}'",
        'sudo /bin/bash -xec "echo {{ v }}"',
        "trap 'echo {{ v }}' EXIT",
        "bash <<END\necho {{ v }}\nEND\n",
        "bash <<< {{ v }}",
        "cat <<'END'\n{{ v }}\nEND\n",
        "cat <<{{ v }}\nEND\n",
        "echo ${{ v }}",
        'echo "${{ v }}"',
        "echo ${!{{ v }}}",
        "echo `echo \\{{ v }}`",
        "echo `echo \\`echo {{ v }}\\``",
        'echo "${x:-"{{ v }}"}"',
        "echo $'\\{{ v }}'",
    ],
)
def test_a_value_is_refused_where_a_shell_would_read_it_as_more_than_a_word(template: str) -> None:
    with pytest.raises(StepError, match=r"`\{\{ v \}\}` cannot stand there: ") as failure:
        make_script(template, {"v": "a[$(touch pwned)]"}, Expressions(), "bash")

    assert failure.value.kind == "template"


def test_plain_words_and_numbers_may_stand_where_a_shell_reads_again(cwd: Path) -> None:
    template = (
        'sh -c "echo {{ word }}"; [[ {{ n }} -gt 2 ]] && echo $(( {{ n }} + 1 )); let x={{ n }}; echo $x'
    )

    assert run("bash", template, cwd, word="a/b.c", n=3) == b"a/b.c\n4\n3\n"


@table(
    ("template", "value", "problem"),
    [
        ("echo {{ v }}", "a\0b", "NUL"),
        ("echo {{ v }}", ["a", "b\0"], "NUL"),
        ("echo {{ v | raw }}", "a\0b", "NUL"),
        ("echo \0", "a", "NUL"),
        ("echo {{ v }}", None, "null"),
        ("echo {{ v }}", ["a", None], "null"),
        ("echo # {{ v }}", None, "null"),
        ("echo {{ v }}", "\ud800", "half of a character"),
        ("$(" * 2000 + "{{ v }}", "a", "nested too deep"),
    ],
    ids=repr,
)
def test_what_no_script_can_hold_is_an_error(template: str, value: object, problem: str) -> None:
    with pytest.raises(StepError, match=problem):
        make_script(template, {"v": value}, Expressions(), "sh")


@pytest.mark.parametrize("shell", SHELLS)
def test_programs_that_a_script_starts_do_not_get_the_values(shell: str, cwd: Path) -> None:
    written = run(shell, "set -a; : {{ v }}; env", cwd, v="only for the script")

    assert b"only for the script" not in written


def test_a_script_that_has_the_name_of_a_variable_keeps_it_for_itself() -> None:
    template = "echo {{ v }}"
    name = make_script(template, {"v": "x"}, Expressions(), "sh").text.partition(b"=")[0]

    script = make_script("echo {{ v }} {{ w | raw }}", {"v": "x", "w": "y"}, Expressions(), "sh").text
    own = make_script(
        "echo {{ v }} {{ w | raw }}", {"v": "x", "w": script.decode()}, Expressions(), "sh"
    ).text

    assert name.startswith(b"coupler_")
    assert own.partition(b"=")[0] not in script


def test_a_shell_counts_the_lines_of_the_script_as_they_were_written(cwd: Path) -> None:
    assert run("bash", "echo {{ v }} $LINENO\necho $LINENO", cwd, v="a") == b"a 1\n2\n"


def test_a_script_without_values_is_itself() -> None:
    assert make_script("echo 'a' ${#x}\n", {}, Expressions(), "sh").text == b"echo 'a' ${#x}\n"


PIECES = re.findall(
    r"\S+",
    "' \" ` $( ) ${x:- ${x# } \\ ; ( esac {{v}} {{v}} {{l}} $(( )) && | x= $' a <<< (( ${x: ] $[ \\' \\\" <(",
)
PIECES += [" ", "\n", " # ", "<<E\n", "\nE\n", "<<'E'\n", "case x in ", "echo ", "[[ ", " ]]", "let ", "if "]


@pytest.mark.parametrize("seed", range(4))
def test_no_value_runs_in_scripts_whose_quotes_are_in_disorder(seed: int, cwd: Path) -> None:
    """Whatever the scan takes such a script for, a value is only ever expanded."""
    chance = random.Random(seed)
    hostile = [value for value in VALUES if "touch" in value]
    for _ in range(40):
        value = chance.choice(hostile)
        template = "".join(chance.choices(PIECES, k=chance.randint(2, 14)))
        try:
            run(chance.choice(SHELLS), template, cwd, v=value, l=[value, value])
        except StepError:
            continue
        assert list(cwd.iterdir()) == [], template
