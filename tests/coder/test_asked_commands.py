"""Commands of the coder that print secrets, read what is denied or reach other processes, over real pipes."""

from __future__ import annotations

from pathlib import Path

from coder.script import use
from coder.served_coder import Coder, tree, write

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ4567"


def refused(coder: Coder, project: Path, mode: str, commands: list[str], config: str = "") -> None:
    """Have the model run each command, refuse it, and see that nothing of it was run."""
    served = coder.served(config=config, env={"GITHUB_TOKEN": SECRET})
    coder.model.plays(*(use("run_command", command=command) for command in commands), "As you like.")
    editor = served.opened(project)
    editor.set_mode(mode)

    turn = editor.prompt("Go", *["reject_once"] * len(commands))

    assert [each["toolCall"]["rawInput"]["command"] for each in editor.asked] == commands
    assert {each["status"] for each in turn.uses} == {"failed"}
    assert SECRET not in coder.model.last.text
    served.leave()


PRINTING = [
    *("set", "set | grep TOKEN", "env", "printenv GITHUB_TOKEN", "echo $GITHUB_TOKEN", "export -p"),
    *("x=$GITHUB_TOKEN; echo $x", "cat <<EOF\n${GITHUB_TOKEN}\nEOF", "ps eww", "compgen -v"),
    "awk 'BEGIN { print ENVIRON[\"GITHUB_TOKEN\"] }'",
]


def test_commands_that_print_the_environment_are_asked_about_in_ask(coder: Coder, project: Path) -> None:
    refused(coder, project, "interactive", PRINTING)


def test_commands_that_print_the_environment_are_asked_about_in_auto(coder: Coder, project: Path) -> None:
    refused(coder, project, "agentic", PRINTING)


def test_a_rule_of_the_user_still_allows_a_command_that_prints_it(coder: Coder, project: Path) -> None:
    config = '[permissions]\nallow = ["execute(printenv *)", "execute(echo *)"]\n'
    served = coder.served(config=config, env={"SHOWN_TOKEN": "x", "PLAIN": "word"})
    coder.model.plays(use("run_command", command="printenv PLAIN; echo $SHOWN_TOKEN done"), "Done.")
    editor = served.opened(project)
    editor.set_mode("agentic")

    turn = editor.prompt("Go")

    assert (editor.asked, turn.use["status"]) == ([], "completed")
    assert "word" in coder.model.last.result
    served.leave()


def test_what_must_not_be_read_is_not_read_by_a_command_either(coder: Coder, project: Path) -> None:
    write(project, {".env": "KEY=hidden-in-the-file\n", "list": ".env\n"})
    config = '[permissions]\nallow = ["execute(cat *)"]\ndeny = ["read(**/.env)"]\n'
    denied = ["cut -c1- .env", "cat .env", "cat .e*", "cat < .env"]
    unknown = ["echo .env | xargs cat", "cat $(cat list)"]
    served = coder.served(config=config)
    coder.model.plays(
        *(use("run_command", command=command) for command in [*denied, *unknown]), "I cannot read it."
    )
    editor = served.opened(project)
    editor.set_mode("agentic")

    turn = editor.prompt("Go", *["reject_once"] * len(unknown))

    assert [each["toolCall"]["rawInput"]["command"] for each in editor.asked] == unknown
    assert {each["status"] for each in turn.uses} == {"failed"}
    assert "hidden-in-the-file" not in coder.model.last.text
    served.leave()


def test_what_must_not_be_edited_is_not_written_by_a_command_either(coder: Coder, project: Path) -> None:
    write(project, {"kept/a.txt": "kept\n", "b.txt": "other\n"})
    config = '[permissions]\nallow = ["execute(cp *)", "execute(rm *)"]\ndeny = ["edit(kept/**)"]\n'
    writing = ["cp b.txt kept/a.txt", "cp b.txt kept", "rm kept/a.txt", "touch kept/c.txt", "mv kept/a.txt c"]
    served = coder.served(config=config)
    coder.model.plays(
        *(use("run_command", command=command) for command in [*writing, "cp kept/a.txt c.txt"]), "Done."
    )
    editor = served.opened(project)
    editor.set_mode("agentic")

    turn = editor.prompt("Go")

    assert tree(project) == {"kept/a.txt": "kept\n", "b.txt": "other\n", "c.txt": "kept\n"}
    assert [each["status"] for each in turn.uses] == [*["failed"] * len(writing), "completed"]
    served.leave()


def test_other_processes_and_global_installs_are_asked_about_in_auto(coder: Coder, project: Path) -> None:
    commands = ["kill 999999", "pkill -f nothing", "systemctl stop x", "npm i -g x", "apt install x"]
    refused(coder, project, "agentic", commands)


def test_a_variable_of_the_project_needs_no_question_of_its_own(coder: Coder, project: Path) -> None:
    served = coder.served(config='[permissions]\nallow = ["execute(sh show.sh)"]\n')
    write(project, {"show.sh": "echo it is $FOO\n"})
    coder.model.plays(
        use("run_command", command="FOO=one sh show.sh"),
        use("run_command", command="env FOO=two sh show.sh"),
        use("run_command", command="PATH=/tmp sh show.sh"),
        "Done.",
    )
    editor = served.opened(project)

    editor.prompt("Go", "reject_once")

    assert [each["toolCall"]["rawInput"]["command"] for each in editor.asked] == ["PATH=/tmp sh show.sh"]
    one, two, _ = coder.model.last.results
    assert ("it is one" in one, "it is two" in two) == (True, True)
    served.leave()
