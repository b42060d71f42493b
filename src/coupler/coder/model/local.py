"""Models on this machine, run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.coder.model.errors import ModelError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from coupler.coder.model.choice import ModelChoice


def local_model(choice: ModelChoice) -> BaseChatModel:
    """The client of a model that is run here."""
    raise ModelError(f"{choice.name} cannot be run here yet.")
