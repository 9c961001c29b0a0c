// Tasks × CPUs: where each spent its run time, over the timeline's span. Rows and columns can be put together, and groups
// unfolded one by one, so that thousands of tasks on hundreds of CPUs stay readable.

import { css, group, magnitude, pixel } from '../colour';
import { choice, element, showTip, themeColour } from '../dom';
import { count, duration, percent, shortenedGroup } from '../format';
import { lazily } from '../lazily';
import type { Scene } from '../scene';
import type { RunState } from '../state';
import { THEME_CHANGED } from '../theme';
import { heatOf, type ColumnsBy, type Heat, type RowsBy } from './heat';

/** Width of the labels before they are measured, and the share of a pane that they may take. */
const GUTTER = 118;
const MOST_LABELS = 0.35;
const LABELS = '11px system-ui, "DejaVu Sans", sans-serif';
const TOP = 20;
const MOST_HEIGHT = 340;
/** Tasks up to which every task has a row from the start. */
const FEW_TASKS = 128;
/** Pixels that a CPU's column should have. */
const LEAST_COLUMN = 1.5;

interface Pane {
  scene: Scene;
  box: HTMLElement;
  canvas: HTMLCanvasElement;
  scroller: HTMLElement;
  spacer: HTMLElement;
  /** Width of the labels. */
  gutter: number;
  heat?: Heat;
  chosen?: number;
}

export class Heatmap {
  private rowsBy: RowsBy;
  private columnsBy: ColumnsBy = 'cpu';
  private readonly unfolded = new Set<string>();
  private readonly grid = element('div', 'panes');
  private readonly note = element('p', 'note');
  private readonly told = element('p', 'note');
  private readonly panes: Pane[];
  private readonly wanted: () => void;

  constructor(
    box: HTMLElement,
    private readonly state: RunState,
  ) {
    const most = (value: (scene: Scene) => number): number => Math.max(0, ...state.scenes.map(value));
    const groups = most((scene) => scene.header.groups.length);
    this.rowsBy = most((scene) => scene.tasks) <= FEW_TASKS ? 'task' : groups <= FEW_TASKS ? 'group' : 'cluster';
    const width = (box.clientWidth || 1200) / Math.max(1, state.scenes.length) - GUTTER;
    if (most((scene) => scene.cpus) * LEAST_COLUMN > width) this.columnsBy = 'llc';
    this.told.setAttribute('role', 'status');
    this.panes = state.scenes.map((scene) => this.pane(scene));
    this.grid.append(...this.panes.map((pane) => pane.box));
    box.append(element('h3', '', 'Tasks × CPUs'), this.note, this.tools(), this.grid, this.told);
    this.wanted = lazily('heatmap', box, () => this.draw());
    const changed = (): void => {
      this.show();
      this.wanted();
    };
    state.listen(changed);
    document.addEventListener(THEME_CHANGED, changed);
    new ResizeObserver(changed).observe(this.grid);
    changed();
  }

  private tools(): HTMLElement {
    const tools = element('div', 'tools');
    const rows = [['task', 'task'], ['process', 'process'], ['group', 'role'], ['cluster', 'LLC they ran in most']] as const;
    const columns = [['cpu', 'CPU'], ['llc', 'LLC'], ['node', 'NUMA node'], ['socket', 'socket']] as const;
    tools.append(
      choice('Rows', rows, this.rowsBy, (value) => {
        this.rowsBy = value;
        this.unfolded.clear();
        this.draw();
      }),
      choice('Columns', columns, this.columnsBy, (value) => {
        this.columnsBy = value;
        this.draw();
      }),
    );
    return tools;
  }

  private pane(scene: Scene): Pane {
    const canvas = element('canvas');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.dataset.scheduler = scene.header.scheduler;
    const pane: Pane = { scene, box: element('div', 'pane'), canvas, scroller: element('div', 'scroller'), spacer: element('div'), gutter: GUTTER };
    pane.scroller.append(canvas, pane.spacer);
    pane.box.append(element('h4', '', scene.header.scheduler), pane.scroller);
    canvas.addEventListener('pointermove', (event) => {
      const row = this.rowAt(pane, event.offsetY);
      canvas.style.cursor = event.offsetX < pane.gutter && row !== undefined && pane.heat?.rows[row].kind === 'group' ? 'pointer' : '';
      showTip(this.words(pane, event.offsetX, event.offsetY), event.clientX, event.clientY);
    });
    canvas.addEventListener('pointerleave', () => showTip(''));
    canvas.addEventListener('click', (event) => {
      const row = this.rowAt(pane, event.offsetY);
      if (row === undefined) return;
      pane.chosen = row;
      if (event.offsetX < pane.gutter) this.unfold(pane, row);
      else this.tell(pane);
    });
    canvas.addEventListener('keydown', (event) => this.key(pane, event));
    pane.scroller.addEventListener('scroll', () => this.paint(pane));
    return pane;
  }

  /** Hides and shows panes at once; drawing may wait. */
  private show(): void {
    this.grid.style.setProperty('--panes', String(Math.max(1, this.state.shown.size)));
    this.panes.forEach((pane, index) => (pane.box.hidden = !this.state.shown.has(index)));
  }

  private draw(): void {
    this.show();
    const { from, to, machine } = this.state;
    this.note.textContent = `Share of each row's run time per column, ${duration(from)} to ${duration(to)} (the timeline's span). The further from the ground, the more. A click on the name of a group unfolds it.`;
    for (const pane of this.panes.filter((pane) => !pane.box.hidden)) {
      pane.heat = heatOf(pane.scene, machine, [from, to], this.rowsBy, this.columnsBy, this.unfolded);
      pane.canvas.setAttribute('aria-label', this.summary(pane.scene, pane.heat));
      this.paint(pane);
    }
  }

  private rowHeight(heat: Heat): number {
    return Math.max(4, Math.min(12, Math.floor(MOST_HEIGHT / Math.max(1, heat.rows.length))));
  }

  private paint(pane: Pane): void {
    const { heat, canvas, scroller } = pane;
    if (!heat) return;
    const width = pane.box.clientWidth - 2;
    const each = this.rowHeight(heat);
    const whole = Math.max(24, each * heat.rows.length);
    const height = Math.min(whole, MOST_HEIGHT);
    scroller.style.height = `${height + TOP + 4}px`;
    pane.spacer.style.height = `${whole - height}px`;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((height + TOP) * ratio);
    canvas.style.height = `${height + TOP}px`;
    const context = canvas.getContext('2d');
    if (!context) return;
    context.font = LABELS;
    const longest = heat.rows.reduce((most, row) => Math.max(most, context.measureText(`▸ ${row.label}`).width), 0);
    pane.gutter = Math.ceil(Math.min(longest + 10, width * MOST_LABELS));
    const plot = width - pane.gutter;
    if (plot < 20 || heat.rows.length === 0) return;
    context.scale(ratio, ratio);
    context.fillStyle = themeColour('--ground');
    context.fillRect(0, 0, width, height + TOP);
    const first = Math.floor(scroller.scrollTop / each);
    const rows = Math.min(heat.rows.length - first, Math.ceil(height / each));
    const columns = heat.columns.length;
    const image = new ImageData(columns, rows);
    const out = new Uint32Array(image.data.buffer);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const run = heat.run[(first + row) * columns + column];
        if (run > 0) out[row * columns + column] = pixel(magnitude(run / heat.sums[first + row] / heat.most));
      }
    }
    const picture = document.createElement('canvas');
    [picture.width, picture.height] = [columns, rows];
    picture.getContext('2d')?.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, pane.gutter, TOP, plot, rows * each);
    this.decorate(context, pane, heat, { plot, height, first, rows, each });
  }

  private decorate(
    context: CanvasRenderingContext2D,
    pane: Pane,
    heat: Heat,
    { plot, height, first, rows, each }: { plot: number; height: number; first: number; rows: number; each: number },
  ): void {
    const columns = heat.columns.length;
    context.font = LABELS;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const every = Math.ceil(13 / each);
    for (let row = first; row < first + rows; row++) {
      const { label, kind, unfolded } = heat.rows[row];
      if (kind === 'task' && row % every > 0) continue;
      context.fillStyle = themeColour(kind === 'group' ? '--ink' : '--muted');
      const mark = kind === 'group' ? (unfolded ? '▾ ' : '▸ ') : '';
      const needed = context.measureText(mark + label).width;
      const room = pane.gutter - 8;
      const shown = needed > room ? shortenedGroup(label, Math.floor(((label.length - 2) * room) / needed)) : label;
      context.fillText(mark + shown, pane.gutter - 6, TOP + (row - first + 0.5) * each);
    }
    const step = plot / columns;
    context.textAlign = 'left';
    for (let from = 0; from < columns; ) {
      let to = from;
      while (to < columns && heat.places[to] === heat.places[from]) to++;
      context.fillStyle = css(group(heat.places[from]));
      context.fillRect(pane.gutter + from * step, TOP - 6, (to - from) * step - 1, 4);
      context.fillStyle = themeColour('--muted');
      const label = this.columnsBy === 'cpu' ? `llc${heat.places[from]}` : heat.columns[from];
      if ((to - from) * step > 36) context.fillText(label, pane.gutter + from * step, TOP - 13);
      if (from > 0) context.fillRect(pane.gutter + from * step, TOP, 1, Math.min(height, rows * each));
      from = to;
    }
    context.strokeStyle = themeColour('--line');
    context.strokeRect(pane.gutter - 0.5, TOP - 0.5, plot, height);
    if (pane.chosen !== undefined && pane.chosen >= first && pane.chosen < first + rows) {
      context.strokeStyle = themeColour('--accent');
      context.lineWidth = 2;
      context.strokeRect(pane.gutter, TOP + (pane.chosen - first) * each, plot - 1, each);
      context.lineWidth = 1;
    }
  }

  private rowAt(pane: Pane, y: number): number | undefined {
    if (!pane.heat || y < TOP) return undefined;
    const each = this.rowHeight(pane.heat);
    const row = Math.floor(pane.scroller.scrollTop / each) + Math.floor((y - TOP) / each);
    return row < pane.heat.rows.length ? row : undefined;
  }

  private unfold(pane: Pane, row: number): void {
    const entry = pane.heat?.rows[row];
    if (!entry || this.rowsBy === 'task') return;
    if (!this.unfolded.delete(entry.group)) this.unfolded.add(entry.group);
    this.draw();
    this.tell(pane);
  }

  private key(pane: Pane, event: KeyboardEvent): void {
    if (!pane.heat || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = pane.heat.rows.length;
    const row = pane.chosen ?? -1;
    if (event.key === 'ArrowDown') pane.chosen = Math.min(rows - 1, row + 1);
    else if (event.key === 'ArrowUp') pane.chosen = Math.max(0, row - 1);
    else if (event.key !== 'Enter') return;
    event.preventDefault();
    if (event.key === 'Enter' && row >= 0) return this.unfold(pane, row);
    const each = this.rowHeight(pane.heat);
    const at = (pane.chosen ?? 0) * each;
    const { scroller } = pane;
    if (at < scroller.scrollTop || at + each > scroller.scrollTop + MOST_HEIGHT) scroller.scrollTop = Math.max(0, at - MOST_HEIGHT / 2);
    this.paint(pane);
    this.tell(pane);
  }

  /** The chosen row in words. */
  private tell(pane: Pane): void {
    const { heat, chosen } = pane;
    const entry = chosen === undefined ? undefined : heat?.rows[chosen];
    if (!heat || chosen === undefined || !entry) return;
    const columns = heat.columns.length;
    const shares = heat.columns.map((name, at) => ({ name, share: heat.run[chosen * columns + at] / (heat.sums[chosen] || 1) }));
    const top = shares.filter(({ share }) => share > 0).sort((a, b) => b.share - a.share).slice(0, 4);
    const folded = entry.kind === 'group' ? (entry.unfolded ? ', unfolded' : ', folded: Enter unfolds it') : '';
    const where = top.map(({ name, share }) => `${percent(share)} on ${name}`).join(', ');
    this.told.textContent = `${pane.scene.header.scheduler}: ${entry.label}${folded}: ran ${duration(heat.sums[chosen])}${where ? `, ${where}` : ''}.`;
    this.paint(pane);
  }

  private words(pane: Pane, x: number, y: number): string {
    const { heat, canvas } = pane;
    const row = this.rowAt(pane, y);
    if (!heat || row === undefined) return '';
    const column = Math.floor(((x - pane.gutter) / (canvas.clientWidth - pane.gutter)) * heat.columns.length);
    if (x < pane.gutter) return heat.rows[row].label;
    if (column >= heat.columns.length) return '';
    const run = heat.run[row * heat.columns.length + column];
    const llc = this.columnsBy === 'cpu' ? ` (llc ${heat.places[column]})` : '';
    return `${heat.rows[row].label} on ${heat.columns[column]}${llc}\n${duration(run)}, ${percent(heat.sums[row] ? run / heat.sums[row] : 0)} of its ${duration(heat.sums[row])}`;
  }

  private summary(scene: Scene, heat: Heat): string {
    const used = heat.run.reduce((sum, value) => sum + Number(value > 0), 0);
    return `${heat.rows.length} rows by ${heat.columns.length} columns under ${scene.header.scheduler}: ${count(used)} cells with run time, the largest share is ${percent(heat.most)}. Arrow keys choose a row, Enter unfolds a group.`;
  }
}
