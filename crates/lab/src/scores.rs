//! What schedulers rank tasks by, in words. Names are the simulator's (`warmcore_schedulers::scores`).

/// A score in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScoreInfo {
    /// Name, with unit as suffix.
    pub name: &'static str,
    /// For headings.
    pub title: &'static str,
    /// What it is, and what the scheduler does with it.
    pub meaning: &'static str,
}

/// All scores there are.
pub const SCORES: [ScoreInfo; 6] = [
    ScoreInfo {
        name: "vlag_ns",
        title: "Lag",
        meaning: "what the task is owed: the average virtual runtime of its queue minus its own, in time of a nice-0 task; from 0 \
                  on it is eligible",
    },
    ScoreInfo {
        name: "deadline_ns",
        title: "Virtual deadline",
        meaning: "the task's virtual deadline minus the average virtual runtime of its queue; of the eligible tasks the one with \
                  the earliest runs",
    },
    ScoreInfo {
        name: "vruntime_ns",
        title: "Virtual runtime",
        meaning: "the task's virtual runtime minus min_vruntime of its queue, which never goes back: a task that slept is below 0; the task \
                  with the smallest runs",
    },
    ScoreInfo {
        name: "position",
        title: "Place in the queue",
        meaning: "the task's place in the global queue, 0 while it runs; the first one runs next",
    },
    ScoreInfo {
        name: "penalty",
        title: "Interactivity penalty",
        meaning: "how much the task runs for what it sleeps, 0 to 100: below 50 it sleeps more than it runs; below the threshold of 30 \
                  it is interactive and goes before all that are not",
    },
    ScoreInfo {
        name: "priority",
        title: "Priority",
        meaning: "the task's place among FreeBSD's 256 priorities; the task with the smallest runs, and those of one level take turns",
    },
];

/// A score by its name.
pub fn score(name: &str) -> Option<&'static ScoreInfo> {
    SCORES.iter().find(|score| score.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_schedulers::list;

    #[test]
    fn every_score_of_every_scheduler_is_explained() {
        for info in list() {
            for name in info.scores {
                assert!(score(name).is_some(), "{}: {name}", info.name);
            }
        }
    }
}
