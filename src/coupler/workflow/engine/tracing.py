"""Spans for OpenTelemetry: every run, step and attempt, in programs that use it.

They are current while they last, so that what an agent does in a step hangs below it, and a run below
whatever it was started in. What people, models and programs say is no part of a span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coupler.__about__ import __version__
from coupler.client.observation import context_in, is_in_use
from coupler.workflow.errors import StepError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from coupler.workflow.journal.result import Result


@contextmanager
def joined(meta: Mapping[str, object]) -> Iterator[None]:
    """What begins in here belongs to the trace that the `_meta` of a prompt names, if it names one."""
    context = context_in(meta) if is_in_use() else None
    if context is None:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def span(name: str, attributes: Mapping[str, str | int]) -> Iterator[Span | None]:
    """Something that lasts; yields None where nobody listens."""
    if not is_in_use():
        yield None
        return
    from opentelemetry.trace import get_tracer

    tracer = get_tracer("coupler", __version__)
    prefixed = {f"coupler.{key}": value for key, value in attributes.items()}
    # The texts of errors may hold anything that a program wrote.
    with tracer.start_as_current_span(
        name, attributes=prefixed, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except BaseException as error:
            kind = error.kind if isinstance(error, StepError) else type(error).__qualname__
            note_failure(current, kind)
            raise


def note_result(current: Span | None, result: Result) -> None:
    """Say how a step ended."""
    if current is None:
        return
    current.set_attribute("coupler.step.status", result.status)
    if result.status == "failed" and result.error is not None:
        note_failure(current, result.error.kind)


def note_failure(current: Span | None, kind: str) -> None:
    """Say that it failed, and by which kind of error."""
    if current is None:
        return
    from opentelemetry.trace import Status, StatusCode

    current.set_attribute("error.type", kind)
    current.set_status(Status(StatusCode.ERROR))
