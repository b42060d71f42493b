"""Opens the store for commands, and tidies it up beside them.

It is the file that an option names, else the one that the user has set.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coupler.cli.exit_codes import FAILED, WRONG_USAGE, print_error, refuse
from coupler.cli.output import stderr
from coupler.runtime.formatting import count, size

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.store.retention import RetentionReport, RetentionRules
    from coupler.store.store import BlockingStore, Store


log = logging.getLogger("coupler.cli")


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def store_option(command: CommandT) -> CommandT:
    """Adds --store."""
    import click

    return click.option("--store", metavar="FILE", help="The store's file, if it is not the user's own.")(
        command
    )


class UnusableStoreError(Exception):
    """The store cannot be used, before it is open or after; `code` is the exit code for it."""

    def __init__(self, sentence: str, code: int = FAILED) -> None:
        super().__init__(sentence)
        self.code = code


@contextmanager
def store_or_exit(path: str | None, program: str, *, is_made: bool = False) -> Iterator[Store | None]:
    """Opens the store; errors end the program.

    Gives None if there is none yet: to look for something creates none.
    """
    try:
        with user_store(path, is_made=is_made) as store:
            yield store
    except UnusableStoreError as error:
        refuse(str(error), program, error.code)


@contextmanager
def blocking_store(path: str | None, program: str) -> Iterator[BlockingStore | None]:
    """Opens the store like `store_or_exit`, for code that waits for it."""
    with store_or_exit(path, program) as store:
        yield None if store is None else store.blocking


@contextmanager
def user_store(path: str | None = None, *, is_made: bool = False) -> Iterator[Store | None]:
    """Opens the store like `store_or_exit`, but raises `UnusableStoreError`."""
    with _opened(path, None if path else _settings(), is_made=is_made) as store:
        yield store


@contextmanager
def tidied_store(program: str, *, is_made: bool = False) -> Iterator[tuple[Store | None, Callable[[], None]]]:
    """Opens the user's store like `user_store`, and gives the function of `tidying` with it."""
    settings = _settings()
    with _opened(None, settings, is_made=is_made) as store, ExitStack() as stack:

        def begin() -> None:
            rules = _retention_rules(settings)
            if rules is not None and store is not None:
                store.tidy_up(rules)
                stack.callback(tell_deleted, store, program)

        yield store, begin


@contextmanager
def tidying(program: str) -> Iterator[Callable[[], None]]:
    """Gives a function that begins to delete what the user's rules do not keep, beside the command's work.

    To be called when the session is open that the command needs, which is then kept. What was deleted is told
    at the end. Without rules nothing is opened.
    """
    with ExitStack() as stack:
        begun: list[bool] = []

        def begin() -> None:
            if begun:
                return
            begun.append(True)
            try:
                if _retention_rules(_settings()) is not None:
                    _, begin_deleting = stack.enter_context(tidied_store(program))
                    begin_deleting()
            except UnusableStoreError as error:
                log.info("nothing was tidied up: %s", error)

        yield begin


def _settings() -> Config:
    from coupler.config import ConfigError, load

    try:
        return load(None, environ=os.environ)
    except ConfigError as error:
        raise UnusableStoreError(str(error)) from error


@contextmanager
def _opened(path: str | None, settings: Config | None, *, is_made: bool) -> Iterator[Store | None]:
    from coupler.config import ConfigError
    from coupler.runtime.directories import NoHomeError, store_file
    from coupler.store.errors import StoreError
    from coupler.store.store import Store

    try:
        file = path or (settings and settings.sessions.store) or store_file()
        if not is_made and not _has_content(file, is_named=path is not None):
            yield None
            return
        store = Store.open(file)
        try:
            yield store
        finally:
            store.close()
    except (ConfigError, StoreError, NoHomeError) as error:
        raise UnusableStoreError(str(error)) from error


def _retention_rules(settings: Config) -> RetentionRules | None:
    if settings.store.keep_sessions is None and settings.store.keep_runs is None:
        return None
    from coupler.store.retention import RetentionRules

    return RetentionRules(settings.store.keep_sessions, settings.store.keep_runs)


def tell_deleted(store: Store, program: str) -> None:
    """Tells somebody at a terminal what their rules have deleted since they were told last."""
    from coupler.store.errors import StoreError

    if not stderr().is_terminal:
        return
    try:
        report = store.blocking.take_report()
    except StoreError as error:
        log.info("it is not known what was deleted: %s", error)
        return
    if report is not None:
        keys = [f"store.keep_{name}" for name in ("sessions", "runs") if getattr(report, name)]
        rules = f"{' and '.join(keys)} in your coupler.toml {'says' if len(keys) == 1 else 'say'}"
        print_error(f"{deleted_words(report)} deleted, as {rules}", program)


def deleted_words(report: RetentionReport) -> str:
    """Says how much was deleted."""
    parts = [count(report.sessions, "session"), count(report.runs, "run")]
    named = [part for part in parts if not part.startswith("0 ")]
    return f"{' and '.join(named)} ({size(report.bytes)})"


def _has_content(file: str, *, is_named: bool) -> bool:
    try:
        return Path(file).stat().st_size > 0
    except FileNotFoundError:
        if is_named:
            message = f"there is no file {file}: without --store it is the user's own store that is meant"
            raise UnusableStoreError(message, WRONG_USAGE) from None
        return False
    except OSError as error:
        raise UnusableStoreError(f"{file} cannot be read: {error.strerror}") from None
