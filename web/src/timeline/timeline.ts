// The timeline: CPUs or tasks over time, one pane per scheduler, all showing the same span.

import { css, group, magnitude } from '../colour';
import { button, choice, element, showTip, toggle } from '../dom';
import { count, duration, instant } from '../format';
import { placeName } from '../scene';
import { FEW_TASKS, type RunState } from '../state';
import { THEME_CHANGED } from '../theme';
import { Pane } from './pane';
import { countedOf, lengthOf, type ColourBy, type Host, type RowsBy } from './view';

/** Tasks up to which each has a colour of its own from the start. */
const FEW_COLOURS = 16;
/** CPUs up to which each has a row from the start; beyond, LLCs have. */
const MOST_CPUS = 128;
/** LLCs up to which each has a colour of its own; beyond, nodes have. */
const MOST_COLOURS = 24;
/** Decisions up to which they are marked from the start; more hide what ran. */
const FEW_DECISIONS = 200;
/** Entries up to which a legend is not folded. */
const OPEN_LEGEND = 12;

export class Timeline implements Host {
  private rowsBy: RowsBy = 'cpu';
  private colourBy: ColourBy = 'group';
  private showDecisions: boolean;
  private showMoves = false;
  private showWakes = false;
  private readonly panes: Pane[];
  private readonly range = element('span', 'range');
  private readonly detail = element('div', 'detail', 'Click a slice or a migration for its details. A, D and drag pan. W, S and Ctrl with the wheel zoom. Shift with drag chooses a span. The address of the page is a link to this moment.');
  private readonly legend = element('details', 'legends');
  private readonly grid = element('div', 'panes');
  private readonly folds = element('div', 'folds');
  private readonly colourSlot = element('span');

  constructor(
    box: HTMLElement,
    private readonly state: RunState,
  ) {
    this.detail.setAttribute('role', 'status');
    this.panes = state.scenes.map((scene, index) => new Pane(this, state, scene, index));
    this.grid.append(...this.panes.map((pane) => pane.box));
    this.showDecisions = state.scenes.every((scene) => scene.header.decisions_total <= FEW_DECISIONS);
    const at_most = (tasks: number): boolean => state.scenes.every((scene) => scene.tasks <= tasks);
    if (new Set(state.machine.llc).size > 1) {
      // Where tasks ran is the question: rows of tasks in the colours of LLCs, or on very large machines rows of LLCs.
      this.rowsBy = state.cpus.length > MOST_CPUS && !at_most(FEW_TASKS / 2) ? 'llc' : 'task';
      const place = new Set(state.machine.llc).size > MOST_COLOURS ? 'node' : 'llc';
      this.colourBy = this.rowsBy === 'task' || this.oneGroup() ? place : 'group';
    } else {
      if (at_most(FEW_COLOURS)) this.rowsBy = 'task';
      if (at_most(FEW_COLOURS) || this.oneGroup()) this.colourBy = 'task';
    }
    box.append(this.tools(), this.folds, this.legend, this.grid, this.detail);
    state.listen(() => this.draw());
    document.addEventListener(THEME_CHANGED, () => state.changed());
    new ResizeObserver(() => state.changed()).observe(this.grid);
    this.draw();
    document.addEventListener('keydown', (event) => {
      const { top, bottom } = this.grid.getBoundingClientRect();
      const seen = top < innerHeight * 0.7 && bottom > innerHeight * 0.3;
      if (event.target === document.body && seen && /^[wasd]$/i.test(event.key)) this.panes[0]?.key(event);
    });
  }

  /** Whether no role tells tasks apart. */
  private oneGroup(): boolean {
    return this.state.scenes.every((scene) => scene.header.groups.length < 2);
  }

  private tools(): HTMLElement {
    const tools = element('div', 'tools');
    const rows = [['task', 'tasks'], ['cpu', 'CPUs'], ['llc', 'LLCs']] as const;
    tools.append(
      choice('Rows', rows, this.rowsBy, (value) => {
        this.rowsBy = value;
        this.colourBy = value === 'task' ? 'llc' : !this.oneGroup() ? 'group' : value === 'cpu' ? 'task' : 'llc';
        this.offerColours();
        this.state.changed();
      }),
      this.colourSlot,
    );
    this.offerColours();
    if (this.panes.length > 1) {
      this.state.scenes.forEach((scene, index) =>
        tools.append(toggle(scene.header.scheduler, true, (on) => this.state.toggleScheduler(index, on))),
      );
    }
    if (this.state.scenes.some((scene) => scene.header.decisions_total > 0)) {
      tools.append(toggle('decisions', this.showDecisions, (on) => this.set(() => (this.showDecisions = on))));
    }
    if (this.state.scenes.some((scene) => scene.header.wakes_total > 0)) {
      tools.append(toggle('wakeups', false, (on) => this.set(() => (this.showWakes = on))));
    }
    tools.append(toggle('migrations', this.showMoves, (on) => this.set(() => (this.showMoves = on))));
    if (this.state.idle > 0) tools.append(toggle(`${this.state.idle} idle CPUs`, false, (on) => this.state.showIdle(on)));
    tools.append(this.search());
    const zoom = element('span', 'tools push');
    const named = (text: string, label: string, action: () => void): HTMLButtonElement => {
      const made = button(text, action);
      made.setAttribute('aria-label', label);
      made.title = label;
      return made;
    };
    zoom.append(
      named('−', 'Zoom out', () => this.state.zoom(2)),
      named('+', 'Zoom in', () => this.state.zoom(0.5)),
      named('←', 'Earlier', () => this.state.pan(-0.3)),
      named('→', 'Later', () => this.state.pan(0.3)),
      named('Whole', 'Show the whole run', () => this.state.show(0, this.state.end)),
      this.range,
    );
    if (this.state.measuredFrom > 0) {
      zoom.insertBefore(named('Measured', 'Show the measured span', () => this.state.show(this.state.measuredFrom, this.state.end)), this.range);
    }
    tools.append(zoom);
    return tools;
  }

  /** Looks for tasks by name: the others fade, Enter goes to the next slice of one. */
  private search(): HTMLElement {
    const box = element('label', '', 'Task ');
    const input = element('input', 'seek');
    input.type = 'search';
    input.placeholder = 'name';
    const change = (): void => {
      showTip('');
      this.state.sought = input.value.trim().toLowerCase();
      this.state.changed();
    };
    input.addEventListener('input', change);
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.next();
    });
    box.append(input);
    return box;
  }

  /** Shows the next slice, after the middle of the span, of a task that is looked for. */
  private next(): void {
    if (!this.state.sought) return;
    // What lies under the pointer is another slice then.
    showTip('');
    const middle = (this.state.from + this.state.to) / 2;
    for (const [index, pane] of this.panes.entries()) {
      const { scene } = pane;
      if (!this.state.shown.has(index) || !scene.exact) continue;
      let [best, first]: (number | undefined)[] = [];
      for (let i = 0; i < scene.task.length; i++) {
        if (!this.state.isSought(scene, scene.task[i])) continue;
        if (first === undefined || scene.start[i] < scene.start[first]) first = i;
        if (scene.start[i] > middle && (best === undefined || scene.start[i] < scene.start[best])) best = i;
      }
      const found = best ?? first;
      if (found !== undefined) return pane.showSlice(found);
    }
    this.tell(`No task with “${this.state.sought}” in its name ran.`);
  }

  private set(change: () => void): void {
    change();
    this.state.changed();
  }

  private offerColours(): void {
    const places = [['llc', 'LLC'], ['node', 'NUMA node'], ['socket', 'socket']] as const;
    const all: readonly (readonly [ColourBy, string])[] =
      this.rowsBy === 'task'
        ? [...places, ['task', 'task']]
        : this.rowsBy === 'llc'
          ? [['group', 'role'], ['task', 'task'], ['process', 'process'], ...places]
          : [['group', 'role'], ['task', 'task'], ['process', 'process'], ...places, ['length', 'tasks per CPU'], ...this.counters()];
    this.colourSlot.replaceChildren(
      choice('Colour', all, this.colourBy, (value) => this.set(() => (this.colourBy = value))),
    );
  }

  /** Counters as colours; every trial of a run has the same ones, or none. */
  private counters(): (readonly [ColourBy, string])[] {
    const names = this.state.scenes.map((scene) => scene.header.counters).find((found) => found.length > 0) ?? [];
    return names.map((name, index) => [`counter ${index}`, `counter: ${name}`] as const);
  }

  private draw(): void {
    const begin = performance.now();
    const shown = this.panes.filter((_, index) => this.state.shown.has(index));
    this.grid.style.setProperty('--panes', String(Math.max(1, shown.length)));
    for (const [index, pane] of this.panes.entries()) pane.box.hidden = !this.state.shown.has(index);
    for (const pane of shown) {
      pane.draw({ rowsBy: this.rowsBy, colourBy: this.colourBy, decisions: this.showDecisions, moves: this.showMoves, wakes: this.showWakes });
    }
    const { from, to } = this.state;
    const fine = (to - from) / 1000;
    this.range.textContent = `${instant(from, fine, to)} – ${instant(to, fine)} (${duration(to - from)})`;
    this.drawLegend();
    this.drawFolds();
    performance.clearMeasures('warmcore redraw');
    performance.measure('warmcore redraw', { start: begin, end: performance.now() });
  }

  private drawLegend(): void {
    const entries: [string, string][] = [];
    const machine = this.state.machine;
    // Only places where something ran have a colour in the drawing.
    const places = (name: 'llc' | 'node' | 'socket'): void => {
      const column = machine[name];
      const used = [...new Set(this.state.busy.map((cpu) => column[cpu]))].sort((a, b) => a - b);
      for (const i of used) entries.push([css(group(i)), placeName(machine, name, i)]);
    };
    if (this.colourBy === 'llc') places('llc');
    else if (this.colourBy === 'node') places('node');
    else if (this.colourBy === 'socket') places('socket');
    else if (this.colourBy === 'length') {
      for (const share of [0, 0.25, 0.5, 0.75, 1]) {
        entries.push([css(magnitude(share)), count(lengthOf(share, this.mostLength()))]);
      }
    } else if (this.colourBy.startsWith('counter ')) {
      const counter = Number(this.colourBy.split(' ')[1]);
      const { end_ns, counter_bins } = this.state.scenes[0].header;
      for (const share of [0, 0.25, 0.5, 0.75, 1]) {
        const rate = countedOf(share, this.mostCounted(counter)) / (end_ns / counter_bins / 1e9);
        entries.push([css(magnitude(share)), `${count(rate)}/s`]);
      }
    } else if (this.colourBy === 'task' && this.rowsBy === 'cpu' && this.state.scenes.every((scene) => scene.tasks <= FEW_TASKS)) {
      const scene = this.state.scenes[0];
      scene?.header.task_names.forEach((name, i) => entries.push([css(group(scene.colourOfTask(i))), name]));
    } else if (this.colourBy === 'group') {
      const scene = this.state.scenes[0];
      scene?.header.groups.forEach((name, i) => entries.push([css(group(scene.colourOfGroup(i))), name]));
    }
    // Rows that stand for several CPUs or tasks are as high as many of them run.
    const folded = this.rowsBy === 'task' && this.panes.some((pane) => pane.rows.some((row) => row.folded));
    const heights = this.rowsBy === 'llc' ? "height: share of the LLC's CPUs that are busy" : folded ? "height: share of a group's tasks that run" : '';
    const said = `${heights} ${entries.map((entry) => entry.join()).join()}`;
    if (this.legend.dataset.said === said) return;
    this.legend.dataset.said = said;
    this.legend.hidden = entries.length === 0 && !heights;
    this.legend.open = entries.length <= OPEN_LEGEND;
    this.legend.classList.toggle('short', this.legend.open);
    const list = element('div', 'legend');
    list.append(
      ...entries.map(([colour, text]) => {
        const entry = element('span');
        const swatch = element('i', 'swatch');
        swatch.style.background = colour;
        entry.append(swatch, text);
        return entry;
      }),
    );
    if (heights) list.append(element('span', '', heights));
    this.legend.replaceChildren(element('summary', '', `Colours: ${entries.length}`), list);
  }

  /** Groups of tasks as switches, when rows are tasks. */
  private drawFolds(): void {
    const groups = new Set(this.state.scenes.flatMap((scene) => scene.header.groups));
    const several = [...groups].filter((name) => / ×\d+$/.test(name));
    const few = this.state.scenes.every((scene) => scene.tasks <= FEW_TASKS);
    this.folds.hidden = this.rowsBy !== 'task' || several.length === 0 || few;
    if (this.folds.hidden) return;
    const pressed = several.map((name) => this.state.unfolded.has(name)).join();
    if (this.folds.dataset.state === pressed) return;
    this.folds.dataset.state = pressed;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.group : undefined;
    this.folds.replaceChildren(
      element('span', 'note', 'One row per task: '),
      ...several.slice(0, 200).map((name) => {
        const made = button(name, () => this.state.toggleGroup(name));
        made.dataset.group = name;
        made.setAttribute('aria-pressed', String(this.state.unfolded.has(name)));
        return made;
      }),
    );
    const again = [...this.folds.querySelectorAll('button')].find((made) => made.dataset.group === focused);
    again?.focus();
  }

  /** The largest number of tasks any CPU had, over all schedulers: one scale for all panes. */
  mostLength(): number {
    return Math.max(1, ...this.state.scenes.map((scene) => scene.lengths.reduce((a, b) => Math.max(a, b), 0)));
  }

  mostCounted(counter: number): number {
    return Math.max(1, ...this.state.scenes.map((scene) => scene.mostCounted(counter)));
  }

  tell(text: string): void {
    this.detail.textContent = text;
  }

  /** Panes scroll together. */
  scrollTo(top: number): void {
    for (const pane of this.panes) pane.scrollTo(top);
  }
}
