"""Which device a model's YAML gives to a worker: deviceType and deviceIds."""

import logging
from typing import Any, Dict, List, Tuple

from continuo._entry import HandlerError

DRIVER = "libcuda.so.1"

logger = logging.getLogger(__name__)


def count_devices() -> Tuple[int, str]:
    """How many CUDA devices the driver has, which follows CUDA_VISIBLE_DEVICES; if none, also why."""
    import ctypes  # models without a GPU need not wait for it

    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        return 0, f"CUDA's driver cannot be opened: {error}"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        return 0, f"CUDA's driver answers with error {status}"
    return count.value, "CUDA's driver finds none"


def in_turn(ids: List[Any], worker: int) -> Any:
    """Which of these devices a worker takes; worker 0 is the process from which workers are forked."""
    return ids[max(worker - 1, 0) % len(ids)]


def device_of(config: Dict[str, Any], worker: int) -> str:
    """Returns "cpu", or "cuda:N". Workers take the devices of deviceIds, or all devices, in turn. A handler can run
    without a device, so a machine that has none gets a warning."""
    if config.get("deviceType") != "gpu":
        return "cpu"
    count, why = count_devices()
    if count == 0:
        logger.warning("deviceType is gpu, but there is no CUDA device, so the handler gets none: %s", why)
        return "cpu"
    ids = config.get("deviceIds")
    if not isinstance(ids, list) or not ids:
        ids = list(range(count))
    device = in_turn(ids, worker)
    if not isinstance(device, int) or not 0 <= device < count:
        raise HandlerError(f"deviceIds: there is no device {device!r}; the devices of this machine are 0 to {count - 1}")
    return f"cuda:{device}"
