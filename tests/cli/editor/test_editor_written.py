"""What `coupler editor --write` changes: what it was asked for, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.editor.editor_stage import AGENT, SCRIPT, ZED, ZED_AFTER, run, written
from coupler.cli.terminal import CannotWriteError, replace_file


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
            replace_file(settings, b"new", b"not what is there")
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
