"""What can be served, and how it is named."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from agent.steps import error_of, leave
from coupler.agent import factory as module
from coupler.agent.agent import Agent, FunctionAgent, is_turn_function
from coupler.agent.blocking import BlockingTurn
from coupler.agent.factory import AgentFactory, as_agent
from coupler.agent.startup.serve_options import NO_OPTIONS
from coupler.agent.turn import Turn
from raw_client import COUPLER, RawClient, texts
from tables import table

TWO = """
from coupler import Agent, Turn
async def first(turn): await turn.say("first")
async def second(message: Turn): await turn.say("second")
class Third(Agent):
    async def prompt(self, turn): await turn.say("third")
def _private(turn): ...
async def not_one(turn, other): ...
async def nor_this(message): ...
limit = 5
"""


def said(client):
    client.initialize()
    return texts(client.prompt(client.new_session())[0])


def refusal(client):
    client.initialize()
    answer = client.call("session/new", {"cwd": "/", "mcpServers": []})
    assert error_of(answer) == (-32603, "target_failed")
    return answer["error"]["message"]


class TestFromTheCommandLine:
    def test_the_name_agent_wins(self, start):
        client = start(TWO + "\nasync def agent(turn): await turn.say('agent')")
        assert said(client) == "agent"

    @pytest.mark.parametrize(
        "only",
        [
            "async def helper(turn): await turn.say('it')",
            "def helper(turn): turn.say('it')",
            "from coupler import Turn\nasync def helper(t: Turn): await t.say('it')",
            "import coupler\nasync def helper(t: coupler.Turn): await t.say('it')",
            "from __future__ import annotations\nimport coupler\n"
            "async def helper(t: coupler.Turn): await t.say('it')",
            "from coupler import Agent\n"
            "class Helper(Agent):\n    async def prompt(self, turn): await turn.say('it')",
            "from functools import partial\nasync def helper(turn, mood='x'): await turn.say('it')",
        ],
    )
    def test_the_only_candidate_is_served(self, start, only):
        assert said(start(only)) == "it"

    def test_what_a_file_only_imports_is_no_candidate(self, start, app):
        app("async def imported(turn): ...", "beside.py")
        assert said(start("from beside import imported\nasync def own(turn): await turn.say('own')")) == "own"

    def test_several_candidates_are_listed(self, start):
        message = refusal(start("async def first(turn): ...\nasync def second(turn): ..."))
        assert message.endswith("app.py:NAME; it could be one of first, second")

    def test_no_candidate_says_what_could_be_served(self, start):
        message = refusal(start("limit = 5"))
        assert "nothing to serve" in message
        assert "a function with one parameter named `turn`" in message

    @pytest.mark.parametrize(
        ("name", "expected"), [("first", "first"), ("Third", "third"), ("Box.inner", "inner")]
    )
    def test_a_name_after_the_colon_is_taken(self, start_target, app, name, expected):
        path = app(TWO + "\nclass Box:\n    async def inner(turn): await turn.say('inner')")
        client = start_target(f"{path}:{name}")
        assert said(client) == expected

    def test_a_name_that_is_not_there_is_named_with_those_that_are(self, start_target, app):
        client = start_target(f"{app(TWO)}:thirdd")
        assert refusal(client).endswith("there is no 'thirdd'; it could be one of first, second, Third")

    def test_a_name_that_is_no_agent_says_what_it_is(self, start_target, app):
        client = start_target(f"{app(TWO)}:limit")
        assert refusal(client).endswith("this is 5")

    def test_a_module_is_found_in_the_current_directory(self, start_target, app, tmp_path):
        (tmp_path / "package").mkdir()
        (tmp_path / "package" / "__init__.py").write_text("__version__ = '9'")
        app(
            "async def agent(turn): await turn.say(turn.session.editor.info.name if 0 else 'module')",
            "package/inner.py",
        )
        client = start_target("package.inner:agent", cwd=tmp_path)
        assert client.initialize()["result"]["agentInfo"]["version"] == "9"
        assert texts(client.prompt(client.new_session())[0]) == "module"

    def test_a_missing_module_is_named(self, start_target, tmp_path):
        client = start_target("no_such_module:agent", cwd=tmp_path)
        assert refusal(client).startswith(f"there is no module 'no_such_module', neither in {tmp_path} nor")
        leave(client)
        assert b"Traceback" not in client.stderr

    def test_an_agent_of_the_catalogue_is_no_module_and_the_way_to_serve_it_is_told(
        self, start_target, tmp_path
    ):
        client = start_target("claude", cwd=tmp_path)
        assert refusal(client).endswith("is served by: coupler serve -- claude")

    def test_a_module_that_a_target_imports_in_vain_is_an_error_of_its_code(
        self, start_target, app, tmp_path
    ):
        app("import no_such_module", "inner.py")
        client = start_target("inner:agent", cwd=tmp_path)
        assert "ModuleNotFoundError: No module named 'no_such_module'" in refusal(client)
        leave(client)
        assert b"Traceback" in client.stderr

    def test_a_missing_file_is_named_and_initialize_is_answered(self, start_target, tmp_path):
        client = start_target("gone.py:agent", cwd=tmp_path)
        assert refusal(client) == f"there is no file {tmp_path}/gone.py"
        leave(client)
        assert b"there is no file" in client.stderr
        assert b"Traceback" not in client.stderr

    def test_a_file_that_is_no_python_is_refused(self, start_target, app, tmp_path):
        app("hello", "notes.txt")
        client = start_target(tmp_path / "notes.txt")
        assert refusal(client) == f"{tmp_path}/notes.txt is not a Python file"

    @pytest.mark.parametrize("name", ["json.py", "asyncio.py", "my-agent.py", "coupler.py", "ünï.py"])
    def test_a_file_may_be_called_like_anything(self, start_target, app, name):
        path = app(
            """
            import dataclasses
            @dataclasses.dataclass
            class Point:
                x: int
            async def agent(turn):
                await turn.say(f"{Point(1)}")
            """,
            name,
        )
        client = start_target(path)
        assert said(client) == "Point(x=1)"

    def test_a_file_can_import_what_lies_beside_it(self, app, start):
        app("WORD = 'beside'", "beside.py")
        assert said(start("import beside\nasync def agent(turn): await turn.say(beside.WORD)")) == "beside"


class TestServeInAScript:
    SCRIPT = """
        from coupler import serve
        async def one(turn): await turn.say("one")
        async def two(turn): await turn.say("two")
        serve(two, name="dos")
    """

    def test_it_serves_when_it_is_run(self, app):
        with RawClient(sys.executable, str(app(self.SCRIPT))) as client:
            assert client.initialize()["result"]["agentInfo"]["name"] == "dos"
            assert texts(client.prompt(client.new_session())[0]) == "two"
            leave(client)

    def test_it_means_the_same_under_the_command(self, start):
        client = start(self.SCRIPT)
        assert client.initialize()["result"]["agentInfo"]["name"] == "dos"
        assert texts(client.prompt(client.new_session())[0]) == "two"

    def test_a_name_after_the_colon_wins_over_it(self, start_target, app):
        client = start_target(f"{app(self.SCRIPT)}:one")
        assert said(client) == "one"

    @pytest.mark.parametrize("way", ["python", "coupler serve"])
    def test_it_takes_words_too(self, app, tmp_path, way):
        app("async def hidden(turn): await turn.say('words')", "other.py")
        script = str(app("from coupler import serve\nserve('other.py:hidden')", "script.py"))
        command = [sys.executable, script] if way == "python" else [*COUPLER, "serve", script]
        with RawClient(*command, cwd=tmp_path) as client:
            assert said(client) == "words"
            leave(client)

    def test_a_factory_gets_each_session_and_returns_its_agent(self, start, tmp_path):
        client = start("""
            from coupler import Agent, serve
            class Named(Agent):
                def __init__(self, name): self._name = name
                async def prompt(self, turn): await turn.say(self._name)
            def make(session):
                if session.cwd == "/":
                    return Named("root")
                async def elsewhere(turn): await turn.say(session.cwd)
                return elsewhere
            serve(factory=make, version="5")
        """)
        info = client.initialize()["result"]["agentInfo"]
        assert info == {"name": "make", "title": "make", "version": "5"}
        assert texts(client.prompt(client.new_session("/"))[0]) == "root"
        assert texts(client.prompt(client.new_session(str(tmp_path)))[0]) == str(tmp_path)

    def test_a_factory_may_be_async(self, start, tmp_path):
        client = start("""
            import asyncio
            from coupler import serve
            async def make(session):
                await asyncio.sleep(0)
                async def agent(turn): await turn.say(session.cwd)
                return agent
            serve(factory=make)
        """)
        client.initialize()
        assert texts(client.prompt(client.new_session(str(tmp_path)))[0]) == str(tmp_path)

    def test_a_factory_that_waits_can_be_cancelled(self, start):
        client = start("""
            import asyncio
            from coupler import serve
            async def make(session):
                await asyncio.Event().wait()
            serve(factory=make)
        """)
        client.initialize()
        request = client.request("session/new", {"cwd": "/", "mcpServers": []})
        client.send(request, {"method": "$/cancel_request", "params": {"requestId": request["id"]}})

        assert error_of(client.answer_to(request)) == (-32800, "cancelled")

    @pytest.mark.parametrize("words", ["itself.py", "./itself.py"])
    def test_a_file_that_serves_itself_is_told_so(self, app, words):
        path = app(f"from coupler import serve\nserve({words!r})", "itself.py")
        with RawClient(*COUPLER, "serve", path.name, cwd=path.parent) as client:
            assert "serves itself: give serve() the agent" in refusal(client)
            leave(client)

    @pytest.mark.parametrize(
        ("result", "message"),
        [
            ("None", "the factory agent returned None"),
            ("5", "serve takes a function"),
            ("print", "serve takes a function"),
        ],
    )
    def test_a_factory_that_makes_no_agent_fails_its_session(self, start, result, message):
        client = start(f"from coupler import serve\nserve(factory=lambda session: {result})")
        client.initialize()

        answer = client.call("session/new", {"cwd": "/", "mcpServers": []})

        assert error_of(answer) == (-32603, "agent_failed")
        assert message in answer["error"]["message"]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            ("serve()", "serve takes a function with one parameter named `turn`"),
            ("serve(5)", "this is 5"),
            ("serve(print, factory=print)", "a target or a factory, not both"),
            ("serve('x.py', factory=print)", "a target or a factory, not both"),
        ],
    )
    def test_what_cannot_be_served_is_an_error_in_the_script(self, app, call, message):
        with RawClient(sys.executable, str(app(f"from coupler import serve\n{call}"))) as client:
            assert client.wait() == 1
            assert message in client.stderr.decode()

    def test_a_main_guard_keeps_the_file_servable(self, start):
        client = start("""
            from coupler import serve
            async def agent(turn): await turn.say("guarded")
            if __name__ == "__main__":
                serve(agent)
        """)
        assert said(client) == "guarded"


class TestWords:
    @table(
        ("words", "expected"),
        [
            ("app.py", ("app.py", "")),
            ("app.py:agent", ("app.py", "agent")),
            ("package.module:Agent.inner", ("package.module", "Agent.inner")),
            ("C:\\work\\app.py", ("C:\\work\\app.py", "")),
            ("C:\\work\\app.py:agent", ("C:\\work\\app.py", "agent")),
            ("app.py:", ("app.py:", "")),
            ("app.py:not a name", ("app.py:not a name", "")),
            ("a:b:c", ("a:b", "c")),
        ],
    )
    def test_the_last_colon_before_a_name_splits(self, words, expected):
        assert module.split_target(words) == expected

    @table(
        ("place", "expected"),
        [("app.py", True), ("dir/app", True), ("app", False), ("package.module", False)],
    )
    def test_a_file_is_told_from_a_module(self, place, expected):
        assert module.is_file_target(place) is expected

    def test_a_directory_is_not_a_file(self, tmp_path):
        with pytest.raises(module.TargetError, match=r"is no file$"):
            module.load_target(f"{tmp_path}/", NO_OPTIONS)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read_is_told_in_a_sentence(self, tmp_path):
        (tmp_path / "app.py").write_text("agent = None")
        (tmp_path / "app.py").chmod(0)
        with pytest.raises(module.TargetError, match="cannot be read: permission denied"):
            module.load_target(f"{tmp_path}/app.py", NO_OPTIONS)


class TestTurnFunctions:
    class Box:
        def method(self, turn): ...

        def __call__(self, turn): ...

    @table(
        "function",
        [
            lambda turn: None,
            lambda turn, mood="": None,
            lambda turn, *rest, **more: None,
            Box().method,
        ],
    )
    def test_one_parameter_called_turn_makes_an_agent(self, function):
        assert is_turn_function(function)
        assert isinstance(as_agent(function), FunctionAgent)

    def test_one_parameter_annotated_as_a_turn_makes_an_agent(self):
        def by_type(message: Turn): ...

        def by_blocking_type(message: BlockingTurn): ...

        def by_word(message: "Turn"): ...

        def by_dotted_word(message: "coupler.Turn"): ...  # noqa: F821

        assert all(map(is_turn_function, (by_type, by_blocking_type, by_word, by_dotted_word)))

    @table(
        "thing",
        [
            lambda: None,
            lambda a: None,
            lambda turn, other: None,
            lambda *, turn: None,
            Box(),
            Box,
            print,
            5,
            None,
            "x",
        ],
    )
    def test_nothing_else_does(self, thing):
        assert not is_turn_function(thing)
        with pytest.raises(TypeError, match="serve takes a function"):
            as_agent(thing)

    def test_a_class_is_made_for_each_session_and_an_instance_is_shared(self):
        class Own(Agent): ...

        instance = Own()

        async def made(target):
            return [await AgentFactory.of(target).agent_for(None) for _ in range(2)]

        first, second = asyncio.run(made(Own))
        assert isinstance(first, Own) and isinstance(second, Own) and first is not second
        assert asyncio.run(made(instance)) == [instance, instance]
        assert as_agent(instance) is instance
        assert isinstance(as_agent(Own), Own)

    def test_a_factory_without_a_name_is_called_like_its_class(self):
        class Maker:
            def __call__(self, session):
                return Agent()

        assert AgentFactory.of_factory(Maker()).introduction.agent_info.name == "Maker"

    def test_a_factory_does_not_introduce_itself_as_coupler_or_a_lambda(self):
        info = AgentFactory.of_factory(lambda session: Agent()).introduction.agent_info

        assert (info.name, info.version) == ("agent", "0.0.0")

    def test_a_path_beside_the_module_is_put_first(self, app, monkeypatch):
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "modules", {**sys.modules})
        path = app("async def agent(turn): ...", "solitary_module.py")

        module.load_target(str(path), NO_OPTIONS)

        assert Path(sys.path[0]) == path.parent


def test_beside_one_agent_functions_that_take_a_turn_are_parts_of_it(start, tmp_path):
    client = start("""
        from coupler import Agent

        async def greet(turn):
            await turn.say("hello")

        async def other(turn):
            await turn.say("other")

        class Polite(Agent):
            async def prompt(self, turn):
                await greet(turn)
    """)
    client.initialize()

    assert texts(client.prompt(client.new_session(str(tmp_path)))[0]) == "hello"
