//! Averages of a CPU's load over its ticks (`cpu_load[]`, `cpu_load_update_active` of Linux 4.9): what its balancer compared at the
//! levels above a core, so that a load of one instant moves nobody.
//!
//! Difference from the kernel: what a CPU without ticks has missed is made up for when somebody looks, not when a balancer passes.

/// Number of averages; the first is the load itself.
pub(crate) const AVERAGES: usize = 4;

/// Averages of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TickLoads {
    loads: [u64; AVERAGES],
    /// Jiffy of the latest tick that was counted.
    at: u64,
}

impl TickLoads {
    /// A tick at `jiffies` with this load: average i takes the load in with a weight of 1/2^i.
    pub fn tick(&mut self, jiffies: u64, load: u64) {
        let old = self.at_jiffy(jiffies.saturating_sub(1));
        for (index, (average, old)) in self.loads.iter_mut().zip(old).enumerate() {
            let scale = 1 << index;
            // Rounded up while it rises, or it would never arrive.
            let new = load + if load > old { scale - 1 } else { 0 };
            *average = (old * (scale - 1) + new) >> index;
        }
        self.at = jiffies;
    }

    /// The averages at a later jiffy, if the CPU was without tasks in between.
    fn at_jiffy(&self, jiffies: u64) -> [u64; AVERAGES] {
        let mut loads = self.loads;
        // After as many ticks even the longest average is below a thousandth.
        for _ in 0..jiffies.saturating_sub(self.at).min(64) {
            for (index, average) in loads.iter_mut().enumerate() {
                *average = (*average * ((1 << index) - 1)) >> index;
            }
        }
        loads
    }

    /// Average `index` at a jiffy, and the load of now (`source_load` and `target_load` take the smaller and the larger). A CPU
    /// that is idle has missed its ticks, one that runs has had them.
    pub fn average(&self, index: usize, jiffies: u64, idle: bool, now: u64) -> u64 {
        if index == 0 {
            return now;
        }
        if idle { self.at_jiffy(jiffies)[index] } else { self.loads[index] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_averages_follow_later_and_arrive() {
        let mut loads = TickLoads::default();
        loads.tick(1, 1024);
        assert_eq!(loads.loads, [1024, 512, 256, 128]);
        (2..60).for_each(|jiffies| loads.tick(jiffies, 1024));
        assert_eq!(loads.loads, [1024; AVERAGES]);
    }

    #[test]
    fn missed_ticks_were_ticks_without_load() {
        let mut loads = TickLoads::default();
        (1..60).for_each(|jiffies| loads.tick(jiffies, 1024));
        let mut ticked = loads;
        (60..63).for_each(|jiffies| ticked.tick(jiffies, 0));
        for index in 1..AVERAGES {
            assert_eq!(loads.average(index, 62, true, 0), ticked.loads[index]);
            assert_eq!(loads.average(index, 62, false, 0), 1024);
        }
        assert_eq!(loads.average(0, 62, true, 7), 7);
    }
}
