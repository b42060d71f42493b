"""Starting: what the first start learns, what the second start does with it, and when it must not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.steps import error_of, leave, still_serves
from raw_client import COUPLER, PATIENCE, serve, texts

# The import waits for the test whenever there is a gate; it can be told by nothing but its time.
GATED = """
import os
if os.path.exists("gate"):
    open("gate").read()
async def agent(turn):
    await turn.say("imported")
"""


@pytest.fixture
def gate(tmp_path):
    """Makes imports of GATED wait, until this is called again."""
    path = tmp_path / "gate"

    def shut() -> Path:
        os.mkfifo(path)
        return path

    return shut


def first_start(path, *options, **keywords):
    with serve(path, *options, **keywords) as client:
        answer = client.initialize()
        leave(client)
    return answer


def records(home):
    return sorted((home / "cache" / "introductions").glob("*.json"))


def is_imported_first(path, *options, gate, env=None):
    """Whether initialize has to wait for the target; opens the gate."""
    with serve(path, *options, cwd=gate.parent, env=env, fresh=True) as client:
        hello = client.request("initialize", {"protocolVersion": 1})
        client.send(hello)
        # A writer can open the gate only when the import has come to it.
        with gate.open("w"):
            waits = client._frames.empty()
        client.answer_to(hello)
        assert client.new_session()
        leave(client)
    return waits


def test_the_second_start_answers_initialize_before_the_target_is_imported(app, gate, tmp_path):
    path = app(GATED)
    learned = first_start(path, cwd=tmp_path, fresh=True)
    opening = gate()

    with serve(path, cwd=tmp_path, fresh=True) as client:
        answer = client.initialize()
        new = client.request("session/new", {"cwd": "/", "mcpServers": []})
        client.send(new)
        opening.write_text("go")

        assert answer == learned
        session = client.answer_to(new)["result"]["sessionId"]
        assert texts(client.prompt(session)[0]) == "imported"
        leave(client)


def test_the_first_start_imports_first(app, gate):
    assert is_imported_first(app(GATED), gate=gate())


def test_a_bad_version_is_refused_at_the_second_start_as_at_the_first(app, tmp_path):
    path = app(GATED)
    first_start(path, cwd=tmp_path)
    with serve(path, cwd=tmp_path) as client:
        assert error_of(client.call("initialize", {"protocolVersion": "1"})) == (-32602, "invalid_params")
        assert "result" in client.initialize()
        leave(client)


@pytest.fixture(scope="module")
def remembered(tmp_path_factory):
    """A target that was started before, and the environment in which that is remembered."""
    directory = tmp_path_factory.mktemp("remembered")
    path = directory / "app.py"
    path.write_text(GATED)
    environment = {"COUPLER_HOME": str(directory), "PYTEST_CURRENT_TEST": "any"}
    first_start(path, cwd=directory, env=environment)
    return path, environment


class TestWhatIsRemembered:
    @pytest.fixture
    def path(self, app, tmp_path):
        # pytest changes a variable between the preparation of a test and the test itself.
        self.environment = {"PYTEST_CURRENT_TEST": str(tmp_path)}
        path = app(GATED)
        first_start(path, cwd=tmp_path, env=self.environment)
        return path

    def test_it_holds_for_the_same_start(self, path, gate, tmp_path):
        opening = gate()
        with serve(path, cwd=tmp_path, env=self.environment) as client:
            client.initialize()
            opening.write_text("go")
            leave(client)

    def test_it_does_not_hold_for_a_changed_file(self, path, gate):
        path.write_text(path.read_text() + "\n# changed\n")
        assert is_imported_first(path, gate=gate(), env=self.environment)

    def test_it_does_not_hold_for_other_options(self, path, gate):
        assert is_imported_first(path, "--name=other", gate=gate(), env=self.environment)

    def test_it_does_not_hold_for_another_environment(self, path, gate):
        assert is_imported_first(path, gate=gate(), env={**self.environment, "MODEL": "other"})

    def test_it_holds_in_another_window(self, path, gate, tmp_path):
        window = dict.fromkeys(["SHLVL", "WINDOWID", "TMUX_PANE", "PWD", "OLDPWD", "NVIM"], "7")
        opening = gate()
        with serve(path, cwd=tmp_path, env=self.environment | window) as client:
            client.initialize()
            opening.write_text("go")
            leave(client)

    def test_a_package_that_is_gone_costs_nothing(self, path, coupler_home, tmp_path):
        (record,) = records(coupler_home)
        content = json.loads(record.read_bytes())
        record.write_text(json.dumps({**content, "packages": ["no_such_package", "no.such.module", ""]}))

        with serve(path, cwd=tmp_path, env=self.environment) as client:
            client.initialize()
            assert client.new_session()
            leave(client)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b'{"introduction": null, "files": {}, "packages": []}',
        b'{"introduction": "nonsense", "files": {}, "packages": []}',
        b'{"introduction": "[]", "files": {}, "packages": []}',
        b'{"introduction": "{}", "files": [], "packages": []}',
        b'{"introduction": "{}", "files": {}, "packages": [[]]}',
        b'{"introduction": "{}", "files": {}, "packages": 5}',
        b'{"introduction": "{}", "files": {"/no/such/file": "x"}, "packages": []}',
        b'{"introduction": "{}", "files": {}, "packages": [], "more": 1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_record_is_no_record(remembered, content):
    path, environment = remembered
    (record,) = records(path.parent)
    record.write_bytes(content)

    with serve(path, cwd=path.parent, env=environment) as client:
        assert client.initialize()["result"]["agentInfo"]["name"] == "agent"
        assert client.new_session()
        leave(client)

    assert json.loads(record.read_bytes())["introduction"]


def test_a_file_beside_the_target_counts_too(app, gate, tmp_path):
    helper = app("import os\nif os.path.exists('gate'): open('gate').read()\n", "helper.py")
    path = app("import helper\nasync def agent(turn): ...")
    first_start(path, cwd=tmp_path)

    helper.write_text(helper.read_text() + "# changed\n")

    assert is_imported_first(path, gate=gate())


def test_only_what_was_loaded_is_remembered(app, coupler_home):
    first_start(app("raise ValueError"))
    assert records(coupler_home) == []


def test_packages_are_imported_by_a_thread_and_the_target_by_the_main_thread(app, coupler_home):
    path = app("""
        import threading
        import hypothesis.version
        thread = threading.current_thread()
        async def agent(turn):
            await turn.say(f"{thread is threading.main_thread()}")
    """)
    first_start(path, fresh=True)
    (record,) = records(coupler_home)
    content = json.loads(record.read_bytes())
    assert content["files"].keys() == {str(path)}
    assert "hypothesis.version" in content["packages"]

    with serve(path, fresh=True) as client:
        client.initialize()
        assert texts(client.prompt(client.new_session())[0]) == "True"
        leave(client)


def test_an_agent_that_introduces_itself_differently_is_noticed_and_learned_anew(app, tmp_path):
    """The record cannot know what a target reads while it is imported."""
    path = app("""
        from pathlib import Path
        from coupler import serve
        async def agent(turn): ...
        serve(agent, name=Path("name").read_text())
    """)
    names = []
    for name in ("one", "two", "two"):
        (tmp_path / "name").write_text(name)
        with serve(path, cwd=tmp_path) as client:
            names.append(client.initialize()["result"]["agentInfo"]["name"])
            client.new_session()
            leave(client)
            if len(names) == 2:
                assert b"introduces itself differently" in client.stderr
    assert names == ["one", "one", "two"]


def test_a_home_that_cannot_be_written_costs_only_speed(app, tmp_path):
    (tmp_path / "file").write_text("")
    env = {"COUPLER_HOME": str(tmp_path / "file" / "home")}

    assert first_start(app(GATED), env=env) == first_start(app(GATED), env=env)


def test_without_a_home_of_its_own_it_uses_the_users_cache(app, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "COUPLER_HOME"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    line = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'

    subprocess.run(
        [*COUPLER, "serve", app(GATED)], env=environment, input=line, capture_output=True, timeout=PATIENCE
    )

    assert len(list((tmp_path / "cache" / "coupler" / "introductions").glob("*.json"))) == 1


class TestFirstLine:
    """At the second start the first line is read by hand; whatever it is, nothing may be lost."""

    HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    NEW = b'{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}\n'

    @pytest.fixture
    def client(self, remembered):
        path, environment = remembered
        with serve(path, cwd=path.parent, env=environment) as client:
            client._methods.update({1: "initialize", 2: "session/new", "x": "initialize", 5: "session/new"})
            yield client
            leave(client)

    def test_everything_in_one_write(self, client):
        client.write(self.HELLO + self.NEW)
        assert [client.read()["id"], client.read()["id"]] == [1, 2]

    def test_a_line_in_two_pieces(self, client):
        client.write(self.HELLO[:20])
        client.write(self.HELLO[20:] + self.NEW[:30])
        assert client.read()["id"] == 1
        client.write(self.NEW[30:])
        assert client.read()["result"]["sessionId"]

    def test_a_line_that_comes_late(self, client):
        """Later than anybody waits: the loop is running, as its watch over signals shows."""
        process = Path(f"/proc/{client.process.pid}/status")
        while (
            int(next(line for line in process.read_text().splitlines() if "SigCgt" in line).split()[1], 16)
            >> 14
            & 1
            == 0
        ):
            assert client.process.poll() is None
        client.write(self.HELLO)
        assert client.read()["result"]["protocolVersion"] == 1

    def test_a_line_that_is_too_long_for_the_plain_case(self, client):
        meta = b'"_meta":{"filler":"' + b"x" * 200_000 + b'"}'
        client.write(self.HELLO.replace(b'"protocolVersion":1', b'"protocolVersion":1,' + meta))
        assert client.read()["result"]["protocolVersion"] == 1

    def test_a_line_that_is_too_long_for_everything(self, client):
        client.write(self.HELLO[:-3] + b'"' + b"x" * (11 * 1024 * 1024) + b'"}}\n' + self.HELLO)
        assert error_of(client.read()) == (-32600, "frame_too_long")
        assert client.read()["result"]["protocolVersion"] == 1

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (NEW, -32600),
            (b"nonsense\n", -32700),
            (b"\n\n", None),
            (b'{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":1}}\n', None),
            (HELLO.replace(b'"id":1', b'"id":1.5'), -32600),
            (HELLO.replace(b'"id":1', b'"id":[1]'), -32600),
            (HELLO.replace(b'"2.0"', b'"1.0"'), -32600),
            (HELLO.replace(b":1}}", b":NaN}}"), -32700),
            (HELLO.replace(b":1}}", b':1,"x":NaN}}'), -32700),
            (HELLO.replace(b":1}}", b":70000}}"), -32602),
            (HELLO.replace(b'{"protocolVersion":1}', b"[1]"), -32602),
            (HELLO.replace(b'{"protocolVersion":1}', b"7"), -32602),
            (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n', -32602),
            (HELLO[:-2] + b',"result":{}}\n', None),
            (HELLO.replace(b'"id":1', b'"id":1,"id":1'), None),
            (b"[" + HELLO[:-1] + b"]\n", -32600),
        ],
    )
    def test_another_line_is_answered_by_the_connection_once(self, client, line, code):
        client.write(line)
        if code is not None:
            assert client.read()["error"]["code"] == code
        client._methods[9] = "initialize"
        client.send({"id": 9, "method": "initialize", "params": {"protocolVersion": 1}})
        # With the double id the first line was an initialize already.
        assert client.read()["id"] in (1, 9)
        still_serves(client)

    @pytest.mark.parametrize(
        "id", [b'"x"', b"0", b"-7", b"null", rb'"\u00e9"', b'"a\\"b"', b"123456789012345678901234567890"]
    )
    def test_the_id_comes_back_as_it_was(self, client, id):
        client._methods[json.loads(id)] = "initialize"
        client.write(self.HELLO.replace(b'"id":1', b'"id":' + id))
        assert client.read()["id"] == json.loads(id)
        still_serves(client)

    @pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b"  ", b"\n", b"\r\n"])
    def test_what_stands_before_the_line_costs_nothing(self, client, prefix):
        client.write(prefix + self.HELLO.replace(b"\n", b"\r\n"))
        assert client.read()["result"]["protocolVersion"] == 1
        still_serves(client)

    @pytest.mark.parametrize("capabilities", [b"5", b"null", b'{"fs":7}', b'{"fs":{"readTextFile":true}}'])
    def test_lenient_params_get_one_answer(self, client, capabilities):
        client.write(
            self.HELLO.replace(b":1}}", b':1,"clientCapabilities":' + capabilities + b',"clientInfo":7}}')
        )
        assert client.read()["result"]["protocolVersion"] == 1
        still_serves(client)

    def test_input_that_ends_in_the_middle_of_it(self, client):
        client.write(self.HELLO[:-1])
        client.close_stdin()
        assert client.read()["result"]["protocolVersion"] == 1


class TestFailingImports:
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("x = 1\nraise ValueError('no key')", "ValueError: no key (PATH, line 2)"),
            (
                "import no_such_package",
                "ModuleNotFoundError: No module named 'no_such_package' (PATH, line 1)",
            ),
            (
                "import uuid\nuuid.UUID('x')",
                "ValueError: badly formed hexadecimal UUID string (PATH, line 2)",
            ),
            ("import sys\nsys.exit(3)", "SystemExit: 3 (PATH, line 2)"),
            ("import asyncio\nraise asyncio.CancelledError", "CancelledError (PATH, line 2)"),
            ("raise GeneratorExit", "GeneratorExit (PATH, line 1)"),
            ("async def agent(turn) oops", "SyntaxError: "),
            ("async def agent(turn): ...\n1/0", "ZeroDivisionError: division by zero (PATH, line 2)"),
        ],
    )
    @pytest.mark.parametrize("start", ["first", "second"])
    def test_it_is_an_error_of_session_new_and_a_traceback_on_stderr(
        self, app, tmp_path, source, message, start
    ):
        path = app("import target\nfrom target import *")
        target = app("async def agent(turn): ..." if start == "second" else source, "target.py")
        if start == "second":
            # The project's own files must not change; what they execute may.
            target.write_text("exec(compile(open('code').read(), 'code', 'exec'))")
            (tmp_path / "code").write_text("async def agent(turn): ...")
            first_start(path, cwd=tmp_path)
            (tmp_path / "code").write_text(source)
        place = str(target) if start == "first" else "code"

        with serve(path, cwd=tmp_path) as client:
            assert "result" in client.initialize()
            answer = client.call("session/new", {"cwd": "/", "mcpServers": []})
            again = client.call("session/new", {"cwd": "/", "mcpServers": []})
            leave(client)

        assert error_of(answer) == error_of(again) == (-32603, "target_failed")
        assert answer["error"]["message"].startswith(
            f"could not load {path}: {message.replace('PATH', place)}"
        )
        assert b"Traceback" in client.stderr

    def test_a_missing_extra_is_its_own_text(self, app):
        with serve(
            app("""
            from coupler.runtime.extras import import_extra as need
            need("no_such_package", extra="langchain", feature="The LangChain bridge")
        """)
        ) as client:
            client.initialize()
            answer = client.call("session/new", {"cwd": "/", "mcpServers": []})
            leave(client)
        expected = 'The LangChain bridge needs more packages: pip install "coupler[langchain]"'
        assert answer["error"]["message"] == expected


@pytest.mark.parametrize("start", ["first", "second"])
def test_a_target_may_run_an_event_loop_while_it_is_imported(app, start):
    path = app("""
        import asyncio
        async def prepare():
            await asyncio.sleep(0)
            return "prepared"
        word = asyncio.run(prepare())
        async def agent(turn):
            await asyncio.sleep(0)
            await turn.say(word)
    """)
    if start == "second":
        first_start(path)
    with serve(path) as client:
        client.initialize()
        assert texts(client.prompt(client.new_session())[0]) == "prepared"
        leave(client)


def test_a_target_that_is_still_imported_when_the_client_leaves_answers_what_was_asked(app, gate, tmp_path):
    path = app(GATED)
    first_start(path, cwd=tmp_path)
    opening = gate()
    with serve(path, cwd=tmp_path) as client:
        client.initialize()
        new = client.request("session/new", {"cwd": "/", "mcpServers": []})
        client.send(new)
        client.close_stdin()
        opening.write_text("go")
        assert client.wait() == 0
        assert client.rest()[0]["result"]["sessionId"]


class TestPackagesThatTakeTheirTime:
    """They are imported by a thread, while the loop goes on serving."""

    @pytest.fixture
    def client(self, app, gate, tmp_path, coupler_home):
        environment = {"PYTHONPATH": str(tmp_path / "packages"), "PYTEST_CURRENT_TEST": "any"}
        (tmp_path / "packages").mkdir()
        app(f"open({str(tmp_path / 'gate')!r}).read()", "packages/slow_package.py")
        path = app("async def agent(turn): ...")
        first_start(path, env=environment, fresh=True)
        (record,) = records(coupler_home)
        record.write_text(json.dumps({**json.loads(record.read_text()), "packages": ["slow_package"]}))
        self.gate = gate()
        with serve(path, env=environment, fresh=True) as client:
            yield client

    def test_requests_are_refused_and_cancelled_meanwhile(self, client):
        client.initialize()
        assert error_of(client.call("session/prompt", {"sessionId": "x", "prompt": []}))[0] == -32002
        new = client.request("session/new", {"cwd": "/", "mcpServers": []})
        client.send(new, {"method": "$/cancel_request", "params": {"requestId": new["id"]}})
        assert error_of(client.answer_to(new)) == (-32800, "cancelled")
        self.gate.write_text("go")
        assert client.new_session()
        leave(client)

    def test_a_client_that_leaves_meanwhile_still_gets_what_it_asked_for(self, client):
        client.initialize()
        client.send(client.request("session/new", {"cwd": "/", "mcpServers": []}))
        client.close_stdin()
        self.gate.write_text("go")
        assert client.wait() == 0
        assert client.rest()[0]["result"]["sessionId"]

    def test_a_client_that_leaves_without_a_question_is_not_waited_for(self, client):
        client.initialize()
        leave(client)

    def test_a_signal_is_obeyed_in_time(self, client):
        client.initialize()
        client.send(client.request("session/new", {"cwd": "/", "mcpServers": []}))
        still_serves(client)
        client.process.terminate()
        assert client.wait() == 0


def test_a_script_that_serves_words_answers_before_the_import_too(app, gate, tmp_path):
    app(GATED)
    script = app("from coupler import serve\nserve('app.py:agent')", "script.py")
    with serve(script, python=True, cwd=tmp_path) as client:
        first = client.initialize()
        leave(client)
    path = gate()

    with serve(script, python=True, cwd=tmp_path) as client:
        assert client.initialize() == first
        path.write_text("")
        assert texts(client.prompt(client.new_session())[0]) == "imported"
        leave(client)


HEAVY = ("pydantic", "rich", "jinja2", "yaml", "mcp", "langchain", "httpx", "click", "importlib.metadata")


@pytest.mark.parametrize("start", ["first", "second"])
def test_nothing_heavy_is_imported_to_answer_initialize(app, start):
    path = app("""
        import sys
        loaded = sorted(sys.modules)
        async def agent(turn):
            await turn.say(" ".join({*loaded, *sys.modules}))
    """)
    bare = {name: None for name in os.environ if name.startswith(("COVERAGE", "COV_"))}
    environment = {name: value for name, value in os.environ.items() if name not in bare}
    if start == "second":
        subprocess.run(
            [*COUPLER, "serve", path], env=environment, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True
        )
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
    ]
    process = subprocess.Popen(
        [*COUPLER, "serve", path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        process.stdin.write("".join(json.dumps(frame) + "\n" for frame in frames))
        process.stdin.flush()
        process.stdout.readline()
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        prompt = {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "session/prompt",
            "params": {"sessionId": session, "prompt": []},
        }
        process.stdin.write(json.dumps(prompt) + "\n")
        process.stdin.flush()
        loaded = json.loads(process.stdout.readline())["params"]["update"]["content"]["text"].split()
        process.stdin.close()
        process.wait(PATIENCE)

    assert "coupler.agent.connection" in loaded
    assert [name for name in loaded if name in HEAVY or name.partition(".")[0] in HEAVY] == []


def test_the_public_names_cost_nothing_until_they_are_used():
    program = "import sys, coupler; print([name for name in sys.modules if name.startswith('coupler.')])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}

    listed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    assert listed.stdout.strip() == "['coupler.__about__']"
