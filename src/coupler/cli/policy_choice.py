"""What the options about permissions mean: a policy, and for agents that ask for nothing a mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coupler.client.policy import Decide, Policy

PERMISSIONS = ("allow-reads", "allow-all", "deny-all", "ask")

ALLOW_ALL = "allow_all"
"""The mode of native agents in which they do everything."""


def policy_of(permissions: str, allow: Sequence[str], deny: Sequence[str], callback: Decide | None) -> Policy:
    """The policy; the callback is who `ask` asks. Raises ValueError for options that do not go together."""
    from coupler.client.policy import Policy

    if not allow and not deny:
        return Policy.named(permissions, callback)
    match permissions:
        case "deny-all":
            raise ValueError(
                "--permissions deny-all denies everything: leave it out to use --allow and --deny"
            )
        case "allow-all" if allow:
            raise ValueError("--permissions allow-all allows everything: leave it out to use --allow")
        case "allow-all":
            return Policy.allow_all(but=deny)
    # Without somebody to ask, what no rule decides is denied, but for reads of the session's files.
    rules = Policy.patterns(allow=allow, deny=deny, callback=callback if permissions == "ask" else None)
    if permissions == "ask" and callback is None and not allow:
        return Policy.deny_all()  # nobody is there to ask, and a rule against something allows nothing
    return rules


def mode_that_allows_all(agent: str, cwd: str, permissions: str | None, deny: Sequence[str]) -> str | None:
    """For agents that are driven without ACP: they ask for nothing, and their mode says what they may do."""
    from coupler.coupling import named

    if permissions != "allow-all" or deny:
        return None
    meant = named(agent, cwd=cwd)
    modes = () if meant is None else getattr(meant.target, "modes", ())
    return ALLOW_ALL if any(mode.id == ALLOW_ALL for mode in modes) else None
