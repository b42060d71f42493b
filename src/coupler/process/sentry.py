"""A shell in a session of its own that outlives us, and learns of our death by the end of a pipe."""

import os
import subprocess


def start_sentry(script: str, name: str, *words: str) -> "tuple[subprocess.Popen[bytes], int] | None":
    """Its process and the write end of the pipe that it reads; None where there is no shell for it."""
    if not hasattr(os, "killpg"):
        return None
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script, name, *words],
            cwd="/",
            # It outlives us, and has no use for the keys among our variables.
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        os.close(write_end)
        return None
    finally:
        os.close(read_end)
    return process, write_end


def dismiss_sentry(process: "subprocess.Popen[bytes]", write_end: int, owner: int) -> None:
    """End it without a word; in a forked copy of its owner only let go of the pipe."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
    os.close(write_end)
