"""What a user is offered: four answers, and an "always" that says what it remembers."""

from pathlib import Path

from coupler.permission.action import option_label
from coupler.permission.decision import Verdict
from permission.parts import Bench
from tables import table


def always(verdict: Verdict) -> str | None:
    """What the always is about, if there is one."""
    texts = {offer.kind: offer.text for offer in verdict.offers}
    assert texts["allow_once"] == "Allow once"
    assert texts["reject_once"] == "Reject once"
    if len(texts) == 2:
        return None
    about = texts["allow_always"].removeprefix("Always allow ")
    assert texts["reject_always"] == f"Always reject {about}"
    return about


@table(
    ("command", "scope"),
    [
        ("git commit -m x", "`git commit *` in this project"),
        ("git commit", "`git commit *` in this project"),
        ("npm install", "`npm install *` in this project"),
        ("npm run build --watch", "`npm run build *` in this project"),
        ("cargo test -q", "`cargo test *` in this project"),
        ("docker compose up -d", "`docker compose up *` in this project"),
        ("docker ps", "`docker ps *` in this project"),
        ("uv sync", "`uv sync *` in this project"),
        ("pip install x", "`pip install *` in this project"),
        ("make test", "`make test *` in this project"),
        ("kubectl get pods", "`kubectl get *` in this project"),
        ('git commit -m "$X"', "`git commit *` in this project"),
        # Without a well-known second word, or with one that leads anywhere, exactly this.
        ("git", "`git` in this project"),
        ("git -C x commit", "`git -C x commit` in this project"),
        ("git config user.name x", "`git config user.name x` in this project"),
        ("docker run x", "`docker run x` in this project"),
        ("uv run python x.py", "`uv run python x.py` in this project"),
        ("make CC=evil", "`make CC=evil` in this project"),
        ("make test CC=evil", None),
        ("npm run", "`npm run` in this project"),
        ("docker container", "`docker container *` in this project"),
        ("docker container exec x rm", "`docker container exec x rm` in this project"),
        ("npm run x", "`npm run x *` in this project"),
        ("npm exe rm", "`npm exe rm` in this project"),
        ("docker compose exec x rm", "`docker compose exec x rm` in this project"),
        ("python", None),
        ("ls -la src", "`ls -la src` in this project"),
        ("rm -rf x", "`rm -rf x` in this project"),
        ("echo 'two words'", "`echo 'two words'` in this project"),
        ("echo '*'", "`echo '[*]'` in this project"),
        ("timeout 5 make test", "`make test *` in this project"),
        # What cannot be said exactly is not remembered.
        ("ls $X", None),
        ("ls *", None),
        ("$X", None),
        ("git $X", None),
        ("git commit -m $X", None),
        ("make test --eval=x", None),
        ("ls | xargs rm", None),
        ("PATH=. ls", None),
        ("f() { ls; }", None),
        ("ls > $X", None),
        ("echo '(x)'", None),
        ("echo 'a\nb'", None),
        ("echo " + "x" * 200, None),
        # Every part has its own scope.
        ("git add x && git commit", "`git add *` and `git commit *` in this project"),
        ("ls; ls", "`ls` in this project"),
        ("ls > src/x", "`ls` in this project and edits below `src/` in this session"),
        ("make a && make b && make c && make d", None),
        ("make a && $X", None),
    ],
)
def test_a_command_is_remembered_as_narrowly_as_the_offer_says(
    bench: Bench, command: str, scope: str | None
) -> None:
    assert always(bench.run(command)) == scope


@table(
    ("kind", "path", "scope"),
    [
        ("edit", "src/main.py", "edits below `src/` in this session"),
        ("edit", "src/deep/x.py", "edits below `src/deep/` in this session"),
        ("edit", "x.py", "edits directly in the project's directory in this session"),
        ("delete", "src/main.py", "deletions below `src/` in this session"),
        ("search", "src", "searches below `src/` in this session"),
        ("read", "/etc/ssl/x", "reads directly in `/etc/ssl` in this session"),
        ("read", "/x", None),
        ("edit", "/etc/hosts", None),
        ("read", ".env", None),
        ("edit", "src/.git/config", None),
        ("edit", "src/.env", None),
        ("edit", "src/a\nb", None),
        ("edit", "src/` in this session, edits below `docs/x", None),
    ],
)
def test_a_path_is_remembered_by_its_directory(bench: Bench, kind: str, path: str, scope: str | None) -> None:
    assert always(bench.touch(kind, path)) == scope


def test_a_directory_in_another_root_is_named_whole(bench: Bench, tmp_path: Path) -> None:
    library = tmp_path.resolve() / "library"
    library.mkdir()
    action = bench.action("edit", paths=(f"{library}/x",), roots=(str(bench.project), str(library)))
    assert always(bench.judge(action)) == f"edits directly in `{library}` in this session"


@table(
    ("url", "scope"),
    [
        ("https://x.org/a/b?c", "fetches from `https://x.org` in this project"),
        ("http://x.org:8080/", "fetches from `http://x.org:8080` in this project"),
        ("http://x.org:443/", "fetches from `http://x.org:443` in this project"),
        ("https://me@x.org/", None),
        ("https://bücher.de/", None),
    ],
)
def test_an_address_is_remembered_by_its_host(bench: Bench, url: str, scope: str | None) -> None:
    assert always(bench.fetch(url)) == scope


def test_a_tool_is_remembered_for_this_session_only(bench: Bench) -> None:
    assert always(bench.judge(bench.action(name="price"))) == "the tool `price` in this session"
    served = bench.action(name="price", server="shop")
    assert always(bench.judge(served)) == "the tool `price` of the MCP server `shop` in this session"


@table("name", [None, "a*", "a(b)", "a:b", "a\nb", "x" * 200])
def test_a_tool_without_a_clear_name_is_not_remembered(bench: Bench, name: str | None) -> None:
    assert always(bench.judge(bench.action(name=name))) is None


def test_only_what_was_asked_about_is_remembered(bench: Bench) -> None:
    verdict = bench.run("ls && git add x", "execute(ls)")
    assert always(verdict) == "`git add *` in this project"


def test_what_may_be_denied_is_not_remembered(bench: Bench) -> None:
    verdict = bench.run("git push $X", deny=["execute(git push --force *)"])
    assert (verdict.decision, always(verdict)) == ("ask", None)


def test_what_is_decided_offers_nothing(bench: Bench) -> None:
    assert bench.run("ls", "execute(ls)").offers == ()
    assert bench.run("ls", deny=["execute(ls)"]).offers == ()


def test_an_offer_tells_what_it_answers(bench: Bench) -> None:
    answers = {offer.kind: offer.answer for offer in bench.run("ls").offers}
    assert answers == {
        "allow_once": "allow",
        "allow_always": "allow",
        "reject_once": "deny",
        "reject_always": "deny",
    }


@table(
    "kind, name, label",
    [
        ("allow_once", "Yes", "Allow once: Yes"),
        ("allow_once", "allow", "Allow once"),
        ("allow_once", "", "Allow once"),
        ("allow_always", "Reject", "Allow always: Reject"),
        ("allow_always", "Allow once", "Allow always: Allow once"),
        ("allow_always", "Always Allow", "Always Allow"),
        ("allow_always", "Always allow `pytest *`", "Always allow `pytest *`"),
        ("reject_once", "Reject once: No", "Reject once: No"),
        ("reject_always", "Never", "Reject always: Never"),
        ("odd", "Maybe", "odd: Maybe"),
    ],
)
def test_an_agents_option_says_what_it_does_first_and_only_once(kind: str, name: str, label: str) -> None:
    assert option_label(kind, name) == label
