"""The relay's rows of the error table: why it did not do what the agent behind asked."""

from __future__ import annotations

from coupler.wire.messages import Reason

NOT_PERMITTED = Reason("not_permitted", -32603, "A rule, an earlier choice or the user does not permit it.")
NOT_IN_A_TURN = Reason("not_in_a_turn", -32600, "The editor can be asked only while a turn runs.")

REASONS = (NOT_PERMITTED, NOT_IN_A_TURN)
