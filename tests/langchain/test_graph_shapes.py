"""Which objects of LangChain and LangGraph can be served, and how they are spoken to."""

import pytest

from client.stage import run
from coupler import connect
from coupler.agent import factory
from coupler.agent.agent import FrameworkAgent
from coupler.agent.factory import AgentFactory, TargetError, load_target
from coupler.agent.startup.serve_options import OptionError, ServeOptions
from coupler.runtime.extras import MissingExtraError
from labs.langchain.acting import HERE

SHAPES = HERE / "graphs" / "shapes.py"


def said(target, *prompts):
    """What a graph in this process says to the prompts of one session."""

    async def talk():
        async with connect(target) as agent:
            session = await agent.new()
            return [(await session.prompt(prompt)).text for prompt in prompts]

    return run(talk())


@pytest.fixture(scope="module")
def shapes():
    from labs.langchain.graphs import shapes

    return shapes


@pytest.mark.parametrize(
    "name, answers",
    [
        ("static", ["1: one", "3: two"]),
        ("uncompiled", ["1: one", "3: two"]),
        ("own_saver", ["1: one", "3: two"]),
        ("restating", ["once", "once"]),
        ("unmade", ["as a pair\n\nas a dictionary"] * 2),
        ("texts", ["You asked: one", "You asked: two"]),
        ("wishes", ["one, granted", "two, granted"]),
        ("errands", ["went to one", "went to two"]),
        ("functional", ["ONE", "TWO"]),
        ("annotated_as_text", ["ONE", "TWO"]),
        ("with_keys", ["one", "one and two"]),
        ("with_keys_to_text", ["ONE", "TWO"]),
        ("with_one_text", ["ONE", "TWO"]),
        ("listening", ["ONE", "TWO"]),
        ("threaded", ["plain function", "plain function"]),
        ("rewriting", ["plain function", "plain function"]),
        ("nested", ["plain function", "plain function"]),
        ("routed", ["1: one", "3: two"]),
        ("whole", ["in one piece", "in one piece"]),
    ],
)
def test_graphs_of_all_kinds_answer_and_remember(shapes, name, answers):
    assert said(getattr(shapes, name), "one", "two") == answers


@pytest.mark.parametrize(
    "name, answer",
    [("mannered", "Hello, you"), ("habitual", "Welcome, you"), ("demanding", "Who are you, you")],
)
def test_a_context_is_made_of_its_defaults_if_it_needs_nothing_else(shapes, name, answer):
    assert said(getattr(shapes, name), "you") == [answer]


def test_a_factory_gives_each_session_a_graph_of_its_own(shapes):
    made = AgentFactory.of_factory(shapes.factory)

    first, second = run(made.agent_for(None)), run(made.agent_for(None))

    assert isinstance(first, FrameworkAgent)
    assert first is not second


def test_a_graph_whose_input_is_no_prompt_is_refused_with_what_to_do(shapes):
    with pytest.raises(TypeError, match=r"takes numbers, total.*give its state a key `messages`"):
        AgentFactory.of(shapes.numbers)
    with pytest.raises(TypeError, match=r"takes .*dict.*an @entrypoint may take a `str` or a list"):
        AgentFactory.of(shapes.with_anything)


def test_a_chain_is_refused_with_what_to_do(shapes):
    with pytest.raises(TypeError, match=r"RunnableSequence.*create_agent"):
        AgentFactory.of(shapes.chain)


@pytest.mark.parametrize("option", [{"text": False}, {"thoughts": True}, {"blocks": print}])
def test_options_of_graphs_are_refused_for_everything_else(option):
    async def agent(turn):
        await turn.say("hello")

    with pytest.raises(OptionError, match=f"{next(iter(option))}=….*is for graphs"):
        AgentFactory.of(agent, ServeOptions(**option))


def test_graphs_are_found_again_by_the_variable_they_are_in(shapes):
    one, other = AgentFactory.of(shapes.static), AgentFactory.of(shapes.nested)

    assert one.identity == f"{SHAPES}:static"
    assert one.introduction.agent_info.name == "static"
    assert other.identity == f"{SHAPES}:nested"


def test_a_file_with_several_graphs_is_asked_which_one(shapes):
    with pytest.raises(TargetError, match=r"say which one to serve.*static.*nested"):
        load_target(str(SHAPES), ServeOptions())


def test_the_only_graph_of_a_file_is_served(tmp_path):
    file = tmp_path / "only_one.py"
    file.write_text(
        "from labs.langchain.graphs import shapes\n"
        "from langgraph.graph import MessagesState\n"
        "messages = [shapes.model]\n"
        "graph = shapes.linear(MessagesState, shapes.echo).compile()\n"
    )

    made = load_target(str(file), ServeOptions())

    assert made.identity == f"{file}:graph"


def test_a_graph_without_the_packages_for_it_names_what_to_install(shapes, monkeypatch):
    def import_nothing(name):
        missing = "langgraph.checkpoint.sqlite"
        raise ImportError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(factory, "import_module", import_nothing)

    with pytest.raises(MissingExtraError, match=r"coupler\[langchain\]"):
        AgentFactory.of(shapes.static)
