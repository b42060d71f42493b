"""What users are told whose model is not there, has no key, or is refused; and what programs are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import forked
from coder.script import Scripted
from coder.served_coder import Coder, Served, surroundings
from coupler.agent.errors import AUTH_REQUIRED, TurnFailedError
from coupler.cli.exit_codes import NO_LOGIN
from coupler.coder.model.choice import NO_MODEL, ModelChoice, with_remedy
from labs.langchain.model_server import UNAUTHORIZED, refuses
from raw_client import COUPLER


def opened_models(served: Served, project: Path) -> list[str]:
    answer = served.client.call("session/new", {"cwd": str(project), "mcpServers": []})
    [option] = [each for each in answer["result"]["configOptions"] if each["id"] == "model"]
    return [each["value"] for each in option["options"]]


def test_a_model_without_its_key_is_not_offered_from_the_beginning(coder: Coder, project: Path) -> None:
    served = coder.served(config='[coder]\nmodels = ["openai:other", "anthropic:keyless"]\n')

    assert opened_models(served, project) == ["openai:scripted", "openai:other"]
    served.leave()


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (UNAUTHORIZED, "was asked with the key of COUPLER_API_KEY: correct it, or run `coupler login coder`"),
        (refuses(404, "no such model", "model_not_found"), "was asked: choose another one"),
    ],
)
def test_an_error_of_the_model_says_which_one_where_and_what_to_do(
    coder: Coder, project: Path, reply: Scripted, told: str
) -> None:
    editor = coder(project, [reply])

    message = editor.prompt("Hello").error["message"]

    assert f"openai:scripted at {coder.model.server.url} {told}" in message


def test_who_has_not_started_ollama_is_told_to() -> None:
    choice = ModelChoice(
        name="ollama:qwen", provider="ollama", model="qwen", base_url="http://localhost:1/v1"
    )
    failed = TurnFailedError("The model could not be reached.", kind="network", retryable=True)

    told = with_remedy(failed, choice)

    assert told.message.endswith(
        "ollama:qwen at http://localhost:1/v1 was asked: start Ollama, with `ollama serve` if not otherwise."
    )
    assert told.data == failed.data


def test_a_model_without_a_key_wants_a_login(coder: Coder, project: Path) -> None:
    served = coder.served(
        env={"COUPLER_MODEL": "anthropic:keyless", "COUPLER_BASE_URL": "", "COUPLER_API_KEY": ""}
    )

    turn = served.opened(project).prompt("Hello")

    assert turn.error["message"].startswith("There is no key for anthropic:keyless: set ANTHROPIC_API_KEY")
    assert turn.error["code"] == AUTH_REQUIRED.code
    assert turn.error["data"]["kind"] == "setup"


def test_a_step_of_a_workflow_fails_with_the_same_sentence(project: Path, tmp_path: Path) -> None:
    (project / "greet.yaml").write_text("steps:\n  - {id: greet, agent: coder, prompt: Hello}\n")

    ran = forked.run(
        [*COUPLER, "run", "./greet.yaml"],
        cwd=project,
        env={**os.environ, **surroundings(tmp_path / "home", None)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode != 0
    assert f"coupler run: greet: {NO_MODEL}\n" in ran.stderr
    assert "It wants a login" not in ran.stderr


def test_a_script_reads_what_is_wrong_and_nothing_besides(project: Path, tmp_path: Path) -> None:
    environment = {**os.environ, **surroundings(tmp_path / "home", None)}

    asked = forked.run(
        [*COUPLER, "exec", "coder", "Hello"], cwd=project, env=environment, capture_output=True, text=True
    )

    assert asked.returncode == NO_LOGIN
    assert asked.stdout == ""
    assert asked.stderr.strip() == f"coupler exec: {NO_MODEL}"
