//! Figures of a source that are drawn again from the simulations of its rows.

/// A figure of a source.
#[derive(Clone, Copy, Debug)]
pub struct PublishedFigure {
    /// Number in the source, and what tells its panels apart: name of its files.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What is to be seen in the published figure, and its axes.
    pub published: &'static str,
    /// Workload of the run it is drawn from; a row must need that run.
    pub workload: &'static str,
    /// Scheduler of that run.
    pub scheduler: &'static str,
    /// How it is drawn.
    pub drawing: Drawing,
}

/// What a figure draws over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawing {
    /// Run time of each application so far.
    RunTimeOfApplications,
    /// Run time of each task so far.
    RunTimeOfTasks,
    /// A score of the scheduler, by its name.
    Score(&'static str),
    /// Runnable tasks on each CPU.
    TasksPerCpu,
}
