"""The served coder on three providers' wires, with a server that takes nothing it need not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coder.editor import Editor, Turn
from coder.served_coder import Coder, Served, clerk
from labs.coder_day import DOT, MODELS
from labs.scripted_model import Call
from labs.strict_model import Move, StrictModel

WIRES = tuple(MODELS)
IMAGE = {"type": "image", "data": DOT, "mimeType": "image/png"}


@pytest.fixture
def strict() -> Iterator[StrictModel]:
    with StrictModel() as model:
        yield model
    assert not model.ledger.malformed
    assert not model.ledger.surprises


@pytest.fixture
def served(coder: Coder, strict: StrictModel) -> Callable[..., Served]:
    """A coder whose model is reached by one of the wires."""

    def serve(wire: str, home: Path | None = None) -> Served:
        address = f"{strict.url}/v1" if wire == "openai" else strict.url
        return coder.served(home=home, env={"COUPLER_MODEL": MODELS[wire], "COUPLER_BASE_URL": address})

    return serve


def with_clerk(process: Served, strict: StrictModel, project: Path) -> Editor:
    """A session whose MCP server is there."""
    editor = process.opened(project, clerk())
    editor.set_mode("agentic")
    offered: frozenset[str] = frozenset()
    while "show" not in offered:
        strict.begin([Move("I wait for the server.")])
        editor.prompt("Wait")
        offered = strict.ledger.asked[-1].tools
    return editor


def thoughts(turn: Turn) -> str:
    return "\n".join(str(each["content"]["text"]) for each in turn.of("agent_thought_chunk"))


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_takes_no_images_refuses_one_once(
    served: Callable[..., Served], strict: StrictModel, project: Path, wire: str
) -> None:
    strict.strictness.takes_images = False
    process = served(wire)
    editor = process.opened(project)
    strict.begin([Move("I cannot see it."), Move("Still here.")])

    turn = editor.finish(editor.begin("What is this?", IMAGE))
    later = editor.prompt("Go on")

    assert (turn.last_message, later.last_message) == ("I cannot see it.", "Still here.")
    assert "Images and files were taken out" in thoughts(turn)
    assert len(strict.ledger.refusals) == 1
    process.leave()


@pytest.mark.parametrize("wire", WIRES)
def test_images_of_prompts_and_tools_are_sent_and_files_of_other_types_are_named(
    served: Callable[..., Served], strict: StrictModel, project: Path, wire: str
) -> None:
    process = served(wire)
    editor = with_clerk(process, strict, project)
    strict.begin([Move(Call("show", {"text": DOT}), Call("read_memo", {"text": "x"})), Move("I see two.")])

    turn = editor.finish(editor.begin("Compare", IMAGE))

    assert turn.last_message == "I see two."
    assert not strict.ledger.refusals
    assert strict.ledger.asked[-1].images == 3, (
        "of the prompt, of the result, and in the arguments of the call"
    )
    process.leave()


@pytest.mark.parametrize("wire", WIRES)
def test_calls_of_tools_that_are_gone_are_joined_with_the_answer_behind_them(
    served: Callable[..., Served], strict: StrictModel, project: Path, wire: str
) -> None:
    first = served(wire)
    editor = with_clerk(first, strict, project)
    calls = [
        Move("I ask.", Call("read_memo", {"text": "x"})),
        Move("I look.", Call("list_directory", {"path": "."})),
    ]
    strict.begin([*calls, Move("There is nothing.")])
    editor.prompt("Look around")
    first.client.process.kill()
    again = served(wire, first.home)
    loaded, _ = again.loaded(editor.session, project)
    strict.strictness.knows_all_tools = False
    strict.begin([Move("It said x."), Move("Still.")])

    turn, later = loaded.prompt("What did it say?"), loaded.prompt("Sure?")

    assert (turn.last_message, later.last_message) == ("It said x.", "Still.")
    assert strict.ledger.refusals == ["unknown tool name: 'read_memo'"]
    again.leave()
