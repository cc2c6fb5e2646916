"""What `seqmoe bench` is told of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqmoe.spec.errors import InputError, nearest

if TYPE_CHECKING:
    from seqmoe.harness.executors.cluster.site import ClusterOptions

_EXECUTORS = ("local", "ray")


def cluster_options(
    executor: str, address: str | None, runtime_env: Path | None, hardware: str | None
) -> ClusterOptions | None:
    """The cluster that the options name, None for this machine; an `InputError` for options that do not go together."""
    from seqmoe.harness.executors.cluster.library import require_ray
    from seqmoe.harness.executors.cluster.site import ClusterOptions

    if executor not in _EXECUTORS:
        raise InputError(f"--executor {executor}: unknown; {nearest(executor, _EXECUTORS)}")
    if executor == "ray":
        if address == "":
            raise InputError("--ray-address: is empty; give HOST:PORT of the head, or leave it out")
        require_ray()
        return ClusterOptions(address, runtime_env, hardware or "")
    for option, value in (("--ray-address", address), ("--ray-env", runtime_env), ("--hardware", hardware)):
        if value is not None:
            raise InputError(f"{option} {value}: is about a cluster; add --executor ray, or leave it out")
    return None


def cluster_arguments(cluster: ClusterOptions) -> list[str]:
    """The options again, for a command that is shown to a person."""
    given = (("--ray-address", cluster.address), ("--ray-env", cluster.runtime_env), ("--hardware", cluster.hardware))
    return ["--executor", "ray", *(text for option, value in given if value for text in (option, str(value)))]
