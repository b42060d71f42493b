"""Who offers models: the variables that hold a provider's key, and its address where that must be known.

Providers that are not listed can be used all the same, if LangChain knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LOCAL = "local"
OLLAMA = "ollama"


class Provider(NamedTuple):
    """One who offers models, by the name that stands before the colon."""

    name: str
    title: str
    variables: tuple[str, ...] = ()
    """Where its key usually is; the first that is set counts."""
    address_variables: tuple[str, ...] = ()
    """Where another address of it usually is."""
    compatible_at: str | None = None
    """An address that speaks as OpenAI does, for those who have not installed the provider's package."""
    example: str | None = None
    """A good model for coding, newest first."""
    needs_key: bool = True


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "anthropic",
            "Anthropic",
            ("ANTHROPIC_API_KEY",),
            ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL"),
            example="claude-sonnet-5-5",
        ),
        Provider(
            "openai",
            "OpenAI",
            ("OPENAI_API_KEY",),
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            example="gpt-6.1-sol",
        ),
        Provider("google_genai", "Google", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
        Provider(
            "openrouter", "OpenRouter", ("OPENROUTER_API_KEY",), compatible_at="https://openrouter.ai/api/v1"
        ),
        Provider("groq", "Groq", ("GROQ_API_KEY",), compatible_at="https://api.groq.com/openai/v1"),
        Provider("deepseek", "DeepSeek", ("DEEPSEEK_API_KEY",), compatible_at="https://api.deepseek.com/v1"),
        Provider("mistralai", "Mistral", ("MISTRAL_API_KEY",), compatible_at="https://api.mistral.ai/v1"),
        Provider("xai", "xAI", ("XAI_API_KEY",), compatible_at="https://api.x.ai/v1"),
        Provider("together", "Together", ("TOGETHER_API_KEY",), compatible_at="https://api.together.xyz/v1"),
        Provider(
            "fireworks",
            "Fireworks",
            ("FIREWORKS_API_KEY",),
            compatible_at="https://api.fireworks.ai/inference/v1",
        ),
        Provider("cohere", "Cohere", ("COHERE_API_KEY", "CO_API_KEY")),
        Provider("perplexity", "Perplexity", ("PERPLEXITY_API_KEY", "PPLX_API_KEY")),
        Provider("nvidia", "NVIDIA", ("NVIDIA_API_KEY",)),
        Provider("azure_openai", "Azure", ("AZURE_OPENAI_API_KEY",)),
        Provider("huggingface", "Hugging Face", ("HF_TOKEN", "HUGGINGFACEHUB_API_TOKEN")),
        # They use the credentials of their clouds, which their own packages find.
        Provider("bedrock_converse", "Amazon Bedrock", needs_key=False),
        Provider("google_vertexai", "Google Vertex AI", needs_key=False),
        Provider(OLLAMA, "Ollama", ("OLLAMA_API_KEY",), needs_key=False),
        Provider(LOCAL, "this machine", needs_key=False),
    )
}

ALIASES: Mapping[str, str] = {
    "azure": "azure_openai",
    "bedrock": "bedrock_converse",
    "claude": "anthropic",
    "gemini": "google_genai",
    "google": "google_genai",
    "grok": "xai",
    "mistral": "mistralai",
    "vertexai": "google_vertexai",
}
"""Other names that people use."""


def provider_of(name: str) -> Provider:
    """What is known of a provider; of one that is not listed only its name."""
    return PROVIDERS.get(name) or Provider(name, name, needs_key=False)


def client_package(name: str) -> str:
    """The package that has LangChain's client of a provider; importing it takes about a second."""
    provider = PROVIDERS.get(name)
    is_compatible = name in ("openai", OLLAMA, LOCAL) or (provider is not None and provider.compatible_at)
    return "langchain_openai" if is_compatible else f"langchain_{name}"


def ollama_address(environ: Mapping[str, str]) -> str:
    """Where Ollama listens and speaks as OpenAI does; OLLAMA_HOST has a host, a port, both, or an address."""
    given = environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    scheme, has_scheme, rest = given.partition("://")
    if not has_scheme:
        scheme, rest = "http", given
    place, slash, path = rest.partition("/")
    host, _, port = place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "")
    if host in ("", "0.0.0.0", "[::]"):
        host = "localhost"  # what a server listens on is no place to go to
    usual = "" if has_scheme else ":11434"
    return f"{scheme}://{host}{f':{port}' if port else usual}{slash}{path}/v1"
