"""Kills Coupler in the middle of turns and runs, again and again, and checks what is found afterwards.

`KilledSessions` has two sessions with an agent whose every turn can be told from its prompt. `KilledRuns`
runs a workflow whose every step writes a line.
"""

from __future__ import annotations

import ast
import contextlib
import random
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked
from coupler.store.runs import RunRecord
from coupler.store.store import Store
from coupler.workflow.journal.run_events import Happening, RunFinished, StepFinished, happening_in
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import recorded_inputs
from raw_client import COUPLER, PATIENCE, Frame, RawClient, is_answer_to

Told = list[tuple[str, ...]]

WITNESS = """
import asyncio
from coupler import Agent

class Witness(Agent):
    async def prompt(self, turn):
        number, pause, pieces = turn.text.split()
        turn.session.state = [*(turn.session.state or ()), int(number)]
        await turn.say(f"begin {number};")
        async with turn.tool(f"work {number}") as call:
            for piece in range(int(pieces)):
                await call.output(f" {number}.{piece}")
                await asyncio.sleep(float(pause))
        for piece in range(int(pieces)):
            await turn.say(f" {number}:{piece}")
            await asyncio.sleep(float(pause))
        await turn.say(f" end {number}")

    async def opened(self, session):
        session.set_title(f"state {session.state or []}")
"""

MOMENTS = [
    "at any moment",
    "while text streams",
    "during a tool call",
    "right after an answer",
    "among quick turns",
]


class KilledSessions:
    """Two sessions of a served agent, in processes that are killed one after the other."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        moment: str,
        chance: random.Random,
        *,
        is_relayed: bool = False,
    ) -> None:
        self._command = command
        self._is_relayed = is_relayed
        self._cwd = cwd
        self._moment = moment
        self._chance = chance
        self._stories: list[Story] = []

    @property
    def prompts(self) -> int:
        """How many were sent."""
        return sum(len(story.numbers) for story in self._stories)

    def kill_one(self) -> None:
        """Start a process, find all that was answered in it, and kill it in the middle of turns."""
        with self._opened() as client:
            self._kill(client)
            assert b"Traceback" not in client.stderr

    def end(self) -> None:
        """Find all that was answered, and go on."""
        with self._opened() as client:
            for story in self._stories:
                _, answer = client.prompt(story.session, "999 0 1")
                assert answer["result"]["stopReason"] == "end_turn", answer

    def _opened(self) -> RawClient:
        client = RawClient(*self._command)
        try:
            client.initialize()
            if not self._stories:
                self._stories = [self._story(client) for _ in range(2)]
            else:
                for story in self._stories:
                    story.check(*self._load(client, story.session))
        except BaseException:
            client.__exit__()
            raise
        return client

    def _story(self, client: RawClient) -> Story:
        return Story(client.new_session(str(self._cwd)), is_relayed=self._is_relayed)

    def _load(self, client: RawClient, session: str) -> tuple[list[Frame], Frame]:
        """Return what is replayed, and the answer; checking it against the schema would take long."""
        params = {"sessionId": session, "cwd": str(self._cwd), "mcpServers": []}
        request = client.request("session/load", params)
        client.send(request)
        updates = []
        while not is_answer_to(frame := _next(client), request["id"]):
            if frame["params"]["sessionId"] == session:
                updates.append(frame["params"]["update"])
        return updates, frame

    def _kill(self, client: RawClient) -> None:
        """Prompt both sessions again and again, and kill the process."""
        chance, moment = self._chance, self._moment
        pause, pieces = (0.003, 3) if chance.random() < 0.7 else (0.01, 20)
        countdown = chance.randint(1, 4 if moment == MOMENTS[3] else 8)
        if moment == MOMENTS[4]:
            pause, pieces = 0, 0
        timer = threading.Timer(chance.uniform(0, 0.1 if moment == MOMENTS[4] else 0.25), client.process.kill)
        if moment in (MOMENTS[0], MOMENTS[4]):
            timer.start()
        asked: dict[Any, Story] = {}

        def ask(story: Story) -> None:
            request = client.prompt_request(story.session, story.ask(pause, pieces))
            asked[request["id"]] = story
            with contextlib.suppress(BrokenPipeError):
                client.send(request)

        client._held.clear()
        for story in self._stories:
            ask(story)
        while (frame := client._frames.get(timeout=PATIENCE)) is not None:
            answered = next((story for id, story in asked.items() if is_answer_to(frame, id)), None)
            if answered is not None:
                assert frame["result"]["stopReason"] == "end_turn", frame
                answered.was_answered()
            if is_it(frame, moment):
                countdown -= 1
                if countdown <= 0:
                    client.process.kill()
            if answered is not None and client.process.returncode is None and countdown > 0:
                ask(answered)
        timer.cancel()
        client.process.wait()


class Story:
    """What is known of a session: what was seen of it at the last load, and what was asked since.

    The state is that of the agent; one behind a relay may have ended a turn of which the killed relay has
    only a part.
    """

    def __init__(self, session: str, *, is_relayed: bool) -> None:
        self.session = session
        self._is_relayed = is_relayed
        self.numbers: list[int] = []
        self._past: Told = []
        self._state: list[int] = []
        self._since: list[tuple[str, bool]] = []

    def ask(self, pause: float, pieces: int) -> str:
        """The text of the next prompt."""
        self.numbers.append(len(self.numbers) + 1)
        self._since.append((f"{self.numbers[-1]} {pause} {pieces}", False))
        return self._since[-1][0]

    def was_answered(self) -> None:
        text, _ = self._since.pop()
        self._since.append((text, True))

    def check(self, updates: list[Frame], answer: Frame) -> None:
        """What is loaded now is the past as it was, what was answered since, and perhaps a beginning."""
        assert "result" in answer, answer
        seen = told(updates)
        assert seen[: len(self._past)] == self._past, "what was loaded before is another thing now"
        rest = seen[len(self._past) :]
        committed = [*self._state]
        for text, is_answered in self._since:
            if is_answered:
                assert rest[:4] == whole(text), (rest[:4], text)
                rest = rest[4:]
                committed.append(number_of(text))
        unanswered = [text for text, is_answered in self._since if not is_answered]
        assert len(unanswered) <= 1
        state = state_in(updates)
        if rest:
            assert is_beginning(rest, whole(unanswered[0])), (rest, unanswered)
        if state != committed:
            # Its end was stored, its answer was not read yet.
            assert state == [*committed, number_of(unanswered[0])], (state, committed, unanswered)
            assert self._is_relayed or rest == whole(unanswered[0]), (rest, unanswered)
        self._past, self._state, self._since = seen, state, []


def is_it(frame: Frame, moment: str) -> bool:
    kind: str = frame.get("params", {}).get("update", {}).get("sessionUpdate", "")
    match moment:
        case "while text streams":
            return kind == "agent_message_chunk"
        case "during a tool call":
            return kind.startswith("tool_call")
        case "right after an answer":
            return "result" in frame
    return False


def told(updates: list[Frame]) -> Told:
    """Who said what and which calls were made, in order; a call with its status and what it shows."""
    seen: list[tuple[str, str, str]] = []
    for update in updates:
        match update["sessionUpdate"]:
            case "user_message_chunk":
                seen.append(("user", update["messageId"], update["content"]["text"]))
            case "agent_message_chunk":
                message, text = update["messageId"], update["content"]["text"]
                if seen and seen[-1][:2] == ("agent", message):
                    text = seen.pop()[2] + text
                seen.append(("agent", message, text))
            case "tool_call":
                shown = "".join(part["content"]["text"] for part in update.get("content", ()))
                seen.append((update["status"], update["title"], shown))
            case "tool_call_update":
                raise AssertionError(f"a call is told in one piece: {update}")
    ids = [(kind, id) for kind, id, _ in seen]
    assert len(ids) == len({*ids}), "something is there twice"
    return [(kind, text) if kind in ("user", "agent") else (kind, id, text) for kind, id, text in seen]


def state_in(updates: list[Frame]) -> list[int]:
    """The agent's state, which it put into the title when the session was opened."""
    titles = [update["title"] for update in updates if update["sessionUpdate"] == "session_info_update"]
    state: list[int] = ast.literal_eval(titles[-1].removeprefix("state "))
    return state


def whole(text: str) -> Told:
    """All that is told of a turn that has ended."""
    number, _, pieces = text.split()
    return [
        ("user", text),
        ("agent", f"begin {number};"),
        ("completed", f"work {number}", "".join(f" {number}.{piece}" for piece in range(int(pieces)))),
        ("agent", "".join(f" {number}:{piece}" for piece in range(int(pieces))) + f" end {number}"),
    ]


def number_of(text: str) -> int:
    return int(text.split()[0])


def is_beginning(told: Told, whole: Told) -> bool:
    """Whether this is the turn as far as it went; a call that was open is told as interrupted."""
    *before, last = told
    if before != whole[: len(before)] or len(told) > len(whole):
        return False
    expected = whole[len(before)]
    if last[0] == "failed":
        shown = last[2].removesuffix("interrupted")
        return shown != last[2] and expected[1] == last[1] and expected[2].startswith(shown)
    if last[0] == "agent":
        return expected[0] == "agent" and expected[1].startswith(last[1])
    return last == expected


WORKFLOW = """
name: killed
inputs: {log: {type: string, required: true}}
defaults: {env: {LOG: "{{ inputs.log }}"}}
steps:
  - {id: first, run: 'echo $$ first >> "$LOG"; echo one'}
  - id: each
    for_each: [1, 2, 3]
    max_concurrent: 2
    steps:
      - {id: a, run: 'echo $$ each[{{ index }}].a >> "$LOG"; echo {{ item }}'}
      - {id: b, run: 'echo $$ each[{{ index }}].b >> "$LOG"; exit {{ index }}', on_error: continue}
  - id: both
    parallel:
      - {id: p, run: 'echo $$ both.p >> "$LOG"'}
      - {id: q, call: ./called.yaml, inputs: {log: "{{ inputs.log }}"}}
  - {id: zero, set: {n: 0}}
  - id: loop
    while: vars.n < 2
    steps:
      - {id: w, run: 'echo $$ loop[{{ index }}].w >> "$LOG"; echo {{ vars.n }}'}
      - {id: count, set: {n: vars.n + 1}}
  - {id: last, run: 'echo $$ last >> "$LOG"; echo end', retry: {attempts: 2, delay: 0}}
outputs:
  texts: "{{ steps.each.results | map(attribute='a') | map(attribute='stdout') | list }}"
  codes: "{{ steps.each.results | map(attribute='b') | map(attribute='exit_code') | list }}"
  called: "{{ steps.q.output.two }}"
  n: "{{ vars.n }}"
"""

CALLED = """
inputs: {log: string}
defaults: {env: {LOG: "{{ inputs.log }}"}}
steps:
  - {id: one, run: 'echo $$ both.q/one >> "$LOG"; echo 1'}
  - {id: two, run: 'echo $$ both.q/two >> "$LOG"; echo 2'}
outputs: {two: "{{ steps.two.stdout | trim }}"}
"""

WORK = {
    "first", "last", "both.p", "both.q/one", "both.q/two",
    *(f"each[{index}].{id}" for index in range(3) for id in "ab"),
    *(f"loop[{index}].w" for index in range(2)),
}  # fmt: skip
OUTPUTS = {"texts": ["1\n", "2\n", "3\n"], "codes": [0, 1, 2], "called": "2", "n": 2}


class KilledRuns:
    """A project whose workflow is run, killed and resumed until it is done."""

    def __init__(self, project: Path, chance: random.Random) -> None:
        self.project = project
        self.kills = 0
        self._chance = chance
        self._runs = 0
        (project / "killed.yaml").write_text(WORKFLOW)
        (project / "called.yaml").write_text(CALLED)
        self._whole = self._duration_of_a_run()

    def run_one(self) -> None:
        """Run it once, through some kills: nothing that was kept runs again, and nothing is lost."""
        chance, whole = self._chance, self._whole
        self._runs += 1
        log = self.project / f"log-{self._runs}"
        log.touch()
        code = self._coupler("run", "./killed.yaml", f"log={log}", kill_after=chance.uniform(0, whole))
        kept: set[str] = set()
        seen = 0
        record = _run_with(log)
        while code == -signal.SIGKILL and record is not None and record.status != "success":
            self.kills += 1
            done = _paths(log)
            assert not {*done[seen:]} & kept, "something ran again after it was kept"
            kept, seen = _kept(record.id), len(done)
            later = chance.uniform(0, whole) if chance.random() < 0.5 else None
            code = self._coupler("resume", record.id, kill_after=later)
            record = _run_with(log)
        if record is None:
            return  # killed before it was begun: nobody was told of it
        assert record.status == "success", (self.project / "output").read_text()
        assert not {*_paths(log)[seen:]} & kept, "something ran again after it was kept"
        assert {*_paths(log)} == WORK
        assert _outputs(record.id) == OUTPUTS

    def _duration_of_a_run(self) -> float:
        """The shortest of three: the first one loads what it needs."""
        durations: list[float] = []
        for number in range(3):
            began = time.monotonic()
            code = self._coupler("run", "./killed.yaml", f"log={self.project / f'whole-{number}'}")
            assert code == 0, (self.project / "output").read_text()
            durations.append(time.monotonic() - began)
        return min(durations)

    def _coupler(self, *words: str, kill_after: float | None = None) -> int:
        """The exit code; killed after so many seconds unless it has ended by then."""
        with (self.project / "output").open("wb") as output:
            process = forked.Popen(
                [*COUPLER, *words, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.project,
                start_new_session=True,
            )
        if kill_after is None:
            return process.wait()
        killing = threading.Timer(kill_after, process.kill)
        killing.start()
        code = process.wait()
        killing.cancel()
        killing.join()
        return code


def _run_with(log: Path) -> RunRecord | None:
    """The newest run, if it is the one that was given this log."""
    store = Store.open()
    try:
        ids = store.runs.blocking.ids()
        record = store.runs.blocking.find(ids[0]) if ids else None
    finally:
        store.close()
    return record if record is not None and recorded_inputs(record, RunSecrets())["log"] == str(log) else None


def _kept(id: str) -> set[str]:
    """The paths of the steps that the journal says are over."""
    return {
        str(each.place)
        for each in _happenings(id, "step_finished")
        if isinstance(each, StepFinished) and each.result.status != "cancelled"
    }


def _outputs(id: str) -> object:
    [finished] = _happenings(id, "run_finished")
    assert isinstance(finished, RunFinished)
    return finished.outputs


def _happenings(id: str, kind: str) -> list[Happening]:
    store = Store.open()
    try:
        return [happening_in(entry.body) for entry in store.runs.blocking.entries(id, kinds=(kind,))]
    finally:
        store.close()


def _paths(log: Path) -> list[str]:
    return [line.partition(" ")[2] for line in log.read_text().splitlines()]


def _next(client: RawClient) -> Frame:
    frame = client._frames.get(timeout=PATIENCE)
    assert frame is not None, f"the process is gone: {client.stderr.decode()}"
    return frame
