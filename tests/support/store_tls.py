"""A redis-server with TLS of a test's own, and the certificates for it."""

import contextlib
import shutil
import subprocess

import pytest

from ports import free_port
from shared_store import SharedStore
from waiting import limit

NAME = "store.example"  # what the server's certificate is for


def _openssl(folder, *args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=limit(60), cwd=folder)


class Authority:
    """Signs certificates. Files are in `folder`."""

    def __init__(self, folder, name="ca"):
        self.folder = folder
        self.name = name
        folder.mkdir(exist_ok=True)
        _openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-days", 3, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        self.file = folder / f"{name}.pem"

    def sign(self, name, subject=NAME, days=3):
        """Returns the files of a new certificate and its key. With `days` below 0 it has expired."""
        times = ["-days", days]
        if days < 0 and b"-not_after" in subprocess.run(["openssl", "x509", "-help"], capture_output=True,
                                                        check=False).stderr:  # such a newer one refuses -days -1
            times = ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"]
        _openssl(self.folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{subject}\n", encoding="ascii")
        _openssl(self.folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.name}.pem", "-CAkey",
                 f"{self.name}.key", "-CAcreateserial", *times, "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


def certificate_settings(authority, days=3):
    """Signs a server's certificate, and returns the settings of redis-server for it."""
    certificate, key = authority.sign("server", days=days)
    return ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file",
            str(authority.file))


class TlsStore(SharedStore):
    """It has a port without TLS, too, for the test's own commands."""

    def __init__(self, folder, transcript, days=3, clients="no", authority=None):
        super().__init__(folder, transcript)
        self.authority = authority or Authority(folder / "certificates")
        self.tls_port = free_port()
        self.settings = ("--tls-port", str(self.tls_port), "--tls-auth-clients", clients,
                         *certificate_settings(self.authority, days))

    def tls_url(self, **query):
        """ca and name have defaults. A parameter that is None is not in the URL."""
        query = {"ca": self.authority.file, "name": NAME, **query}
        text = "&".join(f"{key}={value}" for key, value in query.items() if value is not None)
        return f"rediss://127.0.0.1:{self.tls_port}/test" + (f"?{text}" if text else "")


@contextlib.contextmanager
def tls_store_in(folder, transcript, **options):
    for program in ("redis-server", "openssl"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} (scripts/setup.sh installs it)")
    made = TlsStore(folder / "tls-store", transcript, **options)
    try:
        yield made.start()
    finally:
        made.destroy()
