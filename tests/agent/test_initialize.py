"""The first exchange: which version is spoken, what is offered, and who is there."""

import importlib
import json

import pytest

from agent.steps import error_of, still_serves
from coupler.agent.agent import Agent
from coupler.agent.factory import AgentFactory

ECHO = """
async def agent(turn):
    await turn.say(turn.text)
"""


@pytest.mark.parametrize("version", [1, 0, 2, 65535])
def test_any_version_is_answered_with_the_one_that_is_spoken(start, version):
    client = start(ECHO)

    answer = client.call("initialize", {"protocolVersion": version})

    assert answer["result"]["protocolVersion"] == 1


def test_a_version_that_is_no_small_integer_is_refused_and_may_be_sent_again(start):
    client = start(ECHO)

    for version in ("1", 70000, -1, 1.0, True, None):
        answer = client.call("initialize", {"protocolVersion": version})

        assert error_of(answer) == (-32602, "invalid_params"), version
        assert answer["error"]["data"]["path"] == "protocolVersion", version
    assert "result" in client.call("initialize", {"protocolVersion": 1})


def test_a_missing_version_is_refused_by_its_name(start):
    client = start(ECHO)

    answer = client.call("initialize", {})

    assert answer["error"]["message"] == "initialize: protocolVersion: is required"


def test_the_whole_answer_is_computed_from_the_agent(start):
    client = start(ECHO)

    answer = client.call("initialize", {"protocolVersion": 1})

    result = answer["result"]
    assert result["agentInfo"] == {"name": "agent", "title": "agent", "version": "0.0.0"}
    capabilities = result["agentCapabilities"]
    assert capabilities["promptCapabilities"] == {"image": False, "audio": False, "embeddedContext": True}
    assert capabilities["loadSession"] is True
    assert {*capabilities["sessionCapabilities"]} == {
        "additionalDirectories",
        "close",
        "delete",
        "list",
        "resume",
    }
    assert not result.get("authMethods")


def test_what_an_agent_accepts_is_what_it_advertises(start):
    client = start("""
        from coupler import Agent
        class Artist(Agent):
            accepts = ("image", "audio")
            async def prompt(self, turn):
                await turn.say("nice")
    """)

    offered = client.initialize()["result"]["agentCapabilities"]["promptCapabilities"]

    assert offered == {"image": True, "audio": True, "embeddedContext": False}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, []),
        ({"fs": {"readTextFile": True}}, ["fs.readTextFile"]),
        ({"fs": {"readTextFile": "yes", "writeTextFile": True}}, ["fs.writeTextFile"]),
        ({"fs": 5, "terminal": True}, ["terminal"]),
        ({"terminal": 1}, []),
        (None, []),
        (5, []),
        ("all", []),
    ],
)
def test_a_bad_capability_counts_as_absent_and_leaves_its_siblings_alone(start, sent, expected):
    client = start("""
        async def agent(turn):
            gates = ["fs.readTextFile", "fs.writeTextFile", "terminal"]
            await turn.say(" ".join(gate for gate in gates if turn.editor.offers(gate)) or "none")
    """)
    client.call("initialize", {"protocolVersion": 1, "clientCapabilities": sent})

    updates, _ = client.prompt(client.new_session())

    assert updates[0]["content"]["text"].split() == (expected or ["none"])


@pytest.mark.parametrize(
    ("sent", "seen"), [({"name": "zed", "version": "1"}, "zed"), (None, "nobody"), (7, "nobody")]
)
def test_an_agent_sees_which_client_it_serves(start, sent, seen):
    client = start("""
        async def agent(turn):
            info = turn.editor.info
            await turn.say(info.name if info else "nobody")
    """)
    client.call("initialize", {"protocolVersion": 1, "clientInfo": sent})

    updates, _ = client.prompt(client.new_session())

    assert updates[0]["content"]["text"] == seen


def test_a_second_initialize_is_refused_and_changes_nothing(start):
    client = start(ECHO)
    client.initialize()

    answer = client.initialize()

    assert error_of(answer) == (-32600, "already_initialized")
    assert client.new_session()


def test_two_initializes_in_one_write_get_one_result_and_one_refusal(start):
    client = start(ECHO)
    first = client.request("initialize", {"protocolVersion": 1})
    second = client.request("initialize", {"protocolVersion": 1})

    client.send(first, second)

    assert "result" in client.answer_to(first)
    assert error_of(client.answer_to(second)) == (-32600, "already_initialized")


def test_nothing_is_called_before_initialize(start):
    client = start(ECHO)

    for method in ("session/new", "session/prompt", "session/cancel", "no/such/method"):
        answer = client.call(method, {"cwd": "/", "mcpServers": []})

        assert error_of(answer) == (-32600, "not_initialized"), method
        assert method in answer["error"]["message"]
    client.initialize()


def test_a_cancel_before_initialize_is_ignored(start):
    client = start(ECHO)

    client.send({"method": "session/cancel", "params": {"sessionId": "x"}})

    assert "result" in client.initialize()


class TestWhoIsThere:
    def info(self, client):
        return client.initialize()["result"]["agentInfo"]

    def test_options_of_the_command_win(self, start):
        client = start(
            'from coupler import serve\nasync def agent(turn): ...\nserve(agent, name="script", title="S")',
            "--name=command",
            "--version",
            "7",
        )
        assert self.info(client) == {"name": "command", "title": "S", "version": "7"}

    def test_arguments_of_serve_win_over_the_class(self, start):
        client = start("""
            from coupler import Agent, serve
            class Reviewer(Agent):
                name, title, version = "reviewer", "The Reviewer", "2"
                async def prompt(self, turn): ...
            serve(Reviewer, version="3")
        """)
        assert self.info(client) == {"name": "reviewer", "title": "The Reviewer", "version": "3"}

    def test_a_class_without_a_name_is_called_like_itself(self, start):
        client = start("""
            from coupler import Agent
            class Reviewer(Agent):
                async def prompt(self, turn): ...
        """)
        assert self.info(client)["name"] == "Reviewer"

    def test_an_instance_may_carry_its_own_name(self, start):
        client = start("""
            from coupler import Agent, serve
            class Reviewer(Agent):
                def __init__(self, name):
                    self.name = name
                async def prompt(self, turn): ...
            serve(Reviewer("strict"))
        """)
        assert self.info(client)["name"] == "strict"

    def test_a_function_has_its_own_name_and_its_modules_version(self, start):
        client = start("""
            __version__ = "4.2"
            async def helper(turn): ...
        """)
        assert self.info(client) == {"name": "helper", "title": "helper", "version": "4.2"}

    def test_an_installed_module_has_its_distributions_version(self):
        import hypothesis

        class Prober(Agent):
            __module__ = "hypothesis.strategies"

        info = AgentFactory.of(Prober).introduction.agent_info
        assert info.version == hypothesis.__version__

    def test_a_package_installed_in_editable_form_has_its_distributions_version(self, tmp_path, monkeypatch):
        (tmp_path / "src" / "edited_package").mkdir(parents=True)
        (tmp_path / "src" / "edited_package" / "__init__.py").write_text("")
        (tmp_path / "edited_package-3.1.dist-info").mkdir()
        metadata = "Metadata-Version: 2.1\nName: edited-package\nVersion: 3.1\n"
        (tmp_path / "edited_package-3.1.dist-info" / "METADATA").write_text(metadata)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.syspath_prepend(tmp_path / "src")
        importlib.import_module("edited_package")

        class Prober(Agent):
            __module__ = "edited_package"

        assert AgentFactory.of(Prober).introduction.agent_info.version == "3.1"

    def test_an_installed_module_of_no_distribution_has_its_own_version(self, tmp_path, monkeypatch):
        (tmp_path / "site-packages").mkdir()
        (tmp_path / "site-packages" / "stray_module.py").write_text("__version__ = (1, 2)")
        monkeypatch.syspath_prepend(tmp_path / "site-packages")
        importlib.import_module("stray_module")

        class Prober(Agent):
            __module__ = "stray_module"

        assert AgentFactory.of(Prober).introduction.agent_info.version == "(1, 2)"


def test_the_id_comes_back_as_it_was(start):
    client = start(ECHO)
    for id in ["a", 7, 0, "", None]:
        client.send({"id": id, "method": "initialize", "params": {"protocolVersion": "bad"}})
        assert client.read()["id"] == id
    client.write(json.dumps({"jsonrpc": "2.0", "id": 1.5, "method": "initialize"}).encode() + b"\n")
    assert error_of(client.read()) == (-32600, "invalid_request")
    client.initialize()
    still_serves(client)


PAINTER = """
from coupler import Agent

class Painter(Agent):
    accepts = {accepts}

    async def prompt(self, turn):
        await turn.say(turn.blocks[0].mime_type)
"""


@pytest.mark.parametrize(
    ("accepts", "takes_images"),
    [('"image"', True), ('("image",)', True), ('["audio"]', False), ("()", False)],
)
def test_what_an_agent_accepts_is_what_it_advertises_and_takes(start, accepts, takes_images):
    client = start(PAINTER.format(accepts=accepts))

    introduction = client.initialize()["result"]
    session = client.new_session()
    block = {"type": "image", "data": "", "mimeType": "image/png"}
    answer = client.call("session/prompt", {"sessionId": session, "prompt": [block]})

    assert introduction["agentCapabilities"]["promptCapabilities"]["image"] is takes_images
    assert ("result" in answer) is takes_images


def test_an_agent_that_accepts_what_does_not_exist_says_so(start):
    client = start(PAINTER.format(accepts=["video"]))

    client.initialize()
    answer = client.call("session/new", {"cwd": "/", "mcpServers": []})

    assert "video; it can name audio, image, resource" in answer["error"]["message"]
