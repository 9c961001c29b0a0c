//! Dense identifiers. An id is an index: `0..machine.cpu_count()` for CPUs and so on, in ascending order of the
//! operating system's numbers. The operating system's own numbers (which may be sparse) are `u32` called `os_index`
//! and never serve as an index.

use serde::{Deserialize, Serialize};

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into per-id arrays.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of array position `index`. Positions never reach 2^32: machines are limited far below that.
            #[inline]
            pub const fn from_index(index: usize) -> Self {
                Self(index as u32)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

/// A CPU by the operating system's number, which is how whoever uses a machine knows it: `cpu12`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct OsCpu(pub u32);

impl std::fmt::Display for OsCpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Padded as a whole.
        f.pad(&format!("cpu{}", self.0))
    }
}

dense_id!(
    /// A logical CPU (hardware thread) that is online.
    CpuId,
    "cpu"
);
dense_id!(
    /// A physical core: one or more CPUs that share execution units.
    CoreId,
    "core"
);
dense_id!(
    /// A cluster: the cores that share one L2 cache. Equal to the core on most machines.
    ClusterId,
    "cluster"
);
dense_id!(
    /// A last-level cache: the last cache level shared by several cores.
    LlcId,
    "llc"
);
dense_id!(
    /// A NUMA node. Nodes without CPUs are legal.
    NodeId,
    "node"
);
dense_id!(
    /// A socket (package).
    SocketId,
    "socket"
);
