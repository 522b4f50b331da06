"""What the machine of a rank did in its judged steps: GPU, network and CPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from alltrace.recipes.analysis.gpu_state import GpuState, gpu_state
from alltrace.recipes.analysis.host_state import CpuPlaces, HostState, cpu_places, host_state
from alltrace.recipes.analysis.network_state import NetworkState, network_state
from alltrace.recipes.questions.diagnose.gaps import HostSets
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts
from alltrace.run.rank import Rank
from alltrace.trace.intervals import Merged, difference, intersection, merge, union


@dataclass(frozen=True)
class MachineState:
    gpu: GpuState | None = None  # how its GPU ran
    network: NetworkState | None = None  # what the adapters of its host did while its device waited for communication
    # by class of the host's time, for some of them, what the CPUs did in that time
    cpus: Mapping[str, HostState | None] = field(default_factory=dict)
    places: CpuPlaces | None = None  # on which CPUs its launching threads ran


def machine_state(rank: Rank, facts: RankFacts, host: HostSets) -> MachineState:
    judged = merge(*facts.regions.T.copy())
    waits = Merged(*facts.waits.T.copy())
    cpus, places = {}, cpu_places(rank, host.threads)
    if rank.has("sched") or rank.has("samples"):
        launching = difference(judged, union([*host.sets.values(), host.exchanges]))
        spans = {
            **{name: intersection(host.sets[name], judged) for name in ("host-pause", "data")},
            "launch": launching,
        }
        cpus = {name: host_state(rank, host.threads, span) for name, span in spans.items()}
    network = network_state(rank, intersection(waits, judged), judged)
    return MachineState(gpu_state(rank, facts.regions), network, cpus, places)
