//! Accesses, hit rates and writes that miss, as performance counters count them: by hand, and line by line against in the mean.

mod levels;

use levels::{LEVELS, MS, close};
use warmcore_memory::analytic::{Counters, MemoryEvent};
use warmcore_memory::{Class, ClassKind, Profile, Sharing};
use warmcore_topology::{Machine, from_toml};

/// Two sockets of two cores: 32 KiB of L1, 256 KiB of L2, and 2 MiB of L3 for each socket.
fn machine() -> Machine {
    from_toml(
        "name = \"m\"\n[topology]\nshape = \"2s1n1l2c1t\"\n\
         [[cache]]\nlevel = 1\nsize = \"32KiB\"\nways = 8\nlatency_ns = 1.5\n\
         [[cache]]\nlevel = 2\nshared_by = \"core\"\nsize = \"256KiB\"\nways = 8\nlatency_ns = 4.0\n\
         [[cache]]\nlevel = 3\nsize = \"2MiB\"\nways = 16\nlatency_ns = 20.0\n\
         [frequency]\nnominal_mhz = 2600\n[memory]\nlocal_ns = 100\n",
    )
    .unwrap()
}

fn profile(classes: Vec<Class>) -> Profile {
    Profile::new("p", 0.5, 4.0, classes)
}

fn of(counters: &Counters, event: MemoryEvent) -> f64 {
    counters.per_kilo_instruction(event)
}

/// Uniform references hit a cache of C lines with C / W: of 100 touches per 1000 instructions of 32 MiB an L1 of 32 KiB serves 0.1,
/// an L2 of 256 KiB 0.8, and an LLC of 2 MiB 6.25 with what is in front of it. 30 % of the rest are writes, which nobody else owns.
#[test]
fn writes_that_memory_serves_are_rfo_misses_on_one_socket() {
    let profile = profile(vec![Class::new("all", 32 << 20, 0.1, 0.3)]);
    for level in LEVELS {
        let counters = level(&machine(), &profile, &[(0, 0)], 40 * MS, 10 * MS)[0];
        close(of(&counters, MemoryEvent::L2Access), 99.9, 0.01);
        close(of(&counters, MemoryEvent::L3Access), 99.2, 0.01);
        close(of(&counters, MemoryEvent::DramLocal), 93.75, 0.02);
        close(of(&counters, MemoryEvent::L3RfoMiss), 0.3 * 93.75, 0.03);
        assert_eq!(of(&counters, MemoryEvent::L3RfoOtherLlc), 0.0);
        close(counters.l2_hit_rate().unwrap(), 0.007, 0.3);
        close(counters.l3_hit_rate().unwrap(), 1.0 - 93.75 / 99.2, 0.25);
    }
}

/// A scan larger than the L2 hits in sets that hold all of their lines. Of 384 KiB 6144 lines fall into 512 sets by chance, 12 to each in the
/// mean; 8.95 % lie with at most seven others (Poisson).
#[test]
fn a_scan_longer_than_the_l2_hits_in_sets_with_few_lines() {
    let scan = Class { kind: ClassKind::Scan, ..Class::new("scan", 384 << 10, 0.1, 0.0) };
    for level in LEVELS {
        let counters = level(&machine(), &profile(vec![scan.clone()]), &[(0, 0)], 40 * MS, 10 * MS)[0];
        close(counters.l2_hit_rate().unwrap(), 0.0895, 0.3);
    }
}

#[test]
fn a_set_that_fits_the_l2_asks_no_llc() {
    let profile = profile(vec![Class::new("all", 64 << 10, 0.1, 0.3)]);
    for level in LEVELS {
        let counters = level(&machine(), &profile, &[(0, 0)], 40 * MS, 10 * MS)[0];
        // Half of it is in the L1.
        close(of(&counters, MemoryEvent::L2Access), 50.0, 0.03);
        assert!(of(&counters, MemoryEvent::L3Access) < 0.1, "{}", of(&counters, MemoryEvent::L3Access));
        assert!(of(&counters, MemoryEvent::L3RfoMiss) < 0.01, "{}", of(&counters, MemoryEvent::L3RfoMiss));
        close(counters.l2_hit_rate().unwrap(), 1.0, 0.002);
    }
}

#[test]
fn without_an_l2_the_llc_gets_what_the_l1_misses() {
    // Its last level is the second.
    let machine = from_toml(
        "name = \"m\"\n[topology]\nshape = \"1s1n1l2c1t\"\n\
         [[cache]]\nlevel = 1\nsize = \"32KiB\"\nways = 8\nlatency_ns = 1.5\n\
         [[cache]]\nlevel = 2\nshared_by = \"llc\"\nsize = \"2MiB\"\nways = 16\nlatency_ns = 20.0\n\
         [frequency]\nnominal_mhz = 2600\n[memory]\nlocal_ns = 100\n",
    )
    .unwrap();
    let profile = profile(vec![Class::new("all", 1 << 20, 0.1, 0.3)]);
    for level in LEVELS {
        let counters = level(&machine, &profile, &[(0, 0)], 40 * MS, 10 * MS)[0];
        assert_eq!((of(&counters, MemoryEvent::L2Access), counters.l2_hit_rate()), (0.0, None));
        close(of(&counters, MemoryEvent::L3Access), of(&counters, MemoryEvent::L1Miss), 0.001);
        close(of(&counters, MemoryEvent::L3Access), 100.0 * 31.0 / 32.0, 0.01);
        close(counters.l3_hit_rate().unwrap(), 1.0, 0.01);
    }
}

/// Private sets of all sizes and a shared one, on one socket and on two.
#[test]
fn both_levels_count_alike_and_no_cache_misses_more_than_it_is_asked() {
    let mut classes = vec![
        Class::new("hot", 24 << 10, 0.15, 0.2),
        Class::new("warm", 180 << 10, 0.05, 0.2),
        Class::new("large", 6 << 20, 0.02, 0.4),
        Class::new("shared", 64 << 10, 0.02, 0.3),
    ];
    classes[3].sharing = Sharing::Process;
    let profile = profile(classes);
    for cpus in [[0, 1], [0, 2]] {
        let [mean, lines] =
            LEVELS.map(|level| level(&machine(), &profile, &cpus.map(|cpu| (cpu, 0)), 40 * MS, 10 * MS));
        for (mean, lines) in mean.iter().zip(&lines) {
            for (event, part) in
                [(MemoryEvent::L2Access, 0.05), (MemoryEvent::L3Access, 0.05), (MemoryEvent::L3RfoMiss, 0.05)]
            {
                close(of(mean, event), of(lines, event), part);
            }
            close(mean.l2_hit_rate().unwrap(), lines.l2_hit_rate().unwrap(), 0.05);
            close(mean.l3_hit_rate().unwrap(), lines.l3_hit_rate().unwrap(), 0.1);
            for counters in [mean, lines] {
                let of = |event| of(counters, event);
                assert!(of(MemoryEvent::L2Access) >= of(MemoryEvent::L2Miss));
                assert!(of(MemoryEvent::L3Access) >= of(MemoryEvent::L3Miss));
                assert!(counters.events[MemoryEvent::L3Access as usize] >= counters.l3_missed());
                let beyond = of(MemoryEvent::L3RfoMiss) - of(MemoryEvent::L3RfoOtherLlc);
                assert!(beyond > 0.0 && (of(MemoryEvent::L3RfoOtherLlc) > 1.0) == (cpus == [0, 2]), "{counters:?}");
            }
        }
    }
}
