//! What a move brings, so that passes pull from where most is gained: affinity promotion (`docs/spec/linux-fair.md`
//! section 8.7; the idea \[P\] from the first RFC, the weights \[O\] or, with `gain=inverse`, its published formula).

use super::sequence::Sequences;

/// How a move's gain is weighted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gain {
    /// The distance gained, at least 4; within equal distance 2 for coming home and 1 for coming nearer to it.
    Distance,
    /// 1024 / the distance gained, at least 2: as published, the weight falls with the distance.
    Inverse,
}

impl Gain {
    /// Gain of one task that prefers the LLC `home` from a move between LLCs.
    pub fn of(self, sequences: &Sequences, src: u32, dst: u32, home: u32) -> u64 {
        let (before, after) = (sequences.distance(src, home), sequences.distance(dst, home));
        if before > after {
            let gained = u64::from(before - after);
            return match self {
                Gain::Distance => gained.clamp(4, 1024),
                Gain::Inverse => 1024 / gained.max(2),
            };
        }
        let nearer = before == after && sequences.position(home, dst) < sequences.position(home, src);
        match (self, nearer) {
            (_, false) => 0,
            // Distances of nodes say nothing within one: as near as can be.
            (Gain::Inverse, true) => 512,
            (Gain::Distance, true) if dst == home => 2,
            (Gain::Distance, true) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::topology_aware::rfc_machine;

    /// LLCs 0 and 1 are a node, 0 to 11 a socket; distances 10, 12, 28.
    #[test]
    fn gains_on_the_rfc_machine() {
        let sequences = rfc_machine();
        let gain = |gain: Gain, src, dst| gain.of(&sequences, src, dst, 0);
        use Gain::{Distance, Inverse};
        assert_eq!([gain(Distance, 12, 2), gain(Distance, 2, 1), gain(Distance, 12, 1)], [16, 4, 18]);
        assert_eq!([gain(Distance, 1, 0), gain(Distance, 0, 1), gain(Distance, 3, 2)], [2, 0, 1]);
        assert_eq!([gain(Inverse, 12, 2), gain(Inverse, 2, 1), gain(Inverse, 1, 0)], [64, 512, 512]);
        assert_eq!([gain(Inverse, 2, 12), gain(Distance, 1, 12)], [0, 0]);
    }
}
