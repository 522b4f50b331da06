"""The recipe `storage_util_map`: what storage read and wrote, as a heat map."""

from __future__ import annotations

import re

from alltrace.recipes.nsys.generic_map import GenericMap


class StorageUtilMap(GenericMap):
    """The counters of storage, bin by bin: those of NFS and Lustre volumes, of S3, and of local and remote disks.

    A counter belongs to storage when its own name or its sampler's has one of these words.
    """

    name = "storage_util_map"
    wanted = re.compile(r"(?<![a-z])(storage|nfs|lustre|nvme|nvmeof|s3|disk)(?![a-z])", re.IGNORECASE)


RECIPE = StorageUtilMap()
