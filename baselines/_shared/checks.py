"""What a worker finds out before it starts: is the system installed, is there a GPU, which family is the model."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

from baselines._shared.protocol import Refusal, Request


def require_installed(folder: str, module: str) -> None:
    """Refuse as not_installed, with the command that installs it, unless ``module`` can be found."""
    if importlib.util.find_spec(module) is None:
        session = f"nox -s baseline-{folder.replace('_', '-')}"
        raise Refusal("not_installed", f"package {module!r} is not in this environment", session)


def require_cuda(request: Request, system: str) -> None:
    """Refuse as unsupported unless the request is for CUDA and the driver reports a device."""
    if request.device != "cuda":
        raise Refusal(
            "unsupported",
            f"{system} needs an NVIDIA GPU; it has no CPU-only mode",
            "run this cell on a host with an NVIDIA GPU",
        )
    if cuda_devices() == 0:
        raise Refusal("unsupported", "the NVIDIA driver reports no GPU on this host", "nvidia-smi must list a GPU")


def cuda_devices() -> int:
    """Number of devices that the CUDA driver reports; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def device_memory() -> int:
    """Bytes of memory of the first CUDA device, as the driver reports them."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, size = ctypes.c_int(0), ctypes.c_size_t(0)
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
    if failed or driver.cuDeviceTotalMem_v2(ctypes.byref(size), device):
        raise Refusal("crash", "the CUDA driver does not tell the device's memory")
    return size.value


def require_family(request: Request, families: tuple[str, ...], system: str) -> str:
    """The ``model_type`` of the checkpoint folder; refused as unsupported if it is not among ``families``."""
    path = Path(request.model_path) / "config.json"
    if request.model_format != "hf" or not path.is_file():
        raise Refusal(
            "invalid",
            f"{request.model_path}: {system} loads a Hugging Face checkpoint folder",
            "give a local folder with config.json",
        )
    family = str(json.loads(path.read_text(encoding="utf-8")).get("model_type"))
    if family not in families:
        raise Refusal("unsupported", f"{system} does not serve {family!r} models", f"it serves: {', '.join(families)}")
    return family


def weight_format(model: Path) -> str:
    """Storage of the checkpoint's experts: bf16, fp8, mxfp4, or what quantization_config calls it."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    quantization = config.get("quantization_config")
    return str(quantization["quant_method"]) if quantization else "bf16"


def expert_bytes(model: Path) -> int:
    """Bytes of all routed experts of a safetensors checkpoint folder, from its files' headers."""
    return sum(end - start for start, end in (tensor["data_offsets"] for tensor in _experts(model)))


def expert_dtype(model: Path) -> str:
    """How the experts' tensors are stored, in safetensors' words: BF16, F32, F8_E4M3, ..."""
    return str(_experts(model)[0]["dtype"])


def end_of_text(model: Path) -> list[int]:
    """The ids that end a generation, from generation_config.json or config.json."""
    for name in ("generation_config.json", "config.json"):
        if (model / name).is_file():
            ends = json.loads((model / name).read_text(encoding="utf-8")).get("eos_token_id")
            if ends is not None:
                return list(ends) if isinstance(ends, list) else [int(ends)]
    return []


def _experts(model: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        found += [tensor for name, tensor in header.items() if ".experts." in name]
    if not found:
        raise Refusal("invalid", f"{model}: no safetensors file there has experts")
    return found


def version(*distributions: str) -> str:
    """Name and version of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
