"""The recipe `network_map_aws`: the counters of Amazon's network adapters (EFA), as a heat map."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alltrace.recipes.base import Option
from alltrace.recipes.nsys.generic_map import GenericMap
from alltrace.recipes.nsys.heatmap import Binning, equal_bins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RunFacts


class NetworkMapAws(GenericMap):
    """The counters of Amazon's Elastic Fabric Adapters, bin by bin, as the EFA plugin of Nsight Systems samples them."""

    name = "network_map_aws"
    wanted = re.compile(r"(?<![a-z])efa(?![a-z])", re.IGNORECASE)
    settings = (Option("disable_alignment", bool, False, "Count each rank's time from its own first event."),)

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:
        """The options with the bins: of the run's time, or of the time since each rank's first event."""
        told = super().prepared(options, run)
        if not options["disable_alignment"]:
            return told
        return {name: _unaligned(v, options["bins"]) if isinstance(v, Binning) else v for name, v in told.items()}


def _unaligned(cut: Binning, bins: int) -> Binning:
    extents = {rank: (0, end - start) for rank, (start, end) in cut.extents.items()}
    longest = max((end for _, end in extents.values()), default=0)
    return replace(
        cut, edges=equal_bins(0, longest, bins), extents=extents, origins={rank: start for rank, (start, _) in cut.extents.items()}
    )


RECIPE = NetworkMapAws()
