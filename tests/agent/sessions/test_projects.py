"""What the user's and the project's coupler.toml say holds for a session: without a dialog, or with one."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from agent.sessions.asking import ACTOR, ALLOW_ONCE, REJECT_ONCE, Worker
from agent.sessions.steps import listed, setup
from agent.steps import error_of, leave
from raw_client import serve


class Place:
    """A running agent, its user's home, and directories for projects."""

    def __init__(self, client, home, directory):
        self.client, self.home, self.directory = client, home, directory

    def user_writes(self, text):
        """Replace the user's own file."""
        (self.home / "coupler.toml").write_text(text)

    def project(self, text=None, name="app"):
        """A repository with this file in it."""
        project = self.directory / name
        (project / ".git").mkdir(parents=True)
        if text is not None:
            (project / "coupler.toml").write_text(text)
        return project

    def open(self, cwd):
        return Worker(self.client, cwd)

    def refused(self, cwd):
        """The error of opening a session there."""
        answer = self.client.call("session/new", setup(None, cwd))
        assert error_of(answer) == (-32603, "config_wrong"), answer
        return answer["error"]["message"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    (directory / "app.py").write_text(ACTOR)
    home = directory / "home"
    home.mkdir()
    with serve(directory / "app.py", env={"COUPLER_HOME": str(home)}) as client:
        client.initialize()
        yield client, home
        leave(client)


@pytest.fixture
def place(served, tmp_path):
    client, home = served
    yield Place(client, home, tmp_path.resolve())
    with suppress(FileNotFoundError):
        (home / "coupler.toml").unlink()


RUN = {"kind": "execute"}


class TestRules:
    def test_what_the_user_denies_fails_without_a_dialog_and_the_reason_names_the_rule(self, place):
        place.user_writes('[permissions]\ndeny = [\n  "execute(git push *)",\n]\n')

        outcome = place.open(place.project()).does(command="git push origin", **RUN)

        assert not outcome.is_permitted
        assert outcome.call["status"] == "failed"
        assert outcome.statuses == ["pending", "failed"]
        file = place.home / "coupler.toml"
        assert outcome.reason.startswith("not permitted: `git push origin` is denied by")
        assert f"`execute(git push *)` in {file} line 3" in outcome.reason

    def test_what_the_project_denies_fails_as_well(self, place):
        project = place.project('[permissions]\ndeny = ["edit(generated/**)"]\n')

        outcome = place.open(project).does(kind="edit", path="generated/code.py")

        assert not outcome.is_permitted
        assert f"`edit(generated/**)` in {project / 'coupler.toml'} line 2" in outcome.reason

    def test_what_the_user_allows_runs_without_a_dialog(self, place):
        place.user_writes(
            '[permissions]\nallow = ["execute(git status)", "fetch(https://docs.python.org/*)"]\n'
        )
        worker = place.open(place.project())

        outcome = worker.does(command="git status", **RUN)

        assert outcome.is_permitted
        assert outcome.statuses == ["pending", "in_progress", "completed"]
        assert worker.does(kind="fetch", url="https://docs.python.org/3/").is_permitted

    def test_what_is_only_like_the_allowed_is_asked_about(self, place):
        place.user_writes(
            '[permissions]\nallow = ["execute(git status)", "fetch(https://docs.python.org/*)"]\n'
        )
        worker = place.open(place.project())

        for wish in (
            {"command": "git status --porcelain", **RUN},
            {"command": "./git status", **RUN},
            {"command": ["git", "status", ";", "rm"], **RUN},
            {"kind": "fetch", "url": "https://docs.python.org.example.com/3/"},
            {"kind": "fetch", "url": "https://docs.python.org@example.com/3/"},
            {"kind": "execute", "title": "git status", "input": {"command": "git status"}},
        ):
            assert not worker.does(answer=REJECT_ONCE, **wish).is_permitted

    def test_ask_asks_though_another_rule_allows_it(self, place):
        place.user_writes('[permissions]\nallow = ["execute(make *)"]\nask = ["execute(make release)"]\n')
        worker = place.open(place.project())

        assert worker.does(command="make test", **RUN).is_permitted
        assert worker.does(command="make release", answer=ALLOW_ONCE, **RUN).is_permitted
        assert not worker.does(command="make release", answer=REJECT_ONCE, **RUN).is_permitted

    def test_a_project_tightens_what_its_user_allows(self, place):
        place.user_writes('[permissions]\nallow = ["execute(make *)"]\n')
        project = place.project(
            '[permissions]\nask = ["execute(make install)"]\ndeny = ["execute(make clean)"]\n'
        )
        worker = place.open(project)

        assert worker.does(command="make test", **RUN).is_permitted
        assert not worker.does(command="make install", answer=REJECT_ONCE, **RUN).is_permitted
        assert "is denied by `execute(make clean)`" in worker.does(command="make clean", **RUN).reason

    def test_a_project_cannot_allow_anything_and_the_log_says_so(self, start, tmp_path):
        project = tmp_path / "app"
        project.mkdir()
        (project / "coupler.toml").write_text('[permissions]\nallow = ["*", "execute(rm *)"]\n')
        client = start(ACTOR)
        client.initialize()

        outcome = Worker(client, project).does(command="rm x", answer=REJECT_ONCE, **RUN)

        assert not outcome.is_permitted
        leave(client)
        assert f"`permissions.allow` in {project.resolve() / 'coupler.toml'} line 2 is ignored" in (
            client.stderr.decode()
        )

    def test_a_project_cannot_take_back_what_its_user_denies(self, place):
        place.user_writes('[permissions]\ndeny = ["execute(curl *)"]\n')
        project = place.project('[permissions]\nallow = ["execute(curl *)"]\nask = ["execute(curl *)"]\n')

        outcome = place.open(project).does(command="curl example.com", **RUN)

        assert not outcome.is_permitted
        assert str(place.home) in outcome.reason


class TestWithoutRules:
    @pytest.mark.parametrize("wish", [{"kind": "think"}, {"kind": "read", "path": "src/main.py"}], ids=str)
    def test_thinking_and_reading_inside_is_allowed(self, place, wish):
        assert place.open(place.project()).does(**wish).is_permitted

    @pytest.mark.parametrize(
        "wish",
        [
            {"kind": "read", "path": "/etc/passwd"},
            {"kind": "read", "path": "../other/main.py"},
            {"kind": "read", "path": ".env"},
            {"kind": "read", "path": "keys/server.pem"},
            {"kind": "search", "path": "src"},
            {"kind": "edit", "path": "src/main.py"},
            {"kind": "delete", "path": "src/main.py"},
            {"kind": "execute", "command": "ls"},
            {"kind": "fetch", "url": "https://example.com"},
            {"kind": "other", "name": "lookup_price"},
            {"kind": "read"},
            {},
        ],
        ids=str,
    )
    def test_everything_else_is_asked_about(self, place, wish):
        assert not place.open(place.project()).does(answer=REJECT_ONCE, **wish).is_permitted

    def test_a_link_inside_that_leads_out_is_asked_about(self, place):
        project = place.project()
        (place.directory / "secret.txt").write_text("secret")
        (project / "notes.txt").symlink_to(place.directory / "secret.txt")

        worker = place.open(project)

        assert not worker.does(kind="read", path="notes.txt", answer=REJECT_ONCE).is_permitted


class TestShellCommands:
    RULES = (
        '[permissions]\nallow = ["execute(git status)", "execute(ls *)"]\ndeny = ["execute(git push *)"]\n'
    )

    @pytest.fixture
    def worker(self, place):
        place.user_writes(self.RULES)
        return place.open(place.project())

    @pytest.mark.parametrize("command", ["git status && ls -l", "ls | ls; git status", "(ls a) || ls b"])
    def test_a_line_is_allowed_if_each_part_is(self, worker, command):
        assert worker.does(command=command, **RUN).is_permitted

    @pytest.mark.parametrize(
        "command",
        [
            "git status && rm x",
            "rm x; git status",
            "ls | sh",
            "ls $(rm x)",
            "ls `rm x`",
            "ls <(rm x)",
            "ls > out.txt",
            "ls & rm x",
            "ls\nrm x",
            "PATH=. ls",
            "ls() { rm x; }; ls",
            "env rm x",
            "$SHELL -c ls",
            "ls 'unclosed",
        ],
    )
    def test_one_part_that_is_not_is_enough_to_ask(self, worker, command):
        assert not worker.does(command=command, answer=REJECT_ONCE, **RUN).is_permitted

    @pytest.mark.parametrize(
        "command", ["ls && git push", "ls $(git push)", "env git push x", "bash -c 'git push'", "g\\it push"]
    )
    def test_one_part_that_is_denied_denies_the_line(self, worker, command):
        outcome = worker.does(command=command, **RUN)

        assert not outcome.is_permitted
        assert "`execute(git push *)`" in outcome.reason


class TestWhichFilesCount:
    def test_two_sessions_in_two_projects_see_two_configurations(self, place):
        strict = place.open(place.project('[permissions]\ndeny = ["execute(make *)"]\n', "strict"))
        lax = place.open(place.project(name="lax"))

        assert "is denied by" in strict.does(command="make", **RUN).reason
        assert lax.does(command="make", answer=ALLOW_ONCE, **RUN).is_permitted
        assert "is denied by" in strict.does(command="make", **RUN).reason

    def test_a_session_below_has_the_rules_of_its_project(self, place):
        project = place.project('[permissions]\ndeny = ["edit(src/generated/**)"]\n')
        (project / "src").mkdir()

        outcome = place.open(project / "src").does(kind="edit", path="generated/code.py")

        assert "is denied by `edit(src/generated/**)`" in outcome.reason

    def test_a_file_above_the_repository_does_not_count(self, place):
        (place.directory / "coupler.toml").write_text('[permissions]\ndeny = ["*"]\n')

        assert place.open(place.project()).does(command="make", answer=ALLOW_ONCE, **RUN).is_permitted

    def test_the_directory_that_the_process_was_started_in_does_not_count(self, start, tmp_path):
        (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["*"]\n')
        project = tmp_path / "app"
        (project / ".git").mkdir(parents=True)
        client = start(ACTOR, cwd=tmp_path)
        client.initialize()

        assert Worker(client, project).does(command="make", answer=ALLOW_ONCE, **RUN).is_permitted

    def test_a_change_counts_for_the_sessions_that_are_opened_after_it(self, place):
        project = place.project()
        before = place.open(project)
        (project / "coupler.toml").write_text('[permissions]\ndeny = ["execute(make *)"]\n')

        assert "is denied by" in place.open(project).does(command="make", **RUN).reason
        assert before.does(command="make", answer=ALLOW_ONCE, **RUN).is_permitted


class TestFilesThatAreWrong:
    @pytest.mark.parametrize(
        ("text", "line", "what"),
        [
            ('[permissions]\ndeny = ["execute(rm *)"\n', None, "coupler.toml"),
            ('\n[permisions]\ndeny = ["execute(rm *)"]\n', 2, "did you mean `permissions`?"),
            ('[permissions]\ndeny = "execute(rm *)"\n', 2, "permissions.deny"),
            ('[permissions]\ndeny = ["exec(rm *)"]\n', 2, "did you mean `execute`?"),
            ('[permissions]\nask = [\n"read",\n"edit(../x)"]\n', 4, "`..`"),
            ('[permissions]\ndeny = ["execute(rm * && ls)"]\n', 2, "a rule for each single command"),
        ],
    )
    def test_a_wrong_project_refuses_sessions_until_it_is_mended(self, place, text, line, what):
        project = place.project(text)

        message = place.refused(project)

        assert str(project / "coupler.toml") in message
        assert what in message
        assert line is None or f"line {line}" in message
        assert listed(place.client, cwd=str(project)) == []
        # Others are not concerned,
        other = place.open(place.project(name="other"))
        assert other.does(command="make", answer=ALLOW_ONCE, **RUN).is_permitted
        # and once it is mended, it works.
        (project / "coupler.toml").write_text('[permissions]\ndeny = ["execute(rm *)"]\n')
        assert "is denied by" in place.open(project).does(command="rm x", **RUN).reason

    def test_the_users_own_file_refuses_all_sessions(self, place):
        project = place.project()
        place.user_writes('[permissions]\nallow = ["reed"]\n')

        message = place.refused(project)

        assert f"`reed` in {place.home / 'coupler.toml'} line 2" in message
        assert "did you mean `read`?" in message
        place.user_writes("")
        assert place.open(project).does(kind="read", path="x").is_permitted

    def test_a_session_does_not_go_on_in_a_project_that_went_wrong(self, place):
        project = place.project()
        worker = place.open(project)
        assert worker.does(kind="think").is_permitted
        worker.close()
        (project / "coupler.toml").write_text("permissions = 1")

        for method in ("session/load", "session/resume"):
            answer = place.client.call(method, setup(worker.id, project))
            assert error_of(answer) == (-32603, "config_wrong")

        (project / "coupler.toml").unlink()
        worker.resume()
        assert worker.does(kind="think").is_permitted


MANUAL = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text()
ROWS = re.findall(r"^\| `(\S+?(?:\(.*?\))?)` \| (`.+`) \| (`.+`) \|$", MANUAL, re.MULTILINE)


class TestTheManual:
    def test_its_rules_hold_as_it_says(self, place):
        [example] = re.findall(r"```toml\n(.*?)```", MANUAL, re.DOTALL)
        place.user_writes(example)
        worker = place.open(place.project())

        assert worker.does(kind="execute", command="pytest -q").is_permitted
        assert worker.does(kind="edit", path="docs/index.md").is_permitted
        assert not worker.does(kind="edit", path="docs/legal/terms.md", answer=REJECT_ONCE).is_permitted
        assert "is denied by" in worker.does(kind="edit", path=".github/ci.yml").reason
        for command in ("git push", "env git push", "bash -c 'git push'", "g\\it push"):
            assert "is denied by" in worker.does(kind="execute", command=command).reason

    @pytest.mark.parametrize(("rule", "meant", "not_meant"), ROWS, ids=[row[0] for row in ROWS])
    def test_its_table_is_true(self, place, rule, meant, not_meant):
        place.user_writes(f"[permissions]\nallow = ['{rule}']\n")
        worker = place.open(place.project())

        for text in examples(meant):
            assert worker.does(**wish(rule, text)).is_permitted, text
        for text in examples(not_meant):
            assert not worker.does(answer=REJECT_ONCE, **wish(rule, text)).is_permitted, text

    def test_the_whole_table_is_tried(self):
        assert len(ROWS) == 10


def examples(cell):
    return re.findall(r"`(.+?)`", cell)


def wish(rule, text):
    """The call that an example of a rule is about."""
    subject = re.split(r"[:(]", rule)[0]
    if subject == "tool":
        return {"kind": "other", "name": text}
    return {"kind": subject, {"execute": "command", "fetch": "url"}.get(subject, "path"): text}
