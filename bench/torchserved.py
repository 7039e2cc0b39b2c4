"""TorchServe itself, for comparisons: one model, all its logs off.

Needs a Python with torch and torchserve, and Java 17. One thread."""

import http.client
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import served

#: TorchServe knows its headers by these very letters; a name with hyphens means nothing to it.
SEQUENCE_HEADER = "ts_request_sequence_id"
SILENT = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="error"><Loggers><Root level="off"/></Loggers></Configuration>
"""
PROPERTIES = """inference_address=http://127.0.0.1:{}
management_address=http://127.0.0.1:{}
metrics_address=http://127.0.0.1:{}
grpc_inference_port={}
grpc_management_port={}
default_workers_per_model=1
number_of_netty_threads=1
"""


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class TorchServed:
    """Runs TorchServe in a `with` block. `bin_folder` is the folder with torchserve and python.

    `handler` is the handler's text, and `script` a TorchScript file for it, or None.
    """

    def __init__(self, bin_folder, name, handler, script, config):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-torchserve-"))
        files = {"handler.py": handler, "model-config.yaml": config, "log4j2.xml": SILENT}
        ports = free_ports(5)
        files["config.properties"] = PROPERTIES.format(*ports)
        for file, text in files.items():
            (self.folder / file).write_text(text, encoding="utf-8")
        environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "LOG_LOCATION": str(self.folder),
                                    "METRICS_LOCATION": str(self.folder), "TEMP": str(self.folder)}
        archiver = bin_folder / "torch-model-archiver"
        if not archiver.exists():  # ours makes the same archives
            archiver = served.BIN / "torch-model-archiver"
        subprocess.run([archiver, "--model-name", name, "--version", "1.0",
                        *(["--serialized-file", script] if script else []), "--handler", self.folder / "handler.py",
                        "--config-file", self.folder / "model-config.yaml", "--export-path", self.folder],
                       check=True, stdout=subprocess.DEVNULL, env=environment)
        command = [bin_folder / "torchserve", "--foreground", "--ncs", "--disable-token-auth", "--enable-model-api",
                   "--model-store", self.folder, "--models", f"{name}={name}.mar",
                   "--ts-config", self.folder / "config.properties", "--log-config", self.folder / "log4j2.xml"]
        self.output = open(self.folder / "output", "wb")  # noqa: SIM115 - closed with the server
        self.began = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.output, stderr=self.output,
                                        cwd=self.folder, env=environment, start_new_session=True)
        self.inference = f"http://127.0.0.1:{ports[0]}"
        self._wait(ports[0], f"/predictions/{name}")

    def _wait(self, port, path, seconds=90):
        """Waits for a first answer, which shows that the worker has loaded the model."""
        end = time.monotonic() + seconds
        while not self._answers(port, path):
            if time.monotonic() > end or self.process.poll() is not None:
                words = (self.folder / "output").read_text(errors="replace")[-2000:]
                self.close()
                raise SystemExit(f"TorchServe did not start: {words}")
            time.sleep(0.02)

    @staticmethod
    def _answers(port, path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("POST", path, b"5", {SEQUENCE_HEADER: "first"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # Java and the worker that it has started
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
