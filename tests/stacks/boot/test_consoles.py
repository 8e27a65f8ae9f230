"""The program that reads consoles on the master: its signature, its answers and its errors, over real HTTP."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from stacks.user_data import SCRIPTS, installed

ROLE = '{"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "a/secret+", "Token": "token/with+signs=="}'
KEYS = "-----BEGIN SSH HOST KEY KEYS-----\n"
ERROR = "<Response><Errors><Error><Code>{}</Code><Message>the reason</Message></Error></Errors></Response>"
XEN = "i-000000000000000xe"


class Cloud(ThreadingHTTPServer):
    """The metadata service and EC2's API. It checks each signature with botocore."""

    daemon_threads = True
    request_queue_size = 64  # the default of 5 resets connections while the machine is busy
    refused: str = ""
    """The code of the error for each call; "" for none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.queries: list[str] = []
        self.lock = threading.Lock()
        self.now = self.peak = 0


class Handler(BaseHTTPRequestHandler):
    server: Cloud

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_PUT(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer("the token")

    def do_GET(self) -> None:
        role = "/latest/meta-data/iam/security-credentials/"
        pages = {role: "the-role", f"{role}the-role": ROLE, "/latest/meta-data/services/domain": "amazonaws.com"}
        self._answer(pages[self.path] if self.headers["X-aws-ec2-metadata-token"] == "the token" else "", 200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        with self.server.lock:
            self.server.queries.append(body)
            self.server.now += 1
            self.server.peak = max(self.server.peak, self.server.now)
        time.sleep(0.05)
        with self.server.lock:
            self.server.now -= 1  # before the answer, after which the client may begin another request
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        instance, latest = fields["InstanceId"], "Latest" in fields
        assert self.headers["content-type"] == "application/x-www-form-urlencoded"
        if self.headers["authorization"] != self._expected(body):
            self._answer(ERROR.format("SignatureDoesNotMatch"), 403)
        elif self.server.refused:
            self._answer(ERROR.format(self.server.refused), 400)
        elif instance == XEN and latest:
            self._answer(ERROR.format("UnsupportedOperation"), 400)
        elif instance == "i-empty":
            self._answer("<GetConsoleOutputResponse><instanceId>i-empty</instanceId></GetConsoleOutputResponse>")
        else:
            output = base64.encodebytes(f"{KEYS}\0{instance}\n".encode() * 9).decode()
            self._answer(f"<GetConsoleOutputResponse><output>{output}</output></GetConsoleOutputResponse>")

    def _expected(self, body: str) -> str:
        """Return botocore's `authorization` for this request."""
        request = AWSRequest(method="POST", url=self.server.url, data=body, headers={"host": self.headers["host"]})
        date = self.headers["x-amz-date"]
        request.context["timestamp"] = date
        request.headers["x-amz-date"] = date
        request.headers["x-amz-security-token"] = self.headers["x-amz-security-token"]
        auth = SigV4Auth(Credentials("ASIAEXAMPLE", "a/secret+", "token/with+signs=="), "ec2", "us-east-1")
        text = auth.string_to_sign(request, auth.canonical_request(request))
        signed = auth.signed_headers(auth.headers_to_sign(request))
        scope = auth.scope(request)
        return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={auth.signature(text, request)}"

    def _answer(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    server = Cloud()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def read(cloud: Cloud, folder: Path, *instances: str) -> subprocess.CompletedProcess[str]:
    """Read consoles as the master does, with the script as it is installed there."""
    script = folder / "consoles"
    script.write_text(installed("consoles"))
    (folder / "keys").mkdir(exist_ok=True)
    environment = {"DEEPCDK_METADATA": cloud.url, "AWS_ENDPOINT_URL": cloud.url}
    command = [sys.executable, "-IS", str(script), "us-east-1", str(folder / "keys"), *instances]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def found(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (folder / "keys").iterdir()}


def test_each_console_is_written_to_a_file_without_nuls(cloud: Cloud, tmp_path: Path) -> None:
    done = read(cloud, tmp_path, "i-00000001", "i-00000002", "i-empty")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = {f"i-0000000{n}.console": f"{KEYS}i-0000000{n}\n" * 9 for n in (1, 2)}
    assert found(tmp_path) == {**text, "i-empty.console": ""}


def test_one_process_reads_all_consoles_and_at_most_16_at_once(cloud: Cloud, tmp_path: Path) -> None:
    instances = [f"i-{number:08x}" for number in range(64)]
    assert read(cloud, tmp_path, *instances).stderr == ""
    assert sorted(found(tmp_path)) == [f"{instance}.console" for instance in instances]
    assert 2 <= cloud.peak <= 16
    assert len(cloud.queries) == 64


def test_xen_console_is_read_without_latest_option(cloud: Cloud, tmp_path: Path) -> None:
    read(cloud, tmp_path, XEN)
    assert found(tmp_path) == {f"{XEN}.console": f"{KEYS}{XEN}\n" * 9, f"{XEN}.xen": ""}
    assert ["Latest" in query for query in cloud.queries] == [True, False]


def test_rejected_call_writes_one_line_with_error_of_aws(cloud: Cloud, tmp_path: Path) -> None:
    cloud.refused = "UnauthorizedOperation"
    assert read(cloud, tmp_path, "i-00000001").returncode == 0
    assert found(tmp_path) == {"i-00000001.errors": "UnauthorizedOperation: the reason\n"}


def test_unreachable_api_is_reported_for_each_console(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "consoles").write_text(installed("consoles"))
    done = subprocess.run(
        [sys.executable, "-IS", str(tmp_path / "consoles"), "us-east-1", str(tmp_path / "keys"), "i-00000001"],
        env={"DEEPCDK_METADATA": cloud.url, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        check=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Connection refused" in found(tmp_path)["i-00000001.errors"]


def test_installed_script_has_no_comments() -> None:
    source = (SCRIPTS / "consoles.py").read_text(encoding="utf-8")
    assert compile(installed("consoles"), "consoles", "exec")
    assert len(installed("consoles")) < 0.9 * len(source)
    assert "#" not in installed("consoles")
