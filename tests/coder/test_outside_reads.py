"""Reading outside of the session's directories: as rules and answers allow it, in every tool that reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from coder.script import use
from coder.served_coder import KEY, Coder, surroundings, write
from forked import run
from raw_client import COUPLER

FILES = {
    "stdio.h": "int puts(const char *);\n",
    "sys/types.h": "typedef int needle_t;\n",
    "sys/.env": "needle=secret",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "library"
    write(directory, FILES)
    write(tmp_path, {"elsewhere/x.txt": "needle elsewhere"})
    (directory / "link.txt").symlink_to(tmp_path / "elsewhere" / "x.txt")
    (directory / "sys" / "away").symlink_to(tmp_path / "elsewhere")
    return directory


def reads(library: Path) -> list[object]:
    """A use of each tool that reads, in the library."""
    return [
        use("read_file", path=f"{library}/stdio.h"),
        use("list_directory", path=f"{library}/sys"),
        use("find_files", glob="*.h", directory=str(library)),
        use("search", pattern="needle", directory=str(library)),
    ]


def test_a_rule_for_reads_allows_every_tool_that_reads_what_it_means_and_nothing_beside_it(
    coder: Coder, project: Path, library: Path
) -> None:
    links = [
        use("read_file", path=f"{library}/link.txt"),
        use("list_directory", path=f"{library}/sys/away"),
        use("read_file", path=f"{library}/sys/.env"),
    ]
    served = coder.served(config=f'[permissions]\nallow = ["read({library}/**)"]\n')
    for mode in ("interactive", "accept-edits", "read-only", "planning", "agentic"):
        coder.model.plays(*reads(library), *links, "Done.")
        editor = served.opened(project)
        editor.set_mode(mode)

        turn = editor.prompt("Look", "reject_once", "reject_once", "reject_once")

        read, listed, found, searched, *refused = coder.model.last.results
        assert read == "     1\tint puts(const char *);", mode
        assert listed == f".env (13 bytes)\naway -> {library.parent}/elsewhere\ntypes.h (22 bytes)"
        assert found == f"{library}/stdio.h\n{library}/sys/types.h"
        assert searched.startswith(f"{library}/sys/types.h:1: typedef int needle_t;\n(1 file was left out")
        assert all("was not done" in each for each in refused), refused
        assert [each["toolCall"]["title"] for each in editor.asked] == [
            f"Read {library.parent}/elsewhere/x.txt",
            f"List {library.parent}/elsewhere",
            f"Read {library}/sys/.env",
        ]
        assert [each["status"] for each in turn.uses] == ["completed"] * 4 + ["failed"] * 3
        editor.close()
    served.leave()


def test_without_a_rule_each_is_asked_about_and_one_answer_is_for_one_use(
    coder: Coder, project: Path, library: Path
) -> None:
    editor = coder(project, [*reads(library), *reads(library), "Done."])

    editor.prompt("Look", *["allow_once"] * 4, *["reject_once"] * 4)

    results = coder.model.last.results
    assert results[0] == "     1\tint puts(const char *);"
    assert results[2] == f"{library}/stdio.h\n{library}/sys/types.h"
    assert results[3].startswith(f"{library}/sys/types.h:1: typedef int needle_t;\n(1 file was left out")
    assert all("was not done" in each for each in results[4:])


def test_always_means_the_files_of_the_directory_and_of_a_directory_all_that_is_below(
    coder: Coder, project: Path, library: Path
) -> None:
    script = [
        use("read_file", path=f"{library}/stdio.h"),
        use("read_file", path=f"{library}/stdio.h", limit=1),
        use("read_file", path=f"{library}/sys/types.h"),
        use("list_directory", path=str(library)),
        use("list_directory", path=f"{library}/sys"),
        use("find_files", glob="*.h", directory=str(library)),
        use("search", pattern="needle", directory=f"{library}/sys"),
        use("write_file", path=f"{library}/new.h", content="x"),
        "Done.",
    ]
    editor = coder(project, script)

    editor.prompt("Look", "allow_always", "allow_once", "allow_always")

    options = [option for each in editor.asked for option in each["options"]]
    always = [option["name"] for option in options if option["kind"] == "allow_always"]
    assert always == [
        f"Always allow reads directly in `{library}` in this session",
        f"Always allow reads directly in `{library}/sys` in this session",
        f"Always allow reads below `{library}/` in this session",
    ]
    *_, searched, written = coder.model.last.results
    assert searched.startswith(f"{library}/sys/types.h:1: typedef int needle_t;\n(1 file was left out")
    assert "outside of the session's directories" in written
    assert not (library / "new.h").exists()


def test_what_a_rule_denies_is_denied_by_every_name_and_what_no_file_can_be_said_of_is_refused(
    coder: Coder, project: Path, library: Path
) -> None:
    (project / "out").symlink_to(library)
    script = [
        use("read_file", path="out/stdio.h"),
        use("read_file", path=f"{library}/stdio.h"),
        use("read_file", path="out/sys/types.h"),
        use("read_file", path="/proc/self/environ"),
        use("list_directory", path="/proc/self"),
        use("search", pattern=KEY[:6], directory="/proc/self"),
        use("read_file", path=f"{library}/missing.txt"),
        "Done.",
    ]
    coder.model.plays(*script)
    allowing = f'[permissions]\nallow = ["read({library}/**)"]\n'
    config = f'{allowing}deny = ["read(out/*.h)", "read({library}/stdio.h)"]\n'
    served = coder.served(config=config)

    served.opened(project).prompt("Look")

    by_link, by_name, allowed, environ, directory, searched, missing = coder.model.last.results
    assert "is denied by" in by_link
    assert "is denied by" in by_name
    assert allowed == "     1\ttypedef int needle_t;"
    for refused in (environ, directory, searched):
        assert "means something else to every program" in refused
    assert missing == f"there is no file '{library}/missing.txt': find_files finds files by name"
    served.leave()


def test_where_nobody_can_be_asked_the_refusal_names_the_rule(
    coder: Coder, project: Path, library: Path, tmp_path: Path
) -> None:
    coder.model.plays(use("read_file", path=f"{library}/stdio.h"), "I cannot read it.")

    done = run(
        [*COUPLER, "exec", "coder", "Look"],
        cwd=project,
        env=surroundings(tmp_path / "home", coder.model.server.url),
        capture_output=True,
        text=True,
    )

    assert f"read({library}/*)" in done.stderr
    assert "was not done" in coder.model.last.result
