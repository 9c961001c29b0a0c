// What the views of one run share: the span of time, which schedulers are shown, which groups of tasks are unfolded.

import type { Machine, RunDocument, Scene } from './scene';

export interface Row {
  label: string;
  tasks: number[];
  group: number;
  /** Whether it stands for a whole group of more than one task. */
  folded: boolean;
}

/** Tasks up to which every task has a row from the start. */
export const FEW_TASKS = 160;

export class RunState {
  from = 0;
  to: number;
  readonly end: number;
  /** Beginning of what the verdict's measure is of: the end of the warm-up, or a start signal. */
  readonly measuredFrom: number;
  /** Tasks that the reader looks for: part of their names, in lower case. */
  sought = '';
  readonly shown: Set<number>;
  readonly unfolded = new Set<string>();
  /** CPUs in the order in which they are drawn: all of them, or those that ran anything under any scheduler. */
  cpus: number[];
  /** CPUs that ran anything under any scheduler; all where none did. */
  readonly busy: readonly number[];
  readonly idle: number;
  private readonly listeners: (() => void)[] = [];
  private scheduled = false;

  constructor(
    readonly run: RunDocument,
    readonly scenes: Scene[],
  ) {
    this.end = Math.max(1, ...scenes.map((scene) => scene.header.end_ns));
    this.measuredFrom = Math.min(...scenes.map((scene) => scene.header.measured_from_ns), this.end - 1);
    this.from = Math.max(0, this.measuredFrom);
    this.to = this.end;
    this.shown = new Set(scenes.keys());
    for (const scene of scenes) {
      if (scene.tasks <= FEW_TASKS) scene.header.groups.forEach((name) => this.unfolded.add(name));
    }
    this.busy = this.busyCpus();
    this.idle = run.machine.order.length - this.busy.length;
    this.cpus = [...this.busy];
  }

  get machine(): Machine {
    return this.run.machine;
  }

  private busyCpus(): number[] {
    const busy = this.run.machine.order.filter((cpu) => this.scenes.some((scene) => scene.busyIn(cpu, 0, this.end) > 0));
    return busy.length > 0 ? busy : this.run.machine.order;
  }

  showIdle(on: boolean): void {
    this.cpus = on ? this.run.machine.order : [...this.busy];
    this.changed();
  }

  listen(listener: () => void): void {
    this.listeners.push(listener);
  }

  /** Draws everything again, once per frame. */
  changed(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      for (const listener of this.listeners) listener();
    });
  }

  /** Shows a span of time, within the run and not shorter than ten nanoseconds. */
  show(from: number, to: number): void {
    const length = Math.min(this.end, Math.max(10, to - from));
    this.from = Math.max(0, Math.min(from, this.end - length));
    this.to = this.from + length;
    this.changed();
  }

  /** Makes the span shorter (factor below 1) or longer around a point in it. */
  zoom(factor: number, around = (this.from + this.to) / 2): void {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  /** Moves the span by a part of its length. */
  pan(part: number): void {
    const by = (this.to - this.from) * part;
    this.show(this.from + by, this.to + by);
  }

  toggleScheduler(index: number, on: boolean): void {
    if (on) this.shown.add(index);
    else this.shown.delete(index);
    this.changed();
  }

  toggleGroup(name: string): void {
    if (!this.unfolded.delete(name)) this.unfolded.add(name);
    this.changed();
  }

  /** Whether a task is what the reader looks for. */
  isSought(scene: Scene, task: number): boolean {
    return scene.taskName(task).toLowerCase().includes(this.sought);
  }

  /** All CPUs, idle ones too, of each LLC that has any of those which are drawn. */
  llcs(): number[][] {
    const drawn = new Set(this.cpus.map((cpu) => this.machine.llc[cpu]));
    const by = new Map<number, number[]>();
    for (const cpu of this.machine.order) {
      const llc = this.machine.llc[cpu];
      if (!drawn.has(llc)) continue;
      const own = by.get(llc);
      if (own) own.push(cpu);
      else by.set(llc, [cpu]);
    }
    return [...by.values()];
  }

  /** Rows of tasks: one per task of an unfolded group, one per folded group. */
  rows(scene: Scene): Row[] {
    const groups = scene.header.groups;
    const members: number[][] = groups.map(() => []);
    scene.header.task_groups.forEach((group, task) => members[group].push(task));
    return members.flatMap((tasks, group): Row[] =>
      tasks.length > 1 && !this.unfolded.has(groups[group])
        ? [{ label: groups[group], tasks, group, folded: true }]
        : tasks.map((task) => ({ label: scene.taskName(task), tasks: [task], group, folded: false })),
    );
  }
}
