"""How fast links are: between a GPU and its host, for copies; and between GPUs, by what collectives reach."""

import re

_LINKS = (
    # coherent NVLink-C2C, 900 GB/s in both directions together (data sheets of GH200 and GB200)
    (r"GH200|GB200|GB300|GB10\b", 450.0, "NVLink-C2C"),
    # generations and widths of PCIe as the data sheets of the products say
    (r"\b(?:H100|H200|H800|H20|B100|B200|B300|RTX PRO \d+|RTX 50\d\d)\b", 63.0, "PCIe 5.0 x16"),
    (r"\b(?:A100|A800|A30|A40|A10G?|A16|L40S?|L20|L4)\b", 31.5, "PCIe 4.0 x16"),
    (r"\bRTX (?:A[4-6]\d+|[4-6]000 Ada|30[6-9]0|40[7-9]0)\b", 31.5, "PCIe 4.0 x16"),
    (r"\b(?:V100|P100|P40|T4|RTX 20[6-8]0|RTX [4-8]000|TITAN (?:V|RTX|Xp?))\b", 15.75, "PCIe 3.0 x16"),
)
"""Names of devices; the most that the link carries in one direction, GB/s; the link.

PCIe carries 8, 16 and 32 GT/s per lane in generations 3, 4 and 5, of which 128 of 130 bits are data (PCI-SIG's base
specifications): 15.75, 31.5 and 63 GB/s over 16 lanes. Packets' headers leave about nine tenths of that.
"""


def link_of(device: str | None) -> tuple[float, str] | None:
    """The rate of the link in one direction, GB/s, and what it is; None if the device's name does not say.

    A slice of a GPU (MIG) shares the link with others, so nothing is said of it.
    """
    if not device or re.search(r"\bMIG\b", device):
        return None
    return next(((rate, name) for regex, rate, name in _LINKS if re.search(regex, device, re.IGNORECASE)), None)


_NVLINK = r"SXM|HBM3|\b(?:H200|H800|B200|B300)\b|\bG[HB]\d00\b"
"""Names of devices that NVLink joins within a host (data sheets; `H100 80GB HBM3` is what the SXM board is called)."""


def usual_bus_gb_per_s(device: str | None, *, across: bool) -> float:
    """The bus bandwidth that large collectives usually reach, at its lower end, GB/s.

    By runs of nccl-tests: 36 GB/s over 8 nodes of Polaris (A100, Slingshot), 11 to 20 GB/s over nodes of ABCI (V100,
    InfiniBand EDR); over NVLink from 120 GB/s (V100) on; without it the rate of PCIe 4.0.

    `device`: The name of the GPUs, if known.
    """
    if across:
        return 15.0
    return 100.0 if device and re.search(_NVLINK, device, re.IGNORECASE) else 20.0
