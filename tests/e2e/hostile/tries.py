"""Attacks by a rank, by root on a worker and by an outsider in their subnet, each with the expected rejection."""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import Final


@dataclasses.dataclass(frozen=True, kw_only=True)
class Try:
    """One attack on a node."""

    what: str
    script: str
    """Script for `sh`, with variables for the attacker's knowledge: MASTER, OTHER, MASTER_ID and so on."""
    refusal: str
    """A pattern for the expected answer; a successful attack also prints SUCCEEDED."""
    logged: str = ""
    """A pattern for the expected log line, or "" if nothing is logged."""

    @property
    def name(self) -> str:
        """Return a test id for the attack."""
        return re.sub(r"[^a-z0-9]+", "-", self.what.lower()).strip("-")


def login(user: str, address: str, words: str = "") -> str:
    """Return a command that logs in with any available key and accepts any host key."""
    known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    return f"ssh -o BatchMode=yes {known} -o ConnectTimeout=5 {words} {user}@{address} true"


def connect(address: str, port: int) -> Try:
    """Return an attempt to reach a port: a dropped packet gets no answer, a refused one has reached its node."""
    script = f"timeout 4 bash -c '</dev/tcp/{address}/{port}' || {{ echo status $?; false; }}"
    return Try(what=f"reach port {port} of {address.strip('$')}", script=script, refusal="^status 124$")


def append(what: str, path: str, line: str = "x") -> Try:
    return Try(
        what=what, script=f"echo {shlex.quote(line)} >>{path}", refusal=f"cannot create {path}: Permission denied"
    )


def call(words: str, action: str, refusal: str = "AccessDenied") -> Try:
    """Return the AWS CLI call that requires an action; `refusal`: its error code."""
    service, operation = words.split()[:2]
    return Try(
        what=f"{service} {operation}{' of the master' if 'MASTER_ID' in words else ''}",
        script=f"aws {words}",
        refusal=rf"\({refusal}\w*\).*is not authorized to perform: {action} ",
        logged=f"/$SELF_ID is not authorized to perform: {action} ",
    )


DENIED: Final = "Permission denied"
NOT_PERMITTED: Final = "[Oo]peration not permitted"
DROPPED: Final = "Connection timed out"
NO_KEY: Final = r"Permission denied \(publickey\)"
PYTHON: Final = "/opt/deepcdk/bin/python3 -c"

RANK: Final = (
    Try(what="read the host's private key", script="cat /etc/ssh/ssh_host_ed25519_key", refusal=DENIED),
    Try(what="read the hashes of passwords", script="cat /etc/shadow", refusal=DENIED),
    Try(what="list the login user's keys", script="ls /home/$USER_NAME/.ssh", refusal=DENIED),
    Try(what="read the variables of a process of root", script="cat /proc/$WATCHER/environ", refusal=DENIED),
    Try(what="end the watcher of the registry", script="kill -9 $WATCHER", refusal=NOT_PERMITTED),
    append("admit a key as the user of ranks", "/home/deepcdk-rank/.ssh/authorized_keys"),
    append("change what its shell reads", "/home/deepcdk-rank/.bashrc"),
    append("change what every login reads", "/etc/profile.d/deeplearning.sh"),
    append("run at each boot of its node", "/var/lib/cloud/scripts/per-boot/deepcdk-registry"),
    append("run at the boot of the master", "/mnt/efs/runs/.at-boot"),
    append("name hosts", "/etc/hosts", "10.0.64.99 deeplearning-master"),
    append("name known hosts", "/etc/ssh/ssh_known_hosts"),
    append("register a node", "/mnt/efs/.cluster/nodes/deeplearning-worker9"),
    append("change the list of nodes", "/mnt/efs/.cluster/list"),
    append("put a key in place of the master's", "/mnt/efs/.cluster/master.pub"),
    append("push a tree", "/mnt/efs/payloads/new"),
    append("write on the console", "/dev/console"),
    Try(what="replace the script of the registry", script="mv /bin/sh /opt/deepcdk/bin/registry", refusal=DENIED),
    Try(what="become root", script="setpriv --reuid 0 id", refusal="setresuid failed: Operation not permitted"),
    Try(
        what="read packets of the network",
        script=f"{PYTHON} 'import socket; socket.socket(17, 3)'",
        refusal="Errno 1]",
    ),
    Try(
        what="answer in place of sshd",
        script=f"{PYTHON} 'import socket; socket.create_server((\"\", 23))'",
        refusal="Errno 13]",
    ),
    Try(what="give its node another address", script="ip address add $MASTER/32 dev lo", refusal=NOT_PERMITTED),
    Try(what="log in on the master as a rank", script=login("deepcdk-rank", "$MASTER"), refusal=DROPPED),
    Try(what="log in on a worker as a rank", script=login("deepcdk-rank", "$OTHER"), refusal="Connection refused"),
)
"""As the ranks' user without new privileges, like a rank."""

ROOT: Final = (
    Try(what="log in on the master", script=login("$USER_NAME", "$MASTER"), refusal=DROPPED),
    Try(
        what="log in on a worker",
        script=login("$USER_NAME", "$OTHER"),
        refusal=NO_KEY,
        logged="authenticating user $USER_NAME $SELF ",
    ),
    Try(
        what="log in on a worker by its own host key",
        script=login("$USER_NAME", "$OTHER", "-i /etc/ssh/ssh_host_ed25519_key"),
        refusal=NO_KEY,
        logged="authenticating user $USER_NAME $SELF ",
    ),
    Try(
        what="log in on a worker as its root",
        script=login("root", "$OTHER"),
        refusal=NO_KEY,
        logged="authenticating user root $SELF ",
    ),
    *(connect("$MASTER", port) for port in (22, 111, 1023)),
    Try(
        what="ask the metadata service without a session",
        script="curl -sS -f -m 5 http://169.254.169.254/latest/meta-data/instance-id",
        refusal="error: 401",
    ),
)
"""As root of a worker, on the network."""
AS_MASTER: Final = (
    Try(
        what="log in on a worker from the master's address",
        script=f"ip address add $MASTER/32 dev lo; {login('$USER_NAME', '$OTHER', '-b $MASTER')}; status=$?; "
        "ip address del $MASTER/32 dev lo; [ $status = 0 ]",
        refusal=DROPPED,
    ),
)
"""As root of a worker that temporarily takes another address: no other attack runs at the same time."""

EC2: Final = "UnauthorizedOperation"
ROLE: Final = (
    call('ssm put-parameter --name "$KEY" --overwrite --value "ssh-ed25519 AAAA 10.0.0.9"', "ssm:PutParameter"),
    call('ssm delete-parameter --name "$KEY"', "ssm:DeleteParameter"),
    call("ssm get-parameters-by-path --path /deepcdk", "ssm:GetParametersByPath"),
    call('ssm start-session --target "$MASTER_ID"', "ssm:StartSession"),
    call(
        'ssm send-command --document-name AWS-RunShellScript --instance-ids "$OTHER_ID"',
        "ssm:SendCommand",
    ),
    call('ec2 get-console-output --instance-id "$OTHER_ID"', "ec2:GetConsoleOutput", EC2),
    call("ec2 describe-instances", "ec2:DescribeInstances", EC2),
    call('ec2 terminate-instances --instance-ids "$MASTER_ID"', "ec2:TerminateInstances", EC2),
    call('ec2 reboot-instances --instance-ids "$OTHER_ID"', "ec2:RebootInstances", EC2),
    call('ec2 create-tags --resources "$SELF_ID" --tags Key=deepcdk:role,Value=master', "ec2:CreateTags", EC2),
    call("autoscaling describe-auto-scaling-groups", "autoscaling:DescribeAutoScalingGroups"),
    call(
        'autoscaling set-desired-capacity --auto-scaling-group-name "$GROUP" --desired-capacity 9',
        "autoscaling:SetDesiredCapacity",
    ),
    call('s3api list-objects-v2 --bucket "$BUCKET"', "s3:ListBucket"),
    call('s3api put-object --bucket "$BUCKET" --key runs/red-team', "s3:PutObject"),
    call('s3api delete-object --bucket "$BUCKET" --key runs/red-team', "s3:DeleteObject"),
    call("cloudformation describe-stacks --stack-name deepcdk", "cloudformation:DescribeStacks"),
    call("cloudformation delete-stack --stack-name deepcdk", "cloudformation:DeleteStack"),
    call("iam list-roles", "iam:ListRoles"),
    call("iam create-access-key --user-name red-team", "iam:CreateAccessKey"),
)
"""With the role of a worker, which every process on it can request."""

_NODES: Final = "/mnt/efs/.cluster/nodes/deeplearning-worker"
KEY: Final = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'REDTEAM':A<43}"
"""A valid key that belongs to no node."""
FACTS: Final = f"1,eth0,us-east-1a,0,x86_64,{KEY}"
REGISTRY: Final = (
    Try(
        what="invent an instance",
        script=f"echo 'i-0123456789abcdef0,10.0.64.99,{FACTS}' >{_NODES}31",
        refusal="",
        logged="cannot read the console of i-0123456789abcdef0",
    ),
    Try(
        what="register the master's instance as a worker",
        script=f'echo "$MASTER_ID,10.0.64.99,{FACTS}" >{_NODES}32',
        refusal="",
        logged="cannot read the console of $MASTER_ID",
    ),
    Try(
        what="register another worker's instance with a key of one's own",
        script=f'echo "$OTHER_ID,10.0.64.99,{FACTS}" >{_NODES}33',
        refusal="",
        logged="worker33 is left out: its host key in the registry differs from its console",
    ),
    Try(
        what="state a command as an address",
        script=f'echo "$SELF_ID,10.0.64.99\\$(id),{FACTS}" >{_NODES}34',
        refusal="",
        logged="worker34 is left out: its ip in the registry is invalid",
    ),
    Try(
        what="give an entry more facts than there are",
        script=f'echo "$SELF_ID,10.0.64.99,{FACTS},more" >{_NODES}35',
        refusal="",
        logged="worker35 is left out: its host_key in the registry is invalid",
    ),
    Try(
        what="register megabytes",
        script=f"head -c 9999999 /dev/zero | tr '\\0' 1 >{_NODES}36",
        refusal="",
        logged="worker36 is left out: its instance-id in the registry is invalid",
    ),
    Try(
        what="register under a name that is none",
        script=f'echo "$SELF_ID,10.0.64.99,{FACTS}" >{_NODES}-red-team',
        refusal="",
        logged="invalid node name in the registry: deeplearning-worker-red-team",
    ),
    Try(what="let reading an entry wait for ever", script=f"mkfifo {_NODES}37", refusal=""),
    Try(
        what="lead an entry to a secret",
        script=f"ln -sfn /etc/shadow {_NODES}38",
        refusal="",
    ),
    Try(what="lead the list to a secret", script="ln -sfn /etc/shadow /mnt/efs/.cluster/list", refusal=""),
    Try(
        what="put a key in place of the master's",
        script=f"echo '{KEY} 10.0.64.99' >/mnt/efs/.cluster/master.pub",
        refusal="",
        logged="ignoring the registry's master.pub: it is not the master's key in AWS",
    ),
)
"""As root of a worker, which can write the whole registry: only the effect on other nodes matters."""

STRANGER: Final = (
    *(connect("$MASTER", port) for port in (22, 1024, 8080, 40000)),
    *(connect("$OTHER", port) for port in (22, 1024, 40000)),
    connect("$FILES", 2049),
    Try(
        what="ask who it is in the account",
        script="aws sts get-caller-identity",
        refusal="Unable to locate credentials",
    ),
)
"""As root of an instance in the workers' subnet, outside the cluster's security groups and without a role."""
