"""Agents that ask for nothing: a policy cannot answer them, so a mode keeps them to it from the beginning."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coupler.client.errors import AgentError
from coupler.client.policy import Policy, PolicyName


class Confinement(Struct, frozen=True):
    """How an agent is kept to what policies say. What no mode stands for is refused, and never ignored."""

    agent: str
    """Its name, for sentences."""
    modes: Mapping[PolicyName, str]
    """The mode that keeps to a policy."""
    usual: str | None = None
    """The mode that whoever made the agent has chosen; it stands where no policy is named."""

    def mode_for(self, policy: Policy | None, mode: str | None) -> str:
        """The mode to open a session in; both are None where nobody has said. Raises of kind `session`."""
        if policy is None:
            return mode or self.usual or self.modes["allow-reads"]
        if policy.name is None or policy.name not in self.modes:
            raise AgentError(
                "session",
                f"{self.agent} asks for nothing, so that rules and functions have nothing to decide: use "
                f"{self._named()}, or choose a mode, or drive its ACP form",
            )
        if policy.name == "deny-all" and mode not in (None, self.modes["deny-all"]):
            raise AgentError(
                "session", f"the policy deny-all and the mode {mode!r} contradict each other: leave one out"
            )
        return mode or self.modes[policy.name]

    def _named(self) -> str:
        *others, last = self.modes
        return f"the policy {', '.join(others)} or {last}"
