"""The coder's commands get no variable that holds a secret, but those that its user lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from coder.editor import TERMINALS
from coder.script import use
from coder.served_coder import Coder, tree
from coder.tools.test_sandbox import needs_sandbox

SECRET = {"GITHUB_TOKEN": "ghp_0123456789abcdefABCDEF", "NPM_TOKEN": "npm_0123456789abcdefABCDEF"}
OPEN = {"SSH_AUTH_SOCK": "/tmp/ssh-AbCdEf0123456789Xy/agent.4711", "XAUTHORITY": "/run/user/1000/.Xauthority"}
LISTED = '[coder]\nenvironment = ["GITHUB_TOKEN"]\n'
TOLD = "withheld from its environment: NPM_TOKEN"


def variables(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


def test_commands_and_jobs_get_what_is_no_secret_and_what_is_listed(coder: Coder, project: Path) -> None:
    served = coder.served(config=LISTED, env={**SECRET, **OPEN})
    coder.model.plays(
        use("run_command", command="env > command.txt"),
        use("run_command", command="env > job.txt", background=True),
        "Done.",
    )

    served.opened(project).prompt("Run them", "allow_once", "allow_once")
    served.leave()

    for text in tree(project).values():
        found = variables(text)
        assert {name for name in SECRET if name in found} == {"GITHUB_TOKEN"}
        assert found.items() >= OPEN.items()


def test_the_model_is_told_once_what_a_failed_command_was_not_given(coder: Coder, project: Path) -> None:
    served = coder.served(config=LISTED, env=SECRET)
    coder.model.plays(
        use("run_command", command="true"),
        use("run_command", command="exit 3"),
        use("run_command", command="exit 4"),
        "Done.",
    )

    served.opened(project).prompt("Run them", *["allow_once"] * 3)
    served.leave()

    works, fails, fails_again = (asked.result for asked in coder.model.asked[1:4])
    assert TOLD not in works
    assert fails.startswith("(exit code 3)")
    assert TOLD in fails
    assert "`environment` of `[coder]`" in fails
    assert TOLD not in fails_again
    assert SECRET["NPM_TOKEN"] not in str([asked.messages for asked in coder.model.asked])


def test_a_job_that_fails_is_told_too(coder: Coder, project: Path) -> None:
    served = coder.served(env=SECRET)
    coder.model.plays(use("run_command", command="exit 3", background=True), "Done.")

    served.opened(project).prompt("Run it", "allow_once")
    served.leave()

    assert "withheld from its environment: GITHUB_TOKEN, NPM_TOKEN" in coder.model.last.result


def test_a_variable_that_is_named_as_secret_is_withheld_whatever_it_is_called(
    coder: Coder, project: Path
) -> None:
    served = coder.served(config='[secrets]\nnames = ["DEPLOY_LOGIN"]\n', env={"DEPLOY_LOGIN": "ann:4711"})
    coder.model.plays(use("run_command", command="env > command.txt"), "Done.")

    served.opened(project).prompt("Run it", "allow_once")
    served.leave()

    assert "DEPLOY_LOGIN" not in variables(tree(project)["command.txt"])


def test_what_a_profile_gives_its_agent_its_commands_get(coder: Coder, project: Path) -> None:
    config = '[agents.pusher]\nagent = "coder"\nenv = {GITHUB_TOKEN = "ghp_of_the_profile_0123456789"}\n'
    served = coder.served("--agent", "pusher", config=config, env=SECRET)
    coder.model.plays(use("run_command", command="env > command.txt"), "Done.")

    served.opened(project).prompt("Run it", "allow_once")
    served.leave()

    found = variables(tree(project)["command.txt"])
    assert found["GITHUB_TOKEN"] == "ghp_of_the_profile_0123456789"
    assert "NPM_TOKEN" not in found


def test_in_the_editors_terminal_they_are_empty(coder: Coder, project: Path) -> None:
    served = coder.served(config=LISTED, env=SECRET, **TERMINALS)
    coder.model.plays(use("run_command", command="exit 3"), "Done.")
    editor = served.opened(project)

    editor.prompt("Run it", "allow_once")

    [terminal] = editor.terminals.values()
    given = {each["name"]: each["value"] for each in terminal.asked["env"]}
    assert given["NPM_TOKEN"] == ""
    assert "GITHUB_TOKEN" not in given
    assert TOLD in coder.model.last.result
    served.leave()


@needs_sandbox
def test_in_the_sandbox_they_are_not_set_also_in_the_editors_terminal(
    coder: Coder, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_TOKEN", SECRET["NPM_TOKEN"])  # the editor is this process
    served = coder.served(config=LISTED + 'sandbox = "on"\n', env=SECRET, **TERMINALS)
    coder.model.plays(use("run_command", command="env > command.txt"), "Done.")

    served.opened(project).prompt("Run it", "allow_once")
    served.leave()

    assert "NPM_TOKEN" not in variables(tree(project)["command.txt"])


def test_a_project_cannot_list_any(coder: Coder, project: Path) -> None:
    (project / "coupler.toml").write_text('[coder]\nenvironment = ["GITHUB_TOKEN", "NPM_TOKEN"]\n')
    served = coder.served(env=SECRET)
    coder.model.plays(use("run_command", command="env > command.txt"), "Done.")

    served.opened(project).prompt("Run it", "allow_once")
    served.leave()

    assert SECRET.keys().isdisjoint(variables(tree(project)["command.txt"]))
