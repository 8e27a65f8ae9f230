# Read the consoles of instances as this node's role: consoles REGION DIR ID... writes each to DIR/ID.console.
#
# One process reads them all, because an AWS CLI for each would take ten times the processor time. An error is one line
# in DIR/ID.errors. If an instance does not support the latest output, DIR/ID.xen is created.
import base64
import hashlib
import hmac
import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

region, folder = sys.argv[1:3]
token = ""


def fetch(request: Request) -> str:
    return str(urlopen(request, timeout=20).read().decode())


def metadata(path: str, method: str = "GET") -> str:
    url = os.environ.get("DEEPCDK_METADATA", "http://169.254.169.254") + "/latest/" + path
    name = "X-aws-ec2-metadata-token" + ("" if token else "-ttl-seconds")
    return fetch(Request(url, headers={name: token or "60"}, method=method))


token = metadata("api/token", "PUT")
url = os.environ.get("AWS_ENDPOINT_URL") or f"https://ec2.{region}.{metadata('meta-data/services/domain')}"
roles = "meta-data/iam/security-credentials/"
role = json.loads(metadata(roles + metadata(roles)))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# The request is signed with Signature Version 4. An error's text begins with its code.
def ask(query: str) -> str:
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    headers = {"host": url.split("/")[2], "x-amz-date": now, "x-amz-security-token": role["Token"]}
    names, lines = ";".join(headers), "".join(f"{name}:{value}\n" for name, value in headers.items())
    scope, key = f"{now[:8]}/{region}/ec2/aws4_request", b"AWS4" + role["SecretAccessKey"].encode()
    request = sha256(f"POST\n/\n\n{lines}\n{names}\n{sha256(query)}")
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{request}"):
        key = hmac.digest(key, part.encode(), "sha256")
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={role['AccessKeyId']}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    )
    try:
        return fetch(Request(url, query.encode(), headers))
    except HTTPError as error:
        found = re.findall("<(?:Code|Message)>([^<]+)", str(error.read()))
        raise OSError(": ".join(found) or error) from None


def read(instance: str) -> None:
    query = f"Action=GetConsoleOutput&InstanceId={instance}&Version=2016-11-15"
    file = Path(folder, f"{instance}.console")
    try:
        try:
            answer = ask(f"{query}&Latest=true")
        except OSError as error:
            # An instance on Xen. Its output arrives late.
            if not re.match("UnsupportedOperation|InvalidParameterCombination", str(error)):
                raise
            file.with_suffix(".xen").touch()
            answer = ask(query)
        found = re.search("<output>([^<]*)", answer)
        file.write_bytes(base64.b64decode(found[1]).replace(b"\0", b"") if found else b"")
    except OSError as error:
        file.with_suffix(".errors").write_text(f"{error}\n")


# EC2 allows 100 concurrent calls and adds 20 per second.
list(ThreadPoolExecutor(16).map(read, sys.argv[3:]))
