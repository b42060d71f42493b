"""MCP servers over stdio and HTTP: whose they are, what a turn does with them, and that none can hurt it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked
from agent.steps import OBEDIENT, asks, cancel, end_of, final_call, leave, still_serves, text_of, tool_updates
from raw_client import COUPLER, PATIENCE, RawClient, is_answer_to, serve, texts
from runtime.test_child import gone_within

SERVERS = Path(__file__).parent / "servers"
SECRET = "s3cr3t-t0ken-value"

pytestmark = pytest.mark.usefixtures("unmeasured")


def plain(manner="fine", *arguments, name="plain", **variables):
    """The small server in one of its manners, as an editor gives it."""
    env = [{"name": key, "value": value} for key, value in variables.items()]
    args = [str(SERVERS / "plain.py"), manner, *map(str, arguments)]
    return {"name": name, "command": sys.executable, "args": args, "env": env}


SHOP = {"name": "shop", "command": sys.executable, "args": [str(SERVERS / "shop.py"), "stdio"], "env": []}


class Editor:
    """One session with servers, and somebody who answers its questions."""

    def __init__(self, client: RawClient, *servers: dict, cwd: object = "/") -> None:
        self.client = client
        self.cwd = str(cwd)
        answer = client.call("session/new", {"cwd": self.cwd, "mcpServers": list(servers)})
        self.session = answer["result"]["sessionId"]
        self.questions: list[dict] = []

    def does(self, code: str, answer: str | None = "allow_once"):
        """Run the code as a turn to its end; without an answer it must ask nothing."""
        request = self.client.prompt_request(self.session, code)
        self.client.send(request)
        self.questions, updates = [], []
        while not is_answer_to(frame := self.client.read(), request["id"]):
            if frame["method"] == "session/request_permission":
                assert answer is not None, frame
                self.questions.append(frame["params"])
                outcome = {"outcome": "selected", "optionId": answer}
                self.client.send({"id": frame["id"], "result": {"outcome": outcome}})
            else:
                updates.append(frame["params"]["update"])
        assert "result" in frame, frame
        return updates

    def says(self, expression: str, answer: str | None = "allow_once"):
        """The value of an expression, evaluated in a turn."""
        updates = self.does(f"await turn.say(repr({expression}))", answer)
        return eval(texts(updates))

    def calls(self, tool: str, arguments: str = "{}", answer: str | None = "allow_once", name="plain"):
        """Use a tool; the text of its result and the call as it is shown in the end."""
        code = f"result = await turn.mcp.call({name!r}, {tool!r}, {arguments})\nawait turn.say(result.text)"
        updates = self.does(code, answer)
        return texts(updates), final_call(updates)

    def fails(self, work: str, answer: str | None = "allow_once"):
        """What the code raises: the kind or the type, and the message."""
        told = "await turn.say(repr((getattr(e, 'kind', type(e).__name__), str(e))))"
        code = f"try:\n    {work}\nexcept Exception as e:\n    {told}"
        return eval(texts(self.does(code, answer)))


@pytest.fixture
def edit(share):
    def edit(*servers, **keywords):
        return Editor(share(OBEDIENT)[0], *servers, **keywords)

    return edit


@pytest.fixture
def http_shop(request):
    """A server of the `mcp` package behind an address on loopback; the parameter is the transport."""
    command = [sys.executable, str(SERVERS / "shop.py"), request.param]
    with forked.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())
        path = "sse" if request.param == "sse" else "mcp"
        yield {"name": "shop", "type": request.param, "url": f"http://127.0.0.1:{port}/{path}", "headers": []}
        process.kill()


class TestRealServers:
    def test_tools_are_listed_with_all_that_their_server_says(self, edit):
        editor = edit(SHOP)

        tools = editor.says("[(t.server, t.name, t.description, t.input_schema['properties'],"
                            " t.annotations.read_only, t.annotations.destructive)"
                            " for t in await turn.mcp.tools()]", None)  # fmt: skip

        item = {"item": {"title": "Item", "type": "string"}}
        assert ("shop", "price", "What something costs.", item, True, False) in tools
        assert {tool[1] for tool in tools} == {"price", "refuse", "picture", "wait", "restock"}

    def test_a_call_shows_what_it_does_and_returns_what_it_got(self, edit):
        editor = edit(SHOP)

        text, call = editor.calls("price", '{"item": "tea"}', name="shop")

        assert text == "tea: 3 EUR"
        assert call["title"] == "shop: price"
        assert (call["kind"], call["status"]) == ("other", "completed")
        assert call["rawInput"] == {"item": "tea"}
        assert call["rawOutput"] == {"result": "tea: 3 EUR"}
        assert text_of(call) == "tea: 3 EUR"

    def test_pictures_are_shown(self, edit):
        _, call = edit(SHOP).calls("picture", name="shop")
        assert [part["content"]["type"] for part in call["content"]] == ["image"]

    def test_a_tool_that_reports_an_error_fails_its_call_and_its_result_is_returned(self, edit):
        editor = edit(SHOP)

        updates = editor.does(
            "result = await turn.mcp.call('shop', 'refuse')\nawait turn.say(str(result.is_error))"
        )

        assert texts(updates) == "True"
        call = final_call(updates)
        assert call["status"] == "failed"
        assert "Error executing tool refuse" in text_of(call)

    def test_a_list_that_changes_is_seen_changed(self, edit):
        editor = edit(SHOP)
        names = "[tool.name for tool in await turn.mcp.tools('shop')]"
        assert "novelty" not in editor.says(names)

        editor.calls("restock", name="shop")

        assert "novelty" in editor.says(names)

    def test_cancelling_the_turn_cancels_the_call_at_the_server(self, edit, tmp_path):
        editor = edit(SHOP)
        client = editor.client
        request = client.prompt_request(
            editor.session, f"await turn.mcp.call('shop', 'wait', {{'directory': {str(tmp_path)!r}}})"
        )
        client.send(request)
        *_, question = client.read_until(asks("session/request_permission"))
        client.send(
            {"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
        )
        wait_for((tmp_path / "started").exists)
        begun = time.monotonic()
        client.send(cancel(editor.session))

        updates, answer = end_of(client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        assert time.monotonic() - begun < 2
        assert tool_updates(updates)[-1]["status"] == "failed"
        wait_for((tmp_path / "stopped").exists)
        assert editor.calls("price", '{"item": "tea"}', name="shop")[0] == "tea: 3 EUR"

    @pytest.mark.parametrize("http_shop", ["http", "sse"], indirect=True)
    def test_servers_behind_an_address_are_used_in_the_same_way(self, edit, http_shop):
        editor = edit(http_shop)

        assert "price" in editor.says("[tool.name for tool in await turn.mcp.tools()]")
        assert editor.calls("price", '{"item": "tea"}', name="shop")[0] == "tea: 3 EUR"
        assert editor.calls("price", '{"item": "jam"}', name="shop")[0] == "jam: 3 EUR"


class TestPermission:
    def test_whatever_a_server_annotates_its_tools_are_asked_about(self, edit):
        editor = edit(plain())
        assert editor.says("[t.annotations.read_only for t in await turn.mcp.tools()]") == [True]

        editor.calls("echo", '{"a": 1}')

        (question,) = editor.questions
        assert question["toolCall"]["title"] == "plain: echo"
        assert question["toolCall"]["rawInput"] == {"a": 1}
        assert {option["optionId"]: option["name"] for option in question["options"]} == {
            "allow_once": "Allow once",
            "allow_always": "Always allow the tool `echo` of the MCP server `plain` in this session",
            "reject_once": "Reject once",
            "reject_always": "Always reject the tool `echo` of the MCP server `plain` in this session",
        }

    def test_a_no_is_an_exception_and_the_server_is_not_even_started(self, edit, tmp_path):
        editor = edit(plain("fine", tmp_path / "starts"))

        kind, message = editor.fails("await turn.mcp.call('plain', 'echo')", "reject_once")

        assert kind == "NotPermittedError"
        assert message == "`echo` of the MCP server `plain` was not used: not permitted by the user"
        assert not (tmp_path / "starts").exists()

    def test_a_refused_call_is_shown_as_failed_with_the_reason(self, edit):
        code = "try:\n    await turn.mcp.call('plain', 'echo')\nexcept PermissionError:\n    pass"
        call = final_call(edit(plain()).does(code, "reject_once"))
        assert (call["status"], text_of(call)) == ("failed", "not permitted by the user")

    def test_always_holds_for_that_tool_of_that_server_in_this_session(self, edit):
        editor = edit(plain(), plain(name="other"))
        editor.calls("echo", answer="allow_always")

        editor.calls("echo", answer=None)

        editor.calls("directory")
        assert len(editor.questions) == 1
        editor.calls("echo", name="other")
        assert len(editor.questions) == 1

    def test_rules_decide_without_a_question(self, start, coupler_home):
        coupler_home.mkdir()
        (coupler_home / "coupler.toml").write_text(
            '[permissions]\nallow = ["mcp:plain(e*)", "read", "other"]\ndeny = ["mcp:*(environment)"]\n'
        )
        client = start(OBEDIENT)
        client.initialize()
        editor = Editor(client, plain())

        assert editor.calls("echo", '{"a": 1}', answer=None)[0] == '{"a": 1}'
        kind, message = editor.fails("await turn.mcp.call('plain', 'environment')", None)
        assert kind == "NotPermittedError"
        assert "is denied by `mcp:*(environment)`" in message
        editor.calls("directory")  # `other` allows no tool of a server
        assert len(editor.questions) == 1

    def test_what_is_sent_is_what_was_asked_about(self, edit):
        editor = edit(plain())
        code = (
            "import asyncio\nwish = {'to': 'me'}\n"
            "calling = asyncio.ensure_future(turn.mcp.call('plain', 'echo', wish))\n"
            "await asyncio.sleep(0)\nwish['to'] = 'all'\nawait turn.say((await calling).text)"
        )
        assert texts(editor.does(code)) == '{"to": "me"}'


class TestWhoseServers:
    def test_the_editor_wins_over_the_project_and_that_over_the_user(self, start, coupler_home, tmp_path):
        project = trusting_project(
            tmp_path,
            coupler_home,
            table("both", "project") + table("all", "project"),
            table("both", "user") + table("mine", "user") + table("all", "user"),
        )
        client = start(OBEDIENT)
        client.initialize()
        editor = Editor(client, plain("fine", name="all", WHO="editor"), cwd=project)

        assert editor.says("sorted(turn.mcp.servers)") == ["all", "both", "mine"]
        who = {
            name: json.loads(editor.calls("environment", name=name)[0])["WHO"]
            for name in ("all", "both", "mine")
        }
        assert who == {"all": "editor", "both": "project", "mine": "user"}

    def test_a_project_that_is_not_trusted_starts_nothing(self, start, coupler_home, tmp_path):
        project = tmp_path / "project"
        project.mkdir()
        (project / "coupler.toml").write_text(table("evil", "project", tmp_path / "starts"))
        client = start(OBEDIENT)
        client.initialize()
        editor = Editor(client, cwd=project)

        assert editor.says("(turn.mcp.servers, await turn.mcp.tools())") == ((), [])
        assert editor.fails("await turn.mcp.call('evil', 'echo')", None)[0] == "unknown_server"
        assert not (tmp_path / "starts").exists()
        leave(client)
        assert "`mcp` in" in client.stderr.decode()
        assert "run `coupler trust` in its directory" in client.stderr.decode()

    def test_a_file_that_was_changed_after_it_was_trusted_starts_nothing(self, start, coupler_home, tmp_path):
        project = trusting_project(tmp_path, coupler_home, table("good", "project"))
        with (project / "coupler.toml").open("a") as file:
            file.write(table("evil", "project"))
        client = start(OBEDIENT, "--no-store")
        client.initialize()

        assert Editor(client, cwd=project).says("turn.mcp.servers") == ()

    def test_trust_counts_for_agents_that_keep_no_sessions_too(self, start, coupler_home, tmp_path):
        project = trusting_project(tmp_path, coupler_home, table("good", "project"))
        client = start(OBEDIENT, "--no-store")
        client.initialize()

        assert Editor(client, cwd=project).says("turn.mcp.servers") == ("good",)

    def test_the_trusting_user_is_shown_the_command(self, coupler_home, tmp_path):
        project = tmp_path / "project"
        project.mkdir()
        (project / "coupler.toml").write_text(table("good", "project"))

        asked = forked.run([*COUPLER, "trust", project], capture_output=True, text=True, timeout=PATIENCE)

        assert "line 1: mcp = " in asked.stderr
        assert sys.executable in asked.stderr

    def test_resuming_with_other_servers_leaves_the_old_ones(self, edit):
        editor = edit(plain(name="old"), plain(name="same"))
        old, same = (json.loads(editor.calls("pids", name=name)[0])[0] for name in ("old", "same"))
        servers = [plain(name="new"), plain(name="same")]
        params = {"sessionId": editor.session, "cwd": "/", "mcpServers": servers}

        assert "result" in editor.client.call("session/resume", params)

        assert editor.says("turn.mcp.servers") == ("new", "same")
        assert gone_within(5, old)
        assert json.loads(editor.calls("pids", name="same")[0])[0] == same


class TestProcesses:
    def test_a_server_is_started_once_a_session_and_only_when_used(self, edit, tmp_path):
        starts = tmp_path / "starts"
        editor = edit(plain("fine", starts))
        assert editor.says("turn.mcp.servers") == ("plain",)
        assert not starts.exists()

        updates = editor.does(
            "import asyncio\nawait asyncio.gather(*(turn.mcp.tools() for _ in range(5)))\n"
            "await turn.say(str(len(await turn.session.mcp.tools())))"
        )
        editor.calls("echo")

        assert texts(updates) == "1"
        assert len(starts.read_text().split()) == 1

    @pytest.mark.parametrize("manner", ["fine", "family", "deaf"])
    @pytest.mark.parametrize("ending", ["close", "delete"])
    def test_it_ends_with_its_session(self, edit, manner, ending):
        editor = edit(plain(manner))
        pids = json.loads(editor.calls("pids")[0])

        answer = editor.client.call(f"session/{ending}", {"sessionId": editor.session})

        assert "result" in answer
        assert all(gone_within(5, pid) for pid in pids)

    @pytest.mark.parametrize("manner", ["family", "deaf", "stuck"])
    def test_none_outlives_the_agent_when_the_editor_leaves(self, start, manner):
        client = start(OBEDIENT)
        client.initialize()
        editor = Editor(client, plain("family" if manner == "stuck" else manner))
        pids = json.loads(editor.calls("pids")[0])
        if manner == "stuck":
            client.send(client.prompt_request(editor.session, "await turn.mcp.call('plain', 'hang')"))
            *_, question = client.read_until(asks("session/request_permission"))
            outcome = {"outcome": "selected", "optionId": "allow_once"}
            client.send({"id": question["id"], "result": {"outcome": outcome}})
            client.read_until(lambda frame: frame["params"]["update"].get("status") == "in_progress")
        begun = time.monotonic()

        leave(client)

        assert time.monotonic() - begun < 5
        assert all(gone_within(3, pid) for pid in pids)

    def test_it_gets_its_own_variables_and_the_few_that_every_program_needs(self, start):
        client = start(OBEDIENT, env={"OTHER_TOKEN": "belongs-to-nobody-else", "HOME": "/somewhere"})
        client.initialize()
        editor = Editor(client, plain(OWN="1"))

        seen = json.loads(editor.calls("environment")[0])

        assert (seen["OWN"], seen["HOME"], seen["PATH"]) == ("1", "/somewhere", os.environ["PATH"])
        assert "OTHER_TOKEN" not in seen
        assert "COUPLER_HOME" not in seen

    def test_it_runs_in_the_sessions_directory(self, edit, tmp_path):
        assert edit(plain(), cwd=tmp_path).calls("directory")[0] == str(tmp_path.resolve())

    def test_its_stderr_goes_to_the_log_without_secrets(self, start):
        client = start(OBEDIENT, env={"COUPLER_LOG": "info"})
        client.initialize()
        editor = Editor(client, plain("chatty", API_TOKEN=SECRET))
        editor.calls("echo", repr({"token": SECRET}))
        leave(client)

        log = client.stderr.decode()
        assert "plain: a line on stderr with [secret:API_TOKEN]" in log
        assert SECRET not in log

    def test_its_secrets_are_masked_in_what_people_see_and_whole_for_the_server(self, edit):
        editor = edit(plain("fine", API_TOKEN=SECRET))

        call = f"(await turn.mcp.call('plain', 'echo', {{'token': {SECRET!r}}})).text"
        updates = editor.does(f"await turn.say(str({SECRET!r} in {call}))")

        assert texts(updates) == "True"
        assert SECRET not in json.dumps([updates, editor.questions])
        assert "[secret:API_TOKEN]" in json.dumps(editor.questions)


class TestBadServers:
    @pytest.mark.parametrize(
        ("manner", "reason"),
        [
            ("exit", "could not be started: it ended with exit code 7; its last words: no licence found"),
            ("garbage", "could not be started: it writes to stdout what is no message"),
            (
                "endless",
                "lists more than 5,000 tools, 100 pages of them or 16,777,216 characters: that is too many",
            ),
            ("malformed", "did not list its tools: its answer is not what MCP prescribes"),
        ],
    )
    def test_a_server_that_fails_is_named_and_costs_the_others_nothing(self, edit, manner, reason):
        editor = edit(plain(manner, name="bad"), plain(name="good"))

        tools, broken = editor.says(
            "([t.server for t in await turn.mcp.tools()], {n: str(e) for n, e in turn.mcp.broken.items()})"
        )

        assert tools == ["good"]
        assert broken == {"bad": f"the MCP server `bad` {reason}"}

    def test_a_program_that_is_missing_is_named(self, edit):
        editor = edit({"name": "gone", "command": "/no/such/program", "args": [], "env": []})
        kind, message = editor.fails("await turn.mcp.tools('gone')")
        assert kind == "not_started"
        assert message.startswith("the MCP server `gone` could not be started: The program")

    def test_an_address_where_nobody_is_is_named_but_not_repeated(self, edit):
        editor = edit(
            {"name": "far", "type": "http", "url": "http://user:hunter2hunter2@127.0.0.1:9/", "headers": []}
        )
        kind, message = editor.fails("await turn.mcp.call('far', 'x')")
        assert (kind, "hunter2" in message) == ("not_started", False)
        assert message.startswith("the MCP server `far` could not be reached:")

    def test_one_that_dies_is_named_and_started_again_for_the_next_call(self, edit):
        editor = edit(plain())

        kind, message = editor.fails("await turn.mcp.call('plain', 'die')")

        assert kind == "lost"
        assert message.endswith("did not run `die`: it ended with exit code 3; its last words: I have to go")
        assert editor.calls("echo")[0] == "{}"

    def test_one_that_hangs_has_its_time(self, edit):
        editor = edit(plain())
        kind, message = editor.fails("await turn.mcp.call('plain', 'hang', timeout=0.3)")
        assert (kind, message) == ("timed_out", "the MCP server `plain` did not run `hang` within 0.3 s")

    def test_one_that_never_says_hello_keeps_nobody_from_cancelling(self, edit):
        editor = edit(plain("mute"))
        request = editor.client.prompt_request(editor.session, "await turn.mcp.tools()")
        editor.client.send(request, cancel(editor.session))

        assert end_of(editor.client, request)[1]["result"] == {"stopReason": "cancelled"}
        assert editor.says("1 + 1") == 2

    def test_a_message_over_the_limit_is_refused(self, edit):
        kind, message = edit(plain()).fails("await turn.mcp.call('plain', 'large')")
        assert (kind, message.rpartition(": ")[2]) == ("lost", "it sent a message of more than 10 MiB")

    def test_a_message_of_too_many_values_is_refused(self, edit):
        kind, message = edit(plain()).fails("await turn.mcp.call('plain', 'crowded')")
        assert (kind, "the JSON has more than 250000 values" in message) == ("lost", True)

    @pytest.mark.parametrize(
        ("tool", "reason"),
        [("nothing", "no tool nothing"), ("wrong", "its answer is not what MCP prescribes")],
    )
    def test_a_refusal_and_an_answer_that_is_none_are_errors(self, edit, tool, reason):
        kind, message = edit(plain()).fails(f"await turn.mcp.call('plain', {tool!r})")
        assert (kind, message) == ("refused", f"the MCP server `plain` did not run `{tool}`: {reason}")

    def test_words_of_greeting_on_stdout_do_no_harm(self, edit):
        assert edit(plain("chatty")).calls("echo")[0] == "{}"

    def test_half_a_character_is_replaced(self, edit):
        assert edit(plain()).calls("half")[0] == "half \ufffd"

    def test_a_thousand_tools_are_listed(self, edit):
        assert edit(plain("thousand")).says("len(await turn.mcp.tools())") == 1000

    def test_a_flood_keeps_nobody_else_waiting(self, edit):
        editor = edit(plain("flood"))
        client = editor.client
        request = client.prompt_request(editor.session, "await turn.mcp.call('plain', 'echo')")
        client.send(request)
        *_, question = client.read_until(asks("session/request_permission"))
        client.send(
            {"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
        )
        client.read_until(lambda frame: frame["params"]["update"].get("status") == "in_progress")

        waits = []
        for _ in range(20):
            begun = time.monotonic()
            still_serves(client)
            waits.append(time.monotonic() - begun)

        assert max(waits) < 1
        assert end_of(client, request)[1]["result"] == {"stopReason": "end_turn"}

    def test_an_unknown_server_is_an_error_that_names_those_there_are(self, edit):
        kind, message = edit(plain()).fails("await turn.mcp.call('plane', 'x')", None)
        assert kind == "unknown_server"
        assert message == "the MCP server `plane` is unknown to this session; there is: `plain`"

    def test_names_cannot_pass_for_something_else(self, edit):
        editor = edit(plain(name="good\n\u202eevil"))
        code = "await turn.mcp.call(turn.mcp.servers[0], 'echo\\x1b[2K')"
        editor.fails(code)
        assert editor.questions[0]["toolCall"]["title"] == r"good\n\u202eevil: echo\x1b[2K"


class TestWithoutThePackage:
    @pytest.fixture
    def bare(self, app, tmp_path):
        """A client of an agent for whom the `mcp` package is not installed."""
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "sitecustomize.py").write_text(
            "import sys\n"
            "class Hidden:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'mcp':\n"
            "            raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n"
            "sys.meta_path.insert(0, Hidden())\n"
        )
        with serve(app(OBEDIENT), env={"PYTHONPATH": str(tmp_path / "hidden")}) as client:
            yield client
            leave(client)

    def test_it_is_not_advertised_and_an_address_is_refused(self, bare):
        capabilities = bare.initialize()["result"]["agentCapabilities"]
        assert capabilities.get("mcpCapabilities", {}) in ({}, {"http": False, "sse": False})
        server = {"name": "far", "type": "http", "url": "http://127.0.0.1:9/", "headers": []}

        answer = bare.call("session/new", {"cwd": "/", "mcpServers": [server]})

        assert answer["error"]["code"] == -32602
        assert answer["error"]["data"]["path"] == "mcpServers[0]"
        assert 'pip install "coupler[mcp]"' in answer["error"]["message"]

    def test_using_a_server_says_what_to_install(self, bare):
        bare.initialize()
        editor = Editor(bare, plain())

        kind, message = editor.fails("await turn.mcp.tools()")

        assert (kind, message) == (
            "MissingExtraError",
            'Using MCP servers needs more packages: pip install "coupler[mcp]"',
        )
        assert editor.says("turn.mcp.servers") == ("plain",)


def test_with_the_package_addresses_are_advertised(share):
    client, _ = share(OBEDIENT)
    with serve_again(client) as other:
        capabilities = other.initialize()["result"]["agentCapabilities"]
    assert capabilities["mcpCapabilities"] == {"http": True, "sse": True}


def test_an_agent_that_uses_no_server_never_imports_the_package(share):
    client, _ = share("""
        import sys
        async def agent(turn):
            await turn.say(f"{turn.mcp.servers} {await turn.mcp.tools()} {'mcp' in sys.modules}")
    """)
    editor = Editor(client)
    assert texts(editor.does("")) == "() [] False"


def test_plain_functions_use_tools_too(share):
    client, _ = share("""
        def agent(turn):
            tools = [tool.name for tool in turn.mcp.tools()]
            turn.say(f"{turn.mcp.servers} {tools} {turn.mcp.call('plain', 'echo', {'a': 1}).text}")
    """)
    editor = Editor(client, plain())
    assert texts(editor.does("")) == "('plain',) ['echo'] {\"a\": 1}"


def serve_again(client):
    return RawClient(*client.process.args)


def table(name: str, who: str, starts: object = "/dev/null") -> str:
    """A server for a coupler.toml, which knows who named it."""
    args = json.dumps([str(SERVERS / "plain.py"), "fine", str(starts)])
    command = json.dumps(sys.executable)
    return f'[mcp.{name}]\ncommand = {command}\nargs = {args}\nenv = {{ WHO = "{who}" }}\n'


def trusting_project(tmp_path, home, text, users="") -> Path:
    """A project with this file, which its user has trusted."""
    home.mkdir(exist_ok=True)
    (home / "coupler.toml").write_text(users)
    project = tmp_path / "project"
    project.mkdir()
    (project / "coupler.toml").write_text(text)
    forked.run([*COUPLER, "trust", project, "--yes"], check=True, capture_output=True, timeout=PATIENCE)
    return project


def wait_for(condition) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_that_cannot_be_read_is_told_once_in_the_session_and_the_others_work(app):
    broken = {"name": "broken", "command": 7, "args": [], "env": []}
    with serve(app(OBEDIENT)) as client:
        client.initialize()
        editor = Editor(client, broken, plain())
        told = texts(editor.does("await turn.say('done')"))
        again = texts(editor.does("await turn.say('done')"))
        leave(client)

    assert "An MCP server of this session is left out: mcpServers[0].command" in told
    assert again == "done"
