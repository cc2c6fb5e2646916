"""``python -m seqmoe.runtime.cuda.checks NAME``: one check on the first GPU; its findings as a JSON line."""

from __future__ import annotations

import argparse
import json
import sys

from seqmoe.core.driver import CudaError, CudaMissingError
from seqmoe.runtime.cuda.checks import CheckFailed
from seqmoe.runtime.cuda.checks.registry import CHECKS
from seqmoe.runtime.cuda.device import Device, GpuDevice
from seqmoe.spec.errors import InputError


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    """0 with the findings on stdout, 1 with a sentence on stderr where a check fails, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m seqmoe.runtime.cuda.checks", description=__doc__)
    parser.add_argument("name", choices=sorted(CHECKS))
    name = parser.parse_args(arguments).name
    try:
        print(json.dumps(CHECKS[name](device or GpuDevice())))
    except (InputError, CudaError, CudaMissingError) as error:
        print(error, file=sys.stderr)
        return 2
    except CheckFailed as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
