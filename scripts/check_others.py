"""Runs `coupler check` on agents that nobody here wrote, and keeps the reports for docs/findings.md.

Everything is installed from the package registries. No key and no network is needed afterwards: opencode and
gemini-cli talk to the scripted model of tests/labs.

    python scripts/check_others.py [python-sdk] [python-sdk-echo] [typescript-sdk] [opencode] [gemini]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from labs import others, scripted_model
from labs.others import OTHERS, Other

WITH_A_MODEL = ["--prompt", "Please write a note", "--slow-prompt", "Be slow", "--timeout", "20"]


def main(names: list[str]) -> int:
    others.install()
    for name in names or SUBJECTS:
        OTHERS.mkdir(parents=True, exist_ok=True)
        make, options = SUBJECTS[name]
        subject = make()
        report = OTHERS / f"{name}.json"
        page = ["--html", str(report.with_suffix(".html"))]
        check = [sys.executable, "-m", "coupler", "check", "--json", str(report), *page, *options]
        print(f"\n== {name}: {' '.join(subject.command)}\n", flush=True)
        elsewhere = OTHERS / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        env = {**os.environ, **subject.env}
        subprocess.run([*check, "--", *subject.command], cwd=elsewhere, env=env, check=False)
    return 0


def with_a_model(make: Callable[[Path, str], Other], name: str) -> Callable[[], Other]:
    """An agent that talks to a scripted model of its own."""

    def made() -> Other:
        home = OTHERS / f"{name}-home"
        home.mkdir(exist_ok=True)
        server = scripted_model.serve()
        return make(home, f"http://127.0.0.1:{server.server_address[1]}")

    return made


SUBJECTS: dict[str, tuple[Callable[[], Other], list[str]]] = {
    "python-sdk": (others.python_sdk, []),
    "python-sdk-echo": (lambda: others.python_sdk("echo_agent.py"), []),
    # Its one turn takes seconds, asks a permission and so serves both purposes.
    "typescript-sdk": (others.typescript_sdk, ["--slow-prompt", "Take your time"]),
    "opencode": (with_a_model(others.opencode, "opencode"), WITH_A_MODEL),
    "gemini": (with_a_model(others.gemini, "gemini"), WITH_A_MODEL),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
