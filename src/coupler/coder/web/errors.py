"""Why a page could not be had, in words that a model can do something about."""


class FetchError(ValueError):
    """The address must not be asked, did not answer, or answered with what is no text."""
