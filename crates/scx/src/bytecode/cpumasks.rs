//! Masks of CPUs in memory. A kernel's mask has room for more CPUs than the machine has; only those are looked at.

use warmcore_topology::CpuSet;

use crate::bytecode::host::Host;

impl Host {
    fn words(&self) -> u64 {
        u64::from(self.kept.cpus.div_ceil(64))
    }

    pub(super) fn mask_word(&self, mask: u64, word: u64) -> u64 {
        self.maps.memory.load_u64(mask + 8 * word)
    }

    /// Writes `of` of each pair of words to `target`; whether there is a bit in it.
    #[inline]
    pub(super) fn combine_masks(&mut self, target: u64, (a, b): (u64, u64), of: impl Fn(u64, u64) -> u64) -> bool {
        let mut some = 0;
        for word in 0..self.words() {
            let value = of(self.mask_word(a, word), self.mask_word(b, word));
            self.store_u64(target + 8 * word, value);
            some |= value;
        }
        some != 0
    }

    /// Whether `of` has a bit in some pair of words.
    #[inline]
    pub(super) fn any_in_masks(&self, (a, b): (u64, u64), of: impl Fn(u64, u64) -> u64) -> bool {
        (0..self.words()).any(|word| of(self.mask_word(a, word), self.mask_word(b, word)) != 0)
    }

    pub(super) fn mask_weight(&self, mask: u64) -> u64 {
        (0..self.words()).map(|word| u64::from(self.mask_word(mask, word).count_ones())).sum()
    }

    /// The first CPU of both masks from `start` on; the number of CPUs if there is none.
    pub(super) fn first_in_masks(&self, a: u64, b: u64, start: u32) -> u32 {
        let mut word = u64::from(start / 64);
        let mut bits = self.mask_word(a, word) & self.mask_word(b, word) & (u64::MAX << (start % 64));
        loop {
            if bits != 0 {
                return (word as u32 * 64 + bits.trailing_zeros()).min(self.kept.cpus);
            }
            word += 1;
            if word >= self.words() {
                return self.kept.cpus;
            }
            bits = self.mask_word(a, word) & self.mask_word(b, word);
        }
    }

    /// The next CPU of both masks after the one found last, around the end (`cpumask_any_distribute`).
    pub(super) fn any_in_masks_distributed(&mut self, a: u64, b: u64) -> u32 {
        let start = if self.cursor + 1 < self.kept.cpus { self.cursor + 1 } else { 0 };
        let mut found = self.first_in_masks(a, b, start);
        if found >= self.kept.cpus {
            found = self.first_in_masks(a, b, 0);
        }
        if found < self.kept.cpus {
            self.cursor = found;
        }
        found
    }

    /// Sets a bit; gives what it was.
    pub(super) fn set_mask_bit(&mut self, mask: u64, cpu: u32, value: bool) -> bool {
        if cpu >= self.kept.cpus {
            return false;
        }
        let (place, bit) = (mask + 8 * u64::from(cpu / 64), 1 << (cpu % 64));
        let word = self.maps.memory.load_u64(place);
        self.store_u64(place, if value { word | bit } else { word & !bit });
        word & bit != 0
    }

    pub(super) fn write_mask(&mut self, mask: u64, set: &CpuSet) {
        for word in 0..self.words() {
            self.store_u64(mask + 8 * word, set.word(word as usize));
        }
    }

    /// Copies a mask to [`Host::set`].
    pub(super) fn read_mask(&mut self, mask: u64) {
        let memory = &self.maps.memory;
        self.set.assign_words(|word| memory.load_u64(mask + 8 * word as u64));
    }
}
