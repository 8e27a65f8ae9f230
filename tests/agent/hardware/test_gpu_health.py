"""GPU health: which errors in the kernel's log and in nvidia-smi's output require another node.

The lines are in the format of NVIDIA's drivers 535 to 580 and come from public reports. They were not produced on a
GPU.
"""

from __future__ import annotations

import subprocess

import pytest

from agent.hardware.gpu_health import COMMAND, parse

EIGHT = "".join(f"00000000:{bus:02X}:00.0, 0\n" for bus in range(0x10, 0x18))
XID = "[ 1234.567890] NVRM: Xid (PCI:0000:10:1c): {}\n"


def printed(log: str = "", gpus: str = EIGHT, status: int = 0) -> str:
    """Return the output of a node's check."""
    return f"{log}deepcdk: nvidia-smi\n{gpus}deepcdk: status {status}\n"


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("79, pid=1896, GPU has fallen off the bus.", "GPU 0000:10:1c: Xid 79, the GPU has fallen off the bus"),
        ("79, GPU has fallen off the bus.", "GPU 0000:10:1c: Xid 79, the GPU has fallen off the bus"),
        ("95, pid=2811, name=python, Uncontained: LTC TAG", "GPU 0000:10:1c: Xid 95, an uncontained memory error"),
        (
            "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU",
            "GPU 0000:10:1c: Xid 48, an uncorrectable memory error",
        ),
        ("64, Row Remapper Error", "GPU 0000:10:1c: Xid 64, a faulty memory row could not be remapped"),
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "GPU 0000:10:1c: Xid 154, it needs: Node Reboot Required",
        ),
        ("154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", ""),
        ("13, pid=77, name=python, Graphics SM Warp Exception on (GPC 7)", ""),
        ("31, pid=77, name=python, Ch 00000008, intr 00000000. MMU Fault", ""),
        ("43, pid=77, name=python, Ch 00000008", ""),
        ("63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.", ""),
        ("94, pid=77, name=python, Contained: SM (0x1)", ""),
        ("31, pid=77, name=NVRM: Xid 79 GPU has fallen off the bus, MMU Fault", ""),
        ("abc, pid=77", ""),
    ],
)
def test_errors_that_need_a_reset_are_found_and_errors_of_programs_are_not(error: str, found: str) -> None:
    assert parse(printed(XID.format(error)), 8) == found


def test_latest_recovery_action_counts() -> None:
    needs = XID.format("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    reset = XID.format("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert parse(printed(needs + reset), 8) == ""
    assert parse(printed(reset + needs), 8) == "GPU 0000:10:1c: Xid 154, it needs: GPU Reset Required"


@pytest.mark.parametrize(
    ("gpus", "status", "found"),
    [
        (EIGHT, 0, ""),
        (EIGHT.replace("12:00.0, 0", "12:00.0, 2"), 0, "GPU 00000000:12:00.0: 2 uncorrectable memory errors"),
        (EIGHT.replace(", 0", ", [N/A]"), 0, ""),
        (EIGHT.partition("\n")[2], 0, "nvidia-smi lists 7 of 8 GPUs"),
        ("No devices were found\n", 6, "nvidia-smi reports a lost GPU"),
        ("Unable to determine the device handle for GPU0000:10:00.0: GPU is lost.  Reboot the system to recover this "
         "GPU\n", 15, "nvidia-smi reports a lost GPU"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", 18, ""),
        ("", 124, ""),
        ("sh: 3: timeout: not found\n", 127, ""),
    ],
)  # fmt: skip
def test_memory_errors_and_missing_gpus_are_found_but_no_other_errors_of_nvidia_smi(
    gpus: str, status: int, found: str
) -> None:
    assert parse(printed(gpus=gpus, status=status), 8) == found


@pytest.mark.parametrize("output", ["", "deepcdk: nvidia-smi\n", "deepcdk: nvidia-smi\ndeepcdk: status x\n", "banner"])
def test_malformed_output_is_no_finding(output: str) -> None:
    with pytest.raises(ValueError, match="the check of its GPUs printed no result"):
        parse(output, 8)


def test_command_runs_on_a_node_without_gpus_and_its_output_is_read() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60, check=True)
    assert parse(done.stdout, 0) == ""
