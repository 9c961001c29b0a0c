"""Which CPU scheduler, with which settings, is best for a workload on a machine, and why.

    import warmcore

    comparison = warmcore.compare("gnr72", "verilator:-t8,-C10000", ["eevdf", "cache-aware", "ule"])
    print(comparison)

Everything is simulated, and the same arguments give the same bytes. What the simulator is wrong about is in docs/limitations.md.
"""

from ._native import (
    Comparison,
    Figure,
    Machine,
    Recording,
    Simulation,
    Study,
    StudyResult,
    Table,
    Tuning,
    WarmcoreError,
    WarmcoreWarning,
    Workload,
    __version__,
    compare,
    simulate,
    tune,
)

__all__ = [
    "Comparison",
    "Figure",
    "Machine",
    "Recording",
    "Simulation",
    "Study",
    "StudyResult",
    "Table",
    "Tuning",
    "WarmcoreError",
    "WarmcoreWarning",
    "Workload",
    "__version__",
    "compare",
    "simulate",
    "tune",
]
