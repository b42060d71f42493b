"""Asking the user: what the question shows, what "always" remembers and for how long, what means no."""

import json
import statistics
import time

import pytest

from agent.sessions.asking import (
    ACTOR,
    ALLOW_ALWAYS,
    ALLOW_ONCE,
    REJECT_ALWAYS,
    REJECT_ONCE,
    Worker,
    names_in,
    permissions,
    remembered,
    selected,
)
from agent.sessions.steps import setup
from agent.steps import asks, cancel, end_of, final_call, leave, still_serves, text_of, tool_updates
from raw_client import is_answer_to, serve, texts

COMMIT = {"kind": "execute", "command": "git commit -m x"}
COMMITS = "execute(git commit *)"
EDIT = {"kind": "edit", "path": "src/main.py"}
ROUNDS = 20


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One process for the tests that need no other; each has a project of its own."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "app.py").write_text(ACTOR)
    home = directory / "home"
    with serve(directory / "app.py", env={"COUPLER_HOME": str(home)}) as client:
        client.initialize()
        yield client, home
        leave(client)


@pytest.fixture
def project(tmp_path):
    project = tmp_path.resolve() / "app"
    (project / ".git").mkdir(parents=True)
    return project


@pytest.fixture
def home(served):
    return served[1]


@pytest.fixture
def client(served):
    client, _ = served
    still_serves(client)
    client._held.clear()
    return client


@pytest.fixture
def worker(client, project):
    return Worker(client, project)


class TestTheQuestion:
    def test_it_names_the_announced_call_and_shows_the_command(self, worker):
        question = worker.is_asked(title="Commit", **COMMIT)

        [announced] = tool_updates(question.updates)
        assert question.params["sessionId"] == worker.id
        shown = question.params["toolCall"]
        assert shown["toolCallId"] == announced["toolCallId"]
        assert (shown["title"], shown["kind"], shown["status"]) == ("Commit", "execute", "pending")
        assert shown["rawInput"] == announced["rawInput"] == {"command": "git commit -m x"}
        answer(worker, question, REJECT_ONCE)

    def test_it_shows_the_words_of_a_command_and_an_address(self, worker):
        words = ["git", "commit", "-m", "two words"]
        outcome = worker.does(kind="execute", command=words, answer=REJECT_ONCE)
        assert outcome.question["toolCall"]["rawInput"] == {"command": words}

        outcome = worker.does(kind="fetch", url="https://example.com/x", answer=REJECT_ONCE)
        assert outcome.question["toolCall"]["rawInput"] == {"url": "https://example.com/x"}

    @pytest.mark.parametrize(
        ("input", "shown"),
        [
            ({"command": "ls", "why": "to look"}, {"command": "git commit -m x", "why": "to look"}),
            ("ls", {"input": "ls", "command": "git commit -m x"}),
            ([], {"input": [], "command": "git commit -m x"}),
        ],
    )
    def test_an_agent_cannot_show_another_command_than_the_one_that_is_judged(self, worker, input, shown):
        outcome = worker.does(input=input, answer=REJECT_ONCE, **COMMIT)

        assert outcome.question["toolCall"]["rawInput"] == shown

    def test_it_shows_the_change_of_a_file(self, worker, project):
        change = {"path": "src/main.py", "old": "a\n", "new": "b\n"}

        outcome = worker.does(kind="edit", diff=change, answer=REJECT_ONCE)

        path = str(project / "src" / "main.py")
        assert outcome.question["toolCall"]["content"] == [
            {"type": "diff", "path": path, "oldText": "a\n", "newText": "b\n"}
        ]

    @pytest.mark.parametrize(
        ("option", "ended"), [(ALLOW_ONCE, ["in_progress", "completed"]), (REJECT_ONCE, ["failed"])]
    )
    def test_a_call_that_shows_its_change_first_does_not_run_before_it_is_allowed(
        self, worker, option, ended
    ):
        change = {"path": "src/main.py", "old": "a\n", "new": "b\n"}

        outcome = worker.does(kind="edit", diff=change, answer=option)

        assert outcome.statuses == ["pending", *ended]

    def test_the_path_of_a_change_is_judged_whatever_else_was_said(self, worker, project):
        (project / "coupler.toml").write_text('[permissions]\ndeny = ["edit(secret/**)"]\n')
        strict = Worker(worker.client, project)
        change = {"path": "secret/x", "old": None, "new": "b\n"}

        outcome = strict.does(diff=change, **EDIT)

        assert not outcome.is_permitted
        assert "is denied by `edit(secret/**)`" in outcome.reason

    def test_a_path_is_judged_by_where_it_leads_when_dots_follow_a_link(self, worker, project):
        (project.parent / "other" / "deep").mkdir(parents=True)
        (project / "link").symlink_to(project.parent / "other" / "deep")

        assert worker.does(kind="read", path="src/../x").is_permitted
        assert not worker.does(kind="read", path="link/../x", answer=REJECT_ONCE).is_permitted
        change = {"path": "link/../x", "old": None, "new": "b"}
        assert not worker.does(kind="read", diff=change, answer=REJECT_ONCE).is_permitted

    def test_it_shows_the_variables_that_a_command_is_given_but_no_secret(self, worker):
        env = {"GIT_SSH_COMMAND": "ssh -v", "DEPLOY_TOKEN": "f3b91c07d2aa4e58", "HOME": None}

        outcome = worker.does(env=env, answer=REJECT_ONCE, **COMMIT)

        shown = outcome.question["toolCall"]["rawInput"]["env"]
        assert {**shown, "DEPLOY_TOKEN": ""} == {**env, "DEPLOY_TOKEN": ""}
        assert "f3b91c07" not in json.dumps(outcome.question)
        assert [*outcome.names] == [ALLOW_ONCE, REJECT_ONCE]

    def test_a_remembered_yes_is_none_for_the_same_command_with_other_variables(self, worker):
        assert worker.does(answer=ALLOW_ALWAYS, **COMMIT).is_permitted
        assert worker.does(env={"LANG": "C"}, **COMMIT).is_permitted
        assert not worker.does(env={"GIT_DIR": "x"}, answer=REJECT_ONCE, **COMMIT).is_permitted

    def test_a_nearer_file_does_not_hide_what_one_above_it_denies(self, client, project):
        (project / "coupler.toml").write_text(
            '[permissions]\ndeny = ["edit(src/secret/**)", "execute(rm *)"]\n'
        )
        (project / "src").mkdir()
        (project / "src" / "coupler.toml").write_text("[permissions]\ndeny = []\n")
        worker = Worker(client, project / "src")

        for wish in ({"kind": "edit", "path": "secret/x"}, {"kind": "execute", "command": "rm x"}):
            outcome = worker.does(**wish)
            assert not outcome.is_permitted
            assert f"in {project}/coupler.toml line 2" in outcome.reason

    def test_its_answers_say_what_they_mean_and_for_how_long(self, worker):
        assert worker.does(answer=REJECT_ONCE, **COMMIT).names == {
            ALLOW_ONCE: "Allow once",
            ALLOW_ALWAYS: "Always allow `git commit *` in this project",
            REJECT_ONCE: "Reject once",
            REJECT_ALWAYS: "Always reject `git commit *` in this project",
        }
        names = worker.does(answer=REJECT_ONCE, **EDIT).names
        assert names[ALLOW_ALWAYS] == "Always allow edits below `src/` in this session"
        assert names[REJECT_ALWAYS] == "Always reject edits below `src/` in this session"

    @pytest.mark.parametrize(
        "command", ["eval $X", "$EDITOR notes", 'bash -c "$X"', "ls 'unclosed", "a;b;c;d"]
    )
    def test_there_is_no_always_for_what_cannot_be_spelled_out(self, worker, command):
        outcome = worker.does(kind="execute", command=command, answer=REJECT_ONCE)

        assert [*outcome.names] == [ALLOW_ONCE, REJECT_ONCE]

    def test_after_a_yes_the_call_runs_and_completes(self, worker):
        outcome = worker.does(answer=ALLOW_ONCE, **COMMIT)

        assert outcome.is_permitted
        assert outcome.statuses == ["pending", "in_progress", "completed"]

    def test_after_a_no_leaving_the_block_fails_the_call_with_the_reason(self, worker):
        outcome = worker.does(answer=REJECT_ONCE, **COMMIT)

        assert not outcome.is_permitted
        assert outcome.statuses == ["pending", "failed"]
        assert outcome.reason == "not permitted by the user"

    def test_a_plain_function_asks_in_the_same_way(self, start, project):
        client = start("""
            import json
            def agent(turn):
                with turn.tool("Do it", **json.loads(turn.text)) as call:
                    turn.say("yes" if call.permitted() else "no")
        """)
        client.initialize()
        worker = Worker(client, project)

        assert worker.does(answer=ALLOW_ALWAYS, **COMMIT).is_permitted
        assert worker.does(**COMMIT).is_permitted

    def test_a_plain_function_shows_its_change_before_it_runs_too(self, start, project):
        client = start("""
            def agent(turn):
                with turn.tool("Do it", kind="edit") as call:
                    call.diff("src/main.py", "a", "b")
                    turn.say("yes" if call.permitted() else "no")
        """)
        client.initialize()

        outcome = Worker(client, project).does(answer=ALLOW_ONCE)

        assert outcome.statuses == ["pending", "in_progress", "completed"]


class TestOnce:
    @pytest.mark.parametrize("option", [ALLOW_ONCE, REJECT_ONCE])
    def test_nothing_is_remembered(self, worker, home, project, option):
        worker.does(answer=option, **COMMIT)

        assert not worker.does(answer=REJECT_ONCE, **COMMIT).is_permitted
        assert remembered(home, project) == []


class TestAlwaysInThisProject:
    def test_a_yes_holds_for_its_scope_in_all_sessions_of_the_project(self, worker, home, project):
        assert worker.does(answer=ALLOW_ALWAYS, **COMMIT).is_permitted

        assert worker.does(kind="execute", command="git commit --amend").is_permitted
        assert Worker(worker.client, project).does(**COMMIT).is_permitted
        assert remembered(home, project) == [("allow", COMMITS)]

    def test_it_holds_for_nothing_else(self, worker, project):
        worker.does(answer=ALLOW_ALWAYS, **COMMIT)

        for command in ("git push", "git commit-tree x", "git commit; rm x", "git commit -m $(rm x)"):
            assert not worker.does(kind="execute", command=command, answer=REJECT_ONCE).is_permitted
        other = project.parent / "app2"
        (other / ".git").mkdir(parents=True)
        assert not Worker(worker.client, other).does(answer=REJECT_ONCE, **COMMIT).is_permitted

    def test_a_no_holds_without_a_dialog_and_says_why(self, worker, home, project):
        assert not worker.does(answer=REJECT_ALWAYS, **COMMIT).is_permitted

        outcome = Worker(worker.client, project).does(**COMMIT)

        assert not outcome.is_permitted
        assert outcome.call["status"] == "failed"
        assert f"is denied by `{COMMITS}` in what you chose in this project" in outcome.reason
        assert remembered(home, project) == [("reject", COMMITS)]

    @pytest.mark.parametrize("option", [ALLOW_ALWAYS, REJECT_ALWAYS])
    def test_it_is_remembered_across_a_restart_until_the_command_line_forgets_it(
        self, start, coupler_home, project, option
    ):
        first = start(ACTOR)
        first.initialize()
        worker = Worker(first, project)
        worker.does(answer=option, **COMMIT)
        leave(first)

        again = start(ACTOR)
        again.initialize()
        worker = Worker(again, project, worker.id)
        worker.resume()
        assert worker.does(**COMMIT).is_permitted == (option == ALLOW_ALWAYS)

        effect = "allow" if option == ALLOW_ALWAYS else "reject"
        lines = permissions("list", home=coupler_home).stdout.splitlines()
        assert [line.split("\t")[:3] for line in lines] == [[str(project), effect, COMMITS]]
        ended = permissions("forget", COMMITS, "--project", project, home=coupler_home)
        assert (ended.returncode, ended.stdout) == (0, "1 choice forgotten.\n")
        # Also in the process that runs.
        assert not worker.does(answer=REJECT_ONCE, **COMMIT).is_permitted
        assert remembered(coupler_home, project) == []

    def test_each_part_of_a_line_is_remembered_by_itself(self, worker, home, project):
        line = "git add . && git commit -m x"
        outcome = worker.does(kind="execute", command=line, answer=ALLOW_ALWAYS)
        assert outcome.names[ALLOW_ALWAYS] == ("Always allow `git add *` and `git commit *` in this project")

        assert worker.does(kind="execute", command=line).is_permitted
        assert worker.does(**COMMIT).is_permitted
        assert permissions("forget", "execute(git add *)", "--project", project, home=home).returncode == 0
        assert not worker.does(kind="execute", command=line, answer=REJECT_ONCE).is_permitted

    def test_a_project_that_was_moved_or_replaced_by_a_link_is_another_one(self, worker, project):
        assert worker.does(answer=ALLOW_ALWAYS, **COMMIT).is_permitted
        moved = project.rename(project.with_name("moved"))
        project.symlink_to(moved)

        for place in (moved, project):
            assert not Worker(worker.client, place).does(answer=REJECT_ONCE, **COMMIT).is_permitted

    def test_a_rule_that_denies_beats_what_was_allowed(self, worker, project):
        worker.does(answer=ALLOW_ALWAYS, **COMMIT)
        (project / "coupler.toml").write_text(f'[permissions]\ndeny = ["{COMMITS}"]\n')

        assert "coupler.toml line 2" in Worker(worker.client, project).does(**COMMIT).reason

    def test_without_a_store_it_holds_for_the_session_and_says_so(self, start, coupler_home, project):
        client = start(ACTOR, "--no-store")
        client.initialize()
        worker = Worker(client, project)

        outcome = worker.does(answer=ALLOW_ALWAYS, **COMMIT)

        assert outcome.names[ALLOW_ALWAYS] == "Always allow `git commit *` in this session"
        assert worker.does(**COMMIT).is_permitted
        assert not Worker(client, project).does(answer=REJECT_ONCE, **COMMIT).is_permitted
        assert not (coupler_home / "coupler.db").exists()


class TestAlwaysInThisSession:
    @pytest.mark.parametrize("option", [ALLOW_ALWAYS, REJECT_ALWAYS])
    def test_it_holds_in_the_session_and_never_reaches_a_sibling(self, worker, home, project, option):
        sibling = Worker(worker.client, project)

        worker.does(answer=option, **EDIT)

        is_allowed = option == ALLOW_ALWAYS
        assert worker.does(kind="edit", path="src/deep/other.py").is_permitted == is_allowed
        for other in (sibling, Worker(worker.client, project)):
            assert other.does(answer=ALLOW_ONCE, **EDIT).is_permitted
            assert not other.does(answer=REJECT_ONCE, **EDIT).is_permitted
        assert remembered(home, project) == []

    @pytest.mark.parametrize("option", [ALLOW_ALWAYS, REJECT_ALWAYS])
    @pytest.mark.parametrize("method", ["session/load", "session/resume"])
    def test_it_ends_at_close(self, worker, project, option, method):
        worker.does(answer=option, **EDIT)
        worker.close()

        assert "result" in worker.client.call(method, setup(worker.id, project))
        worker.client._held.clear()

        assert worker.does(answer=ALLOW_ONCE, **EDIT).is_permitted
        assert not worker.does(answer=REJECT_ONCE, **EDIT).is_permitted

    def test_a_fork_does_not_inherit_it(self, start, project):
        client = start(ACTOR, "--drafts", "fork")
        client.initialize()
        worker = Worker(client, project)
        worker.does(answer=ALLOW_ALWAYS, **EDIT)

        fork = Worker(
            client, project, client.call("session/fork", setup(worker.id, project))["result"]["sessionId"]
        )
        client._held.clear()

        assert not fork.does(answer=REJECT_ALWAYS, **EDIT).is_permitted
        assert worker.does(**EDIT).is_permitted

    def test_it_holds_for_nothing_else(self, worker, project):
        (project / "src").mkdir()
        (project / "src" / "out").symlink_to(project.parent)
        worker.does(answer=ALLOW_ALWAYS, **EDIT)

        for path in ("src2/x.py", "src/../x.py", "src/out/x.py", "src/.git/hooks/pre-commit", "../src/x.py"):
            assert not worker.does(kind="edit", path=path, answer=REJECT_ONCE).is_permitted
        assert not worker.does(kind="delete", path="src/main.py", answer=REJECT_ONCE).is_permitted

    def test_the_name_of_a_tool_holds_for_that_tool(self, worker):
        worker.does(kind="other", name="lookup_price", answer=ALLOW_ALWAYS)

        assert worker.does(kind="other", name="lookup_price").is_permitted
        assert not worker.does(kind="other", name="lookup_prices", answer=REJECT_ONCE).is_permitted
        # What else it turns out to do is asked about.
        wish = {"kind": "other", "name": "lookup_price", "command": "rm x"}
        assert not worker.does(answer=REJECT_ONCE, **wish).is_permitted


class TestNo:
    @pytest.mark.parametrize(
        "reply",
        [
            selected("ALLOW_ALWAYS"),
            selected("allow_always "),
            selected("allow"),
            selected(""),
            {"result": {"outcome": {"outcome": "cancelled", "optionId": "allow_always"}}},
            {"result": {"outcome": {"outcome": "allow_always"}}},
            {"result": {"outcome": {"outcome": "selected", "optionId": ["allow_always"]}}},
            {"result": {"outcome": "selected", "optionId": "allow_always"}},
            {"result": None},
            {"error": {"code": -32603, "message": "the dialog broke"}},
            {"error": {"code": -32800, "message": "cancelled"}},
        ],
        ids=json.dumps,
    )
    def test_anything_but_an_answer_that_was_offered_is_a_no_and_not_remembered(
        self, worker, home, project, reply
    ):
        outcome = worker.does(reply=reply, **COMMIT)

        assert not outcome.is_permitted
        assert outcome.statuses == ["pending", "failed"]
        assert outcome.reason.startswith("not permitted")
        assert remembered(home, project) == []
        assert not worker.does(answer=REJECT_ONCE, **COMMIT).is_permitted

    @pytest.mark.parametrize("option", [ALLOW_ALWAYS, REJECT_ALWAYS])
    def test_an_always_that_was_not_offered_is_a_no_for_once(self, worker, home, project, option):
        wish = {"kind": "execute", "command": "eval $X"}

        assert not worker.does(answer=option, **wish).is_permitted

        assert worker.does(answer=ALLOW_ONCE, **wish).is_permitted
        assert remembered(home, project) == []

    def test_a_client_that_leaves_said_no(self, start, coupler_home, project):
        client = start(ACTOR)
        client.initialize()
        Worker(client, project).is_asked(**COMMIT)

        leave(client)

        update, answer = client.rest()
        assert update["params"]["update"]["status"] == "failed"
        assert update["params"]["update"]["_meta"] == {"coupler": {"outcome": "cancelled"}}
        assert answer["result"] == {"stopReason": "cancelled"}
        assert remembered(coupler_home, project) == []

    def test_a_deadline_that_passes_is_a_no_and_takes_the_question_back(self, worker, home, project):
        question = worker.is_asked(deadline=0.05, **COMMIT)

        frames = to_the_end(question, worker)

        assert is_taken_back(question, frames)
        [failed] = [each for each in updates_in(frames) if each.get("status") == "failed"]
        assert text_of(failed).startswith("not permitted: ")
        # An answer that comes too late changes nothing.
        worker.client.send({"id": question.id, **selected(ALLOW_ALWAYS)})
        still_serves(worker.client)
        assert remembered(home, project) == []
        assert not worker.does(answer=REJECT_ONCE, **COMMIT).is_permitted

    def test_a_client_that_never_answers_holds_up_nobody_else(self, worker, project):
        question = worker.is_asked(**COMMIT)
        sibling = Worker(worker.client, project)

        assert sibling.does(answer=ALLOW_ONCE, **COMMIT).is_permitted
        assert sibling.does(kind="think").is_permitted
        assert "result" in worker.client.call("session/list", {})

        # Its session can be closed all the same.
        close = worker.client.request("session/close", {"sessionId": worker.id})
        worker.client.send(close)
        _, end = end_of(worker.client, question.prompt)
        assert end["result"] == {"stopReason": "cancelled"}
        assert worker.client.answer_to(close)["result"] == {}

    def test_of_two_answers_the_first_counts(self, worker, home, project):
        question = worker.is_asked(**COMMIT)
        once_more = {"id": question.id, **selected(ALLOW_ALWAYS)}

        worker.client.send({"id": question.id, **selected(REJECT_ONCE)}, once_more, once_more)

        updates, end = end_of(worker.client, question.prompt)
        assert (texts(updates), end["result"]) == ("no", {"stopReason": "end_turn"})
        still_serves(worker.client)
        assert remembered(home, project) == []

    def test_only_the_session_that_asked_is_answered(self, worker, project):
        sibling = Worker(worker.client, project)
        first, second = worker.is_asked(**EDIT), sibling.is_asked(**EDIT)

        answer(sibling, second, REJECT_ALWAYS)
        said = answer(worker, first, ALLOW_ONCE)

        assert said == "yes"


class TestDialogsAtOnce:
    """Calls of one turn that ask at the same time."""

    @pytest.fixture
    def crowd(self, start, coupler_home, project):
        client = start("""
            import asyncio, json

            async def act(turn, title, wish):
                async with turn.tool(title, **wish) as call:
                    await turn.say(f"{title}:{'yes' if await call.permitted() else 'no'} ")

            async def agent(turn):
                await asyncio.gather(*(act(turn, *each) for each in json.loads(turn.text).items()))
        """)
        client.initialize()
        return Crowd(client, project)

    @pytest.mark.parametrize(
        ("option", "said", "status", "reason"),
        [
            (ALLOW_ALWAYS, "yes", "completed", ""),
            (
                REJECT_ALWAYS,
                "no",
                "failed",
                "not permitted: `git commit --amend` is denied by `execute(git commit *)` in"
                " what you chose in this project",
            ),
        ],
    )
    def test_an_always_answers_the_others_that_it_decides_and_takes_them_back(
        self, crowd, option, said, status, reason
    ):
        amend = {"kind": "execute", "command": "git commit --amend"}
        questions = crowd.are_asked(one=COMMIT, two=amend, other=EDIT)

        crowd.answers(questions["one"], option)
        frames = crowd.until(lambda frame: "two:" in json.dumps(frame))
        crowd.answers(questions["other"], REJECT_ONCE)
        frames += crowd.until_the_end()

        taken_back = [frame["params"] for frame in frames if frame.get("method") == "$/cancel_request"]
        assert taken_back == [{"requestId": questions["two"]["id"]}]
        assert sorted(texts(updates_in(frames)).split()) == sorted([f"one:{said}", f"two:{said}", "other:no"])
        two = crowd.call_of(questions["two"], frames)
        assert (two["status"], text_of(two)) == (status, reason)

    @pytest.mark.parametrize("option", [ALLOW_ONCE, REJECT_ONCE])
    def test_a_once_answers_no_other(self, crowd, option):
        questions = crowd.are_asked(one=EDIT, two=EDIT)

        crowd.answers(questions["one"], option)
        crowd.answers(questions["two"], REJECT_ONCE if option == ALLOW_ONCE else ALLOW_ONCE)

        said = texts(updates_in(crowd.until_the_end())).split()
        yes, no = ("one", "two") if option == ALLOW_ONCE else ("two", "one")
        assert sorted(said) == sorted([f"{yes}:yes", f"{no}:no"])

    def test_an_answer_that_is_there_by_then_counts_itself(self, crowd):
        questions = crowd.are_asked(one=EDIT, two=EDIT)

        crowd.client.send(
            {"id": questions["one"]["id"], **selected(ALLOW_ALWAYS)},
            {"id": questions["two"]["id"], **selected(REJECT_ONCE)},
        )

        assert sorted(texts(updates_in(crowd.until_the_end())).split()) == ["one:yes", "two:no"]

    def test_an_answer_to_what_was_taken_back_changes_nothing(self, crowd, coupler_home, project):
        questions = crowd.are_asked(one=COMMIT, two=COMMIT)
        crowd.answers(questions["one"], REJECT_ALWAYS)
        crowd.until(lambda frame: frame.get("method") == "$/cancel_request")

        crowd.answers(questions["two"], ALLOW_ALWAYS)

        assert "two:no" in texts(updates_in(crowd.until_the_end()))
        assert remembered(coupler_home, project) == [("reject", COMMITS)]

    def test_a_cancel_takes_them_all_back(self, crowd):
        questions = crowd.are_asked(one=COMMIT, two=EDIT)

        crowd.client.send(cancel(crowd.session))

        frames = crowd.until_the_end()
        assert frames[-1]["result"] == {"stopReason": "cancelled"}
        taken_back = [frame["params"] for frame in frames if frame.get("method") == "$/cancel_request"]
        assert sorted(each["requestId"] for each in taken_back) == sorted(
            question["id"] for question in questions.values()
        )


class Crowd:
    """A session whose agent makes several calls at once."""

    def __init__(self, client, cwd):
        self.client = client
        self.session = client.new_session(str(cwd))

    def are_asked(self, **wishes):
        """Begin the calls; returns their questions, by title."""
        self.prompt = self.client.prompt_request(self.session, json.dumps(wishes))
        self.client.send(self.prompt)
        questions = [self.client.read_until(asks("session/request_permission"))[-1] for _ in wishes]
        return {question["params"]["toolCall"]["title"]: question for question in questions}

    def answers(self, question, option):
        assert option in names_in(question["params"])
        self.client.send({"id": question["id"], **selected(option)})

    def until(self, fits):
        return self.client.read_until(fits)

    def until_the_end(self):
        return self.client.read_until(lambda frame: is_answer_to(frame, self.prompt["id"]))

    def call_of(self, question, frames):
        """The call of a question, as a client shows it in the end."""
        id = question["params"]["toolCall"]["toolCallId"]
        return final_call([each for each in updates_in(frames) if each.get("toolCallId") == id])


class TestCancel:
    def test_it_wins_over_an_open_dialog_within_200_ms_and_takes_it_back(self, worker, home, project):
        times = []
        for _ in range(ROUNDS):
            question = worker.is_asked(**COMMIT)

            began = time.perf_counter()
            worker.client.send(cancel(worker.id))
            frames = to_the_end(question, worker)
            times.append(time.perf_counter() - began)

            assert frames[-1]["result"] == {"stopReason": "cancelled"}
            assert is_taken_back(question, frames)
            [failed] = [each for each in updates_in(frames) if each.get("status") == "failed"]
            assert text_of(failed) == "cancelled"
            assert failed["_meta"] == {"coupler": {"outcome": "cancelled"}}

        print(f"median {1e3 * statistics.median(times):.1f} ms, worst {1e3 * max(times):.1f} ms")
        assert statistics.median(times) < 0.2
        assert remembered(home, project) == []

    @pytest.mark.parametrize("option", [ALLOW_ALWAYS, REJECT_ALWAYS])
    def test_an_answer_behind_it_changes_nothing(self, worker, home, project, option):
        question = worker.is_asked(**COMMIT)

        worker.client.send(cancel(worker.id), {"id": question.id, **selected(option)})

        _, end = end_of(worker.client, question.prompt)
        assert end["result"] == {"stopReason": "cancelled"}
        still_serves(worker.client)
        assert remembered(home, project) == []
        assert worker.does(answer=ALLOW_ONCE, **COMMIT).is_permitted

    def test_an_answer_of_another_question_is_not_taken_for_this_one(self, worker):
        question = worker.is_asked(**COMMIT)
        worker.client.send(
            {"id": 4711, **selected(ALLOW_ONCE)}, {"id": str(question.id), **selected(ALLOW_ONCE)}
        )
        still_serves(worker.client)

        assert answer(worker, question, REJECT_ONCE) == "no"


def answer(worker, question, option):
    """Answer a question and wait for the end of its prompt; returns what the agent said."""
    assert option in names_in(question.params)
    worker.client.send({"id": question.id, **selected(option)})
    updates, end = end_of(worker.client, question.prompt)
    assert end["result"] == {"stopReason": "end_turn"}
    [said] = [each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    return said


def to_the_end(question, worker):
    """All frames up to the answer of the prompt."""
    return worker.client.read_until(lambda frame: is_answer_to(frame, question.prompt["id"]))


def is_taken_back(question, frames):
    """Whether the agent said that it no longer wants this answer."""
    return [frame["params"] for frame in frames if frame.get("method") == "$/cancel_request"] == [
        {"requestId": question.id}
    ]


def updates_in(frames):
    return [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]


def test_no_always_is_offered_for_what_holds_a_secret(start, tmp_path):
    source = """
    async def agent(turn):
        command = ["deploy", "--token", "sup3r-s3cret-t0ken"]
        async with turn.tool("Deploy", kind="execute", command=command) as call:
            await turn.say(str(await call.permitted()))
    """
    client = start(source, env={"DEPLOY_TOKEN": "sup3r-s3cret-t0ken"})
    client.initialize()
    request = client.prompt_request(client.new_session(str(tmp_path)), "go")
    client.send(request)
    *_, question = client.read_until(asks("session/request_permission"))

    assert [option["kind"] for option in question["params"]["options"]] == ["allow_once", "reject_once"]
    client.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    client.answer_to(request)
    assert b"sup3r" not in b"".join(client.lines)
