//! Why a woken or new task was placed where it was: the CPU at which the search for a place began, and the step of the search that ended
//! it. Policies say so as they decide; a real kernel does not, so its recordings have none.
//!
//! Words are those of Linux' `kernel/sched/fair.c` and of each policy's page in `docs/spec`.

/// Declares an enumeration of one byte whose variants have a word for files and a phrase for people.
macro_rules! reasons {
    (
        $(#[$doc:meta])*
        pub enum $name:ident { $($variant:ident($side:ident): $word:literal, $phrase:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = concat!("In words: ", $phrase, ".")] $variant,)*
        }

        impl $name {
            /// Number of variants.
            pub const COUNT: usize = Self::ALL.len();

            /// All variants, in order of their discriminants.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The words used in files and tables, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word used in files and tables.
            pub const fn name(self) -> &'static str {
                Self::WORDS[self as usize]
            }

            /// For people, as a clause.
            pub const fn in_words(self) -> &'static str {
                match self {
                    $($name::$variant => $phrase,)*
                }
            }

            /// Which CPU it means: what is said is wrong if the CPU is another one.
            pub const fn side(self) -> Side {
                match self {
                    $($name::$variant => Side::$side,)*
                }
            }
        }
    };
}

/// A CPU as a placement knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Where the task ran last; its creator's, if it is new.
    Previous,
    /// Where the waker or the creator runs: the CPU that decides.
    Waker,
    /// Where the search began.
    Target,
    /// Any.
    Any,
}

reasons! {
    /// Where the search for a CPU began, and why there.
    pub enum SearchStart {
        Nowhere(Any): "nowhere", "no search is known";
        Previous(Previous): "previous", "the search began at the previous CPU, as always";
        Creator(Previous): "creator", "the search began at the creator's CPU, as always";
        SameCpu(Previous): "same_cpu", "the waker's CPU is the task's previous one, where the search began";
        WakeWide(Previous): "wake_wide", "wake_wide refused the waker's CPU, since waker and task have many partners each, so the search began at the previous CPU";
        WakerForbidden(Previous): "waker_forbidden", "the task may not use the waker's CPU, so the search began at the previous one";
        NoAffineDomain(Previous): "no_affine_domain", "no domain with SD_WAKE_AFFINE has both the waker's CPU and the previous one, where the search began";
        WakerIdle(Waker): "waker_idle", "wake_affine chose the waker's CPU, since it was idle and shares the cache with the previous one";
        BothIdle(Previous): "both_idle", "wake_affine chose the previous CPU, since it was idle as the waker's was, with which it shares the cache";
        WakerSync(Waker): "waker_sync", "wake_affine chose the waker's CPU, since the waker is about to sleep and runs alone there";
        PreviousIdle(Previous): "previous_idle", "wake_affine chose the previous CPU, since it was idle";
        WakerLighter(Waker): "waker_lighter", "wake_affine chose the waker's CPU, since its load with the task is the smaller one (wa_weight)";
        PreviousLighter(Previous): "previous_lighter", "wake_affine chose the previous CPU, since the waker's would not have the smaller load (wa_weight)";
        HintPrevious(Previous): "hint_previous", "the search began at the previous CPU, since only that one is in the scope of the task's group (wake_hint)";
        HintHome(Any): "hint_home", "the search began at the home of the task's group, since neither CPU is in its scope (wake_hint)";
        Energy(Any): "energy", "no CPU is overutilized, so energy decides (find_energy_efficient_cpu)";
    }
}

reasons! {
    /// Which step of the search ended it.
    pub enum SearchStep {
        // Of the kernel, under every policy.
        OnlyCpu(Any): "only_cpu", "its affinity leaves it this CPU only";
        StillQueued(Previous): "still_queued", "it was still in the queue of its CPU, as its sleep was delayed";
        StillSwitching(Previous): "still_switching", "its CPU was still switching away from it and queues it again";
        FallbackCpu(Any): "fallback_cpu", "the task may not use the policy's CPU, so the first CPU that it may use took it";
        // Linux, fair class, wakeups.
        TargetIdle(Target): "target_idle", "that CPU was idle";
        PreviousIdle(Previous): "previous_idle", "the search found the previous CPU idle, which shares the cache";
        RecentIdle(Any): "recent_idle", "the search found the CPU used before the previous one idle, which shares the cache";
        SiblingIdle(Any): "sibling_idle", "the search found an idle thread of the same core";
        CoreIdle(Any): "core_idle", "the search found an idle core in that LLC";
        CpuIdle(Any): "cpu_idle", "the search found the first idle CPU in that LLC";
        ThreadIdle(Any): "thread_idle", "the search found no idle core in that LLC, but an idle CPU";
        PreviousElsewhere(Previous): "previous_elsewhere", "the search found no idle CPU but the previous one, of another cluster";
        RecentElsewhere(Any): "recent_elsewhere", "the search found no idle CPU but the one used before the previous one, of another cluster";
        NoneIdle(Target): "none_idle", "the search found no idle CPU in that LLC, so it stays there";
        ScanEnded(Target): "scan_ended", "the search gave up at its limit before it found an idle CPU, so it stays there";
        NotScanned(Target): "not_scanned", "that LLC is too busy to be searched, so it stays there";
        NoSharedCache(Target): "no_shared_cache", "that CPU was busy and shares its cache with no other, so it stays there";
        // Linux, fair class, new tasks.
        IdlestThread(Any): "idlest_smt", "another thread of the core was idler (level SMT)";
        IdlestCore(Any): "idlest_cls", "another core of the cluster was idler (level CLS)";
        IdlestPart(Any): "idlest_mc", "another core or cluster of the LLC was idler (level MC)";
        IdlestLlc(Any): "idlest_pkg", "another LLC of the node was idler (level PKG)";
        IdlestGroup(Any): "idlest_node", "another part of the node was idler (level NODE)";
        IdlestNode(Any): "idlest_numa", "another node was idler (level NUMA)";
        NoneIdler(Waker): "none_idler", "no other group of CPUs was idler at any level";
        NoForkLevel(Previous): "no_fork_level", "no domain places new tasks";
        // topology-aware.
        ScopeCoreIdle(Any): "scope_core_idle", "the search found the thread of a busy core, so an idle core of the group's scope took it (conserve)";
        ScopeCpuIdle(Any): "scope_cpu_idle", "the search found no idle CPU in its LLC, but in the group's scope (conserve)";
        // ULE.
        LastIdle(Previous): "last_idle", "the last CPU is idle and its caches are warm";
        LeastWarm(Any): "least_warm", "the least loaded CPU of a warm cache on which it runs first";
        LeastFirst(Any): "least_first", "the least loaded CPU of all on which it runs first";
        LeastLoaded(Any): "least_loaded", "the least loaded CPU, since it runs first on none";
        RunsFirstHere(Waker): "runs_first_here", "the waker's CPU, since it runs first there and others are hardly less loaded";
        // sched_ext.
        Bypassed(Previous): "bypassed", "the program is bypassed, so it stays on the previous CPU";
        Program(Any): "program", "the program's select_cpu chose the CPU";
        NoSuchCpu(Previous): "no_such_cpu", "the program's select_cpu chose a CPU that the machine does not have";
        SyncPrevious(Previous): "sync_previous", "the waker is about to sleep, and the previous CPU is idle and shares its cache";
        SyncWaker(Waker): "sync_waker", "the waker is about to sleep and nothing waits on its CPU";
        PreviousCore(Previous): "previous_core", "the previous CPU's whole core is idle";
        LlcCore(Any): "llc_core", "an idle core in the previous CPU's LLC";
        NodeCore(Any): "node_core", "an idle core on the previous CPU's node";
        AnyCore(Any): "any_core", "an idle core of the machine";
        PreviousClaimed(Previous): "previous_claimed", "the previous CPU is idle";
        SiblingClaimed(Any): "sibling_claimed", "an idle thread of the previous CPU's core";
        LlcCpu(Any): "llc_cpu", "an idle CPU in the previous CPU's LLC";
        NodeCpu(Any): "node_cpu", "an idle CPU on the previous CPU's node";
        AnyCpu(Any): "any_cpu", "an idle CPU of the machine";
        NoneClaimed(Previous): "none_claimed", "no CPU that it may use is idle, so it stays on the previous one";
        // Small policies.
        PreviousFree(Previous): "previous_free", "the previous CPU has nothing to do";
        FirstFree(Any): "first_free", "the first CPU that has nothing to do";
        NoneFree(Previous): "none_free", "every CPU has something to do, so it stays on the previous one";
        ShortestQueue(Any): "shortest_queue", "the shortest queue";
        // Placements against contention.
        GroupPreviousFree(Previous): "group_previous_free", "the previous CPU is in the group of the rule's choice and has nothing to do";
        GroupFirstFree(Any): "group_first_free", "the first CPU of the chosen group that has nothing to do";
        GroupPrevious(Previous): "group_previous", "no CPU of the chosen group is free, and the previous one is in it";
        GroupFewest(Any): "group_fewest", "no CPU of the chosen group is free, so the one with the fewest tasks";
        NoGroup(Previous): "no_group", "the rule chose no group";
        // Linux, fair class, wakeups by energy.
        LeastEnergy(Any): "least_energy", "there it takes the least energy";
        PreviousEnergy(Previous): "previous_energy", "no other CPU takes less energy than the previous one";
        // Linux, fair class, wakeups on unequal CPUs.
        CapacityFits(Any): "capacity_fits", "the search found the first idle CPU that is big enough (select_idle_capacity)";
        MostCapacity(Any): "most_capacity", "no idle CPU is big enough, so the biggest idle one took it (select_idle_capacity)";
    }
}

/// Why a task was placed where it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlaceReason {
    /// Where the search began.
    pub start: SearchStart,
    /// How it ended.
    pub step: SearchStep,
}

impl PlaceReason {
    /// The kernel asked no policy.
    pub const fn without_search(step: SearchStep) -> Self {
        Self { start: SearchStart::Nowhere, step }
    }

    /// A clause for people.
    pub fn in_words(self) -> String {
        match self.start {
            SearchStart::Nowhere => self.step.in_words().to_owned(),
            start => format!("{}; {}", start.in_words(), self.step.in_words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_reason_takes_two_bytes_also_where_there_may_be_none() {
        assert_eq!(size_of::<Option<PlaceReason>>(), 2);
    }

    #[test]
    fn no_two_reasons_have_the_same_word() {
        for words in [SearchStart::WORDS, SearchStep::WORDS] {
            assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
        }
    }

    #[test]
    fn a_reason_is_a_sentence_of_start_and_step() {
        let reason = PlaceReason { start: SearchStart::PreviousIdle, step: SearchStep::TargetIdle };
        assert_eq!(reason.in_words(), "wake_affine chose the previous CPU, since it was idle; that CPU was idle");
        let bound = PlaceReason::without_search(SearchStep::OnlyCpu);
        assert_eq!(bound.in_words(), "its affinity leaves it this CPU only");
    }
}
