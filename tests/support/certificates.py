"""Certificates of clients, made by openssl: an authority that signs them, and what clients do with them."""

import datetime
import http.client
import json
import ssl
import subprocess

import grpc

from waiting import limit

CONFIG = """[ca]
default_ca = only
[only]
dir = {folder}
database = {folder}/index.txt
new_certs_dir = {folder}
default_md = sha256
rand_serial = yes
unique_subject = no
policy = any
[any]
organizationName = optional
commonName = optional
"""
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=limit(60))


def utc(seconds):
    """Returns the time that many `seconds` from now, as openssl wants it."""
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y%m%d%H%M%SZ")


class Authority:
    """Signs certificates. `cert` is the file with its own one."""

    def __init__(self, folder, name="ca"):
        self.folder = folder / f"authority-{name}"
        self.folder.mkdir()
        self.cert, self.key = self.folder / "ca.pem", self.folder / "ca.key"
        openssl("req", "-x509", *CURVE, "-days", 2, "-keyout", self.key, "-out", self.cert, "-subj", f"/CN={name}")
        (self.folder / "index.txt").touch()
        self.config = self.folder / "ca.cnf"
        self.config.write_text(CONFIG.format(folder=self.folder))

    def issue(self, name, extensions=(), subject=None, begins=-3600, ends=86400):
        """Returns a new pair of files. `extensions`: lines such as "subjectAltName=DNS:a.example"."""
        made = Identity(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, extra = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extra.write_text("\n".join(["basicConstraints=CA:FALSE", *extensions, ""]))
        openssl("req", *CURVE, "-keyout", made.key, "-out", request, "-subj", subject or f"/CN={name}")
        openssl("ca", "-batch", "-config", self.config, "-in", request, "-out", made.cert, "-cert", self.cert,
                "-keyfile", self.key, "-startdate", utc(begins), "-enddate", utc(ends), "-extfile", extra, "-notext")
        return made


class Identity:
    """The files of a certificate and its private key."""

    def __init__(self, cert, key):
        self.cert, self.key = cert, key


def context(server_cert, own=None):
    """Returns what a client of HTTP needs: the server's certificate, and perhaps one of its own."""
    made = ssl.create_default_context(cafile=server_cert)
    if own:
        made.load_cert_chain(own.cert, own.key)
    return made


def channel(server_cert, own=None):
    return grpc.ssl_channel_credentials(server_cert.read_bytes(), own and own.key.read_bytes(),
                                        own and own.cert.read_bytes())


class Connection:
    """One connection over https, which is never opened again by itself."""

    def __init__(self, url, tls):
        self._connection = http.client.HTTPSConnection(url.partition("//")[2].rstrip("/"), timeout=limit(20), context=tls)
        self._connection.connect()
        self._connection.auto_open = 0
        self.headers = None  # of the last answer

    def ask(self, method, path, body=None, headers=None):
        """Returns the status, the error's word and the text."""
        self._connection.request(method, path, body=body, headers=headers or {})
        answer = self._connection.getresponse()
        self.headers = answer.headers
        return answer.status, answer.getheader("Continuo-Error"), answer.read().decode()

    def close(self):
        self._connection.close()


def write_keys(path, *keys):
    path.write_text(json.dumps({"keys": list(keys)}))
