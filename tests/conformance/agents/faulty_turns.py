"""Faults of turns: what a prompt may be, what is said, how it ends and how it is cancelled."""

from __future__ import annotations

import os
import uuid

from fault import Fault
from model_turn import Turn, chunk, text
from model_wire import INTERNAL_ERROR, INVALID_REQUEST, Object, Refusal


class DiesInMidTurn(Fault):
    """The process ends while it takes a turn."""

    assertion = "alive"

    def think(self, turn: Turn, thought: str) -> None:
        os._exit(3)


class RefusesLinks(Fault):
    """A prompt with a resource link is refused."""

    assertion = "A41"

    def accepts(self, block: object) -> bool:
        return super().accepts(block) and not is_a(block, "resource_link")


class TakesAudio(Fault):
    """A prompt with audio is taken, which is not advertised."""

    assertion = "A42"

    def accepts(self, block: object) -> bool:
        return super().accepts(block) or is_a(block, "audio")


class DropsMalformedBlocks(Fault):
    """A malformed block of a prompt is left out in silence."""

    assertion = "A43"

    def blocks_in(self, params: Object) -> list[Object]:
        blocks = [block for block in params["prompt"] if self.accepts(block) or is_a(block, "audio")]
        return super().blocks_in({"prompt": blocks})


class InventsAStopReason(Fault):
    """A turn ends for a reason that the protocol does not know."""

    assertion = "A44"

    def stop_reason(self, turn: Turn) -> str:
        return "cancelled" if turn.cancelled else "done"


class TalksAfterTheAnswer(Fault):
    """Something is said after the answer to the prompt."""

    assertion = "A45"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        super().answer_prompt(turn, failure)
        if not turn.cancelled:
            self.update(turn.session, chunk("agent_message_chunk", text("By the way."), "late"))


class TalksAfterACancel(Fault):
    """Something is said after the answer to a cancelled prompt."""

    assertion = "A45"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        super().answer_prompt(turn, failure)
        if turn.cancelled:
            self.update(turn.session, chunk("agent_message_chunk", text("Oh."), "late"))


class ReportsUsageAfterTheAnswer(Fault):
    """The usage is reported after the answer, which the protocol lets an agent do at any time."""

    assertion = "A45-note"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        super().answer_prompt(turn, failure)
        self.update(turn.session, {"sessionUpdate": "usage_update", "used": 1, "size": 2})


class SendsPartsOfThePlan(Fault):
    """A plan has only the steps that are not done yet."""

    assertion = "A49"

    def report(self, turn: Turn, update: Object) -> None:
        if update["sessionUpdate"] == "plan":
            left = [entry for entry in update["entries"] if entry["status"] != "completed"]
            update = {**update, "entries": left}
        super().report(turn, update)


class CountsBelowZero(Fault):
    """The usage is negative."""

    assertion = "A50"

    def report_usage(self, turn: Turn) -> None:
        self.report(turn, {"sessionUpdate": "usage_update", "used": -1, "size": 200_000})


class ForgetsTheCurrency(Fault):
    """The cost has no currency."""

    assertion = "A50"

    def report_usage(self, turn: Turn) -> None:
        self.report(turn, {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.1}})


class GivesEveryChunkAnId(Fault):
    """The chunks of one message have different ids."""

    assertion = "A51"

    def publish(self, turn: Turn, update: Object) -> None:
        super().publish(turn, update | {"messageId": uuid.uuid4().hex} if "messageId" in update else update)


class GivesAllMessagesOneId(Fault):
    """Different messages have one id."""

    assertion = "A51"

    def publish(self, turn: Turn, update: Object) -> None:
        super().publish(turn, update | {"messageId": "message"} if "messageId" in update else update)


class EndsACancelledTurnNormally(Fault):
    """A cancelled turn ends as if it were done."""

    assertion = "A52"

    def stop_reason(self, turn: Turn) -> str:
        return "end_turn"


class FailsWhenCancelled(Fault):
    """A cancelled turn is answered with an error."""

    assertion = "A52"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        if turn.cancelled and not turn.by_request:
            self.answer_error(turn.request, Refusal(INTERNAL_ERROR, "aborted"))
        else:
            super().answer_prompt(turn, failure)


class IgnoresCancels(Fault):
    """A cancel does nothing."""

    assertion = "A52"

    def cancel_session(self, params: Object) -> None:
        pass


class AnswersIdleCancels(Fault):
    """A cancel with nothing to cancel is answered with an error."""

    assertion = "A53"

    def cancel_idle(self, params: Object) -> None:
        self.send_error(None, Refusal(INVALID_REQUEST, "nothing to cancel"))


class RemembersIdleCancels(Fault):
    """A cancel with nothing to cancel cancels the next prompt."""

    assertion = "A53"

    def __init__(self) -> None:
        super().__init__()
        self.remembered: list[object] = []

    def cancel_idle(self, params: Object) -> None:
        self.remembered.append(params.get("sessionId"))

    def start_turn(self, turn: Turn) -> None:
        if turn.session.id in self.remembered:
            self.remembered.clear()
            self.cancel_turn(turn)
        super().start_turn(turn)


class AnswersACancelledPromptTwice(Fault):
    """A prompt that is cancelled by its id is answered with an error and a result."""

    assertion = "A55"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        super().answer_prompt(turn, failure)
        if turn.by_request:
            self.answer(turn.request, {"stopReason": "cancelled"})


class NeverAnswersACancelledPrompt(Fault):
    """A prompt that is cancelled by its id is not answered."""

    assertion = "A55"

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        if not turn.by_request:
            super().answer_prompt(turn, failure)


class AnswersUnknownRequestCancels(Fault):
    """A cancel of a request that never was is answered with an error."""

    assertion = "A55"

    def cancel_unknown(self, params: Object) -> None:
        self.send_error(None, Refusal(INVALID_REQUEST, "no such request"))


class SendsADraftUpdate(Fault):
    """An update is of a kind that stable ACP does not have."""

    assertion = "A60"

    def think(self, turn: Turn, thought: str) -> None:
        super().think(turn, thought)
        self.update(turn.session, {"sessionUpdate": "state_update", "state": "running"})


class CompactsUnasked(Fault):
    """A compaction is shown to a client that did not offer to show it."""

    assertion = "N01"

    def offered_in(self, params: Object) -> set[str]:
        return super().offered_in(params) | {"compaction"}


class GivesNoticesUnasked(Fault):
    """A notice is sent to a client that did not offer to show it."""

    assertion = "N02"

    def offered_in(self, params: Object) -> set[str]:
        return super().offered_in(params) | {"notices"}


def is_a(block: object, kind: str) -> bool:
    """Whether this is a block of a kind, whole or not."""
    return isinstance(block, dict) and block.get("type") == kind
