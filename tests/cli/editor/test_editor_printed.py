"""What `coupler editor` prints: an editor that starts it, anywhere, gets the agent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import forked
from cli.editor.editor_stage import SCRIPT, ZED, entry, run
from coupler.cli.editor.editor_settings import VSCODE, ServedCommand
from coupler.cli.editor.editor_settings import ZED as ZED_SETTINGS
from raw_client import COUPLER, PATIENCE, RawClient

MANUAL = Path(__file__).parents[3] / "docs" / "editors.md"


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
        monkeypatch.setattr("coupler.cli.editor.editor_settings.sys.platform", "win32")
        served = ServedCommand("A", ("C:\\My Files\\coupler.exe", "serve"))
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
