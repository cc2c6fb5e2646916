"""What the hub's library says while it waits for a hub that does not answer, kept from the user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# Of huggingface_hub, which speaks of every attempt in two lines; whoever asked it for more by HF_HUB_VERBOSITY gets it.
_LOGGER = "huggingface_hub.utils._http"
_ATTEMPTS = ("Retrying in ", " thrown while requesting ")


@contextmanager
def quiet_attempts() -> Iterator[None]:
    """Within it, requests to the hub that are tried again are not told of; what fails for good raises as ever."""
    logger = logging.getLogger(_LOGGER)

    def wanted(entry: logging.LogRecord) -> bool:
        return logger.isEnabledFor(logging.INFO) or not any(words in entry.getMessage() for words in _ATTEMPTS)

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)
