"""Models that the user or a mode chooses, made once by their names.

To make one loads its provider's package and opens connections.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langchain.chat_models import init_chat_model

from coupler.bridges.langchain.stream.context_size import context_size

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from coupler.bridges.langchain.current import Current


def chosen_model(served: Current, model: Any) -> BaseChatModel:
    """The model of this name, as `init_chat_model` knows them, or the model itself."""
    made: BaseChatModel = _named(model) if isinstance(model, str) else model
    served.sizes |= context_size(made)
    return made


@lru_cache(maxsize=32)
def _named(name: str) -> Any:
    return init_chat_model(name)
