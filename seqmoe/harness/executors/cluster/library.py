"""Ray, imported when a cluster is asked for, and the connection to one that runs already."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from seqmoe.spec.errors import InputError, nearest

_CONNECT_SECONDS = 10.0


def require_ray() -> Any:
    """The library, or an `InputError` that names the extra."""
    try:
        import ray
        import ray.exceptions
        import ray.runtime_env
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise InputError(f"--executor ray: Ray cannot be imported ({error}); pip install 'seqmoe[ray]'") from None
    return ray


@contextmanager
def connected(address: str | None, runtime_env: Mapping[str, Any] | None) -> Iterator[Any]:
    """Ray's module, connected to the cluster at ``address``, by default the one of this machine or RAY_ADDRESS.

    ``runtime_env`` is what Ray prepares for the processes of this sweep on every node. A cluster is never started here.
    """
    ray, address = require_ray(), address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and address != "auto":
        _check(address)
    _check_environment(ray, runtime_env or {})
    try:
        ray.init(
            address=address or "auto",
            runtime_env=dict(runtime_env) if runtime_env else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise _no_cluster(address, error) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check(address: str) -> None:
    """Raise `InputError` for an address of another kind, or one where nobody listens: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdigit():
        hint = "run on a machine of the cluster and give HOST:PORT of its head, as `ray start` printed it"
        raise InputError(f"--ray-address {address}: not HOST:PORT (Ray's remote client is not supported); {hint}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _check_environment(ray: Any, table: Mapping[str, Any]) -> None:
    """Raise `InputError` for what is no runtime environment; Ray itself lets unknown keys pass."""
    known = sorted(ray.runtime_env.RuntimeEnv.known_fields)
    for key in table:
        if key not in known:
            raise InputError(f"--ray-env: unknown key {key!r}; {nearest(key, known)}")
    try:
        ray.runtime_env.RuntimeEnv(**table)
    except (TypeError, ValueError) as error:
        raise InputError(f"--ray-env: not a runtime environment of Ray: {error}") from None


def _no_cluster(address: str | None, error: Exception) -> InputError:
    where = "--executor ray" if address is None else f"--ray-address {address}"
    said = str(error).strip().splitlines()
    return InputError(
        f"{where}: no Ray cluster answers ({said[0] if said else type(error).__name__}); start one with "
        "`ray start --head`, and on each further machine `ray start --address=HOST:6379`"
    )
