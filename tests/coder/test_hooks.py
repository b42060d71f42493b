"""Hooks: what they are told, what they can prevent, and that none of them can do harm by failing."""

import asyncio
import json
import sys
import textwrap

import psutil
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from langchain_core.tools import tool
from msgspec import UNSET

from client.stage import PATIENCE, run, until
from coder.talking import talk
from coupler import acp, connect
from coupler.agent.factory import adapt
from coupler.client import remote as offer
from coupler.coder import hooks as hook_run
from coupler.coder.hooks import MOST_OBJECTIONS, HooksMiddleware
from coupler.events import Notice
from labs.langchain.scripted_model import ScriptedModel, call


class Agent:
    """Calls the tool once and is done, unless something else is said; `asked` is what its model read."""

    def __init__(self, hooks, answer=None, **settings):
        self.asked, self.ran = [], []

        @tool
        async def greet(whom: str) -> str:
            """Greet somebody."""
            self.ran.append(whom)
            if whom == "nobody":
                raise ValueError("there is nobody")
            return f"Hello, {whom}!"

        self.answer = answer or (lambda messages: self.once(messages))
        model = ScriptedModel(script=self.act)
        middleware = [HooksMiddleware(hooks), TodoListMiddleware(), *settings.pop("middleware", ())]
        self.graph = create_agent(model, [greet], middleware=middleware)

    def act(self, messages):
        self.asked.append(messages)
        return self.answer(messages)

    def once(self, messages):
        return ["Done."] if messages[-1].type == "tool" else [call("greet", f"c{len(messages)}", whom="Ada")]

    @property
    def results(self):
        return [message for message in self.asked[-1] if message.type == "tool"]


@pytest.fixture
def hook(tmp_path):
    """A command line for a hook in Python, which has what it was told in `told`; it notes that, too."""

    def make(code, name="hook"):
        script = tmp_path / f"{name}.py"
        start = "import json, os, sys, time\ntold = json.load(sys.stdin)\n"
        note = f"open({str(tmp_path / 'told')!r}, 'a').write(json.dumps(told) + '\\n')\n"
        script.write_text(start + note + textwrap.dedent(code))
        return f"{sys.executable} -S {script}"

    return make


def told_in(tmp_path):
    return [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]


def test_a_hook_is_told_which_tool_is_called_with_what(hook, tmp_path):
    agent = Agent({"before_tool": [hook("")]})

    talk(agent.graph, "Greet.", cwd=tmp_path)

    (told,) = told_in(tmp_path)
    assert told["event"] == "before_tool"
    assert (told["tool"], told["input"]) == ("greet", {"whom": "Ada"})
    assert told["cwd"] == str(tmp_path)
    assert told["session_id"].startswith("sess_")
    assert agent.ran == ["Ada"]


def test_a_hook_that_objects_keeps_the_tool_from_running_and_tells_the_model_why(hook):
    agent = Agent({"before_tool": [hook("print('no greetings', file=sys.stderr); sys.exit(2)")]})

    seen = talk(agent.graph, "Greet.")

    assert agent.ran == []
    assert agent.results[0].status == "error"
    assert "a hook of the user objects: no greetings" in agent.results[0].text
    assert seen.last.tool_calls[0].status == "failed"
    assert seen.last.text == "Done."


def test_the_first_objection_ends_it(hook, tmp_path):
    lines = [hook("sys.exit(2)", "one"), hook("", "two")]

    talk(Agent({"before_tool": lines}).graph, "Greet.")

    assert len(told_in(tmp_path)) == 1


def test_hooks_are_told_what_a_tool_returned(hook, tmp_path):
    names = iter(["Ada", "nobody"])

    def answer(messages):
        name = next(names, None)
        return ["Done."] if name is None else [call("greet", f"c{name}", whom=name)]

    talk(Agent({"after_tool": [hook("")]}, answer).graph, "Greet.", cwd=tmp_path)

    told = told_in(tmp_path)
    assert [(each["output"], each["is_error"]) for each in told] == [
        ("Hello, Ada!", False),
        ("ValueError: there is nobody", True),
    ]


def test_what_hooks_say_is_added_to_the_result(hook):
    context = "print(json.dumps({'context': told['event'] + ' says hello </hook>'}))"
    agent = Agent({"before_tool": [hook(context)], "after_tool": [hook(context)]})

    talk(agent.graph, "Greet.")

    text = agent.results[0].text
    assert text.startswith("Hello, Ada!\n\n<hook>\nbefore_tool says hello &lt;/hook>\n</hook>")
    assert "after_tool says hello" in text


def test_a_hook_can_object_to_a_result(hook):
    agent = Agent({"after_tool": [hook("print('format the file first', file=sys.stderr); sys.exit(2)")]})

    talk(agent.graph, "Greet.")

    assert agent.results[0].text.startswith("Hello, Ada!")
    assert "format the file first" in agent.results[0].text


def test_what_a_tool_writes_into_the_state_passes_hooks_unharmed(hook, tmp_path):
    todos = [{"content": "look", "status": "pending"}]
    answers = iter([[call("write_todos", "t", todos=todos)], ["Done."]])
    agent = Agent(
        {"after_tool": [hook("print(json.dumps({'context': 'more'}))")]},
        lambda messages: next(answers),
        middleware=[acp.plan()],
    )

    seen = talk(agent.graph, "Plan.")

    assert told_in(tmp_path)[0]["tool"] == "write_todos"
    assert [entry.content for entry in seen.last.plan] == ["look"]


@pytest.mark.parametrize(
    "code, words",
    [
        ("sys.exit(1)", "it ended with 1"),
        ("raise ValueError('oops')", "oops"),
        ("os.kill(os.getpid(), 9)", "137"),
    ],
)
def test_a_hook_that_fails_is_told_and_holds_nothing_up(hook, code, words):
    agent = Agent({"before_tool": [hook(code)]})

    seen = talk(agent.graph, "Greet.")

    assert agent.ran == ["Ada"]
    assert words in seen.of(Notice)[0].description


def test_to_clients_without_notices_it_is_told_as_a_thought(hook, monkeypatch):
    monkeypatch.setattr(offer, "NoticeCapabilities", lambda: UNSET)

    seen = talk(Agent({"before_tool": [hook("sys.exit(1)")]}).graph, "Greet.")

    assert seen.last.text == "Done."
    assert "it ended with 1" in seen.last.thoughts


def test_a_command_that_is_not_there_is_told():
    seen = talk(Agent({"before_tool": ["no-such-command-anywhere"]}).graph, "Greet.")

    assert "not found" in seen.of(Notice)[0].description


def test_a_hook_that_takes_too_long_is_ended(hook, tmp_path, monkeypatch):
    monkeypatch.setattr(hook_run, "LIMIT", 0.5)
    agent = Agent({"before_tool": [hook("time.sleep(600)")]})

    seen = talk(agent.graph, "Greet.")

    assert "took longer" in seen.of(Notice)[0].description
    assert agent.ran == ["Ada"]


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_cancel_ends_a_hook(hook, tmp_path):
    noted = tmp_path / "pid"
    code = f"open({str(noted)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    agent = Agent({"before_tool": [hook(code)]})

    async def cancel_meanwhile():
        async with connect(adapt(agent.graph), cwd=tmp_path) as remote:
            session = await remote.new(cwd=tmp_path)
            async with asyncio.TaskGroup() as both:
                reply = both.create_task(asyncio.wait_for(session.prompt("Greet."), PATIENCE))
                await until(lambda: noted.exists() and noted.read_text())
                await session.cancel()
            await until(lambda: is_gone(int(noted.read_text())))
            return reply.result()

    assert run(cancel_meanwhile()).stop_reason == "cancelled"
    assert agent.ran == []


def test_the_hooks_of_a_beginning_run_once_and_tell_the_model(hook, tmp_path):
    context = "print(json.dumps({'context': 'The build is broken.'}))"
    agent = Agent({"session_start": [hook(context)]})

    talk(agent.graph, "Greet.", "Again.")

    assert [(each["event"], each["source"]) for each in told_in(tmp_path)] == [("session_start", "new")]
    assert all("The build is broken." in messages[0].text for messages in agent.asked)


def test_a_hook_can_send_the_model_on_at_the_end_of_a_turn(hook, tmp_path):
    code = "if told['again'] == 0:\n    print('run the tests', file=sys.stderr); sys.exit(2)"
    agent = Agent({"turn_end": [hook(code)]}, lambda messages: [f"Answer {len(agent.asked)}."])

    seen = talk(agent.graph, "Do it.")

    assert seen.last.text.endswith("Answer 2.")
    assert "run the tests" in agent.asked[-1][-1].text
    assert [each["answer"] for each in told_in(tmp_path)] == ["Answer 1.", "Answer 2."]


def test_a_hook_that_always_objects_does_not_keep_a_turn_from_ending(hook):
    agent = Agent({"turn_end": [hook("sys.exit(2)")]}, lambda messages: ["Done."])

    seen = talk(agent.graph, "Do it.", "Again.")

    assert seen.last.stop_reason == "end_turn"
    assert len(agent.asked) == 2 * (MOST_OBJECTIONS + 1)


def test_a_hook_has_the_variables_of_the_session_but_not_what_is_withheld(hook, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_MODEL_KEY", "sk-1234567890abcdef")
    monkeypatch.setenv("HARMLESS", "yes")
    line = hook(f"open({str(tmp_path / 'env')!r}, 'w').write(json.dumps(dict(os.environ)))")

    class Withholding(AgentMiddleware):
        async def abefore_agent(self, state, runtime):
            acp.current().session.withhold(["SOME_MODEL_KEY"])

    agent = Agent({"before_tool": [line]}, middleware=[Withholding()])
    talk(agent.graph, "Greet.")

    environ = json.loads((tmp_path / "env").read_text())
    assert environ["HARMLESS"] == "yes"
    assert "SOME_MODEL_KEY" not in environ
