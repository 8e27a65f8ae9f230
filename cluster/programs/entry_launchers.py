"""The launchers that an entry starts itself, and whether their flags let the nodes join."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.spec.launchers import MASTER_PORT
from cluster.programs.entry_starts import FABRIC_FLAGS, LAUNCHERS, TORCHRUN_FLAGS, find_file, short_text
from cluster.programs.localhost_check import LOCALHOST

_ADDRESSES: Final = {
    **{name: ("master_addr", "rdzv_endpoint") for name, flags in LAUNCHERS.items() if flags == TORCHRUN_FLAGS},
    **{name: ("main_address",) for name, flags in LAUNCHERS.items() if flags == FABRIC_FLAGS},
}
"""Flags for the rendezvous address, for launchers that use localhost by default."""
POSITION_FLAGS: Final = ("node_rank", "machine_rank")
_GPU_TYPES: Final = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
_GPU_FLAGS: Final = {"multi_gpu", "use_fsdp", "use_deepspeed", "use_megatron_lm"}
"""Types in accelerate's configuration, and flags, for which accelerate starts torchrun."""


def launcher_settings(words: Sequence[str], directory: Path) -> dict[str, str]:
    """Parse a launcher's flags: return their values by name, without leading dashes and with `_` for `-`.

    `words` follow the launcher's name. Only flags before the program count; a flag without a value has the value "".
    Values in the file of --config_file, in `directory`, are used for settings that no flag sets. If there is no such
    file, num_machines and machine_rank count as set. A variable that may contain more flags is stored under "$".
    """
    found: dict[str, str] = {}
    words = [each for word in words for each in (word.split("=", 1) if word.startswith("--") else [word])]
    for index, word in enumerate(words):
        if word.endswith(".py") or word in ("-m", "--module"):
            break
        if word.startswith("--") or word == "-H":
            following = next(iter(words[index + 1 :]), "")
            found[word.strip("-").replace("-", "_")] = "" if following.startswith("--") else following
        elif word.startswith("$") and not (index and words[index - 1].startswith("--")):
            found["$"] = word  # it may contain further flags
    if (config := found.get("config_file")) and (file := find_file(config, [directory])):
        lines = re.findall(r"^(\w+):[ \t]*['\"]?([^'\"\s#]*)", short_text(file), re.MULTILINE)
        found = {name: value for name, value in lines if value} | found
    elif config:  # the file is on the nodes
        found |= dict.fromkeys(("num_machines", "machine_rank"), found["config_file"])
    return found


def reason_alone(name: str, settings: Mapping[str, str]) -> str:
    """Return why the ranks that a launcher starts with these settings do not join the ranks on other nodes.

    Returns "" if the settings show no such reason. `name` is a key of LAUNCHERS, `settings` comes from
    `launcher_settings`.
    """
    counts, places = LAUNCHERS[name]
    given = [settings[flag] for flag in counts if flag in settings]
    is_one = any(re.fullmatch(r"1(:1)?", value) for value in given)
    is_whole = "$" not in settings
    lacks = not given or bool(places and not settings.keys() & set(places))
    if is_one or "standalone" in settings or (lacks and is_whole):
        return f"{name} in the entry starts the ranks of one node only, separately on each node"
    for flag, value in settings.items():
        if flag in POSITION_FLAGS and value.isdecimal() and settings.get("rdzv_backend", "static") == "static":
            return f"{name} in the entry gives each node the {flag} {value} instead of {{node_rank}}"
        if LOCALHOST.fullmatch(value):
            return f"{name} in the entry lets each node connect to itself at {value} instead of {{master_addr}}"
    uses_gpus = settings.get("distributed_type") in _GPU_TYPES or settings.keys() & _GPU_FLAGS
    if name.startswith("accelerate") and is_whole and uses_gpus and "main_process_ip" not in settings:
        return f"{name} in the entry has no --main_process_ip, so the nodes do not find each other"
    addresses = _ADDRESSES.get(name, ())
    if settings.get("rdzv_backend") == "c10d":
        addresses = tuple(flag for flag in addresses if flag != "master_addr")  # torchrun does not read it then
    if addresses and is_whole and not settings.keys() & set(addresses):
        flag = addresses[0].replace("_", "-")
        return f"{name} in the entry has no --{flag}, so each node connects only to itself at localhost"
    return ""


def has_first_port(settings: Mapping[str, str]) -> bool:
    """Return whether a torchrun in the entry would listen at the port of the torchrun that starts the entry.

    `settings` come from `launcher_settings`. Returns False for --standalone, and if a variable may contain further
    flags.
    """
    port = settings.get("master_port") or settings.get("rdzv_endpoint", "").rpartition(":")[2]
    is_same = port in ("", str(MASTER_PORT), "{master_port}") or "MASTER_PORT" in port
    return is_same and not settings.keys() & {"standalone", "$"}


def names_device(settings: Mapping[str, str]) -> bool:
    """Return whether the settings of `accelerate launch` choose CPUs, or several GPUs.

    Without such a setting, ranks on CPUs do not join. `settings` come from `launcher_settings`.
    """
    return "cpu" in settings or "multi_gpu" in settings or settings.get("use_cpu", "").lower() in ("true", "yes")
