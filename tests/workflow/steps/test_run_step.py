"""Commands of `run` steps: real shells and real processes, unruly ones above all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from coupler.runtime import commands
from coupler.workflow.engine.attempt import Attempt, StepWork
from coupler.workflow.errors import StepError
from coupler.workflow.expressions.expression import FlowExpressions
from coupler.workflow.journal.run_events import Happening, Place, Result, Wrote
from coupler.workflow.language.model import Run, SourcePosition, Workflow
from coupler.workflow.steps import shell_command as command
from coupler.workflow.steps.shell_command import LONGEST_REASON, perform_command
from runtime.test_child import gone_within, is_running
from tables import table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")

PATIENCE = 30.0


class Witness:
    """Remembers what was told; stands for a run's journal."""

    def __init__(self) -> None:
        self.told: list[Happening] = []
        self._changed = asyncio.Event()

    def note(self, happening: Happening) -> None:
        self.told.append(happening)
        self._changed.set()

    def written(self, stream: str) -> str:
        return "".join(each.text for each in self.told if isinstance(each, Wrote) and each.stream == stream)

    async def line(self) -> str:
        """The first line of stdout, once it is there."""
        while "\n" not in self.written("stdout"):
            self._changed.clear()
            await self._changed.wait()
        return self.written("stdout").partition("\n")[0]


class Bench:
    """Runs steps in a directory, and sees that they leave nothing behind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.position = SourcePosition(str(directory / "flow.yaml"), 1, 1)
        self.witness = Witness()

    def attempt(self, names: Mapping[str, object], env: Mapping[str, str]) -> Attempt:
        workflow = Workflow(name="flow", file=self.position.file, digest="", steps=())
        nobody = cast(Any, None)
        return Attempt(
            place=Place("it"),
            workflow=workflow,
            names=names,
            expressions=FlowExpressions(),
            cwd=str(self.directory),
            env=env,
            memory=cast(Any, self.witness),
            front=nobody,
            asking=asyncio.Lock(),
            agents=nobody,
            work=StepWork(),
        )

    def run(self, script: str | None = None, env: Mapping[str, str] | None = None, **step: Any) -> Result:
        async def story() -> Result:
            async with asyncio.timeout(PATIENCE):
                return await self.perform(script, env, **step)

        return asyncio.run(story())

    async def perform(
        self,
        script: str | None = None,
        env: Mapping[str, str] | None = None,
        names: Mapping[str, object] | None = None,
        **step: Any,
    ) -> Result:
        run = Run(id="it", position=self.position, script=script, **step)
        return await perform_command(run, self.attempt(names or {}, env or {}))

    @contextlib.asynccontextmanager
    async def running(self, script: str) -> AsyncIterator[tuple[asyncio.Task[Result], str]]:
        """A step, and the first line that it has written; cancelled afterwards."""
        async with asyncio.timeout(PATIENCE):
            task = asyncio.ensure_future(self.perform(script))
            yield task, await self.witness.line()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scripts))
    directory = tmp_path / "project"
    directory.mkdir()
    bench = Bench(directory)
    before, others = open_descriptors(), psutil.Process().children()
    yield bench
    assert list(scripts.iterdir()) == []
    assert [child for child in psutil.Process().children() if child not in others] == []
    assert open_descriptors() <= before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


def error_of(work: Callable[[], object]) -> StepError:
    with pytest.raises(StepError) as caught:
        work()
    return caught.value


@table(
    ("shell", "script", "stdout", "stderr"),
    [
        ("sh", "echo out; echo err >&2", "out\n", "err\n"),
        ("bash", "a=(x y); echo ${a[1]}", "y\n", ""),
        ("sh", r"printf 'a\000b\377c'", "a\0b\udcffc", ""),
        ("sh", "cat", "", ""),
        ("sh", "pwd; echo $PWD", "{directory}\n{directory}\n", ""),
        ("sh", "echo $GREETING; echo ${PATH:+inherited}", "hello\ninherited\n", ""),
        ("sh", "", "", ""),
    ],
)
def test_stdout_and_stderr_are_what_was_written_byte_for_byte(
    bench: Bench, shell: str, script: str, stdout: str, stderr: str
) -> None:
    result = bench.run(script, shell=shell, env={"GREETING": "hello"})

    directory = str(bench.directory)
    assert result == Result(
        status="success", stdout=stdout.format(directory=directory), stderr=stderr, exit_code=0
    )


def test_what_passes_through_another_process_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "DRAIN_SECONDS", PATIENCE)

    result = bench.run("exec 2> >(sleep 0.05; cat >&2); echo late >&2", shell="bash")

    assert result.stderr == "late\n"


def test_a_value_of_the_workflow_is_one_word(bench: Bench) -> None:
    names = {"inputs": {"file": "a b; echo $(pwned)"}}

    result = bench.run("printf '<%s>' {{ inputs.file }}", names=names)

    assert result.stdout == "<a b; echo $(pwned)>"


def test_a_step_reads_the_stdin_that_it_was_given(bench: Bench) -> None:
    names = {"inputs": {"text": "x" * 300_000 + "\udcff"}}

    result = bench.run("wc -c; wc -c < /dev/null", stdin="{{ inputs.text }}", names=names)

    assert (result.stdout or "").split() == ["300001", "0"]


def test_stdin_that_is_no_text_is_an_error_of_its_template(bench: Bench) -> None:
    error = error_of(
        lambda: bench.run("cat", stdin="{{ inputs.text }}", names={"inputs": {"text": "\ud800"}})
    )

    assert (error.kind, error.result) == ("template", None)


def test_a_script_in_a_file_of_its_own_is_found_beside_the_workflow(bench: Bench) -> None:
    (bench.directory / "tools").mkdir()
    (bench.directory / "tools" / "greet.sh").write_text("echo hello {{ inputs.name }}")

    result = bench.run(file="tools/greet.sh", names={"inputs": {"name": "you & me"}})

    assert result.stdout == "hello you & me\n"


def test_only_we_can_read_the_script_and_it_is_on_no_command_line(bench: Bench) -> None:
    result = bench.run('ls -l "$0"; ps -o args= -p $$ || tr "\\0" " " < /proc/$$/cmdline; : top-secret')

    mode, _, others = (result.stdout or "").partition(" ")
    assert mode.startswith("-rw-------")
    assert "coupler-it-" in others
    assert "top-secret" not in others


def test_a_long_line_passes_whole_and_is_shown_while_it_comes(bench: Bench) -> None:
    size = 10 * 1024 * 1024

    result = bench.run(f"head -c {size} /dev/zero | tr '\\0' x; echo; echo é")

    assert result.stdout == "x" * size + "\né\n"
    assert bench.witness.written("stdout") == result.stdout
    assert len(bench.witness.told) > 10


def test_of_an_endless_output_the_beginning_and_the_end_are_kept_and_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_HEAD", 1000)
    monkeypatch.setattr(command, "MOST_TAIL", 100)

    result = bench.run("echo begins; yes é | head -c 300000; echo ends")

    stdout = result.stdout or ""
    assert stdout.startswith("begins\né\n") and stdout.endswith("é\nends\n")
    assert "bytes left out …]\n" in stdout
    assert len(stdout.encode()) < 1200
    assert bench.witness.written("stdout") == stdout


def test_a_character_is_never_cut_while_it_is_shown_and_no_text_is_replaced_there(bench: Bench) -> None:
    result = bench.run(r"printf '\303'; sleep 0.1; printf '\251\377'")

    assert result.stdout == "é\udcff"
    texts = [each.text for each in bench.witness.told if isinstance(each, Wrote)]
    assert texts == ["é�"]


@table(
    ("script", "code", "message"),
    [
        ("echo out; echo first >&2; echo no luck >&2; exit 3", 3, "exit code 3: no luck"),
        ("echo out; kill -KILL $$", 137, "ended by SIGKILL"),
        ("echo out; no-such-program", 127, "not found"),
        ("echo out\nif", 2, "exit code 2"),
    ],
)
def test_a_failed_command_says_why_and_keeps_what_it_wrote(
    bench: Bench, script: str, code: int, message: str
) -> None:
    error = error_of(lambda: bench.run(script))

    assert (error.kind, error.exit_code) == ("exit", code)
    assert message in str(error)
    assert error.result is not None
    assert (error.result.status, error.result.exit_code, error.result.stdout) == ("failed", code, "out\n")


def test_an_exit_code_that_is_expected_is_a_success(bench: Bench) -> None:
    result = bench.run("exit 1", ok_codes=(0, 1))

    assert (result.status, result.exit_code) == ("success", 1)


@table(
    ("step", "kind", "message"),
    [
        (
            {"script": "true", "shell": "bash", "env": {"PATH": "/nowhere"}},
            "not_found",
            "'bash' was not found",
        ),
        ({"file": "missing.sh"}, "not_found", "missing.sh"),
        ({"file": "."}, "not_found", "is a directory"),
        ({"script": "true", "env": {"A": "\0"}}, "template", "environment variable A"),
        ({"script": "true", "env": {"A": "\ud800"}}, "template", "environment variable"),
        ({"script": "true", "env": {"A": "x" * 10_000_000}}, "exit", "could not be started"),
    ],
)
def test_what_cannot_be_started_says_what_to_do(
    bench: Bench, step: dict[str, Any], kind: str, message: str
) -> None:
    error = error_of(lambda: bench.run(**step))

    assert error.kind == kind
    assert message in str(error)


def test_a_directory_that_is_gone_is_an_error(bench: Bench) -> None:
    bench.directory.rmdir()

    error = error_of(lambda: bench.run("true"))

    assert error.kind == "not_found"
    assert "does not exist" in str(error)


def test_a_temporary_directory_that_cannot_be_used_is_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(bench.directory / "missing"))
        error = error_of(lambda: bench.run("true"))

    assert (error.kind, error.exit_code) == ("exit", 126)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@table(
    ("wanted", "script", "output"),
    [
        ("json", """echo ' {"a": [1, null, "é"]} '""", {"a": [1, None, "é"]}),
        ("json", "echo null", None),
        ("lines", r"printf 'a\r\nb \n\nc'", ["a", "b ", "", "c"]),
        ("lines", "true", []),
        (SCHEMA, """echo '{"n": 1}'""", {"n": 1}),
        ("shape.json", """echo '{"n": 1}'""", {"n": 1}),
    ],
)
def test_stdout_is_read_as_what_the_step_says(bench: Bench, wanted: Any, script: str, output: Any) -> None:
    (bench.directory / "shape.json").write_text('{"type": "object", "required": ["n"]}')

    assert bench.run(script, output=wanted).output == output


@table(
    ("wanted", "script", "kind", "message"),
    [
        ("json", r"""printf '{"a": 1,\n "é" 2}'""", "invalid_output", "expected ':' in line 2, column 6"),
        ("json", r"""printf '["a",\n'""", "invalid_output", "ends too early in line 2, column 1"),
        ("json", r"""printf '["a\377"]'""", "invalid_output", "not UTF-8 in line 1, column 4"),
        ("json", "echo NaN", "invalid_output", "in line 1, column 1"),
        ("json", "true", "invalid_output", "empty"),
        ("json", "head -c 200000 /dev/zero | tr '\\0' '['", "invalid_output", "too deeply"),
        (SCHEMA, """echo '{"n": "x"}'""", "invalid_output", "at `$.n`"),
        ({"type": "nothing"}, "echo 1", "invalid_output", "no JSON Schema"),
        ("missing.json", "echo 1", "not_found", "missing.json"),
        ("broken.json", "echo 1", "invalid_output", "The schema 'broken.json'"),
        ("list.json", "echo 1", "invalid_output", "that is an object"),
    ],
)
def test_stdout_that_does_not_fit_is_an_error_that_says_where(
    bench: Bench, wanted: Any, script: str, kind: str, message: str
) -> None:
    (bench.directory / "broken.json").write_text("{")
    (bench.directory / "list.json").write_text("[]")

    error = error_of(lambda: bench.run(script, output=wanted))

    assert error.kind == kind
    assert message in str(error)
    assert error.result is not None and error.result.status == "failed"


@pytest.mark.parametrize("wanted", ["json", "lines"])
def test_what_was_not_kept_whole_is_not_read(
    bench: Bench, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_HEAD", 3)
    monkeypatch.setattr(command, "MOST_TAIL", 3)

    error = error_of(lambda: bench.run("echo 1234567", output=wanted))

    assert error.kind == "invalid_output"


@pytest.mark.parametrize("redirected", ["", ">/dev/null 2>&1"])
def test_what_it_leaves_running_neither_holds_it_up_nor_outlives_it(bench: Bench, redirected: str) -> None:
    start = time.monotonic()

    result = bench.run(f"sleep 60 {redirected} & echo $!")

    assert time.monotonic() - start < 15
    assert gone_within(5, int(result.stdout or ""))


def test_a_cancelled_command_may_say_its_last_words(bench: Bench) -> None:
    async def story() -> None:
        async with bench.running("trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.02; done"):
            pass

    asyncio.run(story())

    assert bench.witness.written("stdout") == "ready\nbye\n"


def test_a_cancelled_command_that_does_not_listen_is_killed_with_all_that_it_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE", 0.2)
    pids: list[int] = []

    async def story() -> None:
        script = "trap '' TERM; sh -c 'sleep 60 & echo $$ $!; wait'"
        async with bench.running(script) as (_, line):
            pids.extend(map(int, line.split()))
            assert all(map(is_running, pids))

    asyncio.run(story())

    assert len(pids) == 2
    assert all(gone_within(5, pid) for pid in pids)


def test_commands_beside_each_other_do_not_mix(bench: Bench) -> None:
    async def story() -> list[Result]:
        steps = (bench.perform(f"sleep 0.0{number}; echo {number}") for number in range(5))
        return await asyncio.gather(*steps)

    assert [result.stdout for result in asyncio.run(story())] == [f"{number}\n" for number in range(5)]


def test_what_is_told_has_the_place_of_its_step(bench: Bench) -> None:
    bench.run("echo hello")

    assert bench.witness.told == [Wrote(place=Place("it"), stream="stdout", text="hello\n")]


def test_a_secret_among_the_last_words_of_a_command_is_hidden_before_they_are_cut(bench: Bench) -> None:
    step = Run(
        id="it",
        position=bench.position,
        script=f"printf %s {'x' * (LONGEST_REASON - 5)}hunter2hunter2 >&2; exit 1",
    )

    async def perform() -> Result:
        attempt = dataclasses.replace(
            bench.attempt({}, {}), mask=lambda text: text.replace("hunter2hunter2", "[secret]")
        )
        return await perform_command(step, attempt)

    with pytest.raises(StepError) as failed:
        asyncio.run(perform())

    assert str(failed.value).endswith("x[secr")
