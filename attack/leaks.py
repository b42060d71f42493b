"""Secrets that an agent gives away wherever it can, and terminal sequences in what listings show."""

from __future__ import annotations

import itertools
import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from exchange import COUPLER, HERE
from outcome import Effort, Outcome
from raw_client import RawClient, is_answer_to

SCRIPTED = str(HERE / "agents" / "scripted.py")
PATIENCE = 120.0
"""Seconds that a command may take."""
LEAKS_OF_ONE = 150
"""Secrets that one process is told to give away."""
TURNS = 5

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789"

Json = Any


def attack_for_secrets(effort: Effort, outcome: Outcome) -> None:
    """Have an agent say secrets, in every field and split at every place, through relay, exec and record."""
    number = 0
    while left := effort.left(outcome):
        count = min(LEAKS_OF_ONE, left)
        chance = effort.chance(f"secrets/{number}")
        place = effort.directory(f"secrets-{number}")
        secrets = [_secret(chance) for _ in range(8)]
        leaks = [_leak(chance.choice(secrets), chance) for _ in range(count)]
        script = place / "script.json"
        per_turn = -(-len(leaks) // TURNS)
        turns = [[*itertools.chain(*leaks[at : at + per_turn])] for at in range(0, len(leaks), per_turn)]
        script.write_text(json.dumps(turns))
        env = {f"LEAKED_{index}_TOKEN": secret for index, secret in enumerate(secrets)}
        env |= {"COUPLER_HOME": str(place / "home"), "COUPLER_LOG": "debug"}
        ways = (_relayed, _executed, _recorded)
        way = ways[number % len(ways)]
        seen = way(place, script, env, len(turns))
        for where, text in seen:
            for secret in secrets:
                if secret in text:
                    at = text.index(secret)
                    shown = text[max(0, at - 200) : at + 60]
                    outcome.fail(
                        f"{way.__name__.strip('_')}: {where}: {shown!r}",
                        f"seed {effort.seed}, secrets/{number}",
                    )
                    break
        outcome.tries += count
        number += 1


def _secret(chance: random.Random) -> str:
    """A value that no text holds by accident; some need escapes in JSON."""
    plain = "".join(chance.choices(LETTERS, k=chance.choice((12, 20, 40))))
    return chance.choice(
        (plain, plain, plain, f'{plain[:6]}"{plain[6:]}', f"{plain[:6]}\\{plain[6:]}", f"{plain}é😀{plain}")
    )


def _leak(secret: str, chance: random.Random) -> list[Json]:
    """Updates that give a secret away: in a field, or in pieces of a text or of an output."""
    before, after = (
        chance.choice(("", "a ", "é", secret[:3], secret[:-1])),
        chance.choice(("", " z", secret[0])),
    )
    text = f"{before}{secret}{after}"
    match chance.randrange(4):
        case 0:
            return [_in_field(text, chance)]
        case 1:
            kind = chance.choice(("agent_message_chunk", "agent_thought_chunk"))
            return [_chunk(kind, piece) for piece in _pieces(text, chance)]
        case 2:
            id = f"call-{chance.getrandbits(64)}"
            call: Json = {
                "sessionUpdate": "tool_call",
                "toolCallId": id,
                "title": "x",
                "status": "in_progress",
            }
            so_far, updates = "", [call]
            for piece in _pieces(text, chance):
                so_far += piece
                content = [{"type": "content", "content": {"type": "text", "text": so_far}}]
                updates.append({"sessionUpdate": "tool_call_update", "toolCallId": id, "content": content})
            return [*updates, {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed"}]
    return [_chunk("agent_message_chunk", letter) for letter in text]


def _pieces(text: str, chance: random.Random) -> Iterator[str]:
    """The text, cut at one to three places."""
    places = sorted(chance.sample(range(1, len(text)), chance.choice((1, 1, 2, 3))))
    yield from (text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True))


def _chunk(kind: str, text: str) -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def _in_field(text: str, chance: random.Random) -> Json:
    """An update with the text in one of its fields that people see."""
    id = f"call-{chance.getrandbits(64)}"
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": id,
        "title": "x",
        "kind": "other",
        "status": "completed",
    }
    link = {"type": "resource_link", "name": "x", "uri": "https://host/x"}
    entry = {"content": "x", "priority": "low", "status": "pending"}
    return chance.choice(
        (
            {**call, "title": text},
            {**call, "rawInput": {"deep": [{"er": text}]}},
            {**call, "rawOutput": {"text": text}},
            {**call, "rawOutput": text},
            {**call, "content": [{"type": "content", "content": {"type": "text", "text": text}}]},
            {**call, "content": [{"type": "diff", "path": "/x", "oldText": text, "newText": text + text}]},
            {
                **call,
                "content": [{"type": "content", "content": {**link, "title": text, "description": text}}],
            },
            {**call, "_meta": {"note": text}},
            {"sessionUpdate": "plan", "entries": [entry, {**entry, "content": text}]},
            {"sessionUpdate": "agent_message_chunk", "content": {**link, "name": text, "description": text}},
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"name": "x", "description": text}],
            },
            {"sessionUpdate": "session_info_update", "title": text},
            {"sessionUpdate": "unknown_to_us", "text": text},
        )
    )


Seen = list[tuple[str, str]]


def _relayed(place: Path, script: Path, env: dict[str, str], turns: int) -> Seen:
    """Through the relay: what the editor gets, both outputs, the store and the log."""
    log = place / "log"
    words = ["serve", "--log-file", str(log), "--", sys.executable, SCRIPTED, str(script)]
    with RawClient(*COUPLER, *words, env=env) as client:
        session = _play(client, place, turns)
        lines, errors = client.lines, client.stderr
    frames = [json.loads(line) for line in lines]
    said = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    shown = subprocess.run(
        [*COUPLER, "sessions", "export", session, "--format", "json"],
        env=os.environ | env,
        capture_output=True,
    ).stdout
    return [
        *(("stdout", _all_strings(frame)) for frame in frames),
        ("the message", "".join(_texts(said, "agent_message_chunk"))),
        ("the thought", "".join(_texts(said, "agent_thought_chunk"))),
        ("stderr", errors.decode(errors="replace")),
        ("the export", shown.decode(errors="replace")),
        *_files(place, script),
    ]


def _executed(place: Path, script: Path, env: dict[str, str], turns: int) -> Seen:
    """By `coupler exec`, in each format, with a recording."""
    seen: Seen = []
    for number, form in enumerate(("text", "json", "ndjson", "quiet", "text")[:turns]):
        one = place / f"turn-{number}.json"
        one.write_text(json.dumps([json.loads(script.read_text())[number]]))
        command = shlex.join([sys.executable, SCRIPTED, str(one)])
        words = ["exec", "--format", form, "--record", str(place / f"recording-{number}"), command, "go"]
        done = subprocess.run(
            [*COUPLER, *words], env=os.environ | env, cwd=place, capture_output=True, timeout=PATIENCE
        )
        output = done.stdout.decode(errors="replace")
        seen += [(f"exec --format {form}", output), ("stderr", done.stderr.decode(errors="replace"))]
        one.unlink()
        if "json" in form:
            frames = (
                [json.loads(line) for line in output.splitlines()]
                if form == "ndjson"
                else [json.loads(output)]
            )
            seen += [(f"exec --format {form}", _all_strings(frame)) for frame in frames]
    return [*seen, *_files(place, script)]


def _recorded(place: Path, script: Path, env: dict[str, str], turns: int) -> Seen:
    """By `coupler record`: what is passed on is whole, and what is kept is not."""
    words = ["record", "-q", "-o", str(place / "recording"), "--", sys.executable, SCRIPTED, str(script)]
    with RawClient(*COUPLER, *words, env=env) as client:
        _play(client, place, turns)
    frames = [json.loads(line) for line in (place / "recording").read_text().splitlines()]
    return [*(("the recording", _all_strings(frame)) for frame in frames), *_files(place, script)]


def _play(client: RawClient, place: Path, turns: int) -> str:
    """Prompt so often, and leave; returns the session. What is said may be no update of ACP."""
    client.initialize()
    session = client.new_session(str(place))
    for _ in range(turns):
        request = client.prompt_request(session, "go")
        client.send(request)
        while not is_answer_to(client._frames.get(timeout=PATIENCE) or {"id": request["id"]}, request["id"]):
            pass
    client.close_stdin()
    client.wait()
    return session


def _files(place: Path, script: Path) -> Seen:
    """All that was left in files, but for what the agent was told."""
    return [
        (str(path.relative_to(place)), path.read_bytes().decode(errors="replace"))
        for path in place.rglob("*")
        if path.is_file() and path != script
    ]


def _texts(updates: Sequence[Json], kind: str) -> Iterator[str]:
    for update in updates:
        if update["sessionUpdate"] == kind:
            yield update["content"].get("text", "")


def _all_strings(value: Json) -> str:
    match value:
        case str():
            return value
        case dict():
            return "\n".join(f"{key}\n{_all_strings(item)}" for key, item in value.items())
        case list():
            return "\n".join(map(_all_strings, value))
    return ""


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b31m\x08\x08\u202ereversed\u2066\r\x1bP+q\x1b\\\x00\x7f"
"""Sets a title, clears, hides, moves back, reverses: nothing of it may reach a terminal."""
SEQUENCES = (
    b"\x1b]0;owned", b"\x1b[2J", b"\x1b[8m", b"\xc2\x9b", b"\x07", b"\x08", b"\xe2\x80\xae", b"\xe2\x81\xa6",
    b"\x1bP+q", b"\x7f", b"\x00",
)  # fmt: skip


def attack_by_escapes(effort: Effort, outcome: Outcome) -> None:
    """Put terminal sequences into every text that is kept, and look at what commands print of it."""
    place = effort.directory("escapes")
    env = {"COUPLER_HOME": str(place / "home"), "NO_COLOR": "1", "TERM": "dumb", "HOME": str(place)}
    session, run = _keep_hostile_things(place, env)
    listings = [
        ["sessions", "list"], ["sessions", "show", session], ["sessions", "export", session],
        ["runs", "list"],
        ["runs", "show", run], ["runs", "logs", run],
        ["workflows", "list"], ["workflows", "show", "hostile"], ["workflows", "validate"],
        ["agents"], ["doctor"], ["permissions", "list"], ["trust"],
    ]  # fmt: skip
    if effort.most < len(listings):
        listings = effort.chance("escapes").sample(listings, effort.most)
    for words in listings:
        outcome.tries += 1
        done = subprocess.run(
            [*COUPLER, *words],
            env=os.environ | env,
            cwd=place,
            capture_output=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
        output = done.stdout + done.stderr
        outcome.count("of them with the text", b"reversed" in output)
        found = [sequence for sequence in SEQUENCES if sequence in output]
        if found and words[1:2] != ["export"]:  # which is a file, and no page
            at = output.index(found[0])
            shown = output[max(0, at - 60) : at + 60]
            outcome.fail(
                f"coupler {shlex.join(words)}: {found} in {shown!r}",
                f"seed {effort.seed}; the home is in {place}",
            )


def _keep_hostile_things(place: Path, env: dict[str, str]) -> tuple[str, str]:
    """Make a session, workflows and a run with hostile texts; returns the ids of the session and the run."""
    chance = random.Random(0)
    updates = [_in_field(HOSTILE, chance) for _ in range(100)]
    for name in ("turns.json", "again.json"):
        (place / name).write_text(json.dumps([[*updates, _chunk("agent_message_chunk", HOSTILE)]]))
    with RawClient(
        *COUPLER, "serve", "--", sys.executable, SCRIPTED, str(place / "turns.json"), env=env
    ) as client:
        client.initialize()
        session = client.new_session(str(place))
        client.prompt(session, f"prompt {HOSTILE}")
        client.close_stdin()
        client.wait()
    quoted = json.dumps(HOSTILE)
    flows = place / ".coupler" / "workflows"
    flows.mkdir(parents=True)
    (flows / "hostile.yaml").write_text(
        f"name: hostile\ndescription: {quoted}\n"
        f"inputs: {{text: {{default: {quoted}, description: {quoted}}}}}\n"
        f"steps:\n  - id: a\n    description: {quoted}\n    run: 'printf %s \"$T\"'\n"
        "    env: {T: '{{ inputs.text }}'}\n"
        'outputs: {said: "{{ steps.a.stdout }}"}\n'
    )
    (flows / "broken.yaml").write_text(f"name: {quoted}\nsteps: {quoted}\n{quoted}: 1\n")
    subprocess.run(
        [*COUPLER, "run", str(flows / "hostile.yaml"), f"text={HOSTILE.replace(chr(0), '')}"],
        env=os.environ | env,
        cwd=place,
        capture_output=True,
    )
    words = [*COUPLER, "runs", "list"]
    listed = subprocess.run(words, env=os.environ | env, cwd=place, capture_output=True).stdout.decode()
    return session, listed.partition("\t")[0]
