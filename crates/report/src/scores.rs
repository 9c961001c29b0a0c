//! What the scheduler ranked tasks by, kept while samples stream by: the last, the least and the greatest sample of every task in each of
//! equal stretches of time.
//!
//! Between two samples of a task that stayed runnable its score is taken to have changed evenly. A task that sleeps has no
//! score: its line ends there and another one begins when it is runnable again.

use warmcore_trace::TaskId;

/// Stretches of time of which one value and its range are kept.
pub(crate) const SCORE_BINS: usize = 200;
/// Intervals between samples in each. Pauses are one interval to two, so about four samples are taken: one would show a value that goes up
/// and down several times as if it stood still.
const INTERVALS_OF_BIN: u64 = 6;

/// What is kept of a task's samples in a stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Stretch of time.
    pub bin: u16,
    /// Whether the task slept since its sample before, or this is its first.
    pub begins: bool,
    /// The last value.
    pub value: i64,
    /// The least value.
    pub least: i64,
    /// The greatest value.
    pub most: i64,
}

/// Samples by score and task.
#[derive(Clone, Debug)]
pub struct ScoreTracks {
    end_ns: u64,
    /// Samples that were added.
    taken: u64,
    tracks: Vec<Vec<Vec<Sample>>>,
    /// Whether each task slept since its last sample.
    slept: Vec<bool>,
}

impl ScoreTracks {
    /// No samples yet, in a run that ends at `end_ns`.
    pub fn new(end_ns: u64) -> Self {
        Self { end_ns: end_ns.max(1), taken: 0, tracks: Vec::new(), slept: Vec::new() }
    }

    /// Samples of a task in a stretch of time, the mean of those where it has any.
    pub fn samples_of_bin(&self) -> u64 {
        let kept = self.tracks.iter().flatten().map(|track| track.len() as u64).sum::<u64>().max(1);
        (self.taken + kept / 2) / kept
    }

    /// How far apart samples need to be for a run that ends at `end_ns`.
    pub fn interval_ns(end_ns: u64) -> u64 {
        (end_ns / (SCORE_BINS as u64 * INTERVALS_OF_BIN)).max(1)
    }

    /// Adds a sample. `IDLE` has no score.
    pub fn add(&mut self, time_ns: u64, score: usize, task: TaskId, value: i64) {
        if task.is_idle() {
            return;
        }
        let bin =
            (u128::from(time_ns) * SCORE_BINS as u128 / u128::from(self.end_ns)).min(SCORE_BINS as u128 - 1) as u16;
        self.taken += 1;
        if score >= self.tracks.len() {
            self.tracks.resize(score + 1, Vec::new());
        }
        let of_score = &mut self.tracks[score];
        if task.index() >= of_score.len() {
            of_score.resize(task.index() + 1, Vec::new());
        }
        let track = &mut of_score[task.index()];
        let begins = track.is_empty() || self.slept.get(task.index()).copied().unwrap_or(false);
        match track.last_mut() {
            Some(last) if last.bin == bin => {
                *last = Sample { value, least: last.least.min(value), most: last.most.max(value), ..*last };
            }
            _ => track.push(Sample { bin, begins, value, least: value, most: value }),
        }
        if score + 1 == self.tracks.len()
            && let Some(slept) = self.slept.get_mut(task.index())
        {
            *slept = false;
        }
    }

    /// A task sleeps or ends.
    pub fn sleeps(&mut self, task: TaskId) {
        if self.tracks.is_empty() {
            return;
        }
        if task.index() >= self.slept.len() {
            self.slept.resize(task.index() + 1, false);
        }
        self.slept[task.index()] = true;
    }

    /// Whether nothing was sampled.
    pub fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// The samples of a task, in order of time.
    pub fn of(&self, score: usize, task: usize) -> &[Sample] {
        self.tracks.get(score).and_then(|tracks| tracks.get(task)).map_or(&[], Vec::as_slice)
    }

    /// The stays of a task among the runnable, each with its samples.
    pub fn stays(&self, score: usize, task: usize) -> impl Iterator<Item = &[Sample]> {
        self.of(score, task).chunk_by(|_, next| !next.begins)
    }

    /// The last value of a task in every stretch of time; nothing where it slept.
    pub fn values(&self, score: usize, task: usize) -> Vec<Option<f64>> {
        self.values_of(score, task, |sample| sample.value)
    }

    /// One of the values that are kept of every stretch of time, likewise.
    pub fn values_of(&self, score: usize, task: usize, of: fn(&Sample) -> i64) -> Vec<Option<f64>> {
        let mut values = vec![None; SCORE_BINS];
        for stay in self.stays(score, task) {
            for pair in stay.windows(2) {
                let (from, to) = (pair[0], pair[1]);
                let (first, steps) = (usize::from(from.bin), usize::from(to.bin - from.bin));
                let (from, to) = (of(&from) as f64, of(&to) as f64);
                for step in 0..steps {
                    let share = step as f64 / steps as f64;
                    values[first + step] = Some(from + (to - from) * share);
                }
            }
            if let Some(last) = stay.last() {
                values[usize::from(last.bin)] = Some(of(last) as f64);
            }
        }
        values
    }

    /// The middle of a stretch of time.
    pub fn time_ns(&self, bin: usize) -> u64 {
        (u128::from(self.end_ns) * (2 * bin as u128 + 1) / (2 * SCORE_BINS as u128)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_change_evenly_between_samples_and_end_where_a_task_sleeps() {
        let mut tracks = ScoreTracks::new(SCORE_BINS as u64 * 10);
        let task = TaskId(1);
        for (time_ns, value) in [(0, 7), (5, 10), (40, 50)] {
            tracks.add(time_ns, 0, task, value);
            tracks.add(time_ns, 1, task, -value);
        }
        tracks.sleeps(task);
        tracks.add(70, 0, task, 5);
        tracks.add(70, 1, task, -5);
        let values = tracks.values(0, 1);
        assert_eq!(
            values[..9],
            [Some(10.0), Some(20.0), Some(30.0), Some(40.0), Some(50.0), None, None, Some(5.0), None]
        );
        let stays = |score| tracks.stays(score, 1).map(<[Sample]>::len).collect::<Vec<_>>();
        assert_eq!((stays(0), stays(1)), (vec![2, 1], vec![2, 1]), "for every score");
        assert_eq!(tracks.values(1, 1)[4], Some(-50.0));
        assert!(tracks.values(0, 0).iter().all(Option::is_none) && tracks.of(5, 5).is_empty());
    }

    #[test]
    fn a_stretch_of_time_keeps_the_range_of_a_value_that_goes_up_and_down_in_it() {
        let end_ns = SCORE_BINS as u64 * 100;
        let mut tracks = ScoreTracks::new(end_ns);
        assert_eq!(ScoreTracks::interval_ns(end_ns), 16, "pauses of 16 to 32 ns: about four in 100 ns");
        for (time_ns, value) in [(0, 0), (25, 2), (50, -1), (75, 0)] {
            tracks.add(time_ns, 0, TaskId(0), value);
        }
        let kept = tracks.of(0, 0);
        assert_eq!(kept, [Sample { bin: 0, begins: true, value: 0, least: -1, most: 2 }]);
        assert_eq!(tracks.samples_of_bin(), 4);
        assert_eq!(tracks.values_of(0, 0, |sample| sample.most)[0], Some(2.0));
    }

    #[test]
    fn the_last_sample_lies_within_the_run() {
        let mut tracks = ScoreTracks::new(1000);
        tracks.add(1000, 0, TaskId(0), 3);
        tracks.add(1000, 0, TaskId::IDLE, 3);
        assert_eq!(tracks.values(0, 0)[SCORE_BINS - 1], Some(3.0));
    }
}
