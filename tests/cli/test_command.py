"""The command as a whole: its help, its version, and how it is started."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coupler import __version__
from raw_client import PATIENCE
from tables import table

MODULE = [sys.executable, "-m", "coupler"]
SCRIPT = [str(Path(sys.executable).with_name("coupler"))]


def run(*arguments, command=MODULE, **keywords):
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        **keywords,
    )


@table("arguments", [["--version"], ["--help"], ["serve", "--help"], ["serve"], ["nonsense"], []])
def test_the_module_and_the_script_are_the_same(arguments):
    by_module, by_script = run(*arguments), run(*arguments, command=SCRIPT)

    assert by_module.returncode == by_script.returncode
    assert by_module.stdout.replace("python -m coupler", "coupler") == by_script.stdout
    assert by_module.stderr.replace("python -m coupler", "coupler") == by_script.stderr


def test_the_version_is_told():
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"coupler, version {__version__}\n")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_lists_the_commands(option):
    ended = run(option)
    assert ended.returncode == 0
    assert "Serve an agent to an editor." in ended.stdout


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_serve_lists_every_option(option):
    ended = run("serve", option)

    assert ended.returncode == 0
    for word in ("TARGET", "--name", "--title", "--version", "--log-level", "--log-file", "COUPLER_LOG"):
        assert word in ended.stdout


INTERRUPTED = """
import sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = {arguments!r}
from coupler.__main__ import main
main()
"""


@table(
    ("arguments", "module"),
    [
        (["exec", "agent", "hello"], "click"),
        (["exec", "agent", "hello"], "coupler.cli.exec.exec"),
        (["serve", "agent.py"], "coupler.cli.serve"),
        (["record", "--", "agent"], "coupler.cli.record"),
        (["agents"], "coupler.cli.main"),
        (["agents"], "coupler.providers.catalogue"),
    ],
)
def test_ctrl_c_before_a_command_listens_ends_it_without_a_word(arguments, module):
    ended = run("-c", INTERRUPTED.format(arguments=arguments, module=module), command=[sys.executable])
    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (130, "", "")


def test_an_unknown_command_is_wrong_usage():
    ended = run("serv")
    assert ended.returncode == 2
    assert "There is no command 'serv': did you mean `coupler serve`?" in ended.stderr


@table(
    ("arguments", "sentence"),
    [
        ([__file__.replace("test_command.py", "../workflow/language/everything.yaml"), "x"], "is a workflow"),
        (["a.py", "b.py"], "there is no file a.py"),
        (["a.py", "--nmae", "x"], "there is no option --nmae; there are --agent, --model, --name"),
        (["a.py", "--name"], "--name needs a value"),
        (["a.py", "--name", ""], "--name needs a value"),
        (["a.py", "-x"], "there is no option -x"),
        (["a.py", "--log-level", "loud"], "the log level 'loud' is unknown: use one of debug, info, warning"),
        (["a.py", "--log-file", "/no/such/place/log"], "/no/such/place/log cannot be written: No such file"),
    ],
)
def test_wrong_usage_ends_with_a_sentence_and_code_2(arguments, sentence):
    ended = run("serve", *arguments)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("coupler serve: ")
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
@pytest.mark.parametrize("way", ["coupler serve", "serve() in a script"])
def test_a_terminal_is_told_that_an_editor_starts_this(way, tmp_path):
    import os
    import pty

    script = tmp_path / "app.py"
    script.write_text("from coupler import serve\nasync def agent(turn): ...\nserve(agent)")
    command = [*MODULE, "serve", str(script)] if way == "coupler serve" else [sys.executable, str(script)]
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=PATIENCE)
    finally:
        os.close(ours)
        os.close(theirs)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "let an editor start it" in ended.stderr
    assert "editor" in ended.stderr


def test_serve_under_click_is_the_same_command(tmp_path):
    """`coupler serve` never gets there, but the group must not lie about it."""
    program = "import sys; sys.argv[0] = 'coupler'; from coupler.cli.main import command; command()"

    ended = run("serve", "a.py", "--nonsense", command=[sys.executable, "-c", program])

    assert ended.returncode == 2
    assert ended.stderr.startswith("coupler serve: there is no option --nonsense")


WRITERS = [
    ["--help"],
    ["runs", "--help"],
    ["workflows", "schema"],
    ["agents"],
    ["completion", "bash"],
    ["doctor", "--offline"],
]


@table("arguments", WRITERS)
def test_a_reader_that_leaves_ends_a_command_without_a_word(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [*MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, "")


@table("arguments", WRITERS)
def test_a_closed_stdout_is_an_error_in_one_sentence(arguments):
    ended = run("-c", f"{shlex.join([*MODULE, *arguments])} >&-", command=["/bin/sh"])

    assert ended.returncode == 1
    assert ended.stderr.endswith("the output cannot be written: bad file descriptor\n")
    assert ended.stderr.count("\n") == 1


def test_a_closed_stdin_is_empty(tmp_path):
    (tmp_path / "agent.py").write_text("async def agent(turn):\n    await turn.say(turn.text)\n")
    ended = run("-c", f"{shlex.join([*MODULE, 'chat', 'agent.py'])} <&-", command=["/bin/sh"], cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="a directory that is used cannot be deleted there")
def test_a_directory_that_was_deleted_is_named_by_every_command(tmp_path):
    commands = [
        "exec x hi",
        "chat x",
        "check x",
        "serve x.py",
        "serve -- cat",
        "record x -- cat",
        "trust list",
    ]
    started = {}
    for number, words in enumerate(commands):
        (tmp_path / str(number)).mkdir()
        in_deleted = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *MODULE, *words.split()]
        started[words] = subprocess.Popen(
            in_deleted,
            cwd=tmp_path / str(number),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    told = {words: (process.communicate()[1], process.returncode) for words, process in started.items()}

    sentence = "coupler: the directory that you are in was deleted: go to another one\n"
    assert told == dict.fromkeys(commands, (sentence, 2))
