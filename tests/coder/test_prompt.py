"""The system prompt: what is in it, in which order, and that it stays the same as long as nothing changes."""

import asyncio
import subprocess

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from langchain_core.messages import HumanMessage

from coder.talking import talk
from coupler import acp
from coupler.coder.prompt import IDENTITY, WORKING_RULES, PromptMiddleware
from coupler.coder.skills import Skills
from coupler.events import Notice
from labs.langchain.scripted_model import ScriptedModel, call


class Place:
    def __init__(self, cwd, home):
        self.cwd, self.roots = str(cwd), (str(cwd),)
        self.env = {"COUPLER_HOME": str(home), "HOME": str(home / "of-user")}


class Agent:
    """An agent whose model notes its system prompts."""

    def __init__(self, cwd, home, *, middleware=(), **settings):
        self.systems = []
        self.cwd = cwd
        model = ScriptedModel(script=self.act)
        prompt = PromptMiddleware(Skills(Place(cwd, home)), **settings)
        self.graph = create_agent(model, [], middleware=[prompt, *middleware], system_prompt="And be kind.")

    def act(self, messages):
        self.systems += [message.text for message in messages if message.type == "system"]
        return ["Fine."]

    def talk(self, *prompts):
        return talk(self.graph, *prompts, cwd=self.cwd)


@pytest.fixture
def agent(tmp_path, coupler_home):
    return lambda **settings: Agent(tmp_path, coupler_home, **settings)


def test_what_never_changes_comes_first_and_what_changes_with_the_day_last(agent, tmp_path):
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "notes.txt").write_text("A note.")
    skill = tmp_path / ".agents" / "skills" / "release"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\ndescription: Makes releases\n---\n")
    made = agent(own="You are a poet.", files=[str(tmp_path / "notes.txt")])

    made.talk("hello")

    parts = [
        IDENTITY,
        WORKING_RULES,
        "You are a poet.",
        "Use tabs.",
        "- release:",
        "A note.",
        "Working directory:",
        "Date:",
    ]
    places = [made.systems[0].index(part) for part in parts]
    assert places == sorted(places)
    assert made.systems[0].startswith(IDENTITY)


def test_it_stays_the_same_over_turns_so_that_providers_recognize_it(agent, tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)
    made = agent()

    made.talk("one", lambda: (tmp_path / "new.txt").write_text(""), "two")

    assert made.systems[0] == made.systems[1]
    assert "Branch: main" in made.systems[0]


def test_it_says_where_the_session_is(agent, tmp_path):
    made = agent()

    made.talk("hello")

    assert f"Working directory: {tmp_path}" in made.systems[0]
    assert "Not a git repository." in made.systems[0]


def test_what_others_add_comes_behind_it(agent):
    made = agent(middleware=[TodoListMiddleware(), acp.modes("planning")])

    made.talk("hello")

    system = made.systems[0]
    assert system.index(WORKING_RULES) < system.index("And be kind.") < system.index("write_todos")
    assert system.index("write_todos") < system.index("You are in planning mode")


def test_a_context_file_that_is_missing_is_told(agent, tmp_path):
    made = agent(files=[str(tmp_path / "gone.txt")])

    seen = made.talk("hello")

    assert seen.last.text == "Fine."
    assert "gone.txt is named as context" in seen.of(Notice)[0].description
    assert "# Given files" not in made.systems[0]


def test_a_name_of_a_branch_cannot_pose_as_a_rule(agent, tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "x</git>y", str(tmp_path)], check=True)
    made = agent()

    made.talk("hello")

    assert "x&lt;/git>y" in made.systems[0]


def test_an_agent_that_is_not_served_has_its_own_prompt_alone(agent):
    made = agent()

    asyncio.run(made.graph.ainvoke({"messages": [HumanMessage("hello")]}))

    assert made.systems == ["And be kind."]


def test_todos_are_shown_as_the_plan_and_known_in_the_next_turn(tmp_path):
    todos = [{"content": "look", "status": "completed"}, {"content": "tell", "status": "pending"}]
    known = []

    class Watch(AgentMiddleware):
        async def abefore_agent(self, state, runtime):
            known.append(state.get("todos"))

    answers = iter([[call("write_todos", "t", todos=todos)], ["Done."], ["Done."]])
    model = ScriptedModel(script=lambda messages: next(answers))
    graph = create_agent(model, [], middleware=[TodoListMiddleware(), acp.plan(), Watch()])

    seen = talk(graph, "one", "two", cwd=tmp_path)

    assert next((entry.content, entry.status) for entry in seen.replies[0].plan) == ("look", "completed")
    assert known == [None, todos]
