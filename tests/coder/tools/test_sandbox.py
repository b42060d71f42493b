"""The sandbox: what commands in it see and can change, and what happens where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from coder.script import use
from coder.served_coder import Coder, tree, write
from coder.waiting import until
from coupler.coder.tools.sandbox import SandboxView, bubblewrap_arguments

BWRAP = shutil.which("bwrap")


def works() -> bool:
    """Whether a sandbox can be made here: containers often forbid it."""
    if BWRAP is None:
        return False
    words = [BWRAP, "--unshare-user-try", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def sleepers(seconds: str) -> list[psutil.Process]:
    """The processes that sleep for so long."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if process.info["cmdline"] == ["sleep", seconds]]


needs_sandbox = pytest.mark.skipif(not works(), reason="bubblewrap does not work here")


def pairs(words: list[str], option: str) -> list[tuple[str, str]]:
    """The two arguments of each such option."""
    return [(words[at + 1], words[at + 2]) for at, word in enumerate(words) if word == option]


def singles(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def furnished(directory: Path) -> Path:
    """A home with secrets and tools."""
    for place in (".ssh", ".cargo/bin", ".local/bin", "bin", "work/app"):
        (directory / place).mkdir(parents=True)
    (directory / ".netrc").write_text("password")
    (directory / ".gitconfig").write_text("[user]\nname = Somebody\n")
    return directory


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user, for all tests with a process."""
    return furnished(tmp_path_factory.mktemp("person"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return furnished(tmp_path / "person")


def view(home: Path, *roots: Path, **more: object) -> SandboxView:
    return SandboxView(roots=[str(root) for root in roots], temporary="/var/own-tmp", home=home, **more)  # type: ignore[arg-type]


class TestTheLine:
    def test_the_system_is_read_only_and_what_is_written_is_the_sessions(self, home: Path) -> None:
        words = bubblewrap_arguments("/usr/bin/bwrap", view(home, home / "work/app"))

        assert words[0] == "/usr/bin/bwrap"
        assert {"--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc"} <= {*words}
        assert pairs(words, "--ro-bind")[0] == ("/", "/")
        app = str(home / "work/app")
        assert pairs(words, "--bind") == [("/var/own-tmp", "/tmp"), (app, app)]
        assert singles(words, "--proc") == ["/proc"]

    def test_the_network_stays(self, home: Path) -> None:
        assert not {"--unshare-net", "--unshare-all"} & {*bubblewrap_arguments("bwrap", view(home, home))}

    def test_the_home_is_empty_but_for_tools(self, home: Path) -> None:
        path = f"/usr/bin:{home}/bin:{home}:relative:/opt/bin"
        words = bubblewrap_arguments("bwrap", view(home, home / "work/app", path=path))

        assert str(home) in singles(words, "--tmpfs")
        put_back = [source for source, _ in pairs(words, "--ro-bind-try")]
        assert {str(home / name) for name in (".cargo/bin", ".local/bin", ".gitconfig", "bin")} <= {*put_back}
        assert not {str(home), str(home / ".ssh"), str(home / ".netrc"), str(home / ".cargo")} & {*put_back}
        assert words.index(str(home / "bin")) > words.index(str(home))

    def test_in_a_home_that_is_a_directory_of_the_session_secrets_are_covered(self, home: Path) -> None:
        words = bubblewrap_arguments("bwrap", view(home, home))
        assert words.index(str(home / ".ssh")) > len(words) - 1 - words[::-1].index("--bind")
        assert str(home / ".ssh") in singles(words, "--tmpfs")
        assert ("/dev/null", str(home / ".netrc")) in pairs(words, "--ro-bind")

    def test_what_a_repository_runs_for_the_user_cannot_be_changed(self, home: Path) -> None:
        app = home / "work/app"
        (app / ".git/hooks").mkdir(parents=True)
        (app / ".git/config").touch()
        words = bubblewrap_arguments("bwrap", view(home, app))
        for name in ("hooks", "config"):
            assert (str(app / ".git" / name),) * 2 in pairs(words, "--ro-bind")

    def test_a_worktree_brings_its_repository_if_that_knows_it(self, home: Path) -> None:
        app, main = home / "work/app", home / "work/main/.git"
        own = main / "worktrees/app"
        own.mkdir(parents=True)
        (app / ".git").write_text(f"gitdir: {own}\n")
        assert (str(main), str(main)) not in pairs(bubblewrap_arguments("bwrap", view(home, app)), "--bind")

        (own / "gitdir").write_text(f"{app}/.git\n")
        assert (str(main), str(main)) in pairs(bubblewrap_arguments("bwrap", view(home, app)), "--bind")

    def test_a_file_that_only_looks_like_a_worktree_brings_nothing(self, home: Path) -> None:
        app = home / "work/app"
        (app / ".git").write_text(f"gitdir: {home}/.ssh\n")
        (home / ".ssh/gitdir").write_text(f"{app}/.git\n")
        words = bubblewrap_arguments("bwrap", view(home, app))
        assert not [place for pair in pairs(words, "--bind") for place in pair if ".ssh" in place]

    def test_a_root_behind_a_link_is_there_under_both_names(self, home: Path) -> None:
        (home / "link").symlink_to(home / "work/app")
        words = bubblewrap_arguments("bwrap", view(home, home / "link"))
        real = str(home / "work/app")
        assert {(real, real), (real, str(home / "link"))} <= {*pairs(words, "--bind")}

    def test_what_is_hidden_is_hidden_inside_of_a_root_too_and_what_is_readable_can_be_read(
        self, home: Path
    ) -> None:
        own, outputs = home / "work/app/own", home / "work/app/own/outputs"
        outputs.mkdir(parents=True)
        words = bubblewrap_arguments("bwrap", view(home, home / "work/app", hidden=[own], readable=[outputs]))
        after_root = words[len(words) - 1 - words[::-1].index("--bind") :]
        assert str(own) in singles(after_root, "--tmpfs")
        assert after_root[-3:] == ["--ro-bind-try", str(outputs), str(outputs)]


@needs_sandbox
class TestInside:
    @pytest.fixture
    def at(self, desk, person):
        return desk(env={"SANDBOX": "on", "HOME": str(person)})

    def run(self, at, command: str, **more: object) -> str:
        ((status, told),) = at.does(["run_command", {"command": command, **more}])
        assert status == "success", told
        return told

    def test_the_project_can_be_changed_and_nothing_else(self, at, project, tmp_path):
        told = self.run(at, f"echo new > made; touch {tmp_path}/outside /usr/made; echo over")
        assert (project / "made").read_text() == "new\n"
        assert not (tmp_path / "outside").exists()
        assert "/usr/made" in told
        assert told.endswith("over\n(exit code 0)")

    def test_keys_are_not_there_and_tools_are(self, at, person):
        (person / ".ssh/id").write_text("PRIVATE")
        told = self.run(
            at, "ls -A ~ ~/.ssh; cat ~/.ssh/id ~/.netrc; cat ~/.gitconfig; env | grep SSH_AUTH_SOCK"
        )
        assert "PRIVATE" not in told
        assert "password" not in told
        assert "name = Somebody" in told
        assert "SSH_AUTH_SOCK" not in told

    def test_couplers_own_files_are_not_there_but_for_kept_outputs(self, at):
        long = self.run(at, "seq 1 20000")
        path = long.partition("the whole is in ")[2].partition(",")[0]
        assert self.run(at, f"tail -1 {path}; ls -A {at.home}") == "20000\noutputs\n(exit code 0)"
        assert "exit code 0" not in self.run(at, f"echo x >> {path}")

    def test_its_temporary_files_last_over_commands_and_are_nobody_elses(self, at):
        self.run(at, "echo kept > /tmp/of-this-test-only")
        assert self.run(at, "cat $TMPDIR/of-this-test-only") == "kept\n(exit code 0)"
        assert not Path("/tmp/of-this-test-only").exists()

    def test_other_processes_cannot_be_seen(self, at):
        assert self.run(at, f"ls /proc | grep -c '^{at.client.process.pid}$'") == "0\n(exit code 1)"

    def test_a_command_is_asked_about_as_it_is(self, at):
        self.run(at, "echo hello")
        (question,) = at.asked
        assert question["params"]["toolCall"]["rawInput"]["command"] == "echo hello"

    def test_a_job_in_the_background_is_in_it_too_and_ends_whole(self, at, project):
        seconds = f"600.{os.getpid()}"
        self.run(at, f"sleep {seconds} & wait", background=True)
        until(lambda: sleepers(seconds))
        ((_, told),) = at.does(["stop_command", {"id": "job_1"}])
        assert "was stopped" in told
        until(lambda: not sleepers(seconds))

    def test_hooks_of_the_repository_cannot_be_planted(self, at, project):
        (project / ".git/hooks").mkdir(parents=True)
        told = self.run(at, "echo evil > .git/hooks/pre-commit; touch .git/fine && echo fine")
        assert not (project / ".git/hooks/pre-commit").exists()
        assert "fine" in told


class TestWithout:
    @pytest.fixture
    def bare(self, tmp_path: Path) -> str:
        """A PATH with a shell, but without bubblewrap."""
        directory = tmp_path / "bare"
        directory.mkdir()
        for name in ("sh", "bash", "cat", "touch"):
            if (found := shutil.which(name)) is not None:
                (directory / name).symlink_to(found)
        return str(directory)

    def test_on_is_a_refusal_that_says_what_to_do(self, desk, project, bare):
        at = desk(env={"SANDBOX": "on", "PATH": bare})
        ((status, told),) = at.does(["run_command", {"command": "touch made"}])
        assert status == "error"
        assert 'no command is run: `coder.sandbox` is "on", but bubblewrap is not installed' in told
        assert "apt install bubblewrap" in told
        assert not (project / "made").exists()

    def test_auto_runs_without_it_and_says_so_once(self, desk, project, bare):
        at = desk(env={"SANDBOX": "auto", "PATH": bare})
        ((status, _),) = at.does(["run_command", {"command": "touch made"}])
        assert (status, (project / "made").exists()) == ("success", True)
        assert "without a sandbox" in str(at.updates)

        at.does(["run_command", {"command": "touch made"}])
        assert "without a sandbox" not in str(at.updates)

    def test_one_that_does_not_work_counts_as_none(self, desk, project, bare):
        (Path(bare) / "bwrap").write_text(
            "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"
        )
        (Path(bare) / "bwrap").chmod(0o755)
        at = desk(env={"SANDBOX": "on", "PATH": bare})
        ((status, told),) = at.does(["run_command", {"command": "touch made"}])
        assert status == "error"
        assert "bubblewrap does not work here: No permissions to create a new namespace" in told


@needs_sandbox
def test_the_users_settings_put_the_coders_commands_into_it_and_it_leaves_nothing(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    own = tmp_path / "temporary"
    own.mkdir()
    served = coder.served(config='[coder]\nsandbox = "on"\n', env={"TMPDIR": str(own)})
    command = f"echo new > made; touch /tmp/kept; touch {tmp_path}/outside; echo over"
    coder.model.plays(use("run_command", command=command), "Done.")
    editor = served.opened(project)

    editor.prompt("Run it", "allow_once")

    assert "over\n(exit code 0)" in coder.model.last.result
    assert (tree(project), (tmp_path / "outside").exists()) == ({"made": "new\n"}, False)
    assert len([*own.glob("coupler-sandbox-*/kept")]) == 1
    editor.close()
    assert [*own.glob("coupler-sandbox-*")] == []


def test_a_project_cannot_take_it_away(coder: Coder, project: Path) -> None:
    write(project, {"coupler.toml": '[coder]\nsandbox = "off"\n'})
    served = coder.served(config='[coder]\nsandbox = "on"\n', env={"PATH": "/nowhere"})
    coder.model.plays(use("run_command", command="touch made"), "Done.")

    served.opened(project).prompt("Run it", "allow_once")

    assert "no command is run" in coder.model.last.result
    assert "made" not in tree(project)


SUGGESTED = 'with `sandbox = "auto"` under `[coder]`'


@needs_sandbox
def test_auto_suggests_it_once_where_it_works(coder: Coder, project: Path) -> None:
    served = coder.served()
    coder.model.plays(use("run_command", command="ls"), use("run_command", command="ls"), "Done.")
    editor = served.opened(project)
    editor.set_mode("agentic")

    assert editor.prompt("Look").text.count(SUGGESTED) == 1

    coder.model.plays(use("run_command", command="ls"), "Done.")
    assert SUGGESTED not in editor.prompt("Look again").text


@needs_sandbox
def test_nobody_is_told_of_it_who_has_decided_or_is_asked_anyway(coder: Coder, project: Path) -> None:
    decided = coder.served(config='[coder]\nsandbox = "off"\n').opened(project)
    decided.set_mode("agentic")
    coder.model.plays(use("run_command", command="ls"), "Done.")
    assert SUGGESTED not in decided.prompt("Look").text

    coder.model.plays(use("run_command", command="ls"), "Done.")
    assert SUGGESTED not in coder.served().opened(project).prompt("Look", "allow_once").text
