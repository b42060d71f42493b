"""What one question from a shell costs, with `coupler exec` and with `acpx exec`, on the same agent.

npm install --prefix /tmp/acpx acpx
python bench/one_shot.py --acpx /tmp/acpx/node_modules/.bin/acpx

The agent repeats its prompt, and is plain Python without site packages: what differs is the client. Both are
run in turns, so that a disturbance of the machine hits both alike, and the best run of each counts.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ECHO = """
import json, sys

def send(**frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)

for line in sys.stdin:
    frame = json.loads(line)
    match frame.get("method"):
        case "initialize":
            send(id=frame["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
        case "session/new":
            send(id=frame["id"], result={"sessionId": "s1"})
        case "session/prompt":
            update = {"sessionUpdate": "agent_message_chunk", "content": frame["params"]["prompt"][0]}
            send(method="session/update", params={"sessionId": "s1", "update": update})
            send(id=frame["id"], result={"stopReason": "end_turn"})
"""
PROMPT = "hello"


def main() -> int:
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder, "echo.py")
        agent.write_text(ECHO, encoding="utf-8")
        started = shlex.join([sys.executable, "-I", "-S", str(agent)])
        commands = {
            "coupler": [sys.executable, "-m", "coupler", "exec", started, PROMPT],
            "acpx": [options.acpx, "--agent", started, "--format", "quiet", "exec", PROMPT],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.runs):
            for name, command in commands.items():
                taken[name].append(seconds(command, folder))
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"one question and its answer, the best of {options.runs} runs; load of the machine {load}")
    for name, times in taken.items():
        print(f"{name:8} {min(times) * 1000:6.0f} ms")
    print(f"coupler takes {min(taken['coupler']) / min(taken['acpx']):.2f} of the time of acpx")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acpx", required=True, metavar="PROGRAM", help="where acpx is installed")
    parser.add_argument("--runs", type=int, default=10)
    return parser.parse_args()


def seconds(command: list[str], folder: str) -> float:
    """How long one run takes, from the start to the end of its process; it must have answered."""
    environment = {**os.environ, "HOME": folder, "COUPLER_HOME": str(Path(folder, "coupler"))}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    took = time.perf_counter() - began
    if done.returncode != 0 or PROMPT not in done.stdout:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return took


if __name__ == "__main__":
    sys.exit(main())
