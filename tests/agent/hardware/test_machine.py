from __future__ import annotations

from agent.hardware.machine import processor_name, this_machine, this_vector_bits, vector_bits

RECORDED = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8124M CPU @  3.00GHz
processor\t: 1
model name\t: Another
"""


def test_the_processor_is_the_first_one_named() -> None:
    assert processor_name(RECORDED) == "Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz"


def test_a_list_without_names_gives_none() -> None:
    assert processor_name("processor\t: 0\nCPU implementer\t: 0x41\n") is None
    assert processor_name("model name\t:\nnonsense") is None


def test_this_machine_has_cores_memory_and_a_name() -> None:
    machine = this_machine()
    assert machine.cores >= 1 and machine.memory_gib > 0.1 and machine.load >= 0
    assert machine.processor in str(machine) and "at the start" in str(machine)


def test_the_width_of_vectors_follows_from_the_flags() -> None:
    assert vector_bits("flags\t\t: fpu sse2 avx avx2 avx512f\n") == 512
    assert vector_bits("flags\t\t: fpu sse2 avx avx2\nflags: avx512f\n") == 256
    assert vector_bits("flags\t\t: fpu sse2\n") == 128
    assert vector_bits("Features\t: fp asimd\n") == 128
    assert this_vector_bits() in (128, 256, 512)
