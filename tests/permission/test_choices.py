"""Answers that are remembered, for a session or for a project."""

import asyncio
from pathlib import Path

import pytest

from coupler.permission.action import Action
from coupler.permission.decision import Permissions
from coupler.permission.offers import Choices
from coupler.store.choices import ChoiceRecord
from coupler.store.store import Store
from permission.parts import Bench


@pytest.fixture
def store(tmp_path: Path):
    store = Store.open(str(tmp_path / "data" / "coupler.db"))
    yield store
    store.close()


class Session:
    """A session that answers what it is asked."""

    def __init__(self, bench: Bench, store: Store | None) -> None:
        self.choices = Choices(str(bench.project), store)
        self.permissions = Permissions([], self.choices, str(bench.project))

    def decide(self, action: Action) -> str:
        asyncio.run(self.choices.refresh())
        return self.permissions.judge(action).decision

    def answer(self, action: Action, kind: str) -> None:
        [offer] = [each for each in self.permissions.judge(action).offers if each.kind == kind]
        asyncio.run(self.choices.remember(offer.answer, offer.scopes))


ANSWERS = [("allow_always", "allow"), ("reject_always", "deny")]


@pytest.mark.parametrize(("kind", "decision"), ANSWERS)
def test_an_answer_for_the_project_reaches_its_other_sessions(bench, store, kind, decision):
    commit = bench.action("execute", command="git commit -m x")
    first, second = Session(bench, store), Session(bench, store)
    first.answer(commit, kind)

    for session in (first, second, Session(bench, store)):
        assert session.decide(bench.action("execute", command="git commit --amend")) == decision
        assert session.decide(bench.action("execute", command="git push")) == "ask"


@pytest.mark.parametrize(("kind", "decision"), ANSWERS)
def test_an_answer_for_the_session_never_reaches_a_sibling_and_ends_with_it(bench, store, kind, decision):
    edit = bench.action("edit", paths=(f"{bench.project}/src/x",))
    first, sibling = Session(bench, store), Session(bench, store)
    first.answer(edit, kind)
    assert first.decide(bench.action("edit", paths=(f"{bench.project}/src/y",))) == decision
    assert first.decide(bench.action("edit", paths=(f"{bench.project}/docs/y",))) == "ask"
    assert sibling.decide(edit) == "ask"

    first.choices.close()
    assert first.decide(edit) == "ask"
    assert store.blocking.choices() == ()


def test_an_answer_in_one_project_means_nothing_in_another(bench, store, tmp_path):
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path.resolve() / "other")
    Session(bench, store).answer(bench.action("execute", command="git commit"), "allow_always")
    assert Session(other, store).decide(other.action("execute", command="git commit")) == "ask"


def test_an_answer_that_is_withdrawn_counts_no_more(bench, store):
    commit = bench.action("execute", command="git commit")
    session = Session(bench, store)
    session.answer(commit, "allow_always")
    assert session.decide(commit) == "allow"
    assert store.blocking.forget_choices(str(bench.project), "execute", "git commit *") == 1
    assert session.decide(commit) == "ask"


def test_a_new_answer_for_the_same_scope_replaces_the_old_one(bench, store):
    commit = bench.action("execute", command="git commit")
    session = Session(bench, store)
    session.answer(commit, "allow_always")
    store_side = ChoiceRecord(str(bench.project), "deny", "execute", "git commit *")
    asyncio.run(store.remember_choices(store_side))
    assert session.decide(commit) == "deny"


def test_a_project_is_the_same_by_any_path(bench, store, tmp_path):
    (tmp_path / "link").symlink_to(bench.project)
    commit = bench.action("execute", command="git commit")
    Session(Bench(tmp_path / "link"), store).answer(commit, "allow_always")
    assert Session(bench, store).decide(commit) == "allow"


def test_a_project_whose_path_is_no_text_remembers_for_the_session(store, tmp_path):
    choices = Choices(f"{tmp_path}/\udcff", store)
    asyncio.run(choices.refresh())
    assert not choices.can_last


def test_without_a_store_an_answer_is_for_the_session_and_says_so(bench):
    commit = bench.action("execute", command="git commit")
    session = Session(bench, None)
    texts = [offer.text for offer in session.permissions.judge(commit).offers]
    assert texts[1::2] == [f"Always {verb} `git commit *` in this session" for verb in ("allow", "reject")]
    session.answer(commit, "allow_always")
    assert session.decide(commit) == "allow"
    assert Session(bench, None).decide(commit) == "ask"


def test_the_answers_for_a_line_are_those_for_its_parts(bench, store):
    session = Session(bench, store)
    session.answer(bench.action("execute", command="git add x && git commit > src/log"), "allow_always")
    assert session.decide(bench.action("execute", command="git commit")) == "allow"
    assert session.decide(bench.action("execute", command="git add y > src/other")) == "allow"
    assert session.decide(bench.action("execute", command="git add y > docs/other")) == "ask"


def test_a_kept_choice_that_cannot_be_read_allows_nothing(bench, store):
    rows = [ChoiceRecord(str(bench.project), "allow", subject, "") for subject in ("everything", "tool", "")]
    asyncio.run(store.remember_choices(*rows))
    assert Session(bench, store).decide(bench.action("execute", command="ls")) == "ask"


@pytest.mark.parametrize("name", ["[ab]", "a*", "a?b", "(x)", "a b", "ü"])
def test_a_directory_with_an_odd_name_is_remembered_as_itself(bench, store, name):
    (bench.project / name).mkdir()
    session = Session(bench, store)
    session.answer(bench.action("edit", paths=(f"{bench.project}/{name}/x",)), "allow_always")
    assert session.decide(bench.action("edit", paths=(f"{bench.project}/{name}/y",))) == "allow"
    for other in ("a", "b", "aXb", "abc", "x"):
        assert session.decide(bench.action("edit", paths=(f"{bench.project}/{other}/y",))) == "ask"
