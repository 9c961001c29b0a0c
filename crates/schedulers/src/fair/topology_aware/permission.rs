//! May a task of a group move between two LLCs? (`docs/spec/linux-fair.md` section 8.6, \[O\].)

use crate::fair::cache_aware::permission::{Limits, Snapshot};
use crate::fair::gathering::Permission;

/// Where an LLC stands for a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LlcStanding {
    pub llc: Snapshot,
    /// Its place in the group's sequence.
    pub position: u32,
    /// Distance of its node from the home node.
    pub distance: u32,
}

/// A group's scope for the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeView {
    pub limits: Limits,
    /// LLCs in the scope.
    pub size: u32,
    /// Fill LLCs in order; otherwise leave tasks where they are within the scope.
    pub pack: bool,
    /// Some LLC of the scope has room for the task.
    pub has_room: bool,
    /// The task waits where no CPU of the LLC is idle, and one of the destination is: inside the scope that outweighs order. Only with
    /// `conserve`.
    pub waits: bool,
}

impl ScopeView {
    /// The decision for a task of utilisation `util`. The source is not the destination, and the group has a home.
    pub fn decide(self, src: LlcStanding, dst: LlcStanding, util: u64) -> Permission {
        if src.llc.capacity == 0 || dst.llc.capacity == 0 {
            // No pass has looked yet.
            return Permission::Free;
        }
        let src_util = src.llc.util.saturating_sub(util);
        let dst_util = dst.llc.util + util;
        let src_fits = self.limits.fits(src_util, src.llc.capacity);
        let dst_fits = self.limits.fits(dst_util, dst.llc.capacity);
        let pull_if = |wanted: bool| if wanted { Permission::Pull } else { Permission::Forbid };
        let free_unless = |unwanted: bool| if unwanted { Permission::Forbid } else { Permission::Free };
        let pull_or_free = |wanted: bool| if wanted { Permission::Pull } else { Permission::Free };
        match (src.position < self.size, dst.position < self.size) {
            (_, true) if self.waits => pull_or_free(dst_fits),
            (false, true) => pull_if(dst_fits || !self.limits.greater(dst_util, src_util)),
            (true, false) => pull_if(!self.has_room && self.limits.greater(src_util, dst_util)),
            (true, true) if !self.pack => Permission::Free,
            (true, true) if dst.position < src.position => pull_or_free(dst_fits),
            (true, true) => free_unless(src_fits),
            (false, false) if dst.distance < src.distance => pull_or_free(dst_fits),
            (false, false) if dst.distance == src.distance => Permission::Free,
            (false, false) => free_unless(src_fits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Permission::{Forbid, Free, Pull};
    use super::*;

    fn place(position: u32, percent: u64) -> LlcStanding {
        LlcStanding { llc: Snapshot { util: percent * 100, capacity: 10_000 }, position, distance: 10 + position / 2 }
    }

    fn view(size: u32, pack: bool, has_room: bool) -> ScopeView {
        ScopeView { limits: Limits { full_pct: 50, imb_pct: 20 }, size, pack, has_room, waits: false }
    }

    #[test]
    fn into_the_scope_while_it_has_room_or_is_not_fuller() {
        let ask = |src, dst| view(2, true, true).decide(place(5, src), place(1, dst), 0);
        assert_eq!([ask(10, 40), ask(55, 60), ask(10, 55)], [Pull, Pull, Forbid]);
    }

    #[test]
    fn out_of_the_scope_only_when_all_of_it_is_full() {
        let ask = |has_room, src, dst| view(2, true, has_room).decide(place(1, src), place(5, dst), 0);
        assert_eq!([ask(true, 90, 0), ask(false, 90, 0), ask(false, 60, 55)], [Forbid, Pull, Forbid]);
    }

    #[test]
    fn inside_the_scope_llcs_fill_in_order_if_packed() {
        let ask = |pack, (from, src), (to, dst)| view(4, pack, true).decide(place(from, src), place(to, dst), 0);
        assert_eq!([ask(true, (2, 20), (1, 30)), ask(true, (2, 20), (1, 60))], [Pull, Free]);
        assert_eq!([ask(true, (1, 30), (2, 0)), ask(true, (1, 60), (2, 0))], [Forbid, Free]);
        assert_eq!([ask(false, (2, 20), (1, 30)), ask(false, (1, 30), (2, 0))], [Free, Free]);
    }

    #[test]
    fn who_waits_where_all_cpus_are_busy_may_use_an_idle_one_of_any_llc_of_the_scope() {
        let waiting = ScopeView { waits: true, ..view(2, true, true) };
        let ask = |(from, src), (to, dst)| waiting.decide(place(from, src), place(to, dst), 0);
        assert_eq!([ask((0, 30), (1, 30)), ask((1, 30), (0, 60)), ask((5, 10), (1, 60))], [Pull, Free, Free]);
        assert_eq!(ask((0, 30), (5, 0)), Forbid, "but not leave it");
    }

    #[test]
    fn outside_the_scope_nearer_nodes_are_better() {
        let ask = |(from, src), (to, dst)| view(2, true, true).decide(place(from, src), place(to, dst), 0);
        assert_eq!([ask((8, 10), (4, 10)), ask((8, 10), (4, 60))], [Pull, Free]);
        assert_eq!(ask((8, 10), (9, 10)), Free, "one node");
        assert_eq!([ask((4, 10), (8, 10)), ask((4, 60), (8, 10))], [Forbid, Free]);
    }

    #[test]
    fn before_anything_was_recorded_there_is_no_opinion() {
        assert_eq!(
            view(1, true, true).decide(place(0, 10), LlcStanding { llc: Snapshot::default(), ..place(1, 0) }, 0),
            Free
        );
    }
}
