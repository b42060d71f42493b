"""How a command ends that cannot do what it was asked for: with a sentence, in the command's name.

Imports next to nothing, because commands use it for which an editor waits.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from coupler.cli.exit_codes import WRONG_USAGE


def refuse(sentence: str, program: str, code: int = WRONG_USAGE) -> NoReturn:
    """End the program, by default for wrong usage."""
    complain(sentence, program)
    sys.exit(code)


def complain(sentence: str, program: str) -> None:
    """Say on stderr what is wrong; it may quote strangers, and there may be nobody to read it."""
    from coupler.cli.sessions.wording import clean

    try:
        sys.stderr.write(f"{program}: {clean(sentence)}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
