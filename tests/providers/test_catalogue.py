"""The catalogue: what a name means here, and what `coupler.toml` says about it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from coupler import AgentError, connect
from coupler.client.quirks import (
    KNOWN_AGENTS,
    TOOLS_WAIT,
    FailsEmpty,
    known_by_command,
    known_by_info,
)
from coupler.config import ConfigError
from coupler.providers.catalogue import ENTRIES as PROVIDERS
from coupler.providers.catalogue import (
    CatalogueEntry,
    Package,
    choose_form,
    entries,
    find_entry,
    known_agents,
    resolve,
)
from coupler.schema.v1 import Implementation
from coupler.store.store import Store
from tables import table

ECHO = Path(__file__).parent.parent.parent / "examples" / "echo.py"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with nothing on it but what the test installs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))

    def install(*names):
        for name in names:
            (directory / name).write_text(f"#!{sys.executable}\n")
            (directory / name).chmod(0o755)

    return install


@pytest.fixture
def user_says(coupler_home):
    def write(text):
        coupler_home.mkdir(exist_ok=True)
        (coupler_home / "coupler.toml").write_text(text)

    return write


@pytest.fixture
def project(tmp_path):
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / ".git").mkdir()
    return directory


class TestTheKnownAgents:
    def test_each_can_be_started_somehow_and_says_what_to_install(self):
        for entry in known_agents():
            assert entry.programs or entry.native, entry.name
            assert entry.install.endswith("."), entry.name

    def test_names_are_unique_and_could_be_told_from_command_lines(self):
        names = [entry.name for entry in known_agents()]
        assert len({*names}) == len(names)
        assert all(name.isalnum() and name.islower() for name in names)

    def test_every_provider_is_the_native_form_of_its_name(self):
        assert {entry.native: entry.name for entry in known_agents() if entry.native} == {
            n: n for n in PROVIDERS
        }

    def test_a_provider_and_the_catalogue_agree_on_the_acp_form(self):
        for entry in known_agents():
            if entry.native is not None and (acp := PROVIDERS[entry.native].acp) is not None:
                commands = [*entry.programs, *([] if entry.package is None else [entry.package.command])]
                assert tuple(acp.split()) in commands


class TestWhatANameMeans:
    ENTRY = CatalogueEntry(
        name="fox",
        title="Fox",
        programs=(("fox-acp",), ("fox", "--acp")),
        package=Package("npx", ("-y", "fox-acp")),
        native="claude",
        install="Catch it.",
    )

    def test_a_program_that_is_installed_comes_first_in_the_order_of_the_entry(self, programs):
        programs("fox", "npx", "claude")
        assert choose_form(self.ENTRY)[1:] == ("acp", ("fox", "--acp"), False)
        programs("fox-acp")
        assert choose_form(self.ENTRY).command == ("fox-acp",)

    def test_else_it_is_fetched(self, programs):
        programs("npx", "claude")
        assert choose_form(self.ENTRY)[1:] == ("acp", ("npx", "-y", "fox-acp"), True)

    def test_else_the_native_form_is_used(self, programs):
        programs("claude")
        assert choose_form(self.ENTRY).form == "native"

    def test_a_form_can_be_insisted_on(self, programs):
        programs("fox", "claude")
        assert choose_form(self.ENTRY, "native").form == "native"
        assert choose_form(self.ENTRY, "acp").command == ("fox", "--acp")

    @pytest.mark.parametrize("form", [None, "acp"])
    def test_what_is_nowhere_says_what_to_install(self, programs, form):
        with pytest.raises(AgentError, match=r"Fox is not installed\. Catch it\. With `npx`") as caught:
            choose_form(self.ENTRY, form)
        assert caught.value.kind == "spawn"

    def test_a_native_form_that_is_nowhere_says_what_to_install_for_it(self, programs):
        programs("fox")
        with pytest.raises(AgentError, match="npm install -g @anthropic-ai/claude-code"):
            choose_form(self.ENTRY, "native")

    def test_a_form_that_there_is_not_is_an_error(self):
        with pytest.raises(AgentError, match="Goose has no native form"):
            resolve("goose:native")
        with pytest.raises(AgentError, match="OpenAI-compatible server has no ACP form"):
            resolve("openai:acp")

    @table("agent", ["claude --acp", "./claude", "/bin/claude", "python", ""])
    def test_everything_else_is_a_command_line(self, agent):
        assert resolve(agent) is None

    def test_a_word_that_is_nearly_a_name_is_put_right(self, programs):
        with pytest.raises(AgentError, match="did you mean 'claude'"):
            resolve("cluade")
        programs("cluade")
        assert resolve("cluade") is None

    def test_a_form_of_an_unknown_name_is_an_error(self):
        with pytest.raises(AgentError, match="there is no agent 'walrus:acp': `coupler agents`"):
            resolve("walrus:acp")


class TestConfiguration:
    def test_an_agent_of_the_user_is_called_by_its_name(self, user_says):
        user_says(f'[agents.mine]\ncommand = ["{sys.executable}", "a b"]\ntitle = "Mine"\nenv = {{A = "b"}}')
        chosen = resolve("mine")
        assert (chosen.form, chosen.command) == ("acp", (sys.executable, "a b"))
        assert (chosen.entry.title, chosen.entry.env) == ("Mine", {"A": "b"})
        assert str(chosen.entry.origin).endswith("coupler.toml line 1")

    def test_a_known_agent_gets_another_command_and_keeps_its_quirks(self, user_says):
        user_says(f'[agents.claude]\ncommand = "{sys.executable} -m mine"')
        entry = find_entry("claude")
        assert choose_form(entry).command == (sys.executable, "-m", "mine")
        assert isinstance(entry.quirks, FailsEmpty)
        assert (entry.package, entry.native) == (None, None)

    def test_a_known_agent_can_get_an_environment_alone(self, user_says):
        user_says('[agents.auggie]\nenv = {AUGMENT_DISABLE_AUTO_UPDATE = "0", MORE = "1"}')
        entry = find_entry("auggie")
        assert entry.env == {"AUGMENT_DISABLE_AUTO_UPDATE": "0", "MORE": "1"}
        assert entry.programs == (("auggie", "--acp"),)

    def test_a_path_starts_where_the_file_is(self, user_says, coupler_home):
        user_says('[agents.mine]\ncommand = "bin/agent --acp"')
        assert find_entry("mine").command == (str(coupler_home / "bin" / "agent"), "--acp")

    def test_a_projects_commands_are_used_only_once_it_is_trusted(self, project, coupler_home):
        file = project / "coupler.toml"
        file.write_text('[agents.claude]\ncommand = "evil"\n')
        assert find_entry("claude", project).command != ("evil",)
        coupler_home.mkdir(exist_ok=True)
        store = Store.open(str(coupler_home / "coupler.db"))
        store.trust.trust(str(file.resolve()), file.read_bytes())
        store.close()
        assert find_entry("claude", project).command == ("evil",)
        file.write_text('[agents.claude]\ncommand = "worse"\n')
        assert find_entry("claude", project).command != ("worse",)

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("agents = 1", "write [agents.NAME]"),
            ("[agents]\nmine = 1", "`agents.mine` in {} line 2 must be a table"),
            ("[agents.mine]\ncomand = 'x'", "did you mean `command`?"),
            ("[agents.mine]\ncommand = 1", "must be a text, or a list of its words, not a number"),
            ("[agents.mine]\ncommand = ''", "must not be empty"),
            ("[agents.mine]\ncommand = []", "must name a program"),
            ("[agents.mine]\ncommand = ['a', 1]", "must be a text"),
            ("[agents.mine]\ncommand = 'a \"b'", "a quote is open"),
            ("[agents.mine]\nenv = 'A=b'", "must be a table of texts"),
            ("[agents.mine.env]\nA = 1", "must be a text"),
            ("[agents.mine]\nfiles = 'all'", "must be `none`, `read` or `write`"),
            ("[agents.mine]\nfiles = [1]", "must be `none`, `read` or `write`"),
            ('[agents."a b"]\ncommand = "x"', "must be called by letters"),
        ],
    )
    def test_a_wrong_table_is_told_with_its_place(self, user_says, coupler_home, text, sentence):
        user_says(text)
        with pytest.raises(ConfigError) as caught:
            entries()
        assert sentence.format(coupler_home / "coupler.toml") in str(caught.value)

    def test_a_wrong_file_keeps_a_name_from_being_guessed(self, user_says):
        user_says("[agents.mine]\ncomand = 'x'")
        with pytest.raises(AgentError, match="did you mean `command`"):
            connect("claude")


class TestConnecting:
    def test_a_name_connects_to_its_agent_with_its_environment(self, user_says):
        user_says(f'[agents.mine]\ncommand = ["{sys.executable}", "-m", "coupler", "serve", "{ECHO}"]')

        async def work():
            async with connect("mine") as agent:
                return (await (await agent.new()).prompt("hello")).text

        assert asyncio.run(work()) == "You said: hello"

    def test_what_the_caller_sets_comes_before_what_the_catalogue_knows(self, user_says, tmp_path):
        agent = tmp_path / "agent.py"
        agent.write_text(
            "import os\nfrom coupler import serve\n"
            "def tell(turn):\n    turn.say(os.environ['ONE'] + os.environ['TWO'])\nserve(tell)\n"
        )
        user_says(f'[agents.mine]\ncommand = ["{sys.executable}", "{agent}"]\nenv = {{ONE = "1", TWO = "2"}}')

        async def work():
            async with connect("mine", env={"TWO": "two"}) as agent:
                return (await (await agent.new()).prompt("hello")).text

        assert asyncio.run(work()) == "1two"

    @pytest.mark.parametrize(
        ("name", "setting", "given", "offered"),
        [
            ("mine", "", {}, "read"),
            ("mine", 'files = "write"', {}, "read write"),
            ("mine", 'files = "write"', {"files": "none"}, ""),
            ("gemini", "", {}, ""),
            ("gemini", 'files = "read"', {}, "read"),
            ("gemini", "", {"files": "write"}, "read write"),
        ],
    )
    def test_an_agent_is_offered_the_files_that_are_usual_for_it_unless_somebody_says_so(
        self, user_says, tmp_path, name, setting, given, offered
    ):
        agent = tmp_path / "agent.py"
        agent.write_text(
            "from coupler import serve\n"
            "async def tell(turn):\n"
            "    gates = {'read': 'fs.readTextFile', 'write': 'fs.writeTextFile'}\n"
            "    offered = [name for name, gate in gates.items() if turn.editor.offers(gate)]\n"
            "    await turn.say(' '.join(offered) + '.')\n"
            "serve(tell)\n"
        )
        user_says(f'[agents.{name}]\ncommand = ["{sys.executable}", "{agent}"]\n{setting}')

        async def work():
            async with connect(name, **given) as agent:
                return (await (await agent.new()).prompt("hello")).text

        assert asyncio.run(work()) == f"{offered}."

    @pytest.mark.parametrize(
        ("command", "told"),
        [("gemini --acp", "none -"), ("auggie --acp", "read 1"), ("other --acp", "read -")],
    )
    def test_a_command_line_gets_what_the_name_gets(self, tmp_path, monkeypatch, user_says, command, told):
        program = tmp_path / command.partition(" ")[0]
        program.write_text(
            f"#!{sys.executable}\nimport os\nfrom coupler import serve\n"
            "async def tell(turn):\n"
            "    files = 'read' if turn.editor.offers('fs.readTextFile') else 'none'\n"
            "    await turn.say(f\"{files} {os.environ.get('AUGMENT_DISABLE_AUTO_UPDATE', '-')}\")\n"
            "serve(tell)\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

        user_says(f'[agents.mine]\ncommand = "{command}"')

        async def work(agent):
            async with connect(agent) as remote:
                return (await (await remote.new()).prompt("hello")).text

        for agent in (command, command.split(), "mine"):
            assert asyncio.run(work(agent)) == told

    def test_command_lines_are_recognized_however_they_start_a_known_agent(self):
        lines = {
            "npx -y @google/gemini-cli --acp": "none",
            "npx -y @google/gemini-cli@0.61.0 --acp": "none",
            "/opt/bin/gemini --experimental-acp": "none",
            "node --no-warnings /usr/lib/gemini.js --acp": "none",
            "node /lib/node_modules/@google/gemini-cli/bundle/gemini.js --acp": "none",
            "npx gemini-cli@0.61.0": "none",
            "python -m gemini_like": None,
            "npx": None,
        }
        known = {line: known_by_command(line.split()) for line in lines}
        assert {line: each and each.files for line, each in known.items()} == lines

    def test_what_coupler_serves_is_known_as_that_but_for_agents_behind_a_relay(self):
        lines = {
            "coupler serve agent.py": True,
            "/usr/bin/python3 -m coupler serve --agent coder": True,
            "coupler serve -- qwen --acp": False,
            "python agent.py": False,
        }
        known = {line: known_by_command(line.split()) for line in lines}
        assert {line: each is not None for line, each in known.items()} == lines

    def test_what_is_known_of_some_versions_alone_holds_for_these(self):
        told = {
            version: known_by_info(Implementation("qwen-code", version)).quirks.tools_wait > TOOLS_WAIT
            for version in ("0.24.4", "0.24", "v1.0-nightly", "0.23.9", "0.2", "unknown", "", "9" * 500)
        }
        assert told == {
            "0.24.4": True,
            "0.24": True,
            "v1.0-nightly": True,
            "0.23.9": False,
            "0.2": False,
            "unknown": True,  # taken for the newest
            "": True,
            "9" * 500: True,
        }
        assert known_by_info(Implementation("hermes-agent", "")).quirks.sums_tokens

    def test_no_two_rows_are_for_the_same_version_of_an_agent(self):
        for known in KNOWN_AGENTS:
            for name in known.names:
                others = [row for row in KNOWN_AGENTS if name in row.names and row is not known]
                assert all(row.before == known.since or known.before == row.since for row in others), name

    def test_the_native_form_runs_the_program(self, tmp_path, monkeypatch):
        program = tmp_path / "claude"
        program.write_text(
            f"#!{sys.executable}\nimport json, os, sys\nsys.stdin.read()\n"
            'print(json.dumps({"type": "result", "subtype": "success", "is_error": False,'
            ' "result": os.environ["GREETING"], "session_id": "x"}))\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

        async def work():
            async with connect("claude:native", env={"GREETING": "native"}) as agent:
                return (await (await agent.new()).prompt("hello")).text

        assert asyncio.run(work()) == "native"

    def test_a_list_is_never_a_name(self):
        async def work():
            async with connect(["claude-is-not-here"]):
                pass

        with pytest.raises(AgentError, match="claude-is-not-here"):
            asyncio.run(work())
