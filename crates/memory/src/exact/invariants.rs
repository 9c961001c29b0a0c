//! What must hold between caches and directories whenever no domain is running.

use super::domain::{Context, Domain, NO_CORE, Right};
use super::home::Home;
use super::lanes::{DIRTY, WRITABLE};

pub(crate) fn check(context: &Context, domains: &[Domain], home: &Home) {
    for line in 0..context.coherent_end {
        let mut writers = 0;
        let mut holders = 0;
        for (index, domain) in domains.iter().enumerate() {
            let entry = domain.directory[line as usize];
            let mut anywhere = domain.llc.contains(line) || line < context.hot_end && entry.sharers != 0;
            for (number, core) in domain.cores.iter().enumerate() {
                let l2 = core.l2.as_ref().and_then(|l2| l2.state(line));
                let states: Vec<u32> = [core.l1.state(line), l2].into_iter().flatten().collect();
                let bit = entry.sharers >> (number >> domain.sharer_shift) & 1 == 1;
                if !states.is_empty() {
                    anywhere = true;
                    assert!(
                        bit,
                        "line {line}: domain {index} core {number} has it unknown to the directory: {entry:?}"
                    );
                } else if domain.sharer_shift == 0 && line >= context.hot_end {
                    assert!(!bit, "line {line}: domain {index} core {number} is listed without a copy");
                }
                for state in states {
                    if state & (WRITABLE | DIRTY) != 0 {
                        assert_eq!(usize::from(entry.owner), number, "line {line}: state {state} {entry:?}");
                        assert!(entry.right.may_write(), "line {line} is writable in domain {index}: {entry:?}");
                    }
                }
            }
            assert_eq!(anywhere, entry.right != Right::None, "line {line} in domain {index}: {entry:?}");
            assert_eq!(anywhere, home.entries[line as usize].domains >> index & 1 == 1, "line {line}, domain {index}");
            if entry.owner != NO_CORE {
                assert_eq!(entry.sharers.count_ones(), 1, "line {line} has an owner and other copies");
            }
            holders += u32::from(anywhere);
            writers += u32::from(entry.right.may_write());
        }
        assert!(writers == 0 || writers == 1 && holders == 1, "line {line}: {writers} writers of {holders} copies");
    }
}
