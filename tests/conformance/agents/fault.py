"""What the agents on trial are: the model agent, different in one way."""

from __future__ import annotations

import re
from typing import ClassVar

from model import ModelAgent


class Variant(ModelAgent):
    """The model agent with a difference."""

    @classmethod
    def name(cls) -> str:
        """The name of the difference on the command line."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


class Fault(Variant):
    """The model agent with one fault."""

    assertion: ClassVar[str]
    """The assertion that must fail; `alive` if the agent stops working, `none` if it is no fault at all."""
