"""The files of a turn: by which way they come, what is out of reach, and that nothing is lost in them."""

import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.steps import OBEDIENT, asks, cancel, end_of, error_of, final_call, says, text_of, tool_updates
from coupler.runtime import files
from coupler.runtime.files import FileChangedError, OutsideRootsError, UnsuitableFileError, find_inside
from raw_client import is_answer_to, texts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and modes as POSIX has them")

READS = {"fs": {"readTextFile": True}}
WRITES = {"fs": {"writeTextFile": True}}
BOTH = {"fs": {"readTextFile": True, "writeTextFile": True}}


def found(path, root, *more):
    return find_inside(path, str(root), (str(root), *map(str, more)))


def write(place, content, expected, may_go_on=lambda: True):
    files.write(place, content, expected, may_go_on)


def names_in(directory):
    return sorted(entry.name for entry in Path(directory).iterdir())


def said(client, session, expression):
    """What the expression gives, in a turn of its own."""
    updates, answer = client.prompt(session, f"await turn.say(repr({expression}))")
    assert answer.get("result") == {"stopReason": "end_turn"}, answer
    return eval(texts(updates))


def refusal(client, session, statement):
    """What the agent's code raises for this, as the client gets to see it."""
    updates, answer = client.prompt(session, statement)
    assert error_of(answer) == (-32603, "agent_failed"), answer
    assert [call["status"] for call in tool_updates(updates)[-1:]] in ([], ["failed"])
    return answer["error"]["message"]


class Buffers:
    """An editor with its own idea of what is in the files."""

    def __init__(self, client, session, **texts_by_path):
        self.client, self.session = client, session
        self.texts = texts_by_path
        self.asked = []
        self.errors = {}
        self.choices = []
        self.updates = []

    def prompt(self, text):
        request = self.client.prompt_request(self.session, text)
        self.client.send(request)
        self.updates = []
        answer = self.serve_until(lambda frame: is_answer_to(frame, request["id"]))
        return self.updates, answer

    def serve_until(self, matches):
        while True:
            frame = self.client.read()
            if frame.get("method") == "session/update":
                self.updates.append(frame["params"]["update"])
            elif "method" in frame:
                self.asked.append((frame["method"], frame["params"]))
                self.client.send({"id": frame["id"], **self._reply(frame["method"], frame["params"])})
            if matches(frame):
                return frame

    def _reply(self, method, params):
        if method in self.errors:
            return {"error": self.errors[method]}
        if method == "session/request_permission":
            return {"result": {"outcome": {"outcome": "selected", "optionId": self.choices.pop(0)}}}
        if method == "fs/write_text_file":
            self.texts[params["path"]] = params["content"]
            return {"result": {}}
        if params["path"] not in self.texts:
            return {"error": {"code": -32002, "message": "Resource not found"}}
        lines = self.texts[params["path"]].splitlines(keepends=True)
        first = params.get("line", 1) - 1
        return {"result": {"content": "".join(lines[first : first + params.get("limit", len(lines))])}}


@pytest.fixture
def local(share, tmp_path):
    """A client without files, and a session in a directory of its own."""
    client, _ = share(OBEDIENT)
    return client, client.new_session(str(tmp_path))


@pytest.fixture
def edited(share, tmp_path):
    """An editor that offers files, with a session in a directory of its own."""

    def start(offered):
        client, _ = share(OBEDIENT, **offered)
        return Buffers(client, client.new_session(str(tmp_path)))

    return start


class TestBoundary:
    @pytest.mark.parametrize("path", ["a.txt", "./a.txt", "b/../a.txt", "b//c/../../a.txt", "a.txt/"])
    def test_a_path_below_the_directory_is_inside(self, tmp_path, path):
        place = found(path, tmp_path)
        assert (place.real, place.shown) == (str(tmp_path / "a.txt"), str(tmp_path / "a.txt"))

    def test_what_does_not_exist_may_be_inside(self, tmp_path):
        assert found("new/directory/file", tmp_path).below == ("new", "directory", "file")

    def test_the_other_directories_of_the_session_count_too(self, tmp_path):
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        path = tmp_path / "two" / "x"
        assert found(str(path), tmp_path / "one", tmp_path / "two").real == str(path)

    @pytest.mark.parametrize(
        "path",
        [
            "..",
            "../x",
            "../project2/x",
            "../project-old",
            "b/../../x",
            "/etc/passwd",
            "/",
            "~/../../x/../../..",
        ],
    )
    def test_a_path_elsewhere_is_outside(self, tmp_path, path):
        root = tmp_path / "project"
        root.mkdir()
        (tmp_path / "project2").mkdir()

        with pytest.raises(OutsideRootsError, match="outside of the session's directories: use a path below"):
            found(path, root)

    @pytest.mark.parametrize("path", ["link", "link/x", "link/new/x", "there/link/x"])
    @pytest.mark.parametrize("exists", [True, False])
    def test_a_link_that_leads_out_is_outside_also_if_its_target_is_missing(self, tmp_path, path, exists):
        root, target = tmp_path / "project", tmp_path / "elsewhere"
        (root / "there").mkdir(parents=True)
        if exists:
            target.mkdir()
        (root / "link").symlink_to(target)
        (root / "there" / "link").symlink_to(root / "link")

        with pytest.raises(OutsideRootsError):
            found(path, root)

    def test_a_link_that_stays_inside_is_followed(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        assert found("link/x", tmp_path).real == str(tmp_path / "real" / "x")

    def test_a_link_to_the_directory_itself_is_as_good_and_is_shown_as_the_client_wrote_it(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")

        place = found("x", tmp_path / "link")

        assert place.real == str(tmp_path / "real" / "x")
        assert place.shown == str(tmp_path / "link" / "x")

    def test_back_out_of_a_link_can_mean_two_files_and_so_is_none(self, tmp_path):
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "link").symlink_to("a/b")

        with pytest.raises(OutsideRootsError, match="two files"):
            found("link/../x", tmp_path)

    def test_links_in_a_circle_are_outside(self, tmp_path):
        (tmp_path / "one").symlink_to("two")
        (tmp_path / "two").symlink_to("one")

        with pytest.raises(OutsideRootsError, match="circle"):
            found("one/x", tmp_path)

    def test_nul_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="NUL"):
            found("a\0b", tmp_path)

    @pytest.mark.parametrize("path", [b"x", 5, None])
    def test_what_is_no_text_is_no_path(self, tmp_path, path):
        with pytest.raises(TypeError):
            found(path, tmp_path)


class TestDisk:
    def test_it_reads_and_replaces(self, tmp_path):
        (tmp_path / "a").write_bytes(b"old")
        place = found("a", tmp_path)

        write(place, b"new", files.read(place))

        assert (tmp_path / "a").read_bytes() == b"new"
        assert names_in(tmp_path) == ["a"]

    def test_it_creates_with_the_directories_on_the_way(self, tmp_path):
        write(found("x/y/z", tmp_path), b"new", None)

        assert (tmp_path / "x" / "y" / "z").read_bytes() == b"new"
        assert names_in(tmp_path / "x" / "y") == ["z"]

    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o666])
    def test_the_mode_is_kept(self, tmp_path, mode):
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(mode)

        write(found("a", tmp_path), b"new", b"old")

        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode

    def test_a_new_file_has_the_mode_that_the_user_wants(self, tmp_path):
        before = os.umask(0o027)
        try:
            write(found("a", tmp_path), b"new", None)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is protected against root")
    def test_a_protected_file_is_not_replaced(self, tmp_path):
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(0o444)

        with pytest.raises(PermissionError):
            write(found("a", tmp_path), b"new", b"old")

        assert (tmp_path / "a").read_bytes() == b"old"

    @pytest.mark.parametrize(("there", "expected"), [(b"other", b"old"), (b"other", None), (None, b"old")])
    def test_what_is_not_as_expected_is_left_alone(self, tmp_path, there, expected):
        if there is not None:
            (tmp_path / "a").write_bytes(there)

        with pytest.raises(FileChangedError, match="read it again"):
            write(found("a", tmp_path), b"new", expected)

        assert names_in(tmp_path) == ([] if there is None else ["a"])
        assert there is None or (tmp_path / "a").read_bytes() == there

    @pytest.mark.parametrize("expected", [b"old", None])
    def test_what_changes_at_the_last_moment_is_left_alone(self, tmp_path, expected):
        file = tmp_path / "a"
        if expected is not None:
            file.write_bytes(expected)

        with pytest.raises(FileChangedError):
            write(found("a", tmp_path), b"new", expected, lambda: file.write_bytes(b"theirs") > 0)

        assert file.read_bytes() == b"theirs"
        assert names_in(tmp_path) == ["a"]

    def test_of_writers_at_once_none_loses_what_another_wrote(self, tmp_path):
        (tmp_path / "a").write_bytes(b"0")
        place = found("a", tmp_path)
        written = []

        def count_up():
            for _ in range(100):
                with contextlib.suppress(FileChangedError):
                    before = files.read(place)
                    write(place, b"%d" % (int(before) + 1), before)
                    written.append(before)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            run_at_once(count_up, count_up, count_up, count_up)
        finally:
            sys.setswitchinterval(before)

        assert int((tmp_path / "a").read_bytes()) == len(written) == len(set(written))
        assert names_in(tmp_path) == ["a"]

    def test_a_change_that_the_clock_does_not_show_is_seen(self, tmp_path):
        file = tmp_path / "a"
        file.write_bytes(b"old")
        times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)

        def change_in_the_same_tick():
            file.write_bytes(b"NEW")
            os.utime(file, ns=times)
            return True

        with pytest.raises(FileChangedError):
            write(found("a", tmp_path), b"new", b"old", change_in_the_same_tick)

        assert file.read_bytes() == b"NEW"

    @pytest.mark.parametrize("there", [b"old", None])
    def test_on_a_full_disk_everything_stays_as_it_was(self, tmp_path, monkeypatch, there):
        if there is not None:
            (tmp_path / "a").write_bytes(there)

        def fail(file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left on device") as caught:
            write(found("a", tmp_path), b"new", there)

        assert caught.value.filename == str(tmp_path / "a")
        assert names_in(tmp_path) == ([] if there is None else ["a"])
        assert there is None or (tmp_path / "a").read_bytes() == there

    def test_a_write_that_stops_halfway_leaves_the_old_file(self, tmp_path):
        (tmp_path / "a").write_bytes(b"old")
        program = (
            "import resource, signal, sys\n"
            "from coupler.runtime import files as disk\n"
            "from coupler.runtime.files import find_inside\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
            "place = find_inside('a', sys.argv[1], sys.argv[1:])\n"
            "disk.write(place, b'x' * 100_000, b'old', lambda: True)\n"
        )

        ended = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, check=False)

        assert b"File too large" in ended.stderr
        assert names_in(tmp_path) == ["a"]
        assert (tmp_path / "a").read_bytes() == b"old"

    def test_what_takes_the_place_of_a_file_is_on_the_disk_before(self, tmp_path, monkeypatch):
        (tmp_path / "a").write_bytes(b"old")
        order = []
        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, noting(order, name, getattr(os, name)))

        write(found("a", tmp_path), b"new", b"old")

        assert order == ["fsync", "replace"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_owner_and_group_are_kept(self, tmp_path):
        (tmp_path / "a").write_bytes(b"old")
        os.chown(tmp_path / "a", 1234, 2345)

        write(found("a", tmp_path), b"new", b"old")

        status = (tmp_path / "a").stat()
        assert (status.st_uid, status.st_gid) == (1234, 2345)

    @pytest.mark.parametrize(("keeps_group", "mode"), [(True, 0o664), (False, 0o644)])
    def test_who_may_not_give_it_away_gives_no_other_group_more(
        self, tmp_path, monkeypatch, keeps_group, mode
    ):
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(0o664)

        def fchown(file, owner, group):
            if owner != -1 or not keeps_group:
                raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "fchown", fchown)
        write(found("a", tmp_path), b"new", b"old")

        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode

    def test_who_was_cancelled_meanwhile_changes_nothing(self, tmp_path):
        (tmp_path / "a").write_bytes(b"old")

        with pytest.raises(InterruptedError):
            write(found("a", tmp_path), b"new", b"old", lambda: False)

        assert (tmp_path / "a").read_bytes() == b"old"
        assert names_in(tmp_path) == ["a"]

    @pytest.mark.parametrize("path", ["a/secret", "a/b/secret"])
    def test_a_link_put_in_the_place_of_a_directory_is_not_followed(self, tmp_path, path):
        root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
        (root / "a" / "b").mkdir(parents=True)
        (elsewhere / "b").mkdir(parents=True)
        for directory in (elsewhere, elsewhere / "b"):
            (directory / "secret").write_bytes(b"secret")
        place = found(path, root)
        (root / "a").rename(root / "gone")
        (root / "a").symlink_to(elsewhere)

        with pytest.raises(OutsideRootsError, match="became a link"):
            files.read(place)
        with pytest.raises(OutsideRootsError, match="became a link"):
            write(place, b"mine", b"secret")

        assert (elsewhere / "secret").read_bytes() == (elsewhere / "b" / "secret").read_bytes() == b"secret"

    def test_a_link_put_in_the_place_of_the_file_is_not_followed(self, tmp_path):
        root, secret = tmp_path / "project", tmp_path / "secret"
        root.mkdir()
        secret.write_bytes(b"secret")
        place = found("a", root)
        (root / "a").symlink_to(secret)

        with pytest.raises(OutsideRootsError, match="became a link"):
            files.read(place)
        for expected in (b"secret", None):
            with pytest.raises(OutsideRootsError, match="became a link"):
                write(place, b"mine", expected)

        assert secret.read_bytes() == b"secret"
        assert (root / "a").is_symlink()

    def test_nobody_who_swaps_links_all_the_time_gets_a_file_from_elsewhere(self, tmp_path):
        root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
        for directory, content in ((root / "real", b"mine"), (elsewhere, b"secret")):
            directory.mkdir(parents=True)
            (directory / "x").write_bytes(content)
        over = threading.Event()

        def swap():
            while not over.is_set():
                (root / "real").rename(root / "away")
                (root / "real").symlink_to(elsewhere)
                (root / "real").unlink()
                (root / "away").rename(root / "real")

        thread = threading.Thread(target=swap)
        thread.start()
        try:
            seen = [read_or_refuse("real/x", root) for _ in range(2000)]
        finally:
            over.set()
            thread.join()

        assert set(seen) <= {b"mine", None}
        assert (elsewhere / "x").read_bytes() == b"secret"

    def test_a_pipe_is_refused_and_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UnsuitableFileError, match="pipe"):
            files.read(found("pipe", tmp_path))
        with pytest.raises(UnsuitableFileError, match="pipe"):
            write(found("pipe", tmp_path), b"", None)

    def test_devices_and_sockets_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            with pytest.raises(UnsuitableFileError, match="socket"):
                files.read(found("socket", tmp_path))
        with pytest.raises(UnsuitableFileError, match="device"):
            files.read(found("/dev/zero", "/"))

    def test_directories_are_refused(self, tmp_path):
        (tmp_path / "a").mkdir()
        for path in ("a", "."):
            with pytest.raises(IsADirectoryError, match="name a file in it"):
                files.read(found(path, tmp_path))
            with pytest.raises(IsADirectoryError):
                write(found(path, tmp_path), b"", None)

    def test_a_file_is_no_directory(self, tmp_path):
        (tmp_path / "a").write_bytes(b"")
        with pytest.raises(NotADirectoryError):
            files.read(found("a/b", tmp_path))
        with pytest.raises(NotADirectoryError):
            write(found("a/b", tmp_path), b"", None)
        assert not files.exists(found("a/b", tmp_path))

    def test_large_files_are_refused(self, tmp_path):
        with (tmp_path / "large").open("wb") as file:
            file.truncate(files.LARGEST_FILE + 1)
        with (tmp_path / "largest").open("wb") as file:
            file.truncate(files.LARGEST_FILE)

        assert len(files.read(found("largest", tmp_path))) == files.LARGEST_FILE
        with pytest.raises(UnsuitableFileError, match="more than 10 MB"):
            files.read(found("large", tmp_path))

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"there is no file '.*/a/b'"):
            files.read(found("a/b", tmp_path))

    @pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
    def test_no_descriptor_is_left_open(self, tmp_path):
        (tmp_path / "d").mkdir()
        os.mkfifo(tmp_path / "d" / "pipe")
        before = names_in("/proc/self/fd")

        for path in ("d/new", "d/pipe", "d", "none/x", "d/pipe/x"):
            read_or_refuse(path, tmp_path)
            for expected in (None, b"x"):
                write_or_refuse(path, tmp_path, expected)

        assert names_in("/proc/self/fd") == before


def read_or_refuse(path, root):
    try:
        return files.read(found(path, root))
    except (OSError, UnsuitableFileError):
        return None


def run_at_once(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def noting(order, name, function):
    def noted(*arguments, **keywords):
        order.append(name)
        return function(*arguments, **keywords)

    return noted


def write_or_refuse(path, root, expected):
    try:
        write(found(path, root), b"x", expected)
    except (OSError, UnsuitableFileError, FileChangedError):
        return


class TestReadingTheDisk:
    @pytest.mark.parametrize(
        "content", [b"", b"a\nb", b"a\r\nb\rc\n", "\ufeffmärk\u2028\x0cx\n".encode(), b"a\0b"]
    )
    def test_the_text_is_exactly_what_is_there(self, local, tmp_path, content):
        client, session = local
        (tmp_path / "a.txt").write_bytes(content)

        assert said(client, session, "await turn.files.read('a.txt')").encode() == content
        assert said(client, session, "await turn.files.read_bytes('a.txt')") == content

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ("line=2", "two\r\nthr\x0cee\nfour"),
            ("line=2, limit=2", "two\r\nthr\x0cee\n"),
            ("limit=1", "one\n"),
            ("line=4, limit=9", "four"),
            ("line=9", ""),
            ("limit=0", ""),
        ],
    )
    def test_some_lines_of_it(self, local, tmp_path, lines, expected):
        client, session = local
        (tmp_path / "a").write_bytes(b"one\ntwo\r\nthr\x0cee\nfour")
        assert said(client, session, f"await turn.files.read('a', {lines})") == expected

    @pytest.mark.parametrize("lines", ["line=0", "line=-1", "limit=-1", "line=2**32", "line=1.5"])
    def test_lines_that_cannot_be_are_refused(self, local, lines):
        client, session = local
        assert "Error" in refusal(client, session, f"await turn.files.read('a', {lines})")

    def test_it_opens_a_call_if_there_is_none(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("text")

        updates, _ = client.prompt(session, "await turn.files.read('a', line=3)")

        call = final_call(updates)
        assert (call["title"], call["kind"], call["status"]) == ("Read a", "read", "completed")
        assert call["locations"] == [{"path": str(tmp_path / "a"), "line": 3}]

    def test_it_adds_its_place_to_an_open_call_once(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("text")

        updates, _ = client.prompt(
            session,
            "async with turn.tool('Look', kind='search'):\n"
            "    await turn.files.read('a')\n"
            "    await turn.files.read(turn.session.cwd + '/a')\n",
        )

        call = final_call(updates)
        assert (call["title"], call["locations"]) == ("Look", [{"path": str(tmp_path / "a")}])

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("read('none')", "FileNotFoundError: there is no file"),
            ("read('../x')", "OutsideRootsError: '../x' is outside of the session's directories"),
            ("read('a\\0b')", "holds a NUL character"),
            ("read('.')", "is a directory: name a file in it"),
            ("read('latin')", "is not UTF-8 text (byte 0xe9 at position 1): read it with read_bytes"),
            ("read_bytes('/etc/passwd')", "OutsideRootsError"),
            ("exists('../x')", "OutsideRootsError"),
            ("write('../x', 'text')", "OutsideRootsError"),
            ("write('a', 'half \\ud83d')", "has half a character at position 5 (U+D83D)"),
            ("write('a', 'x' * 10_000_001)", "more than 10 MB"),
            ("write('a', b'bytes')", "TypeError: a file's new text is text, not bytes"),
            ("write('.', 'text')", "is a directory"),
            ("write('latin', 'text', overwrite=True)", "is not UTF-8 text"),
        ],
    )
    def test_what_cannot_be_done_says_why(self, local, tmp_path, statement, message):
        client, session = local
        (tmp_path / "latin").write_bytes(b"h\xe9llo")

        assert message in refusal(client, session, f"await turn.files.{statement}")

        assert names_in(tmp_path) == ["latin"]
        assert (tmp_path / "latin").read_bytes() == b"h\xe9llo"

    def test_it_tells_whether_something_exists(self, local, tmp_path):
        client, session = local
        (tmp_path / "file").write_text("")
        (tmp_path / "directory").mkdir()

        paths = ["file", "directory", "none", "file/none"]
        expression = f"[await turn.files.exists(path) for path in {paths}]"

        assert said(client, session, expression) == [True, True, False, False]


class TestWritingTheDisk:
    def test_a_new_file_is_created_and_shown(self, local, tmp_path):
        client, session = local

        updates, _ = client.prompt(session, "await turn.files.write('src/new.py', 'a\\r\\n')")

        assert (tmp_path / "src" / "new.py").read_bytes() == b"a\r\n"
        call = final_call(updates)
        assert (call["title"], call["kind"], call["status"]) == ("Create new.py", "edit", "completed")
        path = str(tmp_path / "src" / "new.py")
        assert call["locations"] == [{"path": path}]
        (change,) = call["content"]
        assert (change["type"], change["path"], change["newText"]) == ("diff", path, "a\r\n")
        assert change.get("oldText") is None

    def test_a_change_is_shown_against_what_was_really_there(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")

        updates, _ = client.prompt(
            session, "await turn.files.read('a')\nawait turn.files.write('a', 'new')\n"
        )

        change = {"type": "diff", "path": str(tmp_path / "a"), "oldText": "old", "newText": "new"}
        assert tool_updates(updates)[-1]["status"] == "completed"
        assert [update["content"] for update in updates if update.get("content")] == [[change]]
        assert "Edit a" in [update.get("title") for update in updates]

    def test_a_file_is_deleted_unless_it_has_changed_since_it_was_read(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")
        (tmp_path / "b").write_text("old")

        updates, _ = client.prompt(session, "await turn.files.read('a')\nawait turn.files.remove('a')\n")
        client.prompt(session, "await turn.files.read('b')\n")
        (tmp_path / "b").write_text("mine")
        _, refused = client.prompt(session, "await turn.files.remove('b')\n")

        assert "Delete a" in [update.get("title") for update in updates]
        assert not (tmp_path / "a").exists()
        assert "has changed since it was read" in str(refused["error"])
        assert (tmp_path / "b").read_text() == "mine"

    def test_it_shows_in_the_open_call_and_what_was_shown_to_ask_is_not_shown_twice(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")

        updates, _ = client.prompt(
            session,
            "async with turn.tool('Fix', kind='edit', path='a') as call:\n"
            "    old = await turn.files.read('a')\n"
            "    await call.diff('a', old, 'new')\n"
            "    await turn.files.write('a', 'new')\n"
            "    await turn.files.write('b', 'more')\n",
        )

        call = final_call(updates)
        assert call["title"] == "Fix"
        assert [(Path(change["path"]).name, change["newText"]) for change in call["content"]] == [
            ("a", "new"),
            ("b", "more"),
        ]
        assert [location["path"] for location in call["locations"]] == [
            str(tmp_path / "a"),
            str(tmp_path / "b"),
        ]

    def test_a_link_stays_a_link_and_what_it_means_is_written(self, local, tmp_path):
        client, session = local
        (tmp_path / "real").write_text("old")
        (tmp_path / "link").symlink_to("real")
        (tmp_path / "to nothing").symlink_to("new")

        client.prompt(session, "await turn.files.read('link')\nawait turn.files.write('link', 'one')")
        client.prompt(session, "await turn.files.write('to nothing', 'two')")

        assert ((tmp_path / "real").read_text(), (tmp_path / "new").read_text()) == ("one", "two")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "to nothing").is_symlink()

    def test_a_long_change_is_told_and_not_shown(self, local, tmp_path):
        client, session = local

        updates, _ = client.prompt(session, "await turn.files.write('a', 'x' * 2_000_000)")

        assert (tmp_path / "a").stat().st_size == 2_000_000
        assert "has 2000000 characters now; the change is too long to show" in text_of(final_call(updates))

    def test_a_file_that_was_not_read_is_not_overwritten(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("a\nb\n")

        assert "exists and was not read" in refusal(client, session, "await turn.files.write('a', 'new')")
        statement = "await turn.files.read('a', limit=1)\nawait turn.files.write('a', 'new')"
        assert "exists and was not read" in refusal(client, session, statement)

        assert (tmp_path / "a").read_text() == "a\nb\n"

    def test_unless_it_is_meant_to_be(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")

        client.prompt(session, "await turn.files.write('a', 'new', overwrite=True)")

        assert (tmp_path / "a").read_text() == "new"

    @pytest.mark.parametrize("options", ["", ", overwrite=True"])
    @pytest.mark.parametrize("change", ["other", "old\r\n", None])
    def test_a_file_that_changed_since_it_was_read_is_left_alone(self, local, tmp_path, options, change):
        client, session = local
        file = tmp_path / "a"
        file.write_text("old\n")
        client.prompt(session, "await turn.files.read('a')")
        if change is None:
            file.unlink()
        else:
            file.write_bytes(change.encode())

        message = refusal(client, session, f"await turn.files.write('a', 'new'{options})")

        assert "FileChangedError" in message
        assert "has changed since it was read: read it again" in message
        assert (file.read_bytes().decode() if file.exists() else None) == change

    def test_reading_it_again_makes_it_writable(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")
        client.prompt(session, "await turn.files.read('a')")
        (tmp_path / "a").write_text("other")

        client.prompt(session, "await turn.files.read('a')\nawait turn.files.write('a', 'new')")

        assert (tmp_path / "a").read_text() == "new"

    def test_seeing_that_it_is_gone_makes_it_writable_too(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")
        client.prompt(session, "await turn.files.read('a')")
        (tmp_path / "a").unlink()

        refusal(client, session, "await turn.files.read('a')")
        client.prompt(session, "await turn.files.write('a', 'new')")

        assert (tmp_path / "a").read_text() == "new"

    def test_what_was_written_is_known(self, local, tmp_path):
        client, session = local

        client.prompt(session, "await turn.files.write('a', 'one')\nawait turn.files.write('a', 'two')")

        assert (tmp_path / "a").read_text() == "two"

    def test_what_another_session_read_is_not_known_to_this_one(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("old")
        client.prompt(session, "await turn.files.read('a')")

        other = client.new_session(str(tmp_path))

        assert "was not read" in refusal(client, other, "await turn.files.write('a', 'new')")

    def test_of_writers_at_once_each_writes_over_what_it_saw(self, local, tmp_path):
        client, session = local
        (tmp_path / "a").write_text("0")

        updates, _ = client.prompt(
            session,
            "import asyncio\n"
            "async with turn.tool('All') as call:\n"
            "    await turn.files.read('a')\n"
            "    await asyncio.gather(*(turn.files.write('a', str(i)) for i in range(1, 9)))\n",
        )

        changes = [(change["oldText"], change["newText"]) for change in final_call(updates)["content"]]
        assert len(changes) == 8
        assert changes[0][0] == "0"
        assert [old for old, _ in changes[1:]] == [new for _, new in changes[:-1]]
        assert (tmp_path / "a").read_text() == changes[-1][1]

    def test_nothing_is_written_after_a_cancel_that_the_code_ignores(self, converse, tmp_path):
        client, _ = converse("""
            import asyncio
            async def agent(turn):
                try:
                    await turn.say("started")
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    await turn.files.write("a", "late")
        """)
        session = client.new_session(str(tmp_path))
        request = client.prompt_request(session, "")
        client.send(request)
        client.read()

        client.send(cancel(session))

        assert end_of(client, request)[1]["result"] == {"stopReason": "cancelled"}
        assert not (tmp_path / "a").exists()

    def test_a_write_that_its_caller_has_given_up_does_not_happen(self, converse, tmp_path):
        client, _ = converse("""
            import asyncio, threading
            from coupler.runtime import files as disk
            reached, given_up, over = threading.Event(), threading.Event(), threading.Event()
            write = disk.write
            def write_late(place, content, expected, may_go_on):
                def ask_late():
                    reached.set()
                    return given_up.wait(10) and may_go_on()
                try:
                    write(place, content, expected, ask_late)
                finally:
                    over.set()
            disk.write = write_late
            async def agent(turn):
                writing = asyncio.ensure_future(turn.files.write("a", "late"))
                await asyncio.to_thread(reached.wait, 10)
                writing.cancel()
                await asyncio.wait({writing})
                given_up.set()
                await asyncio.to_thread(over.wait, 10)
                await turn.say("given up" if writing.cancelled() else "done")
        """)
        directory = tmp_path / "project"
        directory.mkdir()

        updates, _ = client.prompt(client.new_session(str(directory)))

        assert texts(updates) == "given up"
        assert names_in(directory) == []

    def test_a_plain_function_has_the_same_words(self, converse, tmp_path):
        client, _ = converse("""
            def agent(turn):
                with turn.tool("Work"):
                    turn.files.write("a", "one\\ntwo\\n")
                    read = turn.files.read("a", line=2), turn.files.read_bytes("a"), turn.files.exists("b")
                turn.say(repr(read))
        """)
        session = client.new_session(str(tmp_path))

        updates, _ = client.prompt(session)

        assert eval(texts(updates)) == ("two\n", b"one\ntwo\n", False)
        assert final_call(tool_updates(updates))["title"] == "Work"


class TestThroughTheEditor:
    def test_the_unsaved_text_is_read(self, edited, tmp_path):
        editor = edited(BOTH)
        path = str(tmp_path / "a")
        Path(path).write_text("saved")
        editor.texts[path] = "one\ntwo\nthree\n"

        updates, _ = editor.prompt(
            "await turn.say(await turn.files.read('a'))\n"
            "await turn.say(await turn.files.read('a', line=2, limit=1))\n"
            "await turn.say((await turn.files.read_bytes('a')).decode())\n"
        )

        assert texts(updates) == "one\ntwo\nthree\ntwo\nsaved"
        assert editor.asked == [
            ("fs/read_text_file", {"sessionId": editor.session, "path": path}),
            ("fs/read_text_file", {"sessionId": editor.session, "path": path, "line": 2, "limit": 1}),
        ]

    def test_it_is_written_by_the_editor_and_the_disk_is_not_touched(self, edited, tmp_path):
        editor = edited(BOTH)
        path = str(tmp_path / "a")
        Path(path).write_text("saved")
        editor.texts[path] = "unsaved"

        updates, answer = editor.prompt("await turn.files.read('a')\nawait turn.files.write('a', 'new')")

        assert answer["result"] == {"stopReason": "end_turn"}
        assert (editor.texts[path], Path(path).read_text()) == ("new", "saved")
        change = {"type": "diff", "path": path, "oldText": "unsaved", "newText": "new"}
        assert [update["content"] for update in updates if update.get("content")] == [[change]]

    def test_a_new_file_is_created_by_the_editor(self, edited, tmp_path):
        editor = edited(BOTH)

        updates, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert answer["result"] == {"stopReason": "end_turn"}
        assert editor.texts == {str(tmp_path / "a"): "new"}
        assert final_call(updates)["title"] == "Create a"
        assert names_in(tmp_path) == []

    def test_what_the_user_typed_since_is_not_overwritten(self, edited, tmp_path):
        editor = edited(BOTH)
        path = str(tmp_path / "a")
        editor.texts[path] = "old"
        editor.prompt("await turn.files.read('a')")
        editor.texts[path] = "typed"

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert "FileChangedError" in answer["error"]["message"]
        assert editor.texts[path] == "typed"

    @pytest.mark.parametrize("offered", [BOTH, READS])
    def test_what_another_program_saved_since_is_not_overwritten(self, edited, tmp_path, offered):
        editor = edited(offered)
        path = tmp_path / "a"
        path.write_text("old")
        editor.texts[str(path)] = "old"
        editor.prompt("await turn.files.read('a')")
        path.write_text("theirs")

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert "has changed since it was read" in answer["error"]["message"]
        assert (editor.texts[str(path)], path.read_text()) == ("old", "theirs")

    def test_what_another_program_saved_where_there_was_nothing_is_not_overwritten(self, edited, tmp_path):
        editor = edited(BOTH)
        editor.texts[str(tmp_path / "a")] = "typed"
        editor.prompt("await turn.files.read('a')")
        (tmp_path / "a").write_text("theirs")

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert "has changed since it was read" in answer["error"]["message"]
        assert editor.texts[str(tmp_path / "a")] == "typed"

    @pytest.mark.parametrize("saves", [True, False])
    def test_what_the_user_saves_or_does_not_save_is_no_change(self, edited, tmp_path, saves):
        editor = edited(BOTH)
        path = tmp_path / "a"
        path.write_bytes(b"old\r\n")
        editor.texts[str(path)] = "typed\n"
        editor.prompt("await turn.files.read('a')")

        for text in ("one\n", "two\n"):
            if saves:
                path.write_bytes(editor.texts[str(path)].replace("\n", "\r\n").encode())
            _, answer = editor.prompt(f"await turn.files.write('a', {text!r})")
            assert answer.get("result") == {"stopReason": "end_turn"}, answer

        assert editor.texts[str(path)] == "two\n"

    def test_of_two_sessions_at_once_the_second_sees_what_the_first_wrote(self, edited, tmp_path):
        first = edited(BOTH)
        client, path = first.client, str(tmp_path / "a")
        second = Buffers(client, client.new_session(str(tmp_path)))
        first.texts[path] = "old"
        second.texts = first.texts
        for editor in (first, second):
            editor.prompt("await turn.files.read('a')")
        one = client.prompt_request(first.session, "await turn.files.write('a', 'first')")
        client.send(one)
        *_, question = client.read_until(asks("fs/read_text_file"))
        client.send({"id": question["id"], "result": {"content": "old"}})
        *_, write = client.read_until(asks("fs/write_text_file"))

        two = client.prompt_request(
            second.session,
            "import asyncio\n"
            "writing = asyncio.ensure_future(turn.files.write('a', 'second'))\n"
            "await asyncio.wait({writing}, timeout=0.3)\n"
            "await turn.say('waiting')\n"
            "await writing\n",
        )
        client.send(two)
        second.serve_until(says("waiting"))
        client.send({"id": write["id"], **first._reply("fs/write_text_file", write["params"])})
        answers = {}
        while len(answers) < 2:
            frame = second.serve_until(lambda frame: "method" not in frame)
            answers[frame["id"]] = frame

        assert answers[one["id"]]["result"] == {"stopReason": "end_turn"}
        assert "has changed since it was read" in answers[two["id"]]["error"]["message"]
        assert first.texts[path] == "first"

    def test_what_the_user_has_never_saved_is_not_overwritten(self, edited, tmp_path):
        editor = edited(BOTH)
        editor.texts[str(tmp_path / "a")] = "typed"

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert "exists and was not read" in answer["error"]["message"]
        assert editor.texts == {str(tmp_path / "a"): "typed"}

    def test_the_editors_own_line_ends_are_no_change(self, edited, tmp_path):
        editor = edited(BOTH)
        path = str(tmp_path / "a")
        editor.prompt("await turn.files.write('a', '\\ufeffa\\r\\nb\\r\\n')")
        editor.texts[path] = "a\nb\n"

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert answer.get("result") == {"stopReason": "end_turn"}, answer

    @pytest.mark.parametrize(
        "error",
        [
            {"code": -32002, "message": "Resource not found"},
            {"code": -32603, "message": "Internal error", "data": {"details": "ENOENT: no such file"}},
            {"code": -32603, "message": "File does not exist"},
            {"code": -32603, "message": "Internal error"},
            {"code": -32603, "message": "Internal error", "data": None},
        ],
    )
    def test_a_missing_file_is_a_missing_file_however_the_editor_says_it(self, edited, error):
        editor = edited(BOTH)
        editor.errors["fs/read_text_file"] = error

        _, answer = editor.prompt("await turn.files.read('a')")
        assert "FileNotFoundError: there is no file" in answer["error"]["message"]
        updates, _ = editor.prompt("await turn.say(repr(await turn.files.exists('a')))")
        assert texts(updates) == "False"
        editor.prompt("await turn.files.write('a', 'new')")
        assert [*editor.texts.values()] == ["new"]

    def test_an_empty_text_is_a_missing_file_if_the_disk_has_none(self, edited, tmp_path):
        editor = edited(BOTH)
        editor.texts |= {str(tmp_path / "a"): "", str(tmp_path / "b"): ""}
        (tmp_path / "b").touch()

        for lines in ("", ", line=1, limit=5"):
            _, answer = editor.prompt(f"await turn.files.read('a'{lines})")
            assert "FileNotFoundError: there is no file" in answer["error"]["message"]
            updates, _ = editor.prompt(f"await turn.say(repr(await turn.files.read('b'{lines})))")
            assert texts(updates) == "''"
        editor.prompt("await turn.files.write('a', 'new')")
        assert editor.texts[str(tmp_path / "a")] == "new"

    @pytest.mark.parametrize(
        "error",
        [
            {"code": -32601, "message": "Method not found"},
            {"code": -32603, "message": "Internal error"},
            {"code": -32603, "message": "the user said no"},
            {"code": -32000, "message": "log in"},
        ],
    )
    def test_any_other_refusal_is_the_editors_and_nothing_is_written(self, edited, tmp_path, error):
        editor = edited(BOTH)
        (tmp_path / "a").write_text("old")
        editor.errors["fs/read_text_file"] = error

        for statement in ("read('a')", "write('a', 'new', overwrite=True)"):
            _, answer = editor.prompt(f"await turn.files.{statement}")
            assert "EditorError" in answer["error"]["message"]

        assert (editor.texts, (tmp_path / "a").read_text()) == ({}, "old")

    def test_a_method_that_is_not_found_is_no_file_that_is_not_found(self, edited):
        editor = edited(BOTH)
        editor.errors["fs/read_text_file"] = {"code": -32601, "message": "Method not found"}

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert "EditorError" in answer["error"]["message"]
        assert editor.texts == {}

    def test_a_file_that_the_editor_does_not_find_but_the_disk_has_is_not_overwritten(self, edited, tmp_path):
        editor = edited(BOTH)
        (tmp_path / "a").write_text("old")

        _, answer = editor.prompt("await turn.files.write('a', 'new')")

        assert "EditorError" in answer["error"]["message"]
        assert (editor.texts, (tmp_path / "a").read_text()) == ({}, "old")

    def test_a_write_that_the_editor_refuses_is_neither_shown_nor_known(self, edited, tmp_path):
        editor = edited(BOTH)
        editor.texts[str(tmp_path / "a")] = "old"
        editor.errors["fs/write_text_file"] = {"code": -32603, "message": "read-only"}

        updates, answer = editor.prompt("await turn.files.read('a')\nawait turn.files.write('a', 'new')")
        assert "read-only" in answer["error"]["message"]
        assert "diff" not in str(updates)

        editor.errors.clear()
        _, answer = editor.prompt("await turn.files.write('a', 'newer')")
        assert answer["result"] == {"stopReason": "end_turn"}

    @pytest.mark.parametrize("path", ["../a", "/etc/passwd", "link", "directory", "pipe"])
    def test_the_editor_is_not_asked_for_what_is_out_of_reach(self, edited, tmp_path, path):
        editor = edited(BOTH)
        (tmp_path / "link").symlink_to("/etc/passwd")
        (tmp_path / "directory").mkdir()
        os.mkfifo(tmp_path / "pipe")

        for statement in (f"read({path!r})", f"write({path!r}, 'new', overwrite=True)"):
            _, answer = editor.prompt(f"await turn.files.{statement}")
            assert error_of(answer) == (-32603, "agent_failed")

        assert editor.asked == []

    def test_a_link_inside_is_asked_for_by_the_name_of_what_it_means(self, edited, tmp_path):
        editor = edited(BOTH)
        (tmp_path / "real").write_text("saved")
        (tmp_path / "link").symlink_to("real")
        editor.texts[str(tmp_path / "real")] = "unsaved"

        updates, _ = editor.prompt("await turn.say(await turn.files.read('link'))")

        assert texts(updates) == "unsaved"

    def test_after_a_cancel_that_the_code_ignores_the_editor_is_asked_for_nothing(self, edited):
        editor = edited(BOTH)
        request = editor.client.prompt_request(
            editor.session,
            "import asyncio\n"
            "try:\n"
            "    await turn.say('started')\n"
            "    await asyncio.sleep(60)\n"
            "except asyncio.CancelledError:\n"
            "    await turn.files.write('a', 'late')\n",
        )
        editor.client.send(request)
        editor.client.read()

        editor.client.send(cancel(editor.session))

        *frames, answer = editor.client.read_until(lambda frame: is_answer_to(frame, request["id"]))
        assert answer["result"] == {"stopReason": "cancelled"}
        assert [frame for frame in frames if frame["method"].startswith("fs/")] == []

    def test_a_cancel_takes_the_question_back(self, edited):
        editor = edited(BOTH)
        request = editor.client.prompt_request(editor.session, "await turn.files.read('a')")
        editor.client.send(request)
        *_, question = editor.client.read_until(asks("fs/read_text_file"))

        editor.client.send(cancel(editor.session))

        *frames, answer = editor.client.read_until(lambda frame: is_answer_to(frame, request["id"]))
        assert answer["result"] == {"stopReason": "cancelled"}
        taken_back = [frame["params"] for frame in frames if frame["method"] == "$/cancel_request"]
        assert taken_back == [{"requestId": question["id"]}]


class TestAnEditorThatOffersHalf:
    def test_reading_only_the_disk_is_written(self, edited, tmp_path):
        editor = edited(READS)
        path = str(tmp_path / "a")
        Path(path).write_bytes(b"a\r\nb\r\n")
        editor.texts[path] = "a\nb\n"

        _, answer = editor.prompt("await turn.files.read('a')\nawait turn.files.write('a', 'new')")

        assert answer.get("result") == {"stopReason": "end_turn"}, answer
        assert Path(path).read_text() == "new"
        assert {method for method, _ in editor.asked} == {"fs/read_text_file"}

    @pytest.mark.parametrize(
        ("there", "shown", "text", "written"),
        [
            (b"a\r\nb\r\n", "a\nb\n", "a\nnew\n", b"a\r\nnew\r\n"),
            (b"\xef\xbb\xbfa\n", "a\n", "new\n", b"\xef\xbb\xbfnew\n"),
            (b"\xef\xbb\xbfa\r\n", "a\n", "new\n", b"\xef\xbb\xbfnew\r\n"),
            (b"a\r\nb\n", "a\nb\n", "new\n", b"new\n"),
            (b"a\r\n", "a\r\n", "new\n", b"new\n"),
            (b"\xef\xbb\xbfa", "\ufeffa", "new", b"new"),
        ],
    )
    def test_reading_only_what_the_editor_left_out_of_its_text_stays_in_the_file(
        self, edited, tmp_path, there, shown, text, written
    ):
        editor = edited(READS)
        path = tmp_path / "a"
        path.write_bytes(there)
        editor.texts[str(path)] = shown

        editor.prompt(f"await turn.files.read('a')\nawait turn.files.write('a', {text!r})")

        assert path.read_bytes() == written

    def test_reading_only_what_is_not_saved_is_not_lost(self, edited, tmp_path):
        editor = edited(READS)
        path = str(tmp_path / "a")
        Path(path).write_text("saved")
        editor.texts[path] = "unsaved"

        _, answer = editor.prompt("await turn.files.read('a')\nawait turn.files.write('a', 'new')")

        assert "has changes in the editor that are not saved" in answer["error"]["message"]
        assert Path(path).read_text() == "saved"

    def test_reading_only_a_new_file_is_created_on_the_disk(self, edited, tmp_path):
        editor = edited(READS)

        editor.prompt("await turn.files.write('a', 'new')")

        assert (tmp_path / "a").read_text() == "new"

    def test_writing_only_the_disk_is_read(self, edited, tmp_path):
        editor = edited(WRITES)
        path = str(tmp_path / "a")
        Path(path).write_text("saved")

        updates, _ = editor.prompt("await turn.files.read('a')\nawait turn.files.write('a', 'new')")

        assert editor.asked == [
            ("fs/write_text_file", {"sessionId": editor.session, "path": path, "content": "new"})
        ]
        change = {"type": "diff", "path": path, "oldText": "saved", "newText": "new"}
        assert [update["content"] for update in updates if update.get("content")] == [[change]]


# Asks, does not look at the answer, and goes on with the statement.
HEEDLESS = """
async with turn.tool("Heedless", kind="edit", path="a") as call:
    await call.permitted()
    {statement}
"""


class TestAfterANo:
    """In the block of a call that was refused nothing is done any more, however heedless its code is."""

    @pytest.mark.parametrize("offered", [{}, BOTH])
    @pytest.mark.parametrize(
        "statement", ["write('a', 'new', overwrite=True)", "read('a')", "read_bytes('a')", "exists('a')"]
    )
    def test_no_file_is_touched(self, edited, tmp_path, offered, statement):
        editor = edited(offered)
        editor.texts[str(tmp_path / "a")] = "old"
        (tmp_path / "a").write_text("old")
        editor.choices = ["reject_once"]

        updates, answer = editor.prompt(HEEDLESS.format(statement=f"await turn.files.{statement}"))

        assert "NotPermittedError: the tool call 'Heedless' may do nothing more" in answer["error"]["message"]
        assert "(not permitted by the user): leave its block" in answer["error"]["message"]
        assert final_call(tool_updates(updates))["status"] == "failed"
        assert [method for method, _ in editor.asked] == ["session/request_permission"]
        assert (editor.texts[str(tmp_path / "a")], (tmp_path / "a").read_text()) == ("old", "old")

    def test_a_yes_lets_it_be_done_also_after_a_no(self, edited, tmp_path):
        editor = edited({})
        editor.choices = ["reject_once", "allow_once"]

        _, answer = editor.prompt(
            HEEDLESS.format(statement="await call.permitted(); await turn.files.write('a', 'new')")
        )

        assert answer["result"] == {"stopReason": "end_turn"}
        assert (tmp_path / "a").read_text() == "new"

    def test_outside_of_the_block_it_does_not_count(self, edited, tmp_path):
        editor = edited({})
        editor.choices = ["reject_once"]

        _, answer = editor.prompt(HEEDLESS.format(statement="pass") + "await turn.files.write('b', 'new')")

        assert answer["result"] == {"stopReason": "end_turn"}
        assert names_in(tmp_path) == ["b"]

    @pytest.mark.parametrize(
        ("choices", "asks_again", "is_done"),
        [
            (["reject_once"], False, False),
            (["reject_once", "reject_once"], True, False),
            (["reject_once", "allow_once"], True, True),
            (["allow_once", "reject_once"], True, False),
            (["allow_once"], False, True),
        ],
    )
    def test_a_call_in_the_block_counts_if_it_was_asked_for(
        self, edited, tmp_path, choices, asks_again, is_done
    ):
        editor = edited({})
        editor.choices = choices
        inner = "async with turn.tool('Inner', kind='edit', path='b') as inner:\n"
        question = "        await inner.permitted()\n" if asks_again else ""

        _, answer = editor.prompt(
            HEEDLESS.format(statement=f"{inner}{question}        await turn.files.write('b', 'new')")
        )

        assert ("result" in answer) == is_done
        assert names_in(tmp_path) == (["b"] if is_done else [])

    @pytest.mark.parametrize("handler", ["TimeoutError", "BaseException"])
    def test_a_question_without_an_answer_is_a_no(self, edited, tmp_path, handler):
        editor = edited({})
        request = editor.client.prompt_request(
            editor.session,
            "import asyncio\n"
            "async with turn.tool('Hasty', kind='edit', path='a') as call:\n"
            "    try:\n"
            "        async with asyncio.timeout(0.05):\n"
            "            await call.permitted()\n"
            f"    except {handler}:\n"
            "        await turn.files.write('a', 'new')\n",
        )
        editor.client.send(request)

        *_, answer = editor.client.read_until(lambda frame: is_answer_to(frame, request["id"]))

        assert "(not permitted: the question was not answered)" in answer["error"]["message"]
        assert names_in(tmp_path) == []

    def test_code_that_swallows_the_error_does_not_complete_the_call(self, edited, tmp_path):
        editor = edited({})
        editor.choices = ["reject_once"]

        updates, answer = editor.prompt(
            "import coupler, contextlib\n"
            "async with turn.tool('Heedless', kind='edit', path='a') as call:\n"
            "    await call.permitted()\n"
            "    with contextlib.suppress(coupler.NotPermittedError):\n"
            "        await turn.files.write('a', 'new')\n"
        )

        assert answer["result"] == {"stopReason": "end_turn"}
        call = final_call(tool_updates(updates))
        assert (call["status"], text_of(call)) == ("failed", "not permitted by the user")
        assert names_in(tmp_path) == []

    def test_it_counts_in_a_plain_function_too(self, converse, tmp_path):
        client, _ = converse("""
            def agent(turn):
                with turn.tool("Heedless", kind="edit", path="a") as call:
                    call.permitted()
                    turn.files.write("a", "new")
        """)
        directory = tmp_path / "project"
        directory.mkdir()
        editor = Buffers(client, client.new_session(str(directory)))
        editor.choices = ["reject_once"]

        _, answer = editor.prompt("")

        assert "NotPermittedError" in answer["error"]["message"]
        assert names_in(directory) == []
