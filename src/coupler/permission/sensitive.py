"""Names of files and directories that hold secrets, or that make other programs run something.

Inside the session's directories too they are asked about, and a mere wildcard in a rule does not mean them.
"""

from __future__ import annotations

from collections.abc import Sequence

from coupler.permission.match import glob
from coupler.runtime.paths import folded

_NAMES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd"),
    *(".git-credentials", "credentials", "credentials.json", "secrets.*", "*.tfstate", "*.tfstate.*"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.kdbx", "*.ppk", "*.gpg", "*.asc", "*_rsa", "*_ed25519"),
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", ".password-store"),
)
"""What reading gives away."""

_STARTERS = (
    *(
        ".git",
        ".hg",
        ".svn",
        ".husky",
        ".vscode",
        ".idea",
        ".coupler",
        "coupler.toml",
        ".pre-commit-config.yaml",
    ),
    *(".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".gitconfig"),
    *(".gitmodules", "sitecustomize.py", "usercustomize.py", "*.pth"),
)
"""What makes others run something once it is changed."""

_PUBLIC = frozenset({".env.example", ".env.sample", ".env.template", "id_rsa.pub", "id_ed25519.pub"})


def is_secret(name: str) -> bool:
    """Whether a file or directory of this name holds secrets."""
    plain = folded(name)
    return plain not in _PUBLIC and any(glob(each).match(plain) for each in _NAMES)


def is_sensitive(name: str, kind: str) -> bool:
    """Whether a wildcard must not stand for this name in an action of this kind."""
    return is_secret(name) or (
        kind not in {"read", "search"} and any(glob(each).match(folded(name)) for each in _STARTERS)
    )


def has_sensitive(names: Sequence[str], kind: str) -> bool:
    """Whether any name on a path is such a one."""
    return any(is_sensitive(name, kind) for name in names)
