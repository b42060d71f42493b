"""`acp.models(…)`: the models that the user can choose from, as an option of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest

from coupler.agent.agent import Select
from coupler.bridges.langchain.current import current
from coupler.bridges.langchain.declared import Declared, marked_schema
from coupler.bridges.langchain.middleware.chat_model import chosen_model
from coupler.bridges.langchain.middleware.mode import Model

OPTION = "model"
"""The id of the option, which editors know."""


class ModelsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers models, by their names as `init_chat_model` knows them or under names of your own.

    A session begins with the `default`, or with the first. What the user chooses holds from the next model
    call on; the model of a mode goes before it if `acp.modes` comes after this in the list.
    """

    def __init__(self, models: Mapping[str, Model] | Iterable[str], *, default: str | None = None) -> None:
        super().__init__()
        self._models: dict[str, Model] = (
            dict(models) if isinstance(models, Mapping) else {name: name for name in models}
        )
        self._select = Select(OPTION, [*self._models], default=default, name="Model", category="model")
        self.state_schema = marked_schema("models", self)

    @property
    def declared(self) -> Declared:
        """The option as sessions have it."""
        return Declared(options=(self._select,))

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Call the model that was chosen."""
        return handler(self._chosen(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """The same."""
        return await handler(self._chosen(request))

    def _chosen(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        served = current()
        if served is None:
            return request
        model = self._models.get(str(served.session.options.get(OPTION, self._select.default)))
        return request if model is None else request.override(model=chosen_model(served, model))
