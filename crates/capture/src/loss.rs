//! Joins what pages say about gaps with what the kernel counted in all.

use crate::recording::Loss;

/// The losses of a CPU: gaps that its pages show, and the number of lost events that the recorder counted there, if it did. What was
/// counted beyond the known gaps belongs to the one gap of unknown size, or is a loss at an unknown time.
pub(crate) fn reconcile(cpu: u32, mut gaps: Vec<Loss>, counted: Option<u64>) -> Vec<Loss> {
    let known: u64 = gaps.iter().filter_map(|gap| gap.events).fold(0, u64::saturating_add);
    let rest = counted.unwrap_or(0).saturating_sub(known);
    let unknown = gaps.iter().filter(|gap| gap.events.is_none()).count();
    match gaps.iter_mut().find(|gap| gap.events.is_none()) {
        Some(gap) if unknown == 1 && rest > 0 => gap.events = Some(rest),
        _ if rest > 0 => gaps.push(Loss { cpu: Some(cpu), before_ns: None, events: Some(rest) }),
        _ => {}
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(before_ns: u64, events: Option<u64>) -> Loss {
        Loss { cpu: Some(1), before_ns: Some(before_ns), events }
    }

    #[test]
    fn a_single_gap_of_unknown_size_is_what_was_counted_beyond_the_others() {
        let gaps = vec![gap(5, Some(3)), gap(9, None)];
        assert_eq!(reconcile(1, gaps.clone(), Some(10)), [gap(5, Some(3)), gap(9, Some(7))]);
        assert_eq!(reconcile(1, gaps.clone(), None), gaps);
    }

    #[test]
    fn what_no_gap_explains_is_lost_at_an_unknown_time() {
        let late = Loss { cpu: Some(1), before_ns: None, events: Some(7) };
        assert_eq!(reconcile(1, vec![gap(5, Some(3))], Some(10)), [gap(5, Some(3)), late]);
        assert_eq!(reconcile(1, vec![gap(5, None), gap(9, None)], Some(7)), [gap(5, None), gap(9, None), late]);
        assert_eq!(reconcile(1, vec![gap(5, Some(3))], Some(3)), [gap(5, Some(3))]);
        assert_eq!(reconcile(1, vec![], Some(0)), []);
    }
}
