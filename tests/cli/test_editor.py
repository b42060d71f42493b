"""`coupler editor`, as a person uses it: what it prints starts, and what it writes leaves all else alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from coupler.cli.editor.served import Served
from coupler.cli.editor.settings import VSCODE
from coupler.cli.editor.settings import ZED as ZED_SETTINGS
from coupler.cli.replaced_file import CannotWriteError, replace
from raw_client import COUPLER, PATIENCE, RawClient

SCRIPT = str(Path(sys.executable).with_name("coupler"))
MANUAL = Path(__file__).parents[2] / "docs" / "editors.md"
AGENT = """
from coupler import Turn

async def agent(turn: Turn) -> None:
    await turn.say("hello")
"""
ZED = """\
// what I like
{
  "theme": "One Dark", // at night
  /* agents */
  "agent_servers": {
    "Other": { "type": "custom", "command": "x", "args": [], }, // mine
  },
  "vim_mode": true,
}
"""
ZED_AFTER = f"""\
// what I like
{{
  "theme": "One Dark", // at night
  /* agents */
  "agent_servers": {{
    "Other": {{ "type": "custom", "command": "x", "args": [], }}, // mine
    "App": {{
      "type": "custom",
      "command": "{SCRIPT}",
      "args": ["serve", "APP"]
    }},
  }},
  "vim_mode": true,
}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path.resolve() / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "NVIM_APPNAME", "FLATPAK_XDG_CONFIG_HOME", "COUPLER_HOME", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def app(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = home.parent / "project"
    project.mkdir()
    (project / "app.py").write_text(AGENT)
    monkeypatch.chdir(project)
    return project / "app.py"


@pytest.fixture
def settings(home: Path) -> Path:
    file = home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(ZED)
    return file


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*COUPLER, "editor", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def written(*arguments: object) -> str:
    ended = run(*arguments, "--write")
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def entry(*arguments: object) -> tuple[str, dict]:
    """The one agent of what is printed, and the name that the editor gives it."""
    ended = run(*arguments)
    assert ended.returncode == 0, ended.stderr
    (agents,) = json.loads(ended.stdout).values()
    ((name, found),) = agents.items()
    return name, found


class TestWhatIsPrinted:
    @pytest.mark.parametrize(
        ("editor", "member", "kind"),
        [
            ("zed", "agent_servers", {"type": "custom"}),
            ("jetbrains", "agent_servers", {}),
            ("vscode", "acp.agents", {}),
        ],
    )
    def test_an_editor_that_starts_it_anywhere_gets_the_agent(self, app, home, editor, member, kind):
        ended = run(editor, "app.py:agent", "--name", "My agent")

        assert json.loads(ended.stdout) == {
            member: {"My agent": {**kind, "command": SCRIPT, "args": ["serve", f"{app}:agent"]}}
        }
        assert "add --write" in ended.stderr
        started = json.loads(ended.stdout)[member]["My agent"]
        with RawClient(sys.executable, "-m", "coupler", *started["args"], cwd=home) as client:
            client.initialize()
            session = client.new_session(str(home))
            assert client.call("session/prompt", client.prompt_request(session, "hi")["params"])["result"]

    @pytest.mark.parametrize("editor", ["zed", "jetbrains", "vscode"])
    def test_it_is_what_the_manual_shows(self, app, editor):
        printed = run(editor, "app.py:agent", "--name", "My agent").stdout
        shown = printed.replace(SCRIPT, "/path/to/venv/bin/coupler").replace(str(app), "/path/to/app.py")
        assert f"```json\n{shown}```" in MANUAL.read_text()

    def test_nothing_is_written(self, app, settings):
        run("zed", "app.py")
        assert settings.read_text() == ZED
        assert [*settings.parent.iterdir()] == [settings]

    def test_without_a_target_it_is_the_coder_and_its_model_is_asked_for(self, app):
        name, found = entry("zed")
        assert (name, found["args"]) == ("Coupler", ["serve"])
        assert "no model is set yet: `coupler login coder` sets one" in run("zed").stderr
        assert entry("zed", "--model", "ollama:small")[1]["args"] == ["serve", "--model", "ollama:small"]

    def test_an_agent_of_the_catalogue_is_served_by_its_name(self, app):
        name, found = entry("jetbrains", "--agent", "goose")
        assert (name, found["args"]) == ("Goose via Coupler", ["serve", "--agent", "goose"])

    def test_a_name_behind_the_dashes_is_the_same(self, app):
        assert entry("jetbrains", "--", "goose") == entry("jetbrains", "--agent", "goose")

    def test_a_command_is_named_with_its_whole_path_and_that_of_its_files(self, app):
        _, found = entry("zed", "--", "python3", "app.py", "--acp", "acp")
        serve, dashes, program, *arguments = found["args"]
        assert (serve, dashes, Path(program).is_absolute()) == ("serve", "--", True)
        assert arguments == [str(app), "--acp", "acp"]

    def test_a_module_of_this_directory_is_found_from_elsewhere(self, app, home):
        _, found = entry("zed", "app:agent")
        assert (found["args"], found["env"]) == (["serve", "app:agent"], {"PYTHONPATH": str(app.parent)})
        command = [sys.executable, "-m", "coupler", *found["args"]]
        with RawClient(*command, cwd=home, env=found["env"], fresh=True) as client:
            assert client.initialize()["result"]["agentInfo"]

    def test_a_workflow_is_a_target_too(self, app):
        Path("fix-it.yaml").write_text("steps: [{run: make}]")
        assert entry("zed", "fix-it.yaml") == (
            "Fix it",
            {"type": "custom", "command": SCRIPT, "args": ["serve", f"{app.parent}/fix-it.yaml"]},
        )

    def test_variables_are_those_that_were_asked_for_and_the_home_of_coupler(self, app, home):
        ended = run(
            "zed", "app.py", "--env", "A=1", "--env", "MY_TOKEN", MY_TOKEN="t", COUPLER_HOME=str(home)
        )
        env = json.loads(ended.stdout)["agent_servers"]["App"]["env"]
        assert env == {"COUPLER_HOME": str(home), "A": "1", "MY_TOKEN": "t"}
        assert "the value of MY_TOKEN stands in the settings" in ended.stderr

    def test_another_environment_that_is_active_is_told_of(self, app, home):
        assert (
            f"{home} is active, and this Coupler is in" in run("zed", "app.py", VIRTUAL_ENV=str(home)).stderr
        )
        assert "is active" not in run("zed", "app.py", VIRTUAL_ENV=sys.prefix).stderr

    def test_an_agent_of_this_project_alone_is_told_to_be_one(self, app):
        Path("coupler.toml").write_text('[agents.mine]\ncommand = "python3 app.py"\n')
        forked.run([*COUPLER, "trust", "--yes"], capture_output=True, check=True, timeout=PATIENCE)
        ended = run("zed", "--agent", "mine")
        assert json.loads(ended.stdout)["agent_servers"]["mine via Coupler"]["args"] == [
            "serve",
            "--agent",
            "mine",
        ]
        assert "the editor finds it only in this project" in ended.stderr

    def test_on_windows_words_are_quoted_for_who_puts_them_together(self, monkeypatch):
        monkeypatch.setattr("coupler.cli.editor.settings.sys.platform", "win32")
        served = Served("A", ("C:\\My Files\\coupler.exe", "serve"))
        quoted, plain = (json.loads(each.printed(served)) for each in (VSCODE, ZED_SETTINGS))
        assert quoted["acp.agents"]["A"]["command"] == '"C:\\My Files\\coupler.exe"'
        assert plain["agent_servers"]["A"]["command"] == "C:\\My Files\\coupler.exe"

    def test_lua_and_lisp_have_every_text_in_quotes(self, app):
        odd = 'Say "\\"'
        lua, lisp = (run(editor, "app.py", "--name", odd).stdout for editor in ("neovim", "emacs"))
        assert 'formatted_name = "Say \\"\\\\\\"",' in lua
        assert 'adapter = "say"' in lua
        assert ':shell-prompt-regexp (regexp-quote "Say \\"\\\\\\"> ")' in lisp
        assert lisp.count("(") == lisp.count(")")
        assert "agent_end = function()" in run("neovim", "app.py", "--name", "End").stdout


class TestWhatIsWritten:
    def test_everything_else_stays_to_the_last_comma(self, app, settings):
        said = written("zed", "app.py")

        assert settings.read_text() == ZED_AFTER.replace("APP", str(app))
        kept = settings.with_name("settings.json.before-coupler")
        assert kept.read_text() == ZED
        assert said.splitlines()[:2] == [f"App is in {settings} now.", f"What was there before is in {kept}."]

    def test_a_second_time_changes_nothing(self, app, settings):
        written("zed", "app.py")
        before = {file.name: file.stat().st_mtime_ns for file in settings.parent.iterdir()}

        assert "nothing was changed" in written("zed", "app.py")

        assert {file.name: file.stat().st_mtime_ns for file in settings.parent.iterdir()} == before

    def test_no_copy_takes_the_place_of_an_earlier_one(self, app, settings):
        written("zed", "app.py")
        written("zed", "app.py", "--name", "Two")
        kept = settings.with_name("settings.json.before-coupler")
        assert kept.read_text() == ZED
        assert settings.with_name("settings.json.before-coupler-2").read_text() == ZED_AFTER.replace(
            "APP", str(app)
        )

    def test_directories_and_files_that_are_missing_are_made(self, app, home):
        written("jetbrains", "app.py")
        file = home / ".jetbrains" / "acp.json"
        assert json.loads(file.read_text()) == {
            "agent_servers": {"App": {"command": SCRIPT, "args": ["serve", str(app)]}}
        }
        assert [*file.parent.iterdir()] == [file]

    def test_a_link_stays_one_and_so_do_the_rights(self, app, settings, home):
        real = home / "dotfiles" / "zed.json"
        real.parent.mkdir()
        settings.rename(real)
        real.chmod(0o600)
        settings.symlink_to(real)

        written("zed", "app.py")

        assert settings.readlink() == real
        assert real.read_text() == ZED_AFTER.replace("APP", str(app))
        assert real.stat().st_mode & 0o777 == 0o600
        assert settings.with_name("settings.json.before-coupler").stat().st_mode & 0o777 == 0o600

    def test_settings_that_are_broken_are_left_alone_and_the_line_is_told(self, app, settings):
        settings.write_text('{\n  "theme": "x"\n  "vim_mode": true\n}\n')

        ended = run("zed", "app.py", "--write")

        assert (ended.returncode, ended.stdout) == (1, "")
        assert (
            f"{settings} cannot be read as JSON: line 2, column 15: a comma is missing here" in ended.stderr
        )
        assert settings.read_text() == '{\n  "theme": "x"\n  "vim_mode": true\n}\n'
        assert [*settings.parent.iterdir()] == [settings]

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b"\xff\xfe", "is not UTF-8 text"),
            (b'{"agent_servers": []}', "`agent_servers` should be an object"),
            (b"[]", "there should be an object"),
        ],
    )
    def test_settings_of_another_kind_are_left_alone(self, app, settings, content, sentence):
        settings.write_bytes(content)
        ended = run("zed", "app.py", "--write")
        assert (ended.returncode, settings.read_bytes()) == (1, content)
        assert sentence in ended.stderr

    def test_a_directory_in_the_place_of_the_settings_is_told_of(self, app, home):
        (home / ".jetbrains" / "acp.json").mkdir(parents=True)
        ended = run("jetbrains", "app.py", "--write")
        assert ended.returncode == 1
        assert "acp.json is not a file. Nothing was changed" in ended.stderr

    def test_a_link_that_leads_nowhere_gets_something_to_lead_to(self, app, home):
        file, real = home / ".jetbrains" / "acp.json", home / "dotfiles" / "acp.json"
        file.parent.mkdir()
        file.symlink_to(real)
        written("jetbrains", "app.py")
        assert json.loads(real.read_text())["agent_servers"]["App"]
        assert file.is_symlink()

    def test_who_changes_the_settings_meanwhile_keeps_what_they_wrote(self, settings):
        with pytest.raises(CannotWriteError, match="was changed meanwhile"):
            replace(settings, b"new", b"not what is there")
        assert settings.read_text() == ZED
        assert [*settings.parent.iterdir()] == [settings]


class TestANameThatIsTaken:
    def test_another_agent_is_replaced_only_by_force(self, app, settings):
        ended = run("zed", "app.py", "--name", "Other", "--write")
        assert ended.returncode == 1
        assert "there is an agent 'Other' already, which starts `x`: choose another name" in ended.stderr
        assert settings.read_text() == ZED

        written("zed", "app.py", "--name", "Other", "--force")

        expected = f'{{ "type": "custom", "command": "{SCRIPT}", "args": ["serve", "{app}"], }}, // mine'
        assert expected in settings.read_text()

    def test_the_same_agent_keeps_what_its_user_has_added(self, app, settings):
        settings.write_text(
            f"""{{"agent_servers": {{"App": {{
                "command": "/old/coupler", "args": ["serve", "{app}"],
                "default_mode": "ask", // as I like it
                "env": {{"B": "2"}}}}}}}}"""
        )
        written("zed", "app.py", "--env", "A=1")

        text = settings.read_text()
        assert '"default_mode": "ask", // as I like it' in text
        found = json.loads(text.replace("// as I like it", ""))["agent_servers"]["App"]
        assert (found["command"], found["type"]) == (SCRIPT, "custom")
        assert found["env"] == {"B": "2", "A": "1"}

    @pytest.mark.parametrize("editor", ["neovim", "emacs"])
    def test_files_of_its_own_are_no_exception(self, app, home, editor):
        written(editor, "app.py", "--name", "Mine")
        Path("other.py").write_text(AGENT)

        ended = run(editor, "other.py", "--name", "Mine", "--write")
        assert ended.returncode == 1
        assert "there is an agent 'Mine' already" in ended.stderr
        assert "nothing was changed" in written(editor, "app.py", "--name", "Mine")
        (file,) = home.rglob("*/coupler/mine.*")
        file.write_text(file.read_text().replace(SCRIPT, "/old/coupler"))
        assert f"Mine is in {file} now." in written(editor, "app.py", "--name", "Mine")
        assert "What was there before is in" in written(editor, "other.py", "--name", "Mine", "--force")


class TestCode:
    def test_neovim_gets_a_module_that_its_setup_requires(self, app, home):
        said = written("neovim", "app.py", "--name", "My agent")

        module = (home / ".config/nvim/lua/coupler/my_agent.lua").read_text()
        assert f'commands = {{ default = {{ "{SCRIPT}", "serve", "{app}" }} }}' in module
        assert f'args = {{ "serve", "{app}" }}' in module
        assert 'my_agent = require("coupler.my_agent").codecompanion' in said
        assert 'acp_providers = { my_agent = require("coupler.my_agent").avante }' in said

    def test_emacs_gets_a_file_that_its_own_loads(self, app, home):
        said = written("emacs", "app.py", "--name", "My agent")

        file = home / ".emacs.d/coupler/my-agent.el"
        assert f"""'("serve" "{app}")""" in file.read_text()
        assert f'(load "{file}")' in said

    def test_emacs_that_keeps_its_settings_in_the_new_place_gets_it_there(self, app, home):
        (home / ".config/emacs").mkdir(parents=True)
        written("emacs", "app.py")
        assert (home / ".config/emacs/coupler/app.el").exists()
        assert not (home / ".emacs.d").exists()


class TestSeveralInstallations:
    def test_only_the_user_knows_which_one_is_meant(self, app, settings, home):
        flatpak = home / ".var/app/dev.zed.Zed/config/zed/settings.json"
        flatpak.parent.mkdir(parents=True)

        ended = run("zed", "app.py", "--write")

        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.splitlines()[1:] == [
            f"  Zed: --file {settings}",
            f"  Zed by Flatpak: --file {flatpak}",
        ]
        assert settings.read_text() == ZED
        written("zed", "app.py", "--file", flatpak)
        assert json.loads(flatpak.read_text())["agent_servers"]["App"]
        assert settings.read_text() == ZED

    def test_editors_that_are_made_of_another_are_called_by_their_names(self, app, home):
        written("cursor", "app.py")
        file = home / ".config/Cursor/User/settings.json"
        assert json.loads(file.read_text())["acp.agents"]["App"]["command"] == SCRIPT
        assert not (home / ".config/Code").exists()

    def test_the_list_shows_those_that_have_been_used_here(self, app, settings):
        ended = run()
        assert ended.returncode == 0
        assert [line.split()[0] for line in ended.stdout.splitlines() if line[0] != " "] == [
            *("zed", "neovim", "jetbrains", "emacs", "vscode")
        ]
        assert [line.strip() for line in ended.stdout.splitlines() if "found:" in line] == [
            f"found: {settings}"
        ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["zad"], "there are no settings for 'zad', did you mean zed? There are those for zed, neovim"),
        (["notepad", "app.py"], "There are those for zed, neovim, jetbrains, emacs, vscode"),
        (["zed", "ap.py"], "there is no file ap.py; did you mean app.py?"),
        (["zed", "claude"], "is the agent 'claude' meant? Then write --agent claude"),
        (["zed", "--agent", "claud"], "there is no agent 'claud', did you mean 'claude'?"),
        (["zed", "no.such.module"], "there is no module no.such.module here or in"),
        (["zed", "app.py", "--agent", "claude"], "name one of these: a target, --agent, or a command"),
        (["zed", "--", "no-such-program", "acp"], "no-such-program cannot be started"),
        (["zed", "--"], "say which agent to start behind `--`"),
        (["zed", "app.py", "--model", "a:b"], "--model is for the coder"),
        (
            ["zed", "--agent", "goose", "--model", "a:b"],
            "--model is for the coder, and goose is another agent",
        ),
        (["zed", "--name", " "], "--name must be a text that can be shown"),
        (["zed", "--env", "1=2"], "'1=2' is not NAME or NAME=VALUE"),
        (["zed", "--env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE is not set here"),
    ],
)
def test_wrong_usage_ends_with_a_sentence_and_code_2(app, arguments, sentence):
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
