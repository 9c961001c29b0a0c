//! One scheduling class above another: a composite that is a scheduler itself.
//!
//! Every task belongs to one of the two. The upper class goes first: the lower picks on a CPU where the upper has nothing to run, and a
//! task of the upper that becomes runnable preempts one of the lower. Who decides which task belongs where is a [`Membership`]; it may
//! also end one of them during the run: the upper, and then all its tasks go down, as those of a sched_ext program do that is ejected; or the lower, whose tasks go up.
//! One that has ended may begin again.
//!
//! Source: the order of classes in Linux 7.2 (`__pick_next_task`, `wakeup_preempt`, `sched_change_begin` and `sched_change_end` in
//! `kernel/sched/core.c`).
//!
//! As in the kernel, both classes know of every task from fork to death, its attributes and its affinity, and each queues only its own.
//! An ordinary tick tells a class of its own running task only. The high-resolution tick is one per CPU and goes to the class of the
//! running task.
//!
//! Not modelled: scores of the two are not told; classes do not balance against each other's load.

use warmcore_kernel::{
    Change, Core, Dequeue, Enqueue, Hook, LeftWakeups, Level, Scheduler, SchedulerThread, State, ThreadStep,
    Utilisation, WakeFlags,
};
use warmcore_topology::CpuId;
use warmcore_trace::schedstat::CpuCounters;
use warmcore_trace::{PrevState, TaskId};

/// Decides which class a task belongs to.
pub trait Membership<U, L> {
    /// The class that a new task begins in.
    fn level_of(&mut self, core: &Core<'_>, task: TaskId, parent: Option<TaskId>) -> Level;

    /// The class that a task belongs to after its nice value, policy, slice or group has changed; it was in `level`.
    fn level_after_change(&mut self, _core: &Core<'_>, _task: TaskId, level: Level) -> Level {
        level
    }

    /// The class that picks first on a CPU that is about to pick. Called in the name of the upper.
    fn goes_first(&mut self, _core: &mut Core<'_>, _upper: &mut U, _lower: &L, _cpu: CpuId) -> Level {
        Level::Upper
    }

    /// Tells what happens to the lower class on a CPU. Called in the name of the upper.
    fn lower_event(&mut self, _core: &mut Core<'_>, _upper: &mut U, _lower: &L, _what: (CpuId, LowerEvent)) {}

    /// Whether a timer that was started in the name of the upper is its own. Called in that name, also when one has ended.
    fn timer(&mut self, _core: &mut Core<'_>, _upper: &mut U, _lower: &L, _what: (CpuId, u64)) -> bool {
        false
    }

    /// The class that ends now, if one does. Asked after every tick and timer; once one has ended, everything belongs to the other
    /// and nobody asks again.
    fn ends(&mut self, _core: &Core<'_>, _upper: &mut U, _lower: &mut L) -> Option<Level> {
        None
    }

    /// Whether the class that has just ended may begin again. As long, it is told of all that happens and has no task.
    fn may_begin_again(&self, _upper: &U, _lower: &L) -> bool {
        false
    }

    /// Whether it begins again now. Asked after every timer, in its name.
    fn begins_again(&mut self, _core: &mut Core<'_>, _upper: &mut U, _lower: &mut L) -> bool {
        false
    }
}

/// What happens to the lower class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LowerEvent {
    /// One of its tasks has been queued.
    Queued,
    /// One of its tasks begins to run.
    Runs,
    /// Its running task stops running.
    Stops,
    /// A tick of the CPU, whoever runs there.
    Tick,
    /// It was to pick first and had nothing.
    NothingPicked,
    /// The CPU has nothing to run.
    Idle,
    /// That is over.
    Busy,
}

/// Two schedulers as two classes.
pub struct Stacked<U, L, M> {
    name: &'static str,
    upper: U,
    lower: L,
    membership: M,
    /// Class of each task.
    levels: Vec<Level>,
    /// Tasks that are this composite's. One that stands below another may not have all.
    own: Vec<bool>,
    /// The class that is left, once the other has ended.
    left: Option<Level>,
    /// The other may begin again.
    awaits: bool,
}

/// Calls one of the two classes, which is at work as long.
macro_rules! in_class {
    ($self:ident, $core:ident, $level:expr, $method:ident($($argument:expr),*)) => {{
        let level = $level;
        $core.enter_class(level);
        let result = match level {
            Level::Upper => $self.upper.$method($core, $($argument),*),
            Level::Lower => $self.lower.$method($core, $($argument),*),
        };
        $core.leave_class();
        result
    }};
}

/// Calls those that have not ended, the upper first.
macro_rules! in_both {
    ($self:ident, $core:ident, $method:ident($($argument:expr),*)) => {
        for &level in $self.classes() {
            in_class!($self, $core, level, $method($($argument),*));
        }
    };
}

impl<U: Scheduler, L: Scheduler, M: Membership<U, L>> Stacked<U, L, M> {
    /// `upper` above `lower`.
    pub fn new(name: &'static str, upper: U, lower: L, membership: M) -> Self {
        Self { name, upper, lower, membership, levels: Vec::new(), own: Vec::new(), left: None, awaits: false }
    }

    /// The classes that there are.
    fn classes(&self) -> &'static [Level] {
        match self.left.filter(|_| !self.awaits) {
            None => &[Level::Upper, Level::Lower],
            Some(Level::Upper) => &[Level::Upper],
            Some(Level::Lower) => &[Level::Lower],
        }
    }

    /// The class that a task belongs to.
    pub fn level(&self, task: TaskId) -> Level {
        self.levels[task.index()]
    }

    /// Moves a task, wherever it is in its life, to a class (`sched_change_begin`, `sched_change_end`).
    pub fn move_task(&mut self, core: &mut Core<'_>, task: TaskId, to: Level) {
        let from = self.level(task);
        let state = core.task(task).state();
        if from == to || state == State::Dead {
            return;
        }
        if !self.own[task.index()] {
            self.levels[task.index()] = to;
            return;
        }
        let cpu = core.task(task).cpu();
        let runs = state == State::Running;
        let queued = runs || state == State::Queued;
        if queued || self.holds(task) {
            in_class!(self, core, from, dequeue(cpu, task, Dequeue::SAVE | Dequeue::MOVE));
        }
        if runs {
            self.put_prev(core, cpu, task, false);
        }
        in_class!(self, core, from, switched_from(task));
        self.levels[task.index()] = to;
        in_class!(self, core, to, switched_to(task));
        if !queued {
            return;
        }
        self.enqueue(core, cpu, task, Enqueue::RESTORE | Enqueue::MOVE);
        if runs {
            // The tick that the old class asked for says nothing to the new one.
            core.cancel_hrtick(cpu);
            self.set_next(core, cpu, task);
            core.resched_full(cpu);
        } else {
            self.check_preempt(core, cpu, task, WakeFlags::default());
        }
    }

    /// Tells the membership what happens to the lower class, while there are both.
    #[inline]
    fn tell(&mut self, core: &mut Core<'_>, cpu: CpuId, event: LowerEvent) {
        if self.left.is_none() {
            core.enter_class(Level::Upper);
            self.membership.lower_event(core, &mut self.upper, &self.lower, (cpu, event));
            core.leave_class();
        }
    }

    fn end_if_asked(&mut self, core: &mut Core<'_>) {
        if let Some(left) = self.left {
            self.begin_again_if_asked(core, left);
            return;
        }
        let left = match self.membership.ends(core, &mut self.upper, &mut self.lower) {
            None => return,
            Some(Level::Upper) => Level::Lower,
            Some(Level::Lower) => Level::Upper,
        };
        for index in 0..core.task_count() {
            self.move_task(core, TaskId(index as u32), left);
        }
        self.left = Some(left);
        self.awaits = self.membership.may_begin_again(&self.upper, &self.lower);
    }

    fn begin_again_if_asked(&mut self, core: &mut Core<'_>, left: Level) {
        if !self.awaits {
            return;
        }
        core.enter_class(if left == Level::Upper { Level::Lower } else { Level::Upper });
        let begins = self.membership.begins_again(core, &mut self.upper, &mut self.lower);
        core.leave_class();
        if !begins {
            return;
        }
        (self.left, self.awaits) = (None, false);
        for task in (0..core.task_count()).map(|index| TaskId(index as u32)) {
            let level = self.membership.level_of(core, task, None);
            self.move_task(core, task, level);
        }
    }
}

impl<U: Scheduler, L: Scheduler, M: Membership<U, L>> Scheduler for Stacked<U, L, M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn init(&mut self, core: &mut Core<'_>) {
        in_both!(self, core, init());
    }

    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>) {
        let wanted = self.membership.level_of(core, task, parent);
        self.levels.push(self.left.unwrap_or(wanted));
        self.own.push(false);
        in_both!(self, core, task_fork(task, parent));
    }

    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        in_both!(self, core, task_dead(task));
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        in_class!(self, core, self.level(task), select_cpu(task, prev, flags))
    }

    fn holds(&self, task: TaskId) -> bool {
        match self.level(task) {
            Level::Upper => self.upper.holds(task),
            Level::Lower => self.lower.holds(task),
        }
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        self.own[task.index()] = true;
        in_class!(self, core, self.level(task), enqueue(cpu, task, flags));
        if self.level(task) == Level::Lower {
            self.tell(core, cpu, LowerEvent::Queued);
        }
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue) {
        in_class!(self, core, self.level(task), dequeue(cpu, task, flags));
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: WakeFlags) {
        let level = self.level(task);
        if core.curr_is_idle(cpu) || self.level(core.curr(cpu)) == level {
            in_class!(self, core, level, check_preempt(cpu, task, flags));
        } else if level == Level::Upper {
            core.resched_full(cpu);
        }
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        let mut classes = self.classes();
        if self.left.is_none() {
            core.enter_class(Level::Upper);
            if self.membership.goes_first(core, &mut self.upper, &self.lower, cpu) == Level::Lower {
                classes = &[Level::Lower, Level::Upper];
            }
            core.leave_class();
        }
        let mut picked = None;
        for (position, &level) in classes.iter().enumerate() {
            let own_prev = prev.filter(|&task| self.level(task) == level);
            picked = in_class!(self, core, level, pick_next(cpu, own_prev));
            if picked.is_some() {
                break;
            }
            if position == 0 && level == Level::Lower {
                self.tell(core, cpu, LowerEvent::NothingPicked);
            }
        }
        let curr = core.curr(cpu);
        if let Some(next) = picked
            && !curr.is_idle()
            && self.level(next) != self.level(curr)
        {
            core.cancel_hrtick(cpu);
        }
        picked
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        in_class!(self, core, self.level(task), put_prev(cpu, task, runnable));
        if self.level(task) == Level::Lower {
            self.tell(core, cpu, LowerEvent::Stops);
        }
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if self.level(task) == Level::Lower {
            self.tell(core, cpu, LowerEvent::Runs);
        }
        in_class!(self, core, self.level(task), set_next(cpu, task));
    }

    fn enter_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, enter_idle(cpu));
        self.tell(core, cpu, LowerEvent::Idle);
    }

    fn exit_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, exit_idle(cpu));
        self.tell(core, cpu, LowerEvent::Busy);
    }

    fn sched_switch(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: (TaskId, PrevState), next: TaskId) {
        in_both!(self, core, sched_switch(cpu, prev, next));
    }

    fn hook(&mut self, core: &mut Core<'_>, cpu: CpuId, hook: Hook) {
        in_both!(self, core, hook(cpu, hook));
    }

    fn ttwu_pending_changed(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, ttwu_pending_changed(cpu));
    }

    /// The kernel is the lower's.
    fn left_wakeups(&self) -> LeftWakeups {
        self.lower.left_wakeups()
    }

    fn allows_left_wakeups(&self, task: TaskId) -> bool {
        match self.level(task) {
            Level::Upper => self.upper.allows_left_wakeups(task),
            Level::Lower => self.lower.allows_left_wakeups(task),
        }
    }

    fn wakeup_sent(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        in_class!(self, core, self.level(task), wakeup_sent(cpu, task));
    }

    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        for &level in self.classes() {
            let own = curr.filter(|&task| self.level(task) == level);
            in_class!(self, core, level, tick(cpu, own));
        }
        self.tell(core, cpu, LowerEvent::Tick);
        self.end_if_asked(core);
    }

    fn cpu_offline(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, cpu_offline(cpu));
    }

    fn cpu_online(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, cpu_online(cpu));
    }

    fn tick_stopped(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, tick_stopped(cpu));
    }

    fn begin(&mut self, core: &mut Core<'_>) {
        in_both!(self, core, begin());
    }

    fn looks_at_parents(&self) -> bool {
        self.upper.looks_at_parents() || self.lower.looks_at_parents()
    }

    fn reads_resident_pages(&self) -> bool {
        self.upper.reads_resident_pages() || self.lower.reads_resident_pages()
    }

    /// One of the two has some.
    fn threads(&self) -> &[SchedulerThread] {
        let upper = self.upper.threads();
        if upper.is_empty() { self.lower.threads() } else { upper }
    }

    fn thread_goes_on(&mut self, core: &mut Core<'_>, thread: u32) -> ThreadStep {
        let level = if self.upper.threads().is_empty() { Level::Lower } else { Level::Upper };
        in_class!(self, core, level, thread_goes_on(thread))
    }

    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: TaskId) {
        in_class!(self, core, self.level(curr), hrtick(cpu, curr));
        if self.level(curr) == Level::Lower {
            self.tell(core, cpu, LowerEvent::Tick);
        }
    }

    /// There is one softirq for both.
    fn softirq(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        in_both!(self, core, softirq(cpu));
    }

    fn nohz_kick(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let level = core.addressee();
        if self.classes().contains(&level) {
            in_class!(self, core, level, nohz_kick(cpu));
        }
    }

    fn stopper_comes(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: TaskId) {
        in_class!(self, core, self.level(prev), stopper_comes(cpu, prev));
    }

    fn stopper(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u32) {
        let level = core.addressee();
        if self.classes().contains(&level) {
            in_class!(self, core, level, stopper(cpu, payload));
        }
    }

    fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u64) {
        let level = core.addressee();
        let is_own = level == Level::Upper && {
            core.enter_class(level);
            let is_own = self.membership.timer(core, &mut self.upper, &self.lower, (cpu, payload));
            core.leave_class();
            is_own
        };
        if !is_own && self.classes().contains(&level) {
            in_class!(self, core, level, timer(cpu, payload));
        }
        self.end_if_asked(core);
    }

    fn yield_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        in_class!(self, core, self.level(task), yield_task(cpu, task));
    }

    fn permits(&mut self, core: &mut Core<'_>, task: TaskId, change: Change) -> bool {
        let mut permits = true;
        for &level in self.classes() {
            permits &= in_class!(self, core, level, permits(task, change));
        }
        permits
    }

    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        in_both!(self, core, attributes_changed(task));
        if self.left.is_none() {
            let wanted = self.membership.level_after_change(core, task, self.level(task));
            self.move_task(core, task, wanted);
        }
    }

    fn affinity_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        in_both!(self, core, affinity_changed(task));
    }

    fn tunable_changed(&mut self, core: &mut Core<'_>, name: &str, value: u64) {
        in_both!(self, core, tunable_changed(name, value));
    }

    fn switched_from(&mut self, core: &mut Core<'_>, task: TaskId) {
        in_class!(self, core, self.level(task), switched_from(task));
        self.own[task.index()] = false;
    }

    fn switched_to(&mut self, core: &mut Core<'_>, task: TaskId) {
        in_class!(self, core, self.level(task), switched_to(task));
    }

    /// As `sugov_get_util` and `effective_cpu_util` add up classes.
    fn utilisation(&self, core: &Core<'_>, cpu: CpuId) -> Utilisation {
        let asked = self.classes().iter().map(|level| match level {
            Level::Upper => self.upper.utilisation(core, cpu),
            Level::Lower => self.lower.utilisation(core, cpu),
        });
        asked.fold(Utilisation::default(), |sum, own| Utilisation {
            used: sum.used + own.used,
            running: sum.running + own.running,
            least: sum.least + own.least,
            at_once: sum.at_once || own.at_once,
        })
    }

    fn speed_changed(&mut self, core: &mut Core<'_>, cpu: CpuId, scale: f64) {
        in_both!(self, core, speed_changed(cpu, scale));
    }

    fn interrupted(&mut self, core: &mut Core<'_>, cpu: CpuId, duration_ns: u64) {
        in_both!(self, core, interrupted(cpu, duration_ns));
    }

    /// Of the two classes one balances, or none.
    fn domain_counters(&self, core: &Core<'_>) -> Vec<CpuCounters> {
        let upper = self.upper.domain_counters(core);
        if upper.is_empty() { self.lower.domain_counters(core) } else { upper }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.upper.runnable_on(cpu) + self.lower.runnable_on(cpu)
    }
}
