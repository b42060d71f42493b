"""Images of prompts to workflows: which agent gets them, where they are refused, and that none is lost.

Most tests share one `coupler serve`, with a session and a workflow each.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import forked
from agent.sessions.steps import reopen
from agent.steps import leave, still_serves
from client.stage import Scripted
from providers.model_server import ModelServer
from providers.model_server import text as text_answer
from raw_client import COUPLER, Frame, RawClient
from workflow.agent_stage import Script
from workflow.served_agents import Desk
from workflow.served_project import Editor, coupler, opened, served, write_workflow

SERVE = (*COUPLER, "serve")

IMAGE = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
OTHER = {"type": "image", "mimeType": "image/gif", "data": "R0lGODlh", "uri": "file:///tmp/plan.gif"}

ANSWERS = """
for prompt in prompts():
    send(say("seen"), end(prompt))
"""
SEES = f"""
HELLO["agentCapabilities"] = {{"promptCapabilities": {{"image": True}}}}
{ANSWERS}
"""
HANGS_ONCE = """
HELLO["agentCapabilities"] = {"promptCapabilities": {"image": True}}
for prompt in prompts():
    if not os.path.exists("hung"):
        open("hung", "w").close()
        note("hanging", True)
        continue
    send(say("seen"), end(prompt))
"""
GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def look(state: MessagesState) -> dict:
    blocks = state["messages"][-1].content
    seen = ", ".join(f"{each['type']} {each.get('base64', '')}".strip() for each in blocks)
    return {"messages": [AIMessage(seen)]}

graph = StateGraph(MessagesState).add_node("look", look).add_edge(START, "look").compile()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the served process."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    with served(home=place, cwd=place) as client:
        yield client
        leave(client)


@pytest.fixture
def desk(client: RawClient, place: Path, tmp_path: Path) -> Desk:
    still_serves(client)
    client._held.clear()
    return Desk(client, place, tmp_path)


def command_of(agent: Scripted) -> str:
    return json.dumps(shlex.join(agent.command))


def prompts_of(agent: Scripted) -> list[list[Frame]]:
    return [frame["params"]["prompt"] for frame in agent.received_of("session/prompt")]


def text(words: str) -> Frame:
    return {"type": "text", "text": words}


def test_the_prompts_images_go_to_the_first_agent_that_takes_images_and_to_no_other(
    desk: Desk, script: Script
) -> None:
    blind, first, second = script(ANSWERS), script(SEES), script(SEES)
    command = desk.workflow(f"""
        inputs: {{about: {{rest: true}}}}
        steps:
          - {{id: a, agent: {command_of(blind)}, prompt: "A {{{{ inputs.about }}}}"}}
          - {{id: b, agent: {command_of(first)}, prompt: "B {{{{ inputs.about }}}}"}}
          - {{id: c, agent: {command_of(second)}, prompt: "C {{{{ inputs.about }}}}"}}
    """)
    editor = desk.editor()

    shown = editor.finish(editor.begin(f"{command} look at this", IMAGE, OTHER))

    assert shown.meta["status"] == "success"
    assert prompts_of(blind) == [[text("A look at this")]]
    assert prompts_of(first) == [[text("B look at this"), IMAGE, OTHER]]
    assert prompts_of(second) == [[text("C look at this")]]
    assert "takes no images: the prompt's image is for a later step" in shown.output("a")


def test_a_model_server_and_a_graph_get_images_in_their_own_form(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text(GRAPH)
    editor = desk.editor()
    with ModelServer(text_answer("A cat.")) as server:
        command = desk.workflow(f"""
            defaults: {{env: {{OPENAI_BASE_URL: "{server.url}", OPENAI_API_KEY: key-of-the-test}}}}
            steps: [{{id: x, agent: "openai:native", model: small, prompt: "What is it?"}}]
        """)
        shown = editor.finish(editor.begin(command, IMAGE))
    assert shown.messages[0] == "A cat."
    [request] = server.requests
    url = {"url": "data:image/png;base64,iVBORw0KGgo="}
    asked = [text("What is it?"), {"type": "image_url", "image_url": url}]
    assert request["messages"][-1]["content"] == asked

    command = desk.workflow("steps: [{id: x, agent: 'graph.py:graph', prompt: 'What is it?'}]")
    shown = editor.finish(editor.begin(command, IMAGE))
    assert shown.messages[0] == "text, image iVBORw0KGgo="


def test_an_image_that_the_last_agent_cannot_take_is_refused_in_the_step_before_its_prompt(
    desk: Desk, script: Script
) -> None:
    agent = script(ANSWERS)
    command = desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent)
    editor = desk.editor()

    refused = editor.finish(editor.begin(command, IMAGE))

    assert (refused.meta["status"], refused.meta["step"]) == ("failed", "x")
    assert "takes no images, and the prompt that started the run has one" in refused.last_message
    assert prompts_of(agent) == []
    assert editor.prompt(command).meta["status"] == "success"


def test_an_image_that_no_step_came_to_is_told_of(desk: Desk, script: Script) -> None:
    agent = script(SEES)
    command = desk.workflow("steps: [{id: x, if: 'false', agent: AGENT, prompt: go}]", agent)
    editor = desk.editor()

    shown = editor.finish(editor.begin(command, IMAGE))

    assert shown.meta["status"] == "success"
    assert "The image was sent to no agent: no step that ran has one that takes images." in shown.messages
    assert prompts_of(agent) == []


def test_images_in_a_conversation_go_to_its_agent(desk: Desk, script: Script) -> None:
    agent = script(SEES)
    command = desk.workflow("steps: [{id: talk, converse: AGENT, prompt: Begin.}]", agent)
    editor = desk.editor()

    waiting = editor.finish(editor.begin(command, IMAGE))
    editor.finish(editor.begin("And this?", OTHER))
    editor.finish(editor.begin(IMAGE))
    assert editor.prompt("/done").meta["run"] == waiting.run

    heard = prompts_of(agent)
    assert heard[0] == [text("Begin."), IMAGE]
    assert [block for block in heard[1] if block["type"] == "image"] == [OTHER]
    assert heard[1][0]["text"].endswith("And this?")
    assert [block for block in heard[2] if block["type"] == "image"] == [IMAGE]


def test_a_conversation_whose_agent_takes_no_images_refuses_one_in_words_and_waits(
    desk: Desk, script: Script
) -> None:
    agent = script(ANSWERS)
    command = desk.workflow("steps: [{id: talk, converse: AGENT}]", agent)
    editor = desk.editor()
    run = editor.prompt(command).run

    refused = editor.finish(editor.begin("And this?", IMAGE))

    assert (refused.run, refused.meta["status"]) == (run, "parked")
    assert "takes no images: send the message again without" in refused.last_message
    assert prompts_of(agent) == []
    for words in ("/done", "/resume --force"):
        refused = editor.finish(editor.begin(words, IMAGE))
        assert refused.reason == "refusal", words
        assert "still waits at **talk**" in refused.last_message
    editor.prompt("And that?")
    assert prompts_of(agent) == [[text("And that?")]]
    assert editor.prompt("/done").meta["status"] == "success"


@pytest.mark.parametrize("step", ["agent: AGENT, prompt: go", "converse: AGENT"])
def test_an_image_survives_the_death_of_the_process(script: Script, tmp_path: Path, step: str) -> None:
    agent = script(HANGS_ONCE)
    flow = f"steps: [{{id: x, {step}}}]".replace("AGENT", command_of(agent))
    write_workflow(tmp_path / "home" / "workflows", "flow", flow)
    with served(home=tmp_path / "home", cwd=tmp_path) as first:
        editor = opened(first, tmp_path)
        if "converse" in step:
            editor.prompt("/flow")
            editor.begin("go", IMAGE)
        else:
            editor.begin("/flow", IMAGE)
        agent.wait_for("hanging")
        first.process.kill()
        first.process.wait()
    with served(home=tmp_path / "home", cwd=tmp_path) as second:
        reopen(second, "session/load", editor.session, tmp_path)

        shown = Editor(second, editor.session).prompt("/resume")

        assert shown.meta["status"] in ("success", "parked")
        assert prompts_of(agent) == [[text("go"), IMAGE]] * 2
        leave(second)


def test_a_run_that_is_resumed_in_a_terminal_has_its_image(script: Script, tmp_path: Path) -> None:
    agent = script(SEES)
    home = tmp_path / "home"
    step = f"{{id: x, agent: {command_of(agent)}, prompt: go}}"
    write_workflow(home / "workflows", "flow", f"steps: [{{id: mended, run: test -e mended}}, {step}]")
    with served(home=home, cwd=tmp_path) as client:
        editor = opened(client, tmp_path)
        failed = editor.finish(editor.begin("/flow", IMAGE))
        leave(client)
    (tmp_path / "mended").touch()

    resumed = coupler(home, "resume", failed.run)

    assert (failed.meta["step"], resumed.returncode) == ("mended", 0), resumed.stderr
    assert prompts_of(agent) == [[text("go"), IMAGE]]
    named = {line.split()[1] for line in resumed.stdout.splitlines() if line[2:3] == ":"}
    assert named <= {"the", "mended:", "x:", "x", "mended"}, resumed.stdout


def test_a_served_workflow_advertises_images_while_a_step_can_take_them(
    script: Script, tmp_path: Path
) -> None:
    agent = script(SEES)
    flow = tmp_path / "flow.yaml"
    steps = {
        "run: 'true'": False,
        f"agent: {command_of(agent)}, prompt: go": True,
        "agent: 'claude:native', prompt: go": False,
    }
    for step, takes in (*steps.items(), *steps.items()):
        flow.write_text(f"steps: [{{id: x, {step}}}]")
        with RawClient(*SERVE, str(flow), cwd=tmp_path, env={"COUPLER_HOME": str(tmp_path)}) as client:
            offered = client.initialize()["result"]["agentCapabilities"]["promptCapabilities"]
            editor = opened(client, tmp_path)
            answer = editor.finish(editor.begin("", IMAGE)).answer
            leave(client)

        assert offered["image"] is takes, step
        assert ("error" in answer) is not takes, answer

    assert prompts_of(agent) == [[text("go"), IMAGE]] * 2


def test_an_image_that_is_mentioned_in_a_chat_reaches_the_agent_of_the_step(
    script: Script, tmp_path: Path
) -> None:
    agent = script(SEES)
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    step = {"id": "look", "agent": shlex.join(agent.command), "prompt": "{{ inputs.about }}"}
    flow = {"inputs": {"about": {"rest": True}}, "steps": [step]}
    (tmp_path / "flow.yaml").write_text(json.dumps(flow))

    done = forked.run(
        [*COUPLER, "chat", "flow.yaml"],
        cwd=tmp_path,
        input="look at @cat.png\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert "cat.png is attached as an image" in done.stdout
    uri = (tmp_path / "cat.png").as_uri()
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw==", "uri": uri}
    assert prompts_of(agent) == [[text("look at @cat.png"), image]]
