"""What every faulty agent is: the model agent, wrong in one way."""

from __future__ import annotations

import re
from typing import ClassVar

from model import ModelAgent


class Fault(ModelAgent):
    """The model agent with one fault."""

    assertion: ClassVar[str]
    """The assertion that must fail; `alive` if the agent stops working, `none` if it is no fault at all."""
    also: ClassVar[tuple[str, ...]] = ()
    """Assertions that cannot but fail with it; S01 is the validity of every frame."""

    @classmethod
    def name(cls) -> str:
        """The name of the fault on the command line."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
